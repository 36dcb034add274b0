"""Losses from the first quantised layer on, and the text that they are measured on."""

import numpy as np
import pytest
import torch

from icml26 import models
from icml26.errors import InputError
from icml26.gsrq.language import Evaluator, block_means, corpus, windows
from icml26.gsrq.projections import replaced

TOKENS = torch.randint(3, 200, (2, 40), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def llama():
    return models.load_lm("tiny-random-llama")


def gemma():
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=200,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            sliding_window=4,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            final_logit_softcapping=2.0,
            pad_token_id=0,
        )
    ).eval()


def teacher_forced(model, tokens):
    with torch.no_grad():
        logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none").numpy()


@pytest.mark.parametrize("first", [0, 1])
def test_losses_are_those_of_a_full_pass_with_and_without_replacements(llama, first):
    model, functions = llama[0], {(1, "key"): lambda rows: rows.round(1), (1, "value"): lambda rows: 0.5 * rows}
    evaluator = Evaluator(model, TOKENS, first)
    np.testing.assert_allclose(evaluator.losses(), teacher_forced(model, TOKENS), rtol=0, atol=2e-6)
    with replaced(model, functions):
        expected = teacher_forced(model, TOKENS)
    assert abs(expected - teacher_forced(model, TOKENS)).max() > 1e-4
    np.testing.assert_allclose(evaluator.losses(functions), expected, rtol=0, atol=2e-6)


def test_states_before_the_first_layer_are_bitwise_those_of_a_full_pass(llama):
    model = llama[0]
    outputs = []
    handle = model.get_decoder().norm.register_forward_hook(lambda *given: outputs.append(given[2]))
    try:
        evaluator = Evaluator(model, TOKENS, 1)
        evaluator.losses()
    finally:
        handle.remove()
    full, resumed = outputs[-4:-2], outputs[-2:]  # first come those of the check of the head
    assert all(torch.equal(a, b) for a, b in zip(full, resumed, strict=True))


def test_sliding_windows_and_capped_logits_are_kept():
    model = gemma()
    functions = {(1, "value"): lambda rows: rows * 3, (2, "key"): lambda rows: rows.round()}
    with replaced(model, functions):
        expected = teacher_forced(model, TOKENS)
    np.testing.assert_allclose(Evaluator(model, TOKENS, 1).losses(functions), expected, rtol=0, atol=2e-6)


def test_blocks_are_counted_from_the_start_of_a_window():
    losses = np.arange(14.0).reshape(2, 7)  # of tokens 1 to 7
    expected = [losses[0, :3].mean(), losses[0, 3:7].mean(), losses[1, :3].mean(), losses[1, 3:7].mean()]
    np.testing.assert_allclose(block_means(losses, block=4), expected)
    assert len(block_means(np.ones((2, 511)))) == 16
    np.testing.assert_allclose(block_means(losses, block=100), losses.mean(axis=1))


def test_corpus_parts_do_not_share_text(llama):
    lines = ["".join(f"{part}{number:03d}\n" for number in range(200)) for part in "ab"]
    found = corpus(llama[1], "lines", calibration=3, validation=2, test=2, length=50, texts=tuple(lines))
    assert (found.calibration.shape, found.test.shape) == ((3, 50), (2, 50))
    read = {part: llama[1].batch_decode(getattr(found, part)) for part in ("calibration", "validation", "test")}
    assert all("b" not in text for text in read["calibration"])
    numbers = {
        part: {int(line[1:]) for text in read[part] for line in text.split("\n") if len(line) == 4}
        for part in ("validation", "test")
    }
    assert max(numbers["validation"]) < 100 <= min(numbers["test"])


def test_tokens_in_front_of_every_text_open_every_window(llama):
    class Tokenizer:
        def __call__(self, text, add_special_tokens=True, verbose=True):
            return {"input_ids": [1] * add_special_tokens + [ord(letter) for letter in text]}

    found = windows(Tokenizer(), "abcdefgh", length=4, limit=2)
    assert found.tolist() == [[1, *map(ord, "abc")], [1, *map(ord, "def")]]
    plain = windows(llama[1], "abcdefgh", length=4, limit=2)
    assert llama[1].batch_decode(plain)[0].startswith("abc")


def test_wrong_input_is_named(llama):
    model, tokenizer = llama
    with pytest.raises(InputError, match="need 8 tokens"):
        windows(tokenizer, "abc", length=4, limit=2)
    with pytest.raises(InputError, match="first_layer=1"):
        Evaluator(model, TOKENS, 1).losses({(0, "key"): np.copy})
    with pytest.raises(InputError, match="'python' or 'gsm8k'"):
        corpus(tokenizer, "wiki")
    with pytest.raises(InputError, match="windows"):
        Evaluator(model, TOKENS[0], 1)
    with pytest.raises(InputError, match="finite"):
        block_means([[np.inf]])
