"""S-Quant's codec: the format bit by bit, the rules that choose, and the limits of what it can reach."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_codec import all_bases, best, decode_s_quant, energies

from icml26.errors import InputError
from icml26.s_quant import gf2, squant, study
from icml26.s_quant.codec import (
    OFFICIAL_DEFAULT,
    PAPER_3BIT,
    PAPER_4BIT,
    REPAIR_FACTORS,
    Encoded,
    SeedLMConfig,
    SQuantConfig,
    decode,
    encode,
    encode_path,
)
from icml26.s_quant.register import Register, galois_mask, step_reference
from icml26.s_quant.theory import rate_distortion_bound

SMALL = SQuantConfig(block_size=8, seed_bits=8, group_size=4, threshold=0.9, k_min=2, k_max=7)
VARIANTS = {
    "printed": SMALL,
    "official": OFFICIAL_DEFAULT,
    "row-major": replace(SMALL, layout="row-major"),
    "fibonacci": replace(SMALL, register="fibonacci"),
    "fixed": replace(SMALL, k_min=3, k_max=3, coefficient_bits=5),
    "four bits": replace(SMALL, coefficient_bits=4),
    "aware": replace(SMALL, coefficient_bits=4, seed_choice="after", candidates=50, scale_factors=REPAIR_FACTORS),
    "another mask": replace(SMALL, seed_bits=16, mask=0xD008, k_max=4),
}


def gaussian(*shape, seed=0, scale=0.02):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def relative_error(encoded, weight):
    return ((decode(encoded).double() - weight).norm() / weight.double().norm()).item()


def one_block(config, seed, codes, scale=1.0):
    k = len(codes)
    return Encoded(
        config, (config.block_size,), np.array([seed], np.uint32), np.array([k], np.uint8), np.array(codes, np.int8),
        np.array([scale], np.float16), 0,
    )  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_decoding_is_one_division_and_one_cast_of_integers(name):
    weight = gaussian(5, 37)
    weight[2] = 0
    encoded = encode(weight, VARIANTS[name])
    found = decode(encoded)
    assert found.dtype == torch.float32
    assert np.array_equal(found.numpy(), decode_s_quant(encoded))


def test_the_first_state_is_the_seed_and_runs_of_states_are_columns():
    config = SQuantConfig(block_size=2, seed_bits=4, k_max=2)
    assert decode(one_block(config, 1, [1, 0])).tolist() == [-1, np.float32(4 / 7)]
    assert decode(one_block(config, 1, [0, 1])).tolist() == [np.float32(-2 / 7), np.float32(-5 / 7)]
    rows = replace(config, layout="row-major")
    assert decode(one_block(rows, 1, [0, 1])).tolist() == [np.float32(4 / 7), np.float32(-5 / 7)]


def test_at_sixteen_bits_the_register_is_the_paper_s_and_not_seedlm_s():
    assert SQuantConfig().bases.register.mask == 0xB400
    assert SQuantConfig(register="fibonacci").bases.register.mask == 0xD008
    assert SQuantConfig(mask=0xD008).bases.register.mask == 0xD008


@pytest.mark.parametrize("name", ["printed", "row-major", "fibonacci"])
def test_seeds_and_counts_are_the_first_to_reach_the_threshold_over_all_seeds(name):
    config = VARIANTS[name]
    weight = gaussian(40, 8, seed=1)
    encoded = encode(weight, config)
    expected, missed = [], 0
    tables = {k: all_bases(config.bases, k) for k in range(config.k_min, config.k_max + 1)}
    for block in weight.double().numpy():
        for k in tables:
            (seed,), (energy,) = best(energies(block[None], tables[k]))
            if energy >= config.threshold - 1e-10:
                break
        missed += energy < config.threshold - 1e-10
        expected.append((seed, k))
    assert list(zip(encoded.seeds, encoded.counts, strict=True)) == expected
    assert encoded.missed == missed


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_coefficients_are_least_squares_over_the_rounded_scale_of_their_group(bits):
    config = replace(SMALL, coefficient_bits=bits, group_size=5)
    weight = gaussian(23, 8, seed=2)
    encoded = encode(weight, config)
    fits = [
        np.linalg.lstsq(config.bases.matrices([seed], int(k))[0].numpy(), block, rcond=1e-10)[0]
        for seed, k, block in zip(encoded.seeds, encoded.counts, weight.double().numpy(), strict=True)
    ]
    limit = 2 ** (bits - 1) - 1
    peaks = [max(np.abs(fit).max() for fit in fits[i : i + 5]) for i in range(0, 23, 5)]
    scales = (np.array(peaks) / limit).astype(np.float16)
    assert np.array_equal(encoded.scales, scales)
    codes = [np.clip(np.rint(fit / float(scales[i // 5])), -limit, limit) for i, fit in enumerate(fits)]
    assert np.array_equal(encoded.coefficients, np.concatenate(codes))
    assert np.abs(encoded.coefficients).max() <= limit


def test_codes_round_half_to_even_and_never_reach_minus_128():
    fitted = torch.tensor([0.5, 1.5, 2.5, -0.5, -2.5, 130.0, -130.0], dtype=torch.float64)
    assert squant._quantise(fitted, torch.ones(7, dtype=torch.float64), 127).tolist() == [0, 2, 2, 0, -2, 127, -127]


def test_a_decoder_accepts_minus_128():
    assert decode(one_block(SQuantConfig(block_size=2, seed_bits=4, k_max=2), 1, [-128, 0]))[0] == 128


def test_scales_stay_within_float16():
    assert encode(torch.zeros(40), SMALL).scales.tolist() == [1.0, 1.0]
    assert encode(gaussian(40, scale=1e-12), SMALL).scales.tolist() == [2.0**-24] * 2
    with pytest.raises(InputError, match=r"scale .* of group 0 exceeds float16"):
        encode(gaussian(40, scale=1e9), SMALL)


def test_zero_blocks_take_the_least_count_seed_one_and_zeros():
    weight = gaussian(6, 8)
    weight[::2] = 0
    for config in (SMALL, VARIANTS["row-major"], VARIANTS["aware"]):
        encoded = encode(weight, config)
        assert (encoded.seeds[::2] == 1).all()
        assert (encoded.counts[::2] == config.k_min).all()
        assert (decode(encoded)[::2] == 0).all()
        assert encoded.missed <= 3


def test_one_outlier_block_costs_its_group_and_no_other():
    weight = gaussian(8, 8, seed=3)
    spoilt = weight.clone()
    spoilt[0] *= 1000
    before, after = ((decode(encode(w, SMALL)) - w).square().sum(1) for w in (weight, spoilt))
    assert (after[1:4] > 2 * before[1:4]).any()
    assert torch.equal(after[4:], before[4:])


def test_a_tensor_of_any_length_ends_in_a_padded_block_and_a_short_group():
    for size in (1, 7, 8, 9, 33, 65):
        weight = gaussian(size, seed=size)
        encoded = encode(weight, SMALL)
        n = -(-size // 8)
        assert (len(encoded.seeds), len(encoded.scales)) == (n, -(-n // 4))
        assert decode(encoded).shape == (size,)
        padded = torch.nn.functional.pad(weight, (0, 8 * n - size))
        assert torch.equal(decode(encode(padded, SMALL))[:size], decode(encoded))


@pytest.mark.parametrize("name", VARIANTS)
def test_arrays_and_tensors_of_every_type_give_the_same_codes(name):
    weight = gaussian(4, 20).to(torch.bfloat16)
    expected = decode(encode(weight, VARIANTS[name]))
    for other in (weight.float(), weight.double().numpy(), weight.T.contiguous().T, torch.nn.Parameter(weight.float())):
        assert torch.equal(decode(encode(other, VARIANTS[name])), expected)


def test_one_search_serves_every_threshold_and_every_fixed_count():
    weight = gaussian(90, 8, seed=4)
    path = encode_path(weight, SMALL)
    wanted = [replace(SMALL, threshold=t) for t in (0.5, 0.9, 0.99)]
    wanted += [replace(SMALL, k_min=k, k_max=k, coefficient_bits=4) for k in (1, 3, 7)]
    for config in wanted:
        one, other = encode(weight, config, path=path), encode(weight, config)
        assert np.array_equal(one.seeds, other.seeds)
        assert np.array_equal(one.counts, other.counts)
        assert torch.equal(decode(one), decode(other))
        assert one.missed == other.missed


def test_a_path_that_does_not_fit_is_refused():
    weight = gaussian(10, 8)
    path = encode_path(weight, SMALL, k_min=3)
    with pytest.raises(InputError, match="does not cover"):
        encode(weight, SMALL, path=path)
    with pytest.raises(InputError, match="does not cover"):
        encode(gaussian(11, 8), replace(SMALL, k_min=3), path=path)
    with pytest.raises(InputError, match="other bases"):
        encode(weight, replace(SMALL, k_min=3, layout="row-major"), path=path)
    stopped = squant.search_path(squant.as_blocks(weight, 8), SMALL.bases, 2, 7, threshold=0.9)
    with pytest.raises(InputError, match="threshold"):
        encode(weight, SMALL, path=stopped)


def test_seeds_chosen_after_quantisation_are_the_best_of_all_seeds_and_scales():
    config = SQuantConfig(
        block_size=4, seed_bits=6, group_size=3, k_min=2, k_max=2, coefficient_bits=3, seed_choice="after",
        candidates=63, scale_factors=(0.25, 0.5, 1.0),
    )  # fmt: skip
    weight = gaussian(12, 4, seed=5)
    encoded = encode(weight, config)
    printed = encode(weight, replace(config, seed_choice="before", scale_factors=(1.0,)))
    matrices = config.bases.matrices(np.arange(1, 64), 2).numpy()
    inverse = np.linalg.pinv(matrices, rcond=1e-10)
    blocks = weight.double().numpy()
    seeds, fits = printed.seeds.astype(int) - 1, []
    for i in range(12):
        fits.append(np.abs(inverse[seeds[i]] @ blocks[i]).max())
    for group in range(4):
        rows, options = range(3 * group, 3 * group + 3), []
        for factor in config.scale_factors:
            scale = float(np.float16(factor * max(fits[i] for i in rows) / config.limit))
            picks, total = [], 0
            for i in rows:
                codes = np.clip(np.rint(inverse @ blocks[i] / scale), -config.limit, config.limit)
                error = ((blocks[i] - (matrices @ codes[:, :, None])[:, :, 0] * scale) ** 2).sum(1)
                picks.append(int(error.argmin()) + 1)
                total += error.min()
            options.append((total, scale, picks))
        total, scale, picks = min(options)
        assert encoded.scales[group] == scale
        assert encoded.seeds[list(rows)].tolist() == picks


@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 4, 6]))
def test_choosing_after_quantisation_never_adds_to_a_group_s_error(seed, bits):
    weight = gaussian(10, 8, seed=seed)
    printed = replace(SMALL, coefficient_bits=bits)
    aware = replace(printed, seed_choice="after", candidates=20, scale_factors=(0.5, 1.0))
    before, after = ((decode(encode(weight, c)).double() - weight).square().sum(1) for c in (printed, aware))
    for rows in (slice(0, 4), slice(4, 8), slice(8, 10)):
        assert after[rows].sum() <= before[rows].sum() * (1 + 1e-6)


@given(st.integers(0, 2**32 - 1))
def test_the_stored_error_is_at_least_that_of_the_best_projection(seed):
    weight = gaussian(20, 8, seed=seed).double()
    path = encode_path(weight, SMALL, k_min=2)
    encoded = encode(weight, SMALL, path=path)
    energy = path.energy[np.arange(20), encoded.counts - 2]
    wrong = (decode(encoded).double() - weight).square().sum(1) / weight.square().sum(1)
    assert (wrong.numpy() >= (1 - energy) * (1 - 1e-5) - 1e-12).all()


@given(st.integers(0, 2**32 - 1))
def test_a_mirrored_tensor_has_the_same_seeds_and_mirrored_codes(seed):
    weight = gaussian(12, 8, seed=seed)
    for config in (SMALL, VARIANTS["aware"]):
        one, other = encode(weight, config), encode(-weight, config)
        assert np.array_equal(one.seeds, other.seeds)
        assert np.array_equal(one.counts, other.counts)
        assert np.array_equal(one.coefficients, -other.coefficients)
        assert np.array_equal(one.scales, other.scales)


@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_a_tensor_scaled_by_a_power_of_two_keeps_its_codes(seed, power):
    weight = gaussian(12, 8, seed=seed)  # scales near 2^-11: float16 is normal from 2^-14
    one, other = encode(weight, SMALL), encode(weight * 2.0**power, SMALL)
    assert np.array_equal(one.seeds, other.seeds)
    assert np.array_equal(one.coefficients, other.coefficients)
    assert np.array_equal(one.scales.astype(float) * 2.0**power, other.scales)


def test_scales_below_the_normal_range_of_float16_are_what_breaks_scaling():
    weight = gaussian(400, 8, seed=9)
    one, other = encode(weight, SMALL), encode(weight / 2**9, SMALL)
    assert np.array_equal(one.seeds, other.seeds)
    assert not np.array_equal(one.coefficients, other.coefficients)


def test_bits_count_seeds_coefficients_scales_and_if_asked_counts():
    weight = gaussian(7, 61)
    encoded = encode(weight, SMALL)
    n, total = -(-427 // 8), int(encoded.counts.sum())
    assert encoded.bits_per_weight(counts=False) == (n * 8 + 8 * total + 16 * -(-n // 4)) / 427
    assert encoded.bits_per_weight() == (n * (8 + 3) + 8 * total + 16 * -(-n // 4)) / 427
    assert encoded.payload_bytes() == n + -(-3 * n // 8) + total + 2 * -(-n // 4)
    assert encoded.k_histogram().sum() == n
    assert encoded.k_histogram() @ np.arange(8) == total


def test_whole_groups_without_padding_cost_equation_13():
    config = SQuantConfig(block_size=16, seed_bits=8, group_size=8, k_max=12)
    encoded = encode(gaussian(64, 16), config)
    k = encoded.counts.mean()
    assert encoded.bits_per_weight(counts=False) == pytest.approx((8 + 8 * k + 16 / 8) / 16)
    assert encoded.bits_per_weight() - encoded.bits_per_weight(counts=False) == 4 / 16


@pytest.mark.parametrize(("k_max", "bits"), [(7, 3), (8, 4), (15, 4), (16, 5)])
def test_a_count_takes_the_bits_of_k_max_and_a_fixed_one_none(k_max, bits):
    assert SQuantConfig(k_max=k_max).count_bits == bits
    assert SQuantConfig(k_min=k_max, k_max=k_max).count_bits == 0


@pytest.mark.parametrize("name", ["printed", "four bits", "aware", "fixed"])
def test_gaussian_weights_cost_at_least_their_rate_distortion_bound(name):
    weight = gaussian(500, 8, seed=6)
    encoded = encode(weight, VARIANTS[name])
    assert relative_error(encoded, weight) ** 2 > rate_distortion_bound(encoded.bits_per_weight())


def test_numerators_of_extreme_codes_fit_27_bits_and_a_sign():
    config = SQuantConfig(k_min=16, k_max=16)
    for seed in (1, 32768, 65535):
        for sign in (1, -1):
            num = squant.numerators(one_block(config, seed, [127 * sign] * 16))
            assert num.abs().max() <= (2**15 - 1) * 127 * 16 < 2**27 - 1
            assert torch.equal(num, num.round())


@pytest.mark.parametrize(
    ("config", "bits", "error"),
    [
        (PAPER_4BIT, 3.75, 0.281),
        (PAPER_3BIT, 2.62, 0.404),
        (OFFICIAL_DEFAULT, 4.97, 0.277),
        (SQuantConfig(block_size=8, k_min=2, k_max=2, group_size=32), 4.06, 0.188),
        (SQuantConfig(block_size=8, k_min=2, k_max=2, group_size=32, layout="row-major"), 4.06, 0.162),
    ],
)
def test_gaussian_weights_reach_the_bits_and_errors_measured_before(config, bits, error):
    weight = gaussian(512, 16, seed=7)
    encoded = encode(weight, config)
    assert encoded.bits_per_weight(counts=False) == pytest.approx(bits, rel=0.02)
    assert relative_error(encoded, weight) == pytest.approx(error, rel=0.04)


@pytest.mark.parametrize(("block", "k", "bits", "error"), [(8, 3, 4, 0.126), (8, 3, 5, 0.107), (16, 8, 4, 0.197)])
def test_the_repaired_variants_reach_the_errors_measured_before(block, k, bits, error):
    config = SQuantConfig(
        block_size=block, k_min=k, k_max=k, coefficient_bits=bits, layout="row-major", seed_choice="after",
        scale_factors=REPAIR_FACTORS,
    )  # fmt: skip
    weight = gaussian(256, block, seed=8)
    assert relative_error(encode(weight, config), weight) == pytest.approx(error, rel=0.05)


def test_heavy_tails_change_the_error_at_a_threshold_by_nothing():
    weight = torch.from_numpy(np.random.default_rng(0).standard_t(4, (512, 16)) * 0.02)
    assert relative_error(encode(weight, PAPER_4BIT), weight) == pytest.approx(0.278, rel=0.04)


def test_blocks_that_miss_the_threshold_are_counted():
    config = replace(SMALL, threshold=0.999, k_max=3)
    path = encode_path(gaussian(50, 8), config)
    encoded = encode(gaussian(50, 8), config)
    assert encoded.missed == (path.energy[:, 1:].max(1) < 0.999).sum() > 0
    assert encode(gaussian(50, 8), replace(config, k_min=3)).missed == 0


def test_progress_grows_to_one():
    for config in (SMALL, VARIANTS["row-major"], VARIANTS["aware"]):
        seen = []
        encode(gaussian(2100, 8), config, progress=seen.append)
        assert len(seen) > 3
        assert seen == sorted(seen)
        assert seen[-1] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_size": 0}, {"block_size": 8.0}, {"seed_bits": 1}, {"seed_bits": 25}, {"group_size": 0}, {"k_min": 0},
        {"k_max": 17}, {"k_min": 5, "k_max": 4}, {"coefficient_bits": 1}, {"coefficient_bits": 9}, {"threshold": 0},
        {"threshold": 1.1}, {"threshold": float("nan")}, {"layout": "rows"}, {"register": "lfsr"}, {"mask": 1},
        {"seed_choice": "never"}, {"candidates": 0}, {"seed_choice": "after", "scale_factors": ()},
        {"seed_choice": "after", "scale_factors": (0.0,)}, {"scale_factors": (0.5, 1.0)}, {"block_size": True},
    ],
)  # fmt: skip
def test_a_configuration_out_of_range_is_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong.keys() - {"seed_choice"}), "seed_choice").split("_")[0]):
        SQuantConfig(**asdict(SQuantConfig()) | wrong)


@pytest.mark.parametrize("weight", [torch.zeros(0), torch.arange(8), torch.tensor([1.0, torch.inf])])
def test_weights_that_cannot_be_encoded_are_refused(weight):
    with pytest.raises(InputError, match="weight"):
        encode(weight, SMALL)


def test_weights_whose_coefficients_overflow_are_refused():
    for weight in (gaussian(16).double().sign() * 1.7e308, torch.full((4, 16), 1.7e308, dtype=torch.float64)):
        with pytest.raises(InputError, match="scale"):
            encode(weight, SMALL)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: SQuantConfig(threshold="0.9"), "threshold"),
        (lambda: SQuantConfig(threshold=None), "threshold"),
        (lambda: SQuantConfig(threshold=float("nan")), "threshold"),
        (lambda: SQuantConfig(mask="0xb400"), "mask"),
        (lambda: SQuantConfig(mask=46080.0), "mask"),
        (lambda: SQuantConfig(seed_choice="after", scale_factors=0.5), "scale_factors"),
        (lambda: SQuantConfig(seed_choice="after", scale_factors="1"), "scale_factors"),
        (lambda: SQuantConfig(seed_choice="after", scale_factors=("1",)), "scale_factors"),
        (lambda: SQuantConfig(layout=["columns"]), "layout"),
        (lambda: SQuantConfig(register=None), "form"),
        (lambda: SQuantConfig(block_size="16"), "block_size"),
        (lambda: SeedLMConfig(exponent_rule=None), "exponent_rule"),
        (lambda: SeedLMConfig(prescale="yes"), "prescale"),
        (lambda: SeedLMConfig(rank=3.0), "rank"),
        (lambda: Register(8, taps=3), "taps"),
        (lambda: Register(8, taps=(0, 1.5)), "taps"),
        (lambda: Register(8, taps="01"), "taps"),
        (lambda: Register([8]), "width"),
        (lambda: Register.from_mask(4, "12"), "mask"),
        (lambda: Register.from_mask("4", 12), "width"),
        (lambda: Register.s_quant([16]), "width"),
        (lambda: galois_mask(99), "width"),
        (lambda: galois_mask(8, (0, 9)), "taps"),
        (lambda: step_reference("1", Register(8)), "seed"),
        (lambda: gf2.is_primitive(-5), "polynomial"),
        (lambda: gf2.is_primitive("x"), "polynomial"),
        (lambda: gf2.is_primitive([1]), "polynomial"),
        (lambda: gf2.power((1,), 1.5), "exponent"),
        (lambda: encode(gaussian(16), None), "config"),
        (lambda: encode(gaussian(16), SQuantConfig), "config"),
        (lambda: encode(gaussian(16), SMALL, path="x"), "path"),
        (lambda: encode_path(gaussian(16), SeedLMConfig()), "config"),
        (lambda: encode_path(gaussian(16), SMALL, k_min="1"), "k_min"),
        (lambda: decode(gaussian(16)), "encoded"),
        (lambda: study.sample_weights({}, 8, 8, seed=0), "weights"),
        (lambda: study.sample_weights([1.0], 8, 8, seed=0), "weight"),
        (lambda: study.sample_weights(gaussian(16), 8, 0, seed=0), "size"),
        (lambda: study.sample_weights(gaussian(16), 0, 8, seed=0), "length"),
        (lambda: study.sample_weights(gaussian(16), 8, 8, seed=None), "seed"),
        (lambda: study.synthetic_weights(["gaussian"], 8, seed=0), "law"),
        (lambda: study.synthetic_weights("gaussian", "8", seed=0), "size"),
    ],
)
def test_wrong_types_are_one_line(call, name):
    with pytest.raises(InputError, match=rf"^{name}\b[^\n]*$"):
        call()
