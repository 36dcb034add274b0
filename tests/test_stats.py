"""Intervals cover what they should, exploit pairing, repeat by seed, and refuse what resampling cannot answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from icml26.errors import InputError
from icml26.stats import (
    Interval,
    bootstrap_interval,
    cluster_sums,
    paired_difference,
    root_ratio_of_sums,
    seeds,
    t_interval,
    wilson_interval,
)

samples = arrays(float, st.integers(2, 30), elements=st.floats(-1e3, 1e3))


@pytest.mark.parametrize("method", ["percentile", "BCa"])
def test_a_95_per_cent_interval_of_a_mean_covers_the_truth_about_95_times_in_100(method):
    rng = np.random.default_rng(1)
    # 400 samples of 60 at once: leading axes are independent.
    found = bootstrap_interval(np.mean, rng.normal(3.0, 2.0, (400, 60)), seed=2, resamples=600, method=method)
    covered = np.mean((found.low <= 3.0) & (found.high >= 3.0))
    assert 0.91 <= covered <= 0.98
    # and its width is that of the normal theory
    assert np.mean(found.high - found.low) == pytest.approx(2 * 1.96 * 2.0 / np.sqrt(60), rel=0.05)


def test_a_higher_level_gives_a_wider_interval():
    sample = np.random.default_rng(0).normal(size=50)
    half, most = (bootstrap_interval(np.mean, sample, seed=0, level=level) for level in (0.5, 0.99))
    assert most.low < half.low < half.value < half.high < most.high


def test_pairing_cancels_what_the_items_have_in_common():
    rng = np.random.default_rng(3)
    common = rng.normal(0, 10, 200)
    a, b = common + rng.normal(1, 0.1, 200), common + rng.normal(0, 0.1, 200)

    def difference(first, second, axis):
        return first.mean(axis) - second.mean(axis)

    paired = bootstrap_interval(difference, a, b, seed=0)
    unpaired = bootstrap_interval(difference, a, b, seed=0, paired=False)
    assert paired == paired_difference(a, b, seed=0)
    assert paired.value == unpaired.value == pytest.approx(1, abs=0.05)
    assert paired.high - paired.low < 0.05 < 1 < unpaired.high - unpaired.low


def test_unpaired_samples_may_differ_in_length():
    def difference(first, second, axis):
        return first.mean(axis) - second.mean(axis)

    low, high = bootstrap_interval(difference, np.arange(9.0), np.arange(5.0), seed=0, paired=False).interval
    assert low < 2 < high
    with pytest.raises(InputError, match=r"\[9, 5\] items; give equal lengths or paired=False"):
        bootstrap_interval(difference, np.arange(9.0), np.arange(5.0), seed=0)


@given(samples, st.integers(0, 2**32))
def test_the_seed_decides_the_interval(sample, seed):
    assert bootstrap_interval(np.mean, sample, seed=seed, resamples=50) == bootstrap_interval(
        np.mean, sample, seed=seed, resamples=50
    )


def test_another_seed_gives_another_interval():
    sample = np.random.default_rng(0).normal(size=40)
    assert bootstrap_interval(np.mean, sample, seed=0) != bootstrap_interval(np.mean, sample, seed=1)


@given(samples)
def test_the_interval_lies_within_the_sample_and_the_value_is_the_sample_s_own(sample):
    found = bootstrap_interval(np.mean, sample, seed=0, resamples=100)
    slack = 1e-9 * (1 + np.abs(sample).max())
    assert sample.min() - slack <= found.low <= found.high <= sample.max() + slack
    assert found.value == np.mean(sample)


@pytest.mark.parametrize("method", ["percentile", "basic", "BCa"])
def test_a_constant_sample_gives_an_interval_of_zero_width(method):
    assert bootstrap_interval(np.mean, [4.0] * 8, seed=0, method=method) == Interval(4.0, 4.0, 4.0)
    curves = np.stack([np.full(8, 4.0), np.arange(8.0)])
    found = bootstrap_interval(np.mean, curves, seed=0, method=method)
    assert found.low[0] == found.high[0] == 4.0
    assert found.low[1] < 3.5 < found.high[1]


@pytest.mark.parametrize("method", ["percentile", "BCa"])
def test_a_constant_difference_of_changing_items_gives_an_interval_of_zero_width(method):
    items = np.arange(16.0)
    assert paired_difference(items + 0.5, items, seed=0, method=method).interval == (0.5, 0.5)


def test_the_interval_of_a_long_sample_does_not_depend_on_how_resamples_are_batched(monkeypatch):
    sample = np.random.default_rng(0).normal(size=64)
    whole = bootstrap_interval(np.mean, sample, seed=0, resamples=500)
    monkeypatch.setattr("icml26.stats._WORKSPACE", 64 * 7)
    assert bootstrap_interval(np.mean, sample, seed=0, resamples=500).interval == pytest.approx(
        whole.interval, abs=0.02
    )


def test_relative_error_is_that_of_the_concatenated_blocks_and_not_the_mean_of_ratios():
    rng = np.random.default_rng(4)
    weights, errors = rng.normal(size=(2, 50, 16))
    found = bootstrap_interval(root_ratio_of_sums, (errors**2).sum(-1), (weights**2).sum(-1), seed=0)
    assert found.value == pytest.approx(np.linalg.norm(errors) / np.linalg.norm(weights))
    assert found.low < found.value < found.high


def test_resampling_dependent_items_by_cluster_widens_the_interval():
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(40), 8)
    items = np.repeat(rng.normal(size=40), 8)  # items of a group are alike
    single = bootstrap_interval(np.mean, items, seed=0)
    grouped = bootstrap_interval(np.mean, cluster_sums(items, groups) / 8, seed=0)
    assert grouped.value == pytest.approx(single.value)
    ratio = (grouped.high - grouped.low) / (single.high - single.low)
    assert ratio == pytest.approx(np.sqrt(8), rel=0.15)


@given(arrays(float, (3, 20), elements=st.floats(-1e3, 1e3)), arrays(int, 20, elements=st.integers(-3, 3)))
def test_cluster_sums_are_the_sums_over_equal_labels(values, labels):
    expected = [values[:, labels == label].sum(axis=1) for label in np.unique(labels)]
    np.testing.assert_allclose(cluster_sums(values, labels), np.transpose(expected), atol=1e-9)


def test_a_short_last_group_is_a_cluster_of_its_own():
    np.testing.assert_array_equal(cluster_sums(np.ones(10), np.arange(10) // 4), [4, 4, 2])
    with pytest.raises(InputError, match="one label for each"):
        cluster_sums(np.ones(10), np.arange(9))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval(np.mean, seed=0), "at least one array"),
        (lambda: bootstrap_interval(np.mean, [1.0], seed=0), "at least two items"),
        (lambda: bootstrap_interval(np.mean, 1.0, seed=0), "at least two items"),
        (lambda: bootstrap_interval(np.mean, [1.0, np.nan], seed=0), "not finite"),
        (lambda: bootstrap_interval(np.mean, [1.0, np.inf], seed=0), "not finite"),
        (lambda: bootstrap_interval(np.mean, [1.0, 2.0], seed=0, level=95), "level=95 must lie between 0 and 1"),
        (lambda: bootstrap_interval(np.mean, [1.0, 2.0], seed=0, resamples=1), "resamples=1"),
        (lambda: bootstrap_interval(np.mean, [1.0, 2.0], seed=0, method="bca"), "method='bca'"),
        (lambda: bootstrap_interval(len, [1.0, 2.0], seed=0), "statistic len failed"),
        (lambda: bootstrap_interval(lambda x, axis: x.mean(), [1.0, 2.0], seed=0), "reduce axis=-1 alone"),
        (
            lambda: bootstrap_interval(root_ratio_of_sums, [0.0, 1.0], [0.0, 1.0], seed=0),
            "not finite on some resamples",
        ),
        (lambda: seeds(-1, 2), "must not be negative"),
    ],
)
def test_what_cannot_be_resampled_is_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message):
        call()


@given(st.integers(0, 2**63), st.integers(0, 20), st.integers(0, 20))
def test_seeds_are_distinct_plain_numbers_and_more_of_them_keep_the_first(root, few, more):
    longer = seeds(root, few + more)
    assert longer[:few] == seeds(root, few)
    assert len(set(longer)) == few + more
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in longer)


def test_neighbouring_roots_give_unrelated_seeds():
    assert not set(seeds(0, 50)) & set(seeds(1, 50))


@pytest.mark.parametrize(
    ("options", "name"),
    [({"seed": wrong}, "seed") for wrong in (-1, "x", None, 1.0, True)]
    + [({"level": "0.9"}, "level"), ({"resamples": 9.5}, "resamples"), ({"resamples": "9"}, "resamples")],
)
def test_options_of_the_wrong_type_are_refused_in_one_line(options, name):
    with pytest.raises(InputError, match=rf"^{name}=[^\n]*$"):
        bootstrap_interval(np.mean, [1.0, 2.0, 3.0], **{"seed": 0} | options)


def test_samples_that_are_no_numbers_are_refused():
    with pytest.raises(InputError, match=r"^samples[^\n]*$"):
        bootstrap_interval(np.mean, ["a", "b"], seed=0)
    with pytest.raises(InputError, match=r"^root"):
        seeds("0", 2)


def test_a_t_interval_is_scipys_and_covers_few_normal_items_as_often_as_it_says():
    samples = np.random.default_rng(4).normal(3.0, 2.0, (2000, 6))
    found = t_interval(samples, level=0.9)
    expected = stats.ttest_1samp(samples, 0.0, axis=-1).confidence_interval(0.9)
    np.testing.assert_allclose(found.interval, (expected.low, expected.high))
    np.testing.assert_allclose(found.value, samples.mean(-1))
    assert 0.88 <= np.mean((found.low <= 3.0) & (found.high >= 3.0)) <= 0.92


def test_a_t_interval_of_equal_items_is_their_value():
    assert t_interval([0.1] * 3).interval == pytest.approx((0.1, 0.1), abs=1e-15)
    low, high = t_interval([0.1] * 3).interval
    assert low == high


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: t_interval([1.0]), r"sample 0 has shape \(1,\); an interval needs at least two items"),
        (lambda: t_interval([1.0, np.nan]), "sample 0 holds values that are not finite"),
        (lambda: t_interval([1.0, 2.0], level=95), "level=95 must lie between 0 and 1"),
        (lambda: t_interval("many"), "samples must be arrays of numbers"),
    ],
)
def test_a_t_interval_refuses_what_has_no_spread(call, message):
    with pytest.raises(InputError, match=message):
        call()


@given(st.integers(1, 200), st.data(), st.sampled_from([0.5, 0.95, 0.99]))
def test_the_ends_of_a_wilson_interval_are_where_the_score_test_begins_to_reject(n, data, level):
    successes = data.draw(st.integers(0, n))
    found = wilson_interval(successes, n, level=level)
    assert found.value == successes / n
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
    quantile = stats.norm.isf((1 - level) / 2)
    for end in found.interval:  # (share - p)^2 = z^2 p (1 - p) / n
        assert (found.value - end) ** 2 == pytest.approx(quantile**2 * end * (1 - end) / n, abs=1e-9)


def test_a_wilson_interval_covers_a_small_probability_about_as_often_as_it_says():
    n, p = 60, 0.1
    weights = stats.binom.pmf(np.arange(n + 1), n, p)
    inside = [low <= p <= high for _, low, high in (wilson_interval(k, n) for k in range(n + 1))]
    assert 0.93 <= weights @ inside <= 0.98


def test_swapping_success_and_failure_mirrors_a_wilson_interval():
    found, mirrored = wilson_interval(3, 17), wilson_interval(14, 17)
    assert found.interval == pytest.approx((1 - mirrored.high, 1 - mirrored.low))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wilson_interval(0, 0), "n=0 must be an integer of at least 1"),
        (lambda: wilson_interval(0.5, 2), "successes=0.5 must be an integer of at least 0 and at most 2"),
        (lambda: wilson_interval(3, 2), "successes=3 must be an integer of at least 0 and at most 2"),
        (lambda: wilson_interval(True, 2), "successes=True must be an integer"),
        (lambda: wilson_interval(1, 2, level=95), "level=95 must lie between 0 and 1"),
    ],
)
def test_a_wilson_interval_refuses_what_is_no_count(call, message):
    with pytest.raises(InputError, match=message):
        call()
