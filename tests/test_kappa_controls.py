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


def noisy(wrong, seed):
    """A task whose model says, with random errors, what the state shows: there is one subspace, not two."""
    draw = np.random.default_rng([seed, 7])
    know, _ = made.world()
    labels = (np.repeat(draw.integers(3, size=30), 3) + np.tile(np.arange(3), 30)) % 3
    said = (labels + (draw.random(90) < wrong) * draw.integers(1, 3, size=90)) % 3
    hidden = know.T[labels][:, None] * 2 + draw.normal(size=(90, 1, made.WIDTH))
    items, training = np.repeat(np.arange(30), 3), np.eye(3)[said]
    measured = replace(
        made.prompts(30), hidden=hidden, logits=training, labels=labels, items=items, vectors=None, early=None
    )
    return learn("noisy", measured, replace(measured, items=items + 30, answers=None))


def test_subspaces_that_differ_are_separated(learned):
    # What is said has directions of its own, so the angle across is far larger than within.
    found = nulls.separation(learned, halvings=3, seed=0)
    assert found.value == pytest.approx(found.across - max(found.within, found.within_pred))
    assert found.value - 2 * found.error > 10


@pytest.mark.parametrize("wrong", [0.3, 0.5])
def test_noise_of_labels_alone_does_not_separate(wrong):
    found = [nulls.separation(noisy(wrong, seed), halvings=3, seed=seed) for seed in range(4)]
    # Against knowledge alone it would look like two subspaces.
    assert np.mean([one.across - one.within for one in found]) > 5
    assert np.mean([one.value for one in found]) < 0
    assert all(one.value - 2 * one.error < 0 for one in found)


def test_a_model_that_says_what_it_knows_is_not_separated():
    right = learn("right", made.prompts(30, wrong=0.0), made.prompts(8, first=30, wrong=0.0))
    found = nulls.separation(right, halvings=2, seed=0)
    assert found.across == pytest.approx(found.within, abs=1e-6) == pytest.approx(found.within_pred, abs=1e-6)
    assert found.error == pytest.approx(0, abs=1e-6)


def test_the_error_is_that_of_leaving_out_each_item_by_hand(monkeypatch, learned):
    found = nulls.separation(learned, halvings=2, seed=3)
    training, layer = learned.training, learned.layer
    seen = []
    fit = controls.fit_probes
    monkeypatch.setattr(
        nulls, "fit_probes", lambda hidden, *a, **o: seen.append(hidden[..., 0]) or fit(hidden, *a, **o)
    )
    nulls.separation(learned, halvings=2, seed=3)
    place = {value: row for row, value in enumerate(training.hidden[:, layer, 0])}
    halves = [sorted({int(training.items[place[value]]) for value in whole[0]}) for whole in seen[::2]]
    assert len(halves) == 4
    for first, second in (halves[:2], halves[2:]):
        assert sorted(first + second) == list(range(30))

    def angles(without):
        table = []
        for pair in (halves[:2], halves[2:]):
            fits = []
            for half in pair:
                rows = np.isin(training.items, [item for item in half if item != without])
                labels = np.stack([training.labels, learned.predicted])[:, rows]
                fits.append(fit(training.hidden[None, rows, layer], labels[None], options=3, C=learned.C).weights[0])
            (k1, p1), (k2, p2) = fits
            across = (geometry.mean_angle(k1, p2) + geometry.mean_angle(k2, p1)) / 2
            table.append([across, geometry.mean_angle(k1, k2), geometry.mean_angle(p1, p2)])
        return np.array(table)

    def value(table):
        across, within, within_pred = table.mean(0)
        return across - max(within, within_pred)

    everything = angles(None)
    assert found.value == pytest.approx(value(everything), abs=1e-3)
    left_out = np.array([value(angles(item)) for item in range(30)])
    larger = 1 + int(everything[:, 2].mean() > everything[:, 1].mean())
    halving = (everything[:, 0] - everything[:, larger]).var(ddof=1) / 2
    assert found.error == pytest.approx(np.sqrt(29 * left_out.var() + halving), rel=1e-2)


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


def test_random_knowledge_about_the_mean_state_names_no_option_there(learned):
    training = learned.training.hidden[:, 2]
    zero, about = (controls.random_pairs(learned, [2], seed=4, about_mean=flag)[2][0] for flag in (False, True))
    np.testing.assert_array_equal(zero.weights, about.weights)
    np.testing.assert_allclose(about.logits(training).mean(0), 0, atol=1e-6)
    far = replace(learned, training=replace(learned.training, hidden=learned.training.hidden + 100.0))
    names = [controls.random_pairs(far, [2], seed=4, about_mean=flag)[2][0] for flag in (False, True)]
    picked = [probe.logits(far.training.hidden[:, 2]).argmax(1) for probe in names]
    assert len(set(picked[0])) == 1
    assert len(set(picked[1])) == 3


def test_the_direct_effect_is_what_the_final_norm_and_the_letters_make_of_the_step(learned, asked):
    rows = np.random.default_rng(1).normal(size=(made.WIDTH, 3))
    found = controls.direct_effect(learned, asked, 2, 1e-4, rows)
    step = shift(asked.hidden[:, 2], learned.know[2], learned.pred[2], alpha=1e-4)
    for prompt in (0, 7):
        scale = np.linalg.norm(asked.hidden[prompt, -1]) / np.sqrt(made.WIDTH)
        change = [step[prompt] @ rows[:, letter] / scale for letter in range(3)]
        np.testing.assert_allclose(found[prompt], np.array(change) - sum(change) / 3, rtol=1e-5, atol=1e-9)
    with pytest.raises(InputError, match="rows have width 5"):
        controls.direct_effect(learned, asked, 2, 1.0, rows[:5])


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
    moved = (table - original) % 3
    assert (moved == moved[..., :1]).all()
    for draw in moved[..., 0]:  # a third of the items each keep their answer, take the next, take the one after
        assert np.bincount(draw).tolist() == [10, 10, 10]


def test_shuffling_changes_labels_of_items_whose_right_option_comes_first(learned, monkeypatch):
    seen = {}
    fit = controls.fit_probes
    monkeypatch.setattr(
        controls, "fit_probes", lambda hidden, found, **o: seen.update(found=found) or fit(hidden, found, **o)
    )
    labels = np.tile([0, 2, 1], 30)
    controls.shuffled_pairs(replace(learned, training=replace(learned.training, labels=labels)), [2], draws=2, seed=0)
    assert (seen["found"][0] != labels).mean() == pytest.approx(2 / 3)


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


@pytest.mark.parametrize("family", ["gpt2", "olmo"])
def test_letters_have_no_rows_before_a_norm_that_subtracts_the_mean(family):
    import transformers

    small = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8, "vocab_size": 9}
    config = {"gpt2": transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9)}.get(family)
    config = config or transformers.OlmoConfig(**small, intermediate_size=8)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(InputError, match="without an RMS norm"):
        controls.letter_rows(model, [1, 2])


def test_the_letters_share_is_that_of_the_projection(learned, asked):
    rows = np.random.default_rng(0).normal(size=(made.WIDTH, 3))
    share = controls.letter_share(learned, asked, 2, 5.0, rows)
    step = shift(asked.hidden[:, 2], learned.know[2], learned.pred[2], alpha=5.0)
    inside = step @ geometry.basis(rows)
    np.testing.assert_allclose(share, (inside**2).sum(1) / (step**2).sum(1))
    # Here answers are read off along the planted directions, which is where the prediction probe writes.
    known, said = (controls.letter_share(learned, asked, 2, 5.0, rows).mean() for rows in made.world())
    assert said > 0.5 > known
