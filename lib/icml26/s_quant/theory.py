"""Closed forms that shift-register bases and the codecs built on them are measured against.

S-Quant (Wang et al., ICML 2026, arXiv: none) keeps, for a block T of B weights, the seed whose basis U_s of k
columns leaves the least residual ``1 - R_k(s) = |T - U_s a|^2 / |T|^2`` (R_k is its Eq. 6); SeedLM (Shafipour et al.,
arXiv 2410.10714) searches its seeds the same way. Were the bases independent and isotropic, the residual would be
Beta distributed for every block, whatever the weights; the best of N seeds follows. Register bases do worse, because
their rows or columns are windows of one stream: `autocorrelation` says how much neighbours share.

Nothing here generates a basis (`lfsr`) or encodes a block (`codec`).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float64
from scipy import integrate, stats
from scipy.stats.distributions import rv_frozen

from icml26.errors import InputError
from icml26.s_quant.lfsr import cycle
from icml26.s_quant.register import Register


def residual_distribution(block: int, bases: int) -> rv_frozen:
    """The law of 1 - R_k for one independent isotropic basis: Beta((B - k)/2, k/2).

    A block's direction is fixed and the basis spans a uniformly random k-dimensional subspace of B dimensions; the
    squared length of the block's part outside it is a ratio of chi-square variables with B - k and B degrees of
    freedom.

    Parameters
    ----------
    block
        B, weights per block.
    bases
        k, basis vectors, 1 to B - 1.

    Returns
    -------
    scipy.stats.rv_frozen
        The distribution, on 0 to 1.

    Raises
    ------
    InputError
        If k is not from 1 to B - 1.

    Examples
    --------
    >>> residual_distribution(8, 2).mean()
    np.float64(0.75)
    """
    if not 1 <= bases < block:
        raise InputError(f"bases {bases} leaves no residual to speak of for block {block}: use 1 to {block - 1}")
    return stats.beta((block - bases) / 2, bases / 2)


def expected_best_residual(block: int, bases: int, n_seeds: int) -> float:
    """The expected least residual 1 - R_k over N independent isotropic bases.

    The integral of (1 - F(x))^N over x from 0 to 1, with F the distribution function of `residual_distribution`.
    The power falls from 1 to 0 where F is about 1/N, close to 0; the intervals are cut there.

    Parameters
    ----------
    block
        B, weights per block.
    bases
        k, basis vectors, 1 to B - 1.
    n_seeds
        N, the number of candidates, such as 2^S - 1.

    Returns
    -------
    float
        Relative squared error, 0 to 1.

    Raises
    ------
    InputError
        If k is not from 1 to B - 1 or N is below 1.

    Examples
    --------
    >>> round(expected_best_residual(8, 3, 65535), 5)
    0.00791
    """
    if n_seeds < 1:
        raise InputError(f"n_seeds {n_seeds} is no choice: use 1 or more candidates")
    law = residual_distribution(block, bases)

    def survival(x: float) -> float:
        with np.errstate(divide="ignore"):  # where F is 1 to rounding the power is exp(-inf) = 0
            return float(np.exp(n_seeds * np.log1p(-law.cdf(x))))

    cuts = [0.0, *law.ppf(-np.expm1(-np.array([1e-4, 0.01, 0.1, 1.0, 4.0, 40.0]) / n_seeds)), 1.0]
    return sum(integrate.quad(survival, low, high, epsabs=1e-12)[0] for low, high in pairwise(cuts))


def rate_distortion_bound(bits: float) -> float:
    """The least mean squared error of independent Gaussian weights, relative to their variance: 2^(-2b).

    Parameters
    ----------
    bits
        b, all stored bits per weight: seeds, counts, coefficients and scales.

    Returns
    -------
    float
        Relative squared error; its square root bounds the relative Frobenius error.

    Raises
    ------
    InputError
        If b is negative.

    Examples
    --------
    >>> rate_distortion_bound(4) ** 0.5
    0.0625
    """
    if not bits >= 0:
        raise InputError(f"bits {bits} is no rate: use 0 or more bits per weight")
    return 2.0 ** (-2 * bits)


def value_variance(width: int) -> float:
    """The variance h/(3(h - 1)) of a register's values u over its whole cycle, with h = 2^(K-1); their mean is 0.

    Parameters
    ----------
    width
        K, the number of state bits.

    Returns
    -------
    float
        The variance; a uniform variable on -1 to 1 has 1/3.

    Examples
    --------
    >>> value_variance(2)
    0.6666666666666666
    """
    half = Register(width).half
    return half / (3 * (half - 1))


def autocorrelation(register: Register, lags: Sequence[int]) -> Float64[np.ndarray, "lags"]:
    """The autocorrelation of the values u over the whole cycle: mean of u(n) u(n+lag) over mean of u(n)^2.

    Parameters
    ----------
    register
        A maximal register.
    lags
        Lags in steps; any integers.

    Returns
    -------
    float64 array, one entry per lag
        Correlations, -1 to 1, exact but for the rounding of one sum.

    Raises
    ------
    InputError
        If the register is not maximal.

    Examples
    --------
    >>> autocorrelation(Register(8), [0, 1, 2]).round(3)
    array([1.   , 0.375, 0.004])
    """
    values = cycle(register).astype(np.float64) - register.half
    return np.array([values @ np.roll(values, -lag) for lag in lags]) / (values @ values)
