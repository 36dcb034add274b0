"""Orders are optimal where theory says so, beta and the discount keep their rules, official quirks are as they are."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.serving import Policy, QueueState, Request, Server, Workload, simulate
from icml26.tie.laws import LogNormalLaw, LogTLaw
from icml26.tie.official import MonteCarloLaw, official_tie
from icml26.tie.policies import FCFS, SEPT, TIE, WSEPT, Decay, FixedBeta, Median, OracleSJF, PointEstimate, beta
from icml26.tie.populations import EmpiricalPopulation, LogTPopulation, Predictor

CAP = 2048
SECOND = Server(batch=1, base=1.0, per_request=0.0, per_cached_token=0.0, per_prompt_token=0.0, kv_tokens=None)


@dataclass(frozen=True, eq=False)
class Equiprobable:
    """A law with finitely many equally likely lengths for each request."""

    lengths: np.ndarray

    def mean(self, cap):
        return np.minimum(self.lengths, cap).mean(1)

    def inverse_mean(self, cap):
        return (1 / np.minimum(self.lengths, cap)).mean(1)


few_lengths = st.lists(st.lists(st.integers(1, 60), min_size=3, max_size=3), min_size=2, max_size=5)


def queue(waiting, clock=0.0):
    return QueueState(clock=clock, waiting=waiting, running=32, batch=32)


def request(index, arrival=0.0):
    return Request(index, arrival, 10, 0, 0)


def scores(policy, count, waiting=1):
    return [policy.score(request(index), queue(waiting)) for index in range(count)]


def some_law(count=40, seed=0):
    rng = np.random.default_rng(seed)
    return LogTLaw(rng.normal(4.6, 1.2, count), np.exp(rng.normal(-0.9, 0.45, count)))


def expected_cost(order, lengths, weight):
    """Expected sum of weight(length) x completion time on one server, over all outcomes, by plain loops."""
    total = 0.0
    outcomes = list(itertools.product(*(lengths[index] for index in order)))
    for outcome in outcomes:
        clock = 0
        for length in outcome:
            clock += length
            total += weight(length) * clock
    return total / len(outcomes)


@settings(max_examples=25, deadline=None)
@given(few_lengths)
@pytest.mark.parametrize(("policy", "weight"), [(SEPT, lambda length: 1.0), (WSEPT, lambda length: 1 / length)])
def test_sept_minimises_the_expected_total_completion_and_wsept_that_per_token(policy, weight, lengths):
    found = scores(policy(Equiprobable(np.array(lengths)), CAP), len(lengths))
    order = sorted(range(len(lengths)), key=found.__getitem__)
    best = min(expected_cost(other, lengths, weight) for other in itertools.permutations(range(len(lengths))))
    assert expected_cost(order, lengths, weight) == pytest.approx(best, rel=1e-9)


def test_swapping_two_neighbours_changes_the_expected_total_completion_by_the_difference_of_their_expectations():
    lengths = [[1, 90], [30, 40], [7, 8]]
    swapped = expected_cost((1, 0, 2), lengths, lambda length: 1) - expected_cost((0, 1, 2), lengths, lambda length: 1)
    assert swapped == pytest.approx(np.mean(lengths[1]) - np.mean(lengths[0]))


def test_a_tail_term_can_undo_the_optimal_order():
    # Two outcomes each: the first is shorter in expectation and has the worse tail.
    lengths = [[1, 50], [27, 27]]
    assert scores(SEPT(Equiprobable(np.array(lengths)), CAP), 2) == [25.5, 27.0]
    tail = 25.5 + 0.5 * 50, 27 + 0.5 * 27
    assert tail[0] > tail[1]
    assert expected_cost((0, 1), lengths, lambda length: 1) < expected_cost((1, 0), lengths, lambda length: 1)


@pytest.mark.parametrize(
    ("waiting", "expected"), [(1, 0.1), (32, 0.1), (48, 0.15), (96, 0.3), (160, 0.5), (161, 0.5), (10**6, 0.5)]
)
def test_beta_is_a_tenth_up_to_one_batch_and_a_half_from_five(waiting, expected):
    assert beta(waiting, 32) == pytest.approx(expected)


def test_tie_is_the_capped_mean_plus_beta_times_the_tail_at_the_queue_that_the_request_met():
    law = some_law()
    policy = TIE(law, CAP)
    for waiting, weight in [(1, 0.1), (96, 0.3), (500, 0.5)]:
        np.testing.assert_allclose(scores(policy, 40, waiting), law.mean(CAP) + weight * law.cvar(0.9, CAP), rtol=1e-12)
        np.testing.assert_allclose(scores(policy, 40, waiting), scores(FixedBeta(law, CAP, weight), 40), rtol=1e-12)


def test_tie_without_tail_is_sept():
    law = some_law()
    assert scores(TIE(law, CAP, beta_low=0.0, beta_high=0.0), 40, 300) == scores(SEPT(law, CAP), 40)
    assert scores(FixedBeta(law, CAP, 0.0), 40) == scores(SEPT(law, CAP), 40)


def test_the_tail_puts_the_wider_of_two_laws_of_equal_mean_last():
    narrow, wide = LogTLaw([5.0], [0.2]), LogTLaw([4.0], [0.9])
    shift = np.log(narrow.mean(CAP) / wide.mean(CAP))
    law = LogTLaw([5.0, 4.0 + 1.2 * float(shift[0])], [0.2, 0.9])
    means = law.mean(CAP)
    tails = law.cvar(0.9, CAP)
    # whatever the means, the tail term weighs in by beta times the difference of tails
    for policy, weight in [(TIE(law, CAP), 0.5), (SEPT(law, CAP), 0.0)]:
        first, second = scores(policy, 2, 400)
        assert second - first == pytest.approx(means[1] - means[0] + weight * (tails[1] - tails[0]))
    assert tails[1] > tails[0]


@given(st.floats(1, 3000), st.floats(1, 3000), st.floats(0, 500), st.floats(0, 500), st.floats(0, 500))
def test_the_discount_never_changes_the_order_of_two_requests_and_has_a_static_key(a, b, arrive_a, arrive_b, later):
    aged = TIE(some_law(2), CAP, decay=Decay()).aged
    now = max(arrive_a, arrive_b) + later
    ratio = math.log(aged(a, now - arrive_a)) - math.log(aged(b, now - arrive_b))
    per_second = -math.log(0.9) / 30
    assert ratio == pytest.approx(math.log(a) + arrive_a * per_second - math.log(b) - arrive_b * per_second, abs=1e-9)


def test_a_score_halves_after_197_seconds_and_equal_waits_keep_their_order():
    decay = Decay()
    assert decay.half_life == pytest.approx(197.4, abs=0.05)
    assert decay.weight(decay.half_life) == pytest.approx(0.5)
    assert decay.weight(30.0) == pytest.approx(0.9)
    assert decay.weight(0.0) == 1.0


def test_scores_without_discount_do_not_age_and_need_no_rebuild():
    policy = TIE(some_law(2), CAP)
    assert policy.aged(7.0, 1e4) == 7.0
    assert policy.rebuild_every is None
    assert TIE(some_law(2), CAP, decay=Decay(every=2.0)).rebuild_every == 2.0
    assert TIE(some_law(2), CAP, refresh_every=3.0).rebuild_every == 3.0


def test_the_discount_brings_an_early_long_request_before_late_short_ones():
    # A token a second; a request of 20 tokens waits while shorter ones arrive faster than they are served.
    arrival = np.concatenate([[0.0, 0.1], np.arange(1, 400) * 1.0])
    output = np.concatenate([[5, 20], np.full(399, 2)])
    predicted = LogNormalLaw(np.log(output), np.full(401, 1e-3))
    workload = Workload(arrival, np.ones(401, int), output)
    plain = TIE(predicted, CAP)
    discounted = TIE(predicted, CAP, decay=Decay(factor=0.5, period=10.0, every=1.0))
    waits = [simulate(workload, SECOND, policy).admitted[1] for policy in (plain, discounted)]
    assert waits[1] < 70 < 400 < waits[0]


def test_a_refreshed_beta_orders_like_a_fixed_one_while_the_queue_is_long_and_a_frozen_one_does_not():
    law = LogTLaw(*np.random.default_rng(3).uniform([[3.0], [0.1]], [[4.5], [1.0]], (2, 300)))
    workload = Workload(np.zeros(300), np.ones(300, int), np.ones(300, int))
    policies = {
        "fixed": FixedBeta(law, CAP, 0.5),
        "refreshed": TIE(law, CAP, refresh_every=1.0),
        "frozen": TIE(law, CAP),
    }
    first = {}
    for name, policy in policies.items():
        admitted = simulate(workload, SECOND, policy).admitted
        first[name] = np.argsort(admitted, kind="stable")[2:135].tolist()  # the first is admitted before any rebuild
    common = set(first["fixed"]) & set(first["refreshed"])
    assert len(common) >= 132
    assert [i for i in first["fixed"] if i in common] == [i for i in first["refreshed"] if i in common]
    assert first["frozen"] != first["fixed"]


def test_policies_are_the_simulators_and_order_a_queue_by_their_scores():
    law = some_law(30)
    output = law.sample(np.random.default_rng(1), CAP)
    workload = Workload(np.zeros(30), np.ones(30, int), output)
    for policy in (Median(law), SEPT(law, CAP), WSEPT(law, CAP), PointEstimate(law.mu), OracleSJF(output)):
        assert isinstance(policy, Policy)
        finish = simulate(workload, SECOND, policy).finish
        ranked = np.argsort(scores(policy, 30), kind="stable")
        np.testing.assert_array_equal(finish[ranked], np.cumsum(output[ranked]))
    first = simulate(workload, SECOND, FCFS()).finish
    np.testing.assert_array_equal(first, np.cumsum(output))


def test_the_oracle_has_the_least_total_completion_of_all_orders():
    output = np.array([5, 1, 9, 3])
    workload = Workload(np.zeros(4), np.ones(4, int), output)
    found = simulate(workload, SECOND, OracleSJF(output)).finish.sum()
    assert found == min(np.cumsum(output[list(order)]).sum() for order in itertools.permutations(range(4)))


def test_the_uncensored_log_normal_scores_exceed_the_censored_ones():
    law = LogNormalLaw([5.0, 7.0], [0.5, 1.2])
    free, capped = (np.array(scores(TIE(law, cap), 2)) for cap in (None, CAP))
    assert (free >= capped).all()
    assert free[1] > 1.5 * capped[1]


def test_the_monte_carlo_scores_are_the_official_codes():
    law = some_law(5)
    estimate = MonteCarloLaw(law, seed=7, draws=400)
    mean, tail = estimate.mean(2028), estimate.cvar(0.9, 2048)
    for stream, cap, found in [(0, 2028.0, mean), (1, 2048.0, tail)]:
        rng = np.random.default_rng([7, stream])
        for i in range(5):
            lengths = np.minimum(np.exp(law.mu[i] + law.sigma[i] * rng.standard_t(3.5, 400)), cap)
            threshold = np.percentile(lengths, 90)
            above = lengths[lengths > threshold]
            expected = np.mean(lengths) if stream == 0 else (np.mean(above) if len(above) else threshold)
            assert found[i] == pytest.approx(expected, rel=1e-12)


def test_the_monte_carlo_noise_is_a_fraction_of_a_per_cent_of_the_mean_and_falls_with_the_draws():
    law = some_law(200)
    errors = [np.abs(MonteCarloLaw(law, seed=0, draws=n).mean(CAP) / law.mean(CAP) - 1) for n in (250, 10_000)]
    assert np.median(errors[1]) < 0.01
    assert 3 < np.median(errors[0]) / np.median(errors[1]) < 13  # the root of 40


def test_where_nothing_exceeds_the_percentile_the_official_tail_is_the_percentile():
    assert MonteCarloLaw(LogTLaw([12.0], [0.1]), seed=0, draws=50).cvar(0.9, 2048)[0] == pytest.approx(2048.0)


def test_official_scores_are_whole_and_at_least_one_and_censor_the_mean_at_2028():
    policy = official_tie(LogTLaw([-9.0, 5.0, 14.0], [0.1, 0.4, 0.1]), seed=0)
    found = scores(policy, 3, 500)
    assert found[0] == 1
    assert found[2] == round(2028 + 0.5 * 2048)
    assert all(isinstance(score, int) for score in found)


def served(policy):
    """Three requests under a policy."""
    return simulate(Workload([0.0, 0.0, 1.0], [1, 1, 1], [3, 2, 1]), Server(batch=1), policy)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PointEstimate([1.0, np.nan]), "PointEstimate is nan for request 1; give finite numbers"),
        (lambda: PointEstimate([[1.0]]), r"PointEstimate has shape \(1, 1\); give one number for each request"),
        (lambda: PointEstimate(["long"]), "PointEstimate must be an array of numbers"),
        (lambda: OracleSJF([]), r"OracleSJF has shape \(0,\); give one number"),
        (lambda: PointEstimate(["3"]), "PointEstimate must be an array of numbers"),
        (lambda: SEPT(some_law(2), None), "cap=None"),
        (
            lambda: SEPT(np.ones(2), CAP),
            r"law is of type ndarray without a mean\(\) of laws; give one such",
        ),
        (lambda: Median(np.ones(2)), "law is of type ndarray without a median"),
        (lambda: FixedBeta(some_law(2), CAP, "a"), "beta='a' must be a finite number"),
        (lambda: TIE(some_law(2), CAP, beta_low="a"), "beta_low='a', beta_high=0.5, slope=0.1 do not make a rule"),
        (lambda: TIE(some_law(2), CAP, decay=0.9), r"decay=0.9 must be a Decay, such as Decay\(factor=0.9\), or None"),
        (lambda: beta(5, 0), "waiting=5, batch=0, low=0.1, high=0.5, slope=0.1 do not make a beta"),
        (lambda: beta("5", 8), "waiting='5', batch=8"),
        (lambda: beta(5, 8, low=None), "low=None"),
        (lambda: served(SEPT(some_law(2), CAP)), "request 2 has no prediction: the policy has 2; give one for each"),
        (lambda: served(TIE(some_law(2), CAP)), "request 2 has no prediction: the policy has 2"),
        (lambda: served(FCFS), "policy FCFS is a class; give an instance"),
        (lambda: TIE(some_law(2), CAP, alpha=90), "alpha=90 must be a number above 0 and below 1"),
        (lambda: TIE(some_law(2), CAP, beta_low=0.6), "beta_low=0.6, beta_high=0.5, slope=0.1 do not make a rule"),
        (lambda: TIE(some_law(2), CAP, refresh_every=0), "refresh_every=0 must be a number above 0"),
        (
            lambda: TIE(some_law(2), CAP, refresh_every=1.0, decay=Decay()),
            "rebuilt at one interval: give both the same",
        ),
        (lambda: Decay(factor=1.1), "factor=1.1 must be a number above 0 and below 1"),
        (lambda: Decay(period=-1), "period=-1 must be a number above 0"),
        (lambda: Decay(every=True), "every=True must be a number"),
        (lambda: MonteCarloLaw(some_law(2), 0, draws=0), "draws=0 must be an integer of at least 1"),
        (lambda: MonteCarloLaw(some_law(2), -1), "seed=-1 must be an integer of at least 0"),
        (lambda: MonteCarloLaw([5.0], 0), "law is of type list; give a LogTLaw"),
        (lambda: MonteCarloLaw(some_law(2), 0).mean(None), "cap=None must be a positive number"),
        (lambda: MonteCarloLaw(some_law(2), 0).cvar("a", CAP), "alpha='a' must lie from 0"),
        (lambda: EmpiricalPopulation([[1, 2, 3]], 9, 2, prompt=["a"]), "prompt=.* must be numbers"),
        (lambda: LogTPopulation(mu_sd="a"), "mu_sd='a' must be a finite number"),
        (lambda: LogTPopulation(mu_mean=np.nan), "mu_mean=nan must be a finite number"),
        (lambda: Predictor(r2_mu="a"), "r2_mu='a' must lie between 0 and 1"),
        (lambda: Predictor(sigma_factor="a"), "sigma_factor='a' must be a positive number"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
