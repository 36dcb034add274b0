"""Serving simulated: iterations one at a time beside stretches of them at once, in simulated requests per second.

One at a time, a request costs its tokens (197 here); at once, it costs an arrival, an admission and a finish, each
a call or two and a step in a heap. A rebuild of the queue costs a pass over all that wait, and a call of the policy for
each where scores are made anew; the loop does no rebuilds. Lengths are log-normal, arrivals far above the server's
capacity, as in a backlog.
"""

from heapq import heappop, heappush

import numpy as np
import pytest

from icml26.serving import Server, Workload, simulate
from icml26.serving_arrivals import poisson

SERVER = Server(batch=32, kv_tokens=None)
FEW = "Serving simulated, a backlog of 100 requests, 32 at a time"
MANY = "Serving simulated, a backlog of 2,000 requests, 32 at a time"


def backlog(n):
    rng = np.random.default_rng(1)
    output = np.clip(rng.lognormal(4.6, 1.2, 2000), 1, 2048).astype(int)[:n]
    return Workload(poisson(100.0, n, 0), rng.integers(10, 400, 2000)[:n], output)


class Predicted:
    """Scores known beforehand: the cheapest policy."""

    def __init__(self, workload):
        self.scores = (workload.output * np.random.default_rng(2).lognormal(0, 0.5, len(workload))).tolist()

    def score(self, request, queue_state):
        return self.scores[request.index]


class Decaying(Predicted):
    rebuild_every = 5.0

    def aged(self, score, waited):
        return score * 0.9 ** (waited / 30)


class Refreshed(Decaying):
    refresh = True

    def score(self, request, queue_state):
        return self.scores[request.index] * min(0.5, max(0.1, 0.1 * queue_state.waiting / queue_state.batch))


def loop(workload, server, scores):
    """The plain Python that a reader would write: every iteration, every running request."""
    arrival, prompt, remaining = workload.arrival.tolist(), workload.prompt.tolist(), workload.output.tolist()
    waiting, running, finish, clock, arrived = [], [], [0.0] * len(arrival), 0.0, 0
    while arrived < len(arrival) or waiting or running:
        if not waiting and not running:
            clock = arrival[arrived]
        while arrived < len(arrival) and arrival[arrived] <= clock:
            heappush(waiting, (scores[arrived], arrived))
            arrived += 1
        read = 0
        while waiting and len(running) < server.batch:
            i = heappop(waiting)[1]
            running.append([i, prompt[i], remaining[i]])
            read += prompt[i]
        cached = sum(request[1] for request in running)
        clock += server.base + server.per_request * len(running)
        clock += server.per_cached_token * cached + server.per_prompt_token * read
        for request in running:
            request[1] += 1
            request[2] -= 1
            if not request[2]:
                finish[request[0]] = clock
        running = [request for request in running if request[2]]
    return finish


@pytest.fixture(scope="module")
def few():
    return backlog(100)


@pytest.fixture(scope="module")
def many():
    return backlog(2000)


def test_loop_few(measure, few):
    scores = Predicted(few).scores
    finish = measure(FEW, "Python loop over iterations", 100, "request", loop, few, SERVER, scores, baseline=True)
    np.testing.assert_allclose(finish, simulate(few, SERVER, Predicted(few)).finish, rtol=1e-9)


def test_ours_few(measure, few):
    found = measure(FEW, "`serving.simulate`", 100, "request", simulate, few, SERVER, Predicted(few))
    assert found.generated.sum() == few.output.sum()


def test_loop_many(measure, many):
    scores = Predicted(many).scores
    finish = measure(MANY, "Python loop over iterations", 2000, "request", loop, many, SERVER, scores, baseline=True)
    np.testing.assert_allclose(finish, simulate(many, SERVER, Predicted(many)).finish, rtol=1e-9)


@pytest.mark.parametrize(
    ("label", "policy", "kv_tokens"),
    [
        ("`serving.simulate`, scores made at arrival", Predicted, None),
        ("the same, a queue that is aged every 5 s", Decaying, None),
        ("the same, aged and scored anew every 5 s", Refreshed, None),
        ("scores made at arrival, a KV memory so small that requests are preempted", Predicted, 10_000),
    ],
)
def test_ours_many(measure, many, label, policy, kv_tokens):
    server = Server(batch=32, kv_tokens=kv_tokens)
    found = measure(MANY, label, 2000, "request", simulate, many, server, policy(many))
    assert found.generated.sum() == many.output.sum()
    assert found.preemptions.any() == (kv_tokens is not None)
