"""Plain rounding: the definitions, their exact cases, and the errors that the codecs are compared with."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.s_quant.baselines import block_floating_point, rtn, rtn_clipped
from icml26.s_quant.theory import rate_distortion_bound


def gaussian(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)) * 0.02


def student(n):
    return torch.from_numpy(np.random.default_rng(0).standard_t(4, n) * 0.02)


def relative_error(found, weight):
    return ((found.weight.double() - weight).norm() / weight.double().norm()).item()


def naive_rtn(group, bits):
    low, high = min(0.0, *group), max(0.0, *group)
    scale = float(np.float16((high - low) / (2**bits - 1))) or 1.0
    zero = round(-low / scale)
    return [(min(max(round(w / scale) + zero, 0), 2**bits - 1) - zero) * scale for w in group]


def naive_clipped(group, bits, shares):
    half, best = 2 ** (bits - 1), None
    for share in shares:
        scale = float(np.float16(share * max(map(abs, group)) / (half - 0.5))) or 1.0
        found = [min(max(round(w / scale), -half), half - 1) * scale for w in group]
        error = sum((w - f) ** 2 for w, f in zip(group, found, strict=True))
        if best is None or error < best[0]:
            best = error, found
    return best[1]


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_every_group_is_rounded_as_defined(bits):
    weight = gaussian(70) + 0.01
    weight[32:48] = 0
    weight[48:64] = weight[48:64].abs()
    groups = weight.double().split(16)
    cases = [
        (rtn, lambda g: naive_rtn(g, bits)),
        (rtn_clipped, lambda g: naive_clipped(g, bits, np.linspace(1, 0.4, 31))),
        (block_floating_point, lambda g: naive_clipped(g, bits, [1.0])),
    ]
    for quantise, naive in cases:
        expected = np.concatenate([naive(group.tolist()) for group in groups])
        np.testing.assert_array_equal(quantise(weight, bits, 16).weight, expected.astype(np.float32))


def test_codes_scales_and_zero_points_are_counted_over_weights_without_padding():
    weight = gaussian(300)
    assert rtn(weight, 4, 128).bits_per_weight == 4 + 20 * 3 / 300
    assert rtn_clipped(weight, 3, 128).bits_per_weight == 3 + 16 * 3 / 300
    assert rtn(weight[:256], 4).bits_per_weight == 4.15625
    assert block_floating_point(weight[:256]).bits_per_weight == 4.125


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_searching_the_clipping_point_never_adds_to_the_error(seed, bits):
    weight = gaussian(64, seed)
    searched, plain = rtn_clipped(weight, bits, 16), block_floating_point(weight, bits, 16)
    errors = [(found.weight.double() - weight).square().view(4, 16).sum(1) for found in (searched, plain)]
    assert (errors[0] <= errors[1] * (1 + 1e-6)).all()


@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_asymmetric_rounding_errs_by_half_a_step_and_what_float16_adds(seed, bits):
    weight = gaussian(64, seed).double()
    step = (weight.view(4, 16).amax(1).clamp_min(0) - weight.view(4, 16).amin(1).clamp_max(0)) / (2**bits - 1)
    error = (rtn(weight, bits, 16).weight - weight).abs().view(4, 16).amax(1)
    assert (error <= step * (0.5 + 0.5 + 2**bits * 2**-11)).all()  # the zero point is rounded too


def test_weights_on_the_grid_come_back_exactly():
    grid = torch.arange(16.0).repeat(8) * 0.125 - 1
    assert torch.equal(rtn(grid, 4, 128).weight, grid)


@pytest.mark.parametrize(
    ("quantise", "gauss", "heavy"),
    [
        (lambda w: rtn(w, 4), 0.101, 0.142),
        (lambda w: rtn(w, 3), 0.215, 0.301),
        (lambda w: rtn_clipped(w, 4), 0.100, 0.166),
        (lambda w: rtn_clipped(w, 3), 0.194, 0.295),
        (lambda w: rtn_clipped(w, 4, 4096, lowest=0.15), 0.107, 0.218),
        (lambda w: block_floating_point(w, 4), 0.111, 0.180),
    ],
)
def test_errors_are_as_measured_before(quantise, gauss, heavy):
    weight = gaussian(1 << 17)
    assert relative_error(quantise(weight), weight) == pytest.approx(gauss, rel=0.03)
    tails = student(1 << 18)
    assert relative_error(quantise(tails), tails) == pytest.approx(heavy, rel=0.08)  # its peaks vary with the sample
    assert relative_error(quantise(weight), weight) ** 2 > rate_distortion_bound(quantise(weight).bits_per_weight)


@pytest.mark.parametrize("quantise", [rtn, rtn_clipped, block_floating_point])
def test_shape_and_type_follow_the_weight_and_zeros_stay_zeros(quantise):
    weight = torch.zeros(3, 5, 7, dtype=torch.bfloat16)
    found = quantise(weight).weight
    assert found.shape == weight.shape
    assert found.dtype == torch.float32
    assert not found.any()
    assert quantise(np.ones((2, 3))).weight.shape == (2, 3)


@pytest.mark.parametrize("quantise", [rtn, rtn_clipped, block_floating_point])
@pytest.mark.parametrize(
    ("weight", "arguments", "word"),
    [
        (torch.tensor([1.0, torch.nan]), {}, "weight"),
        (torch.ones(4), {"bits": 1}, "bits"),
        (torch.ones(4), {"group": 0}, "group"),
        (torch.tensor([1e9]), {}, "scale"),
    ],
)
def test_wrong_arguments_are_refused(quantise, weight, arguments, word):
    with pytest.raises(InputError, match=word):
        quantise(weight, **arguments)


def test_an_impossible_clipping_point_is_refused():
    with pytest.raises(InputError, match="lowest"):
        rtn_clipped(torch.ones(4), lowest=0)
    with pytest.raises(InputError, match="points"):
        rtn_clipped(torch.ones(4), points=0)


@pytest.mark.parametrize("rounding", [rtn, rtn_clipped, block_floating_point])
def test_a_group_larger_than_the_data_takes_no_more_memory_than_the_data(rounding):
    weight = torch.randn(512, generator=torch.Generator().manual_seed(0))
    huge, exact = rounding(weight, group=1 << 31), rounding(weight, group=512)
    assert torch.equal(huge.weight, exact.weight)
    assert huge.bits_per_weight == exact.bits_per_weight


@pytest.mark.parametrize("rounding", [rtn, rtn_clipped, block_floating_point])
def test_parameters_arrays_and_strides_are_rounded_alike(rounding):
    weight = torch.arange(-6.0, 6.0).reshape(3, 4)
    expected = rounding(weight, group=4).weight
    for same in (torch.nn.Parameter(weight), weight.T.contiguous().T, weight.numpy()[::-1].copy()[::-1]):
        found = rounding(same, group=4).weight
        assert torch.equal(found, expected)
        assert not found.requires_grad
