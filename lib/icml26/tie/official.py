"""TIE as the published code computes it, beside the equations: scores from random draws, two caps, whole numbers.

The code of TIE (Zheng et al., arXiv 2604.00499, github.com/Hyzheng-code/TIE) estimates the mean and the tail of each
request's log-t law from 10,000 unseeded draws each, censors the mean at 2028 tokens and the tail at 2048, averages
what strictly exceeds NumPy's percentile (or takes the percentile where nothing does), and rounds the score to an
integer of at least 1. Here the same with a seed, to see what the differences cost; `icml26.tie.laws` is exact.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from icml26.checks import whole
from icml26.errors import InputError
from icml26.tie.checks import checked_cap, checked_share
from icml26.tie.laws import LogTLaw
from icml26.tie.policies import TIE, Decay

__all__ = ["MonteCarloLaw", "official_tie"]

# Draws held at a time: 16 MB in float64.
_WORKSPACE = 1 << 21


@dataclass(frozen=True, eq=False)
class MonteCarloLaw:
    """A log-t law whose capped mean and tail are estimated from draws, as in the official code.

    Parameters
    ----------
    law : LogTLaw
        The exact law.
    seed : int
        Of the draws; every estimate has its own.
    draws : int
        Draws of each request and estimate.

    Raises
    ------
    InputError
        If the law is no `LogTLaw`, the seed is negative, or draws is not a positive integer.

    Examples
    --------
    >>> law = LogTLaw(np.array([5.0]), np.array([0.4]))
    >>> estimate = MonteCarloLaw(law, seed=0).cvar(0.9, 2048)
    >>> bool(abs(estimate / law.cvar(0.9, 2048) - 1) < 0.06)
    True
    """

    law: LogTLaw
    seed: int
    draws: int = 10_000

    def __post_init__(self) -> None:
        if not isinstance(self.law, LogTLaw):
            raise InputError(f"law is of type {type(self.law).__name__}; give a LogTLaw, the official code's law")
        whole("seed", self.seed, 0)
        whole("draws", self.draws, 1)

    def __len__(self) -> int:
        return len(self.law)

    def mean(self, cap: float) -> Float64[np.ndarray, " requests"]:
        """Average of the capped draws, tokens."""
        return self._estimate(0, cap, lambda lengths: lengths.mean(axis=1))

    def cvar(self, alpha: float, cap: float) -> Float64[np.ndarray, " requests"]:
        """Average of the capped draws above their percentile, or the percentile where none is, tokens."""

        def tail(lengths: np.ndarray) -> np.ndarray:
            threshold = np.percentile(lengths, 100 * checked_share("alpha", alpha), axis=1)
            above = lengths > threshold[:, None]
            count = above.sum(axis=1)
            return np.where(count, (lengths * above).sum(axis=1) / np.maximum(count, 1), threshold)

        return self._estimate(1, cap, tail)

    def _estimate(self, stream: int, cap: float, statistic) -> np.ndarray:
        generator = np.random.default_rng([self.seed, stream])
        log_cap = np.log(checked_cap(cap))
        step = max(1, _WORKSPACE // self.draws)
        parts = []
        for start in range(0, len(self), step):
            law = self.law[start : start + step]
            logs = law.mu[:, None] + law.sigma[:, None] * generator.standard_t(law.nu[:, None], (len(law), self.draws))
            parts.append(statistic(np.exp(np.minimum(logs, log_cap))))
        return np.concatenate(parts)


def official_tie(law: LogTLaw, *, seed: int, draws: int = 10_000, decay: Decay | None = None) -> TIE:
    """TIE with the quirks of the official code, for requests of at most 2048 tokens.

    Parameters
    ----------
    law : LogTLaw
        Laws of the requests' lengths.
    seed, draws
        As in `MonteCarloLaw`.
    decay : Decay or None
        Discount for waiting; the code has ``Decay()``.

    Returns
    -------
    TIE
        Mean capped at 2028, tail at 2048, both estimated; whole scores.

    Examples
    --------
    >>> policy = official_tie(LogTLaw(np.array([5.0]), np.array([0.4])), seed=0, decay=Decay())
    >>> policy.mean_cap, policy.rounded, policy.rebuild_every
    (2028, True, 5.0)
    """
    return TIE(MonteCarloLaw(law, seed, draws), 2048, mean_cap=2028, rounded=True, decay=decay)
