"""CAA and DoLa, compared with slow computations of the same."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import log_softmax

from icml26.errors import InputError
from icml26.kappa.baselines import Steering, caa, contrast, contrasted, dola, dola_scores
from icml26.kappa.collect import collect
from icml26.models import load_lm

MODEL, TOKENIZER = load_lm("tiny-random-llama")
PROMPTS = ["2 + 2?\n\nIt is (", "Who?\n\nIt is (", "Why so?\n\nIt is ("]
IDS = [36, 37, 38]


@pytest.fixture(scope="module")
def deep():
    """A model of five blocks and its states."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = LlamaConfig(
            vocab_size=61, hidden_size=16, num_hidden_layers=5, num_attention_heads=2, intermediate_size=24,
            initializer_range=0.5,
        )  # fmt: skip
        model = LlamaForCausalLM(config).eval()
    tokens = np.random.default_rng(2).integers(0, 61, size=(7, 6)).tolist()
    return model, collect(model, None, tokens, IDS)


def test_contrasted_tokens_are_the_right_symbol_and_every_wrong_one_equally_often():
    labels = np.tile([0, 1, 2, 3], 600)
    pairs = contrast(labels, [10, 11, 12, 13], seed=4)
    assert (pairs[:, 0] == labels + 10).all()
    for label in range(4):
        wrong, counts = np.unique(pairs[labels == label, 1], return_counts=True)
        assert wrong.tolist() == [token for token in range(10, 14) if token != label + 10]
        assert abs(counts - 200).max() < 5 * np.sqrt(600 * 2 / 9)
    assert np.array_equal(pairs, contrast(labels, [10, 11, 12, 13], seed=4))
    assert not np.array_equal(pairs, contrast(labels, [10, 11, 12, 13], seed=5))


def test_caa_is_the_mean_difference_at_the_letters():
    labels = [0, 1, 2]
    pairs = contrast(labels, IDS, seed=1)
    vectors = caa(collect(MODEL, TOKENIZER, PROMPTS, IDS, appended=pairs).appended)
    expected = np.zeros((2, 128))
    for text, (right, wrong) in zip(PROMPTS, pairs, strict=True):
        for token, sign in ((right, 1), (wrong, -1)):
            letter = TOKENIZER.decode([token])
            expected += sign * collect(MODEL, TOKENIZER, [text + letter], IDS).hidden[0] / len(PROMPTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_steering_adds_its_vector_to_the_output_of_a_block():
    vector = np.linspace(-1, 2, 128)
    ids = TOKENIZER(PROMPTS[0], return_tensors="pt")
    seen = {}
    handle = MODEL.model.layers[1].register_forward_hook(lambda module, inputs, output: seen.update(output=output))
    with torch.no_grad():
        MODEL(**ids)
        plain = seen["output"]
        with Steering({1: vector}, multiplier=-0.5, positions="after").applied(MODEL, start=4):
            MODEL(**ids)
    handle.remove()
    moved = (seen["output"] - plain)[0].numpy()
    np.testing.assert_allclose(moved[4:], np.tile(-0.5 * vector, (len(moved) - 4, 1)), atol=1e-5)
    assert not moved[:4].any()


def test_steering_by_nothing_is_no_change_at_all():
    found = collect(MODEL, TOKENIZER, PROMPTS, IDS, keep_cache=True)
    for steering in (Steering({}), Steering({0: np.zeros(128)}, multiplier=3.0)):
        np.testing.assert_allclose(found.prepared.answers(steering), found.logits, atol=1e-5)


def slow_dola(model, hidden, symbols, bucket, threshold):
    """One prompt and one layer at a time, in float64."""
    norm, head = model.model.norm, model.lm_head
    scores = []
    for states in hidden:
        with torch.no_grad():
            logs = log_softmax(head(norm(torch.from_numpy(states))).double().numpy(), axis=-1)
        far = max(bucket, key=lambda layer: jensenshannon(np.exp(logs[-1]), np.exp(logs[layer])))
        inside = np.exp(logs[-1]) >= threshold * np.exp(logs[-1]).max()
        score = np.where(inside, logs[-1] - logs[far], -1000 + logs[-1])
        scores.append(score[symbols])
    return np.array(scores)


def test_dola_equals_one_prompt_and_one_layer_at_a_time(deep):
    model, found = deep
    thresholds = (1e-3, 0.1, 0.5, 1.0)
    for bucket in ([0, 2], [1], [0, 1, 2, 3]):
        scores = dola(model, found.hidden, IDS, bucket, thresholds)
        for threshold, score in zip(thresholds, scores, strict=True):
            expected = slow_dola(model, found.hidden, IDS, bucket, threshold)
            np.testing.assert_allclose(score, expected, atol=1e-3)
    assert (dola(model, found.hidden, IDS, [1], (1.0,)) < -900).any()


def test_excluded_symbols_keep_the_order_of_the_model_behind_the_others(deep):
    model, found = deep
    [scores] = dola(model, found.hidden, IDS, [0, 2], (1.0,))
    out = (scores < -900).all(1)
    assert out.any()
    assert np.array_equal(scores[out].argsort(1), found.logits[out].argsort(1))


def test_a_correction_moves_scores_of_tokens_that_count_and_another_one_those_behind(deep):
    model, found = deep
    parts = contrasted(model, found.hidden, IDS, [0, 2])
    plain = dola(model, found.hidden, IDS, [0, 2], (0.3,))[0]
    moved = dola_scores(parts, (0.3,), difference=[1.0, 2.0, 3.0], final=[4.0, 5.0, 6.0])[0]
    out = plain < -900
    assert out.any()
    assert not out.all()
    np.testing.assert_allclose(plain - moved, np.where(out, [4.0, 5.0, 6.0], [1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contrast([0, 3], IDS), "labels must be options, 0 to 2"),
        (lambda: contrast([0.0], IDS), "labels must be options"),
        (lambda: contrast([0], [36]), "two tokens"),
        (lambda: caa(np.zeros((3, 3, 2, 4))), "shape"),
        (lambda: caa(np.full((3, 2, 2, 4), np.nan)), "finite"),
        (lambda: Steering({0: np.ones((2, 2))}), "block 0"),
        (lambda: Steering({0: np.ones(2)}, multiplier=np.inf), "multiplier"),
        (lambda: Steering({0: np.ones(2)}, positions="all"), "positions='all'"),
        (lambda: Steering([np.ones(2)]), "map blocks"),
        (lambda: Steering({5: np.ones(128)}).applied(MODEL).__enter__(), "layer 5"),
        (lambda: dola(MODEL, np.zeros((1, 2, 128)), IDS, [1]), "0 to 0"),
        (lambda: dola(MODEL, np.zeros((1, 2, 128)), IDS, []), "bucket"),
        (lambda: dola(MODEL, np.zeros((1, 2, 128)), IDS, [0], [0.0]), "threshold"),
        (lambda: dola(MODEL, np.zeros((2, 128)), IDS, [0]), "shape"),
        (lambda: dola(MODEL, np.full((1, 2, 128), np.nan), IDS, [0]), "not finite"),
        (lambda: dola(MODEL, np.zeros((1, 2, 128)), [10**6], [0]), "symbol_ids"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_vector_of_another_width_is_refused():
    with pytest.raises(InputError, match="width 3"), Steering({0: np.ones(3)}).applied(MODEL):
        MODEL(**TOKENIZER(PROMPTS[0], return_tensors="pt"))
