"""Properties of the chapter's sampling and statistics."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from icml26.errors import InputError
from icml26.s_quant import codec, study


@pytest.mark.parametrize("law", study.DISTRIBUTIONS)
def test_synthetic_laws_have_mean_zero_and_the_asked_standard_deviation(law):
    drawn = study.synthetic_weights(law, 400_000, seed=1).double()
    assert abs(drawn.mean()) < 2e-4
    assert abs(drawn.std() / 0.02 - 1) < 0.03  # the variance of t4's sample variance is infinite: a loose bound


def test_heavier_tails_come_in_the_stated_order():
    peaks = [study.synthetic_weights(law, 100_000, seed=2).abs().max() for law in study.DISTRIBUTIONS]
    assert peaks == sorted(peaks)


def test_an_unknown_law_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match="gaussian"):
        study.synthetic_weights("gausian", 4, seed=0)


def test_only_linear_layers_inside_numbered_blocks_are_weights_to_compress():
    block = nn.ModuleDict({"query": nn.Linear(4, 4), "norm": nn.LayerNorm(4)})
    model = nn.ModuleDict({"embed": nn.Embedding(9, 4), "layer": nn.ModuleList([block]), "head": nn.Linear(4, 9)})
    assert list(study.linear_weights(model)) == ["layer.0.query"]


def test_segments_are_distinct_whole_runs_of_their_own_tensor():
    tensors = {"a": torch.arange(1.0, 101.0).reshape(10, 10), "b": torch.arange(1001.0, 1065.0)}
    sample = study.sample_weights(tensors, 8, 40, seed=3)
    starts = sample.segments[:, 0]
    assert (sample.segments == starts[:, None] + torch.arange(8.0)).all(), "consecutive weights"
    assert ((starts.long() - 1) % 1000 % 8 == 0).all(), "whole segments"
    assert len(starts.unique()) == len(starts) == 10, "without replacement, 40 weights are 5 segments a tensor"
    assert ((starts > 1000) == torch.from_numpy(sample.owner == 1)).all()


def test_a_tensor_with_fewer_segments_gives_all_of_them_and_one_without_any_is_refused():
    assert study.sample_weights(torch.ones(20), 8, 1000, seed=0).segments.shape == (2, 8)
    with pytest.raises(InputError, match="hold 7 values"):
        study.sample_weights(torch.ones(7), 8, 8, seed=0)
    with pytest.raises(InputError, match="not all zero"):
        study.sample_weights({"dead": torch.zeros(64)}, 8, 8, seed=0)


def test_every_tensor_counts_alike_whatever_its_scale():
    noise = torch.randn(64, 64, generator=torch.Generator().manual_seed(4))
    sample = study.sample_weights({"small": 1e-3 * noise, "large": 1e3 * noise.T.contiguous()}, 64, 4096, seed=5)
    # Tenfold relative error in one tensor: the other one's share of the sum is the same whichever it is.
    spoilt = [
        sample.error(sample.segments * torch.from_numpy(1 - 0.1 * (sample.owner == i))[:, None], seed=0).value
        for i in (0, 1)
    ]
    assert spoilt[0] == pytest.approx(spoilt[1], rel=1e-6)
    assert spoilt[0] == pytest.approx(0.1 / np.sqrt(2), rel=1e-6)


def test_squares_add_up_to_the_same_whatever_runs_are_summed():
    sample = study.sample_weights(torch.randn(4096, generator=torch.Generator().manual_seed(6)), 128, 4096, seed=7)
    sums = [sample.squares(sample.segments, length).sum() for length in (8, 32, 128)]
    assert sums == pytest.approx([4096.0] * 3, rel=1e-6)


def exponential_codec(groups: int, seed: int):
    """Groups whose error falls as 2^-bits exactly, so that equal bits mean equal error."""
    rng = np.random.default_rng(seed)
    norm = rng.uniform(0.5, 2, groups)
    fixed = {k: norm * 2.0 ** (-2 * k) for k in range(1, 6)}
    return rng, norm, fixed, [float(k) for k in fixed]


def test_a_codec_on_the_line_of_the_fixed_ones_has_ratio_one_and_no_interval_around_it():
    _, norm, fixed, grid = exponential_codec(50, 8)
    found = study.adaptive_over_fixed(norm, (norm * 2.0 ** (-2 * 2.6), np.full(50, 2.6)), fixed, grid, seed=9)
    assert found == pytest.approx((1.0, 1.0, 1.0))


def test_bits_that_buy_nothing_make_the_adaptive_codec_worse_by_what_they_cost():
    _, norm, fixed, grid = exponential_codec(50, 10)
    found = study.adaptive_over_fixed(norm, (norm * 2.0 ** (-2 * 2.6), np.full(50, 2.85)), fixed, grid, seed=11)
    assert found.value == pytest.approx(2**0.25)


def test_the_interval_of_the_ratio_widens_with_the_spread_of_the_groups():
    rng, norm, fixed, grid = exponential_codec(200, 12)
    wide = norm * 2.0 ** (-2 * 2.5) * rng.lognormal(0, 1.0, 200)
    narrow = norm * 2.0 ** (-2 * 2.5) * rng.lognormal(0, 0.1, 200)
    spans = [
        np.ptp(study.adaptive_over_fixed(norm, (e, np.full(200, 2.5)), fixed, grid, seed=13).interval)
        for e in (narrow, wide)
    ]
    assert 0 < 4 * spans[0] < spans[1]


def test_bits_outside_the_fixed_range_are_refused():
    _, norm, fixed, grid = exponential_codec(10, 14)
    with pytest.raises(InputError, match="outside fixed_bits"):
        study.adaptive_over_fixed(norm, (norm, np.full(10, 7.0)), fixed, grid, seed=15)


def test_the_groups_bits_average_to_the_codecs_own_count_with_and_without_counts():
    config = codec.SQuantConfig(block_size=8, seed_bits=8, group_size=4, k_max=6)
    weight = torch.randn(40 * 32, generator=torch.Generator().manual_seed(16))
    encoded = codec.encode(weight, config)
    assert len(set(encoded.counts.tolist())) > 1, "an adaptive code"
    assert study.group_bits(encoded).mean() == pytest.approx(encoded.bits_per_weight())
    assert study.group_bits(encoded, 0).mean() == pytest.approx(encoded.bits_per_weight(counts=False))


def test_a_short_last_group_is_refused():
    encoded = codec.encode(torch.ones(130), codec.SQuantConfig(seed_bits=8))
    with pytest.raises(InputError, match="holds 130 weights"):
        study.group_bits(encoded)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fixed_bits": [1.0, 2.0, 3.0, 4.0]}, "as many"),
        ({"fixed_bits": [1.0], "fixed": {1: np.ones(10)}}, "two or more"),
        ({"fixed_bits": [], "fixed": {}}, "two or more"),
        ({"fixed_bits": [1.0, 2.0, 3.0, 4.0, 5.5]}, "evenly spaced"),
        ({"fixed_bits": [5.0, 4.0, 3.0, 2.0, 1.0]}, "increasing"),
        ({"norm": np.ones(9)}, "same groups"),
        ({"fixed": {k: np.ones(10 + (k == 3)) for k in range(1, 6)}}, "same groups"),
    ],
)
def test_curves_that_cannot_be_interpolated_are_refused(change, message):
    _, norm, fixed, grid = exponential_codec(10, 17)
    arguments = {"norm": norm, "adaptive": (norm, np.full(10, 2.5)), "fixed": fixed, "fixed_bits": grid} | change
    with pytest.raises(InputError, match=message):
        study.adaptive_over_fixed(**arguments, seed=18)


def test_layers_that_store_the_transpose_count_like_linear_ones():
    layer = Conv1D(6, 4)  # from 4 to 6
    found = study.linear_weights(nn.ModuleDict({"h": nn.ModuleList([layer])}))
    assert list(found) == ["h.0"]
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(18))
    assert torch.allclose(x @ found["h.0"].T + layer.bias, layer(x), atol=1e-6)
    assert not found["h.0"].requires_grad


@pytest.mark.parametrize("model", [nn.Sequential(nn.ReLU()), nn.ModuleDict({"head": nn.Linear(2, 2)}), None, "gpt2"])
def test_a_model_without_linear_layers_in_blocks_is_refused(model):
    with pytest.raises(InputError, match=r"^model"):
        study.linear_weights(model)
