"""Closed forms behind TIE's case for distributions: heavy tails, robust labels, the skewness to beat.

TIE (Zheng et al., ICML 2026, arXiv 2604.00499) argues that an answer ends at each token with a probability p of its
own, so that lengths are mixtures of geometric laws. If the density of p is c p^(a - 1) near 0, then

    P(L > n) ~ c Gamma(a) n^(-a),

a power law (the paper's tail theorem; its exponent alpha is a here). The theorem supports a heavy tail, not the log-t
law in particular, whose tail, a power of ln n, is heavier than any power of n. The efficiency of labels is that of
maximum likelihood for the location of a Student-t law, from its Fisher information. `laws` has the laws themselves.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import special

from icml26.checks import whole
from icml26.errors import InputError
from icml26.tie.checks import checked_cap, checked_positive, checked_reals

__all__ = [
    "geometric_sample_skewness",
    "geometric_skewness",
    "label_noise_ratio",
    "location_variance",
    "log_mean_variance",
    "mixture_tail",
    "mixture_tail_power_law",
]


def mixture_tail(a: float, b: float, n: ArrayLike) -> Float[np.ndarray, "..."]:
    """P(L > n) of a geometric length whose p is Beta(a, b): B(a, b + n) / B(a, b), exactly.

    Parameters
    ----------
    a, b : float
        Shapes of the law of p, positive.
    n : int or array
        Tokens, not negative.

    Returns
    -------
    float or array
        Probability that the answer has more than n tokens.

    Raises
    ------
    InputError
        If a shape is not positive or n is negative.

    Examples
    --------
    >>> mixture_tail(1, 1, 9).round(12)  # uniform p: 1 / (n + 1)
    np.float64(0.1)
    """
    a, b, n = checked_positive("a", a), checked_positive("b", b), _counts(n)
    # Gamma(a + b) / Gamma(b) over Gamma(n + a + b) / Gamma(n + b); poch keeps digits that differences of lgamma lose
    return special.poch(b, a) / special.poch(b + n, a)


def mixture_tail_power_law(a: float, b: float, n: ArrayLike) -> Float[np.ndarray, "..."]:
    """The power law c Gamma(a) n^(-a), c = 1 / B(a, b), that `mixture_tail` approaches.

    Parameters
    ----------
    a, b : float
        Shapes of the law of p, positive.
    n : int or array
        Tokens, positive.

    Returns
    -------
    float or array
        The limit's value at n; above 1 where n is small.

    Raises
    ------
    InputError
        If a shape or n is not positive.

    Examples
    --------
    >>> (mixture_tail(0.5, 3, [100, 10_000]) / mixture_tail_power_law(0.5, 3, [100, 10_000])).round(5)
    array([0.98653, 0.99986])
    """
    a, b, n = checked_positive("a", a), checked_positive("b", b), checked_positive("n", n)
    return special.poch(b, a) * n**-a


def location_variance(nu: ArrayLike) -> Float[np.ndarray, "..."]:
    """Asymptotic variance of the maximum-likelihood mu of n log-t lengths: (nu + 3) / (nu + 1), times sigma^2 / n.

    It is the inverse of the Fisher information; knowing sigma would not lower it, since the two are orthogonal.

    Parameters
    ----------
    nu : float or array
        Degrees of freedom, positive.

    Returns
    -------
    float or array

    Raises
    ------
    InputError
        If nu is not positive.

    Examples
    --------
    >>> location_variance(3.5).round(3)
    np.float64(1.444)
    """
    nu = checked_positive("nu", nu)
    return (nu + 3) / (nu + 1)


def log_mean_variance(nu: ArrayLike) -> Float[np.ndarray, "..."]:
    """Variance of the mean of ln X of n log-t lengths: nu / (nu - 2), times sigma^2 / n.

    That mean is the log-normal law's label mu; of a symmetric law it estimates the same as `location_variance`'s.

    Parameters
    ----------
    nu : float or array
        Degrees of freedom, positive.

    Returns
    -------
    float or array
        Infinite for nu up to 2.

    Raises
    ------
    InputError
        If nu is not positive.

    Examples
    --------
    >>> log_mean_variance([2, 3.5]).round(3)
    array([  inf, 2.333])
    """
    nu = checked_positive("nu", nu)
    with np.errstate(divide="ignore"):
        return np.where(nu > 2, nu / np.maximum(nu - 2, 0), np.inf)[()]


def label_noise_ratio(nu: ArrayLike) -> Float[np.ndarray, "..."]:
    """How many times the generations a log-normal label needs for the noise of a log-t label, if lengths are log-t.

    Parameters
    ----------
    nu : float or array
        Degrees of freedom, positive.

    Returns
    -------
    float or array
        nu (nu + 1) / ((nu - 2) (nu + 3)), infinite for nu up to 2, 1 in the limit of the log-normal law.

    Raises
    ------
    InputError
        If nu is not positive.

    Examples
    --------
    >>> label_noise_ratio(3.5).round(3)
    np.float64(1.615)
    """
    return log_mean_variance(nu) / location_variance(nu)


def geometric_skewness(mean: ArrayLike) -> Float[np.ndarray, "..."]:
    """Skewness of a geometric length, (2 - p) / sqrt(1 - p) with p = 1 / mean: what a constant p would give.

    Parameters
    ----------
    mean : float or array
        Tokens, above 1.

    Returns
    -------
    float or array
        From infinity at a mean of 1 down to 2 for long answers.

    Raises
    ------
    InputError
        If a mean is not above 1.

    Examples
    --------
    >>> geometric_skewness([2, 200]).round(4)
    array([2.1213, 2.    ])
    """
    mean = checked_reals("mean", mean)
    if not (mean > 1).all():
        raise InputError(f"mean holds {mean.min():g}; a geometric length above one token has a mean above 1")
    return (2 - 1 / mean) / np.sqrt(1 - 1 / mean)


def geometric_sample_skewness(
    mean: Float[ArrayLike, " prompts"], samples: int, cap: int | None = None, *, seed: int, repeats: int = 400
) -> Float[np.ndarray, " prompts"]:
    """Expected skewness of a finite, capped sample of geometric lengths, by simulation.

    The skewness of a sample is biased low, of 100 geometric lengths by about 0.25, and a cap lowers it far more: to
    0.84 for a mean of 100 tokens and a cap of 256. A measured skewness is comparable with this one rather than with
    `geometric_skewness`.

    Parameters
    ----------
    mean : array, shape (prompts,)
        Means of the uncapped laws, in tokens, above 1.
    samples : int
        Lengths per sample, at least 3.
    cap : int or None
        Largest length.
    seed : int
        Seed of the draws.
    repeats : int
        Samples that are averaged, per prompt.

    Returns
    -------
    array, shape (prompts,)

    Raises
    ------
    InputError
        If an argument is out of range.

    Examples
    --------
    >>> found = geometric_sample_skewness([100], 100, seed=0)
    >>> bool(1.6 < found[0] < geometric_skewness(100))
    True
    """
    mean = np.atleast_1d(checked_reals("mean", mean))
    geometric_skewness(mean)  # its check of the means
    if cap is not None:
        checked_cap(cap)
    generator = np.random.default_rng(whole("seed", seed, 0))
    shape = whole("repeats", repeats, 1), whole("samples", samples, 3)
    return np.array([_mean_skewness(generator.geometric(1 / one, shape), cap) for one in mean])


def _mean_skewness(lengths, cap):
    lengths = lengths.astype(float) if cap is None else np.minimum(lengths, cap).astype(float)
    centred = lengths - lengths.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1))
    varied = deviation > 0  # equal lengths have no skewness
    return float(((centred**3).mean(axis=1)[varied] / deviation[varied] ** 3).mean()) if varied.any() else np.nan


def _counts(n):
    n = checked_reals("n", n)
    if not (n >= 0).all():
        raise InputError(f"n holds {n.min():g}; give numbers of tokens, 0 or more")
    return n
