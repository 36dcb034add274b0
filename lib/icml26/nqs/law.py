"""The expected loss of a noisy quadratic system after K steps at batch size B in its first N directions.

The paper is Li and Maddison, Predicting Large Model Test Losses with a Noisy Quadratic System (ICML 2026, arXiv
2605.09154). Pre-training is stochastic gradient descent on ``e_irr + 1/2 sum_n lambda_n (w_n - w*_n)^2`` with power-law
spectra (`Theta`). With ``a_n = 1 - gamma lambda_n`` and ``S_n(K) = (1 - a_n^2K) / (1 - a_n^2)``, a constant step gives

    L(N, B, K) = e_irr + P/2 zeta(p, N + 1)                             the approximation's part,
                 + sum_{n<=N} P/2 n^-p a_n^2K                           the bias,
                 + sum_{n<=N} gamma^2/(2B) lambda_n R n^-r S_n(K)       the variance.

`exact_loss` sums it, `loss` evaluates it in constant time, and `adjusted_loss` lets the step shrink as the norm of the
weights grows, as it does under LayerNorm. Losses are in nats per token, N counts parameters, B sequences and K steps.
Fitting the parameters is `icml26.nqs.fitting`'s business.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import zeta

from icml26.errors import InputError
from icml26.nqs.checks import numeric
from icml26.nqs.quadrature import fine, paper
from icml26.nqs.theta import RELEASED, STEP, Theta

__all__ = ["INITIAL_VARIANCE", "RELEASED", "STEP", "Loss", "Theta", "adjusted_loss", "exact_loss", "loss"]

INITIAL_VARIANCE = 0.02**2
"""Variance of one initial weight; the squared norm of N weights is N times that unless `adjusted_loss` is told."""

_WORKSPACE = 1 << 20  # terms held at a time: 8 MB for each of some ten temporary arrays


class Loss(NamedTuple):
    """The parts of the expected loss, in nats per token."""

    irreducible: Float[np.ndarray, "*runs"]
    approximation: Float[np.ndarray, "*runs"]
    bias: Float[np.ndarray, "*runs"]
    variance: Float[np.ndarray, "*runs"]

    @property
    def total(self) -> Float[np.ndarray, "*runs"]:
        """The loss: the sum of the parts."""
        return self.irreducible + self.approximation + self.bias + self.variance


@np.errstate(all="ignore")  # `_loss` refuses what is not finite
def exact_loss(theta: Theta, N: ArrayLike, B: ArrayLike, K: ArrayLike, *, step: float = STEP) -> Loss:
    """Sum all N terms of the constant-step loss: the reference that `loss` approximates.

    Parameters
    ----------
    theta
        The spectra.
    N
        Parameters, whole numbers of at least 1; the time grows in proportion.
    B
        Sequences per step, above 0.
    K
        Steps, whole numbers of at least 0.
    step
        gamma, the size of a step; ``step * theta.Q`` must stay below 2.

    Returns
    -------
    Loss
        Each part has the shape that N, B and K broadcast to.

    Raises
    ------
    InputError
        If an argument is out of its range, not a number, the shapes do not broadcast, or the numbers are so extreme
        that no finite loss comes out.

    Examples
    --------
    >>> toy = Theta(p=1.5, q=1.0, P=4.0, Q=0.8, e_irr=1.2, R=3.0, r=1.0)
    >>> round(float(exact_loss(toy, N=20, B=4, K=10).total), 5)
    5.18877
    """
    N, B, K, shape = _checked(theta, N, B, K, step)
    bias, variance = np.zeros(N.size), np.zeros(N.size)
    start, last = 1, N.max(initial=0)
    while start <= last:
        active = np.flatnonzero(start <= N)
        stop = min(start + max(1, _WORKSPACE // active.size), int(last) + 1)
        n = np.arange(start, stop, dtype=float)[None]
        used = n <= N[active, None]
        for sums, terms in zip((bias, variance), _terms(theta, n, K[active, None], step), strict=True):
            sums[active] += np.where(used, terms, 0).sum(axis=1)
        start = stop
    return _loss(theta, N, bias, variance / B, shape)


@np.errstate(all="ignore")
def loss(theta: Theta, N: ArrayLike, B: ArrayLike, K: ArrayLike, *, step: float = STEP) -> Loss:
    """Evaluate the constant-step loss in a time that depends neither on N nor on K (the paper's "standard" form).

    Up to 264 directions are summed as they are; beyond, `quadrature.fine` takes their place. The relative error stays
    below 1e-8 for q up to 2.5.

    Parameters
    ----------
    theta, N, B, K, step
        As in `exact_loss`; N may be 1e12 and K 1e9.

    Returns
    -------
    Loss
        Each part has the shape that N, B and K broadcast to.

    Raises
    ------
    InputError
        As in `exact_loss`.

    Examples
    --------
    >>> round(float(loss(RELEASED, N=1e9, B=512, K=20_000).total), 4)
    2.1002
    """
    N, B, K, shape = _checked(theta, N, B, K, step)
    bias, variance = np.zeros(N.size), np.zeros(N.size)
    for rows in _batches(N.size, 264):
        nodes = fine(N[rows])
        for sums, terms in zip((bias, variance), _terms(theta, nodes.n, K[rows, None], step), strict=True):
            sums[rows] = (nodes.weight * terms).sum(axis=1)
    return _loss(theta, N, bias, variance / B, shape)


@np.errstate(all="ignore")
def adjusted_loss(
    theta: Theta, N: ArrayLike, B: ArrayLike, K: ArrayLike, *, norm: ArrayLike | None = None, step: float = STEP
) -> Loss:
    """Evaluate the loss with the step that shrinks as the weights grow (the paper's "regularized" form).

    Under normalisation the effective step is ``gamma s / (s + growth of the expected squared norm)``. Following the
    official package it is held constant over 10 to some 100 segments of the run and never grows again, and the sum over
    directions takes `quadrature.paper`, so that without growth the result differs from `loss` by about 1e-4.

    Parameters
    ----------
    theta, N, B, K, step
        As in `exact_loss`; ``step`` is the first step.
    norm
        s, the expected squared norm of the initial weights; by default ``N * INITIAL_VARIANCE``. It broadcasts with N,
        B and K.

    Returns
    -------
    Loss
        Each part has the shape that N, B, K and norm broadcast to.

    Raises
    ------
    InputError
        As in `exact_loss`, or if norm is not above 0.

    Examples
    --------
    >>> round(float(adjusted_loss(RELEASED, N=1e9, B=512, K=20_000).total), 4)
    2.0792
    """
    if norm is None:
        N, B, K, shape = _checked(theta, N, B, K, step)
        norm = N * INITIAL_VARIANCE
    else:
        norm = _numbers("norm", norm, lambda x: x > 0, "above 0: the expected squared norm of the initial weights")
        N, B, K, shape, norm = _checked(theta, N, B, K, step, norm)
    bias, variance = np.zeros(N.size), np.zeros(N.size)
    for rows in _batches(N.size, 120):
        bias[rows], variance[rows] = _adjusted(theta, N[rows], B[rows], K[rows], norm[rows], step)
    return _loss(theta, N, bias, variance, shape)


def _adjusted(
    theta: Theta, N: np.ndarray, B: np.ndarray, K: np.ndarray, norm: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray]:
    length = np.where(K <= 10, 1, np.maximum(K // 100, np.minimum(1000, K // 10)))
    segments = np.ceil(K / length).astype(int)
    order = np.argsort(-segments, kind="stable")  # so that the runs which go on are always the first ones
    N, B, K, norm, length = (array[order] for array in (N, B, K, norm, length))
    n, weight = paper(N)
    curvature = theta.Q * n**-theta.q
    risk, noise = theta.P / 2 * n**-theta.p, theta.R / 2 * curvature * n**-theta.r
    optimum, inverse = 2 * risk / curvature, 2 * weight / curvature  # w*_n squared; what turns risk into norm
    decayed, total = np.ones(n.shape), np.zeros(n.shape)
    rate, growth = np.full(N.size, step), np.zeros(N.size)
    for segment in range(int(segments.max(initial=0))):
        on = slice(int((segments > segment).sum()))
        steps = np.minimum(K[on] - segment * length[on], length[on])
        rate = np.minimum(rate[on], step * np.where(growth[on] < 0, 1, 1 - growth[on] / (norm[on] + growth[on])))
        decay, added = _powers(rate[:, None] * curvature[on], steps[:, None])
        total[on] = total[on] * decay + (np.square(rate) / B[on])[:, None] * added
        decayed[on] *= decay
        # E w^2 = w*^2 + 2 w* E delta + E delta^2 for weights that start at 0, E delta = -a^K w*
        moved = weight[on] * optimum[on] * (1 - 2 * np.sqrt(decayed[on]))
        growth = (moved + inverse[on] * (risk[on] * decayed[on] + noise[on] * total[on])).sum(axis=1)
    bias, variance = np.empty(N.size), np.empty(N.size)
    bias[order], variance[order] = (weight * risk * decayed).sum(axis=1), (weight * noise * total).sum(axis=1)
    return bias, variance


def _powers(contraction: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a^2K and the sum of a^2j over j < K, for a = 1 - contraction and K steps, without loss of digits."""
    with np.errstate(divide="ignore"):
        logarithm = 2 * np.log1p(np.where(contraction <= 1, -contraction, contraction - 2))  # of |a|, which is 1 + this
    # The bound stands for a = 0, whose powers underflow to 0 all the same.
    lost = -np.expm1(steps * np.maximum(logarithm, -1500.0))
    # 1 - a^2 = contraction (2 - contraction). Below 1e-290 the quotient of denormals has no digits, and K is exact.
    flat = contraction < 1e-290
    return 1 - lost, np.where(flat, steps, lost / np.where(flat, 1.0, contraction * (2 - contraction)))


def _terms(theta: Theta, n: np.ndarray, K: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The n-th terms of the bias, and of the variance at batch size 1."""
    contraction = step * theta.Q * n**-theta.q
    decay, total = _powers(contraction, K)
    return theta.P / 2 * n**-theta.p * decay, step / 2 * theta.R * n**-theta.r * contraction * total


def _loss(theta: Theta, N: np.ndarray, bias: np.ndarray, variance: np.ndarray, shape: tuple[int, ...]) -> Loss:
    parts = np.full(N.size, theta.e_irr), theta.P / 2 * zeta(theta.p, N + 1), bias, variance
    if not np.isfinite(parts).all():
        where = "no finite loss in floating point at these N, B and K"
        raise InputError(f"{theta} has {where}: use q and r of a fit's size, below 20, no tiny B and no vast N")
    return Loss(*(part.reshape(shape)[()] for part in parts))


def _batches(runs: int, terms: int) -> list[slice]:
    size = _WORKSPACE // terms
    return [slice(start, start + size) for start in range(0, runs, size)]


def _checked(theta: Theta, N: ArrayLike, B: ArrayLike, K: ArrayLike, step: float, *more: np.ndarray) -> tuple:
    """The arguments as flat arrays of one length, then the shape of the result, then what else broadcasts with them."""
    if not isinstance(theta, Theta):
        raise InputError(f"theta={theta!r} must be an icml26.nqs.Theta; read one with Theta.from_json")
    allowed = f"above 0 and below 2/Q = {2 / theta.Q:.6g}"
    numeric("step", step, f"one number, {allowed}", ndim=0)
    _numbers("step", step, lambda x: (x > 0) & (x * theta.Q < 2), allowed)
    arrays = [
        _numbers("N", N, lambda x: (x >= 1) & (x == np.floor(x)), "a whole number of parameters, at least 1"),
        _numbers("B", B, lambda x: x > 0, "a number of sequences above 0"),
        _numbers("K", K, lambda x: (x >= 0) & (x == np.floor(x)), "a whole number of steps, at least 0"),
        *more,
    ]
    try:
        arrays = np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InputError(f"N, B and K have shapes {shapes}, which do not broadcast; give arrays of one shape") from None
    N, B, K, *more = (array.ravel() for array in arrays)
    return N, B, K, arrays[0].shape, *more


def _numbers(name: str, values: ArrayLike, allowed: Callable[[np.ndarray], np.ndarray], what: str) -> np.ndarray:
    array = numeric(name, values, what)
    wrong = ~(allowed(array) & (np.isfinite(array) | (name == "norm") & ~np.isnan(array)))
    if wrong.any():
        raise InputError(f"{name}={array[wrong][0]} must be {what}")
    return array
