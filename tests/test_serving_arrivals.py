"""Arrival processes have the rates and the burstiness that they promise; recorded traces are read to the digit."""

import numpy as np
import pytest
from scipy import stats

from icml26 import data
from icml26.errors import InputError, MissingData
from icml26.serving import Workload
from icml26.serving_arrivals import at_once, azure_trace, gamma, poisson, replay


def test_gaps_of_a_poisson_process_are_exponential_and_independent():
    gaps = np.diff(poisson(4.0, 20_000, seed=1), prepend=0.0)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 4.0)).pvalue > 0.01
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / gaps.size**0.5


@pytest.mark.parametrize("cv", [0.5, 2.0])
def test_gamma_gaps_have_the_rate_and_the_coefficient_of_variation_in_every_part(cv):
    gaps = np.diff(gamma(10.0, cv, 40_000, seed=2), prepend=0.0)
    assert stats.kstest(gaps, "gamma", args=(1 / cv**2, 0, cv**2 / 10)).pvalue > 0.01
    for part in np.split(gaps, 4):  # stationary: gaps are not sorted
        assert part.mean() == pytest.approx(0.1, rel=4 * cv / part.size**0.5)
        assert part.std() / part.mean() == pytest.approx(cv, rel=0.1)


def test_bursty_arrivals_come_in_clumps():
    counts = [np.bincount(gamma(10.0, cv, 20_000, seed=3).astype(int)) for cv in (0.3, 1.0, 4.0)]
    dispersion = [count.var() / count.mean() for count in counts]
    assert dispersion[0] < 0.4 < dispersion[1] < 2 < 5 < dispersion[2]


def test_equal_seeds_give_equal_arrivals_and_a_generator_goes_on():
    assert np.array_equal(gamma(2.0, 2.0, 50, 7), gamma(2.0, 2.0, 50, np.random.default_rng(7)))
    rng = np.random.default_rng(7)
    assert not np.array_equal(poisson(2.0, 50, rng), poisson(2.0, 50, rng))


@pytest.mark.parametrize("arrival", [poisson(3.0, 40, 0), gamma(3.0, 5.0, 40, 0), at_once(40), replay([5.0, 5.0, 9.0])])
def test_all_arrivals_make_a_workload(arrival):
    assert len(Workload(arrival, np.ones(arrival.size, int), np.ones(arrival.size, int))) == arrival.size


def test_a_replay_scales_gaps():
    times = np.array([100.0, 100.0, 104.0, 110.0])
    assert replay(times).tolist() == [0.0, 0.0, 4.0, 10.0]
    np.testing.assert_allclose(np.diff(replay(times, 0.25)), 0.25 * np.diff(times))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: poisson(0.0, 5, 0), "rate=0.0 must be a positive finite number"),
        (lambda: poisson(1e-320, 5, 0), "rate=1e-320 must be a positive finite number, from 1e-09"),
        (lambda: gamma(1.0, 1e200, 5, 0), r"cv=1e\+200 must be a positive finite number, from 0.001 to 1000"),
        (lambda: gamma(1.0, 1e-200, 5, 0), "cv=1e-200 must be a positive finite number"),
        (lambda: poisson("1", 5, 0), "rate='1' must be a positive finite number"),
        (lambda: gamma(1.0, float("nan"), 5, 0), "cv=nan must be a positive finite number"),
        (lambda: poisson(1.0, 0, 0), "n=0 must be an integer of at least 1"),
        (lambda: at_once(True), "n=True must be an integer of at least 1"),
        (lambda: poisson(1.0, 5, -1), "seed=-1 must be an integer of at least 0 or a numpy Generator"),
        (lambda: poisson(1.0, 5, None), "seed=None must be an integer"),
        (lambda: replay([1.0, 0.5]), r"times of shape \(2,\) must be one row of finite seconds in ascending order"),
        (lambda: replay([]), r"times of shape \(0,\)"),
        (lambda: replay([0.0, np.inf]), "finite seconds"),
        (lambda: replay(["a"]), "times must be seconds"),
        (lambda: replay([1.0], 0.0), "scale=0.0 must be a positive finite number"),
        (lambda: azure_trace("azure"), "name='azure' must be 'azure-conv' or 'azure-code'$"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_recorded_trace_is_read_to_the_digit(tmp_path, monkeypatch):
    file = tmp_path / "trace.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 23:59:59.9799601,4808,10\n"
        "2023-11-17 00:00:01.0000001,3,8\n"
    )
    monkeypatch.setattr(data, "path", lambda name: file)
    trace = azure_trace("azure-conv")
    np.testing.assert_allclose(trace.arrival, [0.0, 1.02004], rtol=1e-12)
    assert trace.prompt.tolist() == [4808, 3]
    assert trace.output.tolist() == [10, 8]


def test_a_missing_trace_says_how_to_have_it(tmp_path, monkeypatch):
    monkeypatch.delenv("ICML26_DATA", raising=False)
    monkeypatch.setenv("ICML26_CACHE", str(tmp_path))
    with pytest.raises(MissingData, match=r"icml26 data get azure-code.*ICML26_DATA"):
        azure_trace("azure-code")


@pytest.mark.parametrize(
    ("name", "requests", "seconds", "mean", "median", "gap_cv"),
    [("azure-conv", 19_366, 3502, 211.1, 129, 1.09), ("azure-code", 8_819, 3436, 27.9, 13, 13.2)],
)
def test_the_recorded_traces_are_the_published_ones(name, requests, seconds, mean, median, gap_cv):
    if not data.available(name):
        pytest.skip(f"needs the trace: icml26 data get {name}")
    trace = azure_trace(name)
    assert len(Workload(*trace)) == requests
    assert trace.arrival[-1] == pytest.approx(seconds, abs=0.5)
    assert trace.output.mean() == pytest.approx(mean, abs=0.05)
    assert np.median(trace.output) == median
    gaps = np.diff(trace.arrival)
    assert gaps.std() / gaps.mean() == pytest.approx(gap_cv, rel=0.01)
