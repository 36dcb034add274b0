"""SeedLM's codec: the pruned search is the exhaustive one, the words and the arithmetic are exact, and its limits."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_codec import all_bases, decode_seedlm
from naive_codec import seedlm as naive

from icml26.errors import InputError
from icml26.s_quant import seedlm
from icml26.s_quant.codec import SEEDLM_3BIT, SEEDLM_4BIT, SeedLMConfig, SeedLMEncoded, decode, encode, encode_path
from icml26.s_quant.config import LOWEST
from icml26.s_quant.theory import rate_distortion_bound

RULES = ("range", "printed", "search")
SMALL = SeedLMConfig(register_bits=8)


def gaussian(*shape, seed=0, scale=0.02):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def relative_error(encoded, weight):
    return ((decode(encoded).double() - weight).norm() / weight.double().norm()).item()


def one_block(config, seed, e, codes):
    return SeedLMEncoded(
        config, (config.block_size,), np.array([seed], np.uint32), np.array([e], np.int8),
        np.array([codes], np.int8), 0, 0,
    )  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("block", "rank", "bits"), [(8, 3, 8), (12, 4, 8), (4, 2, 3), (2, 2, 4), (6, 1, 6)])
def test_the_pruned_search_is_the_exhaustive_one(rule, block, rank, bits):
    config = SeedLMConfig(block, rank, bits, exponent_rule=rule)
    weight = gaussian(24, block, seed=1) * torch.logspace(-3, 4, 24)[:, None]
    weight[3, 1:] = 0
    encoded = encode(weight, config)
    matrices = all_bases(config.bases, rank)
    for i, row in enumerate(weight.double().numpy()):
        _, seed, e, codes = naive(row, config, matrices)
        found = (encoded.seeds[i], encoded.exponents[i], tuple(encoded.coefficients[i]))
        assert found == (seed, e, codes), i


@pytest.mark.slow
@pytest.mark.parametrize("config", [SEEDLM_4BIT, SEEDLM_3BIT, replace(SEEDLM_4BIT, exponent_rule="search")])
def test_the_pruned_search_is_the_exhaustive_one_at_sixteen_bits(config):
    weight = gaussian(6, config.block_size, seed=2)
    encoded = encode(weight, config)
    every = np.arange(1, 65536)
    for i, block in enumerate(weight.double()):
        error, e, codes, _ = seedlm.quantise(block.expand(65535, -1), config, every)
        best = int(error.argmin())
        assert encoded.seeds[i] == best + 1
        assert encoded.exponents[i] == e[best]
        assert encoded.coefficients[i].tolist() == codes[best].tolist()


@given(st.integers(0, 2**32 - 1), st.sampled_from(RULES))
def test_rounding_never_beats_least_squares(seed, rule):
    config = replace(SMALL, exponent_rule=rule)
    blocks = gaussian(255, 8, seed=seed).double()
    seeds = np.arange(1, 256)
    matrices = config.bases.matrices(seeds, 3)
    least = (blocks - (matrices @ (torch.linalg.pinv(matrices) @ blocks[:, :, None]))[:, :, 0]).square().sum(1)
    assert (seedlm.quantise(blocks, config, seeds)[0] >= least * (1 - 1e-9)).all()


def test_of_equal_exponents_the_lowest_is_kept():
    config = replace(SMALL, exponent_rule="search")
    matrix = config.bases.matrices([77], 3)[0]
    for codes in ([4.0, -2.0, 6.0], [7.0, 2.0, -8.0], [-8.0, 4.0, 0.0]):  # halves, doubles, or neither
        block = (matrix @ torch.tensor(codes, dtype=torch.float64)[:, None]).T
        _, e, q, _ = seedlm.quantise(block, config, np.array([77]))
        shift = 0
        while all(-8 <= c * 2 ** (shift + 1) <= 7 for c in codes):
            shift += 1
        assert e.item() == -shift
        assert q[0].tolist() == [c * 2**shift for c in codes]


def test_the_worked_example_of_the_paper():
    config = SeedLMConfig(4, 2, 3)
    assert (config.bases.integers([4], 2)[0] + 4).tolist() == [[2, 5], [6, 7], [3, 1], [4, 2]]
    assert decode(one_block(config, 4, 0, [1, 0])).tolist() == [np.float32(x / 3) for x in (-2, 2, -1, 0)]
    assert decode(one_block(config, 4, -2, [0, -3])).tolist() == [np.float32(-0.75 * x / 3) for x in (1, 3, -3, -2)]


def test_a_word_is_seed_exponent_and_coefficients_from_the_low_bit_up():
    encoded = one_block(SEEDLM_4BIT, 0xBEEF, -8, [7, -1, 3])
    assert encoded.words.tolist() == [0x3F78BEEF]
    wide = one_block(SEEDLM_3BIT, 1, 7, [-8, 0, 1, 2])
    assert wide.words.tolist() == [0x210870001]
    assert (SEEDLM_4BIT.word_bits, SEEDLM_3BIT.word_bits) == (32, 36)


@pytest.mark.parametrize("config", [SMALL, SEEDLM_3BIT, replace(SMALL, exponent_rule="search", prescale=True)])
def test_decoding_is_one_division_and_one_cast_of_integers(config):
    weight = gaussian(9, 37)
    weight[3] = 0
    encoded = encode(weight, config)
    found = decode(encoded)
    assert found.dtype == torch.float32
    assert np.array_equal(found.numpy(), decode_seedlm(encoded))


@pytest.mark.parametrize(
    ("rule", "peak", "exponent"),
    [
        ("range", 7.5, 0), ("range", 7.500001, 1), ("range", 15.0, 1), ("range", 3.75, -1), ("range", 1e-9, -8),
        ("range", 1e9, 7), ("printed", 8.0, 3), ("printed", 7.999, 2), ("printed", 0.25, -2), ("printed", 1e-9, -8),
    ],
)  # fmt: skip
def test_exponents_are_exact_at_powers_of_two_and_limited_to_four_bits(rule, peak, exponent):
    free = seedlm._exponents(torch.tensor([peak, 0.0], dtype=torch.float64), rule)
    assert free.clamp(-8, 7).tolist() == [exponent, -8]
    assert (free[0] < -8) == (peak == 1e-9)


def test_the_printed_rule_leaves_codes_up_to_two_and_the_range_rule_uses_all():
    weight = gaussian(400, 8, seed=3)
    assert np.abs(encode(weight, replace(SMALL, exponent_rule="printed")).coefficients).max() == 2
    assert np.unique(encode(weight, SMALL).coefficients).size >= 15


def test_a_zero_block_has_seed_one_the_least_exponent_and_zeros():
    for config in (SMALL, replace(SMALL, prescale=True), replace(SMALL, exponent_rule="search")):
        for weight in (torch.zeros(16), torch.cat([torch.zeros(8), gaussian(8)])):
            encoded = encode(weight, config)
            assert encoded.seeds[0] == 1
            assert encoded.exponents[0] == -8
            assert not encoded.coefficients[0].any()
            assert not decode(encoded)[:8].any()


def test_small_weights_fall_below_the_least_exponent_and_a_prescale_lifts_them():
    weight = gaussian(300, 8, seed=4, scale=0.01)
    plain, lifted = encode(weight, SMALL), encode(weight, replace(SMALL, prescale=True))
    assert plain.below_floor > 0.1 * 300
    assert plain.floor_share > 0.7
    assert lifted.below_floor == lifted.floor_share == 0
    assert relative_error(lifted, weight) < relative_error(plain, weight)
    assert lifted.shift == -6  # 2^-7 <= 0.01 < 2^-6


def test_scaling_keeps_the_codes_only_with_a_prescale():
    weight = gaussian(100, 8, seed=5)
    for power in (-20, -3, 9, 40):
        scaled = weight * 2.0**power
        one, other = (encode(w, replace(SMALL, prescale=True)) for w in (weight, scaled))
        assert np.array_equal(one.words, other.words)
        assert other.shift == one.shift + power
        assert torch.equal(decode(one) * 2.0**power, decode(other))
    plain = encode(weight, SMALL)
    assert not np.array_equal(plain.coefficients, encode(weight / 8, SMALL).coefficients)
    assert relative_error(encode(weight * 2.0**40, SMALL), weight * 2.0**40) > 0.9


def test_a_mirrored_block_has_other_codes_if_searched_exponents_clip_because_codes_reach_further_down_than_up():
    weight = gaussian(400, 8, seed=6)
    for rule, mirrored in (("range", True), ("printed", True), ("search", False)):
        one, other = (encode(w, replace(SMALL, exponent_rule=rule)) for w in (weight, -weight))
        assert np.array_equal(one.coefficients, -other.coefficients) == mirrored
        assert (one.coefficients == LOWEST).any() != mirrored


def test_numerators_fit_21_bits():
    for seed in (1, 32768, 65535):
        for codes in ([-8, -8, -8], [7, -8, 7]):
            num = seedlm.numerators(one_block(SEEDLM_4BIT, seed, 0, codes))
            assert num.abs().max() <= (2**15 - 1) * 8 * 3 < 2**20
            assert torch.equal(num, num.round())


def test_bits_are_those_of_the_words_over_weights_without_padding():
    assert encode(gaussian(16), SEEDLM_4BIT).bits_per_weight() == 4
    assert encode(gaussian(24), SEEDLM_3BIT).bits_per_weight() == 3
    ragged = encode(gaussian(9), SMALL)
    assert ragged.bits_per_weight() == 2 * 24 / 9
    assert ragged.payload_bytes() == 6
    assert encode(gaussian(9), replace(SMALL, prescale=True)).payload_bytes() == 7


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (SEEDLM_4BIT, 0.122),
        (SEEDLM_3BIT, 0.225),
        (replace(SEEDLM_4BIT, exponent_rule="printed"), 0.191),
        (replace(SEEDLM_3BIT, exponent_rule="printed"), 0.303),
        (replace(SEEDLM_4BIT, exponent_rule="search"), 0.120),
    ],
)
def test_gaussian_weights_reach_the_errors_measured_before(config, error):
    weight = gaussian(1024, 12, seed=7)
    encoded = encode(weight, config)
    assert relative_error(encoded, weight) == pytest.approx(error, rel=0.03)
    assert relative_error(encoded, weight) ** 2 > rate_distortion_bound(encoded.bits_per_weight())
    assert encoded.below_floor < 0.04 * len(encoded.seeds)


def test_progress_grows_to_one():
    seen = []
    encode(gaussian(300, 8), replace(SMALL, register_bits=16), progress=seen.append)
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == 1


@pytest.mark.parametrize(
    "wrong",
    [{"block_size": 0}, {"rank": 0}, {"rank": 9}, {"register_bits": 1}, {"exponent_rule": "best"}, {"prescale": 1}],
)
def test_a_configuration_out_of_range_is_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        SeedLMConfig(**asdict(SMALL) | wrong)


def test_a_path_is_refused():
    with pytest.raises(InputError, match="path"):
        encode(gaussian(16), SMALL, path=encode_path(gaussian(16)))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1e-170, 1e160, 1e300])
@pytest.mark.parametrize("prescale", [False, True])
def test_blocks_whose_squares_leave_float64_neither_fail_nor_change_their_neighbours(rule, scale, prescale):
    config = replace(SMALL, exponent_rule=rule)
    normal, extreme = gaussian(4, 8, seed=8).double(), gaussian(3, 8, seed=9).double() * scale * 50
    alone = encode(extreme, replace(config, prescale=prescale))
    assert (alone.seeds == 1).all() or scale > 1  # all seeds give the same error, that of zeros
    mixed, plain = encode(torch.cat([extreme, normal]), config), encode(normal, config)
    assert np.array_equal(mixed.words[3:], plain.words)
    assert (mixed.coefficients[:3] == 0).all() == (scale < 1)


@given(st.integers(-900, 900), st.sampled_from(RULES))
def test_errors_relative_to_a_block_depend_on_its_scale_through_the_exponent_alone(power, rule):
    config = replace(SMALL, exponent_rule=rule)
    block, seeds = gaussian(1, 8, seed=10, scale=1.0).double(), np.array([5])
    scaled, found = seedlm._normalised(block * 2.0**power)
    again, zero = seedlm._normalised(block)
    assert torch.equal(scaled, again)
    assert (found - zero).item() == power
    free = seedlm.quantise(block, config, seeds)[3]
    assert seedlm.quantise(block * 2.0**power, config, seeds)[3] == free + power


def test_a_block_without_a_candidate_is_refused_and_not_given_the_last_seed(monkeypatch):
    original = seedlm._quantise
    monkeypatch.setattr(seedlm, "_quantise", lambda *a: (original(*a)[0] * torch.nan, *original(*a)[1:]))
    with pytest.raises(InputError, match="no seed"):
        encode(gaussian(2, 8), SMALL)
