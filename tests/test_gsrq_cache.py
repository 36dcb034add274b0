"""Packed codes as a cache: every way of running a model over it sees the same keys and values."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from icml26.errors import InputError
from icml26.gsrq import bits
from icml26.gsrq.activations import collect
from icml26.gsrq.activations import replaced as replaced_projections
from icml26.gsrq.cache import CodedCache
from icml26.gsrq.coder import Coder
from icml26.gsrq.coupled import CoupledQuantizer
from icml26.gsrq.packing import pack
from icml26.gsrq.residual import ResidualQuantizer
from icml26.gsrq.rotary import Rotary
from icml26.models_tiny import random_llama

PLACES = [(0, "key"), (0, "value"), (1, "key"), (1, "value")]
SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def quantizer(channels=64, dimension=16, stages=3, codewords=32, seed=0, scale=0.3):
    shape = (channels // dimension, stages, codewords, dimension)
    shrinking = scale * 0.7 ** np.arange(stages)[:, None, None]
    return SimpleNamespace(codebooks=np.random.default_rng(seed).normal(size=shape) * shrinking)


@pytest.fixture(scope="module")
def model():
    return random_llama()


@pytest.fixture
def quantizers():
    return {place: quantizer(seed=seed) for seed, place in enumerate(PLACES)}


@pytest.fixture
def tokens():
    return torch.randint(3, 250, (3, 12), generator=torch.Generator().manual_seed(0))


def run(model, tokens, cache, **extra):
    with torch.no_grad():
        return model(tokens, cache=cache, use_cache=True, **extra).logits


@contextmanager
def replaced(model, quantizers, stages=None):
    """The projections' outputs (or those of the keys' norm) replaced by their reconstructions, by plain loops."""

    def hook(quantizer):
        def reconstruct(module, inputs, output):
            books = quantizer.codebooks.astype(np.float32)[:, :stages]
            heads_first = output.dim() == 4 and model.config.model_type == "gemma3_text"
            rows = output.transpose(1, 2) if heads_first else output
            vectors = rows.reshape(-1, len(books), books.shape[-1]).numpy()
            read = torch.from_numpy(looped(vectors, books)).reshape(rows.shape)
            return read.transpose(1, 2) if heads_first else read

        return reconstruct

    handles = []
    for (layer, kind), quantizer in quantizers.items():
        attention = model.model.layers[layer].self_attn
        keys = getattr(attention, "k_norm", attention.k_proj)
        handles.append((keys if kind == "key" else attention.v_proj).register_forward_hook(hook(quantizer)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def looped(vectors, books):
    read = np.zeros_like(vectors)
    for position, chain in enumerate(books):
        for index in range(len(vectors)):
            for book in chain:
                distances = ((vectors[index, position] - read[index, position] - book) ** 2).sum(-1)
                read[index, position] += book[distances.argmin()]
    return read


def test_one_pass_equals_the_teacher_forced_replacement(model, quantizers, tokens):
    with replaced(model, quantizers), torch.no_grad():
        expected = model(tokens, use_cache=False).logits
    found = run(model, tokens, CodedCache(model.config, quantizers))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    plain = run(model, tokens, DynamicCache(config=model.config))
    assert (plain - found).abs().max() > 0.05


@pytest.mark.parametrize("stages", [1, 2])
def test_a_chain_may_be_cut_short(model, quantizers, tokens, stages):
    with replaced(model, quantizers, stages), torch.no_grad():
        expected = model(tokens, use_cache=False).logits
    found = run(model, tokens, CodedCache(model.config, quantizers, stages))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pieces", [[1] * 12, [5, 1, 6]])
def test_token_by_token_equals_one_pass(model, quantizers, tokens, pieces):
    expected = run(model, tokens, CodedCache(model.config, quantizers))
    cache = CodedCache(model.config, quantizers)
    found = torch.cat([run(model, part, cache) for part in tokens.split(pieces, dim=1)], dim=1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert cache.get_seq_length() == 12


@pytest.mark.parametrize("places", [[(1, "key")], [(0, "value")], [(0, "key"), (1, "value")]])
def test_layers_without_a_quantiser_stay_in_full_precision(model, quantizers, tokens, places):
    chosen = {place: quantizers[place] for place in places}
    with replaced(model, chosen), torch.no_grad():
        expected = model(tokens, use_cache=False).logits
    cache = CodedCache(model.config, chosen)
    found = torch.cat([run(model, part, cache) for part in tokens.split(1, dim=1)], dim=1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    plain = DynamicCache(config=model.config)
    run(model, tokens, plain)
    layer = places[0][0]
    exact = "values" if places[0][1] == "key" else "keys"
    torch.testing.assert_close(
        getattr(cache.layers[layer], exact)[:, :, 0], getattr(plain.layers[layer], exact)[:, :, 0]
    )


def test_left_padding_equals_running_each_sequence_alone(model, quantizers, tokens):
    lengths = [12, 7, 3]
    mask = torch.tensor([[0] * (12 - length) + [1] * length for length in lengths])
    padded = tokens * mask
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    cache = CodedCache(model.config, quantizers)
    found = run(model, padded[:, :9], cache, attention_mask=mask[:, :9], position_ids=positions[:, :9])
    found = torch.cat([found, run(model, padded[:, 9:], cache, attention_mask=mask, position_ids=positions[:, 9:])], 1)
    for row, length in enumerate(lengths):
        alone = run(model, tokens[row : row + 1, -length:], CodedCache(model.config, quantizers))
        torch.testing.assert_close(found[row, -length:], alone[0], rtol=0, atol=1e-5)


def generated(model, tokens, **extra):
    return model.generate(tokens, max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=None, **extra)


@pytest.fixture
def own(tokens):
    """A model that says different things with and without codes, whose tokens do not repeat."""
    model = random_llama(seed=1)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(8)
        model.model.embed_tokens.weight.mul_(3)
    return model


def test_generate_equals_a_teacher_forced_model_run_again_from_the_start(own, quantizers, tokens):
    with replaced(own, quantizers):
        expected = generated(own, tokens, use_cache=False)
    assert torch.equal(generated(own, tokens, cache=CodedCache(own.config, quantizers)), expected)
    assert not torch.equal(generated(own, tokens), expected)


def test_generate_with_left_padding_equals_generating_alone(own, quantizers, tokens):
    mask = torch.ones_like(tokens)
    mask[1, :5] = 0
    found = generated(own, tokens * mask, attention_mask=mask, cache=CodedCache(own.config, quantizers))
    alone = generated(own, tokens[1:2, 5:], cache=CodedCache(own.config, quantizers))
    assert torch.equal(found[1, 12:], alone[0, 7:])


@pytest.mark.parametrize("search", [{"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}])
def test_beam_search_equals_a_teacher_forced_model_run_again_from_the_start(own, quantizers, tokens, search):
    with replaced(own, quantizers):
        expected = generated(own, tokens, use_cache=False, **search)
    assert torch.equal(generated(own, tokens, cache=CodedCache(own.config, quantizers), **search), expected)


def test_prompt_lookup_crops_what_it_guessed_wrongly(own, quantizers):
    tokens = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 9, 5, 6]])
    expected = generated(own, tokens, cache=CodedCache(own.config, quantizers))
    found = generated(own, tokens, cache=CodedCache(own.config, quantizers), prompt_lookup_num_tokens=3)
    assert torch.equal(found, expected)


def test_cropping_forgets_tokens_and_their_positions(model, quantizers, tokens):
    cache = CodedCache(model.config, quantizers)
    run(model, tokens, cache)
    cache.crop(-4)
    fresh = CodedCache(model.config, quantizers)
    run(model, tokens[:, :8], fresh)
    assert cache.nbytes == fresh.nbytes
    torch.testing.assert_close(run(model, tokens[:, 2:5], cache), run(model, tokens[:, 2:5], fresh), rtol=0, atol=1e-5)


def test_batch_operations_move_codes_and_positions_together(model, quantizers, tokens):
    mask = torch.ones_like(tokens)
    mask[0, :6] = 0
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    cache = CodedCache(model.config, quantizers)
    run(model, tokens[:, :9], cache, attention_mask=mask[:, :9], position_ids=positions[:, :9])
    cache.batch_repeat_interleave(2)  # 0 0 1 1 2 2
    cache.batch_select_indices(torch.tensor([4, 1, 2]))  # 2 0 1
    cache.reorder_cache(torch.tensor([1, 1, 0]))  # 0 0 2
    order = torch.tensor([0, 0, 2])
    found = run(model, tokens[order, 9:], cache, attention_mask=mask[order], position_ids=positions[order, 9:])
    whole = CodedCache(model.config, quantizers)
    expected = run(model, tokens, whole, attention_mask=mask, position_ids=positions)[order, 9:]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_reset_cache_is_as_good_as_new(model, quantizers, tokens):
    cache = CodedCache(model.config, quantizers)
    run(model, tokens[:1], cache)
    cache.reset()
    assert (cache.nbytes, cache.get_seq_length()) == (0, 0)
    fresh = run(model, tokens, CodedCache(model.config, quantizers))
    torch.testing.assert_close(run(model, tokens, cache), fresh)


@pytest.mark.parametrize(("stages", "codewords"), [(3, 32), (1, 256), (5, 7)])
def test_bytes_are_those_of_the_formula_whatever_the_calls(model, tokens, stages, codewords):
    chosen = {place: quantizer(stages=stages, codewords=codewords) for place in PLACES}
    storage = bits.residual(64, dimension=16, stages=stages, codewords=codewords, layers=2)
    for pieces in ([12], [1] * 12, [7, 5]):
        cache = CodedCache(model.config, chosen)
        done = 0
        for part in tokens.split(pieces, dim=1):
            run(model, part, cache)
            done += part.shape[1]
            assert cache.code_nbytes == storage.cache_bytes(done, sequences=3)
            assert cache.nbytes == cache.code_nbytes + 3 * done * bits.POSITION_BYTES
    assert cache.codebook_nbytes == 2 * storage.codebook_bytes  # float32 here, float16 there


def test_bytes_count_the_layers_in_full_precision_too(model, quantizers, tokens):
    cache = CodedCache(model.config, {place: quantizers[place] for place in PLACES[:2]})
    run(model, tokens, cache)
    full = 2 * 3 * 12 * 64 * 4
    assert cache.nbytes == full + cache.code_nbytes + 3 * 12 * bits.POSITION_BYTES


def test_nothing_but_bytes_and_positions_is_kept(model, quantizers, tokens):
    cache = CodedCache(model.config, quantizers)
    run(model, tokens, cache)
    held = [part for layer in cache.layers for part in vars(layer).values() if isinstance(part, torch.Tensor)]
    assert {part.dtype for part in held} == {torch.uint8}
    assert sum(part.nbytes for part in held) == cache.code_nbytes


FAMILIES = {
    "llama3 angles": LlamaConfig(**SIZES, rope_parameters={
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}),
    "yarn, which scales keys": LlamaConfig(**SIZES, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}),
    "mistral with a sliding window": MistralConfig(**SIZES, sliding_window=5),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "gemma3, sliding and full": Gemma3TextConfig(**SIZES, head_dim=16, sliding_window=5, query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_equals_its_teacher_forced_replacement(name):
    config = FAMILIES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).float().eval()
        for layer in model.model.layers:
            layer.self_attn.k_proj.weight.data.mul_(20)
            layer.self_attn.v_proj.weight.data.mul_(20)
            layer.self_attn.o_proj.weight.data.mul_(20)
    size = getattr(config, "head_dim", None) or 8
    chosen = {place: quantizer(2 * size, 8, scale=1.0, seed=seed) for seed, place in enumerate(PLACES)}
    tokens = torch.randint(3, 97, (2, 14), generator=torch.Generator().manual_seed(0))
    with replaced(model, chosen), torch.no_grad():
        expected = model(tokens, use_cache=False).logits
    for pieces in ([14], [6, 1, 1, 6], [1] * 14):
        cache = CodedCache(config, chosen)
        found = torch.cat([run(model, part, cache) for part in tokens.split(pieces, dim=1)], dim=1)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)
    assert (run(model, tokens, DynamicCache(config=config)) - expected).abs().max() > 0.01


def test_fitted_quantisers_code_alike_in_the_cache_and_in_a_teacher_forced_run(model, tokens):
    states = collect(model, torch.randint(3, 250, (4, 32), generator=torch.Generator().manual_seed(1)), [0, 1])
    fitted = {place: ResidualQuantizer(16, 4, 16, iterations=5).fit(rows) for place, rows in states.items()}
    fitted[1, "value"] = CoupledQuantizer(4, 4, iterations=5).fit(states[1, "value"])
    with (
        torch.no_grad(),
        replaced_projections(
            model, {place: lambda rows, own=own: own.decode(own.encode(rows)) for place, own in fitted.items()}
        ),
    ):
        expected = model(tokens, use_cache=False).logits
    torch.testing.assert_close(run(model, tokens, CodedCache(model.config, fitted)), expected, rtol=0, atol=1e-5)
    rows, own = states[0, "key"], fitted[0, "key"]
    coder = Coder(own.codebooks)
    packed = coder.encode(torch.from_numpy(rows))
    assert (coder.codes(packed).numpy() == own.encode(rows)).all()
    for row, codes in zip(packed[:5], own.encode(rows), strict=False):
        assert (row.numpy() == pack(codes, bits=4)).all()


def test_bfloat16_keys_turn_back_to_what_they_were_but_for_rounding():
    rotary = Rotary(random_llama().config, 0)
    keys = torch.randn(3, 2, 12, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    positions = torch.arange(100, 112)[None]
    turned = rotary.apply(keys, positions)
    assert turned.dtype == torch.bfloat16
    assert (rotary.undo(turned, positions) - keys.float()).abs().max() < 0.03


def test_the_coder_reads_back_what_it_wrote_for_any_width():
    rng = np.random.default_rng(0)
    for codewords in (2, 5, 64, 256, 300, 1100):
        for positions, stages in ((1, 1), (3, 5)):
            books = rng.normal(size=(positions, stages, codewords, 4)).astype(np.float32)
            coder = Coder(books)
            vectors = rng.normal(size=(6, positions, 4)).astype(np.float32)
            rows = coder.encode(torch.from_numpy(vectors.reshape(2, 3, -1)))
            assert rows.shape == (2, 3, coder.row_bytes)
            read = coder.decode(rows).reshape(6, positions, 4).numpy()
            np.testing.assert_allclose(read, looped(vectors, books), atol=1e-5)


@pytest.mark.parametrize(
    ("place", "wrong", "message"),
    [
        ((2, "key"), quantizer(), "layers 0 to 1"),
        ((-1, "key"), quantizer(), "layers 0 to 1"),
        ((True, "key"), quantizer(), "layers 0 to 1"),
        ((0, "keys"), quantizer(), "layers 0 to 1"),
        (0, quantizer(), "layers 0 to 1"),
        ((0, "key"), SimpleNamespace(codebooks=None), "fit it first"),
        ((0, "key"), object(), "fit it first"),
        ((0, "key"), quantizer(channels=32), "32 channels: the model's heads have 64"),
        ((0, "key"), SimpleNamespace(codebooks=np.full((4, 1, 8, 16), np.nan)), "NaN"),
        ((0, "key"), SimpleNamespace(codebooks=np.zeros((4, 1, 1, 16))), "2 to 65536"),
    ],
)
def test_a_quantiser_that_does_not_fit_is_refused_in_one_line(model, place, wrong, message):
    with pytest.raises(InputError, match=message):
        CodedCache(model.config, {place: wrong})


def test_other_mistakes_are_refused_in_one_line(model, quantizers, tokens):
    with pytest.raises(InputError, match="dictionary"):
        CodedCache(model.config, {})
    with pytest.raises(InputError, match="stages=4"):
        CodedCache(model.config, quantizers, stages=4)
    states = torch.zeros(1, 2, 3, 32)
    with pytest.raises(InputError, match="position_ids"):
        CodedCache(model.config, quantizers).update(states, states, 0)
    cache = CodedCache(model.config, quantizers)
    cache.update(states, states, 0, kwargs={"position_ids": torch.arange(3)[None]})
    cache.update(states, states, 0, kwargs={"position_ids": torch.arange(3, 6)[None]})
    with pytest.raises(InputError, match="reset"):
        cache.update(states, states, 1, kwargs={"position_ids": torch.arange(3, 6)[None]})


def test_keys_that_cannot_be_rotated_back_are_refused_but_values_are_coded():
    dynamic = LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    with pytest.raises(InputError, match="rope_type='dynamic'"):
        CodedCache(dynamic, {(0, "key"): quantizer(16, 8)})
    from transformers import GPTNeoXConfig

    other = GPTNeoXConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    with pytest.raises(InputError, match="model_type='gpt_neox'"):
        Rotary(other, 0)
    CodedCache(dynamic, {(0, "value"): quantizer(16, 8)})


def test_states_that_no_code_stands_for_are_refused():
    coder = Coder(np.random.default_rng(0).normal(size=(2, 3, 5, 4)))
    good = torch.randn(6, 8)
    for wrong, told in (
        (good * torch.nan, "NaN"),
        (torch.cat([good, torch.full((1, 8), torch.inf)]), "NaN"),
        (good.to(torch.complex64), "floating"),
        (good.long(), "floating"),
        (good.numpy(), "tensor"),
    ):
        with pytest.raises(InputError, match=told):
            coder.encode(wrong)
    for wrong in (torch.full((1, coder.row_bytes), 255, dtype=torch.uint8), np.zeros((1, coder.row_bytes), np.uint8)):
        with pytest.raises(InputError, match=r"damaged|tensor"):
            coder.decode(wrong)
    for wrong in ([[1.0], [1.0, 2.0]], "books"):
        with pytest.raises(InputError, match="codebooks"):
            Coder(wrong)


def test_an_offset_that_keys_share_leaves_their_codes_exact():
    rng = np.random.default_rng(0)
    books = rng.normal(size=(1, 1, 64, 48)) + 1000
    vectors = (rng.normal(size=(300, 48)) + 1000).astype(np.float32)
    coder = Coder(books)
    exact = ((vectors[:, None].astype(float) - books[0, 0].astype(np.float32).astype(float)) ** 2).sum(-1).argmin(1)
    assert (coder.codes(coder.encode(torch.from_numpy(vectors)))[:, 0, 0].numpy() == exact).mean() > 0.995


def test_another_batch_and_a_configuration_that_is_none_are_told(model):
    cache = CodedCache(model.config, {(0, "key"): quantizer()})
    with torch.no_grad():
        model(torch.arange(3, 9)[None], cache=cache)
        with pytest.raises(InputError, match=r"reset\(\)"):
            model(torch.arange(3, 9)[None].repeat(2, 1), cache=cache)
    with pytest.raises(InputError, match="configuration"):
        CodedCache(None, {(0, "key"): quantizer()})
