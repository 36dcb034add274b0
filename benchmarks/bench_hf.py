"""Packed layers and a packed model beside dense float32 ones, for one vector: what generating a token costs.

One thread. Layers are taken in turn from more of them than the processor's cache holds dense, because that is how a
model meets its weights; one group shows what becomes of it when a single small layer stays in the cache. Streams are
made up (random seeds and codes, counts as measured on Gaussian weights), since time does not depend on what they say.
The labels of the whole model say how much memory its process took at most, and how much before it had a model.
"""

import itertools
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import linear
from transformers import LlamaConfig, LlamaForCausalLM

from icml26.s_quant import native
from icml26.s_quant.codec import SeedLMConfig, encode
from icml26.s_quant.encoded import Encoded, SeedLMEncoded
from icml26.s_quant.hf import SeedQuantConfig, SeedQuantizer
from icml26.s_quant.layers import block_linears
from icml26.s_quant.linear import SeedLinear
from icml26.s_quant.presets import preset

ARMS = {
    "S-Quant, 3.8 bits": preset("squant"),
    "S-Quant, 2.7 bits": preset("squant", 3),
    "SeedLM, 4 bits": preset("seedlm"),
    "SeedLM, 3 bits": preset("seedlm", 3),
    "repaired S-Quant, 3.75 bits": preset("squant-repaired"),
    "repaired S-Quant, 3.1 bits": preset("squant-repaired", 3),
}
SHAPES = [(576, 576), (1536, 576), (1024, 4096)]
WHOLE = ["S-Quant, 3.8 bits", "SeedLM, 4 bits", "repaired S-Quant, 3.75 bits"]
COLD = 96 << 20  # bytes of dense weights to go round in


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def usual_counts(config):
    return encode(torch.randn(2048, generator=torch.Generator().manual_seed(0)) * 0.02, config).counts


def made_up(config, rows, columns, seed):
    """An encoded weight that nobody had to search for."""
    rng, n = np.random.default_rng(seed), -(-rows * columns // config.block_size)
    seeds = rng.integers(1, config.bases.register.period, n, endpoint=True).astype(np.uint32)
    if isinstance(config, SeedLMConfig):
        codes = rng.integers(-8, 8, (n, config.rank)).astype(np.int8)
        return SeedLMEncoded(config, (rows, columns), seeds, np.full(n, -8, np.int8), codes, 0, 0)
    fixed = config.k_min == config.k_max
    counts = np.full(n, config.k_max, np.uint8) if fixed else rng.choice(usual_counts(config), n)
    codes = rng.integers(-config.limit, config.limit, int(counts.sum()), endpoint=True).astype(np.int8)
    scales = np.full(-(-n // config.group_size), 1e-4, np.float16)
    return Encoded(config, (rows, columns), seeds, counts, codes, scales, 0)


def in_turn(layers, x):
    endless = itertools.cycle(layers)
    return lambda: next(endless)(x)


def vector(columns):
    return torch.randn(1, columns, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("arm", ["dense", *ARMS])
def test_one_vector_through_many_layers(measure, shape, arm):
    rows, columns = shape
    group, x = f"One vector through one of many layers of {rows} x {columns}", vector(columns)
    count = -(-COLD // (4 * rows * columns))
    if arm == "dense":
        weights = [torch.randn(rows, columns) for _ in range(count)]
        endless = itertools.cycle(weights)
        measure(group, "float32", rows * columns, "weight", lambda: linear(x, next(endless)), baseline=True)
        return
    layers = [SeedLinear.from_encoded(made_up(ARMS[arm], rows, columns, seed)) for seed in range(count)]
    for layer in layers:
        torch.testing.assert_close(layer(x), linear(x, layer.decode()), rtol=1e-4, atol=1e-4)
    share = layers[0].packed_bytes / (4 * rows * columns)
    measure(group, f"{arm}, {share:.0%} of the bytes", rows * columns, "weight", in_turn(layers, x))


@pytest.mark.parametrize("arm", ["dense", "S-Quant, 3.8 bits", "SeedLM, 4 bits", "SeedLM, not compiled"])
def test_one_vector_through_the_same_layer(measure, arm, monkeypatch):
    group, rows, columns = "One vector through one layer of 576 x 576, again and again", 576, 576
    x = vector(columns)
    if arm == "dense":
        weight = torch.randn(rows, columns)
        measure(group, "float32", rows * columns, "weight", linear, x, weight, baseline=True)
        return
    layer = SeedLinear.from_encoded(made_up(ARMS.get(arm, ARMS["SeedLM, 4 bits"]), rows, columns, 0))
    if "not" in arm:
        monkeypatch.setattr(native, "_library", lambda: (None, "switched off"))
    measure(group, arm, rows * columns, "weight", layer, x)


@pytest.mark.parametrize("arm", ["dense", "S-Quant, 3.8 bits", "SeedLM, 4 bits"])
def test_many_vectors_through_one_layer(measure, arm):
    group, rows, columns = "256 vectors through one layer of 1536 x 576", 1536, 576
    x = torch.randn(256, columns, generator=torch.Generator().manual_seed(0))
    if arm == "dense":
        layer = torch.nn.Linear(columns, rows, bias=False)
    else:
        layer = SeedLinear.from_encoded(made_up(ARMS[arm], rows, columns, 0))
    with torch.no_grad():
        measure(group, arm.replace("dense", "float32"), 256, "vector", layer, x, baseline=arm == "dense")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Random models of SmolLM2's shape: 30 layers of width 576, 106 million weights in blocks, 28 million outside."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    model, made = LlamaForCausalLM(config), {"dense": tmp_path_factory.mktemp("dense")}
    model.save_pretrained(made["dense"])
    layers = block_linears(model)
    for arm in WHOLE:
        settings = ARMS[arm]
        for seed, (name, module) in enumerate(layers.items()):
            packed = SeedLinear.from_encoded(made_up(settings, module.out_features, module.in_features, seed))
            model.set_submodule(name, packed)
        model.hf_quantizer = SeedQuantizer(SeedQuantConfig(settings))
        model.config.quantization_config = model.hf_quantizer.quantization_config
        made[arm] = tmp_path_factory.mktemp("packed")
        model.save_pretrained(made[arm])
    return made


MEMORY = """
import resource, sys, torch
from transformers import AutoModelForCausalLM
import icml26.s_quant.hf
def peak():
    if sys.platform == "linux":  # where a process inherits the other figure
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20
before = peak()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
with torch.no_grad():
    model(torch.arange(16)[None])
print(before, peak())
"""


@pytest.mark.parametrize("arm", ["dense", *WHOLE])
def test_a_step_of_a_whole_model(measure, folders, arm):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEMORY, str(folders[arm])]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    before, peak = done.stdout.split()
    model = LlamaForCausalLM.from_pretrained(folders[arm]).eval()
    kept = sum(part.nbytes for part in (*model.parameters(), *model.buffers())) / 1e6
    ids = torch.arange(16)[None]
    with torch.no_grad():
        keys = model(ids, use_cache=True).past_key_values

    def step():
        with torch.no_grad():
            found = model(ids[:, -1:], past_key_values=keys, use_cache=True)
        keys.crop(-1)
        return found

    label = f"{arm.replace('dense', 'float32')}; holds {kept:.0f} MB, peak {peak} MB ({before} MB before loading)"
    found = measure("One token of a Llama of 135 million weights", label, 1, "token", step, baseline=arm == "dense")
    assert torch.isfinite(found.logits).all()
