"""Controls of KAPPA: probes, angles and interventions where there is nothing to find."""

from dataclasses import replace

import kappa_prompts as made
import numpy as np
import pytest
import torch

from icml26.errors import InputError
from icml26.kappa import controls, geometry, nulls
from icml26.kappa.intervention import shift
from icml26.kappa.selection import learn
from icml26.models import load_lm


@pytest.fixture(scope="module")
def learned():
    return learn("made", made.prompts(30), made.prompts(8, first=30))


@pytest.fixture(scope="module")
def asked():
    return made.prompts(40, first=50)


def test_probes_of_random_answers_know_nothing(learned, asked):
    hits = nulls.random_labels(learned, asked, draws=30, seed=0)
    assert hits.shape == (30, 120)
    assert 0.25 < hits.mean() < 0.42
    assert learned.reference(asked).argmax(1).tolist() == asked.labels.tolist()


def test_random_answers_are_one_shift_for_all_orders_of_an_item(learned, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        nulls,
        "fit_probes",
        lambda hidden, labels, **options: seen.update(labels=labels) or fit(hidden, labels, **options),
    )
    fit = controls.fit_probes
    nulls.random_labels(learned, made.prompts(2, first=90), draws=2, seed=1)
    moved = (seen["labels"][0] - learned.training.labels) % 3
    assert (moved.reshape(2, 30, 3) == moved.reshape(2, 30, 3)[..., :1]).all()
    assert set(moved.ravel()) == {0, 1, 2}


def test_a_model_that_never_errs_has_no_angle_and_no_gap():
    right = learn("right", made.prompts(30, wrong=0.0), made.prompts(8, first=30, wrong=0.0))
    null = nulls.flip_null(right, made.prompts(20, first=50, wrong=0.0), draws=3, seed=0)
    np.testing.assert_allclose(null.angles, 0, atol=1e-5)
    np.testing.assert_array_equal(null.gaps, 0)


def test_random_errors_alone_open_the_angle_and_the_gap(learned, asked):
    null = nulls.flip_null(learned, asked, draws=20, seed=0)
    assert null.angles.min() > 5
    own = (asked.logits - learned.mean).argmax(1)
    assert null.gaps.mean() == pytest.approx((own != asked.labels).mean(), abs=0.05)


def test_subspaces_that_differ_are_separated(learned):
    # What is said has directions of its own, so the angle across is far larger than within.
    found = nulls.separation(learned, resamples=20, seed=0)
    assert found.across - found.within > 20
    assert np.quantile(found.differences, 0.025) > 0


def test_a_model_that_says_what_it_knows_is_not_separated():
    right = learn("right", made.prompts(30, wrong=0.0), made.prompts(8, first=30, wrong=0.0))
    found = nulls.separation(right, resamples=5, seed=0)
    assert found.across == pytest.approx(found.within, abs=1e-6)
    np.testing.assert_allclose(found.differences, 0, atol=1e-6)


def test_halves_share_no_item_and_resamples_stay_in_their_half(learned, monkeypatch):
    marked = learned.training.hidden.copy()
    marked[..., 0] = learned.training.items[:, None]
    seen = []
    fit = controls.fit_probes
    monkeypatch.setattr(
        nulls, "fit_probes", lambda hidden, *a, **o: seen.append(hidden[..., 0]) or fit(hidden, *a, **o)
    )
    nulls.separation(replace(learned, training=replace(learned.training, hidden=marked)), resamples=6, seed=3)
    first, second = ({int(i) for i in np.unique(values)} for values in seen)
    assert len(first) == len(second) == 15
    assert not first & second
    assert seen[0].shape == (7, 45)
    for row in seen[0]:
        assert set(np.unique(row, return_counts=True)[1] % 3) == {0}  # all orders of an item


def test_too_few_items_for_halves_are_refused(learned):
    few = replace(learned, training=learned.training.take([0, 1]), predicted=np.array([0, 1, 2, 2, 2, 2]))
    with pytest.raises(InputError, match="too few training items"):
        nulls.separation(few, seed=0)


def test_random_knowledge_has_the_norm_of_the_knowledge_probe_and_no_bias(learned):
    pairs = controls.random_pairs(learned, [1, 3], seed=0)
    for layer, (know, pred) in pairs.items():
        assert np.linalg.norm(know.weights) == pytest.approx(np.linalg.norm(learned.know[layer].centred().weights))
        np.testing.assert_allclose(know.weights.sum(1), 0, atol=1e-12)
        assert not know.bias.any()
        assert pred is learned.pred[layer]
    again = controls.random_pairs(learned, [1, 3], seed=0)
    np.testing.assert_array_equal(again[1][0].weights, pairs[1][0].weights)


def test_shuffled_answers_stay_balanced_over_the_orders_of_an_item(learned, monkeypatch):
    seen = {}
    fit = controls.fit_probes
    monkeypatch.setattr(
        controls, "fit_probes", lambda hidden, labels, **o: seen.update(labels=labels) or fit(hidden, labels, **o)
    )
    pairs = controls.shuffled_pairs(learned, [2, 3], draws=4, seed=0)
    assert len(pairs) == 4
    assert list(pairs[0]) == [2, 3]
    table, original = seen["labels"][0].reshape(4, 30, 3), learned.training.labels.reshape(30, 3)
    assert (np.sort(table, axis=2) == np.arange(3)).all()
    for rows in table:
        assert sorted(map(tuple, rows)) == sorted(map(tuple, original))
        assert (rows != original).any()


def test_shuffled_knowledge_knows_little(learned, asked):
    right = [
        (pairs[2][0].logits(asked.hidden[:, 2]).argmax(1) == asked.labels).mean()
        for pairs in controls.shuffled_pairs(learned, [2], draws=20, seed=0)
    ]
    assert 0.15 < np.mean(right) < 0.52


def test_reversed_knowledge_names_the_worst_option_first(learned, asked):
    know, _ = controls.reversed_pairs(learned, [2])[2]
    hidden = asked.hidden[:, 2]
    np.testing.assert_array_equal(know.logits(hidden).argmax(1), learned.know[2].logits(hidden).argmin(1))


def test_moving_along_the_letters_rows_raises_their_logits():
    model, _ = load_lm("tiny-random-llama")
    symbols = [70, 71, 72]
    with torch.no_grad():
        model.model.norm.weight.copy_(torch.linspace(0.5, 2.0, 128))
        rows = torch.from_numpy(controls.letter_rows(model, symbols))
        state = torch.randn(128, generator=torch.Generator().manual_seed(0)).double()
        rms = (state.square().mean() + model.config.rms_norm_eps).sqrt()
        logits = model.lm_head(model.model.norm(state.float()[None]))[0, symbols]
    np.testing.assert_allclose((state @ rows / rms).numpy(), logits.double().numpy(), rtol=1e-4, atol=1e-5)


def test_the_letters_share_is_that_of_the_projection(learned, asked):
    rows = np.random.default_rng(0).normal(size=(made.WIDTH, 3))
    share = controls.letter_share(learned, asked, 2, 5.0, rows)
    step = shift(asked.hidden[:, 2], learned.know[2], learned.pred[2], alpha=5.0)
    inside = step @ geometry.basis(rows)
    np.testing.assert_allclose(share, (inside**2).sum(1) / (step**2).sum(1))
    # Here answers are read off along the planted directions, which is where the prediction probe writes.
    known, said = (controls.letter_share(learned, asked, 2, 5.0, rows).mean() for rows in made.world())
    assert said > 0.5 > known
