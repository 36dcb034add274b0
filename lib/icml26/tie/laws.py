"""Laws of output lengths, one per request: log-t (the paper's) and log-normal (its ablation).

TIE (Zheng et al., ICML 2026, arXiv 2604.00499) gives each request the law X = exp(mu + sigma T), T Student-t with
nu = 3.5, and scores it by E[X'] + beta CVaR(X') (its Eqs. 11-12), X' = min(X, cap). No moment of X itself exists:
P(X > x) falls like a power of ln x. Nothing but the median and quantiles is finite before X is capped.

sigma is the scale of ln X, not its standard deviation, which for the log-t is sigma sqrt(nu / (nu - 2)), 1.53 sigma at
nu = 3.5; the sigmas of the two families are not interchangeable. alpha = 0.9 means the worst 10 %.

Lengths are in tokens and treated as continuous. `law` has what both families answer, `log_t` is the log-t law for users
of `scipy.stats`, `fitting` does the arithmetic of maximum likelihood, `policies` makes scores of what is computed here.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import special

from icml26.errors import InputError
from icml26.tie.checks import checked_lengths, checked_location, checked_positive, checked_scalar
from icml26.tie.fitting import fit_free_log_t, fit_log_normal, fit_log_t
from icml26.tie.law import Law
from icml26.tie.quadrature import partial_expectation

__all__ = ["LogNormalLaw", "LogTLaw", "fit_laws"]

_ROOT_HALF = np.sqrt(0.5)


@dataclass(frozen=True, eq=False)
class LogTLaw(Law):
    """X = exp(mu + sigma T) with T Student-t: the paper's law of a request's length.

    Parameters
    ----------
    mu : array, shape (requests,)
        Median of ln X, X in tokens.
    sigma : array, shape (requests,)
        Scale of ln X, positive.
    nu : float or array, shape (requests,)
        Degrees of freedom; the paper's 3.5 for all prompts.

    Raises
    ------
    InputError
        If a parameter is not finite, mu beyond 1000, sigma or nu not positive, or the shapes differ.

    Examples
    --------
    >>> law = LogTLaw([5.0, 5.0], [0.3, 0.9])
    >>> law.mean(cap=2048).round(1), law.cvar(0.9, cap=2048).round(1)
    (array([164.9, 279.5]), array([ 359.4, 1281.3]))
    >>> law[1].sf(2048).round(3)
    array([0.026])
    """

    mu: Float[np.ndarray, " requests"]
    sigma: Float[np.ndarray, " requests"]
    nu: Float[np.ndarray, " requests"] | float = 3.5

    def __post_init__(self) -> None:
        _broadcast(
            self,
            mu=checked_location("mu", self.mu),
            sigma=checked_positive("sigma", self.sigma),
            nu=checked_positive("nu", self.nu),
        )

    def _sf(self, z):
        return special.stdtr(self.nu, -z)

    def _quantile(self, q):
        return np.where(q == 0, -np.inf, special.stdtrit(self.nu, q))  # stdtrit takes 0 for 1

    def _draw(self, generator, samples):
        return generator.standard_t(self.nu[:, None], (len(self), samples))

    def _partial(self, log_scale, low, high):
        return partial_expectation(log_scale, self.sigma, self.nu, low, high)

    def _uncapped_mean(self, *_):
        raise InputError("cap=None leaves a log-t law without a mean (it is infinite); give the largest length")

    _uncapped_cvar = _uncapped_mean


@dataclass(frozen=True, eq=False)
class LogNormalLaw(Law):
    """X = exp(mu + sigma Z) with Z standard normal: the ablation's law, in closed form.

    Parameters
    ----------
    mu : array, shape (requests,)
        Mean of ln X, X in tokens.
    sigma : array, shape (requests,)
        Standard deviation of ln X, positive.

    Raises
    ------
    InputError
        If a parameter is not finite, mu beyond 1000, sigma not positive, or the shapes differ.

    Examples
    --------
    >>> law = LogNormalLaw([5.0, 5.0], [0.3, 0.9])
    >>> law.mean(cap=2048).round(1), law.mean(cap=None).round(1)
    (array([155.2, 221.3]), array([155.2, 222.5]))
    """

    mu: Float[np.ndarray, " requests"]
    sigma: Float[np.ndarray, " requests"]

    def __post_init__(self) -> None:
        _broadcast(self, mu=checked_location("mu", self.mu), sigma=checked_positive("sigma", self.sigma))

    def _sf(self, z):
        return special.ndtr(-z)

    def _quantile(self, q):
        return special.ndtri(q)

    def _draw(self, generator, samples):
        return generator.standard_normal((len(self), samples))

    def _partial(self, log_scale, low, high):
        # The integral is the whole, exp(log_scale + sigma^2 / 2), times what a normal law around sigma has between the
        # ends. Each end's tail, on its own side of sigma, is taken in a form whose factors do not overflow.
        def tail(z):
            finite = np.where(np.isinf(z), 0.0, z)
            exponent = np.where(np.isinf(z), -np.inf, log_scale + self.sigma * finite - finite**2 / 2)
            return np.exp(exponent) * special.erfcx(np.abs(finite - self.sigma) * _ROOT_HALF) / 2

        whole = np.exp(np.minimum(log_scale + self.sigma**2 / 2, 0))  # not positive where it is used
        below, above = tail(low), tail(high)
        outside = [high < self.sigma, low > self.sigma]
        return np.select(outside, [above - below, below - above], whole - below - above)

    def _uncapped_mean(self):
        with np.errstate(over="ignore"):
            return np.exp(self.mu + self.sigma**2 / 2)

    def _uncapped_cvar(self, alpha):
        return self._uncapped_mean() * special.ndtr(self.sigma - special.ndtri(alpha)) / (1 - alpha)


def fit_laws(
    lengths: Int[ArrayLike, "prompts samples"], cap: int | None, family: str = "log-t", nu: float | None = 3.5
) -> LogTLaw | LogNormalLaw:
    """Fit a law to the lengths of several generations of each prompt by maximum likelihood.

    A length at the cap is censored. A length is known to a token, so no sigma is less than what rounding causes by
    itself, 1 / (sqrt(12) median): without that bound the likelihood of equal lengths has no maximum. Of a prompt whose
    generations all reach the cap nothing is known but that; its mu is ln cap and its sigma the bound.

    Parameters
    ----------
    lengths : int array, shape (prompts, samples)
        Tokens, each at least 1 and at most the cap; two samples or more.
    cap : int or None
        Largest length of the generations, in tokens; None if nothing was cut short.
    family : {"log-t", "log-normal"}
        Which law.
    nu : float or None
        Degrees of freedom of the log-t law; None to fit them to each prompt, from 1 to 100 (the paper's ablation).

    Returns
    -------
    LogTLaw or LogNormalLaw
        One law per prompt.

    Raises
    ------
    InputError
        If lengths are no such integers, or an option is out of range.

    Examples
    --------
    >>> law = fit_laws([[90, 110, 100, 95, 2048], [2048, 2048, 2048, 2048, 2048]], cap=2048)
    >>> law.median().round(), law.sigma.round(4)
    (array([ 100., 2048.]), array([2.222e-01, 1.000e-04]))
    """
    lengths = checked_lengths(lengths, cap, least=2)
    if family not in ("log-t", "log-normal"):
        raise InputError(f"family={family!r} must be 'log-t' or 'log-normal'")
    end = np.inf if cap is None else np.log(cap)
    logs = np.log(lengths)
    seen = logs < end
    floor = 1 / (np.sqrt(12) * np.median(lengths, axis=1))
    known = seen.any(axis=1)
    mu, sigma = np.full(len(logs), end), floor.copy()
    data = logs[known], seen[known], end
    if family == "log-normal":
        mu[known], sigma[known], _ = fit_log_normal(*data, floor[known])
        return LogNormalLaw(mu, sigma)
    if nu is None:
        nus = np.full(len(logs), 3.5)
        nus[known], (mu[known], sigma[known], _) = fit_free_log_t(*data, floor[known])
        return LogTLaw(mu, sigma, nus)
    nu = checked_scalar("nu", nu)
    mu[known], sigma[known], _ = fit_log_t(*data, nu, floor[known])
    return LogTLaw(mu, sigma, nu)


def _broadcast(law, **values):
    try:
        arrays = np.broadcast_arrays(*(np.atleast_1d(value) for value in values.values()))
    except ValueError as error:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in values.items())
        raise InputError(f"the law's parameters have shapes {shapes}; give one value per request in each") from error
    if arrays[0].ndim != 1:
        raise InputError(f"the law's parameters have {arrays[0].ndim} axes; give one value per request")
    for name, array in zip(values, arrays, strict=True):
        object.__setattr__(law, name, array)
