"""The constant-step loss at many runs as a function of its parameters, with derivatives: what a fit evaluates.

The paper is Li and Maddison (ICML 2026, arXiv 2605.09154); the equation is in `icml26.nqs.law`. Given p, q, Q and r the
loss is linear in e_irr, P and R, so `Model.parts` returns the two sums that P and R multiply, and `Model.linear`
the best three coefficients that are not negative. `icml26.nqs.fitting` searches with them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls
from scipy.special import zeta

from icml26.nqs.quadrature import HEAD, fine
from icml26.nqs.theta import STEP

__all__ = ["Model", "Parts"]


class Parts(NamedTuple):
    """The loss is ``e_irr + P risk + R noise``; slopes are by p, q, ln Q and r, where they are not 0."""

    risk: Float[np.ndarray, " runs"]
    noise: Float[np.ndarray, " runs"]
    risk_slopes: Float[np.ndarray, "runs 3"] | None
    noise_slopes: Float[np.ndarray, "runs 3"] | None


class Model:
    """The loss at fixed runs.

    Parameters
    ----------
    X
        Columns N (parameters), B (sequences per step) and K (steps).
    panels
        Of `quadrature.fine`; three keep the relative error below 1e-6 where N is at most 1e10.

    Examples
    --------
    >>> from icml26.nqs.law import RELEASED, loss
    >>> model = Model(np.array([[1e8, 512.0, 1000.0]]))
    >>> parts = model.parts(RELEASED.p, RELEASED.q, np.log(RELEASED.Q), RELEASED.r)
    >>> value = RELEASED.e_irr + RELEASED.P * parts.risk + RELEASED.R * parts.noise
    >>> abs(float(value[0] / loss(RELEASED, 1e8, 512, 1000).total) - 1) < 1e-8
    True
    """

    def __init__(self, X: Float[np.ndarray, "runs 3"], panels: int = 3) -> None:
        N, self.B, self.K = np.asarray(X, dtype=float).T
        self.sizes, self.size_of = np.unique(N, return_inverse=True)
        nodes = fine(self.sizes, panels)
        self.log_n, self.weight = np.log(nodes.n), nodes.weight

    def linear(self, parts: Parts, y: Float[np.ndarray, " runs"]) -> Float[np.ndarray, "3"]:
        """Return e_irr, P and R, none negative, with the least squares of the relative errors at the other parameters.

        Parameters
        ----------
        parts
            The sums at p, q, Q and r.
        y
            Measured losses.

        Returns
        -------
        array
            e_irr, P and R.
        """
        columns = np.stack([np.ones(y.size), parts.risk, parts.noise], axis=1) / y[:, None]
        scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
        return nnls(columns / scale, np.ones(y.size))[0] / scale

    def parts(self, p: float, q: float, log_Q: float, r: float, slopes: bool = False) -> Parts:
        """Return the sums that P and R multiply, and their slopes if asked.

        Parameters
        ----------
        p, q, log_Q, r
            Exponents of risk, curvature and noise, and ln Q.
        slopes
            Whether to differentiate: risk by p, q and ln Q, noise by r, q and ln Q.

        Returns
        -------
        Parts
            One number, or three slopes, for each run.
        """
        contraction = np.maximum(STEP * np.exp(log_Q - q * self.log_n), 1e-290)
        a = 1 - contraction
        with np.errstate(divide="ignore"):
            log_a = np.log1p(np.where(contraction <= 1, -contraction, contraction - 2))
        risk = self.weight / 2 * np.exp(-p * self.log_n)
        noise = STEP / 2 * self.weight * contraction * np.exp(-r * self.log_n)

        K, rows = self.K[:, None], self.size_of
        lost = -np.expm1(K * np.maximum(2 * log_a, -1500.0)[rows])
        decay, total = 1 - lost, lost / (contraction * (2 - contraction))[rows]
        tail = zeta(p, self.sizes + 1) / 2
        risk_terms, noise_terms = risk[rows] * decay, noise[rows] * total
        sums = risk_terms.sum(axis=1) + tail[rows], noise_terms.sum(axis=1) / self.B
        if not slopes:
            return Parts(*sums, None, None)

        log_n = self.log_n[rows]
        a = np.where(a == 0, 1e-300, a)
        by_Q = risk_terms * K * (-2 * contraction / a)[rows]
        risk_slopes = [
            -(risk_terms * log_n).sum(axis=1) + (_zeta_slope(p, self.sizes + 1) / 2)[rows],
            -(by_Q * log_n).sum(axis=1),
            by_Q.sum(axis=1),
        ]
        by_Q = noise_terms + noise[rows] * (2 * K * decay / a[rows] - 2 * a[rows] * total) / (1 + a[rows])
        noise_slopes = [-(noise_terms * log_n).sum(axis=1), -(by_Q * log_n).sum(axis=1), by_Q.sum(axis=1)]
        return Parts(*sums, np.stack(risk_slopes, axis=1), np.stack(noise_slopes, axis=1) / self.B[:, None])


def _zeta_slope(p: float, start: np.ndarray) -> np.ndarray:
    """The derivative of the Hurwitz zeta function by its first argument: the negative sum of ln(n) n^-p from start."""
    n = np.arange(1.0, HEAD)
    head = np.where(n >= start[:, None], np.log(n) * n**-p, 0).sum(axis=1)
    m = np.maximum(start, HEAD)
    log_m = np.log(m)
    ends = m ** (1 - p) / (p - 1) * (log_m + 1 / (p - 1)) + m**-p * log_m / 2 + m ** (-p - 1) * (p * log_m - 1) / 12
    return -head - ends
