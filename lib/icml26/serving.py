"""Discrete-event simulation of a language-model server with continuous batching and a scored waiting queue.

The engine decodes one token for each of up to ``batch`` running requests per iteration (Orca, Yu et al., OSDI 2022)
and keeps keys and values in a limited memory (vLLM, Kwon et al., arXiv 2309.06180). Between two iterations

1. what the last one finished leaves;
2. if the KV memory cannot hold all running requests in the next one, the most recently admitted lose their place and
   their memory until it can: they wait again with a new score, and nothing is admitted;
3. else the waiting request of the lowest score is admitted, and the next, while fewer than ``batch`` run and the KV
   memory holds the request's tokens so far and one block more. A request that does not fit blocks those behind it.

The iteration that admits a request reads its prompt and yields its first token; one that arrives during an iteration
waits for its end; an idle server waits for the next arrival. Output lengths are used to end requests, never to
schedule. `simulate` computes stretches of iterations in closed form, so its time grows with arrivals, admissions and
finishes, not with tokens. Metrics are `icml26.serving_metrics`' and arrivals `icml26.serving_arrivals`'; policies are
the papers'.
"""

import math
import sys
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from icml26.errors import InputError
from icml26.serving_metrics import Summary, finished_by, in_system, summary, time_at
from icml26.serving_types import Policy, QueueState, Request, Server, Trace, Workload, capacity, check_run

__all__ = [
    "Policy",
    "QueueState",
    "Request",
    "Server",
    "Summary",
    "Trace",
    "Workload",
    "capacity",
    "finished_by",
    "in_system",
    "simulate",
    "summary",
    "time_at",
]


def simulate(workload: Workload, server: Server, policy: Policy, *, until: float | None = None) -> Trace:
    """Serve a workload under a policy.

    Parameters
    ----------
    workload : Workload
        The requests.
    server : Server
        The engine's cost and limits.
    policy : Policy
        Scores requests as they enter the waiting queue; lower first.
    until : float, optional
        Seconds at which to stop; by default when all requests have finished.

    Returns
    -------
    Trace
        Of iterations that ended until then.

    Raises
    ------
    InputError
        If a request cannot fit the KV memory even alone, `policy` is no policy or gives a score that is no number, or
        `until` is no positive number.

    Examples
    --------
    >>> class FirstCome:
    ...     def score(self, request, queue_state):
    ...         return request.arrival
    >>> server = Server(batch=1, base=1.0, per_request=0.0, per_cached_token=0.0, per_prompt_token=0.0)
    >>> simulate(Workload(arrival=[0.0, 0.5], prompt=[9, 9], output=[3, 2]), server, FirstCome()).finish
    array([3., 5.])
    """
    check_run(workload, server, policy, until)
    stop = sys.float_info.max if until is None else until
    batch = _Batch(workload, server)
    queue = _Queue(workload, batch, policy)
    first_token, finish = [math.nan] * len(workload), [math.nan] * len(workload)
    clock, kv_peak = 0.0, 0
    while batch.running or queue.heap or queue.next_arrival <= stop:
        if not batch.running and not queue.heap:
            clock = queue.next_arrival
            queue.advance(clock)
        short = batch.cached > batch.limit
        while batch.cached > batch.limit:
            queue.enter(batch.preempt(), clock)
        new, read = [], 0
        while not short and queue.heap and batch.has_room(queue.heap[0][2]):
            new.append(heappop(queue.heap)[2])
            read += batch.admit(new[-1], clock)

        # Iterations are alike until a request finishes, the KV memory runs out, or a waiting one may find room.
        stretch = _Stretch.of(server, clock, batch, read)
        count = 1 if short else batch.iterations_left()
        if len(batch.running) < server.batch:
            count = stretch.reach(min(queue.next_arrival, queue.next_rebuild if queue.heap else math.inf), count)
        end = stretch.end(count)
        if end > stop:
            count = stretch.reach(stop, count)
            count -= stretch.end(count) > stop
            end = stretch.end(count)
            if not count:
                break
        for index in new:
            if math.isnan(first_token[index]):
                first_token[index] = stretch.end(1)
        kv_peak = max(kv_peak, batch.cached + (count - 1) * len(batch.running))
        clock = end
        queue.advance(clock)
        for index in batch.decode(count):
            finish[index] = clock

    done = not np.isnan(finish).any()
    return Trace(
        admitted=np.array(batch.admitted),
        first_token=np.array(first_token),
        finish=np.array(finish),
        generated=np.array(batch.progress()),
        preemptions=np.array(batch.preemptions),
        clock_end=clock if done else float(stop),
        iterations=batch.iteration,
        kv_peak=kv_peak,
    )


class _Batch:
    """The running requests, by the iteration in which each will have finished, and their KV memory."""

    def __init__(self, workload: Workload, server: Server) -> None:
        self.prompt, self.output = workload.prompt.tolist(), workload.output.tolist()
        self.size, self.block = server.batch, server.block
        self.limit = math.inf if server.kv_tokens is None else server.kv_tokens
        self.iteration = 0
        self.running: dict[int, int] = {}  # request -> its last iteration, in the order of admission
        self.ends: list[tuple[int, int]] = []  # the same as a heap, where preempted requests leave stale entries
        self.cached = 0  # tokens that the next iteration will hold: prompts, and all generated before it
        self.generated = [0] * len(workload)  # of requests that do not run
        self.preemptions = [0] * len(workload)
        self.admitted = [math.nan] * len(workload)

    def has_room(self, index: int) -> bool:
        if len(self.running) == self.size:
            return False
        return self.cached + self.prompt[index] + self.generated[index] + self.block <= self.limit

    def admit(self, index: int, clock: float) -> int:
        end = self.iteration + self.output[index] - self.generated[index]
        tokens = self.prompt[index] + self.generated[index]
        self.running[index] = end
        heappush(self.ends, (end, index))
        self.cached += tokens
        if math.isnan(self.admitted[index]):
            self.admitted[index] = clock
        return tokens

    def preempt(self) -> int:
        index, end = self.running.popitem()
        self.generated[index] = self.output[index] - (end - self.iteration)
        self.preemptions[index] += 1
        self.cached -= self.prompt[index] + self.generated[index]
        return index

    def iterations_left(self) -> int:
        """Iterations until a request finishes or the KV memory runs out."""
        while self.running.get(self.ends[0][1]) != self.ends[0][0]:
            heappop(self.ends)
        left = self.ends[0][0] - self.iteration
        return left if self.limit == math.inf else min(left, (self.limit - self.cached) // len(self.running) + 1)

    def decode(self, count: int) -> list[int]:
        """Run some iterations; return the requests that finished in the last."""
        self.iteration += count
        self.cached += count * len(self.running)
        finished = []
        while self.ends and self.ends[0][0] <= self.iteration:
            end, index = heappop(self.ends)
            if self.running.get(index) == end:
                del self.running[index]
                self.generated[index] = self.output[index]
                self.cached -= self.prompt[index] + self.output[index]
                finished.append(index)
        return finished

    def progress(self) -> list[int]:
        now = {index: self.output[index] - (end - self.iteration) for index, end in self.running.items()}
        return [now.get(index, tokens) for index, tokens in enumerate(self.generated)]


class _Queue:
    """Arrivals and the waiting queue: entries (score in force, arrival, request, score at its entry)."""

    def __init__(self, workload: Workload, batch: _Batch, policy: Policy) -> None:
        self.batch, self.policy = batch, policy
        self.arrival = workload.arrival.tolist()
        self.pending = len(self.arrival)  # counts down; arrivals are taken from the front
        self.every = getattr(policy, "rebuild_every", None)
        self.aged, self.refresh = getattr(policy, "aged", None), getattr(policy, "refresh", False)
        self.rebuilds = 0
        self.heap: list[tuple[float, float, int, float]] = []

    @property
    def next_arrival(self) -> float:
        return self.arrival[-self.pending] if self.pending else math.inf

    @property
    def next_rebuild(self) -> float:
        return math.inf if self.every is None else (self.rebuilds + 1) * self.every

    def enter(self, index: int, clock: float) -> None:
        score = self._score(index, self._state(clock, len(self.heap) + 1))
        heappush(self.heap, (score, self.arrival[index], index, score))

    def advance(self, clock: float) -> None:
        """Let requests arrive until the clock. Of several rebuilds since the last call only the last one matters."""
        if self.next_rebuild <= clock:
            self.rebuilds = int(clock / self.every)  # off by one where the division rounds
            self.rebuilds += (self.rebuilds + 1) * self.every <= clock
            self.rebuilds -= self.rebuilds * self.every > clock
            self._arrive(self.rebuilds * self.every)
            self._rebuild(self.rebuilds * self.every)
        self._arrive(clock)

    def _arrive(self, clock: float) -> None:
        while self.pending and self.arrival[-self.pending] <= clock:
            index = len(self.arrival) - self.pending
            self.pending -= 1
            self.enter(index, self.arrival[index])

    def _rebuild(self, clock: float) -> None:
        state = self._state(clock, len(self.heap))
        heap = []
        for _, arrival, index, score in self.heap:
            if self.refresh:
                score = self._score(index, state)
            now = score if self.aged is None else self._number(index, self.aged(score, clock - arrival))
            heap.append((now, arrival, index, score))
        heapify(heap)
        self.heap = heap

    def _state(self, clock: float, waiting: int) -> QueueState:
        return QueueState(clock, waiting, len(self.batch.running), self.batch.size)

    def _score(self, index: int, state: QueueState) -> float:
        batch = self.batch
        request = Request(
            index, self.arrival[index], batch.prompt[index], batch.generated[index], batch.preemptions[index]
        )
        return self._number(index, self.policy.score(request, state))

    def _number(self, index: int, score: float) -> float:
        if type(score) is float and score == score:
            return score
        try:
            number = float(score)  # NumPy's and PyTorch's scalars are slow to compare
        except (TypeError, ValueError):
            number = math.nan
        if math.isnan(number):
            raise InputError(
                f"policy {type(self.policy).__name__} gives request {index} the score {score!r}; return a number"
            )
        return number


class _Stretch(NamedTuple):
    """Ends of consecutive iterations with the same running requests: each caches one token more per request."""

    start: float
    first: float
    growth: float

    @classmethod
    def of(cls, server: Server, clock: float, batch: _Batch, read: int) -> "_Stretch":
        running = len(batch.running)
        first = server.base + server.per_request * running + server.per_cached_token * batch.cached
        return cls(clock + server.per_prompt_token * read, first, server.per_cached_token * running)

    def end(self, count: int) -> float:
        return self.start + count * self.first + self.growth * (count * (count - 1) / 2)

    def reach(self, target: float, most: int) -> int:
        """Fewest iterations, at least 1, that end at the target or after it, or `most` if these do not."""
        if self.end(most) <= target:
            return most
        # The root of the quadratic end(count) = target; rounding is put right by trying.
        gap, half = max(0.0, target - self.start), self.first - self.growth / 2
        count = max(1, math.ceil(2 * gap / (half + math.sqrt(half * half + 2 * gap * self.growth))))
        while self.end(count) < target:
            count += 1
        while count > 1 and self.end(count - 1) >= target:
            count -= 1
        return count
