"""Is one model of the loss better than another? Paired differences of their errors on the same measured runs.

The differences decide the chapter's claims C1 to C3 and C5 to C7 about Li and Maddison (ICML 2026, arXiv 2605.09154).
Models enter as functions from rows of N, B and K to losses; their fits stay fixed while runs are resampled in pairs
(`icml26.stats`). A positive difference means that the first model errs more. Errors themselves are in `scoring`, sets
of runs in `rows`; choices of configurations and times are left to `selection`.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from icml26 import stats
from icml26.errors import InputError
from icml26.nqs.rows import LARGEST_TRAINING_BUDGET, compute_gap, small_batch
from icml26.nqs.scoring import Predict, log_huber, log_square, predicted_losses

__all__ = ["difference", "gap_slope_difference", "least", "small_batch_differences", "wins"]


def difference(
    frame: pd.DataFrame,
    first: Predict,
    second: Predict,
    *,
    seed: int,
    error: Callable[..., np.ndarray] = log_huber,
    cluster: str | None = None,
    resamples: int = 2000,
) -> stats.Interval:
    """Bootstrap the mean error of one model less that of another on the same runs.

    Parameters
    ----------
    frame : DataFrame
        Measured runs, with the columns ``N, B, K, loss``.
    first, second : callable
        The models.
    seed, resamples : int
        Of the bootstrap.
    error : callable
        `log_huber` or `log_square`: the error of each run.
    cluster : str, optional
        Column whose groups are resampled whole, where runs depend on each other, such as checkpoints of one training.

    Returns
    -------
    Interval
        Above zero where `first` errs more; 95 %.

    Raises
    ------
    InputError
        As `scoring.predictions`, or with fewer than two runs or clusters.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": [10, 20, 40], "B": 1, "K": 1, "loss": [4.0, 2.0, 1.0]})
    >>> found = difference(runs, lambda X: 41 / X[:, 0], lambda X: 40 / X[:, 0], seed=0)
    >>> found.value > 0 and found.low > 0
    True
    """
    gains = _errors(frame, first, error) - _errors(frame, second, error)
    if cluster is None:
        return stats.bootstrap_interval(np.mean, gains, seed=seed, resamples=resamples)
    if cluster not in frame:
        raise InputError(f"cluster={cluster!r} is no column of the frame; it has {', '.join(map(str, frame))}")
    sums, counts = stats.cluster_sums(np.stack([gains, np.ones_like(gains)]), frame[cluster])

    def mean(sums: np.ndarray, counts: np.ndarray, axis: int) -> np.ndarray:
        return sums.sum(axis) / counts.sum(axis)

    return stats.bootstrap_interval(mean, sums, counts, seed=seed, resamples=resamples)


def wins(
    frame: pd.DataFrame, first: Predict, second: Predict, error: Callable[..., np.ndarray] = log_huber
) -> tuple[int, int]:
    """Count the runs on which the second model errs less than the first.

    Parameters
    ----------
    frame : DataFrame
        Measured runs.
    first, second : callable
        The models.
    error : callable
        The error of each run.

    Returns
    -------
    wins, runs : int

    Raises
    ------
    InputError
        As `scoring.predictions`.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": [10, 20], "B": 1, "K": 1, "loss": [2.0, 1.0]})
    >>> wins(runs, lambda X: 0 * X[:, 0] + 1, lambda X: 20 / X[:, 0])
    (1, 2)
    """
    better = _errors(frame, second, error) < _errors(frame, first, error)
    return int(better.sum()), len(frame)


def least(*intervals: stats.Interval) -> stats.Interval:
    """Combine differences that must all be above zero for a claim to hold: the least value, and the least of each end.

    Its low end is above zero exactly if all low ends are; its high end is below zero if any high end is.

    Parameters
    ----------
    *intervals : Interval
        Differences, claimed above zero.

    Returns
    -------
    Interval

    Raises
    ------
    InputError
        If there is none.

    Examples
    --------
    >>> least(stats.Interval(2.0, 1.0, 3.0), stats.Interval(1.5, -1.0, 4.0))
    Interval(value=1.5, low=-1.0, high=3.0)
    """
    if not intervals:
        raise InputError("intervals are missing; give the differences to combine")
    return stats.Interval(*(min(ends) for ends in zip(*intervals, strict=True)))


def gap_slope_difference(
    frame: pd.DataFrame,
    first: Predict,
    second: Predict,
    *,
    seed: int,
    reference: float = LARGEST_TRAINING_BUDGET,
    resamples: int = 2000,
) -> stats.Interval:
    """Bootstrap how much faster the first model's error grows with the compute gap than the second's.

    The slope is that of the least-squares line of each run's Huber loss on the logarithm of the gap, base 4.

    Parameters
    ----------
    frame : DataFrame
        Measured runs, with the columns ``N, B, K, C, loss``.
    first, second : callable
        The models.
    seed, resamples : int
        Of the bootstrap over runs.
    reference : float
        Largest training budget, in the unit of ``C``.

    Returns
    -------
    Interval
        Huber loss per fourfold compute.

    Raises
    ------
    InputError
        As `scoring.predictions`, or if all runs have the same gap.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": range(1, 25), "B": 1, "K": 1, "loss": 1.0, "C": [59.0, 236.0, 944.0, 3776.0] * 6})
    >>> drifting = lambda X: np.exp(0.1 * ((X[:, 0] - 1) % 4))
    >>> round(gap_slope_difference(runs, drifting, lambda X: np.ones(len(X)), seed=0).value, 5)
    0.0001
    """
    gains = _errors(frame, first, log_huber) - _errors(frame, second, log_huber)
    logs = np.log(compute_gap(frame, reference)) / np.log(4)
    if np.ptp(logs) == 0:
        raise InputError(f"all runs have the gap {4 ** logs.iloc[0]:.3g}; a slope needs runs of different compute")

    def slope(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        centred = x - x.mean(axis, keepdims=True)
        return (centred * y).sum(axis) / (centred**2).sum(axis)

    return stats.bootstrap_interval(slope, logs, gains, seed=seed, resamples=resamples)


def small_batch_differences(
    frame: pd.DataFrame, standard: Predict, adjusted: Predict, *, seed: int, max_batch: int = 192, resamples: int = 2000
) -> pd.DataFrame:
    """Tabulate what the normalisation term gains on small batches, on each set of runs and by each error.

    Parameters
    ----------
    frame : DataFrame
        All measurements, as `measurements.read` gives them.
    standard, adjusted : callable
        The law without and with the term.
    seed, resamples : int
        Of the bootstrap over runs.
    max_batch : int
        Largest batch of a test row, in sequences.

    Returns
    -------
    DataFrame
        ``error`` (squared or huber), ``rows`` (both, filtered or isotoken), ``runs``, ``value, low, high``: mean error
        of the standard form less that of the adjusted one, with its 95 % interval. The claim's own row is the first.

    Raises
    ------
    InputError
        As `difference`.

    Examples
    --------
    >>> from icml26.nqs import measurements
    >>> small_batch_differences(measurements.load(), standard, adjusted, seed=0)  # doctest: +SKIP
    """
    rows = [
        (kind, name, len(runs), *difference(runs, standard, adjusted, seed=seed, error=error, resamples=resamples))
        for kind, error in (("squared", log_square), ("huber", log_huber))
        for name, runs in small_batch(frame, max_batch).items()
    ]
    return pd.DataFrame(rows, columns=["error", "rows", "runs", "value", "low", "high"])


def _errors(frame: pd.DataFrame, predict: Predict, error: Callable[..., np.ndarray]) -> np.ndarray:
    return error(frame["loss"], predicted_losses(frame, predict))
