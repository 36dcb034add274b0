"""Predictors on the same answers, and the requests that are served with what they predict."""

import dataclasses

import numpy as np
import pytest

from icml26.errors import InputError
from icml26.serving import Server, simulate, summary
from icml26.tie import predicted
from icml26.tie.answers import Answers
from icml26.tie.heads import PredictorConfig
from icml26.tie.laws import LogNormalLaw, LogTLaw
from icml26.tie.recorded import CLASS_SJF, RecordedCase

CAP = 200
QUICK = PredictorConfig(epochs=15, learning_rates=(3e-3,), weight_decays=(0.01,))


def answered(prompts, samples, seed):
    """Answers whose place a feature tells."""
    generator = np.random.default_rng(seed)
    place = generator.uniform(1.5, 4.5, prompts)
    law = LogTLaw(place, np.full(prompts, 0.3))
    features = np.stack([place, generator.normal(size=prompts)], 1)
    lengths = law.sample(generator, CAP, samples)
    return Answers(tuple(map(str, range(prompts))), np.full(prompts, 9), features, lengths, CAP)


@pytest.fixture(scope="module")
def learnt():
    """Test answers and the predictions of every predictor."""
    test = answered(30, 40, seed=1)
    return test, predicted.learn(answered(60, 10, seed=0), test, seed=0, config=QUICK)


def test_every_predictor_orders_prompts_by_a_feature_that_tells_their_length(learnt):
    test, found = learnt
    tau = predicted.quality(found, test)
    assert set(tau) == {*predicted.POINTS, "tie", "log-normal"}
    assert min(tau.values()) > 0.5
    assert isinstance(found["tie"], LogTLaw)
    assert isinstance(found["log-normal"], LogNormalLaw)


def test_predictions_do_not_look_at_the_test_answers(learnt):
    test, found = learnt
    blind = test._replace(lengths=np.ones_like(test.lengths))
    again = predicted.learn(answered(60, 10, seed=0), blind, seed=0, config=QUICK)
    assert np.array_equal(again["tie"].mu, found["tie"].mu)
    assert np.array_equal(again["ltr"], found["ltr"])


def test_a_seed_s_requests_are_answers_of_test_prompts_and_no_policy_but_the_oracle_sees_them(learnt):
    test, found = learnt
    case = predicted.PredictedCase(test, [found], load=5, requests=200)
    workload, policies = case(3)
    assert set(workload.output) <= set(test.lengths.ravel())
    shuffled = test._replace(lengths=test.lengths[:, ::-1] * 0 + 7)
    other = dataclasses.replace(case, test=shuffled, load=5)(3)
    for name, policy in policies.items():
        scores = [policy.predicted for policy in (policy, other.policies[name]) if hasattr(policy, "predicted")]
        if name in predicted.POINTS:
            assert np.array_equal(*scores)


def test_seeds_take_the_trainings_in_turn_and_repeat(learnt):
    test, found = learnt
    other = {**found, "ltr": -found["ltr"]}
    case = predicted.PredictedCase(test, [found, other], requests=50)
    assert np.array_equal(case(4).workload.output, case(4).workload.output)
    first, second = (np.asarray(case(seed).policies["ltr"].predicted) for seed in (0, 1))
    assert set(first) <= set(found["ltr"])
    assert set(second) <= set(other["ltr"])


def test_load_is_a_multiple_of_the_measured_capacity(learnt):
    test, found = learnt
    case = predicted.PredictedCase(test, [found], load=3, requests=4000)
    arrival = case(0).workload.arrival
    assert np.isclose(4000 / arrival[-1] / case.capacity(), 3, rtol=0.06)
    assert not dataclasses.replace(case, load=None)(0).workload.arrival.any()


def test_good_predictions_serve_a_crowd_better_than_none(learnt):
    test, found = learnt
    workload, policies = predicted.PredictedCase(test, [found], requests=400)(0)
    latency = {
        name: summary(simulate(workload, Server(), policy), workload).mean_ptla for name, policy in policies.items()
    }
    assert latency["oracle"] < latency["tie"] < latency["fcfs"]


@pytest.mark.parametrize("load", [0.5, 2.0])
def test_recorded_requests_arrive_at_the_load_that_was_asked_for(load):
    lengths = answered(20, 20, seed=2).lengths.ravel()
    workload, policies = RecordedCase(load, 500, stand_in=lengths)(1)
    there = dataclasses.replace(workload, arrival=np.zeros(500))
    from icml26.serving import capacity

    assert np.isclose(499 / workload.arrival[-1] / capacity(there, Server()), load)
    assert set(policies) == {"fcfs", CLASS_SJF, "oracle"}
    assert set(workload.output) <= set(lengths)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda test, found: predicted.PredictedCase(test, []), "rounds is empty"),
        (lambda test, found: predicted.PredictedCase(test, [found], load=0), "load=0 must be a positive"),
        (lambda test, found: predicted.PredictedCase(test, [found], requests=2.5), "requests=2.5 must be"),
        (lambda test, found: predicted.learn(test, test._replace(cap=9), seed=0), "capped at 200 and test"),
        (lambda test, found: RecordedCase(-1), "load=-1 must be"),
        (lambda test, found: RecordedCase(1, requests=1), "requests=1 must be"),
    ],
)
def test_wrong_arguments_get_one_line(learnt, make, message):
    with pytest.raises(InputError, match=message):
        make(*learnt)
