"""Choosing probes, layers and strengths of KAPPA before test items are seen, and many probes at once."""

from dataclasses import replace

import kappa_prompts as made
import numpy as np
import pytest

from icml26.errors import InputError
from icml26.kappa import gap, refits
from icml26.kappa.baselines import Steering
from icml26.kappa.intervention import Kappa
from icml26.kappa.measured import Measured
from icml26.kappa.probes import LinearProbe
from icml26.kappa.refits import fit_probes
from icml26.kappa.selection import answered, learn
from icml26.kappa.settings import SelectionConfig, Setting, following, settings


@pytest.fixture(scope="module")
def learned():
    return learn("made", made.prompts(20), made.prompts(8, first=20))


@pytest.mark.parametrize("options", [2, 3, 4])
@pytest.mark.parametrize("shape", [(40, 12), (30, 50)], ids=["more prompts than features", "fewer"])
def test_probes_fitted_together_are_those_of_scikit_learn(options, shape):
    draw = np.random.default_rng(options)
    hidden = draw.normal(size=(3, *shape)) @ draw.normal(size=(shape[1], shape[1])) + 5
    hidden[:, :, 4] = 1.5  # a constant feature
    labels = draw.permuted(np.broadcast_to(np.arange(shape[0]) % options, (3, 2, shape[0])), axis=2)
    found = fit_probes(hidden, labels, options=options, C=0.02)
    for data in range(3):
        for target in range(2):
            probe = LinearProbe(C=0.02, n_classes=options).fit(hidden[data], labels[data, target]).probe_
            expected = probe.logits(hidden[data])
            np.testing.assert_allclose(found.probe(data, target).logits(hidden[data]), expected, atol=2e-3)


def test_label_sets_may_be_shared_by_all_data_sets():
    draw = np.random.default_rng(0)
    hidden, labels = draw.normal(size=(2, 12, 5)), (np.arange(24) % 3).reshape(1, 2, 12)
    shared, own = (fit_probes(hidden, found, options=3) for found in (labels, np.repeat(labels, 2, axis=0)))
    np.testing.assert_array_equal(shared.weights, own.weights)


def test_a_label_set_without_some_option_is_refused():
    with pytest.raises(InputError, match="each at least once"):
        fit_probes(np.random.default_rng(0).normal(size=(1, 6, 4)), np.zeros((1, 1, 6), dtype=int), options=2)


def test_a_penalty_too_weak_to_converge_is_refused(monkeypatch):
    monkeypatch.setattr(refits, "_STEPS", 20)
    with pytest.raises(InputError, match="too large for these hidden states"):
        fit_probes(np.eye(9)[None], (np.arange(9) % 3)[None, None], options=3, C=1e6)


def test_layers_that_follow_stop_before_the_last_block():
    assert following(3, 6, 30) == (3, 4, 5, 6, 7, 8)
    assert following(29, 6, 30) == following(23, 6, 30) == (23, 24, 25, 26, 27, 28)
    assert following(1, 6, 3) == (0, 1)
    assert following(1, 3, 2) == (0,)


def test_every_method_tries_equally_many_different_settings():
    accuracy = np.random.default_rng(0).random(30)
    for config, number in (
        (SelectionConfig(), 26),
        (SelectionConfig(alphas=(1.0,), layer_counts=(1,), candidates=3), 3),
        (SelectionConfig(candidates=1, multipliers=(1.0,)), 11),
    ):
        tries = settings(accuracy, int(accuracy.argmax()), config)
        assert {method: (len(found), len(set(found))) for method, found in tries.items()} == dict.fromkeys(
            ("KAPPA", "CAA", "DoLa"), (number, number)
        )


def test_caa_is_tried_over_all_depths_at_both_positions_with_both_signs():
    tries = settings(np.linspace(0, 1, 30), 29, SelectionConfig())["CAA"]
    layers = sorted({one.layers[0] for one in tries})
    assert len(layers) == 4
    assert layers[0] < 10 < 20 < layers[-1] < 29
    assert [one.positions for one in tries].count("after") == 9
    for positions in ("after", "last"):
        here = [one for one in tries if one.positions == positions]
        assert {np.sign(one.strength) for one in here} == {-1, 1}
        assert {abs(one.strength) for one in here} == {0.5, 1, 2, 4, 8}
        counts = [sum(one.layers[0] == layer for one in here) for layer in layers]
        assert max(counts) - min(counts) <= 2
    assert [abs(one.strength) for one in tries] == sorted(abs(one.strength) for one in tries)
    other = settings(np.linspace(1, 0, 30), 0, SelectionConfig())["CAA"]
    assert other == tries  # whatever the knowledge probes


def test_no_method_adds_anything_after_the_last_block():
    tries = settings(np.linspace(0, 1, 30), 29, SelectionConfig())
    assert max(layer for method in tries.values() for one in method for layer in one.layers) < 29


def test_candidates_are_the_layers_with_the_best_knowledge_probes():
    accuracy = np.array([0.5, 0.9, 0.8, 0.9, 0.1, 0.2])
    tries = settings(accuracy, 1, SelectionConfig(candidates=2, alphas=(1.0, 2.0), layer_counts=(1, 2)))
    assert tries["KAPPA"][:4] == [Setting("KAPPA", (layer,), alpha) for alpha in (1.0, 2.0) for layer in (1, 3)]
    assert tries["KAPPA"][4] == Setting("KAPPA", (1, 2), 1.0)


def test_the_knowledge_layer_is_the_first_of_the_best(learned):
    assert learned.layer == made.AWARE
    assert learned.know_accuracy[made.AWARE :].min() > 0.95
    assert learned.know_accuracy[: made.AWARE].max() < 0.8


def test_answers_are_corrected_by_the_mean_of_the_training_prompts(learned):
    raw = made.prompts(20)
    assert (raw.logits.argmax(1) == 2).mean() > 0.9
    np.testing.assert_allclose(learned.mean, raw.logits.mean(0))
    assert np.bincount(learned.predicted, minlength=3).min() > 10


def test_kappa_is_chosen_where_it_lifts_accuracy(learned):
    best = learned.best("KAPPA")
    assert best.layers[0] >= made.AWARE
    accuracy = {tried.setting: tried.accuracy for tried in learned.tried}
    assert accuracy[best] > 0.9
    assert accuracy[best] == max(value for setting, value in accuracy.items() if setting.method == "KAPPA")
    assert learned.best("KAPPA", 1).layers == (made.AWARE,)


def test_ties_go_to_the_earlier_setting(learned):
    tried = [t._replace(accuracy=0.5) for t in learned.tried]
    assert replace(learned, tried=tuple(tried)).best("KAPPA") == tried[0].setting


def test_validation_labels_do_not_touch_the_probes(learned):
    validation = made.prompts(8, first=20)
    other = replace(validation, labels=(validation.labels + 1) % 3)
    found = learn("made", made.prompts(20), other)
    for one, two in zip(found.know, learned.know, strict=True):
        np.testing.assert_array_equal(one.weights, two.weights)


def test_the_penalty_is_taken_from_validation():
    config = SelectionConfig(C=(1e-9, 0.01), layer_counts=(1,), alphas=(1.0,))
    found = learn("made", made.prompts(20), made.prompts(8, first=20), config)
    assert found.C in config.C
    accuracies = [
        learn("made", made.prompts(20), made.prompts(8, first=20), replace(config, C=(C,))).know_accuracy.max()
        for C in config.C
    ]
    assert found.know_accuracy.max() == max(accuracies)


def test_a_task_whose_answers_lack_an_option_has_no_prediction_probe():
    training = made.prompts(20)
    constant = replace(training, logits=np.tile([0.0, 1.0, 2.0], (60, 1)))
    found = learn("constant", constant, made.prompts(8, first=20))
    assert found.pred is None
    assert found.tried == ()
    with pytest.raises(InputError, match="never picks"):
        found.pairs([0])


def test_items_may_not_be_on_both_sides():
    with pytest.raises(InputError, match="share items"):
        learn("made", made.prompts(20), made.prompts(8, first=19))


def test_dola_is_corrected_by_its_own_mean_and_not_by_the_models(learned):
    training = made.prompts(20)
    bucket = next(one.setting.layers for one in learned.tried if one.setting.method == "DoLa")
    found = training.early(bucket)
    corrected = answered(learned, training, [Setting("DoLa", bucket, 1e-9)])[0]
    np.testing.assert_allclose(corrected, found.difference - found.difference[:48].mean(0))  # 16 items
    # By the model's own mean the letter that early layers dislike would be the answer to everything.
    assert np.bincount((found.difference - learned.mean).argmax(1), minlength=3).max() == 60
    assert np.bincount(corrected.argmax(1), minlength=3).min() > 10


def test_symbols_that_dola_excludes_stay_behind_in_the_corrected_order_of_the_model(learned):
    training = made.prompts(20)
    found = training.early((0, 2))
    strict = answered(replace(learned, contrasts={(0, 2): np.zeros(3)}), training, [Setting("DoLa", (0, 2), 1.0)])[0]
    out = found.final < found.best[:, None]
    assert (strict[out] < -900).all()
    np.testing.assert_allclose(strict[out], (found.final - learned.mean)[out] - 1000)
    np.testing.assert_allclose(strict[~out], found.difference[~out])


def test_without_dola_on_training_prompts_there_is_no_dola():
    found = learn("made", replace(made.prompts(20), early=None), made.prompts(8, first=20))
    assert {one.setting.method for one in found.tried} == {"KAPPA", "CAA"}
    with pytest.raises(InputError, match="training prompts for its correction"):
        answered(found, made.prompts(4, first=40), [Setting("DoLa", (0,), 0.1)])


def test_steering_acts_where_its_setting_says(learned):
    seen = []
    asked = made.prompts(4, first=30)
    spied = replace(asked, answers=lambda one: seen.append((type(one), one.positions)) or asked.answers(one))
    answered(learned, spied, [Setting("CAA", (1,), 1.0, "after"), Setting("CAA", (1,), 1.0)])
    answered(learned, spied, [Setting("KAPPA", (2,), 1.0)])
    assert seen == [(Steering, "after"), (Steering, "last"), (Kappa, "last")]


def test_each_setting_is_run_once_and_dola_once_per_bucket(learned):
    calls = []
    validation = made.prompts(4, first=30)
    counted = replace(
        validation,
        answers=lambda kappa: calls.append("kappa") or validation.answers(kappa),
        early=lambda *some: calls.append("dola") or validation.early(*some),
    )
    tries = [Setting("KAPPA", (2,), 1.0), Setting("DoLa", (0,), 0.1), Setting("DoLa", (0,), 0.2)]
    tries += [Setting("KAPPA", (2,), 1.0)]
    logits = answered(learned, counted, tries)
    assert calls == ["kappa", "dola"]
    np.testing.assert_array_equal(logits[0], logits[3])
    expected = validation.answers(Kappa(learned.pairs([2]))) - learned.mean
    np.testing.assert_allclose(logits[0], expected)


def test_prompts_that_do_not_fit_are_refused():
    prompts = Measured(np.zeros((4, 1, 2)), np.zeros((4, 2)), [0, 1, 0, 1], [5, 9, 5, 9])
    assert prompts.take([9]).items.tolist() == [9, 9]
    for items in ([9, 9], [], [4]):
        with pytest.raises(InputError, match="each once"):
            prompts.take(items)
    with pytest.raises(InputError, match="differ in the number of prompts"):
        replace(prompts, labels=[0])
    with pytest.raises(InputError, match="labels must be options"):
        replace(prompts, labels=[0, 1, 2, 0])


def test_agreement_is_with_the_probe_of_the_state_without_intervention(learned):
    validation = made.prompts(8, first=20)
    reference = learned.know[learned.layer].logits(validation.hidden[:, learned.layer])
    for tried in learned.tried[:3]:
        logits = validation.answers(Kappa(learned.pairs(tried.setting.layers), alpha=tried.setting.strength))
        assert tried.agreement == gap.agreement(logits - learned.mean, reference)
