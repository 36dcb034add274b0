"""The numbers that decide KAPPA's claims, with their intervals.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). Claims are averages over tasks of functions of
averages over items. `over_items` resamples the items of each task, all orders of an item together, and `estimates` does
so for every claim for which there is something to judge. The correlation of angle and gap (A3) is over tasks, which are
resampled themselves. What a claim says and which verdict an interval gives is for `icml26.claims`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from icml26.checks import whole
from icml26.errors import InputError
from icml26.kappa.nulls import Separation
from icml26.kappa.studies import Evaluated
from icml26.stats import Interval, bootstrap_interval
from icml26.sums import cluster_sums

__all__ = ["angle_and_gap", "estimates", "over_items", "per_item", "separated"]

Means = list[Float[np.ndarray, "measures *resamples"]]

_POINTS = 100.0


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
    """Average over tasks by how much knowledge is further from prediction than from itself.

    Parameters
    ----------
    separations
        Of each task, with equally many resamples.

    Returns
    -------
    Interval
        Degrees; 95 % percentile interval over the resamples of items.

    Raises
    ------
    InputError
        If there is no task, or numbers of resamples differ.

    Examples
    --------
    >>> separated([Separation(80.0, 70.0, np.array([9.0, 9.0])), Separation(80.0, 68.0, np.array([11.0, 11.0]))])
    Interval(value=11.0, low=10.0, high=10.0)
    """
    if len({len(one.differences) for one in separations}) != 1:
        raise InputError("separations must be of at least one task, with equally many resamples each")
    low, high = np.quantile(np.mean([one.differences for one in separations], axis=0), (0.025, 0.975))
    return Interval(float(np.mean([one.across - one.within for one in separations])), float(low), float(high))


def angle_and_gap(
    angles: Float[ArrayLike, " tasks"], gaps: Float[ArrayLike, " tasks"], *, seed: int, resamples: int = 2000
) -> Interval:
    """Compute Spearman's correlation over tasks, with an interval over tasks.

    Parameters
    ----------
    angles, gaps
        Of each task; at least three different ones of both.
    seed
        Of the resampling.
    resamples
        Number of resamples; those with fewer than three different tasks, or in which all angles or all gaps are equal,
        are drawn anew.

    Returns
    -------
    Interval
        95 % percentile interval.

    Raises
    ------
    InputError
        If tasks are too few, or a value is not finite.

    Examples
    --------
    >>> angle_and_gap([60.0, 70.0, 80.0, 85.0], [0.2, 0.3, 0.5, 0.6], seed=0).interval
    (1.0, 1.0)
    """
    pairs = np.array([angles, gaps], dtype=np.float64)
    if not np.isfinite(pairs).all() or min(np.unique(row).size for row in pairs) < 3:
        raise InputError("angles and gaps must be finite, of at least three tasks that differ")
    draw, tasks = np.random.default_rng(whole("seed", seed, 0)), pairs.shape[1]
    found = np.empty(0)
    while len(found) < whole("resamples", resamples, 2):
        drawn = draw.integers(tasks, size=(resamples, tasks))
        drawn = drawn[[np.unique(row).size > 2 for row in drawn]]
        found = np.append(found, _spearman(pairs[:, drawn]))
        found = found[np.isfinite(found)]
    low, high = np.quantile(found[:resamples], (0.025, 0.975))
    return Interval(float(_spearman(pairs)), float(low), float(high))


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
    if min(np.unique(angles).size, np.unique(gaps).size) > 2:
        found["A3"] = angle_and_gap(angles, gaps, seed=seed, resamples=resamples)
    least = [min((n for n in t.scores if n.endswith("of the items")), key=_share, default="") for t in tasks]
    most = [max((n for n in t.settings if n.startswith("KAPPA, ")), key=_layers) for t in tasks]
    comparisons = {
        "A4": ("right", ["KAPPA"] * len(tasks), ["base"] * len(tasks)),
        "A4b": ("agrees", ["KAPPA"] * len(tasks), ["base"] * len(tasks)),
        "A5": ("right", ["KAPPA"] * len(tasks), ["baseline"] * len(tasks)),
        "A6": ("right", most, ["KAPPA, 1 layer"] * len(tasks)),
        "A8": ("right", least, ["base"] * len(tasks)),
    }
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
        [_rows(task, "right", "KAPPA", "random", "shuffled") for task in tasks],
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


def _spearman(pairs: Float[np.ndarray, "2 *resamples tasks"]) -> Float[np.ndarray, "*resamples"]:
    ranks = rankdata(pairs, axis=-1)
    ranks -= ranks.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # constant angles or gaps have no correlation
        return (ranks[0] * ranks[1]).sum(-1) / np.sqrt((ranks**2).sum(-1).prod(0))
