"""Tests of fit: fits and distances beside scipy's, calibration under the null, power, and shapes of samples."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from icml26.errors import InputError
from icml26.tie.families import FAMILIES, sample_of
from icml26.tie.fit_tests import _anderson_darling, _kolmogorov_smirnov, fit_p_values, shape_statistics
from icml26.tie.laws import LogTLaw

TRUTHS = {
    "log-t": (np.log(40), 0.6, 3.5),
    "log-t-free": (np.log(40), 0.6, 3.5),
    "log-normal": (np.log(40), 0.6),
    "gamma": (1.5, 30),
    "weibull": (1.2, 45),
    "geometric": (1 / 40,),
}


def drawn(family, prompts, samples, cap, seed=0):
    generator = np.random.default_rng(seed)
    parameters = np.repeat(np.array(TRUTHS[family], float)[:, None], prompts, axis=1)
    return sample_of(FAMILIES[family].draw(parameters, generator, samples), cap, generator)


@pytest.mark.parametrize("cap", [None, 60])
@pytest.mark.parametrize(
    ("family", "law", "order"),
    [("gamma", stats.gamma, (0, 1)), ("weibull", stats.weibull_min, (0, 1)), ("log-normal", stats.lognorm, (1, 0))],
)
def test_fits_are_scipys_maximum_likelihood_with_censored_data(family, law, order, cap):
    sample = drawn(family, 4, 60, cap)
    found = FAMILIES[family].fit(sample)
    for i, (values, seen) in enumerate(zip(sample.values, sample.seen, strict=True)):
        data = stats.CensoredData.right_censored(np.minimum(values, sample.end), ~seen)
        shape, _, scale = law.fit(data, floc=0)
        ours = found[order[0], i], found[order[1], i]
        assert (ours[0], np.exp(ours[1]) if family == "log-normal" else ours[1]) == pytest.approx(
            (shape, scale), rel=1e-3
        )


@pytest.mark.parametrize("cap", [None, 30])
def test_the_geometric_fit_has_the_greatest_likelihood_of_whole_lengths(cap):
    sample = drawn("geometric", 3, 50, cap)
    found = FAMILIES["geometric"].fit(sample)[0]
    tried = np.linspace(0.001, 0.2, 4000)
    for i, (lengths, seen) in enumerate(zip(sample.lengths, sample.seen, strict=True)):
        likelihood = stats.geom.logpmf(lengths[seen, None], tried).sum(axis=0)
        if cap is not None:
            likelihood += (~seen).sum() * stats.geom.logsf(cap - 1, tried)  # at least the cap
        assert found[i] == pytest.approx(tried[likelihood.argmax()], abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_follow_the_distribution_function(family):
    sample = drawn(family, 1, 20_000, None)
    parameters = np.array(TRUTHS[family], float)[:, None]
    uniform = FAMILIES[family].cdf(parameters, sample.values)[0]
    assert stats.kstest(uniform, "uniform").statistic < 0.015


def test_the_geometric_distribution_function_is_scipys_between_tokens():
    whole = np.arange(1, 60)
    found = FAMILIES["geometric"].cdf(np.array([[0.07]]), whole[None] + 0.5)
    assert found[0] == pytest.approx(stats.geom.cdf(whole, 0.07), rel=1e-12)


@pytest.mark.parametrize("family", ["log-t", "gamma", "geometric"])
def test_distances_without_a_cap_are_the_textbooks(family):
    law, sample = FAMILIES[family], drawn(family, 5, 30, None)
    parameters = law.fit(sample)
    u = np.sort(law.cdf(parameters, sample.values), axis=1)
    kolmogorov = [stats.kstest(row, "uniform").statistic for row in u]
    assert _kolmogorov_smirnov(law, parameters, sample) == pytest.approx(kolmogorov, rel=1e-12)
    i = np.arange(1, 31)
    anderson = -30 - ((2 * i - 1) / 30 * (np.log(u) + np.log1p(-u[:, ::-1]))).sum(axis=1)
    assert _anderson_darling(law, parameters, sample) == pytest.approx(anderson, rel=1e-9)


def test_distances_with_a_cap_look_below_it_only():
    law, sample = FAMILIES["weibull"], drawn("weibull", 3, 40, 50)
    parameters = law.fit(sample)
    end = law.cdf(parameters, np.full((3, 1), sample.end))[:, 0]
    u = np.where(sample.seen, law.cdf(parameters, sample.values), 2)
    for row, last, *found in zip(
        u, end, _kolmogorov_smirnov(law, parameters, sample), _anderson_darling(law, parameters, sample), strict=True
    ):
        grid = np.linspace(0, last, 200_001)[1:]
        empirical = np.searchsorted(np.sort(row), grid, side="right") / row.size
        assert found[0] == pytest.approx(np.abs(empirical - grid).max(), abs=1e-5)
        cuts = [0, *np.sort(row[row < last]), last]
        pieces = [
            integrate.quad(lambda x, k=k: (k / 40 - x) ** 2 / (x * (1 - x)), a, b)[0]
            for k, (a, b) in enumerate(pairwise(cuts))
        ]
        assert found[1] == pytest.approx(40 * sum(pieces), rel=1e-7)


@pytest.mark.parametrize(
    ("family", "statistic", "cap"),
    [("log-t", "ks", 60), ("log-normal", "ad", None), ("gamma", "ad", 60), ("weibull", "ks", None),
     ("geometric", "ks", 20)],
)  # fmt: skip
def test_a_true_family_is_rejected_as_often_as_the_level_says(family, statistic, cap):
    lengths = drawn(family, 150, 25, cap, seed=7).lengths.astype(int)
    p = fit_p_values(lengths, cap, family, statistic=statistic, resamples=39, seed=1)
    for level in (0.05, 0.25, 0.5):
        deviation = (level * (1 - level) / p.size) ** 0.5
        assert abs((p <= level).mean() - level) < 3.5 * deviation


def test_the_bootstrap_agrees_with_scipys_goodness_of_fit():
    lengths = drawn("gamma", 3, 60, None, seed=3).lengths.astype(int) * 1000  # so long that rounding does not count
    ours = fit_p_values(lengths, None, "log-normal", resamples=999, seed=0)
    for row, p in zip(lengths, ours, strict=True):
        found = stats.goodness_of_fit(
            stats.lognorm, row, known_params={"loc": 0}, statistic="ks", n_mc_samples=999, rng=np.random.default_rng(0)
        )
        assert p == pytest.approx(found.pvalue, abs=4 * (2 * p * (1 - p) / 999) ** 0.5 + 0.005)


def test_wrong_families_are_rejected_and_the_true_one_passes():
    lengths = LogTLaw(np.full(20, 4.0), 0.5).sample(np.random.default_rng(2), 2048, 100)
    rates = {name: (fit_p_values(lengths, 2048, name, resamples=39, seed=0) > 0.05).mean() for name in FAMILIES}
    assert min(rates["log-t"], rates["log-t-free"]) >= 0.8
    assert rates["log-normal"] < 0.8
    assert max(rates["gamma"], rates["weibull"], rates["geometric"]) < 0.3


def test_the_textbooks_p_value_is_lenient_and_the_held_out_one_is_not():
    lengths = drawn("log-normal", 60, 40, 120, seed=4).lengths.astype(int)
    p = {m: fit_p_values(lengths, 120, "log-normal", method=m, resamples=39, seed=0) for m in ("bootstrap", "plain")}
    assert (p["plain"] > 0.05).all()
    assert p["plain"].mean() > p["bootstrap"].mean() + 0.2
    held_out = fit_p_values(lengths, 120, "log-normal", method="held-out", seed=0)
    assert (held_out > 0.05).mean() < 1
    swapped = fit_p_values(np.where(np.arange(40) < 20, lengths, 1), 120, "log-normal", method="held-out", seed=0)
    assert swapped.max() < 1e-6  # the second half is what is tested


def test_prompts_of_which_too_little_is_seen_have_no_p_value_and_the_seed_decides_the_rest():
    lengths = drawn("geometric", 3, 30, 60).lengths.astype(int)
    lengths[1], lengths[2, 4:] = 60, 60
    lines = []
    p = fit_p_values(lengths, 60, "gamma", resamples=19, seed=0, progress=lines.append)
    assert np.isnan(p).tolist() == [False, True, True]
    assert lines == ["gamma: 1 of 1 prompts"]
    assert fit_p_values(lengths, 60, "gamma", resamples=19, seed=0)[0] == p[0]
    assert np.isnan(fit_p_values(lengths[1:], 60, "gamma", seed=0)).all()


def test_shapes_are_scipys_and_the_top_tenth_is_counted_by_hand():
    lengths = np.random.default_rng(0).geometric(0.01, (5, 100))
    found = shape_statistics(lengths)
    assert found.skewness == pytest.approx(stats.skew(lengths, axis=1))
    assert found.cv == pytest.approx(stats.variation(lengths, axis=1))
    assert found.p99_over_p50 == pytest.approx(np.percentile(lengths, 99, axis=1) / np.median(lengths, axis=1))
    row = lengths[0].tolist()
    assert found.top_share[0] == sum(sorted(row)[90:]) / sum(row)
    assert found.pooled["skewness"] == pytest.approx(stats.skew(lengths, axis=None))
    assert found.pooled["top_share"] == pytest.approx(np.sort(lengths.ravel())[450:].sum() / lengths.sum())
    tripled = shape_statistics(3 * lengths)
    assert tripled.skewness == pytest.approx(found.skewness)
    assert tripled.top_share == pytest.approx(found.top_share)


def test_the_distribution_function_of_log_t_is_that_of_the_logarithm():
    parameters = np.array([[3.0], [0.5], [3.5]])
    values = np.array([[5.0, 20.0, 300.0]])
    expected = special.stdtr(3.5, (np.log(values) - 3) / 0.5)
    assert FAMILIES["log-t"].cdf(parameters, values) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"family": "lognormal"}, "did you mean 'log-normal'"),
        ({"family": ["log-t"]}, r"family=\['log-t'\] must be one of"),
        ({"statistic": ["ks"]}, r"statistic=\['ks'\] must be"),
        ({"method": "bayes"}, "method='bayes'"),
        ({"statistic": "cvm"}, "statistic='cvm'"),
        ({"statistic": "ad", "method": "plain"}, "with method='bootstrap'"),
        ({"resamples": 5}, "at least 19"),
        ({"seed": -1}, "seed=-1"),
        ({"cap": 3}, "above cap=3"),
        ({"lengths": np.ones((2, 5), int)}, "at least 10 samples"),
        ({"lengths": np.ones((2, 10))}, "integers"),
    ],
)
def test_bad_input_is_one_line_that_names_it(options, words):
    arguments = {"lengths": np.full((1, 10), 4), "cap": 9, "family": "gamma", "seed": 0, **options}
    with pytest.raises(InputError, match=words) as caught:
        fit_p_values(**arguments)
    assert "\n" not in str(caught.value)
