"""The chapter's two sets of prompts with answers: one to learn predictors from, one to serve.

The paper (TIE, Zheng et al., arXiv 2604.00499) has 45,000 prompts of LMSYS-Chat-1M with 20 answers each to learn from.
`collect` trains the model of docstrings and lets it answer, or lets a model of `transformers` answer prompts of one's
own, so that the same cells run at both scales. No prompt is in both sets; of docstrings they come from different files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from icml26 import models
from icml26.checks import whole
from icml26.errors import InputError
from icml26.tie import answers, docstring_lm, docstrings
from icml26.tie.answers import Answers

__all__ = ["Collected", "Collection", "collect"]

DOCSTRINGS = "docstrings"


@dataclass(frozen=True)
class Collection:
    """What to ask, and whom.

    Parameters
    ----------
    language_model : str
        "docstrings" to train the small model and ask it about definitions, else a model as `icml26.models.load_lm`
        takes it.
    prompt_texts : str
        Prompts for such a model, as `icml26.tie.answers.prompts` takes them; the model of docstrings has its own.
    training_steps : int
        Of the small model.
    packages : sequence of str
        Whose source files it learns, as `icml26.tie.docstrings.pairs` takes them.
    training_prompts, label_samples : int
        Prompts to learn from, and answers to each.
    test_prompts, test_samples : int
        Prompts to serve, and answers to each.
    cap : int
        Most tokens (bytes, for docstrings) of an answer.
    seed : int
        Of weights, prompts and answers.

    Raises
    ------
    InputError
        If a name is no string, a number no positive integer, or the seed negative.
    """

    language_model: str = DOCSTRINGS
    prompt_texts: str = "gsm8k"
    training_steps: int = docstring_lm.TRAINING.steps
    training_prompts: int = 100
    label_samples: int = 20
    test_prompts: int = 40
    test_samples: int = 100
    cap: int = docstring_lm.CAP
    seed: int = 0
    packages: Sequence[str] = docstrings.PACKAGES

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "packages":
                continue  # `docstrings.pairs` looks at them
            if name not in ("language_model", "prompt_texts"):
                whole(name, value, int(name != "seed"))
            elif not isinstance(value, str):
                raise InputError(f"{name}={value!r} must be a name, such as {type(self).__dict__[name]!r}")


class Collected(NamedTuple):
    """What `collect` returns.

    Attributes
    ----------
    training, test : Answers
        Of the prompts to learn from and of those to serve.
    unit : str
        "bytes" or "tokens".
    about : str
        Who answered, in a line.
    """

    training: Answers
    test: Answers
    unit: str
    about: str


def collect(config: Collection, progress: Callable[[str, int, int], None] | None = None) -> Collected:
    """Have both sets of prompts answered.

    Parameters
    ----------
    config : Collection
        What to ask, and whom.
    progress : callable, optional
        Called with what is being done, how much of it is done, and how much there is.

    Returns
    -------
    Collected

    Raises
    ------
    InputError
        If there are fewer prompts than asked for, or a number is out of range.
    MissingData, MissingModel
        If the prompts or the model are not on this machine.

    Examples
    --------
    >>> few = Collection("tiny-random-llama", "gsm8k", training_prompts=2, label_samples=2, test_prompts=1,
    ...                  test_samples=3, cap=4)
    >>> collect(few).test.lengths.shape  # doctest: +SKIP
    (1, 3)
    """
    say = progress or (lambda doing, done, total: None)
    wanted = (config.training_prompts, config.label_samples), (config.test_prompts, config.test_samples)
    if config.language_model == DOCSTRINGS:
        pairs = docstrings.pairs(config.packages)
        parts = docstrings.split(pairs)
        steps = config.training_steps
        model = docstring_lm.train(
            parts.model,
            replace(docstring_lm.TRAINING, steps=steps, warmup=min(docstring_lm.TRAINING.warmup, steps)),
            seed=config.seed,
            progress=lambda done, loss: say("training steps", done, steps),
        )
        asked = [
            docstrings.choose(part, count, config.seed) for part, (count, _) in zip(parts[1:], wanted, strict=True)
        ]
        text = f"{len(pairs):,} prompts and answers (digest {docstrings.digest(pairs)[:12]})"
        about = f"{text}, {model.num_parameters():,} parameters, {steps} steps"

        def answer(texts, samples, seed, tell):
            return answers.docstring_answers(model, texts, samples, seed=seed, cap=config.cap, progress=tell)
    else:
        model, tokenizer = models.load_lm(config.language_model)
        texts = answers.prompts(config.prompt_texts, config.training_prompts + config.test_prompts)
        asked = [texts[: config.training_prompts], texts[config.training_prompts :]]
        about = f"{config.language_model}, {model.num_parameters():,} parameters, asked {config.prompt_texts}"

        def answer(texts, samples, seed, tell):
            return answers.model_answers(model, tokenizer, texts, samples, seed=seed, cap=config.cap, progress=tell)

    found = [
        answer(texts, samples, 2 * config.seed + own, lambda done, total: say("prompts answered", done, total))
        for own, (texts, (_, samples)) in enumerate(zip(asked, wanted, strict=True))
    ]
    return Collected(*found, "bytes" if config.language_model == DOCSTRINGS else "tokens", about)
