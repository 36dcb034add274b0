"""The simulator against queueing theory: waits in M/G/1, Little's law, what no schedule can change, what is optimal."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from icml26.serving import Server, Workload, capacity, in_system, simulate, summary
from icml26.serving_arrivals import at_once, gamma, poisson

SECOND = 0.25  # per token of a lone request: service times are multiples of it
ONE = Server(batch=1, base=SECOND, per_request=0.0, per_cached_token=0.0, per_prompt_token=0.0, kv_tokens=None)


class Scores:
    def __init__(self, values):
        self.values = np.asarray(values, dtype=float).tolist()

    def score(self, request, queue_state):
        return self.values[request.index]


def assert_mean(samples, expected, width, level=0.99):
    """The t-interval over seeds holds the expected value, and is narrow enough to say something."""
    samples = np.asarray(samples)
    half = t.ppf((1 + level) / 2, samples.size - 1) * samples.std(ddof=1) / samples.size**0.5
    assert abs(samples.mean() - expected) <= half, (samples.mean(), expected, half)
    assert half <= width * expected, (half, expected)


def lengths(rng, n):
    """Skewed lengths, the mean of the service time in seconds, and of its square."""
    return 4 * rng.choice([1, 1, 1, 1, 3], n), 1.4, 2.6


def test_the_wait_of_first_come_first_served_is_that_of_pollaczek_and_khinchine():
    rate, waits = 0.5, []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        output, mean, square = lengths(rng, 4000)
        workload = Workload(poisson(rate, 4000, rng), np.ones(4000, int), output)
        waits.append(np.mean(simulate(workload, ONE, Scores(workload.arrival)).admitted - workload.arrival))
    load = rate * mean
    assert load == pytest.approx(0.7)
    assert_mean(waits, rate * square / (2 * (1 - load)), width=0.06)


def test_the_waits_of_two_priority_classes_are_those_of_cobham():
    rate, first, second = 0.55, [], []
    for seed in range(30):
        rng = np.random.default_rng(100 + seed)
        output, mean, square = lengths(rng, 4000)
        short = output == 4
        workload = Workload(poisson(rate, 4000, rng), np.ones(4000, int), output)
        wait = simulate(workload, ONE, Scores(~short)).admitted - workload.arrival
        first.append(wait[short].mean())
        second.append(wait[~short].mean())
    load, load_short = rate * mean, rate * 0.8 * 1.0
    residual = rate * square / 2
    assert_mean(first, residual / (1 - load_short), width=0.03)
    assert_mean(second, residual / ((1 - load_short) * (1 - load)), width=0.12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_tokens_and_time_are_conserved_and_littles_law_holds_under_any_policy(seed):
    rng = np.random.default_rng(seed)
    n = 80
    workload = Workload(gamma(20.0, 2.0, n, rng), rng.integers(1, 60, n), rng.integers(1, 100, n))
    server = Server(batch=5, kv_tokens=int(rng.choice([200, 400, 4000])))
    found = simulate(workload, server, Scores(rng.normal(size=n)))
    assert (found.generated == workload.output).all()
    assert found.kv_peak <= server.kv_tokens
    # Each iteration gives every running request a token, from one request up to a full batch.
    assert workload.output.sum() / server.batch <= found.iterations <= workload.output.sum()
    assert (workload.arrival <= found.admitted).all()
    assert (found.admitted < found.first_token).all()
    assert (found.first_token <= found.finish).all()
    # A request needs at least its iterations.
    assert (found.finish - found.admitted >= workload.output * (server.base + server.per_request) - 1e-9).all()
    # Little: the area under the number in the system is the sum of the latencies.
    times = np.sort(np.concatenate([workload.arrival, found.finish]))
    area = (in_system(found, workload, times[:-1]) * np.diff(times)).sum()
    assert area == pytest.approx((found.finish - workload.arrival).sum(), rel=1e-9)


def test_what_a_busy_server_costs_in_all_does_not_depend_on_the_order():
    # With one request at a time and no idleness the makespan is the work: the three costs, summed by hand.
    rng = np.random.default_rng(0)
    workload = Workload(at_once(40), rng.integers(1, 60, 40), rng.integers(1, 100, 40))
    server = Server(batch=1, kv_tokens=200)
    work = sum(
        length * (server.base + server.per_request)
        + server.per_cached_token * sum(prompt + k for k in range(length))
        + server.per_prompt_token * prompt
        for prompt, length in zip(workload.prompt.tolist(), workload.output.tolist(), strict=True)
    )
    for _ in range(5):
        found = simulate(workload, server, Scores(rng.normal(size=40)))
        assert found.clock_end == pytest.approx(work, rel=1e-12)
        assert len(workload) / capacity(workload, server) == pytest.approx(work, rel=1e-12)
        assert found.iterations == workload.output.sum()


def test_no_policy_matters_where_there_is_room_for_all_and_company_costs_nothing():
    rng = np.random.default_rng(1)
    workload = Workload(poisson(5.0, 200, 1), rng.integers(1, 60, 200), rng.integers(1, 100, 200))
    server = Server(batch=200, per_request=0.0, per_cached_token=0.0, per_prompt_token=0.0, kv_tokens=None)
    found = [simulate(workload, server, Scores(values)) for values in (workload.arrival, rng.normal(size=200))]
    np.testing.assert_array_equal(found[0].finish, found[1].finish)
    # Nobody waits for more than the end of an iteration, and each then has its own iterations.
    assert (found[0].admitted - workload.arrival < server.base).all()
    np.testing.assert_allclose(found[0].finish - found[0].admitted, workload.output * server.base, rtol=1e-9)


def test_no_order_of_a_batch_of_jobs_has_a_lower_mean_latency_than_the_shortest_first():
    rng = np.random.default_rng(2)
    output = rng.integers(1, 30, 5)
    workload = Workload(at_once(5), np.ones(5, int), output)
    mean = {
        order: summary(simulate(workload, ONE, Scores(order)), workload).mean_latency
        for order in permutations(range(5))
    }
    assert min(mean.values()) == pytest.approx(np.cumsum(np.sort(output)).mean() * SECOND)
    assert summary(simulate(workload, ONE, Scores(output)), workload).mean_latency == min(mean.values())


def test_no_schedule_beats_the_capacity_and_a_long_backlog_comes_close():
    rng = np.random.default_rng(3)
    workload = Workload(at_once(2000), rng.integers(1, 60, 2000), rng.geometric(0.02, 2000))
    found = simulate(workload, Server(kv_tokens=None), Scores(-workload.output))  # the longest first: a short tail
    least = len(workload) / capacity(workload, Server())
    assert least <= found.clock_end <= 1.02 * least
