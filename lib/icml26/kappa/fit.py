"""KAPPA for a model and questions of your own: from items to an intervention in one call.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). `fit` splits the items, asks the model each in all
rotations of its options, trains probes on one part, chooses layers and strength on the other, and returns a
`FittedKappa` to be put around ``model(...)`` or ``model.generate(...)``. Choosing is done by `icml26.kappa.selection`,
measuring by `icml26.kappa.measured`. Whether KAPPA helps has to be measured on items that were not given to `fit`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from icml26 import multiple_choice
from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.kappa import gap
from icml26.kappa.intervention import Kappa
from icml26.kappa.measured import measure, split
from icml26.kappa.selection import Learned, learn
from icml26.kappa.settings import SelectionConfig, Setting
from icml26.multiple_choice import Item

__all__ = ["FitReport", "FittedKappa", "fit"]

_LEAST = 2  # items of either part


class FitReport(NamedTuple):
    """What `fit` saw, in shares from 0 to 1 of the validation prompts.

    Attributes
    ----------
    items : tuple of int
        Training and validation items.
    layer : int
        Of the best knowledge probe.
    probe : float
        Its accuracy.
    model : float
        Accuracy of the model's corrected answers.
    kappa : float
        The same with KAPPA; the best of all settings tried on these very prompts, so an optimistic figure.
    agreement, agreement_before : float
        AGR with KAPPA and without.
    tried : int
        Settings tried.
    """

    items: tuple[int, int]
    layer: int
    probe: float
    model: float
    kappa: float
    agreement: float
    agreement_before: float
    tried: int


@dataclass(frozen=True, eq=False)
class FittedKappa:
    """KAPPA with probes, layers and strength for one model and one kind of question.

    Attributes
    ----------
    kappa : Kappa
        The intervention.
    setting : Setting
        Its layers and strength.
    symbol_ids : tuple of int
        Tokens of the options' symbols.
    mean : array, options
        Mean logits of these tokens on the training prompts, which `choose` subtracts.
    report : FitReport
        How it was chosen.
    learned : Learned
        Probes of all layers, and every setting tried.
    """

    kappa: Kappa
    setting: Setting
    symbol_ids: tuple[int, ...]
    mean: Float[np.ndarray, " options"]
    report: FitReport
    learned: Learned

    def applied(self, model: Any, **options: Any) -> AbstractContextManager[None]:
        """Intervene while the context lasts.

        Parameters
        ----------
        model
            The model that it was fitted for.
        **options
            As of `Kappa.applied`.

        Returns
        -------
        context manager
            To be put around ``model(...)`` or ``model.generate(...)``.
        """
        return self.kappa.applied(model, **options)

    def choose(self, logits: Float[ArrayLike, "*prompts vocabulary"]) -> Int[np.ndarray, "*prompts"]:
        """Pick an option by the logits of the next token, corrected for the letters that the model likes.

        Parameters
        ----------
        logits
            Of the whole vocabulary, such as ``model(**inputs).logits[:, -1]``.

        Returns
        -------
        int array
            Index of the option as shown.

        Raises
        ------
        InputError
            If the vocabulary is smaller than the symbols' tokens, or a logit is NaN.
        """
        values = np.asarray(logits.detach().float().cpu() if hasattr(logits, "detach") else logits, dtype=np.float64)
        if np.isnan(values).any():
            raise InputError("logits hold NaN: no option is the largest")
        if values.ndim == 0 or values.shape[-1] <= max(self.symbol_ids):
            raise InputError(f"logits have shape {values.shape}: give those of the whole vocabulary on the last axis")
        return (values[..., list(self.symbol_ids)] - self.mean).argmax(-1)


def fit(
    model: Any,
    tokenizer: Any,
    items: Sequence[Item],
    *,
    validation: float = 0.25,
    config: SelectionConfig | None = None,
    orders: Sequence[Sequence[int]] | None = None,
    symbols: Sequence[str] = multiple_choice.SYMBOLS,
    symbol_template: str = "({})",
    write: Callable[..., str] = multiple_choice.prompt,
    special_tokens: bool = True,
    batch: int = 64,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> FittedKappa:
    """Fit KAPPA to a model on multiple-choice items.

    Parameters
    ----------
    model, tokenizer
        A causal language model of `transformers`.
    items
        Questions with their right options, all with as many options, each once; some dozens at least. They are split,
        not their words: where options come from a small pool, validation has seen some of them in training.
    validation
        Share of the items on which layers and strength are chosen.
    config
        What is tried.
    orders, symbols, symbol_template, write, special_tokens, batch
        As of `icml26.kappa.measured.measure`: how items become prompts. Use KAPPA with prompts of the same form.
    seed
        Of the split.
    progress
        Called with one line of text at each step.

    Returns
    -------
    FittedKappa
        To be applied to the same model.

    Raises
    ------
    InputError
        If there are too few items, one comes twice, they differ in their number of options, or the model never picks
        some option.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> items = [Item(f"Which is {n}?", (str(n), str(n + 1), str(n - 1)), 0) for n in range(16)]
    >>> fitted = fit(model, tokenizer, items, config=SelectionConfig(alphas=(1.0,), layer_counts=(1,)))
    >>> inputs = tokenizer(multiple_choice.prompt(items[0]), return_tensors="pt")
    >>> with fitted.applied(model):
    ...     int(fitted.choose(model(**inputs).logits[:, -1]).item()) in (0, 1, 2)
    True
    """
    share = real("validation", validation, above=0, below=1)
    whole("seed", seed, 0)
    if config is not None and not isinstance(config, SelectionConfig):
        raise InputError(f"config is a {type(config).__name__}: give a SelectionConfig")
    if isinstance(items, Mapping | str) or not isinstance(items, Iterable):
        raise InputError(f"items are a {type(items).__name__}: give a list of icml26.multiple_choice.Item")
    items = list(items)
    for item in items:
        if not isinstance(item, Item):
            raise InputError(f"items hold a {type(item).__name__}: make each an icml26.multiple_choice.Item")
    asked: dict[tuple[str, str], int] = {}
    for number, item in enumerate(items):
        same = asked.setdefault((item.question.strip(), item.options[item.answer].strip()), number)
        if same != number:
            raise InputError(f"items {same} and {number} are the same question with the same answer: give each once")
    held = max(_LEAST, round(share * len(items)))
    if len(items) - held < max(_LEAST, held):
        raise InputError(
            f"items are {len(items)}, of which validation={validation} takes {held}: give more, or take fewer"
        )
    parts = split(len(items), (len(items) - held, held), seed=seed)

    def measured(numbers: Int[np.ndarray, " part"], keep_cache: bool) -> Any:
        chosen: Mapping[int, Item] = {int(number): items[number] for number in numbers}
        return measure(
            model,
            tokenizer,
            chosen,
            orders=orders,
            symbols=symbols,
            symbol_template=symbol_template,
            write=write,
            special_tokens=special_tokens,
            keep_cache=keep_cache,
            batch=batch,
            progress=progress,
        )

    training, held_out = measured(parts[0], False), measured(parts[1], True)
    # DoLa is no part of this, and CAA needs vectors.
    learned = learn("items", training, replace(held_out, early=None), config, progress=progress)
    if learned.pred is None:
        missing = sorted(set(range(training.options)) - set(learned.predicted.tolist()))
        named = ", ".join(symbols[place] for place in missing)
        raise InputError(
            f"the model never picks {named} on the {len(parts[0])} training items, even corrected for its liking of "
            "letters, so there is no prediction to move: give more items, or another model"
        )
    setting = learned.best("KAPPA")
    best = next(tried for tried in learned.tried if tried.setting == setting)
    base, reference = gap.calibrate(held_out.logits, learned.mean), learned.reference(held_out)
    report = FitReport(
        items=(len(parts[0]), len(parts[1])),
        layer=learned.layer,
        probe=float(learned.know_accuracy[learned.layer]),
        model=gap.accuracy(base, held_out.labels),
        kappa=best.accuracy,
        agreement=best.agreement,
        agreement_before=gap.agreement(base, reference),
        tried=len(learned.tried),
    )
    kappa = Kappa(learned.pairs(setting.layers), alpha=setting.strength)
    ids = multiple_choice.symbol_ids(tokenizer, symbols[: training.options], symbol_template)
    return FittedKappa(kappa, setting, tuple(ids), learned.mean, report, learned)
