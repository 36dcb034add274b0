"""GPTQ and AWQ against naive references, in their exact cases, and on what they are for: the layer's output."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers.pytorch_utils import Conv1D

from icml26 import models
from icml26.errors import InputError
from icml26.s_quant import study
from icml26.s_quant.baselines import block_floating_point, rtn_clipped
from icml26.s_quant.calibrated import SHARES, Calibration, awq, collect, gptq, output_error

# Rows of a whole number of groups, groups of several rows, groups across rows, a short last group.
SHAPES = [(5, 32, 16), (6, 8, 16), (6, 12, 16), (5, 12, 8), (3, 10, 16)]


def layer(rows, width, seed=0, tokens=200):
    """A weight and inputs that are correlated and of unequal magnitude, as hidden states are."""
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, width, generator=draw) * 0.05
    mixing = torch.randn(width, width, generator=draw) + 2 * torch.eye(width)
    inputs = torch.randn(tokens, width, generator=draw) @ mixing * torch.logspace(-1, 1, width)
    return weight, inputs.double()


def calibration(inputs):
    return Calibration(inputs.T @ inputs, inputs.abs().mean(0), len(inputs))


def members(rows, width, group):
    """Places (row, column) of each group."""
    places = [(r, c) for r in range(rows) for c in range(width)]
    return [places[i : i + group] for i in range(0, len(places), group)]


def scale_of(values, half, share):
    return float(np.float16(share * max(map(abs, values)) / (half - 0.5))) or 1.0


def nearest_code(value, scale, half):
    return min(max(round(value / scale), -half), half - 1) * scale


def searched_scale(values, half):
    best = None
    for share in SHARES:
        scale = scale_of(values, half, share)
        error = sum((nearest_code(v, scale, half) - v) ** 2 for v in values)
        if best is None or error < best[0]:
            best = error, scale
    return best[1]


def naive_gptq(weight, inputs, bits, group, damping=0.01):
    """One weight at a time; the inverse Hessian of the columns left is computed anew for each column."""
    rows, width = weight.shape
    half, groups = 2 ** (bits - 1), members(rows, width, group)
    hessian = 2 * inputs.T @ inputs
    hessian = hessian + damping * hessian.diagonal().mean() * torch.eye(width, dtype=torch.float64)
    now, found, scales = weight.double().clone(), torch.zeros(rows, width, dtype=torch.float64), {}
    for j in range(width):
        inverse = torch.linalg.inv(hessian[j:, j:])
        for g, places in enumerate(groups):
            if g not in scales and j >= min(c for _, c in places):
                scales[g] = searched_scale([now[place].item() for place in places], half)
        for r in range(rows):
            found[r, j] = nearest_code(now[r, j].item(), scales[(r * width + j) // group], half)
            # Optimal brain surgeon: the change of the others that best makes up for this one.
            now[r, j:] -= (now[r, j] - found[r, j]) / inverse[0, 0] * inverse[0]
    return found.float()


def naive_awq(weight, inputs, bits, group, exponents, clip):
    rows, width = weight.shape
    half, groups = 2 ** (bits - 1), members(rows, width, group)

    def rounded(values, share):
        found = torch.zeros(rows, width, dtype=torch.float64)
        for places in groups:
            scale = scale_of([values[place].item() for place in places], half, share)
            for place in places:
                found[place] = nearest_code(values[place].item(), scale, half)
        return found

    exact, magnitude, best = weight.double(), inputs.abs().mean(0), None
    for exponent in exponents:
        s = (magnitude / magnitude.max()).clamp_min(1e-4) ** exponent
        s = s / (s.max() * s.min()).sqrt()
        error = (inputs @ (rounded(exact * s, 1.0) / s - exact).T).square().sum().item()
        if best is None or error < best[0]:
            best = error, s
    s, found = best[1], rounded(exact * best[1], 1.0)
    for g, places in enumerate(groups):
        least = None
        for share in SHARES if clip else [1.0]:
            tried = rounded(exact * s, share)
            error = 0.0
            for r in {r for r, _ in places}:
                columns = [c for row, c in places if row == r]
                error += (inputs[:, columns] @ (tried / s - exact)[r, columns]).square().sum().item()
            if least is None or error < least[0]:
                least = error, tried
        for place in groups[g]:
            found[place] = least[1][place]
    return (found / s).float()


@pytest.mark.parametrize(("rows", "width", "group"), SHAPES)
@pytest.mark.parametrize("bits", [2, 4])
def test_gptq_is_optimal_brain_surgery_weight_by_weight(rows, width, group, bits):
    weight, inputs = layer(rows, width)
    found = gptq(weight, calibration(inputs), bits, group)
    torch.testing.assert_close(found.weight, naive_gptq(weight, inputs, bits, group), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("rows", "width", "group"), SHAPES)
@pytest.mark.parametrize("clip", [True, False])
def test_awq_scales_rounds_and_clips_as_defined(rows, width, group, clip):
    weight, inputs = layer(rows, width)
    exponents = (0.0, 0.3, 0.6, 1.0)
    found = awq(weight, calibration(inputs), 3, group, exponents=exponents, clip=clip)
    expected = naive_awq(weight, inputs, 3, group, exponents, clip)
    torch.testing.assert_close(found.weight, expected, rtol=1e-5, atol=1e-7)


@given(st.sampled_from(SHAPES), st.integers(2, 5), st.floats(1e-3, 1e3), st.integers(0, 99))
@settings(max_examples=20)
def test_gptq_is_clipped_rounding_when_all_inputs_count_alike(shape, bits, size, seed):
    rows, width, group = shape
    weight, _ = layer(rows, width, seed)
    alike = Calibration(size * torch.eye(width).double(), torch.ones(width).double(), 7)
    found = gptq(weight, alike, bits, group)
    assert torch.equal(found.weight, rtn_clipped(weight, bits, group).weight)
    assert found.bits_per_weight == rtn_clipped(weight, bits, group).bits_per_weight


@given(st.sampled_from(SHAPES), st.integers(2, 5), st.integers(0, 99))
@settings(max_examples=20)
def test_awq_without_scaling_and_clipping_is_block_floating_point(shape, bits, seed):
    rows, width, group = shape
    weight, inputs = layer(rows, width, seed)
    found = awq(weight, calibration(inputs), bits, group, exponents=[0.0], clip=False)
    assert torch.equal(found.weight, block_floating_point(weight, bits, group).weight)
    assert found.bits_per_weight == block_floating_point(weight, bits, group).bits_per_weight


@given(st.sampled_from(SHAPES), st.integers(0, 99))
@settings(max_examples=20)
def test_awq_with_all_channels_alike_and_independent_is_clipped_rounding(shape, seed):
    rows, width, group = shape
    weight, _ = layer(rows, width, seed)
    alike = Calibration(torch.eye(width).double(), torch.ones(width).double(), 1)
    assert torch.equal(awq(weight, alike, 3, group).weight, rtn_clipped(weight, 3, group).weight)


@pytest.mark.parametrize("bits", [3, 4])
def test_both_lower_the_output_error_of_the_same_grid_on_their_calibration_inputs(bits):
    totals = {}
    for seed in range(8):
        weight, inputs = layer(64, 256, seed, tokens=1000)
        given = calibration(inputs)
        for name, found in {
            "clipped": rtn_clipped(weight, bits),
            "plain": block_floating_point(weight, bits),
            "gptq": gptq(weight, given, bits),
            "scaled": awq(weight, given, bits, clip=False),
            "awq": awq(weight, given, bits),
        }.items():
            totals[name] = totals.get(name, 0) + output_error(weight, found.weight, given)
    assert totals["gptq"] < 0.95 * totals["clipped"]
    assert totals["scaled"] <= totals["plain"]
    assert totals["awq"] < totals["scaled"]
    assert totals["awq"] < totals["clipped"]


def test_the_output_error_is_that_of_the_outputs():
    weight, inputs = layer(6, 12)
    rounded = rtn_clipped(weight, 3).weight
    expected = (inputs @ (weight - rounded).double().T).square().sum(1).mean().item()
    assert output_error(weight, rounded, calibration(inputs)) == pytest.approx(expected, rel=1e-9)


def test_calibration_is_what_the_layers_saw_however_the_data_are_cut():
    model, _ = models.load_lm("tiny-random-llama")
    tokens = torch.randint(256, (6, 20), generator=torch.Generator().manual_seed(0))
    names = ["model.layers.1.mlp.down_proj", "model.layers.0.self_attn.q_proj"]
    seen = {}

    def keep(name):
        return lambda module, inputs, output: seen.update({name: inputs[0].flatten(0, 1).double()})

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    model(tokens)
    for handle in handles:
        handle.remove()
    for batches in ([tokens], tokens.split(1), [{"input_ids": tokens}]):
        found = collect(model, batches, names)
        for name in names:
            x = seen[name]
            torch.testing.assert_close(found[name].gram, x.T @ x, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(found[name].magnitude, x.abs().mean(0), rtol=1e-4, atol=1e-6)
            assert found[name].count == 120
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_padding_does_not_count():
    model, tokenizer = models.load_encoder("tiny-random-bert")
    name = "encoder.layer.0.attention.self.query"
    batch = dict(tokenizer(["a", "a longer one"], return_tensors="pt", padding=True))
    apart = [dict(tokenizer(text, return_tensors="pt")) for text in ("a", "a longer one")]
    padded, alone = collect(model, [batch], [name])[name], collect(model, apart, [name])[name]
    assert padded.count == alone.count == 13
    torch.testing.assert_close(padded.gram, alone.gram, rtol=1e-4, atol=1e-4)


def test_wrong_arguments_are_named():
    weight, inputs = layer(4, 16)
    given = calibration(inputs)
    zero = Calibration(torch.zeros(16, 16).double(), torch.zeros(16).double(), 3)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    cases = [
        (lambda: gptq(weight, calibration(inputs[:, :8])), "calibration is of 8 inputs"),
        (lambda: awq(weight, zero), "nothing but zeros"),
        (lambda: gptq(weight, zero), "nothing but zeros"),
        (lambda: gptq(weight, given, bits=9), "bits 9"),
        (lambda: gptq(weight, given, damping=0.0), "damping=0.0"),
        (lambda: awq(weight, given, exponents=[]), "exponents"),
        (lambda: gptq(weight * torch.nan, given), "finite"),
        (lambda: collect(model, [], ["1"]), "no linear layer"),
        (lambda: collect(model, [], ["0"]), "no input"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("rounding", [gptq, awq])
def test_a_parameter_is_rounded_like_its_values_and_a_huge_group_like_the_whole_weight(rounding):
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    inputs = Calibration(torch.eye(4).double(), torch.ones(4).double(), 4)
    expected = rounding(weight, inputs, group=12)
    for found in (rounding(nn.Parameter(weight), inputs, group=12), rounding(weight, inputs, group=1 << 31)):
        assert torch.equal(found.weight, expected.weight)
        assert found.bits_per_weight == expected.bits_per_weight


@pytest.mark.parametrize("rounding", [gptq, awq])
def test_a_calibration_that_is_not_finite_or_none_is_refused_by_name(rounding):
    gram = torch.eye(4).double()
    for wrong in (Calibration(gram * torch.nan, torch.ones(4).double(), 4), gram):
        with pytest.raises(InputError, match="calibration"):
            rounding(torch.ones(2, 4), wrong)


def test_layers_that_store_the_transpose_are_calibrated_like_linear_ones():
    linear, transposed = nn.Linear(4, 6), Conv1D(6, 4)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    found = [collect(nn.Sequential(one), [{"input": x}], ["0"])["0"] for one in (linear, transposed)]
    assert torch.equal(found[0].gram, found[1].gram)
    assert gptq(study.linear_weights(nn.Sequential(transposed))["0"], found[1]).weight.shape == (6, 4)
