"""The votes that CDG is compared with, re-derived by plain loops and at their edge cases as released."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.cdg import baselines
from icml26.cdg.baselines import (
    bottom_window,
    deepconf_mean,
    deepconf_tail,
    gradient_vote,
    majority,
    minimum_window,
    no_start,
    self_certainty_borda,
)
from icml26.cdg.traces import Trace
from icml26.cdg.voting import cdg
from icml26.errors import InputError

ANSWERS = st.sampled_from(["7", "8", "07", "", None])
QUESTIONS = st.lists(st.tuples(ANSWERS, st.integers(0, 40), st.integers(0, 10**6)), min_size=1, max_size=12)
LONG = st.lists(st.tuples(ANSWERS, st.integers(10, 40), st.integers(0, 10**6)), min_size=1, max_size=12)
METHODS = [
    majority, deepconf_mean, deepconf_tail, bottom_window, minimum_window, gradient_vote, no_start,
    self_certainty_borda, cdg,
]  # fmt: skip


def drawn(rows):
    found = []
    for answer, n, seed in rows:
        generator = np.random.default_rng(seed)
        found.append(Trace(answer, generator.gamma(9, 1, n), generator.gamma(9, 1)))
    return found


def flat(answer, level, n=20, certainty=None):
    return Trace(answer, np.full(n, float(level)), certainty)


def largest(traces, weight, threshold=None):
    """The answer with the largest sum of weights, each trace's computed by itself; the first of several."""
    totals = {}
    for trace, value in zip(traces, weight, strict=True):
        if trace.answer and (threshold is None or value >= threshold):
            totals[trace.answer] = totals.get(trace.answer, 0.0) + value
    if not totals or max(totals.values()) <= 0:
        return None
    return max(totals, key=totals.get)


def mean_of(values):
    return sum(values) / len(values) if len(values) else 0.0


def threshold_of(traces, weight, keep):
    """Linear interpolation between order statistics, as numpy.percentile does."""
    kept = sorted(value for trace, value in zip(traces, weight, strict=True) if trace.answer)
    if not kept:
        return None
    position = (1 - keep) * (len(kept) - 1)
    low = int(position)
    high = min(low + 1, len(kept) - 1)
    # What is kept may hang on rounding: a threshold at an order statistic must not pass it.
    return kept[low] + (position - low) * (kept[high] - kept[low]) - 1e-12


def lowest_windows(values, window, share):
    if len(values) < window:
        return mean_of(values)
    means = sorted(sum(values[i : i + window]) / window for i in range(len(values) - window + 1))
    return mean_of(means[: max(1, int(len(means) * share))])


@given(QUESTIONS)
@settings(max_examples=30)
def test_majority_and_mean_are_those_of_loops(rows):
    traces = drawn(rows)
    assert majority(traces) == largest(traces, [1] * len(traces))
    assert deepconf_mean(traces) == largest(traces, [mean_of(trace.confidences) for trace in traces])


@given(QUESTIONS, st.sampled_from([1, 5, 30, 2048]), st.sampled_from([0.1, 0.3, 0.5, 1.0]))
@settings(max_examples=40)
def test_the_tail_of_so_many_tokens_is_that_of_loops(rows, tail, keep):
    traces = drawn(rows)
    weight = [mean_of(trace.confidences[-tail:]) for trace in traces]
    assert deepconf_tail(traces, tail, keep) == largest(traces, weight, threshold_of(traces, weight, keep))


@given(QUESTIONS, st.sampled_from([10, 20, 50]), st.sampled_from([0.1, 0.5, 1.0]))
@settings(max_examples=30)
def test_the_tail_in_percent_is_that_of_loops(rows, percent, keep):
    traces = drawn(rows)
    weight = [mean_of(trace.confidences[-max(1, len(trace.confidences) * percent // 100) :]) for trace in traces]
    found = deepconf_tail(traces, keep=keep, percent=percent)
    assert found == largest(traces, weight, threshold_of(traces, weight, keep))


@given(QUESTIONS, st.sampled_from([1, 4, 25]), st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([0.1, 1.0]))
@settings(max_examples=30)
def test_windows_are_those_of_loops(rows, window, share, keep):
    traces = drawn(rows)
    weight = [lowest_windows(list(trace.confidences), window, share) for trace in traces]
    found = bottom_window(traces, window, share, keep)
    assert found == largest(traces, weight, threshold_of(traces, weight, keep))
    weight = [lowest_windows(list(trace.confidences), window, 1e-9) for trace in traces]
    assert minimum_window(traces, window, keep) == largest(traces, weight, threshold_of(traces, weight, keep))


@given(QUESTIONS, st.sampled_from([0, 0.3, 0.5, 1, 2]))
@settings(max_examples=30)
def test_the_borda_vote_is_that_of_loops(rows, power):
    traces = drawn(rows)
    rank = [1 + sum(other.certainty > trace.certainty for other in traces) for trace in traces]
    weight = [(len(traces) - each + 1) ** power for each in rank]
    if len(set(rank)) == len(rank):
        assert self_certainty_borda(traces, power) == largest(traces, weight)


@given(QUESTIONS)
@settings(max_examples=15)
def test_the_borda_vote_of_power_zero_is_majority(rows):
    assert self_certainty_borda(drawn(rows), 0) == majority(drawn(rows))


@given(QUESTIONS, st.sampled_from([0, 2, 10]), st.sampled_from([0, 0.5, 1]), st.sampled_from([10, 30]))
@settings(max_examples=30)
def test_no_start_and_the_gradient_vote_are_those_of_loops(rows, beta, alpha, percent):
    groups, sums = {}, {}
    for trace in drawn(rows):
        values = list(trace.confidences)
        if not trace.answer or len(values) < 10:
            continue
        k = max(1, len(values) * percent // 100)
        head, tail = mean_of(values[:k]), mean_of(values[-k:])
        groups.setdefault(trace.answer, []).append(mean_of(values) + beta * tail)
        sums[trace.answer] = sums.get(trace.answer, 0) + mean_of(values) + beta * (tail - head)
    scores = {answer: len(group) ** alpha * mean_of(group) for answer, group in groups.items()}
    expected = max(scores, key=scores.get) if scores else None
    assert no_start(drawn(rows), alpha, beta, percent) == expected
    assert gradient_vote(drawn(rows), beta, percent=percent) == (max(sums, key=sums.get) if sums else None)


@given(LONG)
@settings(max_examples=20)
def test_cdg_without_gain_and_damping_is_the_mean_vote_where_every_trace_is_long_enough(rows):
    assert cdg(drawn(rows), 1, 0) == deepconf_mean(drawn(rows))
    assert gradient_vote(drawn(rows), 0) == deepconf_mean(drawn(rows))


def test_short_traces_vote_in_all_but_cdgs_own():
    traces = [flat("7", 9, 5, 1.0), flat("7", 9, 5, 1.0), flat("8", 1, 20, 1.0)]
    for method in (majority, deepconf_mean, deepconf_tail, bottom_window, minimum_window, self_certainty_borda):
        assert method(traces) == "7"
    for method in (cdg, gradient_vote, no_start):
        assert method(traces) == "8"


@given(LONG)
@settings(max_examples=15)
def test_equal_scores_of_all_traces_make_every_sum_majority(rows):
    traces = [flat(trace.answer, 2) for trace in drawn(rows)]
    for method in (deepconf_mean, deepconf_tail, bottom_window, minimum_window, gradient_vote):
        assert method(traces) == majority(traces)
    assert cdg(traces, alpha=1) == majority(traces)


def test_the_default_tail_of_short_traces_is_the_whole_trace():
    rising, level = Trace("7", np.linspace(1, 9, 20)), flat("8", 6)
    assert deepconf_tail([rising, level]) == "8"
    assert deepconf_tail([rising, level], percent=10) == "7"


def test_the_percentile_interpolates():
    # Of 40 traces a tenth is the 4 at or above the 35.1st order statistic.
    traces = [flat("7", level) for level in range(1, 37)] + [flat("8", level) for level in range(37, 41)]
    assert deepconf_tail(traces) == "8"
    assert deepconf_tail(traces, keep=0.5) == "7"
    # Of 9 it is one.
    assert deepconf_tail([flat("7", 8)] * 8 + [flat("8", 9)]) == "8"


def test_ties_go_to_the_answer_seen_first():
    for method in METHODS:
        traces = [flat("8", 5, certainty=1.0), flat("7", 5, certainty=1.0)]
        if method is not self_certainty_borda:
            assert method(traces) == "8", method
            assert method(traces[::-1]) == "7", method
    # Equal certainties rank in the order of the traces.
    assert self_certainty_borda(traces) == "8"


@pytest.mark.parametrize("method", METHODS)
def test_equivalent_answers_are_merged_alike_by_every_method(method):
    traces = [flat("7.0", 5, certainty=4.0), flat("8", 7, certainty=5.0), flat("7", 5, certainty=3.0)]
    options = {"equal": lambda first, other: float(first) == float(other)}
    if "keep" in inspect.signature(method).parameters:
        options["keep"] = 1.0
    if method is self_certainty_borda:
        options["power"] = 1
    if method in (cdg,):
        options["alpha"] = 1
    if method is no_start:
        options |= {"alpha": 1, "beta": 0}
    assert method(traces, **options) == "7.0"
    del options["equal"]
    assert method(traces, **options) in ("8", "7.0")
    assert majority(traces[1:]) == "8"


@pytest.mark.parametrize("method", METHODS)
def test_traces_without_an_answer_do_not_vote_in_any_method(method):
    nothing = [flat(None, 50, certainty=9.0), flat("", 50, certainty=8.0)]
    assert method(nothing) is None
    assert method([*nothing, flat("7", 5, certainty=1.0)]) == "7"
    assert method([*nothing, flat("7", 5, certainty=1.0)], keep_empty=True) in ("", "7")


def test_an_unanswered_trace_keeps_its_rank():
    # Weights 3 and 1 with the unanswered trace between; without it they would be 2 and 1.
    traces = [flat("7", 1, certainty=3.0), flat(None, 1, certainty=2.0), *[flat("8", 1, certainty=1.0)] * 2]
    assert self_certainty_borda(traces, 1) == "7"  # 4 against 2 + 1
    assert self_certainty_borda([traces[0], *traces[2:]], 1) == "7"  # 3 against 2 + 1, seen first
    assert self_certainty_borda([*traces[2:], traces[0]], 1) == "8"


def test_a_trace_without_tokens_has_no_weight_but_a_vote_in_majority():
    traces = [Trace("7", np.empty(0))]
    assert majority(traces) == "7"
    assert deepconf_mean(traces) is deepconf_tail(traces) is bottom_window(traces) is None


def test_the_borda_vote_needs_the_certainty_of_every_trace():
    with pytest.raises(InputError, match="certainty"):
        self_certainty_borda([flat("7", 5, certainty=1.0), flat(None, 5)])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (deepconf_tail, {"tail": 0}),
        (deepconf_tail, {"keep": 0}),
        (deepconf_tail, {"keep": 1.5}),
        (deepconf_tail, {"percent": 0}),
        (bottom_window, {"window": 0}),
        (bottom_window, {"share": 0}),
        (bottom_window, {"keep": np.nan}),
        (minimum_window, {"window": 2.0}),
        (no_start, {"beta": "x"}),
        (no_start, {"min_length": 0}),
        (self_certainty_borda, {"power": -1}),
        (majority, {"keep_empty": "no"}),
    ],
)
def test_wrong_options_are_refused(method, options):
    with pytest.raises(InputError) as caught:
        method([flat("7", 5, certainty=1.0)], **options)
    assert "\n" not in str(caught.value)


def test_every_public_name_exists():
    assert all(hasattr(baselines, name) for name in baselines.__all__)
