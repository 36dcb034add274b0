"""Where the fit of a noisy quadratic system (Li and Maddison, arXiv 2605.09154) starts, and when its search stops.

The search itself is `icml26.nqs.fitting`'s.
"""

from dataclasses import dataclass

import numpy as np

from icml26.checks import whole
from icml26.errors import InputError
from icml26.nqs.checks import numeric
from icml26.nqs.theta import STEP

__all__ = ["Search"]


@dataclass(frozen=True)
class Search:
    """Where starts are drawn from and how long to search.

    Parameters
    ----------
    p, q, Q, r
        Uniform ranges of the starts: the official package's, Q cut where direction 1 diverges. They do not bound the
        fit.
    round
        Starts drawn and ranked at a time (Latin hypercube).
    slices
        The range of q is cut into so many; after each round the best start of each is polished, because the best of
        all may share one poor optimum.
    agree
        Stop after a round when so many polished starts have come within a thousandth of the least objective.
    delta
        Where the Huber loss turns from square to linear, in ln loss.
    evaluations
        Of the law at most, in polishing one start.

    Raises
    ------
    InputError
        If a range is reversed or leaves the parameter's own, or a number is not positive.

    Examples
    --------
    >>> Search(q=(2.5, 0.6))
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: q=(2.5, 0.6) must be two rising numbers, above 0 and at most 20
    """

    p: tuple[float, float] = (1.05, 2.5)
    q: tuple[float, float] = (0.6, 2.5)
    Q: tuple[float, float] = (0.05, 1.0)
    r: tuple[float, float] = (0.6, 2.5)
    round: int = 200
    slices: int = 5
    agree: int = 5
    delta: float = 1e-3
    evaluations: int = 300

    def __post_init__(self) -> None:
        # The law's own bounds where it has some; 20 is far beyond what a fit may reach.
        ranges = {"p": (1, 20), "q": (0, 20), "Q": (0, np.floor(2e4 / STEP) / 1e4), "r": (-20, 20)}
        for name, (least, most) in ranges.items():
            expected = f"two rising numbers, above {least} and at most {most}"
            ends = numeric(name, getattr(self, name), expected, ndim=1)
            if ends.size != 2 or not least < ends[0] <= ends[1] <= most:
                raise InputError(f"{name}={getattr(self, name)!r} must be {expected}")
        for name in ("round", "slices", "agree", "evaluations"):
            whole(name, getattr(self, name), 1)
        expected = "a number from 1e-12 to 1e12, such as 1e-3"  # beyond, its squares leave floating point
        if not 1e-12 <= numeric("delta", self.delta, expected, ndim=0) <= 1e12:
            raise InputError(f"delta={self.delta!r} must be {expected}")
