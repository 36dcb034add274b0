"""How long a study of KAPPA takes, before it is begun.

The study follows KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). What costs time is the model: whole prompts
once, and then one token a prompt for each setting, from the first changed block on. Rates are the caller's to measure,
on a few prompts; probes and resampling are small beside them and are left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.kappa.settings import SelectionConfig, settings
from icml26.kappa.studies import StudyConfig

__all__ = ["Stage", "plan"]


class Stage(NamedTuple):
    """One part of the study.

    Attributes
    ----------
    name : str
        What is done.
    passes : int
        Prompts run, or single tokens after a kept prompt.
    seconds : float
        Estimate.
    """

    name: str
    passes: int
    seconds: float


def plan(
    options: Sequence[int],
    *,
    sizes: tuple[int, int, int],
    tokens: float,
    prompt_rate: float,
    step_rate: float,
    layers: int = 30,
    depth: float = 0.6,
    orders: int | None = None,
    config: SelectionConfig | None = None,
    study: StudyConfig | None = None,
) -> list[Stage]:
    """Estimate the seconds of a study.

    Parameters
    ----------
    options
        k of each task.
    sizes
        Training, validation and test items of a task.
    tokens
        Of a prompt, on average.
    prompt_rate
        Tokens of whole prompts per second.
    step_rate
        Single tokens after kept prompts, through all blocks, per second.
    layers
        Blocks of the model.
    depth
        Share of the blocks before the first one that is changed; they need not be run.
    orders
        In which an item is asked; k rotations by default.
    config, study
        What is tried and run.

    Returns
    -------
    list of Stage
        In order; DoLa, which runs no block, is not counted.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> stages = plan([3] * 5 + [4], sizes=(44, 16, 30), tokens=38, prompt_rate=400, step_rate=300)
    >>> [stage.name for stage in stages]
    ['collect', 'choose on validation', 'test']
    """
    config, study = config or SelectionConfig(), study or StudyConfig()
    if len(sizes) != 3 or not options:
        raise InputError(f"sizes={sizes} and options={options} must be three numbers and one number per task")
    items = [whole("sizes", size, 1) for size in sizes]
    rates = real("prompt_rate", prompt_rate, above=0), real("step_rate", step_rate, above=0)
    rest = 1 - real("depth", depth, low=0, below=1)
    asked = [whole("options", k, 2) if orders is None else whole("orders", orders, 1) for k in options]
    tries = settings(np.linspace(0, 1, whole("layers", layers, 2)), int(depth * layers), config)
    one_task = (
        len(config.layer_counts)
        + 2  # KAPPA of each number of layers, the best of them and CAA
        + 2 * len(study.alphas)
        + len(study.betas)
        + 3  # reversed, and the released form twice
        + study.random_draws
        + study.shuffles
        + study.subsets * len(study.shares)
    )
    collected = sum(asked) * sum(items)
    validated = sum(asked) * items[1] * (len(tries["KAPPA"]) + len(tries["CAA"]))
    sources = [sum(other == k for other in options) - 1 for k in options]
    tested = items[2] * sum(each * (one_task + others) for each, others in zip(asked, sources, strict=True))
    return [
        Stage("collect", collected, collected * tokens / rates[0]),
        Stage("choose on validation", validated, validated * rest / rates[1]),
        Stage("test", tested, tested * rest / rates[1]),
    ]
