"""The serving simulator equals its definition, iteration by iteration, and schedules worked out by hand."""

from collections import Counter
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from naive_serving import simulate as naive

from icml26.errors import InputError
from icml26.serving import (
    QueueState,
    Request,
    Server,
    Workload,
    capacity,
    finished_by,
    in_system,
    simulate,
    summary,
    time_at,
)

FREE = Server(batch=1, base=1.0, per_request=0.0, per_cached_token=0.0, per_prompt_token=0.0, kv_tokens=None, block=0)


class FirstCome:
    def score(self, request, queue_state):
        return request.arrival


@dataclass
class Scores:
    """Scores by index, times one plus some weights times what a policy may look at."""

    values: tuple[float, ...]
    waiting: float = 0.0
    running: float = 0.0
    generated: float = 0.0
    clock: float = 0.0
    rebuild_every: float | None = None
    refresh: bool = False

    def score(self, request, queue_state):
        factor = self.waiting * queue_state.waiting + self.running * queue_state.running
        factor += self.generated * (request.generated + request.preemptions) + self.clock * queue_state.clock
        return self.values[request.index] * (1 + factor)


class Aged(Scores):
    def aged(self, score, waited):
        return score * 0.75**waited


def assert_same(found, expected, exact):
    for name in ("generated", "preemptions", "iterations", "kv_peak"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in ("admitted", "first_token", "finish", "clock_end"):
        compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
        compare(getattr(found, name), getattr(expected, name), err_msg=name, **({} if exact else {"rtol": 1e-9}))


def random_run(seed):
    """A small run on a binary grid of times: all sums are exact, so that ties are ties in both simulators."""
    rng = np.random.default_rng(seed)

    def grid(most, per_second, size=None):
        return rng.integers(0, most, size) / per_second

    def one_of(*values):
        return values[rng.integers(len(values))]

    n = rng.integers(1, 20)
    gaps = one_of(grid(1, 1, n), grid(16, 64, n), grid(16, 16, n), grid(2, 1, n) * grid(300, 16, n))
    workload = Workload(gaps.cumsum(), rng.integers(0, one_of(3, 30), n), rng.integers(1, one_of(3, 12, 40), n))
    block = one_of(0, 1, 16)
    needed = int((workload.prompt + workload.output).max()) + block
    server = Server(
        batch=one_of(1, 2, 3, 6),
        base=(1 + grid(8, 1)) / 64,
        per_request=grid(8, 256),
        per_cached_token=one_of(0.0, 1 / 4096, 1 / 1024),
        per_prompt_token=grid(8, 1024),
        kv_tokens=one_of(None, needed, needed, needed + 40),
        block=block,
    )
    every = one_of(None, 0.5, 3 / 16, 2.0)
    policy = one_of(Scores, Aged)(
        tuple(rng.integers(-2, 7, n).tolist()),
        *rng.choice([0.0, 0.25, 1.0], 4).tolist(),
        every,
        every is not None and one_of(False, True),
    )
    return workload, server, policy, one_of(None, None, None, 0.0, 1.0, 2.5)


def test_stretches_computed_at_once_give_the_same_trace_as_one_iteration_at_a_time():
    reached = Counter()

    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=300, phases=[Phase.generate])  # a seed has nothing to shrink
    def check(seed):
        workload, server, policy, until = random_run(seed)
        found = simulate(workload, server, policy, until=until)
        assert_same(found, naive(workload, server, policy, inf if until is None else until), True)
        reached["stopped"] += np.isnan(found.finish).any()
        reached["preempted"] += found.preemptions.any()
        reached["preempted twice"] += (found.preemptions > 1).any()
        reached["idle"] += (in_system(found, workload, workload.arrival[1:]) == 1).any() if until is None else 0
        plain = simulate(workload, server, replace(policy, rebuild_every=None, refresh=False), until=until)
        reached["reordered by a rebuild"] += not np.array_equal(plain.finish, found.finish, equal_nan=True)

    check()
    # The comparison is worth what its runs contain.
    assert len(reached) == 5
    assert min(reached.values()) >= 5, reached


@pytest.mark.parametrize("seed", range(12))
def test_the_traces_agree_for_realistic_costs_under_memory_pressure(seed):
    rng = np.random.default_rng(seed)
    n = 60
    workload = Workload(
        np.cumsum(rng.gamma(0.2, 0.5, n)), rng.integers(1, 80, n), np.minimum(rng.geometric(0.03, n), 150)
    )
    server = Server(batch=6, kv_tokens=[None, 260, 500][seed % 3], per_cached_token=3.3e-6)
    values = tuple(rng.lognormal(4, 1, n).tolist())
    for policy in (Scores(values), Aged(values, 0.1, 0.2, 0.3, 0.1, 0.7), Scores(values, 0.3, 0, 0, 0, 0.31, True)):
        found = simulate(workload, server, policy)
        assert_same(found, naive(workload, server, policy), False)
        assert server.kv_tokens != 260 or found.preemptions.any()


def test_one_server_serves_in_the_order_of_the_scores_and_never_interrupts():
    workload = Workload([0.0, 0.5, 0.75, 2.0], [1, 1, 1, 1], [3, 5, 2, 1])
    found = simulate(workload, FREE, Scores((0.0, 5.0, 2.0, 1.0)))
    assert found.finish.tolist() == [3.0, 11.0, 6.0, 4.0]
    assert found.admitted.tolist() == [0.0, 6.0, 4.0, 3.0]
    assert found.first_token.tolist() == [1.0, 7.0, 5.0, 4.0]
    assert (found.iterations, found.clock_end, found.preemptions.sum()) == (11, 11.0, 0)


def test_an_arrival_during_an_iteration_waits_for_its_end_and_an_idle_server_starts_at_once():
    workload = Workload([0.25, 1.0, 10.5], [1, 1, 1], [4, 1, 2])
    found = simulate(workload, replace(FREE, batch=2), FirstCome())
    assert found.admitted.tolist() == [0.25, 1.25, 10.5]
    assert found.finish.tolist() == [4.25, 2.25, 12.5]


@pytest.mark.parametrize("seed", range(3))
def test_an_arrival_at_the_very_end_of_an_iteration_is_admitted_at_it(seed):
    # In the floating point of the simulator itself: the end is that of a run of so many tokens.
    rng = np.random.default_rng(seed)
    server = Server(batch=2, base=rng.uniform(0, 0.1), per_cached_token=10 ** rng.uniform(-9, -2), kv_tokens=None)
    for count in range(1, 150):
        end = simulate(Workload([0.0], [7], [count]), server, FirstCome()).clock_end
        for arrival, after in ((end, 0), (np.nextafter(end, 0), 0), (np.nextafter(end, inf), 1)):
            found = simulate(Workload([0.0, arrival], [7, 7], [200, 1]), server, FirstCome(), until=2 * end + 1)
            next_end = simulate(Workload([0.0], [7], [count + after]), server, FirstCome()).clock_end
            assert found.admitted[1] == next_end


def test_an_iteration_costs_what_runs_what_is_cached_and_what_is_read():
    server = Server(batch=2, base=1.0, per_request=0.25, per_cached_token=0.125, per_prompt_token=0.5, kv_tokens=None)
    found = simulate(Workload([0.0, 0.0], [4, 8], [1, 3]), server, FirstCome())
    first = 1.0 + 2 * 0.25 + 12 * 0.125 + 12 * 0.5
    second, third = 1.0 + 0.25 + 9 * 0.125, 1.0 + 0.25 + 10 * 0.125
    assert found.finish.tolist() == [first, first + second + third]
    assert found.kv_peak == 12


def test_equal_scores_go_by_arrival_then_index():
    workload = Workload([0.0, 0.5, 1.0, 1.0], [1] * 4, [5, 1, 1, 1])
    assert simulate(workload, FREE, Scores((0.0, 3.0, 3.0, 3.0))).finish.tolist() == [5.0, 6.0, 7.0, 8.0]


@pytest.mark.parametrize(("per_prompt_token", "finish"), [(0.0, [6.0, 9.0]), (1.0, [14.0, 24.0])])
def test_a_full_memory_preempts_the_last_admitted_which_keeps_its_tokens_and_is_read_again(per_prompt_token, finish):
    # Both hold 4 + 4 tokens, then 10, 12; the fourth iteration would hold 14. The first goes on alone.
    server = replace(FREE, batch=2, kv_tokens=12, per_prompt_token=per_prompt_token)
    seen = []

    class Log(FirstCome):
        def score(self, request, queue_state):
            seen.append((request, queue_state))
            return request.index

    found = simulate(Workload([0.0, 0.0], [4, 4], [6, 6]), server, Log())
    assert found.finish.tolist() == finish
    assert found.preemptions.tolist() == [0, 1]
    assert (found.iterations, found.kv_peak) == (9, 12)
    preempted_at = 3.0 + 8 * per_prompt_token
    assert seen[2] == (Request(1, 0.0, 4, 3, 1), QueueState(preempted_at, 1, 1, 2))
    # The first admission and the first token stay what they were.
    assert found.admitted.tolist() == [0.0, 0.0]
    assert found.first_token.tolist() == [1.0 + 8 * per_prompt_token] * 2


def test_a_request_that_does_not_fit_blocks_the_ones_behind_it():
    server = replace(FREE, batch=3, kv_tokens=20)
    workload = Workload([0.0, 0.0, 0.0], [10, 12, 1], [3, 3, 3])
    assert simulate(workload, server, Scores((0.0, 1.0, 2.0))).finish.tolist() == [3.0, 6.0, 6.0]
    assert simulate(workload, server, Scores((0.0, 2.0, 1.0))).finish.tolist() == [3.0, 6.0, 3.0]


def test_an_admission_leaves_a_block_free():
    workload = Workload([0.0, 0.0], [4, 4], [2, 2])
    together, apart = (replace(FREE, batch=2, kv_tokens=12 + block, block=block) for block in (4, 5))
    assert simulate(workload, together, FirstCome()).finish.tolist() == [2.0, 2.0]
    assert simulate(workload, replace(apart, kv_tokens=12), FirstCome()).finish.tolist() == [2.0, 4.0]


def test_a_policy_sees_the_queue_of_the_moment_and_never_the_true_length():
    seen = []

    class Log(FirstCome):
        def score(self, request, queue_state):
            seen.append((request, queue_state))
            return 0.0

    workload = Workload([0.0, 0.5, 1.25, 1.5, 7.0], [3, 1, 4, 1, 5], [2, 2, 1, 1, 1])
    simulate(workload, replace(FREE, batch=2), Log())
    # The batch: request 0 alone until 1, with 1 until 2, then 2 until 3, 3 from 2 on; idle from 3 to 7.
    assert [state for _, state in seen] == [
        QueueState(0.0, 1, 0, 2),
        QueueState(0.5, 1, 1, 2),
        QueueState(1.25, 1, 2, 2),
        QueueState(1.5, 2, 2, 2),
        QueueState(7.0, 1, 0, 2),
    ]
    assert [request for request, _ in seen] == [
        Request(i, workload.arrival[i], workload.prompt[i], 0, 0) for i in range(5)
    ]
    assert not {"output", "length", "remaining"} & set(Request._fields)


def test_a_rebuild_lets_a_waiting_request_overtake():
    class Decay(Scores):
        def aged(self, score, waited):
            return score * 0.5**waited

    # Scores 8 and 1 meet at the end of request 0; the first has waited 4 s when the queue is rebuilt, the other none.
    workload = Workload([0.0, 0.0, 4.5], [1, 1, 1], [5, 1, 1])
    values = (0.0, 8.0, 1.0)
    assert simulate(workload, FREE, Scores(values)).finish.tolist() == [5.0, 7.0, 6.0]
    assert simulate(workload, FREE, Decay(values, rebuild_every=4.0)).finish.tolist() == [5.0, 6.0, 7.0]
    # A rebuild after the choice comes too late, and one in the middle of an iteration holds for its end.
    assert simulate(workload, FREE, Decay(values, rebuild_every=5.5)).finish.tolist() == [5.0, 7.0, 6.0]
    assert simulate(workload, FREE, Decay(values, rebuild_every=4.25)).finish.tolist() == [5.0, 6.0, 7.0]


def test_scores_are_frozen_at_arrival_unless_they_are_refreshed():
    class Frozen:
        def score(self, request, queue_state):
            return queue_state.waiting * (3 if request.index == 1 else 2)

    class Refreshed(Frozen):
        rebuild_every, refresh = 1.0, True

    workload = Workload([0.0, 0.25, 0.5], [1, 1, 1], [2, 1, 1])
    assert simulate(workload, FREE, Frozen()).finish.tolist() == [2.0, 3.0, 4.0]  # 3 * 1 against 2 * 2
    assert simulate(workload, FREE, Refreshed()).finish.tolist() == [2.0, 4.0, 3.0]  # 3 * 2 against 2 * 2


def test_a_rebuild_during_a_wait_for_memory_may_bring_up_a_request_that_fits():
    class Clock:
        def score(self, request, queue_state):
            return 5.0 if request.index == 1 and queue_state.clock > 0 else float(request.index)

    class Refreshed(Clock):
        rebuild_every, refresh = 2.5, True

    server = replace(FREE, batch=3, kv_tokens=20)
    workload = Workload([0.0, 0.0, 0.0], [10, 12, 1], [6, 2, 3])
    assert simulate(workload, server, Clock()).finish.tolist() == [6.0, 8.0, 9.0]
    assert simulate(workload, server, Refreshed()).finish.tolist() == [6.0, 8.0, 6.0]  # admitted at 3


def test_a_stopped_run_is_the_beginning_of_the_whole_run():
    rng = np.random.default_rng(0)
    workload = Workload(np.sort(rng.uniform(0, 2, 50)), rng.integers(1, 50, 50), rng.integers(1, 60, 50))
    whole = simulate(workload, Server(batch=4), FirstCome())
    stopped = simulate(workload, Server(batch=4), FirstCome(), until=3.0)
    for name in ("admitted", "first_token", "finish"):
        until = np.where(getattr(whole, name) <= 3.0, getattr(whole, name), np.nan)
        np.testing.assert_allclose(getattr(stopped, name), until, rtol=1e-12)
    assert stopped.clock_end == 3.0
    np.testing.assert_array_equal(stopped.generated == workload.output, ~np.isnan(stopped.finish))
    assert 0 < finished_by(stopped, 3.0) == finished_by(whole, 3.0) < 50
    with pytest.raises(InputError, match=r"trace has \d+ unfinished requests; simulate without until"):
        summary(stopped, workload)
    with pytest.raises(InputError, match=r"times goes to 4 s, but the run stopped at 3 s; raise until"):
        in_system(stopped, workload, np.array([1.0, 4.0]))


def test_metrics_are_those_of_a_schedule_worked_out_by_hand():
    workload = Workload([0.5, 1.0, 1.0], [1, 1, 1], [4, 1, 2])
    found = simulate(workload, FREE, Scores((0.0, 2.0, 1.0)))
    assert found.finish.tolist() == [4.5, 7.5, 6.5]
    got = summary(found, workload)
    assert got.mean_ptla == pytest.approx((4 / 4 + 6.5 / 1 + 5.5 / 2) / 3)
    assert got.p90_ptla == pytest.approx(2.75 + 0.8 * (6.5 - 2.75))
    assert got.mean_latency == pytest.approx((4 + 6.5 + 5.5) / 3)
    assert got.mean_ttft == pytest.approx((1 + 6.5 + 4.5) / 3)
    assert (got.max_wait, got.makespan, got.preemptions) == (5.5, 7.0, 0)
    assert [time_at(found, k) for k in (1, 2, 3)] == [4.5, 6.5, 7.5]
    assert finished_by(found, [4.4, 4.5, 7.0, 99.0]).tolist() == [0, 1, 2, 3]
    assert in_system(found, workload, [0.0, 0.5, 1.0, 5.0, 7.5]).tolist() == [0, 1, 3, 2, 0]


def test_full_batches_of_equal_requests_finish_at_the_servers_capacity():
    server = Server(batch=4, kv_tokens=None)
    workload = Workload(np.zeros(12), [50] * 12, [30] * 12)
    assert simulate(workload, server, FirstCome()).clock_end == pytest.approx(12 / capacity(workload, server))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival": [1.0, 0.5]}, "arrival must be finite seconds from 0 on in ascending order"),
        ({"arrival": [-1.0, 0.5]}, "arrival must be finite seconds"),
        ({"arrival": [0.0, np.nan]}, "arrival must be finite seconds"),
        ({"arrival": []}, "arrival is empty; give at least one request"),
        ({"arrival": [[0.0, 1.0]]}, r"arrival has shape \(1, 2\)"),
        ({"arrival": ["a", "b"]}, "arrival has shape"),
        ({"arrival": [0.0, [1.0]]}, "arrival is no array"),
        ({"output": [1, [2]]}, "output is no array"),
        ({"output": np.array([1, 2**63], np.uint64)}, r"output\[1\]=9223372036854775808 must be at most"),
        ({"prompt": [1, 2, 3]}, "prompt has 3 entries; give one for each of the 2 arrivals"),
        ({"prompt": [1, -2]}, r"prompt\[1\]=-2 must be at least 0 tokens"),
        ({"output": [0, 2]}, r"output\[0\]=0 must be at least 1 token$"),
        ({"output": [1.5, 2.0]}, "output has shape .* and type float64; give one whole number"),
        ({"output": [True, True]}, "output has shape .* and type bool"),
    ],
)
def test_a_wrong_workload_is_refused_in_one_line(change, message):
    with pytest.raises(InputError, match=message) as error:
        Workload(**{"arrival": [0.0, 1.0], "prompt": [1, 1], "output": [1, 1], **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch=0 must be an integer of at least 1"),
        ({"batch": True}, "batch=True must be an integer"),
        ({"batch": 2.0}, "batch=2.0 must be an integer"),
        ({"kv_tokens": 0}, "kv_tokens=0 must be an integer"),
        ({"block": None}, "block=None must be an integer"),
        ({"per_request": -1e-3}, "per_request=-0.001 must be a finite number of seconds"),
        ({"base": float("nan")}, "base=nan must be a finite number"),
        ({"base": 1e308}, r"base=1e\+308 must be a finite number of seconds, 0 or more and at most 1e\+09"),
        ({"base": 10**400}, "base=10+ must be a finite number"),
        ({"block": 2**63}, "block=9223372036854775808 must be an integer of at least 0 and at most"),
        ({"per_prompt_token": "1"}, "per_prompt_token='1' must be a finite number"),
        ({"base": 0.0, "per_request": 0.0}, "an iteration must take time"),
    ],
)
def test_a_wrong_server_is_refused_in_one_line(change, message):
    with pytest.raises(InputError, match=message):
        Server(**change)


def policy_with(**attributes):
    return type("Made", (FirstCome,), attributes)()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": object()}, "has no method score"),
        ({"policy": FirstCome}, r"policy FirstCome is a class; give an instance, FirstCome\(...\)"),
        ({"policy": policy_with(rebuild_every=0.0)}, "rebuild_every=0.0 of the policy must be a positive number"),
        ({"policy": policy_with(refresh=True)}, "refresh without rebuild_every"),
        ({"policy": policy_with(score=lambda *_: float("nan"))}, "Made gives request 0 the score nan; return a number"),
        ({"policy": policy_with(score=lambda *_: None)}, "policy Made gives request 0 the score None"),
        ({"policy": policy_with(rebuild_every=1.0, aged=lambda *_: float("nan"))}, "gives request 1 the score nan"),
        ({"until": -1.0}, "until=-1.0 must be a finite number of seconds"),
        ({"until": float("inf")}, "until=inf must be a finite number"),
        ({"server": None}, "workload and server are Workload and NoneType"),
        (
            {"server": replace(FREE, kv_tokens=14)},
            r"request 1 needs 15 tokens of KV memory \(prompt 7, output 8, block 0\) and kv_tokens is 14; raise kv",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_line(arguments, message):
    workload = Workload([0.0, 0.0], [3, 7], [5, 8])
    with pytest.raises(InputError, match=message) as error:
        simulate(**{"workload": workload, "server": FREE, "policy": FirstCome(), **arguments})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("k", [0, 3, 1.0, True])
def test_a_time_at_no_count_of_finished_requests_is_refused(k):
    found = simulate(Workload([0.0, 0.0], [1, 1], [1, 1]), FREE, FirstCome())
    with pytest.raises(InputError, match="must be an integer from 1 to the 2 finished requests"):
        time_at(found, k)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda found: summary(found, Workload([0.0, 9.0], [1, 1], [1, 2])), "request 1 finish at 3 s, before it arri"),
        (lambda found: in_system(found, Workload([0.0, 9.0], [1, 1], [1, 2]), 1.0), "give the run's own workload"),
        (lambda found: summary(found, Workload([0.0, 0.0], [1, 1], [2, 1])), "trace generated 1 tokens for request 0"),
        (lambda found: finished_by(found, ["late"]), "times must be seconds on the run's clock"),
    ],
)
def test_what_does_not_belong_to_a_run_is_refused_in_one_line(call, message):
    found = simulate(Workload([0.0, 0.0], [1, 1], [1, 2]), FREE, FirstCome())
    with pytest.raises(InputError, match=message) as error:
        call(found)
    assert "\n" not in str(error.value)


def test_a_workload_keeps_its_own_copy_and_cannot_be_changed():
    arrival = np.array([0.0, 1.0])
    workload = Workload(arrival, [1, 1], [2, 2])
    arrival[0] = 5.0
    assert workload.arrival[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        workload.output[0] = 9
