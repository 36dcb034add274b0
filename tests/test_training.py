"""The loop learns and repeats itself exactly; a checkpoint is what its recipe says, or an error of one line."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icml26 import training
from icml26.errors import InputError
from icml26.s_quant import byte_lm

SHAPE = {
    "model_type": "llama",
    "vocab_size": 16,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "tie_word_embeddings": True,
}
CONFIG = training.TrainingConfig(steps=30, batch_size=4, window=16, learning_rate=0.02, warmup=5)
TOKENS = torch.arange(400) % 7


@pytest.fixture
def saved(tmp_path):
    recipe = {"model": SHAPE, "seed": 3, "note": "ü"}
    path = tmp_path / "a.safetensors"
    training.save_checkpoint(training.build(SHAPE, 3), recipe, path)
    return path, recipe


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(seed=0, config=CONFIG, **given):
    model = training.build(SHAPE, 0)
    return model, training.train(model, TOKENS, config, seed=seed, **given)


def test_a_predictable_text_is_learnt_from_chance_to_near_nothing():
    model, losses = trained(config=replace(CONFIG, steps=120))
    assert losses[0] == pytest.approx(math.log(16), abs=0.3)
    assert losses[-10:].mean() < 0.1
    assert not model.training


def test_equal_seeds_give_equal_weights_and_other_seeds_others():
    first, again, other = trained(), trained(), trained(seed=1)
    assert torch.equal(weights(first[0]), weights(again[0]))
    assert np.array_equal(first[1], again[1])
    assert not torch.equal(weights(first[0]), weights(other[0]))


def test_training_and_building_leave_the_global_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained()
    assert torch.equal(torch.rand(3), expected)


def test_stopping_early_is_the_beginning_of_the_same_schedule():
    _, whole = trained()
    _, part = trained(stop=7)
    assert np.array_equal(part, whole[:7])


def test_progress_sees_every_step_and_its_loss():
    seen = []
    _, losses = trained(progress=lambda step, loss: seen.append((step, loss)))
    assert seen == [(i + 1, float(loss)) for i, loss in enumerate(losses)]


def test_the_loss_of_rows_is_that_of_the_tokens_after_the_skipped_ones():
    rows = torch.randint(16, (1, 12), generator=torch.Generator().manual_seed(0))
    for skip in (0, 1, 2, 7, 11):
        model = training.build(SHAPE, 0)
        with torch.no_grad():
            law = model(input_ids=rows).logits[0].log_softmax(-1)
        expected = -np.mean([law[at - 1, rows[0, at]].item() for at in range(max(skip, 1), 12)])
        losses = training.train(model, rows, CONFIG, seed=0, skip=skip, stop=1)
        assert losses[0] == pytest.approx(expected, rel=1e-5)


def test_skipped_tokens_are_read_but_not_learnt():
    draw = torch.Generator().manual_seed(0)
    first = torch.randint(16, (512, 1), generator=draw)
    noise = torch.randint(16, (512, 3), generator=draw)
    rows = torch.cat([noise, first, first, first], 1)  # what follows the noise is certain after its first token
    losses = training.train(training.build(SHAPE, 0), rows, replace(CONFIG, steps=150, batch_size=16), seed=0, skip=4)
    assert losses[-10:].mean() < 0.1


def test_rows_are_drawn_whole_and_their_type_changes_nothing():
    rows = torch.arange(64).reshape(8, 8) % 16
    seen = []

    class Watched(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, input_ids):
            seen.append(input_ids)
            return self.model(input_ids=input_ids)

    models = [training.build(SHAPE, 0), training.build(SHAPE, 0)]
    training.train(Watched(models[0]), rows, CONFIG, seed=0)
    training.train(models[1], rows.to(torch.uint8), CONFIG, seed=0)
    assert torch.equal(weights(models[0]), weights(models[1]))
    drawn = {tuple(row.tolist()) for row in torch.cat(seen)}
    assert drawn == {tuple(row[:-1].tolist()) for row in rows}


def test_training_stops_once_the_condition_holds_and_asks_it_in_evaluation_mode():
    asked = []

    def until(step):
        asked.append((step, model.training))
        return step == 9

    model = training.build(SHAPE, 0)
    losses = training.train(model, TOKENS, CONFIG, seed=0, until=until)
    expected, whole = trained(stop=9)
    assert asked == [(step, False) for step in range(1, 10)]
    assert np.array_equal(losses, whole)
    assert torch.equal(weights(model), weights(expected))
    assert not model.training


def test_a_step_is_adam_with_decoupled_decay_of_matrices_after_clipping():
    config = replace(CONFIG, steps=1, warmup=0, clip=1e-3, final_share=1.0)
    model, before = training.build(SHAPE, 0), training.build(SHAPE, 0)
    training.train(model, TOKENS, config, seed=0)
    changes = {
        name: (new - old * (1 - config.learning_rate * config.weight_decay * (old.ndim > 1)))
        for (name, new), old in zip(model.named_parameters(), before.parameters(), strict=True)
    }
    # Adam's first step moves every weight with a gradient well above its epsilon by the learning rate.
    for change in changes.values():
        moved = change.abs()[change.abs() > 0.5 * config.learning_rate]
        assert len(moved) > 0
        assert (moved <= config.learning_rate * 1.001).all()
    assert torch.cat([c.flatten().abs() for c in changes.values()]).max() <= config.learning_rate * 1.001


@given(st.integers(1, 50), st.integers(0, 60), st.floats(0, 1))
def test_the_rate_rises_to_its_peak_and_falls_to_its_last_share(steps, warmup, share):
    config = training.TrainingConfig(steps=steps, warmup=warmup, final_share=share, learning_rate=2.0)
    rates = [training.learning_rate(step, config) for step in range(steps)]
    peak = min(warmup, steps) - 1 if warmup else 0
    assert all(a <= b for a, b in pairwise(rates[: peak + 1]))
    assert all(a >= b for a, b in pairwise(rates[peak:]))
    assert max(rates) <= 2.0
    if steps > warmup + 1:
        assert rates[-1] == pytest.approx(2.0 * share)


def test_a_checkpoint_returns_the_fp16_weights_the_recipe_and_ties(saved):
    path, recipe = saved
    found = training.load_checkpoint(path)
    assert found.recipe == recipe
    expected = training.build(SHAPE, 3)
    assert torch.equal(weights(found.model), weights(expected).half().float())
    assert found.model.lm_head.weight.data_ptr() == found.model.model.embed_tokens.weight.data_ptr()
    for weight in expected.parameters():
        weight.data = weight.half().float()
    assert torch.equal(found.model(TOKENS[None]).logits, expected(TOKENS[None]).logits)
    assert not found.model.training


def test_saving_what_was_loaded_gives_the_same_file(saved, tmp_path):
    path, recipe = saved
    training.save_checkpoint(training.load_checkpoint(path).model, recipe, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == path.read_bytes()


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_no_byte_of_a_checkpoint_changes_unnoticed(tmp_path_factory, place, change):
    path = tmp_path_factory.mktemp("damaged") / "a"
    recipe = {"model": SHAPE}
    training.save_checkpoint(training.build(SHAPE, 0), recipe, path)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= change
    path.write_bytes(content)
    try:
        found = training.load_checkpoint(path)
    except training.CheckpointError:
        return
    assert found.recipe == recipe  # a blank in the header may be another blank
    assert torch.equal(weights(found.model), weights(training.build(SHAPE, 0)).half().float())


def test_what_is_no_sound_checkpoint_is_one_clear_line(saved, tmp_path):
    path, _ = saved
    content = path.read_bytes()
    cases = {
        content[:-5]: "truncated",
        content[:40]: "truncated",
        b"": "no checkpoint",
        b"not a checkpoint at all": "no checkpoint",
        content.replace(b'\\"seed\\": 3', b'\\"seed\\": 4'): "SHA-256",
        content.replace(b'\\"version\\": 1', b'\\"version\\": 9'): "version 9",
    }
    for changed, message in cases.items():
        assert changed != content
        path.write_bytes(changed)
        with pytest.raises(training.CheckpointError, match=message):
            training.load_checkpoint(path)
    with pytest.raises(training.CheckpointError, match="cannot be read"):
        training.load_checkpoint(tmp_path / "none")
    training.save_checkpoint(training.build(SHAPE, 0), {"model": {**SHAPE, "hidden_size": 32}}, path)
    with pytest.raises(training.CheckpointError, match="not of the recipe's model"):
        training.load_checkpoint(path)


def test_a_model_too_large_or_out_of_range_is_refused(tmp_path):
    large = training.build({**SHAPE, "vocab_size": 70_000}, 0)
    with pytest.raises(InputError, match=r"more than 2,000,000"):
        training.save_checkpoint(large, {}, tmp_path / "a")
    model = training.build(SHAPE, 0)
    model.model.norm.weight.data[0] = 1e5
    with pytest.raises(InputError, match="does not fit fp16"):
        training.save_checkpoint(model, {}, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_are_named():
    cases = [
        (lambda: training.TrainingConfig(steps=0), "steps=0"),
        (lambda: training.TrainingConfig(steps=1, final_share=2), "final_share=2"),
        (lambda: training.TrainingConfig(steps=1, learning_rate=0.0), "learning_rate=0.0"),
        (lambda: training.train(training.build(SHAPE, 0), TOKENS[:16], CONFIG, seed=0), "window=16"),
        (lambda: trained(config=replace(CONFIG, learning_rate=1e9, clip=1e9)), "not finite"),
        (lambda: trained(skip=3), "skip=3 needs rows"),
        (lambda: training.train(training.build(SHAPE, 0), TOKENS.reshape(-1, 8), CONFIG, seed=0, skip=8), "skip=8"),
        (lambda: training.train(training.build(SHAPE, 0), TOKENS[None, :1], CONFIG, seed=0), "length of at least 2"),
        (lambda: training.train(training.build(SHAPE, 0), TOKENS[:0].reshape(0, 8), CONFIG, seed=0), r"\(0, 8\)"),
        (lambda: training.train(training.build(SHAPE, 0), TOKENS.float().reshape(-1, 8), CONFIG, seed=0), "token ids"),
        (lambda: training.build({"model_type": "lama"}, 0), "lama"),
        (lambda: training.build({**SHAPE, "hidden_size": 15}, 0), "builds no causal language model"),
        (lambda: byte_lm.load(3), "seed=3"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("seed", byte_lm.SEEDS)
def test_a_committed_checkpoint_is_of_the_recipe_in_the_code(seed):
    found = byte_lm.load(seed)
    assert training.digest(found.recipe) == training.digest(byte_lm.recipe(seed))


@pytest.mark.slow
def test_the_recipe_runs_for_two_steps_and_lowers_the_loss_of_its_text():
    text = "one and one is two, two and two is four. " * 40
    losses = []
    model = byte_lm.train(0, text=text, steps=2, progress=lambda step, loss: losses.append(loss))
    assert losses[1] < losses[0]
    assert model.config.hidden_size == byte_lm.MODEL["hidden_size"]
