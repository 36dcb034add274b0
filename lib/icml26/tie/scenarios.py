"""One setting of the simulated comparison: who asks, how fast, what serves them, which policies are compared.

TIE (Zheng et al., arXiv 2604.00499) is measured at 100 requests/s on one GPU, far above what a batch of 32 works off:
a crowd of thousands waits. `Scenario` is such a setting; called with a seed it gives the requests and the policies that
serve them. Who asks is `icml26.tie.populations`' business, lists of settings are in `icml26.tie.regimes`, and
`icml26.tie.serving_study` runs and compares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from icml26 import serving, serving_arrivals
from icml26.checks import whole
from icml26.serving import Policy, Server, Workload
from icml26.tie.policies import FCFS, SEPT, TIE, WSEPT, Decay, FixedBeta, Median, OracleSJF
from icml26.tie.populations import LogTPopulation, Population, Predictor, Requests

__all__ = ["Case", "Scenario", "standard_policies"]

_LEAN = Server(per_cached_token=0.0, per_prompt_token=0.0, kv_tokens=None)
_EXACT = Predictor()


class _Remembered:
    # Several policies ask a law for the same integrals.
    def __init__(self, law: Any) -> None:
        self.law = law

    def __len__(self) -> int:
        return len(self.law)

    def __getitem__(self, indices: Any) -> Any:
        return self.law[indices]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copying looks for before there is a law
            raise AttributeError(name)
        found = getattr(self.law, name)
        if name in ("mean", "cvar", "inverse_mean"):
            found = self.__dict__[name] = cache(found)
        return found


class Case(NamedTuple):
    """One seed's workload and the policies that serve it.

    Attributes
    ----------
    workload : Workload
        Shared by all policies.
    policies : mapping of str to Policy
        By the names that tables show.
    """

    workload: Workload
    policies: Mapping[str, Policy]


def standard_policies(law: Any, output: np.ndarray, cap: int) -> dict[str, Policy]:
    """The policies of the paper's tables, and those that theory names.

    Parameters
    ----------
    law
        What the scheduler believes of each request.
    output : ndarray of int, shape (requests,)
        True lengths, for the oracle alone.
    cap
        Most output tokens.

    Returns
    -------
    dict of str to Policy
        ``fcfs``, ``median``, ``sept``, ``wsept``, ``beta_0.1``, ``beta_0.3``, ``tie`` (beta as met at arrival, like the
        official code), ``tie_refreshed`` (every 5 s), ``tie_decay`` (5 s), ``oracle``.

    Examples
    --------
    >>> drawn = LogTPopulation().draw(3, np.random.default_rng(0))
    >>> len(standard_policies(drawn.law, drawn.output, 2048))
    10
    """
    return {
        "fcfs": FCFS(),
        "median": Median(law),
        "sept": SEPT(law, cap),
        "wsept": WSEPT(law, cap),
        "beta_0.1": FixedBeta(law, cap, 0.1),
        "beta_0.3": FixedBeta(law, cap, 0.3),
        "tie": TIE(law, cap),
        "tie_refreshed": TIE(law, cap, refresh_every=5.0),
        "tie_decay": TIE(law, cap, decay=Decay()),
        "oracle": OracleSJF(output),
    }


@dataclass(frozen=True)
class Scenario:
    """One setting of the simulated comparison; called with a seed it gives that seed's `Case`.

    Parameters
    ----------
    population : Population
        Who asks.
    requests : int
        How many.
    rate : float or None
        Arrivals per second; None for all at once, as in offline generation.
    burst : float
        Coefficient of variation of the times between arrivals; 1 for a Poisson stream.
    server : Server
        The engine. By default 12 ms an iteration and 0.3 ms a running request, with no cost of context and no limit of
        memory: 32 slots, as in the paper.
    predictor : Predictor
        How the scheduler's laws differ from the population's.
    policies : callable
        ``policies(law, output, cap)`` gives the policies by name.

    Raises
    ------
    InputError
        If the number of requests is not a positive integer.

    Examples
    --------
    >>> case = Scenario(requests=50)(seed=1)
    >>> len(case.workload), "tie" in case.policies
    (50, True)
    """

    population: Population = field(default_factory=LogTPopulation)
    requests: int = 2000
    rate: float | None = 100.0
    burst: float = 1.0
    server: Server = _LEAN
    predictor: Predictor = _EXACT
    policies: Callable[[Any, np.ndarray, int], Mapping[str, Policy]] = standard_policies

    def __post_init__(self) -> None:
        whole("requests", self.requests, 1)

    def __call__(self, seed: int) -> Case:
        """A seed's workload and policies; requests, arrivals and predictions have streams of their own."""
        drawn = self.draw(seed)
        law = self.predictor(drawn.law, np.random.default_rng([seed, 1]))
        policies = self.policies(_Remembered(law), drawn.output, self.population.cap)
        return Case(self.workload(seed, drawn), policies)

    def draw(self, seed: int) -> Requests:
        """A seed's requests."""
        whole("seed", seed, 0)
        return self.population.draw(self.requests, np.random.default_rng([seed, 0]))

    def workload(self, seed: int, drawn: Requests) -> Workload:
        """A seed's requests with its arrivals."""
        if self.rate is None:
            arrival = serving_arrivals.at_once(self.requests)
        elif self.burst == 1:
            arrival = serving_arrivals.poisson(self.rate, self.requests, np.random.default_rng([seed, 2]))
        else:
            arrival = serving_arrivals.gamma(self.rate, self.burst, self.requests, np.random.default_rng([seed, 2]))
        return Workload(arrival, drawn.prompt, drawn.output)

    def capacity(self, seed: int = 0, requests: int = 20_000) -> float:
        """Requests per second that a full batch works off, measured on requests of this population.

        Parameters
        ----------
        seed, requests
            Of the draw.

        Returns
        -------
        float
            Load 1.
        """
        drawn = self.population.draw(requests, np.random.default_rng(seed))
        return serving.capacity(Workload(np.zeros(requests), drawn.prompt, drawn.output), self.server)
