"""ACC, AGR, KLD, the exclusion baseline and the calibration of letters."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from icml26.errors import InputError
from icml26.kappa import gap

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(40, 4)) * 2
OTHERS = DRAW.normal(size=(40, 4))
LABELS = DRAW.integers(4, size=40)


def kl(p, q):
    """Sum over options, written out."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        total += a * math.log(a / b)
    return total


def test_a_probe_agrees_with_itself_and_does_not_diverge():
    p = softmax(OTHERS, axis=1)
    assert gap.agreement(p, p) == 1.0
    np.testing.assert_allclose(gap.divergence(p, p), 0, atol=1e-15)


def test_logits_and_their_probabilities_give_the_same_accuracy_and_agreement():
    assert gap.accuracy(LOGITS, LABELS) == gap.accuracy(softmax(LOGITS, axis=1), LABELS)
    assert gap.agreement(LOGITS, OTHERS) == gap.agreement(softmax(LOGITS, axis=1), softmax(OTHERS, axis=1))


def test_accuracy_and_agreement_count_prompts_one_by_one():
    right = sum(max(range(4), key=row.__getitem__) == label for row, label in zip(LOGITS.tolist(), LABELS, strict=True))
    assert gap.accuracy(LOGITS, LABELS) == right / 40
    same = sum(
        max(range(4), key=a.__getitem__) == max(range(4), key=b.__getitem__)
        for a, b in zip(LOGITS.tolist(), OTHERS.tolist(), strict=True)
    )
    assert gap.agreement(LOGITS, OTHERS) == same / 40


def test_the_first_of_equal_scores_wins():
    np.testing.assert_array_equal(gap.hits(np.zeros((2, 3)), [0, 1]), [True, False])


def test_divergence_is_kl_with_the_model_first():
    p, q = softmax(LOGITS, axis=1), softmax(OTHERS, axis=1)
    np.testing.assert_allclose(gap.divergence(p, q), [kl(a, b) for a, b in zip(p, q, strict=True)])
    assert not np.allclose(gap.divergence(p, q), gap.divergence(q, p))


def test_the_released_divergence_takes_the_softmax_of_the_probe_twice():
    p, q = softmax(LOGITS, axis=1), softmax(OTHERS, axis=1)
    np.testing.assert_allclose(gap.divergence(p, q, released=True), gap.divergence(p, softmax(q, axis=1)))
    # A sure model that agrees with a sure probe is left with the floor log(1 + (k - 1)/e).
    sure = np.eye(4)[:1]
    assert gap.divergence(sure, sure, released=True)[0] == pytest.approx(math.log1p(3 / math.e))


def test_a_zero_probability_costs_much_and_stays_finite():
    assert gap.divergence([[1.0, 0.0]], [[0.0, 1.0]])[0] == pytest.approx(-math.log(1e-12), rel=1e-6)


def test_leading_axes_are_settings():
    both = np.stack([LOGITS, OTHERS])
    np.testing.assert_allclose(gap.accuracy(both, LABELS), [gap.accuracy(LOGITS, LABELS), gap.accuracy(OTHERS, LABELS)])
    np.testing.assert_allclose(gap.agreement(both, OTHERS)[1], 1)
    p, q = softmax(both, axis=-1), softmax(OTHERS, axis=1)
    np.testing.assert_allclose(gap.divergence(p, q)[0], gap.divergence(p[0], q))


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(0, 10**6))
def test_who_knows_only_the_models_answer_reaches_the_exclusion_baseline_and_no_more(options, seed):
    draw = np.random.default_rng(seed)
    truth, picked = draw.integers(options, size=(2, 300))
    accuracy = float((truth == picked).mean())
    # Both rules that take no knowledge, played many times.
    others = (picked + draw.integers(1, options, size=(4000, 300))) % options
    assert gap.exclusion_baseline(accuracy, options) == pytest.approx(
        max((picked == truth).mean(), (others == truth).mean()), abs=0.004
    )
    assert gap.exclusion_baseline(1 / options, options) == pytest.approx(1 / options)


def test_calibrated_training_prompts_prefer_no_letter():
    biased = LOGITS + np.array([0, 0, 50, 0])
    assert set(biased.argmax(1)) == {2}
    found = gap.calibrate(biased, biased.mean(0))
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(found, gap.calibrate(LOGITS, LOGITS.mean(0)))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: gap.hits([1.0, 2.0], [0]), "scores have shape"),
        (lambda: gap.hits([[1.0]], [0]), "scores have shape"),
        (lambda: gap.hits([["a", "b"]], [0]), "scores are not numbers"),
        (lambda: gap.hits([[np.nan, 1.0]], [0]), "scores hold"),
        (lambda: gap.hits([[0.0, 1.0]], [2]), "labels run"),
        (lambda: gap.hits([[0.0, 1.0]], [-1]), "labels run"),
        (lambda: gap.hits([[0.0, 1.0]], [True]), "labels have"),
        (lambda: gap.hits([[0.0, 1.0]], [0, 1]), "labels have"),
        (lambda: gap.accuracy(np.zeros((0, 2)), np.zeros(0, dtype=int)), "no prompts"),
        (lambda: gap.matches([[0.0, 1.0]], [[0.0, 1.0, 2.0]]), "reference has"),
        (lambda: gap.divergence([[0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]), "probe has"),
        (lambda: gap.divergence([[3.0, 1.0]], [[0.5, 0.5]]), "model holds"),
        (lambda: gap.divergence([[0.5, 0.5]], [[1.5, -0.5]]), "probe holds"),
        (lambda: gap.exclusion_baseline(1.1, 3), "accuracy=1.1"),
        (lambda: gap.exclusion_baseline(0.5, 1), "options=1"),
        (lambda: gap.calibrate([[0.0, 1.0]], [0.0]), "mean has"),
        (lambda: gap.calibrate([[0.0, 1.0]], [0.0, np.inf]), "mean has"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, told):
    with pytest.raises(InputError, match=told) as caught:
        call()
    assert "\n" not in str(caught.value)
