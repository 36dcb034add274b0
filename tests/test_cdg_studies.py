"""The studies of chapter 1: where traces come from, gaps within questions, votes held all at once, synthetic gaps."""

from dataclasses import replace

import numpy as np
import pytest

from icml26 import evaluation
from icml26.arithmetic import models as arithmetic_models
from icml26.cdg import accuracy, baselines, conditions, gaps, intervals, own_models, phase
from icml26.cdg.ballots import MEAN, Rule, ballots, elect, right
from icml26.cdg.confidence import window_gain
from icml26.cdg.decision import critical_gain
from icml26.cdg.traces import Trace
from icml26.cdg.voter import CDGVoter
from icml26.cdg.voting import vote
from icml26.errors import InputError


def made(seed, questions=12, traces=9, calibration=4):
    """A condition of random traces, some short, some without an answer, some rising, some falling."""
    rng = np.random.default_rng(seed)
    asked, marks = [], []
    for _ in range(questions):
        rows = []
        for _ in range(traces):
            length = int(rng.integers(6, 40))
            slope = rng.normal(0, 0.15)
            level = np.abs(rng.normal(6, 2, length) + slope * np.arange(length))
            answer = None if rng.random() < 0.1 else str(rng.integers(0, 3))
            rows.append(Trace(answer, level, float(rng.random())))
        asked.append(rows)
        marks.append([max(1, len(row.confidences) - 3) for row in rows])
    truths = [str(rng.integers(0, 3)) for _ in range(questions)]
    return conditions.Condition("made", asked, truths, np.array(marks), np.array(marks), calibration)


REFERENCE = {
    Rule("majority", alpha=1.0): baselines.majority,
    MEAN: baselines.deepconf_mean,
    Rule("tail", percent=20, keep=0.5, alpha=1.0): lambda q: baselines.deepconf_tail(q, percent=20, keep=0.5),
    Rule("tail", percent=10, keep=0.1, alpha=1.0): lambda q: baselines.deepconf_tail(q, percent=10, keep=0.1),
    Rule("borda", power=0.7, alpha=1.0): lambda q: baselines.self_certainty_borda(q, 0.7),
    Rule("cdg", 10.0): lambda q: vote(q, beta=10.0).winner,
    Rule("cdg", 3.0, percent=20): lambda q: vote(q, beta=3.0, percent=20).winner,
    Rule("cdg", 10.0, guard="clip"): lambda q: vote(q, beta=10.0, guard="clip").winner,
    Rule("cdg", 10.0, guard="shift"): lambda q: vote(q, beta=10.0, guard="shift").winner,
    Rule("cdg", 4.0, 1.0): lambda q: baselines.gradient_vote(q, 4.0),
    Rule("no start", 2.0): lambda q: baselines.no_start(q, beta=2.0),
}


@pytest.mark.parametrize("rule", REFERENCE, ids=lambda rule: f"{rule.method}-{rule.beta:g}-{rule.alpha:g}-{rule.guard}")
def test_votes_held_all_at_once_have_the_winners_of_the_votes_one_by_one(rule):
    for seed in range(3):
        condition = made(seed)
        votes = ballots(condition)
        winners = elect(votes, rule)
        for row, question in enumerate(condition.questions):
            names = list(dict.fromkeys(answer for answer in question.answers if answer))
            winner = REFERENCE[rule](question)
            assert (None if winners[row] < 0 else names[winners[row]]) == winner
            assert right(votes, winners)[row] == (winner == condition.truths[row])


def test_a_subsample_votes_as_if_the_other_traces_had_not_been_drawn():
    condition = made(5)
    votes = ballots(condition)
    for sample in accuracy.subsamples(12, 9, 4, 3, seed=0):
        assert all(len(set(row)) == 4 for row in sample.tolist())
        for rule in (Rule("majority", alpha=1.0), Rule("cdg", 5.0), Rule("borda", power=1.0, alpha=1.0)):
            marks = right(votes, elect(votes, rule, sample))
            for row, question in enumerate(condition.questions):
                assert marks[row] == (REFERENCE_OF[rule.method](question.take(sample[row])) == condition.truths[row])


REFERENCE_OF = {
    "majority": baselines.majority,
    "cdg": lambda q: vote(q, beta=5.0).winner,
    "borda": lambda q: baselines.self_certainty_borda(q, 1.0),
}


def test_the_calibrated_beta_is_that_of_the_estimator():
    found = 0
    for seed in range(6):
        condition = made(seed, questions=30, calibration=15)
        compared = accuracy.compare(condition)
        if compared.scale.gap > 0:
            voter = CDGVoter(rule="grid").fit(condition.questions[:15], condition.truths[:15])
            assert compared.chosen["CDG"].beta == pytest.approx(voter.beta_)
            assert compared.scale.ratio == pytest.approx(voter.ratio_)
            found += 1
    assert found


def test_beta_may_be_scaled_by_the_gap_within_questions():
    condition = made(3, questions=40, calibration=20)
    votes = ballots(condition)
    question, column = np.nonzero(votes.voting)
    gain, correct = votes.gain(10)[question, column], votes.correct[question, column]
    assert accuracy.scale(votes, within=True).gap == pytest.approx(gaps.question_gaps(gain, correct, question).mean())
    assert accuracy.scale(votes).gap == pytest.approx(gain[correct].mean() - gain[~correct].mean())


def test_settings_do_not_depend_on_the_questions_that_are_reported():
    condition = made(1, questions=20, calibration=8)
    other = replace(condition, truths=[*condition.truths[:8], *["2"] * 12])
    one, two = accuracy.compare(condition), accuracy.compare(other)
    assert one.chosen == two.chosen
    assert one.eligible == two.eligible
    assert len(one.right["CDG"]) == 12


def test_the_thinking_part_of_the_gain_is_that_of_the_trace_without_its_write_up():
    votes = ballots(made(2))
    question = made(2).questions[0]
    for column, trace in enumerate(question):
        thinking = trace.confidences[:-3]
        expected = thinking[-max(1, len(thinking) // 10) :].mean() - thinking[: max(1, len(thinking) // 10)].mean()
        assert votes.thinking[10][0, column] == pytest.approx(expected)


def test_question_gaps_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    question, values, correct = rng.integers(0, 9, 60), rng.normal(size=60), rng.random(60) < 0.4
    expected = [
        values[(question == q) & correct].mean() - values[(question == q) & ~correct].mean()
        for q in range(9)
        if ((question == q) & correct).sum() >= 2 and ((question == q) & ~correct).sum() >= 2
    ]
    np.testing.assert_allclose(gaps.question_gaps(values, correct, question), expected)


def test_a_pooled_gap_may_exist_where_no_question_has_one():
    # An easy question with high confidence and a hard one with low confidence; within each, no difference.
    question = np.repeat([0, 1], 20)
    correct = np.tile(np.arange(20), 2) < np.repeat([16, 4], 20)
    values = np.repeat([5.0, 1.0], 20)
    assert gaps.pooled(values, correct).gap > 2
    np.testing.assert_array_equal(gaps.question_gaps(values, correct, question), [0, 0])


def test_effect_size_is_in_units_of_the_spread_within_a_question():
    rng = np.random.default_rng(1)
    question, correct = np.repeat(np.arange(200), 20), np.tile(np.arange(20) < 10, 200)
    values = 100.0 * question + 3.0 * rng.normal(size=4000) + 1.5 * correct
    assert gaps.effect_size(values, correct, question) == pytest.approx(0.5, abs=0.1)


def test_conditions_count_alike_whatever_their_number_of_questions():
    few, many = np.array([0.0, 2.0]), np.full(50, 5.0)
    found = intervals.stratified_mean([few, many], seed=0)
    assert found.value == 3.0
    assert found.interval == (2.5, 3.5)


def test_shares_are_those_of_all_traces():
    holds = np.array([True, False, True, True, False])
    shares, weights = gaps.question_shares(holds, np.array([True, True, True, True, False]), np.array([0, 0, 0, 1, 1]))
    assert intervals.stratified_mean([shares], [weights], seed=0).value == pytest.approx(3 / 4)


def test_conditions_that_share_questions_are_resampled_together():
    rng = np.random.default_rng(4)
    easy = rng.normal(size=60)
    strata = [easy + 0.1 * rng.normal(size=60), easy + 0.1 * rng.normal(size=60)]
    alone, together = (intervals.stratified_mean(strata, groups=groups, seed=0) for groups in (None, ["a", "a"]))
    width = [found.high - found.low for found in (alone, together)]
    assert alone.value == together.value
    # Two copies of one sample tell no more than one; taken for independent, they would shrink the error by root two.
    assert width[1] / width[0] == pytest.approx(np.sqrt(2), rel=0.1)
    mirrored = intervals.stratified_mean([easy, -easy], groups=["a", "a"], seed=0)
    assert mirrored.high - mirrored.low < 1e-12


def test_a_question_without_a_value_counts_for_nothing():
    found = intervals.stratified_mean([[1.0, np.nan, 3.0], [4.0, 6.0, np.nan]], groups=["a", "a"], seed=0)
    assert found.value == 3.5
    same = intervals.stratified_mean([[1.0, np.nan, 3.0]], seed=0)
    assert same == intervals.stratified_mean([[1.0, 3.0]], seed=0)


def test_gaps_of_all_questions_are_those_of_the_questions_that_count():
    rng = np.random.default_rng(0)
    question, values, correct = rng.integers(0, 9, 60), rng.normal(size=60), rng.random(60) < 0.4
    every = gaps.question_gaps(values, correct, question, questions=12)
    assert len(every) == 12
    np.testing.assert_array_equal(every[~np.isnan(every)], gaps.question_gaps(values, correct, question))
    shares, weights = gaps.question_shares(values > 0, correct, question, questions=12)
    np.testing.assert_array_equal(np.isnan(shares), weights == 0)


def test_the_pooled_gap_is_uncertain_by_its_questions_not_its_traces():
    rng = np.random.default_rng(2)
    correct = rng.random((30, 40)) < 0.5
    correct[:, :2] = [True, False]
    level = np.tile(rng.normal(size=(30, 1)), 40) * np.where(correct, 1, -1)  # each question has its own gap
    voting = rng.random((30, 40)) < 0.9
    found = intervals.pooled_gap(level, correct, voting, seed=0)
    assert found.value == pytest.approx(gaps.pooled(level[voting], correct[voting]).gap)
    deviation = np.std(
        [
            gaps.pooled(level[rows][voting[rows]], correct[rows][voting[rows]]).gap
            for rows in rng.integers(30, size=(200, 30))
        ]
    )
    assert found.high - found.low == pytest.approx(2 * 1.96 * deviation, rel=0.25)
    assert np.isnan(intervals.pooled_gap(level, np.ones_like(correct), voting, seed=0).value)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_the_shared_part_of_the_variance_is_found_again(share):
    law = phase.Synthetic(traces=12, shared=share, concentration=20)
    asked, _ = phase.draw(law, 800, seed=3, tokens=20)
    values = np.array([[window_gain(trace.confidences) for trace in question] for question in asked])
    answer = np.array([[int(trace.answer == "right") for trace in question] for question in asked])
    question = np.repeat(np.arange(800), 12)
    assert gaps.shared_share(values.ravel(), answer.ravel(), question) == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize(
    ("alpha", "beta", "shared"), [(0.5, 10.0, 0.0), (0.5, 10.0, 0.5), (1.0, 0.0, 0.0), (0.5, 0.0, 0.0), (1.0, 3.0, 0.3)]
)
def test_exact_accuracies_are_those_of_votes_on_drawn_traces(alpha, beta, shared):
    law = phase.Synthetic(traces=9, pass_rate=0.45, mean_gap=0.2, gain_gap=0.4, mean_spread=0.5, shared=shared)
    asked, truths = phase.draw(law, 600, seed=0, tokens=20)
    share = np.mean(
        [vote(question, alpha, beta).winner == truth for question, truth in zip(asked, truths, strict=True)]
    )
    assert phase.vote_accuracy(law, alpha=alpha, beta=beta) == pytest.approx(share, abs=0.05)


def test_drawn_traces_have_the_mean_and_the_gain_of_their_law():
    law = phase.Synthetic(traces=3, mean_gap=0.5, gain_gap=1.0, mean_spread=0, gain_spread=0)
    for trace in phase.draw(law, 4, seed=1, tokens=63)[0][0]:
        is_right = trace.answer == "right"
        assert window_gain(trace.confidences) == pytest.approx(1.0 * is_right)
        assert trace.confidences.mean() == pytest.approx(10 + 0.5 * is_right)


def test_without_noise_a_minority_wins_from_the_critical_gain_on():
    gap = float(critical_gain(4.0, 10.0, 0.0, 10.0, beta=10.0))
    # Two right traces of ten: the law's counts are nearly fixed by a large concentration.
    law = phase.Synthetic(traces=5, pass_rate=0.2, concentration=1e9, mean_spread=0, gain_spread=0)
    below, above = (
        phase.vote_accuracy(replace(law, gain_gap=factor * gap), beta=10.0, alpha=0.5) for factor in (0.99, 1.01)
    )
    one_of_five = 5 * 0.2 * 0.8**4
    assert above - below == pytest.approx(one_of_five, abs=1e-6)


def test_majority_of_synthetic_traces_is_a_vote_of_equal_weights():
    law = phase.Synthetic(traces=15, mean_spread=0, gain_spread=0, pass_rate=0.6)
    assert phase.majority_accuracy(law) == pytest.approx(phase.vote_accuracy(law, alpha=1.0, beta=0.0))


def test_two_models_get_the_same_problems_and_marks_stand_before_the_answer():
    one, two = (conditions.from_checkpoint(name, 4, 3, seed=1) for name in arithmetic_models.names("chain")[:2])
    assert one.truths == two.truths
    again = conditions.from_checkpoint("chain-0", 4, 3, seed=1)
    for question, other in zip(one.questions, again.questions, strict=True):
        np.testing.assert_array_equal(question.confidences, other.confidences)
    lengths = np.array([question.lengths for question in one.questions])
    answered = np.array([[answer is not None for answer in question.answers] for question in one.questions])
    assert (lengths - one.answer_at)[answered].tolist() == [3] * answered.sum()  # "# 7 ."


def test_a_model_of_one_s_own_is_sampled_on_questions_of_one_s_own(monkeypatch):
    monkeypatch.setattr(evaluation, "dataset_questions", lambda name: [(f"{name} {n}?", str(n)) for n in range(5)])
    short = own_models.Sampling(max_new_tokens=12, rows=2, top_k=50)
    found = own_models.from_model("tiny-random-llama", "mine", 3, seed=0, limit=4, top=4, sampling=short)
    assert found.correct.shape == (4, 3)
    assert set(found.truths) < set("01234")
    assert all(question.lengths.max() <= 12 for question in found.questions)
    assert (found.writeup_at <= found.answer_at).all()
    assert min(question.confidences.min() for question in found.questions) >= np.log(4) - 1e-5


def test_marks_of_a_text_are_counted_in_tokens():
    from icml26 import models

    tokenizer = models.load_lm("tiny-random-llama")[1]
    text = r"I think.</think> It is \boxed{7}"
    tokens = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
    before = own_models._tokens_before(tokenizer, tokens, "boxed")
    assert tokenizer.decode(tokens[:before]) == r"I think.</think> It is " + "\\"
    assert own_models._tokens_before(tokenizer, tokens, "nothing") == len(tokens)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} then \boxed{\frac{\sqrt{2}}{3}}.", r"\frac{\sqrt{2}}{3}"),
        (r"\boxed{12", "12"),
        (r"$\boxed 5$ done", "5"),
        (r"\boxed{}", None),
        ("no box", None),
        ("boxed", None),
    ],
)
def test_the_last_box_is_the_answer(text, answer):
    assert own_models.boxed(text) == answer


def test_wrong_input_is_refused():
    condition = made(0)
    with pytest.raises(InputError, match="calibration=12"):
        replace(condition, calibration=12)
    with pytest.raises(InputError, match="answer_at"):
        replace(condition, answer_at=condition.answer_at[:1])
    with pytest.raises(InputError, match="finite"):
        gaps.question_gaps([np.nan], [True], [0])
    with pytest.raises(InputError, match="truth values"):
        gaps.question_gaps([1.0], [1], [0])
    with pytest.raises(InputError, match="strata is empty"):
        intervals.stratified_mean([], seed=0)
    with pytest.raises(InputError, match="same number of questions"):
        intervals.stratified_mean([[1.0, 2.0], [1.0, 2.0, 3.0]], groups=["a", "a"], seed=0)
    with pytest.raises(InputError, match="at least two values"):
        intervals.stratified_mean([[1.0, np.nan]], seed=0)
    with pytest.raises(InputError, match="pass_rate"):
        phase.Synthetic(pass_rate=1.0)
    with pytest.raises(InputError, match="too small"):
        phase.draw(phase.Synthetic(mean=0.1, gain_gap=5.0), 3, seed=0)
    with pytest.raises(InputError, match="size=10"):
        accuracy.subsamples(2, 9, 10, 1, seed=0)
    with pytest.raises(InputError, match="rules is empty"):
        accuracy.choose(ballots(condition), [])
