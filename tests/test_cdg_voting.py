"""CDG's vote, its edge cases as released, the estimator that calibrates beta, and what decides a vote."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

import icml26.cdg
from icml26.cdg.decision import critical_gain, minority_wins, sign_hazard
from icml26.cdg.traces import Question, Trace, summarise
from icml26.cdg.tuning import labels, outcomes, pass_at_1, tune
from icml26.cdg.voter import FACTORS, CDGVoter
from icml26.cdg.voting import cdg, electorate, tally, vote
from icml26.errors import InputError

ANSWERS = st.sampled_from(["7", "8", "07", "", None])
QUESTIONS = st.lists(st.tuples(ANSWERS, st.integers(0, 40), st.integers(0, 10**6)), min_size=1, max_size=12)


def drawn(rows):
    return [Trace(answer, np.random.default_rng(seed).gamma(9, 1, n)) for answer, n, seed in rows]


def flat(answer, level, n=20):
    return Trace(answer, np.full(n, float(level)))


def ramp(answer, start, stop, n=20):
    return Trace(answer, np.linspace(start, stop, n))


def looped_vote(traces, alpha, beta, percent, min_length, keep_empty=False):
    """The vote as its definition reads, trace after trace."""
    groups = {}
    for trace in traces:
        values = [float(value) for value in trace.confidences]
        if trace.answer is None or (trace.answer == "" and not keep_empty) or len(values) < min_length:
            continue
        k = max(1, int(len(values) * percent / 100))
        gain = sum(values[-k:]) / k - sum(values[:k]) / k
        groups.setdefault(trace.answer, []).append(sum(values) / len(values) + beta * gain)
    table = {answer: len(scores) ** alpha * (sum(scores) / len(scores)) for answer, scores in groups.items()}
    best = None
    for answer, score in table.items():
        if best is None or score > table[best]:
            best = answer
    return best, table, {answer: len(scores) for answer, scores in groups.items()}


@given(
    QUESTIONS,
    st.sampled_from([0, 0.5, 1, 2]),
    st.sampled_from([0, 1, 10, -2]),
    st.sampled_from([5, 10, 30, 80]),
    st.sampled_from([1, 10, 25]),
    st.booleans(),
)
@settings(max_examples=75)
def test_the_vote_is_the_one_of_plain_loops(rows, alpha, beta, percent, min_length, keep_empty):
    traces = drawn(rows)
    winner, table, counts = looped_vote(traces, alpha, beta, percent, min_length, keep_empty)
    found = vote(traces, alpha, beta, percent, min_length, keep_empty=keep_empty)
    assert found.winner == winner
    assert list(found.table) == list(table)
    assert list(found.table.values()) == pytest.approx(list(table.values()), rel=1e-9, abs=1e-9)
    assert found.counts == counts


@given(QUESTIONS, st.sampled_from([0.25, 3.0]))
@settings(max_examples=20)
def test_the_winner_does_not_change_with_the_unit_of_confidence(rows, factor):
    traces = drawn(rows)
    scaled = [trace._replace(confidences=factor * trace.confidences) for trace in traces]
    assert vote(scaled).winner == vote(traces).winner
    assert list(vote(scaled).table.values()) == pytest.approx([factor * value for value in vote(traces).table.values()])


def test_a_constant_added_to_confidences_changes_the_winner():
    traces = [flat("7", 10), flat("7", 10), ramp("8", 10, 10.8)]
    shifted = [trace._replace(confidences=trace.confidences + 30) for trace in traces]
    assert [vote(each).winner for each in (traces, shifted)] == ["8", "7"]


def test_the_score_of_a_ramp_is_its_mean_plus_beta_times_its_slope_times_all_tokens_but_one_window():
    values = 5 + 0.1 * np.arange(40)
    assert vote([Trace("7", values)], beta=3).table["7"] == pytest.approx(values.mean() + 3 * 0.1 * (40 - 4))


def test_ties_go_to_the_answer_seen_first():
    assert vote([flat("8", 5), flat("7", 5)]).winner == "8"
    assert vote([flat("7", 5), flat("8", 5)]).winner == "7"
    # Seen first among the voters: a short trace of "8" does not count.
    assert vote([flat("8", 5, 9), flat("7", 5), flat("8", 5)]).winner == "7"


def test_candidates_are_texts_unless_told_otherwise():
    traces = [flat("0.5", 5), flat("2", 6), flat("1/2", 5)]
    assert list(vote(traces).table) == ["0.5", "2", "1/2"]
    assert vote(traces).winner == "2"
    same = vote(traces, equal=lambda first, other: {first, other} == {"0.5", "1/2"})
    assert (same.winner, same.counts) == ("0.5", {"0.5": 2, "2": 1})


def test_answers_are_merged_into_the_first_of_their_class():
    question = Question.of([flat(answer, 5) for answer in ("1.0", "2", "1", "2.0", "01")])
    assert question.merge(lambda a, b: float(a) == float(b)).answers == ("1.0", "2", "1.0", "2", "1.0")


def test_traces_of_fewer_than_ten_tokens_do_not_vote():
    traces = [flat("7", 50, 9), flat("7", 50, 9), flat("8", 1, 10)]
    assert vote(traces).counts == {"8": 1}
    assert vote(traces, min_length=9).winner == "7"


def test_without_voters_there_is_no_winner():
    for traces in ([flat(None, 5)], [flat("", 5)], [flat("7", 5, 9)]):
        assert vote(traces) == (None, {}, {})


def test_an_empty_text_is_an_answer_only_where_asked_for():
    traces = [flat("", 9), flat("7", 5)]
    assert vote(traces).winner == "7"
    assert vote(traces, keep_empty=True).winner == ""


def test_votes_for_an_answer_of_negative_score_count_against_it():
    falling = [ramp("7", 12, 8) for _ in range(9)]
    assert vote([*falling, ramp("8", 12, 8)], beta=10).winner == "8"
    tables = [vote(falling[:n], beta=10).table["7"] for n in (1, 4, 9)]
    assert tables == pytest.approx([tables[0], 2 * tables[0], 3 * tables[0]])
    assert tables[0] < 0
    assert vote(falling, beta=10).negative == ["7"]


@pytest.mark.parametrize("guard", ["clip", "shift"])
def test_guards_do_nothing_without_negative_scores(guard):
    traces = [ramp("7", 8, 9), ramp("8", 9, 9.5), flat("8", 3)]
    assert vote(traces, guard=guard) == vote(traces)


def test_guards_make_more_votes_no_worse():
    traces = [*(ramp("7", 12, 8 - 0.01 * i) for i in range(9)), ramp("8", 12, 7.5)]
    assert vote(traces).winner == "8"
    shifted = vote(traces, guard="shift")
    assert shifted.winner == "7"
    assert min(shifted.table.values()) == 0
    assert set(vote(traces, guard="clip").table.values()) == {0.0}


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": -1},
        {"alpha": np.nan},
        {"beta": np.inf},
        {"beta": "10"},
        {"percent": 0},
        {"percent": 10.0},
        {"min_length": 0},
        {"guard": "abs"},
        {"keep_empty": 1},
    ],
)
def test_wrong_options_of_the_vote_are_refused(options):
    with pytest.raises(InputError) as caught:
        vote([flat("7", 5)], **options)
    assert "\n" not in str(caught.value)


def test_a_tally_needs_a_score_for_each_answer():
    for scores in ([1.0], [1.0, np.nan], "ab"):
        with pytest.raises((InputError, ValueError)):
            tally(["7", "8"], scores)


@given(st.integers(1, 200), st.integers(1, 200), st.floats(0.1, 40), st.floats(0.1, 40), st.sampled_from([0, 0.5, 1]))
@settings(max_examples=50)
def test_the_decision_rule_predicts_the_vote(n1, n2, m1, m2, alpha):
    left, right = m2 / m1, (n1 / n2) ** alpha
    if abs(left - right) < 1e-9 * right:  # at equality the order decides
        return
    result = tally(["1"] * n1 + ["2"] * n2, [m1] * n1 + [m2] * n2, alpha)
    assert bool(minority_wins(n1, n2, m1, m2, alpha)) == (result.winner == "2")


@given(st.integers(2, 30), st.floats(5, 20), st.floats(-0.4, 2), st.floats(5, 20), st.sampled_from([1, 5, 10]))
@settings(max_examples=30)
def test_the_minority_wins_just_above_its_critical_gain_and_not_just_below(n1, mean, gain, other, beta):
    if mean + beta * gain <= 0.1:
        return
    edge = float(critical_gain(n1, mean, gain, other, beta=beta))

    def trace(answer, level, rise):  # mean and gain exactly these
        return Trace(answer, level + np.repeat([-rise / 2, 0, rise / 2], [2, 16, 2]))

    if max(abs(edge), abs(gain)) / 2 >= min(mean, other) - 0.1:  # a confidence would be negative
        return
    for step, winner in ((1e-6, "2"), (-1e-6, "1")):
        traces = [trace("1", mean, gain)] * n1 + [trace("2", other, edge + step)]
        assert vote(traces, beta=beta).winner == winner


def test_one_outlier_wins_against_many_iff_it_exceeds_the_root_of_their_number():
    for factor, winner in ((np.sqrt(511) + 0.01, "8"), (np.sqrt(511) - 0.01, "7")):
        assert tally(["7"] * 511 + ["8"], [1.0] * 511 + [factor], 0.5).winner == winner


@pytest.mark.parametrize("arguments", [(0, 1, 1, 1), (1, 1, -1, 1), (1, 1, 1, np.nan), (1, 1, "x", 1)])
def test_the_decision_rule_is_for_positive_scores(arguments):
    with pytest.raises(InputError):
        minority_wins(*arguments)


def test_the_sign_hazard_counts_answers_and_leaders():
    falling = [ramp("7", 12, 8), ramp("7", 12, 8), flat("8", 1)]
    rising = [flat("7", 5), ramp("8", 12, 8)]
    short = [flat("7", 5, 3)]
    assert sign_hazard([falling, rising, short]) == (0.5, 0.5)
    assert sign_hazard([falling, rising], beta=0) == (0, 0)
    with pytest.raises(InputError, match="voter"):
        sign_hazard([short])


def calibration(gap=1.0, questions=6, seed=0):
    """Questions in which right traces end higher, by the gap, than wrong ones."""
    generator = np.random.default_rng(seed)
    return [
        [
            ramp(answer, 10, 10 + generator.normal(gap * (answer == "7"), 0.3) + 0.5, 30)
            for answer in generator.choice(["7", "8", "9"], 12)
        ]
        for _ in range(questions)
    ], ["7"] * questions


def test_the_ratio_is_mean_confidence_over_the_gap_of_gains():
    questions, answers = calibration()
    summary = summarise(questions)
    right = summary.answer == "7"
    gap = summary.gain[right].mean() - summary.gain[~right].mean()
    voter = CDGVoter().fit(questions, answers)
    assert voter.gap_ == pytest.approx(gap)
    assert voter.beta_ == voter.ratio_ == pytest.approx(summary.mean.mean() / gap)


def test_the_standard_error_of_the_gap_is_that_of_resampled_questions():
    generator, questions = np.random.default_rng(3), []
    for _ in range(40):  # what traces of a question share makes traces poorer than their number
        shared = generator.normal(0, 1)
        answers = generator.choice(["7", "8"], 12, p=generator.choice([[0.3, 0.7], [0.7, 0.3]]))
        questions.append([ramp(answer, 10, 10 + shared + generator.normal(0, 0.3), 30) for answer in answers])
    voter = CDGVoter(beta=0).fit(questions, ["7"] * 40)
    summary = summarise(questions)
    gain, right = summary.gain.reshape(40, 12), (summary.answer == "7").reshape(40, 12)
    gaps = []
    for _ in range(2000):
        rows = generator.integers(0, 40, 40)
        drawn, labelled = gain[rows].ravel(), right[rows].ravel()
        gaps.append(drawn[labelled].mean() - drawn[~labelled].mean())
    assert voter.gap_error_ == pytest.approx(np.std(gaps), rel=0.1)
    naive = np.hypot(gain[right].std() / np.sqrt(right.sum()), gain[~right].std() / np.sqrt((~right).sum()))
    assert voter.gap_error_ > 1.3 * naive


def uncertain():
    """Right traces rise more in one question and less in the other; the gap that is left is tiny."""
    return [
        [ramp("7", 9, 10.001), ramp("8", 9, 9)],
        [ramp("7", 9, 9), ramp("8", 9, 10)],
    ], ["7", "7"]


def test_the_band_warns_where_the_gap_is_below_its_error_and_only_there():
    questions, answers = uncertain()
    with pytest.warns(UserWarning, match=r'not determined.*rule="grid"') as caught:
        voter = CDGVoter().fit(questions, answers)
    assert len(caught) == 1
    assert 0 < voter.gap_ < voter.gap_error_
    assert voter.beta_ == voter.ratio_ > 1000
    with pytest.warns(UserWarning, match="standard error of nan"):  # one question has none
        CDGVoter().fit(questions[:1], answers[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CDGVoter(rule="grid").fit(questions, answers)
        CDGVoter(beta=3).fit(questions, answers)
        assert CDGVoter().fit(*calibration(gap=3.0)).gap_error_ > 0


def test_short_and_unanswered_traces_do_not_calibrate():
    questions, answers = calibration()
    noisy = [[*question, flat(None, 90), flat("", 90), flat("7", 90, 9)] for question in questions]
    assert CDGVoter().fit(noisy, answers).beta_ == CDGVoter().fit(questions, answers).beta_


def test_the_grid_takes_the_most_accurate_multiple_and_the_smallest_of_several():
    questions, answers = calibration()
    voter = CDGVoter(rule="grid").fit(questions, answers)
    accuracies = [outcomes(cdg, questions, answers, beta=f * voter.ratio_).mean() for f in FACTORS]
    assert voter.tuned_.accuracies.tolist() == accuracies
    assert voter.beta_ == FACTORS[int(np.argmax(accuracies))] * voter.ratio_
    easy = [[flat("7", 5), flat("7", 5), ramp("8", 5, 4.9)]] * 2
    assert CDGVoter(rule="grid").fit(easy, ["7", "7"]).beta_ == 0


@pytest.mark.parametrize("rule", ["band", "grid"])
def test_without_a_positive_gap_beta_is_zero_and_a_warning_says_so(rule):
    questions, answers = calibration(gap=-1.0)
    with pytest.warns(UserWarning, match="beta is set to 0"):
        voter = CDGVoter(rule=rule).fit(questions, answers)
    assert voter.beta_ == 0
    assert voter.gap_ < 0
    assert np.isnan(voter.ratio_)


@pytest.mark.parametrize("answer", ["7", "8"])
def test_calibration_traces_of_one_kind_have_no_gap(answer):
    with pytest.warns(UserWarning, match="both right and wrong"):
        voter = CDGVoter().fit([[flat("7", 5)] * 3], [answer])
    assert (voter.beta_, np.isnan(voter.gap_)) == (0, True)


def test_questions_of_one_kind_count_beside_others():
    questions, answers = calibration()
    voter = CDGVoter().fit([*questions, [flat("7", 5)], [flat("8", 5)], [flat(None, 5)]], [*answers, "7", "7", "7"])
    assert 0 < voter.gap_ < CDGVoter().fit(questions, answers).gap_


def test_a_given_beta_is_used_without_warning():
    questions, answers = calibration(gap=-1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        voter = CDGVoter(beta=3).fit(questions, answers)
    assert voter.beta_ == 3
    assert voter.predict(questions).tolist() == [cdg(question, beta=3) for question in questions]


def test_questions_without_an_answered_trace_leave_the_score_and_short_ones_count_as_wrong():
    questions, answers = calibration()
    voter = CDGVoter(beta=0).fit(questions, answers)
    short, none = [flat("7", 5, 9)], [flat(None, 5), flat("", 5)]
    assert voter.predict([short, none]).tolist() == [None, None]
    assert voter.score([[flat("7", 5)], short, none], ["7", "7", "7"]) == 0.5
    with pytest.raises(InputError, match="answered"):
        voter.score([none], ["7"])


def test_the_voter_behaves_as_an_estimator_of_scikit_learn():
    questions, answers = calibration()
    voter = CDGVoter(alpha=0.3, rule="grid", min_length=4)
    assert clone(voter).get_params() == voter.get_params()
    with pytest.raises(NotFittedError):
        voter.predict(questions)
    fitted = voter.set_params(alpha=0.5).fit(questions, answers)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict(questions).tolist() == fitted.predict(questions).tolist()
    search = GridSearchCV(CDGVoter(), {"alpha": [0.5, 1.0]}, cv=3).fit(questions, answers)
    assert search.best_params_["alpha"] in (0.5, 1.0)
    assert len(cross_val_score(CDGVoter(beta=1.0), questions, answers, cv=3)) == 3
    assert icml26.cdg.CDGVoter is CDGVoter


def test_a_judge_decides_what_is_right():
    questions = [[ramp("7.0", 9, 10), flat("8", 9)]]
    with pytest.warns(UserWarning, match="beta is set to 0"):
        assert CDGVoter().fit(questions, ["7"]).score(questions, ["7"]) == 0
    voter = CDGVoter(rule="grid", judge=lambda winner, answer: float(winner) == float(answer)).fit(questions, ["7"])
    assert voter.gap_ > 0
    assert voter.score(questions, ["7"]) == 1


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"rule": "best"}, calibration()),
        ({"judge": "equal"}, calibration()),
        ({}, (5, ["7"])),
        ({}, (calibration()[0], None)),
        ({"beta": np.nan}, calibration()),
        ({"alpha": -1}, calibration()),
        ({"guard": "abs"}, calibration()),
        ({}, ([], [])),
        ({}, (calibration()[0], ["7"])),
        ({}, (calibration()[0], [7] * 6)),
        ({"min_length": 50}, calibration()),
        ({}, ([[flat(None, 5)]], ["7"])),
    ],
)
def test_wrong_options_and_data_of_the_voter_are_refused(options, arguments):
    with pytest.raises(InputError) as caught:
        CDGVoter(**options).fit(*arguments)
    assert "\n" not in str(caught.value)


def test_tuning_tries_every_setting_and_keeps_the_earliest_of_the_best():
    questions, answers = calibration()
    found = tune(cdg, {"alpha": [0.5, 1.0], "beta": [0, 5]}, questions, answers)
    assert found.settings == [{"alpha": a, "beta": b} for a in (0.5, 1.0) for b in (0, 5)]
    expected = [outcomes(cdg, questions, answers, **setting).mean() for setting in found.settings]
    assert found.accuracies.tolist() == expected
    assert found.setting == found.settings[int(np.argmax(expected))]
    assert found.accuracy == max(expected)
    again = tune(cdg, found.settings, questions, answers)
    assert again.setting == found.setting
    with pytest.raises(InputError, match="setting"):
        tune(cdg, [], questions, answers)


def test_outcomes_compare_stripped_texts_and_no_winner_is_wrong():
    questions = [[flat(" 7", 5)], [flat("7.0", 5)], [flat(None, 5)]]
    assert outcomes(cdg, questions, ["7 ", "7", "7"]).tolist() == [True, False, False]
    assert labels([flat("7", 5), flat(None, 5), flat("8", 5)], "7").tolist() == [True, False, False]


def test_pass_at_1_pools_answered_traces():
    questions = [[flat("7", 5), flat("8", 5), flat("", 5)], [flat("7", 5, 2), flat(None, 5)], [flat(None, 5)]]
    assert pass_at_1(questions, ["7", "7", "7"]) == pytest.approx(2 / 3)
    drawn_once = pass_at_1(questions, ["7", "7", "7"], draws=4000, seed=0)
    assert drawn_once == pytest.approx(0.75, abs=0.02)  # the mean of 1/2 and 1: questions weigh alike
    assert drawn_once == pass_at_1(questions, ["7", "7", "7"], draws=4000, seed=0)
    for options in ({"draws": 5}, {"draws": 0, "seed": 1}):
        with pytest.raises(InputError):
            pass_at_1(questions, ["7", "7", "7"], **options)
    with pytest.raises(InputError, match="answered"):
        pass_at_1([[flat(None, 5)]], ["7"])


def test_the_electorate_are_answered_traces_that_are_long_enough():
    traces = [flat("7", 5, 12), flat(None, 5), flat("", 5), flat("7", 5, 9)]
    assert electorate(traces)[1].tolist() == [0, 3]
    assert electorate(traces, min_length=10, keep_empty=True)[1].tolist() == [0, 2]
