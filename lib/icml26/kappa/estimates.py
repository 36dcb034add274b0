"""The numbers that decide KAPPA's claims, with their intervals.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). Claims are averages over tasks of functions of
averages over items. `over_items` resamples the items of each task, all orders of an item together, and `estimates` does
so for every claim for which there is something to judge. Items count as independent, though a word may be the right
option of one and a wrong option of another; and random draws of controls (A12) as fixed. The correlation of angle and
gap (A3) is over tasks. What a claim says and which verdict an interval gives is for `icml26.claims`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.stats import spearmanr

from icml26.errors import InputError
from icml26.kappa.nulls import Separation
from icml26.kappa.studies import Evaluated
from icml26.stats import Interval, bootstrap_interval
from icml26.sums import cluster_sums

__all__ = ["LEAST_TASKS", "angle_and_gap", "estimates", "over_items", "per_item", "separated"]

Means = list[Float[np.ndarray, "measures *resamples"]]

LEAST_TASKS = 6  # for a correlation over tasks
_POINTS = 100.0
_NORMAL = 1.959964  # 97.5 % quantile


def per_item(evaluated: Evaluated, values: Float[ArrayLike, "*curves prompts"]) -> Float[np.ndarray, "*curves items"]:
    """Average the orders of each test item.

    Parameters
    ----------
    evaluated
        A task.
    values
        One per prompt, such as ``scores["KAPPA"].right``.

    Returns
    -------
    array
        One per item.

    Raises
    ------
    InputError
        If there is not one value for each prompt.
    """
    return cluster_sums(values, evaluated.items) / cluster_sums(np.ones(len(evaluated.items)), evaluated.items)


def over_items(
    statistic: Callable[[Means], Float[np.ndarray, "*resamples"]],
    tables: Sequence[Float[ArrayLike, "measures items"]],
    *,
    seed: int,
    resamples: int = 2000,
) -> Interval:
    """Make an interval for a function of the tasks' means, resampling the items within each task.

    Parameters
    ----------
    statistic
        Of a list with one array per task, the means of its measures first; further axes are resamples and stay.
    tables
        Of each task, several measures of the same items.
    seed
        Of the resampling.
    resamples
        Number of resamples.

    Returns
    -------
    Interval
        95 % percentile interval.

    Raises
    ------
    InputError
        If there is no task, or one has fewer than two items or a value that is not finite.

    Examples
    --------
    >>> gain = lambda means: np.mean([mean[1] - mean[0] for mean in means], axis=0)
    >>> over_items(gain, [[[0.0, 1.0], [1.0, 2.0]], [[5.0, 5.0, 5.0], [8.0, 8.0, 8.0]]], seed=0).interval
    (2.0, 2.0)
    """
    tables = [np.asarray(table, dtype=np.float64) for table in tables]
    if not tables:
        raise InputError("tables are empty: give the measures of at least one task")
    for table in tables:
        if table.ndim != 2 or not table.size or not np.isfinite(table).all():
            raise InputError(f"tables hold one of shape {table.shape}: give finite numbers, (measures, items)")

    def of_rows(*drawn: np.ndarray, axis: int) -> np.ndarray:
        means = [table[:, rows.astype(int)].mean(axis) for table, rows in zip(tables, drawn, strict=True)]
        return statistic(means)

    rows = [np.arange(table.shape[1]) for table in tables]
    return bootstrap_interval(of_rows, *rows, seed=seed, paired=False, resamples=resamples)


def separated(separations: Sequence[Separation]) -> Interval:
    """Average over tasks by how much knowledge and prediction are further apart than either is from itself.

    Parameters
    ----------
    separations
        Of each task.

    Returns
    -------
    Interval
        Degrees; normal 95 % interval around the mean, the tasks' standard errors added as independent.

    Raises
    ------
    InputError
        If there is no task.

    Examples
    --------
    >>> separated([Separation(80.0, 70.0, 66.0, 10.0, 3.0), Separation(80.0, 64.0, 68.0, 12.0, 4.0)]).value
    11.0
    """
    if not len(separations):
        raise InputError("separations are empty: give those of at least one task")
    value = float(np.mean([one.value for one in separations]))
    reach = _NORMAL * float(np.sqrt(np.sum([one.error**2 for one in separations]))) / len(separations)
    return Interval(value, value - reach, value + reach)


def angle_and_gap(angles: Float[ArrayLike, " tasks"], gaps: Float[ArrayLike, " tasks"]) -> Interval:
    """Compute Spearman's correlation over tasks, with an interval over tasks.

    The interval is that of Fisher's transformation with the standard error ``1.06 / sqrt(n - 3)`` (Fieller, Hartley and
    Pearson, Biometrika 44, 1957). It is at its edge with so few tasks. A perfect ranking has no such interval, so
    correlations are taken to be at most halfway between one and the next smaller value that n tasks without ties can
    have.

    Parameters
    ----------
    angles, gaps
        Of each task, six at least, not all equal.

    Returns
    -------
    Interval
        95 % interval.

    Raises
    ------
    InputError
        If tasks are too few or all equal, or a value is not finite.

    Examples
    --------
    >>> found = angle_and_gap([60.0, 70.0, 80.0, 85.0, 86.0, 88.0], [0.2, 0.3, 0.5, 0.6, 0.7, 0.8])
    >>> found.value, round(found.low, 2), round(found.high, 2)
    (1.0, 0.72, 1.0)
    """
    pairs = np.array([angles, gaps], dtype=np.float64)
    tasks = pairs.shape[1]
    if tasks < LEAST_TASKS or not np.isfinite(pairs).all() or min(np.unique(row).size for row in pairs) < 2:
        raise InputError(f"angles and gaps must be finite, of at least {LEAST_TASKS} tasks that are not all equal")
    value = float(spearmanr(*pairs).statistic)
    edge = 1 - 6 / (tasks * (tasks**2 - 1))
    reach = _NORMAL * 1.06 / np.sqrt(tasks - 3)
    low, high = np.tanh(np.arctanh(np.clip(value, -edge, edge)) + np.array([-reach, reach]))
    return Interval(value, min(float(low), value), max(float(high), value))


def estimates(
    tasks: Sequence[Evaluated],
    separations: Sequence[Separation] = (),
    *,
    seed: int,
    resamples: int = 2000,
) -> dict[str, Interval]:
    """Estimate what each claim is about, in points (0 to 100) where it is a share of answers.

    Parameters
    ----------
    tasks
        Test prompts of each; those without prediction probes count in A1 only.
    separations
        Of the tasks with prediction probes, for A2.
    seed
        Of the resampling, the same for all claims.
    resamples
        Number of resamples.

    Returns
    -------
    dict of str to Interval
        By the claims' names, A1 to A12; those without data are missing.

    Raises
    ------
    InputError
        If there is no task, or one has fewer than two test items.
    """
    if not tasks:
        raise InputError("tasks are empty: evaluate at least one")
    options = [task.options for task in tasks]

    def surplus(means: Means) -> Float[np.ndarray, "*resamples"]:
        ahead = [
            probe - np.maximum(base, (1 - base) / (k - 1)) for (base, probe), k in zip(means, options, strict=True)
        ]
        return _POINTS * np.mean(ahead, axis=0)

    def interval(
        statistic: Callable[[Means], Float[np.ndarray, "*resamples"]], tables: list[Float[np.ndarray, "measures items"]]
    ) -> Interval:
        return over_items(statistic, tables, seed=seed, resamples=resamples)

    found = {"A1": interval(surplus, [_rows(task, "right", "base", "probe") for task in tasks])}
    if separations:
        found["A2"] = separated(separations)
    tasks = [task for task in tasks if task.settings]
    if not tasks:
        return found
    angles, gaps = ([task.angle for task in tasks], [1 - task.scores["base"].agrees.mean() for task in tasks])
    if len(tasks) >= LEAST_TASKS and min(np.unique(angles).size, np.unique(gaps).size) > 1:
        found["A3"] = angle_and_gap(angles, gaps)
    least = [min((n for n in t.scores if n.endswith("of the items")), key=_share, default="") for t in tasks]
    most = [max((n for n in t.settings if n.startswith("KAPPA, ")), key=_layers) for t in tasks]
    comparisons = {
        "A4": ("right", ["KAPPA"] * len(tasks), ["base"] * len(tasks)),
        "A4b": ("agrees", ["KAPPA"] * len(tasks), ["base"] * len(tasks)),
        "A5": ("right", ["KAPPA"] * len(tasks), ["baseline"] * len(tasks)),
        "A6": ("right", most, ["KAPPA, 1 layer"] * len(tasks)),
        "A8": ("right", least, ["base"] * len(tasks)),
    }
    if any(task.settings[name] == task.settings["KAPPA, 1 layer"] for task, name in zip(tasks, most, strict=True)):
        del comparisons["A6"]  # one number of layers was tried, which is no comparison
    for claim, (measure, names, others) in comparisons.items():
        if all({name, other} <= task.scores.keys() for task, name, other in zip(tasks, names, others, strict=True)):
            tables = [_rows(task, measure, b, a) for task, a, b in zip(tasks, names, others, strict=True)]
            found[claim] = interval(_gain, tables)
    for claim, name in (("A7", "alpha"), ("A7b", "beta")):
        found[claim] = interval(_smallest_rise, [per_item(task, task.scores[name].agrees) for task in tasks])
    transfers = [
        per_item(task, np.stack([s.agrees * 1.0 - task.scores["base"].agrees for s in task.transfer.values()]))
        for task in tasks
        if task.transfer
    ]
    if transfers:
        found["A9"] = interval(lambda means: _POINTS * np.concatenate(means).mean(0), transfers)
    if all(task.letter_share is not None for task in tasks):
        found["A11"] = interval(
            lambda means: np.concatenate(means).mean(0), [per_item(task, task.letter_share[None]) for task in tasks]
        )
    found["A12"] = interval(
        lambda means: _POINTS * np.mean([mean[:1] - mean[1:] for mean in means], axis=0).min(0),
        [_rows(task, "right", "KAPPA", "random", "random, centred", "shuffled") for task in tasks],
    )
    return found


def _rows(task: Evaluated, measure: str, *names: str) -> Float[np.ndarray, "measures items"]:
    values = [np.asarray(getattr(task.scores[name], measure), dtype=np.float64) for name in names]
    return np.stack([per_item(task, value.reshape(-1, value.shape[-1]).mean(0)) for value in values])


def _gain(means: Means) -> Float[np.ndarray, "*resamples"]:
    return _POINTS * np.mean([after - before for before, after in means], axis=0)


def _smallest_rise(means: Means) -> Float[np.ndarray, "*resamples"]:
    return _POINTS * np.diff(np.mean(means, axis=0), axis=0).min(0)


def _share(name: str) -> float:
    return float(name.split()[0])


def _layers(name: str) -> int:
    return int(name.split()[1])
