"""Confidence intervals, by resampling, by Student's t or of a share by Wilson's score, and seeds.

`scipy.stats` does the work; here are the conventions of the book around it: statistics vectorised over the
last axis, 95 % percentile intervals, one explicit seed, and a clear error where resampling has nothing to say. Which
items are independent (blocks, scale groups, questions, seeds) is for the caller to know: sum dependent ones with
`cluster_sums` of `icml26.sums` first. What an interval means for a claim is `icml26.claims`' business.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from icml26.checks import is_integer, whole
from icml26.errors import InputError
from icml26.sums import cluster_sums, root_ratio_of_sums

__all__ = [
    "Interval",
    "bootstrap_interval",
    "cluster_sums",
    "paired_difference",
    "root_ratio_of_sums",
    "seeds",
    "t_interval",
    "wilson_interval",
]

# Resampled values held at a time: 32 MB in float64.
_WORKSPACE = 1 << 22


class Interval(NamedTuple):
    """A statistic on the whole sample and its confidence interval; arrays where the samples have leading axes."""

    value: float | Float[np.ndarray, "*curves"]
    low: float | Float[np.ndarray, "*curves"]
    high: float | Float[np.ndarray, "*curves"]

    @property
    def interval(self) -> tuple:
        """The two ends, low first, as `Ledger.judge` takes them."""
        return self.low, self.high


def bootstrap_interval(
    statistic: Callable[..., np.ndarray],
    *samples: Float[ArrayLike, "*curves items"],
    seed: int,
    paired: bool = True,
    level: float = 0.95,
    resamples: int = 2000,
    method: str = "percentile",
) -> Interval:
    """Bootstrap a confidence interval over the items of one sample or several.

    Parameters
    ----------
    statistic : callable
        ``statistic(*samples, axis=-1)``, vectorised: it reduces that axis and keeps all others.
    *samples : array-like, shape (..., items)
        Observations; items are resampled, leading axes are kept (one interval for each).
    seed : int
        Seed of the resampling.
    paired : bool
        Whether item i of every sample is the same item; all samples are then resampled alike.
    level : float
        Confidence level, between 0 and 1.
    resamples : int
        Number of resamples.
    method : {"percentile", "basic", "BCa"}
        How the interval is made of the resampled statistics.

    Returns
    -------
    Interval
        Of zero width if every resample gives the same statistic.

    Raises
    ------
    InputError
        If a sample has fewer than two items or a value that is not finite, paired samples differ in length, an option
        is out of range, or the statistic is not vectorised or not finite on a resample.

    Examples
    --------
    >>> found = bootstrap_interval(np.mean, [1.0, 2.0, 3.0, 4.0], seed=0)
    >>> found.value, found.low < 2.5 < found.high
    (2.5, True)
    >>> bootstrap_interval(np.mean, [7.0, 7.0, 7.0], seed=0).interval
    (7.0, 7.0)
    """
    arrays = _checked(samples, paired)
    _check_seed("seed", seed)
    _check_level(level)
    resamples = whole("resamples", resamples, 2)
    if method not in ("percentile", "basic", "BCa"):
        raise InputError(f"method={method!r} must be 'percentile', 'basic' or 'BCa'")
    value = _value(statistic, arrays)
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # what is not finite is settled below
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            arrays,
            statistic,
            n_resamples=resamples,
            batch=max(1, _WORKSPACE // sum(array.size for array in arrays)),
            vectorized=True,
            axis=-1,
            paired=paired,
            confidence_level=level,
            method=method,
            rng=np.random.default_rng(seed),
        )
    resampled = found.bootstrap_distribution
    # BCa divides by the spread of the resampled statistics; without any, the interval is the point itself.
    constant = (resampled == resampled[..., :1]).all(axis=-1)
    low, high = (np.where(constant, resampled[..., 0], end) for end in found.confidence_interval)
    if not (np.isfinite(resampled).all() and np.isfinite(low).all() and np.isfinite(high).all()):
        raise InputError(f"statistic {_name(statistic)} is not finite on some resamples; give more items, or change it")
    return Interval(*(end.item() if end.ndim == 0 else end for end in (value, low, high)))


def paired_difference(
    a: Float[ArrayLike, "*curves items"],
    b: Float[ArrayLike, "*curves items"],
    *,
    seed: int,
    statistic: Callable[..., np.ndarray] = np.mean,
    level: float = 0.95,
    resamples: int = 2000,
    method: str = "percentile",
) -> Interval:
    """Bootstrap the difference ``statistic(a) - statistic(b)`` of two measurements of the same items.

    Parameters
    ----------
    a, b : array-like, shape (..., items)
        Item i of both is the same item.
    seed, level, resamples, method
        As in `bootstrap_interval`.
    statistic : callable
        Vectorised, with an ``axis`` keyword.

    Returns
    -------
    Interval
        Below zero where `a` is the smaller.

    Raises
    ------
    InputError
        As `bootstrap_interval`.

    Examples
    --------
    >>> paired_difference([2.0, 9.0, 5.0, 3.0], [1.0, 8.0, 4.0, 2.0], seed=0)
    Interval(value=1.0, low=1.0, high=1.0)
    """

    def difference(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
        return statistic(first, axis=axis) - statistic(second, axis=axis)

    return bootstrap_interval(difference, a, b, seed=seed, level=level, resamples=resamples, method=method)


def t_interval(sample: Float[ArrayLike, "*curves items"], *, level: float = 0.95) -> Interval:
    """Confidence interval of a mean by Student's t, for a few independent items such as seeds.

    Parameters
    ----------
    sample : array-like, shape (..., items)
        Observations, about normal; for a comparison, the difference that each seed gives. Leading axes are kept.
    level : float
        Confidence level, between 0 and 1.

    Returns
    -------
    Interval
        Mean over the last axis, and mean -+ quantile of t(items - 1) x standard deviation / sqrt(items); of zero width
        if all items are equal.

    Raises
    ------
    InputError
        If there are fewer than two items or one is not finite, or the level is out of range.

    Examples
    --------
    >>> t_interval([1.0, 2.0, 3.0]).value, [round(end, 3) for end in t_interval([1.0, 2.0, 3.0]).interval]
    (2.0, [-0.484, 4.484])
    """
    (array,) = _checked((sample,), paired=False)
    _check_level(level)
    mean = array.mean(axis=-1)
    # A constant sample has no spread, whatever the mean's rounding says.
    spread = np.where((array == array[..., :1]).all(axis=-1), 0.0, stats.sem(array, axis=-1))
    margin = stats.t.isf((1 - level) / 2, array.shape[-1] - 1) * spread
    return Interval(*(end.item() if end.ndim == 0 else end for end in (mean, mean - margin, mean + margin)))


def wilson_interval(successes: int, n: int, *, level: float = 0.95) -> Interval:
    """Confidence interval of a probability by Wilson's score, for a count of independent trials.

    Parameters
    ----------
    successes : int
        Trials that succeeded.
    n : int
        Trials, at least one.
    level : float
        Confidence level, between 0 and 1.

    Returns
    -------
    Interval
        Share of successes, and the probabilities that the score test at this level does not reject; from 0 where none
        succeeded, to 1 where all did, and never of zero width.

    Raises
    ------
    InputError
        If `n` is no integer of at least 1, `successes` none from 0 to `n`, or the level is out of range.

    Examples
    --------
    >>> wilson_interval(8, 10).value, [round(end, 3) for end in wilson_interval(8, 10).interval]
    (0.8, [0.49, 0.943])
    """
    n = whole("n", n, 1)
    successes = whole("successes", successes, 0, n)
    _check_level(level)
    found = stats.binomtest(successes, n).proportion_ci(level, "wilson")
    return Interval(successes / n, float(found.low), float(found.high))


def seeds(root: int, n: int) -> list[int]:
    """Derive independent seeds from one.

    Parameters
    ----------
    root : int
        The chapter's seed, not negative.
    n : int
        How many.

    Returns
    -------
    list of int
        32-bit seeds; asking for more does not change the first ones.

    Raises
    ------
    InputError
        If `root` or `n` is negative or no integer.

    Examples
    --------
    >>> seeds(0, 3) == seeds(0, 5)[:3]
    True
    """
    _check_seed("root", root)
    n = whole("n", n, 0)
    return np.random.SeedSequence(root).generate_state(n).tolist() if n else []


def _check_seed(name: str, value: int) -> None:
    if not is_integer(value) or value < 0:
        raise InputError(f"{name}={value!r} must be an integer and must not be negative, so that runs repeat")


def _check_level(level: float) -> None:
    if not isinstance(level, float | np.floating) or not 0 < level < 1:
        raise InputError(f"level={level!r} must lie between 0 and 1, such as 0.95")


def _checked(samples: tuple[ArrayLike, ...], paired: bool) -> tuple[np.ndarray, ...]:
    if not samples:
        raise InputError("samples are missing; give at least one array of items")
    try:
        arrays = tuple(np.asarray(sample, dtype=float) for sample in samples)
    except (TypeError, ValueError) as error:
        raise InputError(f"samples must be arrays of numbers: {error}") from error
    for number, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[-1] < 2:
            raise InputError(f"sample {number} has shape {array.shape}; an interval needs at least two items")
        if not np.isfinite(array).all():
            raise InputError(f"sample {number} holds values that are not finite; remove or impute them beforehand")
    lengths = [array.shape[-1] for array in arrays]
    if paired and len(set(lengths)) > 1:
        raise InputError(f"paired samples have {lengths} items; give equal lengths or paired=False")
    return arrays


def _value(statistic: Callable[..., np.ndarray], arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    # Two copies at once show whether the statistic is vectorised, as the resampling relies on.
    twice = [np.stack([array, array]) for array in arrays]
    shape = (2, *np.broadcast_shapes(*(array.shape[:-1] for array in arrays)))
    try:
        values = np.asarray(statistic(*twice, axis=-1), dtype=float)
    except TypeError as error:
        raise InputError(f"statistic {_name(statistic)} failed as statistic(*samples, axis=-1): {error}") from error
    if values.shape != shape:
        raise InputError(f"statistic {_name(statistic)} gave shape {values.shape}, not {shape}; reduce axis=-1 alone")
    return values[0]


def _name(statistic: Callable[..., np.ndarray]) -> str:
    return getattr(statistic, "__name__", repr(statistic))
