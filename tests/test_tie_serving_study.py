"""Policies are compared on the same requests, populations are what they say, intervals are those of paired seeds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from icml26 import serving
from icml26.errors import InputError
from icml26.serving import Server
from icml26.tie.laws import LogNormalLaw
from icml26.tie.policies import FCFS, SEPT, TIE, OracleSJF
from icml26.tie.populations import EmpiricalPopulation, LogTPopulation, Predictor
from icml26.tie.regimes import label_case, load_sweep, rate_sweep, regimes, tail_search
from icml26.tie.scenarios import Scenario, standard_policies
from icml26.tie.serving_study import benefits, compare, growth_difference, log_ratio, run

SMALL = Scenario(requests=150)


def rng(seed=0):
    return np.random.default_rng(seed)


def scores(policy, count):
    queue = serving.QueueState(0.0, 50, 32, 32)
    return [policy.score(serving.Request(i, float(i), 10, 0, 0), queue) for i in range(count)]


def test_the_populations_parameters_are_those_of_what_it_draws():
    drawn = LogTPopulation(correlation=0.6).draw(20_000, rng())
    mu, log_sigma = drawn.law.mu, np.log(drawn.law.sigma)
    assert mu.mean() == pytest.approx(4.6, abs=0.03)
    assert (mu.std(), log_sigma.mean(), log_sigma.std()) == pytest.approx((1.2, -0.9, 0.45), abs=0.02)
    assert np.corrcoef(mu, log_sigma)[0, 1] == pytest.approx(0.6, abs=0.02)
    assert drawn.output.min() >= 1
    assert drawn.output.max() == 2048
    assert stats.variation(drawn.output) == pytest.approx(1.55, abs=0.1)
    # what is drawn is the law: the share beyond the median is a half
    assert (drawn.output > drawn.law.median()).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("correlation", [-1.0, 1.0])
def test_a_correlation_of_one_makes_sigma_a_function_of_mu(correlation):
    law = LogTPopulation(correlation=correlation).draw(50, rng()).law
    np.testing.assert_allclose((np.log(law.sigma) + 0.9) / 0.45, correlation * (law.mu - 4.6) / 1.2, atol=1e-9)


@pytest.mark.parametrize(("r2_mu", "r2_sigma"), [(0.82, 0.76), (0.5, 0.3), (0.0, 1.0)])
def test_a_predictor_has_its_coefficients_of_determination_and_is_calibrated(r2_mu, r2_sigma):
    law = LogTPopulation().draw(40_000, rng()).law
    seen = Predictor(r2_mu, r2_sigma)(law, rng(1))
    pairs = [(law.mu, seen.mu, r2_mu), (np.log1p(law.sigma), np.log1p(seen.sigma), r2_sigma)]
    for truth, prediction, r2 in pairs:
        assert 1 - np.mean((truth - prediction) ** 2) / truth.var() == pytest.approx(r2, abs=0.02)
        if r2:
            assert np.polyfit(prediction, truth, 1)[0] == pytest.approx(1, abs=0.03)
    errors = [truth - prediction for truth, prediction, _ in pairs]
    if r2_sigma < 1:
        assert abs(np.corrcoef(*errors)[0, 1]) < 0.02


def test_a_joint_regression_uses_what_sigma_says_of_mu_and_separate_branches_do_not():
    law = LogTPopulation(correlation=0.8).draw(20_000, rng()).law
    found = {}
    for joint in (False, True):
        seen = Predictor(0.3, 0.9, joint=joint)(law, rng(1))
        found[joint] = np.corrcoef(law.mu - seen.mu, np.log1p(seen.sigma))[0, 1]
        quality = 1 - np.mean((law.mu - seen.mu) ** 2) / law.mu.var()
        assert quality > 0.6 if joint else quality == pytest.approx(0.3, abs=0.03)
    assert found[False] > 0.3
    assert abs(found[True]) < 0.02


def test_a_perfect_predictor_changes_nothing_and_a_factor_only_sigma():
    law = LogNormalLaw([3.0, 5.0], [0.2, 0.4])
    seen = Predictor(sigma_factor=0.5)(law, rng())
    assert isinstance(seen, LogNormalLaw)
    np.testing.assert_allclose(seen.mu, law.mu)
    np.testing.assert_allclose(seen.sigma, 0.5 * law.sigma, rtol=1e-12)


def test_an_empirical_population_fits_laws_to_generations_that_it_never_serves():
    lengths = LogTPopulation(cap=256).generations(30, 40, rng())
    population = EmpiricalPopulation(lengths, cap=256, labels=15, prompt=np.arange(30) + 1)
    drawn = population.draw(500, rng(1))
    assert all(drawn.output[i] in lengths[drawn.source[i], 15:] for i in range(500))
    np.testing.assert_array_equal(drawn.prompt, drawn.source + 1)
    np.testing.assert_array_equal(drawn.law.mu, population.law.mu[drawn.source])
    other = lengths.copy()
    other[:, 15:] = 7
    served = EmpiricalPopulation(other, cap=256, labels=15)
    np.testing.assert_array_equal(served.law.mu, population.law.mu)
    assert set(served.draw(20, rng()).output) == {7}


def test_a_refitted_population_serves_the_same_requests_under_laws_of_another_family():
    lengths = LogTPopulation(cap=256).generations(30, 40, rng())
    log_t = EmpiricalPopulation(lengths, cap=256)
    log_normal = log_t.refitted("log-normal")
    first, second = (population.draw(50, rng(2)) for population in (log_t, log_normal))
    np.testing.assert_array_equal(first.output, second.output)
    np.testing.assert_array_equal(first.source, second.source)
    assert isinstance(second.law, LogNormalLaw)
    # the scale of a log-t is not the standard deviation of its logarithm
    assert np.median(second.law.sigma / first.law.sigma) > 1.1


def test_settings_share_their_random_numbers():
    base = SMALL(3).workload
    blurred = replace(SMALL, predictor=Predictor(0.5, 0.3))(3).workload
    np.testing.assert_array_equal(base.output, blurred.output)
    np.testing.assert_array_equal(base.arrival, blurred.arrival)
    slower = replace(SMALL, rate=25.0)(3).workload
    np.testing.assert_array_equal(base.output, slower.output)
    np.testing.assert_allclose(slower.arrival, 4 * base.arrival)
    assert not np.array_equal(base.output, SMALL(4).workload.output)
    assert (replace(SMALL, rate=None)(3).workload.arrival == 0).all()


def test_no_policy_but_the_oracle_sees_the_true_lengths():
    drawn = LogTPopulation().draw(40, rng())
    one = standard_policies(drawn.law, drawn.output, 2048)
    two = standard_policies(drawn.law, drawn.output[::-1], 2048)
    for name in one:
        assert (scores(one[name], 40) == scores(two[name], 40)) == (name != "oracle")


def test_policies_score_what_the_predictor_gives():
    law = SMALL.draw(3).law
    for name, direct in [("tie", TIE(law, 2048)), ("sept", SEPT(law, 2048))]:
        np.testing.assert_allclose(scores(SMALL(3).policies[name], 150), scores(direct, 150), rtol=1e-12)
    blurred = replace(SMALL, predictor=Predictor(0.5, 0.3))(3).policies["median"]
    assert np.var(np.log(scores(blurred, 150))) < 0.8 * law.mu.var()


def test_the_regimes_change_what_they_are_named_for():
    found = regimes(SMALL)
    assert found["overload"] is SMALL
    capacity = SMALL.capacity()
    drawn = SMALL.population.draw(20_000, rng())
    assert capacity == pytest.approx(32 / ((0.012 + 32 * 3e-4) * drawn.output.mean()))
    assert found["stable"].rate == pytest.approx(0.8 * capacity)
    assert found["offline"].rate is None
    assert found["KV-limited"].server.kv_tokens < found["context costs"].server.kv_tokens
    assert found["sigma halved"].predictor == Predictor(sigma_factor=0.5)
    assert found["correlation -0.6"].population.correlation == -0.6
    assert load_sweep(SMALL, [2.0])[2.0].rate == pytest.approx(2 * capacity)
    assert [scenario.rate for scenario in rate_sweep(SMALL).values()] == [30, 50, 70, 100]
    lengths = EmpiricalPopulation(LogTPopulation(cap=256).generations(10, 30, rng()), cap=256)
    assert "large sigma" not in regimes(replace(SMALL, population=lengths))


def test_every_regime_runs_and_the_memory_limit_preempts():
    shorter = replace(
        SMALL, requests=80, policies=lambda law, output, cap: {"sept": SEPT(law, cap), "tie": TIE(law, cap)}
    )
    table = run(regimes(shorter), seeds=[0])
    assert len(table) == 2 * len(regimes(shorter))
    assert np.isfinite(table.mean_ptla).all()
    preempted = table.groupby("regime").preemptions.sum()
    assert preempted["KV-limited"] > 0 == preempted["overload"]


def test_labels_are_worth_the_same_requests_whatever_is_made_of_them():
    lengths = LogTPopulation(cap=512).generations(40, 30, rng())
    population = EmpiricalPopulation(lengths, cap=512)
    scenario = replace(SMALL, population=population)
    workload, policies = label_case(scenario)(4)
    np.testing.assert_array_equal(workload.output, scenario(4).workload.output)
    np.testing.assert_array_equal(workload.arrival, scenario(4).workload.arrival)
    source = scenario.draw(4).source
    np.testing.assert_array_equal(scores(policies["one generation"], 150), lengths[source, 0])
    np.testing.assert_allclose(scores(policies["mean of generations"], 150), lengths[source, :20].mean(1))
    for family in ("log-t", "log-normal"):
        law = population.refitted(family).law[source]
        np.testing.assert_allclose(scores(policies[f"sept {family}"], 150), law.mean(512))
    with pytest.raises(InputError, match="population is a LogTPopulation; give an EmpiricalPopulation"):
        label_case(SMALL)


def test_the_tail_term_mends_branches_that_ignore_each_other_but_not_a_joint_prediction():
    base = replace(SMALL, requests=700)
    found = tail_search(base)
    names = [f"0.2/0.9, correlation 0.9, {branch}" for branch in ("separate", "joint")]
    table = benefits(run({name: found[name] for name in names}, seeds=range(4)), policies=["beta_0.5"])
    assert table.verdict[0] == "better"
    assert table.log_ratio[1] < 0.25 * table.log_ratio[0]


def test_each_seeds_workload_is_made_once_and_served_by_every_policy():
    made = []

    def case(seed):
        made.append(seed)
        return SMALL(seed)

    lines = []
    table = compare(case, SMALL.server, [5, 6], progress=lines.append)
    assert made == [5, 6]
    assert len(lines) == 2
    assert len(table) == 20
    workload, policies = SMALL(6)
    trace = serving.simulate(workload, SMALL.server, policies["tie"])
    row = table[(table.seed == 6) & (table.policy == "tie")].iloc[0]
    latency = trace.finish - workload.arrival
    assert row.mean_ptla == pytest.approx((latency / workload.output).mean())
    assert row.mean_latency == pytest.approx(latency.mean())
    assert row.time_at_share == pytest.approx(np.sort(trace.finish)[89] - workload.arrival[0])


def test_with_a_place_for_everybody_and_costs_that_do_not_add_all_policies_are_equal():
    free = Server(batch=150, per_request=0.0, per_cached_token=0.0, per_prompt_token=0.0, kv_tokens=None)
    table = compare(replace(SMALL, server=free), free, [0, 1])
    for policy in table.policy.unique():
        assert log_ratio(table, "mean_ptla", "fcfs", policy).interval == pytest.approx((0, 0), abs=1e-12)


def test_far_above_capacity_first_come_first_served_is_far_worse_than_expectations_and_these_than_the_oracle():
    table = run({"overload": replace(SMALL, requests=600)}, seeds=range(4))
    found = benefits(table, policies=["sept", "tie", "oracle"], baseline="fcfs")
    assert (found.low > np.log(2)).all()
    assert found.verdict.tolist() == ["better"] * 3
    assert log_ratio(table, "mean_ptla", "sept", "oracle").low > 0


def test_a_log_ratio_is_the_t_interval_of_the_paired_logarithms():
    a, b = rng(1).lognormal(0, 1, 8), rng(2).lognormal(1, 1, 8)
    table = pd.DataFrame(
        {"seed": [*range(8)] * 2, "policy": ["a"] * 8 + ["b"] * 8, "time": np.concatenate([a, b])}
    ).sample(frac=1, random_state=0)
    found = log_ratio(table, "time", "a", "b", level=0.9)
    expected = stats.ttest_rel(np.log(a), np.log(b)).confidence_interval(0.9)
    assert found.value == pytest.approx(np.mean(np.log(a / b)))
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert log_ratio(table, "time", "b", "a").value == pytest.approx(-found.value)


def test_growth_differs_by_the_second_difference_of_logarithms():
    low, high = (
        pd.DataFrame({"seed": [0, 1] * 2, "policy": ["a", "a", "b", "b"], "time": times})
        for times in ([1.0, 2.0, 3.0, 4.0], [5.0, 8.0, 6.0, 20.0])
    )
    expected = [np.log(5 / 1) - np.log(6 / 3), np.log(8 / 2) - np.log(20 / 4)]
    assert growth_difference(low, high, "time", "a", "b").value == pytest.approx(np.mean(expected))


def test_a_verdict_is_open_when_the_interval_straddles_zero():
    table = pd.DataFrame(
        {
            "regime": ["r"] * 6,
            "seed": [0, 1, 2] * 2,
            "policy": ["sept"] * 3 + ["tie"] * 3,
            "mean_ptla": [1.0, 2.0, 1.0, 2.0, 1.0, 1.0],
        }
    )
    assert benefits(table).verdict.tolist() == ["open"]
    assert benefits(table.assign(mean_ptla=[1.0, 2.0, 1.0, 2.0, 4.1, 2.1])).verdict.tolist() == ["worse"]


def tables(**columns):
    return pd.DataFrame({"seed": [0, 1, 0, 1], "policy": ["a", "a", "b", "b"], "time": [1.0, 2.0, 3.0, 4.0], **columns})


LENGTHS = np.array([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: log_ratio(tables(), "tim", "a", "b"), "metric 'tim' is no column of the table; did you mean 'time'"),
        (lambda: log_ratio(tables(), "time", "a", "c"), "policy 'c' is not in the table"),
        (lambda: log_ratio(tables(seed=[0, 0, 0, 1]), "time", "a", "b"), "several rows for a seed and policy"),
        (lambda: log_ratio(tables(time=[0.0, 1, 1, 1]), "time", "a", "b"), "missing or not positive for some seeds"),
        (lambda: log_ratio(tables(seed=[0, 1, 0, 2]), "time", "a", "b"), "missing or not positive for some seeds"),
        (lambda: growth_difference(tables(), tables(seed=[0, 2, 0, 2]), "time", "a", "b"), "run both with the same"),
        (lambda: compare(SMALL, SMALL.server, []), "seeds is empty"),
        (lambda: compare(SMALL, SMALL.server, [0], share=60), "share=60 must be above 0 and at most 1"),
        (lambda: run({}, [0]), "scenarios is empty"),
        (lambda: tail_search(Scenario(EmpiricalPopulation(LENGTHS, cap=9, labels=2))), "the search varies a LogTPop"),
        (lambda: Scenario(requests=0), "requests=0 must be an integer of at least 1"),
        (lambda: SMALL(-1), "seed=-1 must be an integer of at least 0"),
        (lambda: Scenario(rate=-1.0)(0), "rate"),
        (lambda: LogTPopulation(correlation=2), "correlation=2 must lie between -1 and 1"),
        (lambda: LogTPopulation(mu_sd=-1), "mu_sd=-1 must be a standard deviation"),
        (lambda: LogTPopulation(cap=0), "cap=0 must be a positive number"),
        (lambda: Predictor(r2_mu=1.2), "r2_mu=1.2 must lie between 0 and 1"),
        (lambda: Predictor(sigma_factor=0), "sigma_factor=0 must be a positive number"),
        (lambda: EmpiricalPopulation(LENGTHS, cap=5, labels=2), "above cap=5"),
        (lambda: EmpiricalPopulation(LENGTHS, cap=9, labels=3), "labels=3 must be an integer from 2 to 2"),
        (lambda: EmpiricalPopulation(LENGTHS / 1, cap=9, labels=2), "give integers"),
        (lambda: EmpiricalPopulation(LENGTHS, cap=9, labels=2, prompt=[1]), "give one number for each of 2 prompts"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_policies_of_ones_own_can_be_compared():
    own = replace(SMALL, policies=lambda law, output, cap: {"first": FCFS(), "best": OracleSJF(output)})
    table = compare(own, own.server, [0, 1, 2])
    assert set(table.policy) == {"first", "best"}
    assert log_ratio(table, "mean_ptla", "first", "best").low > 0
