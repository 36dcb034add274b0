"""Orders of the waiting queue by what is known of each request alone: arrival, one number, or a law's mean or median.

These are what TIE (Zheng et al., arXiv 2604.00499) is compared with: SSJF (Qiu et al., arXiv 2404.08509) and LTR (Fu et
al., arXiv 2408.15792) send one prediction, SEPT (Weber 1983) is TIE without tail, WSEPT is Smith's rule for latency per
token. Lower scores go first; ties are the engine's (earlier arrival, then index). Laws of the length
(`icml26.tie.laws`) are known by the methods ``mean``, ``cvar``, ``median`` and ``inverse_mean`` alone, entry i for the
request of index i. No policy sees a true length but `OracleSJF`. TIE itself is in `icml26.tie.policies`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Integer, Shaped
from numpy.typing import ArrayLike

from icml26.checks import is_number
from icml26.errors import InputError

if TYPE_CHECKING:
    from icml26.serving import QueueState, Request

__all__ = ["FCFS", "SEPT", "WSEPT", "FixedBeta", "Median", "OracleSJF", "PointEstimate"]


class _Static:
    # Scores that depend on the request alone; a list, since the simulator reads them one by one.
    rebuild_every = None
    refresh = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scores", as_scores(type(self).__name__, self._values()))

    def score(self, request: "Request", queue: "QueueState") -> float:
        """Place of a request in the queue, lowest first."""
        try:
            return self._scores[request.index]
        except IndexError:
            raise too_few(request.index, len(self._scores)) from None


@dataclass(frozen=True)
class FCFS:
    """First come, first served; a request that was preempted goes first.

    Examples
    --------
    >>> from icml26.serving import Request
    >>> FCFS().score(Request(index=7, arrival=2.5, prompt=10, generated=0, preemptions=0), None)
    2.5
    """

    def score(self, request: "Request", queue: "QueueState") -> float:
        """Place of a request in the queue, lowest first: its arrival, in seconds."""
        return request.arrival


@dataclass(frozen=True, eq=False)
class PointEstimate(_Static):
    """Shortest predicted job first, for anything that predicts one number a request (SSJF, LTR).

    Parameters
    ----------
    predicted : array-like, shape (requests,)
        Predicted length in tokens, or any number that grows with it, such as a rank.

    Raises
    ------
    InputError
        If a prediction is not finite.
    """

    predicted: Shaped[ArrayLike, " requests"]

    def _values(self):
        return self.predicted


@dataclass(frozen=True, eq=False)
class OracleSJF(_Static):
    """Shortest job first by the TRUE lengths, which no scheduler knows: the bound for an order without preemption.

    Parameters
    ----------
    output : array-like of int, shape (requests,)
        True output lengths, tokens.

    Raises
    ------
    InputError
        If a length is not finite.
    """

    output: Integer[np.ndarray, " requests"]

    def _values(self):
        return self.output


@dataclass(frozen=True, eq=False)
class Median(_Static):
    """Shortest median first, exp(mu) for a log-t or log-normal law: it ignores the spread.

    Parameters
    ----------
    law
        Laws of the requests' lengths.
    """

    law: Any

    def _values(self):
        return of_law(self.law, "median")


@dataclass(frozen=True, eq=False)
class SEPT(_Static):
    """Shortest expected processing time first (Weber 1983): TIE without its tail term.

    Parameters
    ----------
    law
        Laws of the requests' lengths.
    cap : float or None
        Most tokens of a request; None leaves a law uncensored, which a log-t law cannot bear.
    """

    law: Any
    cap: float | None

    def _values(self):
        return of_law(self.law, "mean", self.cap)


@dataclass(frozen=True, eq=False)
class WSEPT(_Static):
    """Smith's rule where a request's latency counts per token: ``E[X] / E[1/X]``, lowest first.

    Latency over length weighs a request's completion by 1/X, so its weight is E[1/X] in expectation.

    Parameters
    ----------
    law, cap
        As in `SEPT`.
    """

    law: Any
    cap: float | None

    def _values(self):
        return of_law(self.law, "mean", self.cap) / of_law(self.law, "inverse_mean", self.cap)


@dataclass(frozen=True, eq=False)
class FixedBeta(_Static):
    """``E[X] + beta CVaR_alpha[X]`` with a constant beta: the ablation of Eq. 12.

    Parameters
    ----------
    law, cap
        As in `SEPT`.
    beta, alpha
        Weight of the tail, and its level: 0.9 means the worst tenth.
    """

    law: Any
    cap: float | None
    beta: float
    alpha: float = 0.9

    def _values(self):
        if not is_number(self.beta):
            raise InputError(f"beta={self.beta!r} must be a finite number, such as 0.3")
        return of_law(self.law, "mean", self.cap) + self.beta * of_law(self.law, "cvar", self.alpha, self.cap)


def as_scores(name: str, values: ArrayLike) -> list[float]:
    """Return one finite score a request as plain numbers, or say what is wrong with them.

    Parameters
    ----------
    name : str
        Of the argument, for the message.
    values : array-like, shape (requests,)
        Scores.

    Returns
    -------
    list of float

    Raises
    ------
    InputError
        If they are no such numbers.
    """
    try:
        scores = np.asarray(values)
        if scores.dtype.kind not in "biuf":
            raise TypeError(f"it is of type {scores.dtype}")
        scores = scores.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from error
    if scores.ndim != 1 or not scores.size:
        raise InputError(f"{name} has shape {scores.shape}; give one number for each request")
    if not np.isfinite(scores).all():
        bad = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise InputError(
            f"{name} is {scores[bad]} for request {bad}; give finite numbers, and a cap to laws without mean"
        )
    return scores.tolist()


def too_few(index: int, count: int) -> InputError:
    """Return the error of a policy that knows fewer requests than it is asked to score.

    Parameters
    ----------
    index : int
        Of the request that has none.
    count : int
        Predictions that the policy has.

    Returns
    -------
    InputError

    Examples
    --------
    >>> raise too_few(2, 2)
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: request 2 has no prediction: the policy has 2; give one for each request
    """
    return InputError(f"request {index} has no prediction: the policy has {count}; give one for each request")


def of_law(law: Any, method: str, *arguments: Any) -> Float[np.ndarray, " requests"]:
    """Return what a method of a law gives, or say that it is no law.

    Parameters
    ----------
    law
        Such as `LogTLaw`.
    method : str
        Its name.
    *arguments
        Passed on.

    Returns
    -------
    array, shape (requests,)

    Raises
    ------
    InputError
        If the law has no such method.
    """
    if hasattr(law, "__array__") or not callable(getattr(law, method, None)):  # arrays have a mean of their own
        raise InputError(f"law is of type {type(law).__name__} without a {method}() of laws; give one such as LogTLaw")
    return getattr(law, method)(*arguments)
