"""Hidden states of prompts, and answers under interventions at the price of one token."""

import functools

import numpy as np
import pytest
import torch

from icml26.errors import InputError
from icml26.kappa import collect as collecting
from icml26.kappa.baselines import Steering
from icml26.kappa.collect import collect, early_logits, last_line
from icml26.kappa.intervention import Kappa
from icml26.kappa.probes import Probe
from icml26.models import load_lm
from icml26.multiple_choice import SYMBOLS, Item, cyclic_orders, prompt, symbol_ids

ITEMS = [
    Item("Which of these is a bird?", ("owl", "rake", "cod"), 0),
    Item("And which is a fish?", ("eel", "van", "hat"), 0),
]
PROMPTS = [prompt(item, order) for item in ITEMS for order in cyclic_orders(3)]
TOKENS = [list(map(int, row)) for row in np.random.default_rng(0).integers(3, 90, size=(5, 14))]
TOKENS[1], TOKENS[3] = TOKENS[1][:9], TOKENS[3][:9]
IDS = [40, 41, 42]


@functools.cache
def llama():
    model, tokenizer = load_lm("tiny-random-llama")
    return model, tokenizer, symbol_ids(tokenizer, SYMBOLS[:3])


@functools.cache
def random_model(family):
    """A model of 4 blocks and width 16, whose blocks, windows, norms or biases differ from Llama's."""
    import transformers

    sizes = {"vocab_size": 97, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}
    more = {"num_key_value_heads": 1, "intermediate_size": 32, "head_dim": 8}
    config, kind = {
        "llama": (transformers.LlamaConfig(**sizes, **more), transformers.LlamaForCausalLM),
        # Prompts are longer than the window of the sliding layers.
        "gemma3": (
            transformers.Gemma3TextConfig(**sizes, **more, sliding_window=5, final_logit_softcapping=0.3),
            transformers.Gemma3ForCausalLM,
        ),
        "gpt2": (transformers.GPT2Config(vocab_size=97, n_embd=16, n_layer=4, n_head=2), transformers.GPT2LMHeadModel),
    }[family]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(config).eval()


def probes(width, seed):
    draw = np.random.default_rng(seed)
    return tuple(Probe(draw.normal(size=(width, 3)), draw.normal(size=3)) for _ in range(2))


def kappa(layers, width=16, **options):
    return Kappa({layer: probes(width, layer) for layer in layers}, **options)


def reference(model, rows, ids, intervention=None, start=None):
    """One prompt at a time, all tokens, all logits."""
    found = []
    for row in rows:
        tokens = torch.tensor([row])
        with torch.no_grad():
            if intervention is None:
                logits = model(input_ids=tokens, use_cache=False).logits
            else:
                with intervention.applied(model, **({} if start is None else {"start": start})):
                    logits = model(input_ids=tokens, use_cache=False).logits
        found.append(logits[0, -1, ids].double().numpy())
    return np.stack(found)


def test_hidden_states_are_the_outputs_of_blocks_at_the_last_token():
    model, tokenizer, ids = llama()
    found = collect(model, tokenizer, PROMPTS, ids)
    for row, text in enumerate(PROMPTS):
        with torch.no_grad():
            out = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        np.testing.assert_allclose(found.hidden[row, 0], out.hidden_states[1][0, -1], atol=1e-5)
        # Of the last block the library reports what the final norm makes of it.
        last = torch.from_numpy(found.hidden[row, -1])
        np.testing.assert_allclose(model.model.norm(last).detach(), out.hidden_states[-1][0, -1], atol=1e-5)
        assert not np.allclose(last, out.hidden_states[-1][0, -1], atol=1e-2)
        np.testing.assert_allclose(found.logits[row], out.logits[0, -1, ids], atol=1e-5)
    assert found.hidden.dtype == np.float32
    assert found.appended is None
    assert found.prepared is None


def test_batches_and_the_order_of_prompts_change_nothing():
    model, tokenizer, ids = llama()
    whole = collect(model, tokenizer, PROMPTS, ids)
    turned = collect(model, tokenizer, PROMPTS[::-1], ids, batch=2)
    np.testing.assert_allclose(turned.hidden[::-1], whole.hidden, atol=1e-5)
    np.testing.assert_allclose(turned.logits[::-1], whole.logits, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize("layers", [(0,), (1, 2), (3,), (0, 3)])
def test_answers_equal_a_pass_over_the_whole_prompt_under_the_same_intervention(family, layers):
    model = random_model(family)
    prepared = collect(model, None, TOKENS, IDS, keep_cache=True, batch=2).prepared
    plain = reference(model, TOKENS, IDS)
    for intervention in (kappa(layers, alpha=5.0), Steering({layer: np.linspace(-1, 1, 16) for layer in layers})):
        expected = reference(model, TOKENS, IDS, intervention)
        assert np.abs(expected - plain).max() > 1e-3
        for whole_prompt in (False, True):
            found = prepared.answers(intervention, whole_prompt=whole_prompt)
            np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(prepared.answers(None), plain, atol=2e-5)
    np.testing.assert_allclose(prepared.answers(Kappa({})), plain, atol=2e-5)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize("longer", [0, 2], ids=["equal lengths", "padded"])
def test_beginnings_that_prompts_share_are_run_once(family, longer, monkeypatch):
    model = random_model(family)
    draw = np.random.default_rng(1)
    rows = []
    for length in (8, 8, 8 + longer):
        shared = draw.integers(97, size=length).tolist()
        rows += [shared + draw.integers(97, size=4).tolist() for _ in range(3)]
    ran = []
    run = collecting._last_logits
    monkeypatch.setattr(
        collecting, "_last_logits", lambda model, tokens, *rest: ran.append(tokens.numel()) or run(model, tokens, *rest)
    )
    pairs = draw.integers(97, size=(9, 2))
    found = collect(model, None, rows, IDS, keep_cache=True, appended=pairs)
    assert ran[0] + ran[1] < 0.6 * sum(map(len, rows))
    np.testing.assert_allclose(found.logits, reference(model, rows, IDS), atol=2e-5)
    alone = [collect(model, None, [row], IDS, appended=pair[None]) for row, pair in zip(rows, pairs, strict=True)]
    for name in ("hidden", "appended"):
        np.testing.assert_allclose(
            getattr(found, name), np.concatenate([getattr(one, name) for one in alone]), atol=2e-5
        )
    intervention = kappa((0, 2), alpha=5.0)
    np.testing.assert_allclose(
        found.prepared.answers(intervention), reference(model, rows, IDS, intervention), atol=2e-5
    )


def test_models_that_take_no_positions_are_given_no_padding(monkeypatch):
    model = random_model("llama")
    run = model.forward
    monkeypatch.setattr(
        model, "forward", lambda input_ids, cache=None, use_cache=None, logits_to_keep=0: run(
            input_ids, cache=cache, use_cache=use_cache, logits_to_keep=logits_to_keep
        )
    )  # fmt: skip
    found = collect(model, None, TOKENS, IDS, keep_cache=True)
    assert all(group.mask is None for group in found.prepared._groups)
    np.testing.assert_allclose(found.logits, reference(model, TOKENS, IDS), atol=2e-5)


def test_passes_are_of_about_equal_size():
    sizes = [len(part) for part in collecting._batches([(1, 9)] * 42, 32, True)]
    assert sizes == [21, 21]


def test_blocks_before_the_first_one_that_changes_are_not_run_again(monkeypatch):
    model = random_model("llama")
    prepared = collect(model, None, TOKENS, IDS, keep_cache=True).prepared
    ran = []
    for layer, block in enumerate(model.model.layers):
        own = block.mlp.forward
        monkeypatch.setattr(
            block.mlp, "forward", lambda x, layer=layer, own=own: (ran.append((layer, *x.shape)), own(x))[1]
        )
    prepared.answers(kappa((2,)))
    assert {(layer, length) for layer, _, length, _ in ran} == {(3, 1)}
    assert sum(rows for _, rows, *_ in ran) == len(TOKENS)


def test_answers_leave_caches_and_model_as_they_were():
    model = random_model("gemma3")
    prepared = collect(model, None, TOKENS, IDS, keep_cache=True).prepared
    before, size = prepared.answers(kappa((0,))), prepared.nbytes
    for layer in range(4):
        prepared.answers(kappa((layer,), alpha=20.0))
    assert np.array_equal(prepared.answers(kappa((0,))), before)
    assert prepared.nbytes == size > 0
    assert not any("forward" in vars(module) or module._forward_hooks for module in model.modules())
    with pytest.raises(InputError):
        prepared.answers(Steering({0: np.ones(3)}))
    assert not any("forward" in vars(module) or module._forward_hooks for module in model.modules())


def test_interventions_on_the_last_line_start_where_it_does():
    model, tokenizer, ids = llama()
    prompts = [*PROMPTS, "All of it in one line: ("]
    prepared = collect(model, tokenizer, prompts, ids, keep_cache=True).prepared
    steering = Steering({0: np.linspace(-3, 3, 128)}, positions="after")
    for intervention in (steering, kappa((0, 1), width=128, positions="after")):
        quick, slow = prepared.answers(intervention), prepared.answers(intervention, whole_prompt=True)
        np.testing.assert_allclose(quick, slow, atol=2e-5)
        for row, text in enumerate(prompts):
            start = text.rfind("\n") + 1  # a token of this tokenizer is a byte
            expected = reference(model, tokenizer([text])["input_ids"], ids, intervention, start)
            np.testing.assert_allclose(quick[row], expected[0], atol=2e-5)
            assert last_line(tokenizer, text) == start


def test_last_lines_longer_than_a_sliding_window_are_exact_too():
    def row(text):
        return [ord(letter) % 90 + 3 for letter in text]

    def tokenizer(text, add_special_tokens):
        return {"input_ids": row(text) if isinstance(text, str) else [row(one) for one in text]}

    model, texts = random_model("gemma3"), ["question?\nanswer is (", "short\nanswer is ("]
    prepared = collect(model, tokenizer, texts, IDS, keep_cache=True).prepared
    for layers in ((0,), (2, 3)):
        intervention = kappa(layers, alpha=5.0, positions="after")
        quick = prepared.answers(intervention)
        for text, found in zip(texts, quick, strict=True):
            [expected] = reference(model, [row(text)], IDS, intervention, text.rfind("\n") + 1)
            np.testing.assert_allclose(found, expected, atol=2e-5)


def test_appended_tokens_have_the_states_of_prompts_that_end_in_them():
    model = random_model("gemma3")
    appended = np.array([[row + 3, 50] for row in range(len(TOKENS))])
    found = collect(model, None, TOKENS, IDS, appended=appended, keep_cache=True, batch=3)
    for place in range(2):
        longer = [[*row, int(more)] for row, more in zip(TOKENS, appended[:, place], strict=True)]
        expected = collect(model, None, longer, IDS)
        np.testing.assert_allclose(found.appended[:, place], expected.hidden, atol=1e-5)
    np.testing.assert_allclose(found.prepared.answers(None), found.logits, atol=2e-5)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_early_logits_of_the_last_block_are_the_models_own(family):
    model = random_model(family)
    found = collect(model, None, TOKENS, IDS)
    np.testing.assert_allclose(early_logits(model, found.hidden[:, -1], IDS), found.logits, atol=2e-5)
    every = early_logits(model, found.hidden[:, -1])
    assert every.shape == (len(TOKENS), 97)
    np.testing.assert_allclose(every[:, IDS], found.logits, atol=2e-5)


def test_progress_is_told_of_every_pass():
    lines = []
    collect(random_model("llama"), None, TOKENS, IDS, batch=2, progress=lines.append)
    assert lines == [f"{done} of 5 prompts run" for done in (2, 4, 5)]


def test_blocks_that_return_tuples_are_refused(monkeypatch):
    model = random_model("llama")
    block = model.model.layers[1]
    monkeypatch.setattr(block, "forward", lambda hidden, **named: (hidden,))
    with pytest.raises(InputError, match="return a tuple"):
        collect(model, None, TOKENS, IDS)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None, []), {}, "at least one"),
        ((None, "one text"), {}, "at least one"),
        ((None, ["a text"]), {}, "need a tokenizer"),
        ((None, [[5]]), {}, "two tokens"),
        ((None, [[5, 97]]), {}, "0 to 96"),
        ((None, [[5, 1.5]]), {}, "0 to 96"),
        ((None, [[5] * 2049]), {}, "the model takes 2048"),
        ((None, [[5, 6]]), {"batch": 0}, "batch=0"),
        ((None, [[5, 6]]), {"memory": -1}, "memory=-1"),
        ((None, [[5, 6]]), {"appended": np.zeros((2, 2), int)}, "shape \\(2, 2\\)"),
        ((None, [[5, 6]]), {"appended": np.full((1, 1), -1)}, "0 to 96"),
    ],
)
def test_prompts_that_cannot_be_run_are_refused(arguments, options, message):
    with pytest.raises(InputError, match=message):
        collect(random_model("llama"), *arguments, IDS, **options)


def test_one_symbol_is_no_choice():
    with pytest.raises(InputError, match="symbol_ids"):
        collect(random_model("llama"), None, TOKENS, [3])
    with pytest.raises(InputError, match="different tokens"):
        collect(random_model("llama"), None, TOKENS, [3, 3])


def test_models_that_would_not_answer_twice_alike_are_refused():
    with pytest.raises(InputError, match="training mode"):
        collect(random_model("gpt2").train(), None, TOKENS, IDS)
    random_model("gpt2").eval()


def test_an_intervention_beyond_the_last_block_is_refused():
    prepared = collect(random_model("llama"), None, TOKENS, IDS, keep_cache=True).prepared
    with pytest.raises(InputError, match="layer 9 is no block"):
        prepared.answers(kappa((9,)))


def test_what_is_kept_is_counted():
    model = random_model("llama")
    prepared = collect(model, None, TOKENS, IDS, keep_cache=True).prepared
    tokens = len(TOKENS) * max(map(len, TOKENS))
    # In each of 4 blocks keys and values of one head of 8 for each token and each padding, and 16 numbers for each
    # prompt; float32.
    assert prepared.nbytes == 4 * (tokens * 2 * 8 + len(TOKENS) * 16) * 4


def test_prompts_for_which_memory_does_not_suffice_are_run_as_a_whole():
    model = random_model("llama")
    ample = collect(model, None, TOKENS, IDS, keep_cache=True, batch=1).prepared
    for memory in (0, ample.nbytes // 2):
        prepared = collect(model, None, TOKENS, IDS, keep_cache=True, batch=1, memory=memory).prepared
        assert prepared.nbytes <= memory
        for intervention in (None, kappa((1, 2), alpha=5.0)):
            np.testing.assert_allclose(prepared.answers(intervention), ample.answers(intervention), atol=2e-5)
