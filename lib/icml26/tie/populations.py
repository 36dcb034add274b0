"""Who asks: populations of requests with their true lengths and with what a scheduler believes of them.

The chapter compares orders of the waiting queue (TIE, Zheng et al., arXiv 2604.00499) on requests whose prompts differ
in the law of the output length. `LogTPopulation` draws the laws themselves, so that theory can be checked in the world
that TIE assumes. `EmpiricalPopulation` holds repeated generations of real prompts: the truth is resampled from some of
them and laws are fitted to the others, so nothing assumes a family. `Predictor` blurs laws as a trained predictor
would, by its coefficients of determination. Simulations are `icml26.tie.serving_study`'s.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int64, Integer

from icml26.checks import is_number
from icml26.errors import InputError
from icml26.tie.checks import checked_lengths, checked_reals
from icml26.tie.laws import LogTLaw, fit_laws

__all__ = ["EmpiricalPopulation", "LogTPopulation", "Population", "Predictor", "Requests"]


class Requests(NamedTuple):
    """Some requests of a population.

    Attributes
    ----------
    prompt : ndarray of int, shape (requests,)
        Prompt tokens.
    output : ndarray of int, shape (requests,)
        True output lengths, which no policy but the oracle may see.
    law
        Law of each request's output length: the true one, or the one fitted to other generations of its prompt.
    source : ndarray of int, shape (requests,)
        Which prompt of the population it is.
    """

    prompt: Int64[np.ndarray, " requests"]
    output: Int64[np.ndarray, " requests"]
    law: Any
    source: Int64[np.ndarray, " requests"]


class Population(Protocol):
    """What `icml26.tie.serving_study` draws requests from; `cap` is the most output tokens of a request."""

    cap: int

    def draw(self, count: int, generator: np.random.Generator) -> Requests:
        """Draw independent requests."""
        ...


@dataclass(frozen=True)
class LogTPopulation:
    """Prompts with log-t laws: mu normal, sigma log-normal, lengths min(exp(mu + sigma T), cap), rounded to tokens.

    The defaults give lengths with a mean near 250 tokens and a coefficient of variation of 1.6 at a cap of 2048.

    Parameters
    ----------
    mu_mean, mu_sd
        Of mu over prompts.
    log_sigma_mean, log_sigma_sd
        Of the logarithm of sigma over prompts.
    correlation
        Of mu and the logarithm of sigma.
    nu
        Degrees of freedom.
    cap
        Most output tokens.
    prompt_median, prompt_spread, prompt_cap
        Of the log-normal number of prompt tokens: median, standard deviation of its logarithm, most.

    Raises
    ------
    InputError
        If a spread is negative, the correlation outside [-1, 1], or nu, the median or the cap not positive.

    Examples
    --------
    >>> drawn = LogTPopulation().draw(5, np.random.default_rng(0))
    >>> len(drawn.output), bool((drawn.output >= 1).all() and (drawn.output <= 2048).all())
    (5, True)
    """

    mu_mean: float = 4.6
    mu_sd: float = 1.2
    log_sigma_mean: float = -0.9
    log_sigma_sd: float = 0.45
    correlation: float = 0.0
    nu: float = 3.5
    cap: int = 2048
    prompt_median: float = 100.0
    prompt_spread: float = 1.0
    prompt_cap: int = 2048

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not is_number(value):
                raise InputError(f"{name}={value!r} must be a finite number")
        for name in ("mu_sd", "log_sigma_sd", "prompt_spread"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"{name}={getattr(self, name)!r} must be a standard deviation, 0 or more")
        if not -1 <= self.correlation <= 1:
            raise InputError(f"correlation={self.correlation!r} must lie between -1 and 1")
        for name in ("nu", "cap", "prompt_median", "prompt_cap"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name}={getattr(self, name)!r} must be a positive number")

    def draw(self, count: int, generator: np.random.Generator) -> Requests:
        """Draw requests, each with a prompt of its own."""
        mu, log_sigma = self._standardised(count, generator)
        law = LogTLaw(
            self.mu_mean + self.mu_sd * mu, np.exp(self.log_sigma_mean + self.log_sigma_sd * log_sigma), self.nu
        )
        output = law.sample(generator, self.cap)
        prompt = np.exp(np.log(self.prompt_median) + self.prompt_spread * generator.standard_normal(count))
        return Requests(np.clip(np.rint(prompt), 1, self.prompt_cap).astype(np.int64), output, law, np.arange(count))

    def generations(self, prompts: int, samples: int, generator: np.random.Generator) -> Int64[np.ndarray, "p s"]:
        """Lengths of repeated generations of the same prompts, for an `EmpiricalPopulation` of known truth.

        Parameters
        ----------
        prompts, samples
            How many prompts, and generations of each.
        generator
            Source of random numbers.

        Returns
        -------
        ndarray of int, shape (prompts, samples)
            Lengths in tokens, at most the cap.
        """
        law = self.draw(prompts, generator).law
        return law.sample(generator, self.cap, samples)

    def _standardised(self, count: int, generator: np.random.Generator) -> np.ndarray:
        first, second = generator.standard_normal((2, count))
        return np.stack([first, self.correlation * first + np.sqrt(1 - self.correlation**2) * second])


@dataclass(frozen=True, eq=False)
class EmpiricalPopulation:
    """Prompts with repeated generations: laws are fitted to the first of them, the truth is drawn from the rest.

    Parameters
    ----------
    lengths : integer array, shape (prompts, samples)
        Output lengths of independent generations of each prompt, from 1 to the cap.
    cap : int
        Most output tokens; a length that equals it was cut off.
    labels : int
        Generations of each prompt that laws are fitted to.
    family : {"log-t", "log-normal"}
        Of the laws.
    prompt : integer array, shape (prompts,), optional
        Prompt tokens; 1 each unless given.

    Raises
    ------
    InputError
        If the lengths are no matrix of integers from 1 to the cap, or labels leave no generation for the truth.

    Examples
    --------
    >>> lengths = LogTPopulation(cap=256).generations(20, 30, np.random.default_rng(0))
    >>> drawn = EmpiricalPopulation(lengths, cap=256, labels=20).draw(100, np.random.default_rng(1))
    >>> all(output in lengths[source, 20:] for output, source in zip(drawn.output, drawn.source))
    True
    """

    lengths: Integer[np.ndarray, "prompts samples"]
    cap: int
    labels: int = 20
    family: str = "log-t"
    prompt: Integer[np.ndarray, " prompts"] | None = None
    law: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lengths = checked_lengths(self.lengths, self.cap, 3)
        if isinstance(self.labels, bool) or not isinstance(self.labels, int) or not 2 <= self.labels < lengths.shape[1]:
            raise InputError(
                f"labels={self.labels!r} must be an integer from 2 to {lengths.shape[1] - 1}, the samples less one"
            )
        if self.prompt is not None and checked_reals("prompt", self.prompt).shape != lengths.shape[:1]:
            raise InputError(
                f"prompt has shape {np.shape(self.prompt)}; give one number for each of {len(lengths)} prompts"
            )
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "law", fit_laws(lengths[:, : self.labels], self.cap, family=self.family))

    def draw(self, count: int, generator: np.random.Generator) -> Requests:
        """Draw prompts with replacement, and a generation of each that no law has seen."""
        source = generator.integers(len(self.lengths), size=count)
        output = self.lengths[source, generator.integers(self.labels, self.lengths.shape[1], size=count)]
        prompt = np.ones(count, np.int64) if self.prompt is None else np.asarray(self.prompt)[source].astype(np.int64)
        return Requests(prompt, output.astype(np.int64), self.law[source], source)

    def refitted(self, family: str) -> "EmpiricalPopulation":
        """The same prompts and generations with laws of another family, drawn alike from the same generator."""
        return replace(self, family=family)


@dataclass(frozen=True)
class Predictor:
    """Blur laws as a predictor of given quality would: calibrated regression of mu and log(1 + sigma).

    A prediction is the conditional mean of a linear regression: ``m + r2 (x - m) + sqrt(r2 (1 - r2)) sd noise``, which
    has the coefficient of determination r2 and does not exaggerate differences. Both are predicted independently, as
    the paper's two branches are.

    Parameters
    ----------
    r2_mu, r2_sigma
        Coefficients of determination, from 0 (the mean of all) to 1 (exact). The paper reports 0.82 and 0.76.
    sigma_factor
        What every sigma is multiplied by afterwards: below 1 for a spread that is underestimated.
    joint
        Whether a linear regression of mu and of log(1 + sigma) on both predictions follows, as one branch for both
        would learn; the paper's two branches ignore what sigma says of mu.

    Raises
    ------
    InputError
        If a coefficient is not between 0 and 1 or the factor not positive.

    Examples
    --------
    >>> law = LogTPopulation().draw(4000, np.random.default_rng(0)).law
    >>> seen = Predictor(r2_mu=0.8)(law, np.random.default_rng(1))
    >>> bool(abs(1 - np.var(seen.mu - law.mu) / np.var(law.mu) - 0.8) < 0.02)
    True
    """

    r2_mu: float = 1.0
    r2_sigma: float = 1.0
    sigma_factor: float = 1.0
    joint: bool = False

    def __post_init__(self) -> None:
        for name in ("r2_mu", "r2_sigma"):
            if not is_number(getattr(self, name)) or not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}={getattr(self, name)!r} must lie between 0 and 1")
        if not is_number(self.sigma_factor) or self.sigma_factor <= 0:
            raise InputError(f"sigma_factor={self.sigma_factor!r} must be a positive number")

    def __call__(self, law: Any, generator: np.random.Generator) -> Any:
        """Return the laws as this predictor sees them.

        Parameters
        ----------
        law
            A law with ``mu`` and ``sigma``.
        generator
            Source of the errors.

        Returns
        -------
        law
            Of the same family.
        """
        noise = generator.standard_normal((2, len(law.mu)))  # drawn whatever is blurred: common random numbers
        truth = np.stack([law.mu, np.log1p(law.sigma)], axis=1)
        seen = np.stack([_regressed(truth[:, i], r2, noise[i]) for i, r2 in enumerate((self.r2_mu, self.r2_sigma))], 1)
        if self.joint:
            design = np.column_stack([np.ones(len(seen)), seen])
            seen = design @ np.linalg.lstsq(design, truth)[0]
        sigma = np.maximum(np.expm1(seen[:, 1]), 1e-6)
        return replace(law, mu=seen[:, 0], sigma=self.sigma_factor * sigma)


def _regressed(
    values: Float[np.ndarray, " requests"], r2: float, noise: Float[np.ndarray, " requests"]
) -> Float[np.ndarray, " requests"]:
    if r2 == 1:
        return values
    return values.mean() + r2 * (values - values.mean()) + np.sqrt(r2 * (1 - r2)) * values.std() * noise
