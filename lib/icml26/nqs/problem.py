"""The least-squares problem that `icml26.nqs.fitting` solves many times: variables, bounds, starts and one descent.

The paper is Li and Maddison (ICML 2026, arXiv 2605.09154). The variables are p, q, ln P, ln Q, e_irr, ln R and r, any
of them held fixed or r tied to q. Which starts to try and when to stop is `fitting`'s business.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from icml26.errors import InputError
from icml26.nqs.model import Model
from icml26.nqs.theta import Theta

__all__ = ["LOSS_RANGE", "NAMES", "Problem", "checked_runs", "to_theta", "variable"]

NAMES = ("p", "q", "P", "Q", "e_irr", "R", "r")
LOSS_RANGE = 1e-30, 1e30
"""Measured losses must lie between: beyond, squares and exponentials of a fit leave floating point."""


class Problem:
    """Least squares in the free ones of the variables p, q, ln P, ln Q, e_irr, ln R and r."""

    def __init__(self, X: np.ndarray, y: np.ndarray, loss: str, tie: bool, fixed: dict[str, float], delta: float):
        if loss not in ("squared", "huber"):
            raise InputError(f"loss={loss!r} must be 'squared' or 'huber'")
        if tie and "r" in fixed:
            raise InputError("r cannot be held fixed while tie=True sets it to q; hold q")
        self.model, self.y, self.loss, self.delta = Model(X), y, loss, delta
        free = [i for i, name in enumerate(NAMES) if name not in fixed and not (tie and name == "r")]
        if len(y) < len(free):
            raise InputError(f"X has {len(y)} runs; give at least as many as there are free parameters, {len(free)}")
        self.free = free
        self.spread = np.eye(7)[:, free]  # the variables are fixed + spread @ free
        if tie:
            self.spread[6] = self.spread[1]
        self.fixed = np.array([fixed.get(name, 0.0) for name in NAMES])
        if tie:
            self.fixed[6] = self.fixed[1]
        # Far from anything plausible; P and R in units of the losses.
        scale = np.log(y.max())
        self.low = np.array([1.001, 0.05, scale - 9, -14, 0, scale - 18, -1])
        self.high = np.array([4, 5, scale + 14, np.log(1.0004), y.min(), scale + 18, 6])

    def start(self, p: float, q: float, Q: float, r: float) -> tuple[float, np.ndarray]:
        """The objective of relative errors, which ranks starts, and the variables with the best e_irr, P and R."""
        values = self.fixed + self.spread @ np.array([p, q, 0, np.log(Q), 0, 0, r])[self.free]
        parts = self.model.parts(values[0], values[1], values[3], values[6])
        e_irr, P, R = self.model.linear(parts, self.y)
        errors = (e_irr + P * parts.risk + R * parts.noise) / self.y - 1
        # A part that is best left out still starts at a hundredth of the loss, because its logarithm must be finite.
        least = 0.01 * np.median(self.y / np.maximum([parts.risk, parts.noise], 1e-300), axis=1)
        values[[2, 4, 5]] = np.log(max(P, least[0])), e_irr, np.log(max(R, least[1]))
        return float(errors @ errors) / 2, values

    def polish(self, values: np.ndarray, tolerance: float = 1e-9, evaluations: int = 300) -> tuple[float, np.ndarray]:
        """The objective and the variables of the optimum nearest to a start."""
        low, high = self.low[self.free], self.high[self.free]
        margin = 1e-6 * (high - low)
        x = np.clip(values[self.free], low + margin, high - margin)
        # The Huber loss is nearly linear in most errors; the least squares are a start from which it converges.
        for loss in ("linear", "huber")[: 1 + (self.loss == "huber")]:
            found = least_squares(
                self.errors,
                x,
                self.jacobian,
                bounds=(low, high),
                x_scale="jac",
                ftol=tolerance,
                max_nfev=evaluations,
                loss=loss,
                f_scale=self.delta,
            )
            x = found.x
        return float(found.cost), self.fixed + self.spread @ x

    def errors(self, x: np.ndarray) -> np.ndarray:
        p, q, log_P, log_Q, e_irr, log_R, r = self.fixed + self.spread @ x
        parts = self.model.parts(p, q, log_Q, r)
        return np.log((e_irr + np.exp(log_P) * parts.risk + np.exp(log_R) * parts.noise) / self.y)

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        p, q, log_P, log_Q, e_irr, log_R, r = self.fixed + self.spread @ x
        P, R = np.exp([log_P, log_R])
        risk, noise, by_risk, by_noise = self.model.parts(p, q, log_Q, r, slopes=True)
        both = P * by_risk + R * by_noise  # of q and ln Q
        slopes = P * by_risk[:, 0], both[:, 1], P * risk, both[:, 2], np.ones(risk.size), R * noise, R * by_noise[:, 0]
        return np.stack(slopes, axis=1) / (e_irr + P * risk + R * noise)[:, None] @ self.spread


def variable(name: str, value: float | None) -> float:
    """Return a parameter as the search has it: P, Q and R by their logarithms.

    Parameters
    ----------
    name : str
        One of p, q, P, Q, e_irr, R, r.
    value : float or None
        Its value; None stands for an unknown name.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If the name is unknown.
    """
    if value is None:
        raise InputError(f"fixed names {name!r}; the parameters are {', '.join(NAMES)}")
    return float(np.log(value)) if name in "PQR" else value


def to_theta(values: np.ndarray) -> Theta:
    """Return the parameters of a point of the search; the inverse of `variable` for all seven.

    Parameters
    ----------
    values : array, shape (7,)
        In the order p, q, P, Q, e_irr, R, r.

    Returns
    -------
    Theta
    """
    return Theta(**{n: float(np.exp(v) if n in "PQR" else v) for n, v in zip(NAMES, values, strict=True)})


def checked_runs(X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return runs and losses as float arrays, or say what is wrong with them.

    Parameters
    ----------
    X : array-like, shape (runs, 3)
        Parameters N, batch size B and steps K.
    y : array-like, shape (runs,)
        Losses in nats per token, between the two of `LOSS_RANGE`.

    Returns
    -------
    X, y : float arrays

    Raises
    ------
    InputError
        If shapes do not fit together or a value is out of range.
    """
    try:
        X, y = (np.asarray(values) for values in (X, y))
    except ValueError:
        raise InputError("X or y is ragged; give rows of N, B and K, and one loss for each") from None
    if X.ndim != 2 or X.shape[1] != 3 or X.dtype.kind not in "iuf":
        raise InputError(f"X has shape {X.shape} of {X.dtype}; give numbers in three columns N, B and K")
    if y.shape != X.shape[:1] or y.dtype.kind not in "iuf":
        raise InputError(f"y has shape {y.shape} of {y.dtype}; give one loss for each of the {len(X)} runs")
    for name, column, least in zip("NBK", X.T, (1, 0, 1), strict=True):
        wrong = ~(np.isfinite(column) & ((column > 0) if name == "B" else (column >= least)))
        if name != "B":
            wrong |= column != np.floor(column)
        if wrong.any():
            raise InputError(f"{name}={column[wrong][0]} in X must be " + _RANGES[name])
    wrong = ~((y >= LOSS_RANGE[0]) & (y <= LOSS_RANGE[1]))
    if wrong.any():
        raise InputError(
            f"y={y[wrong][0]} must be a finite loss above 0, {LOSS_RANGE[0]:g} to {LOSS_RANGE[1]:g} nats per token"
        )
    return X.astype(float), y.astype(float)


_RANGES = {"N": "a whole number of at least 1", "B": "above 0 and finite", "K": "a whole number of at least 1"}
