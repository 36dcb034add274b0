"""Six families of length laws, fitted to many right-censored samples at once.

TIE (Zheng et al., ICML 2026, arXiv 2604.00499) compares families by the share of prompts whose lengths pass a test of
fit. Here are the families: how each is fitted by maximum likelihood, its distribution function and its draws, one
row of arrays per sample. `fit_tests` says what is done with them.

Lengths are whole numbers and all families but the geometric are continuous. Each length is spread uniformly over its
token, from L - 1/2 to L + 1/2, and a length at the cap is known to be at least cap - 1/2.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from icml26.tie.fitting import fit_free_log_t, fit_log_normal, fit_log_t

__all__ = ["FAMILIES", "Family", "Sample", "sample_of"]


class Sample(NamedTuple):
    """Lengths as the families see them.

    Parameters
    ----------
    lengths : array, shape (rows, samples)
        Whole tokens, at most the cap.
    values : array, shape (rows, samples)
        The lengths spread over their tokens.
    seen : bool array, shape (rows, samples)
        False at the cap.
    end : float
        Where seeing ends, cap - 1/2, or infinity.
    """

    lengths: Float[np.ndarray, "rows samples"]
    values: Float[np.ndarray, "rows samples"]
    seen: Bool[np.ndarray, "rows samples"]
    end: float


def sample_of(lengths: Float[np.ndarray, "rows samples"], cap: int | None, generator: np.random.Generator) -> Sample:
    """Spread lengths over their tokens and mark what the cap hides.

    Parameters
    ----------
    lengths : array, shape (rows, samples)
        Positive numbers; they are rounded to at least 1 and at most the cap.
    cap : int or None
        Largest length.
    generator : numpy.random.Generator
        Where the spreading comes from.

    Returns
    -------
    Sample

    Examples
    --------
    >>> sample = sample_of(np.array([[0.2, 3.4, 99.0]]), 8, np.random.default_rng(0))
    >>> sample.lengths, sample.seen, sample.end
    (array([[1., 3., 8.]]), array([[ True,  True, False]]), 7.5)
    """
    end = np.inf if cap is None else cap - 0.5
    lengths = np.maximum(np.rint(np.minimum(lengths, 1e300 if cap is None else cap)), 1)
    return Sample(lengths, lengths + generator.random(lengths.shape) - 0.5, lengths < end, end)


class Family(NamedTuple):
    """One family: its fit to a sample, and with the parameters its distribution function and draws.

    Parameters
    ----------
    fit : callable
        ``fit(sample)`` gives an array of parameters, shape (parameters, rows).
    cdf : callable
        ``cdf(parameters, values)`` for values of shape (rows, any).
    draw : callable
        ``draw(parameters, generator, samples)`` gives numbers of shape (rows, samples).
    """

    fit: Callable[[Sample], np.ndarray]
    cdf: Callable[[np.ndarray, np.ndarray], np.ndarray]
    draw: Callable[[np.ndarray, np.random.Generator, int], np.ndarray]


def _logs(sample):
    logs = np.log(np.minimum(sample.values, sample.end))
    return logs, sample.seen, np.log(sample.end), 1e-9  # spread values are never equal: no bound on sigma is needed


def _fit_log_t(sample):
    mu, sigma, _ = fit_log_t(*_logs(sample)[:3], 3.5, 1e-9)
    return np.stack([mu, sigma, np.full_like(mu, 3.5)])


def _fit_free_log_t(sample):
    nu, (mu, sigma, _) = fit_free_log_t(*_logs(sample))
    return np.stack([mu, sigma, nu])


def _fit_log_normal(sample):
    return np.stack(fit_log_normal(*_logs(sample))[:2])


def _log_t_cdf(parameters, values):
    mu, sigma, nu = parameters[..., None]
    return special.stdtr(nu, (np.log(values) - mu) / sigma)


def _log_t_draw(parameters, generator, samples):
    mu, sigma, nu = parameters[..., None]
    return np.exp(np.minimum(mu + sigma * generator.standard_t(nu, (len(mu), samples)), 700))


def _log_normal_cdf(parameters, values):
    mu, sigma = parameters[..., None]
    return special.ndtr((np.log(values) - mu) / sigma)


def _log_normal_draw(parameters, generator, samples):
    mu, sigma = parameters[..., None]
    return np.exp(np.minimum(mu + sigma * generator.standard_normal((len(mu), samples)), 700))


def _fit_gamma(sample):
    # ln k from ln k - psi(k) = ln(mean) - mean(ln), by Minka's iteration, with what is hidden put at the end; if
    # anything is, that is where the ascent of the censored likelihood starts.
    everything = np.where(sample.seen, sample.values, sample.end)
    mean = everything.mean(axis=1)
    gap = np.maximum(np.log(mean) - np.log(everything).mean(axis=1), 1e-12)
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(6):
        slope = np.log(shape) - special.psi(shape) - gap
        shape = 1 / (1 / shape + slope / (shape**2 * (1 / shape - special.polygamma(1, shape))))
    start = np.log([shape, mean / shape])
    seen = sample.seen.sum(axis=1)
    hidden = sample.seen.shape[1] - seen
    values = np.where(sample.seen, sample.values, 0.0)
    sums, logs = values.sum(axis=1), np.log(np.where(sample.seen, values, 1.0)).sum(axis=1)
    rows = hidden > 0

    def objective(parameters):
        log_shape, log_scale = parameters
        shape, scale = np.exp(log_shape), np.exp(log_scale)
        with np.errstate(divide="ignore"):
            tail = hidden[rows] * np.log(special.gammaincc(shape, sample.end / scale))
        inside = (
            (shape - 1) * logs[rows] - sums[rows] / scale - seen[rows] * (shape * log_scale + special.gammaln(shape))
        )
        return inside + tail

    start[:, rows] = _ascend(objective, start[:, rows])
    return np.exp(start)


def _ascend(objective, start, iterations=40, width=1e-4):
    """Maxima near the starts, shape (2, rows), by damped Newton steps with numerical derivatives."""
    place, best, damping = start.copy(), objective(start), np.full(start.shape[1], 1e-2)
    e = width * np.eye(2)[..., None]
    for _ in range(iterations if best.size else 0):
        ahead, behind = (np.stack([objective(place + sign * e[i]) for i in range(2)]) for sign in (1, -1))
        cross = objective(place + e[0] + e[1]) - objective(place + e[0] - e[1])
        cross -= objective(place - e[0] + e[1]) - objective(place - e[0] - e[1])
        slope = (ahead - behind) / (2 * width)
        curvature = (ahead - 2 * best + behind) / width**2
        scale = np.abs(curvature).max(axis=0) + 1e-9
        first, second = curvature - damping * scale
        mixed = cross / (4 * width**2)
        determinant = first * second - mixed**2
        step = np.stack([mixed * slope[1] - second * slope[0], mixed * slope[0] - first * slope[1]]) / determinant
        usable = (first < 0) & (determinant > 0)
        step = np.clip(np.where(usable, step, 0), -1, 1)
        value = objective(place + step)
        better = usable & (value >= best)
        place, best = np.where(better, place + step, place), np.where(better, value, best)
        damping = np.where(better, damping / 10, np.maximum(damping, 1e-6) * 10)
        if (np.abs(step).max(axis=0) < 1e-7)[usable].all() and usable.all():
            break
    return place


def _gamma_cdf(parameters, values):
    shape, scale = parameters[..., None]
    return special.gammainc(shape, values / scale)


def _gamma_draw(parameters, generator, samples):
    shape, scale = parameters[..., None]
    return generator.standard_gamma(shape, (len(shape), samples)) * scale


def _fit_weibull(sample):
    # the likelihood with its best scale put in rises where the weighted mean of ln x is below the plain one plus 1 / k
    logs, seen, end, _ = _logs(sample)
    count = seen.sum(axis=1)
    logs = np.where(seen, logs, end)
    top = logs.max(axis=1)
    logs -= top[:, None]
    plain = np.where(seen, logs, 0).sum(axis=1) / count
    shape = 1.2 / np.maximum(logs.std(axis=1), 1e-6)
    for _ in range(30):
        weights = np.exp(shape[:, None] * logs)
        total = weights.sum(axis=1)
        first = np.einsum("ij,ij->i", weights, logs) / total
        second = np.einsum("ij,ij,ij->i", weights, logs, logs) / total
        step = (plain + 1 / shape - first) / (second - first**2 + 1 / shape**2)
        new = np.maximum(shape + step, shape / 4)
        done = np.abs(new - shape).max() < 1e-10 * shape.max()
        shape = new
        if done:
            break
    total = np.exp(shape[:, None] * logs).sum(axis=1)
    return np.stack([shape, np.exp(top + np.log(total / count) / shape)])


def _weibull_cdf(parameters, values):
    shape, scale = parameters[..., None]
    return -np.expm1(-((values / scale) ** shape))


def _weibull_draw(parameters, generator, samples):
    shape, scale = parameters[..., None]
    return generator.weibull(shape, (len(shape), samples)) * scale


def _fit_geometric(sample):
    # a length L is L - 1 tokens that were no end and one that was; at the cap the last one is not known
    tries = (sample.lengths - ~sample.seen).sum(axis=1)
    return (sample.seen.sum(axis=1) / tries)[None]


def _geometric_cdf(parameters, values):
    probability = parameters[0][:, None]
    whole = np.floor(values + 0.5)
    before = np.exp((whole - 1) * np.log1p(-np.minimum(probability, 1 - 1e-16)))  # P(L >= whole)
    return 1 - before * (1 - probability * (values + 0.5 - whole))


def _geometric_draw(parameters, generator, samples):
    return generator.geometric(parameters[0][:, None], (parameters.shape[1], samples)).astype(float)


FAMILIES = {
    "log-t": Family(_fit_log_t, _log_t_cdf, _log_t_draw),
    "log-t-free": Family(_fit_free_log_t, _log_t_cdf, _log_t_draw),
    "log-normal": Family(_fit_log_normal, _log_normal_cdf, _log_normal_draw),
    "gamma": Family(_fit_gamma, _gamma_cdf, _gamma_draw),
    "weibull": Family(_fit_weibull, _weibull_cdf, _weibull_draw),
    "geometric": Family(_fit_geometric, _geometric_cdf, _geometric_draw),
}
