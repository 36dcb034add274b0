"""KAPPA on test items: every intervention scored, figures' numbers, and the estimates of the claims."""

from dataclasses import replace

import kappa_prompts as made
import numpy as np
import pytest
from scipy import stats as scipy_stats

from icml26.errors import InputError
from icml26.kappa import controls, curves, estimates, gap
from icml26.kappa.intervention import Kappa, shift
from icml26.kappa.nulls import Separation
from icml26.kappa.selection import learn
from icml26.kappa.studies import StudyConfig, evaluate

SMALL = StudyConfig(random_draws=4, shuffles=3, shares=(0.3,), subsets=2)


@pytest.fixture(scope="module")
def learned():
    return learn("made", made.prompts(20), made.prompts(8, first=20))


@pytest.fixture(scope="module")
def other():
    return learn("other", made.prompts(20, first=200), made.prompts(8, first=300))


@pytest.fixture(scope="module")
def asked():
    return made.prompts(24, first=50)


@pytest.fixture(scope="module")
def evaluated(learned, other, asked):
    rows = np.random.default_rng(0).normal(size=(made.WIDTH, 3))
    return evaluate(learned, asked, SMALL, sources=[learned, other], rows=rows, seed=1)


def test_kappa_makes_the_model_say_what_it_knows(evaluated):
    scores = evaluated.scores
    assert scores["base"].right.mean() < 0.65
    assert scores["KAPPA"].right.mean() > 0.95
    assert scores["KAPPA"].agrees.mean() > 0.95
    assert scores["probe"].right.mean() == 1
    assert scores["probe"].agrees.all()
    assert not scores["probe"].divergence.any()
    assert not scores["base"].moved.any()


def test_raw_logits_show_the_letter_the_model_likes(evaluated, asked):
    assert evaluated.scores["uncorrected"].right.mean() == pytest.approx((asked.labels == 2).mean(), abs=0.1)


def test_raw_answers_with_kappa_are_those_without_the_correction(evaluated, learned, asked):
    setting = evaluated.settings["KAPPA"]
    raw = asked.answers(Kappa(learned.pairs(setting.layers), alpha=setting.strength))
    np.testing.assert_array_equal(evaluated.scores["KAPPA, uncorrected"].picked, raw.argmax(1))
    np.testing.assert_array_equal(evaluated.scores["KAPPA"].picked, (raw - learned.mean).argmax(1))


def test_controls_fall_behind(evaluated):
    scores = evaluated.scores
    for name in ("random", "random, centred", "shuffled", "reversed"):
        assert scores[name].right.mean() < scores["KAPPA"].right.mean() - 0.2
    assert scores["random"].right.shape == (4, 72)
    assert scores["shuffled"].right.shape == (3, 72)


def test_scores_of_a_setting_are_those_of_running_it_alone(evaluated, learned, asked):
    setting = evaluated.settings["KAPPA, 3 layers"]
    logits = asked.answers(Kappa(learned.pairs(setting.layers), alpha=setting.strength)) - learned.mean
    found = evaluated.scores["KAPPA, 3 layers"]
    np.testing.assert_array_equal(found.right, gap.hits(logits, asked.labels))
    np.testing.assert_array_equal(found.agrees, gap.matches(logits, learned.reference(asked)))
    after, before = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (logits, asked.logits - learned.mean))
    np.testing.assert_allclose(found.moved, (after * np.log(after / before)).sum(1), rtol=1e-4, atol=1e-9)


def test_curves_start_where_plain_alignment_stands(evaluated):
    scores, one = evaluated.scores, evaluated.settings["KAPPA, 1 layer"]
    assert scores["alpha"].right.shape == scores["beta"].right.shape == (5, 72)
    np.testing.assert_array_equal(scores["alpha"].right[0], scores["beta"].right[0])  # alpha = 1, beta = 0
    at = SMALL.alphas.index(one.strength)
    np.testing.assert_array_equal(scores["alpha"].right[at], scores["KAPPA, 1 layer"].right)


def test_beta_is_in_units_of_the_median_knowledge_logit(learned, evaluated, asked):
    layer = evaluated.settings["KAPPA, 1 layer"].layers[0]
    logits = learned.know[layer].logits(learned.training.hidden[:, layer])
    unit = np.median(np.abs(logits - logits.mean(1, keepdims=True)))
    expected = asked.answers(Kappa(learned.pairs([layer]), beta=4 * unit)) - learned.mean
    np.testing.assert_array_equal(evaluated.scores["beta"].right[-1], gap.hits(expected, asked.labels))


def test_transfer_takes_the_sources_probes_and_the_targets_correction(evaluated, learned, other, asked):
    assert list(evaluated.transfer) == ["other"]
    setting = other.best("KAPPA")
    logits = asked.answers(Kappa(other.pairs(setting.layers), alpha=setting.strength)) - learned.mean
    np.testing.assert_array_equal(evaluated.transfer["other"].agrees, gap.matches(logits, learned.reference(asked)))


def test_the_better_baseline_is_chosen_on_validation(evaluated, learned):
    accuracy = {tried.setting: tried.accuracy for tried in learned.tried}
    chosen = evaluated.settings
    assert accuracy[chosen["baseline"]] == max(accuracy[chosen["CAA"]], accuracy[chosen["DoLa"]])


def test_test_labels_change_scores_and_nothing_that_was_run(learned, asked, evaluated):
    relabelled = replace(asked, labels=(asked.labels + 1) % 3)
    found = evaluate(learned, relabelled, SMALL, seed=1)
    assert found.settings == evaluated.settings
    for name, scores in found.scores.items():
        np.testing.assert_array_equal(scores.agrees, evaluated.scores[name].agrees)
    assert found.letter_share is None


def test_items_of_training_may_not_be_tested(learned):
    with pytest.raises(InputError, match="shares items"):
        evaluate(learned, made.prompts(3, first=19), SMALL)


def test_without_a_prediction_probe_only_probe_and_model_are_scored(asked):
    training = made.prompts(20)
    constant = learn("constant", replace(training, logits=np.tile(made.BIAS, (60, 1))), made.prompts(8, first=20))
    found = evaluate(constant, asked, SMALL)
    assert set(found.scores) == {"base", "uncorrected", "probe"}
    assert np.isnan(found.angle)
    assert set(estimates.estimates([found], seed=0, resamples=50)) == {"A1"}


def test_layer_curves_rise_where_the_answer_appears(learned, asked):
    found = curves.layer_curves(learned, asked)
    assert found.know[: made.AWARE].max() < 0.6
    assert found.know[made.AWARE :].min() > 0.95
    assert found.pred[made.AWARE :].min() > 0.95
    assert found.agreement[made.AWARE] == pytest.approx(
        (asked.logits - learned.mean).argmax(1).__eq__(asked.labels).mean()
    )
    assert ((found.cka >= 0) & (found.cka <= 1)).all()


def test_flips_count_every_prompt_once_by_what_probe_and_model_say(evaluated):
    table, scores = curves.flips(evaluated), evaluated.scores
    assert table.sum() == 72
    assert table[1, 0, 1] == (scores["probe"].right & ~scores["base"].right & scores["KAPPA"].right).sum()
    assert table[:, 1, 0].sum() == (scores["base"].right & ~scores["KAPPA"].right).sum()
    assert curves.flips(evaluated, "random").sum() == 4 * 72
    assert curves.flips(evaluated, "other").sum() == 72
    with pytest.raises(InputError, match="must be one of base"):
        curves.flips(evaluated, "nothing")


def test_a_step_moves_the_prediction_margin_to_the_knowledge_margin(learned, asked):
    found = curves.margins(learned, asked, 2, alpha=1.0)
    np.testing.assert_allclose(found.pred_after, found.know, rtol=1e-6, atol=1e-9)
    assert (found.know > 0).all()
    assert (found.pred < 0).any()
    step = shift(asked.hidden[:, 2], *learned.pairs([2])[2])
    logits = learned.know[2].logits(asked.hidden[:, 2] + step)
    rows = np.arange(len(logits))
    right = logits[rows, asked.labels]
    logits[rows, asked.labels] = -np.inf
    np.testing.assert_allclose(found.know_after, right - logits.max(1))


def test_the_spectral_radius_grows_in_proportion_to_alpha(learned):
    np.testing.assert_allclose(curves.radii(learned, [1, 2], 5.0), 5 * curves.radii(learned, [1, 2]))


def test_items_are_resampled_within_tasks():
    first, second = np.array([[0.0, 1.0, 0.0]]), np.array([[5.0, 5.0]])
    found = estimates.over_items(lambda means: np.concatenate(means).sum(0), [first, second], seed=0, resamples=4000)
    draw = np.random.default_rng(1).integers(3, size=(4000, 3))
    expected = np.quantile(first[0][draw].mean(1) + 5, (0.025, 0.975))
    assert found.value == pytest.approx(5 + 1 / 3)
    np.testing.assert_allclose(found.interval, expected, atol=1e-9)


def test_estimates_are_the_numbers_that_the_claims_name(evaluated, learned):
    second = replace(evaluated, name="second", angle=evaluated.angle + 1)
    found = estimates.estimates(
        [evaluated, second], [Separation(80.0, 70.0, 60.0, 10.0, 2.0)] * 2, seed=0, resamples=200
    )
    scores = evaluated.scores
    assert set(found) == {f"A{n}" for n in (1, 2, 4, 5, 6, 7, 8, 9, 11, 12)} | {"A4b", "A7b"}
    base, controlled = scores["base"].right.mean(), ("random", "random, centred", "shuffled")
    values = {
        "A1": 100 * (scores["probe"].right.mean() - max(base, (1 - base) / 2)),
        "A2": 10.0,
        "A4": 100 * (scores["KAPPA"].right.mean() - base),
        "A4b": 100 * (scores["KAPPA"].agrees.mean() - scores["base"].agrees.mean()),
        "A5": 100 * (scores["KAPPA"].right.mean() - scores["baseline"].right.mean()),
        "A6": 100 * (scores["KAPPA, 4 layers"].right.mean() - scores["KAPPA, 1 layer"].right.mean()),
        "A7": 100 * np.diff(scores["alpha"].agrees.mean(1)).min(),
        "A7b": 100 * np.diff(scores["beta"].agrees.mean(1)).min(),
        "A8": 100 * (scores["0.3 of the items"].right.mean() - base),
        "A9": 100 * (evaluated.transfer["other"].agrees.mean() - scores["base"].agrees.mean()),
        "A11": evaluated.letter_share.mean(),
        "A12": 100 * (scores["KAPPA"].right.mean() - max(scores[n].right.mean() for n in controlled)),
    }
    for claim, value in values.items():
        assert found[claim].value == pytest.approx(value), claim
        assert found[claim].low <= found[claim].high
    assert found["A4"].low > 0


def test_orders_of_an_item_are_resampled_together(evaluated):
    # If each order of an item were resampled by itself, the interval of perfectly dependent orders would be too narrow.
    right = np.repeat(np.arange(24) % 2, 3).astype(bool)
    scores = evaluated.scores | {"probe": evaluated.scores["probe"]._replace(right=right)}
    scores["base"] = scores["base"]._replace(right=np.zeros(72, dtype=bool))
    found = estimates.estimates([replace(evaluated, scores=scores)], seed=0, resamples=4000)["A1"]
    spread = 100 * scipy_stats.binom(24, 0.5).interval(0.95)[1] / 24
    assert found.high - 0 == pytest.approx(spread - 50, abs=5)


def test_the_correlation_is_that_of_scipy_with_an_interval_that_covers():
    draw = np.random.default_rng(0)
    found = [estimates.angle_and_gap(*draw.normal(size=(2, 7))) for _ in range(300)]
    angles, gaps = draw.normal(size=(2, 7))
    assert estimates.angle_and_gap(angles, gaps).value == pytest.approx(scipy_stats.spearmanr(angles, gaps).statistic)
    assert np.mean([one.low <= 0 <= one.high for one in found]) > 0.9
    assert all(-1 <= one.low <= one.value <= one.high <= 1 for one in found)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_perfect_ranking_of_few_tasks_is_not_certain(sign):
    found = estimates.angle_and_gap(np.arange(6.0), sign * np.arange(6.0))
    assert found.value == pytest.approx(sign)
    assert 0.2 < found.high - found.low < 0.5
    wider = estimates.angle_and_gap(np.arange(12.0), sign * np.arange(12.0))
    assert wider.high - wider.low < found.high - found.low


def test_tasks_too_few_for_a_correlation_are_refused():
    for angles in (np.arange(5.0), np.zeros(6)):
        with pytest.raises(InputError, match="at least 6 tasks that are not all equal"):
            estimates.angle_and_gap(angles, np.arange(len(angles)))


def test_a3_needs_six_tasks(evaluated):
    tasks = []
    for number in range(6):
        base = evaluated.scores["base"]._replace(agrees=np.arange(72) % (number + 2) > 0)
        scores = evaluated.scores | {"base": base}
        tasks.append(replace(evaluated, name=str(number), angle=60.0 + number, scores=scores))
    assert "A3" not in estimates.estimates(tasks[:5], seed=0, resamples=50)
    assert estimates.estimates(tasks, seed=0, resamples=50)["A3"].value == pytest.approx(-1)


def test_one_number_of_layers_is_no_comparison_of_layers(evaluated):
    alone = {name: one for name, one in evaluated.settings.items() if name in ("KAPPA", "KAPPA, 1 layer")}
    assert "A6" not in estimates.estimates([replace(evaluated, settings=alone)], seed=0, resamples=50)


def test_tasks_separations_are_averaged_with_an_interval_around_the_value():
    found = estimates.separated([Separation(80.0, 70.0, 60.0, 10.0, 3.0), Separation(80.0, 60.0, 64.0, 16.0, 4.0)])
    assert found.value == 13
    np.testing.assert_allclose(found.interval, 13 + np.array([-1, 1]) * 1.96 * 5 / 2, atol=1e-3)
    with pytest.raises(InputError, match="at least one task"):
        estimates.separated([])


def test_controls_take_the_chosen_layers_and_strength(evaluated, learned, asked):
    kappa = evaluated.settings["KAPPA"]
    pairs = controls.reversed_pairs(learned, kappa.layers)
    logits = asked.answers(Kappa(pairs, alpha=kappa.strength)) - learned.mean
    np.testing.assert_array_equal(evaluated.scores["reversed"].right[0], gap.hits(logits, asked.labels))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"shares": (1.5,)}, "shares"), ({"shares": (0.0,)}, "shares"), ({"alphas": (5.0, 5.0)}, "two different values")],
)
def test_studies_that_make_no_sense_are_refused_before_anything_is_run(options, message):
    with pytest.raises(InputError, match=message):
        StudyConfig(**options)


def test_neighbours_on_a_curve_are_neighbours_in_strength():
    assert StudyConfig(alphas=(5, 1, 1, 2)).alphas == (1, 2, 5)
