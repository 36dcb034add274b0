"""Requests of recorded files: when they came, how long their answers were, and what a real predictor said.

Arrivals and prompts are those of the Azure chat trace of 2023 (Patel et al., Splitwise, ISCA 2024), a random stretch of
it compressed or stretched in time to a given load; lengths are vicuna-13b's with the class of a real BERT (Qiu et al.,
arXiv 2404.08509), one answer a prompt, so that no law can be fitted. Without the files a `RecordedCase` draws
stand-ins: bursty arrivals, given lengths, and classes that are wrong for some.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64

from icml26 import serving, serving_arrivals
from icml26.checks import is_number, whole
from icml26.errors import InputError
from icml26.serving import Server, Workload
from icml26.tie import lengths
from icml26.tie.checks import checked_lengths
from icml26.tie.policies import FCFS, OracleSJF, PointEstimate
from icml26.tie.scenarios import Case

__all__ = ["CLASS_SJF", "RecordedCase"]

CLASS_SJF = "class-based SJF"
TRACE = "azure-conv"


@dataclass(frozen=True, eq=False)
class RecordedCase:
    """A setting with recorded requests; called with a seed it gives that seed's `Case`.

    Parameters
    ----------
    load : float
        Mean rate of arrivals as a multiple of what a full batch works off.
    requests : int
        Length of the stretch.
    server : Server
        The engine.
    stand_in : int array, shape (lengths,), optional
        Lengths to draw from in place of the files.

    Raises
    ------
    InputError
        If the load is not positive, there are fewer than two requests, or the stand-in's lengths are no row of positive
        integers.
    MissingData
        When called without the files on this machine, unless there is a stand-in.
    """

    load: float
    requests: int = 2000
    server: Server = field(default_factory=Server)
    stand_in: Int64[np.ndarray, " lengths"] | None = None

    def __post_init__(self) -> None:
        if not is_number(self.load) or self.load <= 0:
            raise InputError(f"load={self.load!r} must be a positive multiple of the capacity")
        whole("requests", self.requests, 2)
        if not isinstance(self.server, Server):
            raise InputError(f"server is of type {type(self.server).__name__}; give a Server")
        if self.stand_in is not None:
            checked_lengths([self.stand_in], None, name="stand_in")

    def __call__(self, seed: int) -> Case:
        """Take a random stretch of the trace, and a length with its class for each request."""
        generator = np.random.default_rng(whole("seed", seed, 0))
        arrival, prompt, output, predicted = (self._drawn if self.stand_in is not None else self._recorded)(generator)
        capacity = serving.capacity(Workload(np.zeros(self.requests), prompt, output), self.server)
        scale = (self.requests - 1) / (arrival[-1] - arrival[0]) / (self.load * capacity)
        workload = Workload(serving_arrivals.replay(arrival, scale), prompt, output)
        policies = {"fcfs": FCFS(), CLASS_SJF: PointEstimate(predicted.astype(float)), "oracle": OracleSJF(output)}
        return Case(workload, policies)

    def _recorded(self, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
        asked, answered = serving_arrivals.azure_trace(TRACE), lengths.vicuna()
        if self.requests > len(asked.arrival):
            raise InputError(f"requests={self.requests} is more than the {len(asked.arrival)} of the trace; lower it")
        start = int(generator.integers(len(asked.arrival) - self.requests + 1))
        stretch = slice(start, start + self.requests)
        rows = generator.integers(len(answered.length), size=self.requests)
        return asked.arrival[stretch], asked.prompt[stretch], answered.length[rows], answered.predicted[rows]

    def _drawn(self, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
        arrival = serving_arrivals.gamma(1.0, 2.0, self.requests, generator)
        output = generator.choice(self.stand_in, self.requests)
        blurred = output * generator.lognormal(0.0, 0.5, self.requests)
        classes = np.digitize(blurred, np.quantile(self.stand_in, (0.2, 0.4, 0.6, 0.8)))
        return arrival, np.full(self.requests, 100), output, classes
