"""Prompts of multiple-choice items with a model's hidden states and answers: what every study of KAPPA starts from.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). Each item is asked in several orders of its
options, which are not independent of one another: `split` divides items, `measure` asks those of one part, and
`Measured` keeps the orders of an item together. Running the model is the business of
`icml26.kappa.collect`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from icml26 import multiple_choice
from icml26.checks import whole
from icml26.errors import InputError
from icml26.multiple_choice import Item

__all__ = ["Measured", "measure", "split"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Prompts of some items, asked in several orders of their options, and what the model made of them.

    Parameters
    ----------
    hidden
        Output of every decoder block at the last token.
    logits
        Of the options' symbols.
    labels
        Index of the right option as shown.
    items
        Which item each prompt asks; those of one item are not independent.
    answers
        ``answers(intervention)`` returns the symbols' logits under a `Kappa` or a `Steering`; not needed in training.
    early
        ``early(bucket, rows)`` returns DoLa's contrast of the last layer with early ones, a `Contrasted`, of all
        prompts or of some rows.
    vectors
        CAA's, of every block.

    Raises
    ------
    InputError
        If shapes do not fit or a value is not finite.

    Examples
    --------
    >>> prompts = Measured(np.zeros((2, 1, 8)), np.zeros((2, 3)), [0, 1], [7, 7])
    >>> prompts.layers, prompts.options
    (1, 3)
    """

    hidden: Float[np.ndarray, "prompts layers width"]
    logits: Float[np.ndarray, "prompts options"]
    labels: Int[np.ndarray, " prompts"]
    items: Int[np.ndarray, " prompts"]
    answers: Callable[[Any], Float[np.ndarray, "prompts options"]] | None = None
    early: Callable[..., Any] | None = None
    vectors: Float[np.ndarray, "layers width"] | None = None

    def __post_init__(self) -> None:
        for name in ("hidden", "logits", "labels", "items"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        if self.hidden.ndim != 3 or not self.hidden.size or not np.isfinite(self.hidden).all():
            raise InputError(f"hidden has shape {self.hidden.shape}: give (prompts, layers, width), all finite")
        if self.logits.ndim != 2 or self.logits.shape[1] < 2 or not np.isfinite(self.logits).all():
            raise InputError(f"logits have shape {self.logits.shape}: give (prompts, options), all finite")
        lengths = {len(getattr(self, name)) for name in ("hidden", "logits", "labels", "items")}
        if len(lengths) > 1 or self.labels.ndim != 1 or self.items.ndim != 1:
            raise InputError("hidden, logits, labels and items differ in the number of prompts: give one row each")
        if self.labels.dtype.kind not in "iu" or self.labels.min() < 0 or self.labels.max() >= self.logits.shape[1]:
            raise InputError(f"labels must be options, 0 to {self.logits.shape[1] - 1}")
        if self.vectors is not None and np.shape(self.vectors) != self.hidden.shape[1:]:
            raise InputError(
                f"vectors have shape {np.shape(self.vectors)}, not (layers, width) {self.hidden.shape[1:]}"
            )

    @property
    def options(self) -> int:
        """Options of each prompt."""
        return self.logits.shape[1]

    @property
    def layers(self) -> int:
        """Decoder blocks of the model."""
        return self.hidden.shape[1]

    def take(self, items: Iterable[int]) -> "Measured":
        """Keep some items, without the means to intervene.

        Parameters
        ----------
        items
            Their numbers, each once.

        Returns
        -------
        Measured
            All orders of each.

        Raises
        ------
        InputError
            If there is no such item, or one comes twice.
        """
        items = list(items)
        if not items or len(set(items)) < len(items) or not np.isin(items, self.items).all():
            raise InputError(f"items={items} must be items of these prompts, each once: {np.unique(self.items)}")
        rows = np.concatenate([np.flatnonzero(self.items == item) for item in items])
        return Measured(self.hidden[rows], self.logits[rows], self.labels[rows], self.items[rows])


def split(items: int, sizes: Sequence[int], *, seed: int) -> list[Int[np.ndarray, " part"]]:
    """Divide items at random into parts, such as training, validation and test.

    Parameters
    ----------
    items
        How many there are.
    sizes
        Of the parts.
    seed
        Of the draw.

    Returns
    -------
    list of int array
        Numbers of the items of each part, in rising order.

    Raises
    ------
    InputError
        If a size is no positive integer, or there are too few items.

    Examples
    --------
    >>> [len(part) for part in split(90, (44, 16, 30), seed=0)]
    [44, 16, 30]
    """
    sizes = [whole("sizes", size, 1) for size in sizes]
    if whole("items", items, 1) < sum(sizes):
        raise InputError(f"sizes={tuple(sizes)} need {sum(sizes)} items, there are {items}: give smaller sizes")
    drawn = np.random.default_rng(whole("seed", seed, 0)).permutation(items)
    return [np.sort(part) for part in np.split(drawn[: sum(sizes)], np.cumsum(sizes)[:-1])]


def measure(
    model: Any,
    tokenizer: Any,
    items: Mapping[int, Item],
    *,
    orders: Sequence[Sequence[int]] | None = None,
    symbols: Sequence[str] = multiple_choice.SYMBOLS,
    symbol_template: str = "({})",
    write: Callable[..., str] = multiple_choice.prompt,
    special_tokens: bool = True,
    keep_cache: bool = False,
    contrast: int | None = None,
    batch: int = 64,
    progress: Callable[[str], None] | None = None,
) -> Measured:
    """Ask a model some items, each in several orders of its options.

    Parameters
    ----------
    model, tokenizer
        A causal language model of `transformers`.
    items
        Items by their numbers, with equally many options.
    orders
        Of the options; by default all rotations.
    symbols
        Of the options.
    symbol_template
        How a symbol stands in the prompt, as of `icml26.multiple_choice.symbol_ids`.
    write
        ``write(item, order, symbols=symbols)`` returns the prompt, which ends where the symbol follows.
    special_tokens
        Whether the tokenizer puts tokens of its own at the start.
    keep_cache
        Whether interventions will be tried on these prompts.
    contrast
        Seed of the wrong letters of CAA's vectors; without it there are none.
    batch
        Prompts in one pass, at most.
    progress
        Called with one line of text after each pass.

    Returns
    -------
    Measured
        With ``answers`` if the cache is kept, with ``vectors`` if letters are contrasted.

    Raises
    ------
    InputError
        If there is no item, or items have different numbers of options.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> item = Item("Which of these is a fruit?", ("chair", "plum", "rain"), 1)
    >>> measure(*load_lm("tiny-random-llama"), {7: item}).labels.tolist()
    [1, 0, 2]
    """
    from icml26.kappa import baselines
    from icml26.kappa.collect import collect

    if not isinstance(items, Mapping) or not all(isinstance(item, Item) for item in items.values()):
        raise InputError("items must map numbers to icml26.multiple_choice.Item")
    numbers = {len(item.options) for item in items.values()}
    if len(numbers) != 1:
        raise InputError(f"items have {sorted(numbers)} options: give at least one item, all with as many options")
    (k,) = numbers
    orders = multiple_choice.cyclic_orders(k) if orders is None else list(orders)
    asked = [(number, item, order) for number, item in items.items() for order in orders]
    labels = np.array([multiple_choice.label(item, order) for _, item, order in asked])
    ids = multiple_choice.symbol_ids(tokenizer, symbols[:k], symbol_template)
    found = collect(
        model,
        tokenizer,
        [write(item, order, symbols=symbols) for _, item, order in asked],
        ids,
        appended=None if contrast is None else baselines.contrast(labels, ids, seed=contrast),
        keep_cache=keep_cache,
        batch=batch,
        special_tokens=special_tokens,
        progress=progress,
    )
    kept = found.prepared

    def early(bucket: Sequence[int], rows: Any = slice(None)) -> baselines.Contrasted:
        return baselines.contrasted(model, found.hidden[rows], ids, bucket)

    return Measured(
        found.hidden,
        found.logits,
        labels,
        np.array([number for number, _, _ in asked]),
        kept.answers if kept else None,
        early,
        None if found.appended is None else baselines.caa(found.appended),
    )
