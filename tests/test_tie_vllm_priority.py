"""Priorities keep the order of scores in an engine with the semantics that vLLM documents, discounted or not."""

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.serving import QueueState, Request
from icml26.tie.laws import LogTLaw
from icml26.tie.policies import SEPT, TIE, WSEPT, Decay, PointEstimate
from icml26.tie.vllm_priority import VLLMPriority

CAP = 2048


class FakeLLM:
    """What vLLM documents of ``LLM.generate`` under ``scheduling_policy="priority"``, one request at a time."""

    def __init__(self, scheduling_policy="fcfs"):
        self.scheduling_policy = scheduling_policy
        self.served = []

    def generate(self, prompts, sampling_params=None, *, priority=None):
        heap = []
        for position, prompt in enumerate(prompts):
            given = priority[position] if priority else 0
            if type(given) is not int or not -(2**63) <= given < 2**63:
                raise TypeError("priority must be a 64-bit integer")
            if given != 0 and self.scheduling_policy != "priority":
                raise ValueError("priority scheduling is not enabled")
            arrival_time = float(position)
            heapq.heappush(heap, (given, arrival_time, str(position), prompt))
        self.served = [heapq.heappop(heap)[-1] for _ in range(len(heap))]
        return list(prompts)


def law_of(prompts):
    """A stand-in for a predictor: longer prompts have longer, wider answers."""
    return LogTLaw([4 + 0.1 * len(prompt) for prompt in prompts], [0.2 + 0.02 * len(prompt) for prompt in prompts])


PROMPTS = ["why is the sky blue?", "hi", "list all primes below one thousand", "tell me a joke", "thanks"]


def test_the_engine_serves_prompts_in_the_order_of_their_tie_scores():
    priority = VLLMPriority(predict=law_of)
    engine = FakeLLM("priority")
    assert engine.generate(PROMPTS, None, priority=priority(PROMPTS)) == PROMPTS
    assert engine.served == sorted(PROMPTS, key=len)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 7), st.floats(0.05, 1.5)), min_size=1, max_size=20), st.integers(0, 300))
@pytest.mark.parametrize("order", [lambda law: TIE(law, CAP), lambda law: SEPT(law, CAP), lambda law: WSEPT(law, CAP)])
def test_a_lower_score_never_gets_a_higher_priority_number(order, parameters, waiting):
    law = LogTLaw(*np.transpose(parameters))
    found = VLLMPriority(order)(law, waiting=waiting)
    policy, queue = order(law), QueueState(0.0, waiting + len(law), 32, 32)
    scores = [policy.score(Request(index, 0.0, 0, 0, 0), queue) for index in range(len(law))]
    for (a, first), (b, second) in itertools.combinations(zip(scores, found, strict=True), 2):
        assert (a - b) * (first - second) >= 0
        assert first != second or abs(a - b) <= 1 / 16  # ties only below the resolution
    assert all(type(number) is int for number in found)


def test_scores_closer_than_the_resolution_tie_and_the_engine_then_serves_the_earlier_arrival():
    priority = VLLMPriority(PointEstimate, predict=lambda prompts: [9.01, 9.0, 8.0], resolution=10)
    assert priority(["a", "b", "c"]) == [90, 90, 80]
    engine = FakeLLM("priority")
    engine.generate(["a", "b", "c"], priority=priority(["a", "b", "c"]))
    assert engine.served == ["c", "a", "b"]


def test_the_queue_that_a_request_meets_counts_those_sent_with_it():
    law = LogTLaw([5.0, 5.0], [0.4, 0.4])
    mean, tail = law.mean(CAP)[0], law.cvar(0.9, CAP)[0]
    assert VLLMPriority()(law, waiting=0) == [round(16 * (mean + 0.1 * tail))] * 2
    assert VLLMPriority()(law, waiting=94) == [round(16 * (mean + 0.3 * tail))] * 2
    assert VLLMPriority(batch=8)(law, waiting=38) == [round(16 * (mean + 0.5 * tail))] * 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(10, 2000), st.floats(0, 3600)), min_size=2, max_size=8), st.floats(0, 600))
def test_fixed_priorities_keep_the_order_of_discounted_scores_at_all_times(requests, later):
    decay = Decay()

    class Discounted(PointEstimate):
        pass

    Discounted.decay = decay
    origin = 1.7e9  # a Unix clock, so that rounding would show
    found = [VLLMPriority(Discounted)([score], arrival=origin + arrival)[0] for score, arrival in requests]
    now = 3600 + later
    effective = [score * decay.weight(now - arrival) for score, arrival in requests]
    for (a, first), (b, second) in itertools.combinations(zip(effective, found, strict=True), 2):
        if abs(np.log(a / b)) > 1e-4:
            assert (a - b) * (first - second) > 0


def test_the_servers_extra_field_is_the_priority_of_a_single_call():
    priority = VLLMPriority(predict=law_of)
    assert priority.extra_body("hi", waiting=40) == {"priority": priority(["hi"], waiting=40)[0]}
    law = law_of(["hi"])
    assert VLLMPriority().extra_body(law) == VLLMPriority(predict=law_of).extra_body("hi")


def test_an_engine_without_priority_scheduling_refuses_so_that_the_order_is_never_lost_silently():
    with pytest.raises(ValueError, match="not enabled"):
        FakeLLM().generate(PROMPTS, priority=VLLMPriority(predict=law_of)(PROMPTS))


def test_numpys_numbers_are_numbers():
    numpys = VLLMPriority(predict=law_of, batch=np.int64(32), resolution=np.float32(16))
    found = numpys(PROMPTS, waiting=np.uint8(255), arrival=np.float64(3))
    assert found == VLLMPriority(predict=law_of)(PROMPTS, waiting=255, arrival=3)
    assert all(type(number) is int for number in found)


def test_no_prompts_have_no_priorities():
    assert VLLMPriority(predict=law_of)([]) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: VLLMPriority(TIE(law_of(["a"]), CAP)), "order is of type TIE; give a function such as lambda law"),
        (lambda: VLLMPriority(predict=law_of(["a"])), "predict is of type LogTLaw; give a function"),
        (lambda: VLLMPriority(lambda law: None)(law_of(["a"])), "order gave None; let it return a policy"),
        (lambda: VLLMPriority(lambda law: SEPT)(law_of(["a"])), "let it return a policy"),
        (lambda: VLLMPriority(predict=lambda p: None)(["a"]), "law of the requests is of type NoneType; give as many"),
        (lambda: VLLMPriority(PointEstimate, lambda p: (1.0 for _ in p))(["a"]), "is of type generator; give as many"),
        (lambda: VLLMPriority(predict=law_of)(iter(["a"])), "requests is of type list_iterator"),
        (lambda: VLLMPriority(predict=law_of).extra_body(["a", "b"]), "prompt is a list of 2; send one request"),
        (lambda: VLLMPriority(resolution=True), "resolution=True must be a positive number"),
        (lambda: VLLMPriority(batch=0), "batch=0 must be a positive integer"),
        (lambda: VLLMPriority(resolution=0), "resolution=0 must be a positive number"),
        (lambda: VLLMPriority(predict=law_of)("hi"), "requests is one prompt; give a list"),
        (lambda: VLLMPriority(predict=law_of)(["hi"], waiting=-1), "waiting=-1 must be a number of requests"),
        (lambda: VLLMPriority(predict=law_of)(["hi"], arrival=np.inf), "arrival=inf must be a finite number"),
        (lambda: VLLMPriority(predict=lambda p: law_of(p[:1]))(["a", "b"]), "predict gave 1 laws for 2 prompts"),
        (lambda: VLLMPriority().extra_body(law_of(["a", "b"])), "gave 2 priorities; send one request at a time"),
        (lambda: VLLMPriority(lambda law: TIE(law, CAP, refresh_every=5.0))(law_of(["a"])), "priority once sent stays"),
        (lambda: VLLMPriority(PointEstimate)([1e30]), "score 1e[+]30 fits no 64-bit integer"),
        (
            lambda: VLLMPriority(lambda law: TIE(law, CAP))(["hi"]),
            r"law is of type list without a mean\(\) of laws; give one such as LogTLaw",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
