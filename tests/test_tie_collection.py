"""The two sets of prompts with answers: disjoint, reproducible, of both kinds of models."""

import numpy as np
import pytest
import torch

from icml26 import models
from icml26.errors import InputError
from icml26.tie import answers, collection, smollm2
from icml26.tie.heads import PredictorConfig
from icml26.tie.lengths import smollm2 as kept_lengths
from icml26.tie.recorded import RecordedCase

FEW = collection.Collection(
    training_steps=2, training_prompts=3, label_samples=2, test_prompts=2, test_samples=3, cap=12
)


@pytest.fixture(scope="module")
def collected():
    """Both sets from a model of docstrings that has hardly been trained, and what was reported."""
    seen = []
    return collection.collect(FEW, lambda *at: seen.append(at)), seen


def test_no_prompt_is_in_both_sets(collected):
    found, _ = collected
    assert not set(found.training.prompts) & set(found.test.prompts)
    assert found.training.lengths.shape == (3, 2)
    assert found.test.lengths.shape == (2, 3)
    assert found.unit == "bytes"


def test_progress_goes_through_both_stages(collected):
    assert {stage for stage, _, _ in collected[1]} == {"training steps", "prompts answered"}
    assert all(0 < done <= total for _, done, total in collected[1])


def test_answers_repeat_with_their_seed_and_differ_with_another():
    model, tokenizer = models.load_lm("tiny-random-llama")
    texts = ["Why?", "Tell me more."]
    first, again, other = (answers.model_answers(model, tokenizer, texts, 20, seed=seed, cap=30) for seed in (0, 0, 1))
    assert np.array_equal(first.lengths, again.lengths)
    assert np.array_equal(first.features, other.features)
    assert first.lengths.max() <= 30


def test_features_are_the_mean_and_the_last_of_the_last_hidden_states():
    model, tokenizer = models.load_lm("tiny-random-llama")
    found = answers.model_answers(model, tokenizer, ["Why?"], 1, seed=0, cap=2)
    with torch.inference_mode():
        states = model(input_ids=answers.encode(tokenizer, "Why?")[None], output_hidden_states=True).hidden_states[-1]
    assert np.allclose(found.features[0], torch.cat([states[0].mean(0), states[0, -1]]).numpy(), atol=1e-6)


def test_the_committed_lengths_are_those_of_the_committed_recipe():
    import json

    from icml26 import checkpoints

    content = json.loads(smollm2.FILE.read_text(encoding="utf-8"))
    assert content["sha256"] == checkpoints.digest(smollm2.RECIPE)
    assert content["recipe"] == dict(smollm2.RECIPE)
    kept = kept_lengths()
    assert kept.lengths.shape == (len(kept.prompts), smollm2.RECIPE["samples"])
    assert set(smollm2.REQUESTS) <= set(kept.prompts)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: answers.model_answers(None, None, [], 1, seed=0, cap=2), "texts is empty"),
        (lambda: collection.collect(collection.Collection(test_prompts=10**6, training_steps=1)), "count=1000000"),
        (lambda: collection.Collection(training_prompts="2"), "training_prompts='2' must be an integer of at least 1"),
        (lambda: collection.Collection(seed=-1), "seed=-1 must be an integer of at least 0"),
        (lambda: collection.Collection(None), "language_model=None must be a name, such as 'docstrings'"),
        (lambda: PredictorConfig(dropout="a"), "dropout='a' and validation=0.25 must be shares below 1"),
        (lambda: PredictorConfig(learning_rates=0.01), "learning_rates=0.01 must be a tuple of numbers"),
        (lambda: PredictorConfig(learning_rates=(0.0,)), r"learning_rates=\(0.0,\) must be positive"),
        (lambda: PredictorConfig(weight_decays=(np.nan,)), "weight_decays=.* must be a tuple of numbers"),
        (lambda: RecordedCase("a"), "load='a' must be a positive multiple"),
        (lambda: RecordedCase(1.0, server=None), "server is of type NoneType; give a Server"),
        (lambda: RecordedCase(1.0, stand_in=[]), "stand_in .*; give"),
        (lambda: RecordedCase(1.0, stand_in=[5, [6]]), "stand_in is no array"),
        (lambda: RecordedCase(1.0, stand_in=[5, 6])(-1), "seed=-1 must be an integer of at least 0"),
    ],
)
def test_wrong_arguments_get_one_line(make, message):
    with pytest.raises(InputError, match=message):
        make()
