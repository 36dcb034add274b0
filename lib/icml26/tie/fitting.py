"""Maximum likelihood for right-censored log-t and log-normal samples, many prompts at once.

TIE (Zheng et al., ICML 2026, arXiv 2604.00499) labels a prompt with the (mu, sigma) that fit the lengths of several
generations, nu = 3.5 fixed. A generation that reached the cap is known to be at least that long and no more. Both
families are location-scale families of ln X, so one iteration serves them: Newton's where the Hessian and the step
are good, and otherwise an EM step, which always climbs and for the t law has closed expectations under censoring,

    (nu + 1) / (nu + t^2) f_nu(t) = f_{nu+2}(t r) r,   r = sqrt(1 + 2 / nu).

`laws.fit_laws` is the way in for lengths; `families` fits the other laws.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

__all__ = ["LocationScale", "fit_free_log_t", "fit_log_normal", "fit_log_t"]

_ITERATIONS = 500
_TOLERANCE = 1e-9  # of a step, in units of sigma
_CLOSE = 0.2  # step in ln nu of the last parabola
_NUS = np.geomspace(1, 100, 7)  # below 1 the likelihood can have several maxima, above 100 the law is log-normal


class LocationScale(NamedTuple):
    """Location and scale of ln X, and the log-likelihood that they reach, per prompt."""

    mu: Float[np.ndarray, " prompts"]
    sigma: Float[np.ndarray, " prompts"]
    log_likelihood: Float[np.ndarray, " prompts"]


def fit_log_t(
    logs: Float[np.ndarray, "prompts samples"],
    seen: Bool[np.ndarray, "prompts samples"],
    end: float,
    nu: Float[np.ndarray, " prompts"] | float,
    floor: Float[np.ndarray, " prompts"] | float,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> LocationScale:
    """The (mu, sigma) of greatest likelihood under mu + sigma T, T Student-t with nu degrees of freedom.

    Parameters
    ----------
    logs : array, shape (prompts, samples)
        Logarithms of lengths; what is not seen is not read. Each prompt needs one that is seen.
    seen : bool array, shape (prompts, samples)
        Where it is false the length is only known to be at least the cap.
    end : float
        Logarithm of the cap.
    nu : float or array, shape (prompts,)
        Degrees of freedom.
    floor : float or array, shape (prompts,)
        Least sigma: the likelihood of points has no maximum where almost all of them are equal.
    start : pair of arrays, shape (prompts,)
        Where to start; the median and the spread of the logarithms by default.

    Returns
    -------
    LocationScale
        The log-likelihood is that of the logarithms.

    Examples
    --------
    >>> logs = np.log([[8.0, 12.0, 10.0, 11.0, 9.0, 500.0]])
    >>> mu, sigma, _ = fit_log_t(logs, logs < 6, 6.0, nu=3.5, floor=0.01)
    >>> mu.round(2), sigma.round(2)
    (array([2.31]), array([0.27]))
    """
    return _fit(_StudentT(np.broadcast_to(np.asarray(nu, float), len(logs))), logs, seen, end, floor, start)


def fit_free_log_t(
    logs: Float[np.ndarray, "prompts samples"],
    seen: Bool[np.ndarray, "prompts samples"],
    end: float,
    floor: Float[np.ndarray, " prompts"] | float,
) -> tuple[Float[np.ndarray, " prompts"], LocationScale]:
    """As `fit_log_t`, with the degrees of freedom that reach the greatest likelihood between 1 and 100.

    Seven values are tried, each fit starting from the one before. A parabola in ln nu through the best three gives the
    place around which three closer values are tried, and another through those the last.

    Parameters
    ----------
    logs, seen, end, floor
        As in `fit_log_t`.

    Returns
    -------
    nu : array, shape (prompts,)
    fit : LocationScale

    Examples
    --------
    >>> logs = 5 + 0.5 * np.random.default_rng(0).standard_t(3.5, (1, 4000))
    >>> nu, _ = fit_free_log_t(logs, logs < np.inf, np.inf, 0.01)
    >>> bool(abs(nu[0] - 3.5) < 0.5)
    True
    """
    fits, start = [], None
    for nu in _NUS:
        fits.append(fit_log_t(logs, seen, end, nu, floor, start))
        start = fits[-1][:2]
    best = np.stack([fit.log_likelihood for fit in fits]).argmax(axis=0)
    rows = np.arange(len(logs))
    start = tuple(np.stack(values)[best, rows] for values in list(zip(*fits, strict=True))[:2])
    middle = np.clip(best, 1, len(_NUS) - 2)
    three = [np.stack([fit.log_likelihood for fit in fits])[middle + offset, rows] for offset in (-1, 0, 1)]
    nu = _vertex(_NUS[middle], np.log(_NUS[1] / _NUS[0]), three)
    around = [np.clip(nu * np.exp(offset), _NUS[0], _NUS[-1]) for offset in (-_CLOSE, 0, _CLOSE)]
    nu = _vertex(nu, _CLOSE, [fit_log_t(logs, seen, end, near, floor, start).log_likelihood for near in around])
    return nu, fit_log_t(logs, seen, end, nu, floor, start)


def _vertex(nu, step, three):
    """Where the parabola in ln nu through three likelihoods, step apart, is highest, at most a step away."""
    below, top, above = three
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = (below - above) / (below - 2 * top + above) / 2
    uphill = np.sign(above - below)  # where the three are convex, or in a line
    shift = np.where(below - 2 * top + above < 0, np.clip(np.nan_to_num(vertex), -1, 1), uphill)
    return np.clip(nu * np.exp(step * shift), _NUS[0], _NUS[-1])


def fit_log_normal(
    logs: Float[np.ndarray, "prompts samples"],
    seen: Bool[np.ndarray, "prompts samples"],
    end: float,
    floor: Float[np.ndarray, " prompts"] | float,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> LocationScale:
    """The (mu, sigma) of greatest likelihood under mu + sigma Z, Z standard normal.

    Parameters
    ----------
    logs, seen, end, floor, start
        As in `fit_log_t`.

    Returns
    -------
    LocationScale

    Examples
    --------
    >>> logs = np.log([[8.0, 12.0, 10.0, 11.0, 9.0]])
    >>> mu, sigma, _ = fit_log_normal(logs, logs < 6, 6.0, floor=0.01)
    >>> bool(np.isclose(mu, logs.mean())[0]), bool(np.isclose(sigma, logs.std())[0])
    (True, True)
    """
    return _fit(_Normal(), logs, seen, end, floor, start)


class _StudentT:
    def __init__(self, nu):
        self.nu = nu
        self.log_constant = np.log(special.poch(nu / 2, 0.5)) - np.log(np.pi * nu) / 2

    def take(self, rows):
        return _StudentT(self.nu[rows])

    def log_density(self, z):
        nu = self.nu.reshape(-1, *[1] * (z.ndim - 1))
        return self.log_constant.reshape(nu.shape) - (nu + 1) / 2 * np.log1p(z * z / nu)

    def weights(self, z):
        """The EM weights w = -(ln f)'(z) / z and the curvature (ln f)''(z)."""
        nu = self.nu[:, None]
        squares = z * z
        inverse = 1 / (squares + nu)
        weights = (nu + 1) * inverse
        return weights, weights * (squares - nu) * inverse

    def tail(self, a):
        """P(T > a)."""
        return special.stdtr(self.nu, -a)

    def tail_moments(self, a):
        """E[w], E[w T] and E[w T^2] given T > a."""
        tail = self.tail(a)
        first = special.stdtr(self.nu + 2, -a * np.sqrt(1 + 2 / self.nu)) / tail
        return first, np.exp(self.log_density(a)) / tail, self.nu + 1 - self.nu * first


class _Normal:
    def take(self, rows):
        return self

    def log_density(self, z):
        return -np.square(z) / 2 - np.log(2 * np.pi) / 2

    def weights(self, z):
        ones = np.ones_like(z)
        return ones, -ones

    def tail(self, a):
        return special.ndtr(-a)

    def tail_moments(self, a):
        hazard = np.sqrt(2 / np.pi) / special.erfcx(a / np.sqrt(2))
        return np.ones_like(a), hazard, 1 + a * hazard


def _fit(family, logs, seen, end, floor, start):
    floor = np.broadcast_to(np.asarray(floor, float), len(logs))
    censored = (~seen).sum(axis=1)
    logs = np.where(seen, logs, end)
    mu, sigma = _first_guess(logs, floor) if start is None else (start[0].copy(), start[1].copy())
    active = np.arange(len(logs))
    for _ in range(_ITERATIONS):
        new_mu, new_sigma = _step(
            family.take(active),
            logs[active],
            seen[active],
            end,
            censored[active],
            floor[active],
            mu[active],
            sigma[active],
        )
        moved = np.maximum(np.abs(new_mu - mu[active]) / new_sigma, np.abs(np.log(new_sigma / sigma[active])))
        mu[active], sigma[active] = new_mu, new_sigma
        active = active[moved > _TOLERANCE]
        if not active.size:
            break
    return LocationScale(mu, sigma, _log_likelihood(family, logs, seen, end, censored, mu, sigma))


def _first_guess(logs, floor):
    quartiles = np.quantile(logs, [0.25, 0.5, 0.75], axis=1)
    return quartiles[1], np.maximum(np.maximum((quartiles[2] - quartiles[0]) / 1.5, logs.std(axis=1) / 4), floor)


def _step(family, logs, seen, end, censored, floor, mu, sigma):
    z = (logs - mu[:, None]) / sigma[:, None]
    weights, curvature = family.weights(z)
    weights *= seen
    curvature *= seen
    a = np.where(censored > 0, end - mu, 0.0) / sigma
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first, hazard, second = np.where(censored, family.tail_moments(a), 0.0)
    weight_of_end = family.weights(a[:, None])[0][:, 0]
    # sums over samples of w z^k and of (ln f)'' z^k
    weighted = [np.einsum("ij,ij->i", weights, power) for power in (np.ones_like(z), z, z * z)]
    curved = [np.einsum("ij,ij->i", curvature, power) for power in (np.ones_like(z), z, z * z)]
    slopes = np.stack([weighted[1] + censored * hazard, weighted[2] - seen.sum(axis=1) + censored * hazard * a])
    # second derivative of ln P(T > a); the derivative of the first is -hazard
    bend = -hazard * (hazard - weight_of_end * a)
    h_mm = curved[0] + censored * bend
    h_ms = curved[1] - weighted[1] + censored * (bend * a - hazard)
    h_ss = curved[2] - weighted[2] + censored * a * (bend * a - hazard)
    determinant = h_mm * h_ss - h_ms**2
    with np.errstate(divide="ignore", invalid="ignore"):
        newton = np.stack([h_ms * slopes[1] - h_ss * slopes[0], h_ms * slopes[0] - h_mm * slopes[1]]) / determinant
    good = (h_mm < 0) & (determinant > 0) & (np.abs(newton) < 0.5).all(axis=0)
    good &= sigma * np.exp(np.where(good, newton[1], 0)) > floor
    # EM, with the parameter expansion of Kent, Tyler and Vardi (sums of weights below both ratios)
    total = weighted[0] + censored * first
    shift = (weighted[1] + censored * hazard) / total
    spread = (weighted[2] + censored * second) / total - shift**2
    climbed = mu + sigma * shift, np.maximum(sigma * np.sqrt(np.maximum(spread, 0)), floor)
    stepped = mu + sigma * newton[0], sigma * np.exp(np.where(good, newton[1], 0))
    return np.where(good, stepped[0], climbed[0]), np.where(good, stepped[1], climbed[1])


def _log_likelihood(family, logs, seen, end, censored, mu, sigma):
    z = (logs - mu[:, None]) / sigma[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        tails = np.where(censored, censored * np.log(family.tail((end - mu) / sigma)), 0.0)
    return np.where(seen, family.log_density(z) - np.log(sigma)[:, None], 0).sum(axis=1) + tails
