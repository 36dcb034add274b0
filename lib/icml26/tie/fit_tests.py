"""Which family fits the lengths of one prompt: tests of fit with fitted parameters, and the shape of a sample.

TIE (Zheng et al., ICML 2026, arXiv 2604.00499) reports the share of 1,000 prompts, 100 responses each, whose lengths
pass a Kolmogorov-Smirnov test of a fitted family. With fitted parameters the textbook p-value is far too lenient: the
fit has already made the distance small. Here the distances are compared with those of samples drawn from the fitted
law, rounded, capped, spread over their tokens and fitted again (the parametric bootstrap). The textbook's p-value and
that of a fit to one half tested on the other are there for comparison.

`families` has the families and says how whole numbers are treated. What passing means for a claim is the chapter's
business.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import special, stats

from icml26.checks import whole
from icml26.errors import InputError, nearest
from icml26.tie.checks import checked_lengths
from icml26.tie.families import FAMILIES, Family, Sample, sample_of

__all__ = ["ShapeStatistics", "fit_p_values", "shape_statistics"]

_CHUNK = 1 << 17  # resampled lengths held at a time
_LEAST_SEEN = 5  # a prompt with fewer lengths below the cap says nothing about a family


def fit_p_values(
    lengths: Int[ArrayLike, "prompts samples"],
    cap: int | None,
    family: str,
    *,
    seed: int,
    method: str = "bootstrap",
    statistic: str = "ks",
    resamples: int = 199,
    progress: Callable[[str], None] | None = None,
) -> Float[np.ndarray, " prompts"]:
    """Test for each prompt whether its lengths are a sample of a family.

    Parameters
    ----------
    lengths : int array, shape (prompts, samples)
        Tokens, each at least 1 and at most the cap; at least ten of each prompt.
    cap : int or None
        Largest length of the generations; a length at the cap is right-censored. None if nothing was cut short.
    family : {"log-t", "log-t-free", "log-normal", "gamma", "weibull", "geometric"}
        The null hypothesis; "log-t" has nu = 3.5.
    seed : int
        Seed of the spreading over tokens and of the resampling.
    method : {"bootstrap", "plain", "held-out"}
        Parametric bootstrap; the p-value for known parameters, which is too lenient for fitted ones; or that p-value
        on the second half of the samples after a fit to the first, which is somewhat too strict.
    statistic : {"ks", "ad"}
        Kolmogorov-Smirnov or Anderson-Darling, the latter with the bootstrap only. Both look below the cap only.
    resamples : int
        Samples of the bootstrap, per prompt; 199 make a test at 5 % exact.
    progress : callable or None
        Receives a line per group of prompts.

    Returns
    -------
    array, shape (prompts,)
        p-values; a prompt passes at 5 % where it is above 0.05. NaN where fewer than five lengths are below the cap.

    Raises
    ------
    InputError
        If lengths are no such integers, or an option is out of range.

    Examples
    --------
    >>> lengths = np.random.default_rng(0).geometric(0.02, (3, 60))
    >>> fit_p_values(lengths, None, "geometric", seed=0) > 0.05
    array([ True,  True,  True])
    """
    lengths = checked_lengths(lengths, cap, least=10)
    if family not in list(FAMILIES):  # a list also takes what has no hash
        raise InputError(f"family={family!r} must be one of {', '.join(FAMILIES)}{nearest(family, FAMILIES)}")
    if method not in ("bootstrap", "plain", "held-out"):
        raise InputError(f"method={method!r} must be 'bootstrap', 'plain' or 'held-out'")
    if statistic not in list(_DISTANCES) or (statistic == "ad" and method != "bootstrap"):
        raise InputError(f"statistic={statistic!r} must be 'ks', or 'ad' with method='bootstrap'")
    resamples = whole("resamples", resamples, 19)
    generator = np.random.default_rng(whole("seed", seed, 0))
    sample = sample_of(lengths.astype(float), cap, generator)
    found = np.full(len(lengths), np.nan)
    half = lengths.shape[1] // 2 if method == "held-out" else 0
    fitted = _columns(sample, slice(0, half or None))
    testable = np.flatnonzero(fitted.seen.sum(axis=1) >= _LEAST_SEEN)
    if not testable.size:
        return found
    law = FAMILIES[family]
    parameters = law.fit(_rows(fitted, testable))
    tested = _rows(_columns(sample, slice(half, None)), testable)
    distances = _DISTANCES[statistic](law, parameters, tested)
    if method != "bootstrap":
        found[testable] = stats.kstwo.sf(distances, tested.seen.shape[1])
        return found
    groups = np.array_split(np.arange(testable.size), 1 + lengths[testable].size * resamples // _CHUNK)
    for group in groups:
        repeated = np.repeat(parameters[:, group], resamples, axis=1)
        again = sample_of(law.draw(repeated, generator, lengths.shape[1]), cap, generator)
        simulated = np.zeros(repeated.shape[1])  # a sample of which nothing is seen fits perfectly
        known = np.flatnonzero(again.seen.any(axis=1))
        again = _rows(again, known)
        simulated[known] = _DISTANCES[statistic](law, law.fit(again), again)
        exceeding = (simulated.reshape(-1, resamples) >= distances[group, None]).sum(axis=1)
        found[testable[group]] = (1 + exceeding) / (1 + resamples)
        if progress is not None:
            progress(f"{family}: {group[-1] + 1} of {testable.size} prompts")
    return found


class ShapeStatistics(NamedTuple):
    """How skewed and heavy lengths are, per prompt, and over all prompts together.

    Parameters
    ----------
    skewness, cv, p99_over_p50, top_share : array, shape (prompts,)
        Sample skewness, coefficient of variation, ratio of percentiles 99 and 50, and share of all tokens that the
        longest tenth of the generations take, without unit.
    pooled : dict of str to float
        The same four of all lengths as one sample.
    """

    skewness: Float[np.ndarray, " prompts"]
    cv: Float[np.ndarray, " prompts"]
    p99_over_p50: Float[np.ndarray, " prompts"]
    top_share: Float[np.ndarray, " prompts"]
    pooled: dict[str, float]


def shape_statistics(lengths: Int[ArrayLike, "prompts samples"]) -> ShapeStatistics:
    """Skewness, variation and tail of each prompt's lengths, as the paper reports them for its motivation.

    The skewness of a finite sample is at most (n - 2) / sqrt(n - 1), 9.8 for n = 100, and biased low for skewed laws;
    compare it with that of samples of the same size. A cap lowers all four.

    Parameters
    ----------
    lengths : int array, shape (prompts, samples)
        Tokens, each at least 1; at least ten of each prompt.

    Returns
    -------
    ShapeStatistics

    Raises
    ------
    InputError
        If lengths are no such integers.

    Examples
    --------
    >>> found = shape_statistics([[10] * 9 + [110]])
    >>> found.skewness.round(2), found.cv.round(2), found.top_share
    (array([2.67]), array([1.5]), array([0.55]))
    """
    lengths = checked_lengths(lengths, None, least=10)
    per_prompt = _shape(lengths)
    pooled = [float(value[0]) for value in _shape(lengths.reshape(1, -1))]
    return ShapeStatistics(*per_prompt, dict(zip(ShapeStatistics._fields, pooled, strict=False)))


def _shape(lengths):
    ordered = np.sort(lengths, axis=1).astype(float)
    mean, deviation = ordered.mean(axis=1), ordered.std(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # equal lengths have no skewness: NaN
        skewness = ((ordered - mean[:, None]) ** 3).mean(axis=1) / deviation**3
    median, high = np.quantile(ordered, [0.5, 0.99], axis=1)
    top = ordered[:, -int(np.ceil(lengths.shape[1] / 10)) :].sum(axis=1) / ordered.sum(axis=1)
    return skewness, deviation / mean, high / median, top


def _rows(sample: Sample, rows) -> Sample:
    return Sample(*(array[rows] for array in sample[:3]), sample.end)


def _columns(sample: Sample, columns: slice) -> Sample:
    return Sample(*(array[:, columns] for array in sample[:3]), sample.end)


def _probabilities(law: Family, parameters, sample: Sample):
    """The distribution function at the sorted values, 1 beyond the last that is seen, and at the end."""
    values = np.sort(np.where(sample.seen, sample.values, np.inf), axis=1)
    seen = np.isfinite(values)
    u = np.where(seen, law.cdf(parameters, np.where(seen, values, 1.0)), 1.0)
    if np.isinf(sample.end):
        return u, seen, np.ones(len(u))
    return u, seen, law.cdf(parameters, np.full((len(u), 1), sample.end))[:, 0]


def _kolmogorov_smirnov(law: Family, parameters, sample: Sample):
    u, seen, at_end = _probabilities(law, parameters, sample)
    n = u.shape[1]
    above = np.where(seen, np.arange(1, n + 1) / n - u, 0).max(axis=1)
    below = np.where(seen, u - np.arange(n) / n, 0).max(axis=1)
    return np.maximum(np.maximum(above, below), np.abs(seen.mean(axis=1) - at_end))


def _anderson_darling(law: Family, parameters, sample: Sample):
    # n times the integral of (F_n - u)^2 / (u (1 - u)) up to the end, piece by piece between the ordered values
    u, seen, at_end = _probabilities(law, parameters, sample)
    n = u.shape[1]
    u = np.clip(np.where(seen, np.minimum(u, at_end[:, None]), at_end[:, None]), 1e-300, 1 - 1e-16)
    edges = np.concatenate([np.zeros((len(u), 1)), u, np.minimum(at_end, 1 - 1e-16)[:, None]], axis=1)
    shares = np.minimum(np.arange(n + 1), seen.sum(axis=1, keepdims=True)) / n
    upper, lower = edges[:, 1:], edges[:, :-1]
    pieces = special.xlogy(shares**2, upper) - special.xlogy(shares**2, np.where(shares > 0, lower, 1))
    pieces -= (1 - shares) ** 2 * (np.log1p(-upper) - np.log1p(-lower))
    return n * (pieces - (upper - lower)).sum(axis=1)


_DISTANCES = {"ks": _kolmogorov_smirnov, "ad": _anderson_darling}
