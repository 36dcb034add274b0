"""TIE's order of the waiting queue, and all others of the chapter.

TIE (Zheng et al., arXiv 2604.00499) scores a request once, when it starts to wait, by the expectation of its output
length plus a share of the expectation of the worst tenth (Eq. 11), where the share grows with the queue (Eq. 12); long
waits are discounted (Section 5). Orders by the request alone, SEPT (beta = 0) among them, are defined in
`icml26.tie.static_policies` and offered here too.

A policy is what `icml26.serving.simulate` takes: ``score(request, queue)``, lowest first, and for a discount or for a
share that follows the queue ``rebuild_every``, ``aged`` and ``refresh``. The length's laws are `icml26.tie.laws`'.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from icml26.checks import is_number
from icml26.errors import InputError
from icml26.tie.static_policies import (
    FCFS,
    SEPT,
    WSEPT,
    FixedBeta,
    Median,
    OracleSJF,
    PointEstimate,
    as_scores,
    of_law,
    too_few,
)

if TYPE_CHECKING:
    from icml26.serving import QueueState, Request

__all__ = [
    "FCFS",
    "SEPT",
    "TIE",
    "WSEPT",
    "Decay",
    "FixedBeta",
    "Median",
    "OracleSJF",
    "PointEstimate",
    "beta",
]


def beta(waiting: int, batch: int, *, low: float = 0.1, high: float = 0.5, slope: float = 0.1) -> float:
    """Weight of the tail: ``min(high, max(low, slope * waiting / batch))`` (Eq. 12).

    Parameters
    ----------
    waiting
        Requests that wait, the scored one included.
    batch
        Most requests that run together.
    low, high, slope
        Of the rule; the paper's by default: 0.1 up to one batch in the queue, 0.5 from five.

    Returns
    -------
    float
        Between `low` and `high`.

    Raises
    ------
    InputError
        If `waiting` is negative, `batch` not positive, or any argument no number.

    Examples
    --------
    >>> [beta(waiting, 32) for waiting in (1, 32, 64, 160, 5000)]
    [0.1, 0.1, 0.2, 0.5, 0.5]
    """
    try:
        if waiting >= 0 and batch > 0:
            return min(high, max(low, slope * waiting / batch))
    except TypeError:
        pass
    raise InputError(
        f"waiting={waiting!r}, batch={batch!r}, low={low!r}, high={high!r}, slope={slope!r} do not make a beta: give "
        "numbers, waiting 0 or more and batch 1 or more"
    )


@dataclass(frozen=True)
class Decay:
    """Discount of a score for waiting (Section 5): ``factor ** (waited / period)``, renewed at intervals.

    It multiplies all scores of a queue alike as time passes, so the order of two requests, whatever their waits, is
    that of ``log(score) + arrival * log(1 / factor) / period`` and never changes: it favours the earlier arrival by a
    fixed factor, 2 for 197 s, and bounds no wait. Only what has arrived since the last rebuild is out of place.

    Parameters
    ----------
    factor
        Discount of one period, between 0 and 1.
    period
        Seconds.
    every
        Seconds between two rebuilds of the queue.

    Raises
    ------
    InputError
        If the factor is not between 0 and 1, or a time is not positive.

    Examples
    --------
    >>> round(Decay().half_life, 1), round(Decay().weight(60.0), 2)
    (197.4, 0.81)
    """

    factor: float = 0.9
    period: float = 30.0
    every: float = 5.0

    def __post_init__(self) -> None:
        _check_number("factor", self.factor, 0.0, 1.0, "such as 0.9")
        _check_number("period", self.period, 0.0, math.inf, "in seconds, such as 30")
        _check_number("every", self.every, 0.0, math.inf, "in seconds, such as 5")

    @property
    def half_life(self) -> float:
        """Seconds of waiting that halve a score."""
        return self.period * math.log(0.5) / math.log(self.factor)

    def weight(self, waited: float) -> float:
        """What a score is multiplied by after some seconds of waiting."""
        return self.factor ** (waited / self.period)


@dataclass(frozen=True, eq=False)
class TIE:
    """Tail Inflated Expectation: ``E[X] + beta CVaR_alpha[X]`` (Eq. 11), beta by the queue when a request joins it.

    Parameters
    ----------
    law, cap
        As in `SEPT`.
    alpha
        Level of the tail: 0.9 means the worst tenth.
    beta_low, beta_high, slope
        As `beta` takes them.
    decay : Decay or None
        Discount for waiting.
    refresh_every : float or None
        Seconds between two rescorings of the whole queue with the beta of that moment; None keeps the beta that a
        request met, as the official code does.
    mean_cap : float or None
        Where the mean is censored, if not at `cap`: 2028 beside 2048 in the official code.
    rounded
        Whether scores are rounded to integers of at least 1, as in the official code.

    Raises
    ------
    InputError
        If alpha is not between 0 and 1, the betas are negative or out of order, or both intervals differ.
    """

    law: Any
    cap: float | None
    _: KW_ONLY
    alpha: float = 0.9
    beta_low: float = 0.1
    beta_high: float = 0.5
    slope: float = 0.1
    decay: Decay | None = None
    refresh_every: float | None = None
    mean_cap: float | None = None
    rounded: bool = False
    _parts: tuple[list[float], list[float]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_number("alpha", self.alpha, 0.0, 1.0, "such as 0.9 for the worst tenth")
        rule = self.beta_low, self.beta_high, self.slope
        if not all(map(is_number, rule)) or not 0 <= self.beta_low <= self.beta_high or self.slope < 0:
            betas = f"beta_low={self.beta_low!r}, beta_high={self.beta_high!r}, slope={self.slope!r}"
            raise InputError(f"{betas} do not make a rule: use 0 <= beta_low <= beta_high and slope >= 0")
        if not isinstance(self.decay, Decay | None):
            raise InputError(f"decay={self.decay!r} must be a Decay, such as Decay(factor=0.9), or None")
        if self.refresh_every is not None:
            _check_number("refresh_every", self.refresh_every, 0.0, math.inf, "in seconds, or None")
            if self.decay is not None and self.decay.every != self.refresh_every:
                raise InputError(
                    f"refresh_every={self.refresh_every!r} and decay.every={self.decay.every!r} differ; a queue is "
                    "rebuilt at one interval: give both the same"
                )
        mean = of_law(self.law, "mean", self.cap if self.mean_cap is None else self.mean_cap)
        tail = of_law(self.law, "cvar", self.alpha, self.cap)
        object.__setattr__(self, "_parts", (as_scores("mean of law", mean), as_scores("tail of law", tail)))

    @property
    def rebuild_every(self) -> float | None:
        """Seconds between two rebuilds of the queue; None if it needs none."""
        return self.refresh_every or (self.decay.every if self.decay else None)

    @property
    def refresh(self) -> bool:
        """Whether a rebuild scores every waiting request anew."""
        return self.refresh_every is not None

    def score(self, request: "Request", queue: "QueueState") -> float:
        """Place of a request in the queue, lowest first: Eq. 11 with the beta of this queue, without discount."""
        weight = beta(queue.waiting, queue.batch, low=self.beta_low, high=self.beta_high, slope=self.slope)
        mean, tail = self._parts
        try:
            score = mean[request.index] + weight * tail[request.index]
        except IndexError:
            raise too_few(request.index, len(mean)) from None
        return max(1, round(score)) if self.rounded else score

    @property
    def aged(self) -> Callable[[float, float], float]:
        """Score after some seconds of waiting, ``aged(score, waited)``."""
        if self.decay is None:
            return lambda score, waited: score
        return lambda score, waited: score * self.decay.weight(waited)


def _check_number(name: str, value: float, low: float, high: float, hint: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low < value < high:
        raise InputError(f"{name}={value!r} must be a number above {low:g} and below {high:g}, {hint}")
