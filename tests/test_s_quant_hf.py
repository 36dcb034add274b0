"""Packed layers and models: the codec's weights to the bit, the dense model's outputs, and files that come back."""

import copy
import shutil
from dataclasses import replace
from functools import cache

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import linear
from transformers import AutoModel, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from icml26.errors import InputError
from icml26.models_tiny import random_bert, random_llama
from icml26.s_quant import native
from icml26.s_quant.codec import SeedLMConfig, SQuantConfig, decode, encode
from icml26.s_quant.hf import SeedQuantConfig
from icml26.s_quant.layers import block_linears
from icml26.s_quant.linear import FEW, SeedLinear

S8 = SQuantConfig(seed_bits=8)
FIXED = replace(S8, k_min=3, k_max=3, block_size=8, layout="row-major", coefficient_bits=4)
SEEDLM = SeedLMConfig(register_bits=8)
CONFIGS = {
    "s-quant": S8,
    "16-bit seeds": SQuantConfig(block_size=4, k_max=3),
    "odd blocks": replace(S8, block_size=5, k_max=4),
    "long blocks, other register": replace(S8, register="fibonacci", seed_bits=7, k_max=9, block_size=24),
    "fixed count, columns": replace(S8, k_min=7, k_max=7, coefficient_bits=3, group_size=3),
    "fixed count, rows": FIXED,
    "fixed count, rows of 16": replace(FIXED, k_min=8, k_max=8, block_size=16, coefficient_bits=5),
    "rows of varying length": replace(S8, layout="row-major", k_max=4),
    "seedlm": SEEDLM,
    "seedlm, words across bytes": SeedLMConfig(12, 4, 10),
    "seedlm, odd, prescaled": SeedLMConfig(5, 5, 8, prescale=True),
    "seedlm, many vectors": SeedLMConfig(16, 9, 8),
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """So small a work is only slowed down by threads that wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["compiled", "compiled without vector instructions", "not compiled"])
def backend(request, monkeypatch):
    if request.param == "not compiled":
        monkeypatch.setattr(native, "_library", lambda: (None, "switched off by the test"))
    else:
        if native.reason():
            pytest.skip(native.reason())
        if request.param != "compiled":
            plain = native._load(native._build(native._compiler(), ["-O3", "-DICML26_PLAIN"]))
            monkeypatch.setattr(native, "_library", lambda: (plain, ""))
    return request.param


@pytest.fixture(scope="module")
def generator():
    return torch.Generator().manual_seed(0)


@cache
def encoded_layer(rows, columns, config, bias, seed):
    made = torch.Generator().manual_seed(seed)
    dense = nn.Linear(columns, rows, bias=bias)
    dense.weight.data = torch.randn(rows, columns, generator=made) * 0.02
    dense.weight.data.view(-1)[: config.block_size] = 0
    return dense, SeedLinear.from_linear(dense, config)


def layer(rows, columns, config, bias=True, seed=0):
    return copy.deepcopy(encoded_layer(rows, columns, config, bias, seed))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shape", [(5, 16), (7, 33), (3, 700)])
def test_a_layer_decodes_to_the_codec_s_weight_to_the_bit_and_multiplies_with_it(name, shape, backend, generator):
    config = CONFIGS[name]
    dense, packed = layer(*shape, config)
    weight = decode(packed.encoded())
    assert torch.equal(packed.decode(), weight)
    assert torch.equal(packed.decode(1, 3), weight[1:3])
    for m in (1, 3, FEW + 1):
        x = torch.randn(m, shape[1], generator=generator)
        torch.testing.assert_close(packed(x), linear(x, weight, dense.bias), rtol=1e-5, atol=1e-6)


def test_what_the_compiled_code_does_not_cover_goes_through_the_codec():
    assert not native.supports(CONFIGS["rows of varying length"])
    assert not native.supports(replace(S8, seed_bits=17))
    assert not native.supports(SEEDLM, shift=120)
    assert all(native.supports(config) for name, config in CONFIGS.items() if name != "rows of varying length")


def test_the_code_of_many_vectors_uses_the_decoded_weight_itself(generator):
    _, packed = layer(40, 64, S8)
    x = torch.randn(2, FEW, 64, generator=generator)
    assert torch.equal(packed(x), linear(x, packed.weight, packed.bias))


@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 64), (0, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_of_any_shape_and_type_give_what_a_dense_layer_gives(shape, dtype, generator):
    dense, packed = layer(24, 64, SEEDLM)
    x = torch.randn(*shape, generator=generator).to(dtype)
    packed.bias.data = dense.bias.data.to(dtype)
    found, expected = packed(x), linear(x, packed.weight.to(dtype), packed.bias)
    assert found.dtype == dtype
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_gradients_reach_the_input():
    _, packed = layer(8, 32, SEEDLM)
    x = torch.ones(1, 32, requires_grad=True)
    packed(x).sum().backward()
    torch.testing.assert_close(x.grad[0], packed.decode().sum(0))


@pytest.mark.parametrize("name", ["s-quant", "fixed count, rows", "seedlm", "seedlm, odd, prescaled"])
def test_a_layer_keeps_the_streams_and_nothing_else_of_the_weight_s_size(name):
    dense, packed = layer(48, 64, CONFIGS[name], bias=False)
    packed(torch.zeros(1, 64))
    encoded = encode(dense.weight.detach(), CONFIGS[name])
    assert torch.equal(packed.decode(), decode(encoded))
    assert packed.packed_bytes == encoded.payload_bytes() == sum(b.numel() for b in packed.buffers())
    assert not list(packed.parameters())
    assert all(buffer.numel() for buffer in packed.buffers())


def test_layers_are_copied_moved_and_loaded_like_others(generator):
    _, first = layer(16, 64, S8)
    _, second = layer(16, 64, S8, seed=1)
    x = torch.randn(1, 64, generator=generator)
    expected = first(x)
    assert not torch.equal(second(x), expected)
    assert torch.equal(copy.deepcopy(first)(x), expected)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(x), expected)
    empty = SeedLinear(64, 16, S8, bias=True)
    empty.load_state_dict(first.state_dict())
    assert torch.equal(empty(x), expected)
    second.seeds = torch.ones_like(second.seeds)
    assert not torch.equal(second(x), expected)


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: torch.zeros_like(s), lambda s: torch.cat([s, s])])
@pytest.mark.parametrize("name", ["s-quant", "seedlm"])
def test_streams_that_cannot_be_are_refused_before_use(name, change):
    _, packed = layer(16, 64, CONFIGS[name])
    stream = packed.stream_names[0]
    setattr(packed, stream, change(getattr(packed, stream)))
    with pytest.raises(InputError):
        packed(torch.zeros(1, 64))


def test_a_count_that_lies_cannot_make_the_compiled_code_read_outside_the_streams():
    _, packed = layer(16, 64, S8)
    packed(torch.zeros(1, 64))
    packed.counts.fill_(255)  # in place, behind the layer's back
    assert packed(torch.ones(1, 64)).shape == (1, 16)
    assert packed.decode().shape == (16, 64)


# models


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    random_llama().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def packed_llama(llama):
    config = SeedQuantConfig(SeedLMConfig(8, 3, 6))
    return AutoModelForCausalLM.from_pretrained(llama, quantization_config=config)


def streams(model):
    return {name: value for name, value in model.state_dict().items() if value.dtype == torch.uint8}


def with_decoded_weights(packed, dense):
    """The dense model, its weights replaced by what the packed ones decode to."""
    for name, module in packed.named_modules():
        if isinstance(module, SeedLinear):
            dense.get_submodule(name).weight.data = module.decode()
    return dense


def test_a_checkpoint_is_encoded_as_it_loads_in_exactly_the_blocks_linear_layers(packed_llama):
    dense = random_llama()
    replaced = {name: module for name, module in packed_llama.named_modules() if isinstance(module, SeedLinear)}
    assert set(replaced) == set(block_linears(dense))
    assert len(replaced) == 14
    for name in ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"):
        expected = decode(encode(dense.get_submodule(name).weight.detach(), SeedLMConfig(8, 3, 6)))
        assert torch.equal(replaced[name].decode(), expected)
    assert packed_llama.lm_head.weight is packed_llama.model.embed_tokens.weight, "tied weights stay tied"
    assert torch.equal(packed_llama.lm_head.weight, dense.lm_head.weight)


def test_a_packed_model_generates_what_the_dense_one_with_its_weights_does(packed_llama):
    dense = with_decoded_weights(packed_llama, random_llama())
    ids = torch.arange(3, 15).view(1, -1)
    with torch.no_grad():
        torch.testing.assert_close(packed_llama(ids).logits, dense(ids).logits, rtol=1e-4, atol=1e-6)
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    assert torch.equal(packed_llama.generate(ids, **options), dense.generate(ids, **options))


def test_saving_and_loading_gives_the_same_bits(packed_llama, tmp_path):
    packed_llama.save_pretrained(tmp_path / "one")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "one", device_map="cpu")
    assert again.config.quantization_config.settings == SeedLMConfig(8, 3, 6)
    assert streams(again).keys() == streams(packed_llama).keys()
    assert all(torch.equal(value, streams(again)[name]) for name, value in streams(packed_llama).items())
    ids = torch.arange(3, 15).view(1, -1)
    assert torch.equal(again(ids).logits, packed_llama(ids).logits)
    again.save_pretrained(tmp_path / "two")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]


def test_biases_other_types_and_layers_to_leave_alone(tmp_path):
    dense = random_bert()
    for name, parameter in dense.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    dense.to(torch.bfloat16).save_pretrained(tmp_path / "dense")
    config = SeedQuantConfig(S8, modules_to_not_convert=["encoder.layer.1", "output.dense"])
    packed = AutoModel.from_pretrained(tmp_path / "dense", quantization_config=config, dtype=torch.bfloat16)
    replaced = {name for name, module in packed.named_modules() if isinstance(module, SeedLinear)}
    parts = ("attention.self.query", "attention.self.key", "attention.self.value", "intermediate.dense")
    assert replaced == {f"encoder.layer.0.{part}" for part in parts}
    module, original = (model.encoder.layer[0].intermediate.dense for model in (packed, dense))
    assert torch.equal(module.bias, original.bias)
    assert module.weight.dtype == torch.bfloat16
    assert torch.equal(module.decode(), decode(encode(original.weight.detach(), S8)))
    packed.save_pretrained(tmp_path / "packed")
    again = AutoModel.from_pretrained(tmp_path / "packed", dtype="auto")
    ids = torch.arange(3, 12).view(1, -1)
    with torch.no_grad():
        found = again(ids).last_hidden_state
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, packed(ids).last_hidden_state)


def test_gpt2_s_transposed_layers_are_replaced_too(tmp_path):
    torch.manual_seed(0)
    dense = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2)).eval()
    dense.save_pretrained(tmp_path)
    packed = GPT2LMHeadModel.from_pretrained(tmp_path, quantization_config=SeedQuantConfig(S8))
    ids = torch.arange(6).view(1, -1)
    for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
        module = packed.transformer.h[0].get_submodule(name)
        original = dense.transformer.h[0].get_submodule(name)
        assert torch.equal(module.decode(), decode(encode(original.weight.detach().T.contiguous(), S8)))
        original.weight.data = module.decode().T.contiguous()
    with torch.no_grad():
        torch.testing.assert_close(packed(ids).logits, dense(ids).logits, rtol=1e-4, atol=1e-6)


def test_a_packed_model_can_be_made_dense_again(packed_llama, tmp_path):
    packed_llama.save_pretrained(tmp_path)
    packed = AutoModelForCausalLM.from_pretrained(tmp_path)
    expected = packed.model.layers[0].mlp.up_proj.decode()
    dense = packed.dequantize()
    assert type(dense.model.layers[0].mlp.up_proj) is nn.Linear
    assert torch.equal(dense.model.layers[0].mlp.up_proj.weight, expected)


def test_a_checkpoint_that_lacks_a_stream_or_has_a_damaged_one_is_refused(packed_llama, tmp_path):
    packed_llama.save_pretrained(tmp_path / "sound")
    name = "model.layers.0.mlp.up_proj.words"
    for damage in ("missing", "zero", "short"):
        folder = tmp_path / damage
        shutil.copytree(tmp_path / "sound", folder)
        tensors = load_file(folder / "model.safetensors")
        if damage == "missing":
            del tensors[name]
        else:
            tensors[name] = torch.zeros_like(tensors[name]) if damage == "zero" else tensors[name][:-1].clone()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(InputError, match=r"model\.layers\.0\.mlp\.up_proj is missing or damaged"):
            AutoModelForCausalLM.from_pretrained(folder)


def test_a_wrong_configuration_is_one_clear_line():
    with pytest.raises(InputError, match="codec 'squant' is not known: use s-quant or seedlm; did you mean 's-quant'"):
        SeedQuantConfig("squant")
    with pytest.raises(InputError, match=r"s-quant has no parameter 'treshold'.*did you mean 'threshold'"):
        SeedQuantConfig("s-quant", {"treshold": 0.9})
    with pytest.raises(InputError, match="rank 9 is out of range"):
        SeedQuantConfig("seedlm", {"rank": 9})
    with pytest.raises(InputError, match="give SQuantConfig or SeedLMConfig"):
        SeedQuantConfig(4)


def test_a_model_without_blocks_is_refused(tmp_path):
    dense = random_bert()
    dense.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no linear layer inside its blocks"):
        AutoModel.from_pretrained(tmp_path, quantization_config=SeedQuantConfig(S8, modules_to_not_convert=["encoder"]))
