"""Token confidence, self-certainty and gains of CDG, against loops over tokens and closed forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from icml26.cdg.confidence import bin_gain, bin_means, measure, self_certainty, token_confidence, window_gain
from icml26.cdg.segments import segment_sums
from icml26.cdg.traces import Question, Trace, curves, summarise, window_sizes
from icml26.errors import InputError

GENERATOR = np.random.default_rng(0)
LOGITS = GENERATOR.normal(0, 3, (4, 5, 50))
LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=8)


def looped_confidence(row, k):
    log_p = [value - math.log(sum(math.exp(other) for other in row)) for value in row]
    return -sum(sorted(log_p, reverse=True)[:k]) / k


def looped_gain(values, percent):
    k = max(1, int(len(values) * percent / 100))
    return sum(values[-k:]) / k - sum(values[:k]) / k


def ragged(lengths, seed=0):
    generator = np.random.default_rng(seed)
    return [Trace("7", generator.gamma(4, 3, n)) for n in lengths]


@pytest.mark.parametrize("k", [1, 3, 20, 50])
def test_confidence_is_the_mean_negative_log_probability_of_the_most_likely_tokens(k):
    found = token_confidence(LOGITS, k)
    assert found.shape == (4, 5)
    assert found[2, 3] == pytest.approx(looped_confidence(LOGITS[2, 3], k))
    assert np.allclose(found, [[looped_confidence(row, k) for row in rows] for rows in LOGITS])


@pytest.mark.parametrize("k", [2, 20, 50])
def test_confidence_is_log_k_plus_the_divergence_from_a_uniform_law_over_the_same_tokens(k):
    row = LOGITS[0, 0]
    p = np.sort(np.exp(row) / np.exp(row).sum())[::-1][:k]
    divergence = np.sum(1 / k * np.log(1 / k / p))  # p is not renormalised
    assert token_confidence(row, k) == pytest.approx(math.log(k) + divergence)
    assert token_confidence(row, k) >= math.log(k)


def test_flat_laws_are_the_more_confident_the_larger_the_vocabulary():
    flat = [float(token_confidence(np.zeros(size), 20)) for size in (20, 150_000)]
    assert flat == pytest.approx([math.log(20), math.log(150_000)])


def test_confidence_grows_with_the_likeliest_token_once_its_probability_passes_one_over_k():
    def found(probability):  # all other 49 tokens alike
        return token_confidence(np.log(np.array([probability] + [(1 - probability) / 49] * 49)), 20)

    assert np.all(np.diff([found(p) for p in (0.05, 0.06, 0.2, 0.9, 0.999)]) > 0)
    assert np.all(np.diff([found(p) for p in (0.02, 0.03, 0.05)]) < 0)


def test_confidence_is_not_monotone_in_entropy():
    flatter, sharper = LOGITS[0, 0] / 4, LOGITS[0, 0] / 2
    assert stats.entropy(np.exp(flatter)) > stats.entropy(np.exp(sharper))
    assert token_confidence(flatter) > token_confidence(sharper)


def test_confidence_does_not_change_with_a_constant_added_to_the_logits_and_takes_log_probabilities():
    assert np.allclose(token_confidence(LOGITS + 7), token_confidence(LOGITS))
    log_p = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
    assert np.allclose(token_confidence(log_p), token_confidence(LOGITS))


def test_self_certainty_is_confidence_over_the_whole_vocabulary_less_its_logarithm():
    assert np.allclose(self_certainty(LOGITS), token_confidence(LOGITS, 50) - math.log(50))
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    assert np.allclose(self_certainty(LOGITS), stats.entropy(np.full(50, 1 / 50), p, axis=-1))


def test_a_drawn_token_outside_of_the_most_likely_is_an_entry_more_and_raises_confidence():
    row, order = LOGITS[0, 0], np.argsort(-LOGITS[0, 0])
    plain = token_confidence(row, 20)
    assert token_confidence(row, 20, sampled=order[19]) == plain
    for rank in (20, 49):
        kept = row[order[[*range(20), rank]]]
        expected = np.log(np.exp(row).sum()) - kept.mean()
        found = token_confidence(row, 20, sampled=order[rank])
        assert found == pytest.approx(expected)
        assert found > plain


def test_confidence_rounds_as_deepconf_stores_it():
    assert np.array_equal(token_confidence(LOGITS, decimals=3), token_confidence(LOGITS).round(3))


def test_tensors_stay_tensors_and_half_precision_is_widened():
    found = token_confidence(torch.tensor(LOGITS).to(torch.bfloat16), 5)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), torch.tensor(token_confidence(LOGITS, 5)), atol=0.05)


def test_minus_infinity_is_allowed_outside_of_the_most_likely_only():
    row = LOGITS[0, 0].copy()
    row[np.argsort(-row)[30:]] = -np.inf
    assert np.isfinite(token_confidence(row, 20))
    with pytest.raises(InputError, match="raw"):
        token_confidence(row, 31)
    with pytest.raises(InputError, match="raw"):
        self_certainty(row)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_refused(bad):
    row = LOGITS[0, 0].copy()
    row[3] = bad
    with pytest.raises(InputError, match="NaN"):
        token_confidence(row)


@pytest.mark.parametrize(
    ("logits", "options"),
    [
        (LOGITS, {"k": 51}),
        (LOGITS, {"k": 0}),
        (LOGITS, {"k": True}),
        (LOGITS, {"k": 2.0}),
        (LOGITS, {"decimals": -1}),
        (np.zeros((2, 0)), {}),
        (np.zeros((2, 50), int), {}),
        ("logits", {}),
        (LOGITS, {"sampled": np.zeros((4, 4), int)}),
        (LOGITS, {"sampled": np.full((4, 5), 50)}),
        (LOGITS, {"sampled": np.zeros((4, 5))}),
    ],
)
def test_wrong_arguments_of_token_confidence_are_refused(logits, options):
    with pytest.raises(InputError) as caught:
        token_confidence(logits, **options)
    assert "\n" not in str(caught.value)


def test_what_sampling_measures_is_confidence_and_self_certainty():
    logits = torch.tensor(LOGITS[0], dtype=torch.float32)
    found = measure(5)(logits)
    assert torch.equal(found[:, 0], token_confidence(logits, 5))
    assert torch.equal(found[:, 1], self_certainty(logits))


@pytest.mark.parametrize("percent", [1, 10, 30, 50, 70])
@pytest.mark.parametrize("n", [10, 19, 60, 101])
def test_a_linear_ramp_gains_its_slope_times_all_tokens_but_one_window(n, percent):
    k = max(1, n * percent // 100)
    assert window_gain(5 + 0.25 * np.arange(n), percent) == pytest.approx(0.25 * (n - k))


@given(st.integers(10, 400), st.integers(1, 100))
@settings(max_examples=20)
def test_the_window_gain_is_that_of_a_loop(n, percent):
    values = GENERATOR.gamma(4, 3, n)
    assert window_gain(values, percent) == pytest.approx(looped_gain(list(values), percent), abs=1e-9)


def test_bins_begin_at_integer_edges():
    # int(90 * (7 / 10)) is 62.
    values = np.zeros(90)
    values[62] = 9.0
    assert bin_means(values).tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("n", [10, 37, 99, 100])
def test_bins_share_all_tokens(n):
    values = GENERATOR.gamma(4, 3, n)
    sizes = [(i + 1) * n // 10 - i * n // 10 for i in range(10)]
    assert np.dot(bin_means(values), sizes) == pytest.approx(values.sum())
    assert sizes[-1] == -(-n // 10)


@pytest.mark.parametrize("percent", [10, 20, 50])
def test_both_gains_agree_where_ten_divides_the_length(percent):
    values = GENERATOR.gamma(4, 3, 130)
    assert bin_gain(values, percent) == pytest.approx(window_gain(values, percent))
    values = GENERATOR.gamma(4, 3, 137)
    assert bin_gain(values, percent) != pytest.approx(window_gain(values, percent))


def test_gains_of_fewer_than_ten_tokens_are_zero():
    assert window_gain(np.arange(9.0)) == bin_gain(np.arange(9.0)) == 0
    assert window_gain(np.arange(10.0)) == bin_gain(np.arange(10.0)) == 9


def test_gains_scale_with_confidences_and_ignore_a_constant():
    values = GENERATOR.gamma(4, 3, 50)
    for gain in (window_gain, bin_gain):
        assert gain(3 * values) == pytest.approx(3 * gain(values))
        assert gain(values + 2) == pytest.approx(gain(values))


@pytest.mark.parametrize("call", [lambda: bin_gain(np.ones(20), 15), lambda: window_gain(np.ones(20), 0),
                                  lambda: window_gain(np.ones(20), 101), lambda: window_gain(np.ones(20), 10.0),
                                  lambda: window_gain([]), lambda: window_gain([1.0, np.nan]),
                                  lambda: window_gain(-np.ones(20)), lambda: window_gain([[1.0]]),
                                  lambda: bin_means(np.ones(9)), lambda: curves([], 10),
                                  lambda: summarise([]), lambda: summarise([[]])])  # fmt: skip
def test_wrong_traces_and_percentages_are_refused(call):
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)


@given(LENGTHS, st.integers(1, 100), st.sampled_from([np.float16, np.float32, np.float64]))
@settings(max_examples=25)
def test_statistics_of_ragged_traces_are_those_of_loops(lengths, percent, dtype):
    traces = [trace._replace(confidences=trace.confidences.astype(dtype)) for trace in ragged(lengths)]
    summary = summarise([traces, traces[:1]], percent)
    assert summary.question.tolist() == [0] * len(lengths) + [1]
    for row, trace in enumerate(traces):
        values = [float(value) for value in trace.confidences]
        assert summary.n[row] == len(values)
        if not values:
            assert np.isnan([summary.mean[row], summary.head[row], summary.gain[row]]).all()
            continue
        k = max(1, len(values) * percent // 100)
        assert summary.size[row] == k
        expected = [sum(values) / len(values), sum(values[:k]) / k, sum(values[-k:]) / k, looped_gain(values, percent)]
        found = [column[row] for column in (summary.mean, summary.head, summary.tail, summary.gain)]
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(LENGTHS, st.integers(1, 12))
@settings(max_examples=20)
def test_curves_of_ragged_traces_are_those_of_loops(lengths, bins):
    traces = ragged(lengths)
    found = curves([traces], bins)
    for row, trace in enumerate(traces):
        n = len(trace.confidences)
        if n < bins:
            assert np.isnan(found[row]).all()
        else:
            parts = [trace.confidences[i * n // bins : (i + 1) * n // bins] for i in range(bins)]
            assert found[row] == pytest.approx([part.mean() for part in parts])


def test_sums_of_stored_half_precision_are_exact():
    values = np.full(60_000, 10.1, np.float16)
    assert summarise([[("7", values)]]).mean[0] == float(np.float16(10.1))


def test_questions_are_read_one_at_a_time():
    held = []

    def questions():
        for _ in range(3):
            held.append("read")
            yield ragged([20, 30])

    assert len(summarise(questions()).n) == 6
    assert len(held) == 3


def test_a_question_is_a_sequence_of_its_traces():
    traces = [Trace("7", np.arange(3.0), 0.5), Trace(None, np.empty(0)), Trace("8", np.arange(2.0))]
    question = Question.of(traces)
    assert Question.of(question) is question
    assert len(question) == 3
    for trace, again in zip(traces, question, strict=True):
        assert (trace.answer, trace.certainty) == (again.answer, again.certainty)
        assert np.array_equal(trace.confidences, again.confidences)
    assert question[-1].answer == "8"
    with pytest.raises(IndexError):
        question[3]


@given(LENGTHS, st.randoms())
@settings(max_examples=15)
def test_taking_traces_is_taking_them_from_the_list(lengths, random):
    traces = ragged(lengths)
    rows = [random.randrange(len(traces)) for _ in range(5)]
    taken, expected = Question.of(traces).take(rows), Question.of([traces[row] for row in rows])
    assert np.array_equal(taken.confidences, expected.confidences)
    assert np.array_equal(taken.lengths, expected.lengths)


@given(LENGTHS)
@settings(max_examples=15)
def test_a_part_of_a_question_is_a_part_of_each_trace(lengths):
    traces = ragged(lengths)
    starts = [n // 3 for n in lengths]
    stops = [n - n // 4 for n in lengths]
    part = Question.of(traces).part(starts, stops)
    for trace, row, start, stop in zip(traces, part, starts, stops, strict=True):
        assert np.array_equal(row.confidences, trace.confidences[start:stop])
    with pytest.raises(InputError, match="start"):
        Question.of(traces).part(0, np.array(lengths) + 1)


def test_empty_stretches_sum_to_zero():
    starts, stops = np.array([0, 2, 5, 5]), np.array([2, 2, 5, 6])
    assert segment_sums(np.arange(6.0), starts, stops).tolist() == [1, 0, 0, 5]


@pytest.mark.parametrize("block", [1, 40, 1000])
def test_sums_do_not_change_with_the_size_of_blocks(block, monkeypatch):
    traces = ragged([3, 0, 50, 30, 17, 0, 40])
    whole = [summarise([traces], percent) for percent in (10, 80)], curves([traces], 4)
    monkeypatch.setattr("icml26.cdg.segments._BLOCK", block)
    for percent, expected in zip((10, 80), whole[0], strict=True):
        assert np.allclose(summarise([traces], percent).gain, expected.gain, equal_nan=True)
        assert np.allclose(summarise([traces[2:5]], percent).mean, expected.mean[2:5])
    assert np.allclose(curves([traces], 4), whole[1], equal_nan=True)


def test_window_sizes_truncate_as_the_released_code_does():
    n = np.arange(1, 3000)
    for percent in (5, 10, 15, 30, 100):
        assert np.array_equal(window_sizes(n, percent), [max(1, int(each * percent / 100)) for each in n])


@pytest.mark.parametrize(
    "traces",
    [
        [(7, [1.0])],
        [("7", [1.0], 0.1, 2)],
        ["7"],
        [("7", "abc")],
        [("7", [1.0], np.inf)],
        [("7", [True, False])],
        [("7", [-1.2])],
        [("7", [np.inf])],
        7,
        Trace("7", np.ones(3)),
    ],
)
def test_what_is_no_question_is_refused(traces):
    with pytest.raises(InputError) as caught:
        Question.of(traces)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tensor", [torch.ones(3, dtype=torch.bfloat16), torch.ones(3, requires_grad=True)])
def test_tensors_that_numpy_cannot_read_are_refused_with_the_remedy(tensor):
    for make in (
        lambda: Question.of([("7", tensor)]),
        lambda: Question(["7"], tensor, [3]),
        lambda: Question(["7", "8", "9"], np.ones(3), [1, 1, 1], tensor),
    ):
        with pytest.raises(InputError, match=r"\.float\(\)"):
            make()
    assert Question.of([("7", tensor.detach().float().cpu().numpy())]).confidences.tolist() == [1, 1, 1]


@pytest.mark.parametrize("rows", [[], [2], [-3], [0.0], [[0]], [True, False], 0, [[0], [0, 1]]])
def test_what_are_no_rows_of_a_question_is_refused(rows):
    with pytest.raises(InputError, match="rows"):
        Question.of([("7", [1.0]), ("8", [2.0])]).take(rows)


@pytest.mark.parametrize("ends", [([0, 0, 0], 1), (0, [[1], [1, 2]]), (0.0, 1), (0, [[1, 1]])])
def test_what_are_no_ends_of_stretches_is_refused(ends):
    with pytest.raises(InputError, match=r"starts|stops"):
        Question.of([("7", [1.0]), ("8", [2.0])]).part(*ends)


def test_a_slice_of_a_question_is_a_list_of_traces():
    question = Question.of([("7", [1.0]), ("8", [2.0]), ("9", [3.0])])
    assert [trace.answer for trace in question[1:]] == ["8", "9"]
    assert question[5:] == []


@pytest.mark.parametrize("sampled", ["7", [[0], [0, 1]], None.__class__])
def test_drawn_tokens_that_are_no_array_are_refused(sampled):
    with pytest.raises(InputError, match="sampled") as caught:
        token_confidence(np.zeros((2, 4)), 2, sampled=sampled)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ("777", np.ones(3), [1, 1, 1]),
        (7, np.ones(3), [3]),
        (["7"], np.ones(3), [[1], [1, 1]]),
        (["7"], np.ones(3), [3], ["high"]),
        (["7"], np.ones(3), [3], [True]),
        (["7"], np.ones(3), [2]),
        (["7"], np.ones(3), [3.0]),
        (["7", "8"], np.ones(3), [4, -1]),
        (["7"], np.ones(3), [3], [1.0, 2.0]),
        ([], np.ones(0), []),
    ],
)
def test_parts_of_a_question_must_fit_together(arguments):
    with pytest.raises(InputError):
        Question(*arguments)
