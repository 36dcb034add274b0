"""What the accelerator model is told: bits of designs, widths and intervals of lanes, and what is refused."""

import math
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest

from icml26.errors import InputError
from icml26.s_quant import asic_events
from icml26.s_quant.asic import Config, Decoder, Design, Gemv, needed_sram, simulate
from icml26.s_quant.asic_config import INITIATIONS
from icml26.s_quant.bases import Bases
from icml26.s_quant.codec import encode
from icml26.s_quant.config import OFFICIAL_DEFAULT, PAPER_3BIT, PAPER_4BIT, SEEDLM_3BIT, SEEDLM_4BIT, SQuantConfig
from icml26.s_quant.register import Register
from icml26.s_quant.study import synthetic_weights

SMALL = Decoder(Bases(Register(4), 1), 3, 4)


@pytest.mark.parametrize("config", [OFFICIAL_DEFAULT, SQuantConfig(8, 8, 4, k_min=3, k_max=3, coefficient_bits=4)])
def test_a_designs_bits_are_those_of_the_encoding_counts_and_scales_included(config):
    encoded = encode(synthetic_weights("gaussian", 32 * 16 * 3, seed=5), config)
    design = Design.s_quant(config, encoded.counts)
    assert float(design.bits) == pytest.approx(encoded.bits_per_weight(), rel=1e-15)
    assert float(Design.s_quant(config, encoded.counts, 0).bits) == pytest.approx(encoded.bits_per_weight(counts=False))
    assert design.mean_bases == Fraction(int(encoded.counts.sum()), encoded.counts.size)
    assert design.tile_bits == (32 if config.k_max > config.k_min else 0)


def test_the_other_designs_bits_are_those_of_their_formats():
    assert [float(Design.rounded(zero_point=zero).bits) for zero in (False, True)] == [4.125, 4.15625]
    assert [Design.seedlm(codec).bits for codec in (SEEDLM_4BIT, SEEDLM_3BIT)] == [4, 3]
    assert Design.fp16().stored_bits(100) == 1600
    assert Design("thirds", Fraction(10, 3)).stored_bits(np.int64(10**6)) == 3333334


def test_intervals_and_multipliers_of_a_lane_are_those_of_its_kind():
    block8 = Config(initiation="serial", decoder=Decoder(Bases(Register(8), 8), 8, 8))
    assert block8.interval(3) == 32
    assert 128 * block8.interval(3) // 8 == 512, "lanes for 128 weights a clock"
    config = Config()
    found = {kind: replace(config, initiation=kind) for kind in INITIATIONS}
    assert [c.interval(5) for c in found.values()] == [96, 80, 16, 1]
    assert [c.lane_multipliers for c in found.values()] == [1, 1, 12, 192]


def test_accumulators_are_just_wide_enough():
    widest = SQuantConfig(k_max=16)
    assert Decoder.of(widest).accumulator_bits == 27
    assert Decoder.of(SEEDLM_4BIT).accumulator_bits == 21
    for codec in (widest, SEEDLM_4BIT, OFFICIAL_DEFAULT, PAPER_3BIT):
        decoder = Decoder.of(codec)
        low = -(decoder.bases.register.half - 1) * (1 << (decoder.coefficient_bits - 1)) * decoder.k_max
        limit = 1 << (decoder.accumulator_bits - 1)
        assert -limit <= low < -limit // 2, "the least numerator fits, and would not fit into one bit less"


def test_one_dataclass_holds_all_that_hardware_needs_and_agrees_with_the_codec():
    config = Config(decoder=Decoder.of(PAPER_4BIT))
    held = asdict(config)
    register = held["decoder"]["bases"]["register"]
    assert Register(**register) == PAPER_4BIT.bases.register
    assert config.decoder.bases.register.mask == 0xB400
    assert config.for_design(Design.seedlm()).decoder.bases == SEEDLM_4BIT.bases
    assert config.for_design(Design.fp16()) == config
    assert {config: 1}[Config()] == 1, "hashable"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Config(bytes_per_clock=0), "bytes_per_clock 0.*from 1"),
        (lambda: Config(multipliers=1.5), "multipliers 1.5"),
        (lambda: Config(lanes=True), "lanes True"),
        (lambda: Config(latency=-1), "latency -1"),
        (lambda: Config(tile_weights=0), "tile_weights 0"),
        (lambda: Config(batch=0), "batch 0"),
        (lambda: Config(sram_bytes=0), "sram_bytes 0"),
        (lambda: Config(clock_hz=0), "clock_hz 0 is no frequency"),
        (lambda: Config(clock_hz=math.nan), "clock_hz nan"),
        (lambda: Config(initiation="seriall"), "initiation 'seriall'.*did you mean 'serial'"),
        (lambda: Decoder(PAPER_4BIT.bases, 0, 8), "k_max 0"),
        (lambda: Decoder(PAPER_4BIT.bases, 2, 9), "coefficient_bits 9"),
        (lambda: Design("float", 3.75), "bits 3.75 per weight must be exact.*Fraction"),
        (lambda: Design("none", Fraction(0)), "bits Fraction"),
        (lambda: Design("bare", Fraction(4), None, (0, 1)), "no decoder"),
        (lambda: Design("deep", Fraction(4), SMALL, (0, 0, 0, 0, 1)), "1 to 3 bases"),
        (lambda: Design("zero", Fraction(4), SMALL, (1, 1)), "1 to 3 bases"),
        (lambda: Design("empty", Fraction(4), SMALL, ()), "does not fit"),
        (lambda: Design.rounded(group=0), "group 0"),
        (lambda: Design.s_quant(PAPER_4BIT, []), "size of counts 0"),
        (lambda: Gemv(0, 8), "rows 0"),
        (lambda: Gemv(8, 8, repeat=0), "repeat 0"),
        (lambda: simulate(Gemv(8, 8), Config(), Design.seedlm()), "for_design"),
        (lambda: simulate(Gemv(8, 24), Config(), Design.s_quant(PAPER_4BIT, [4])), "columns 24 is no multiple .* 16"),
        (
            lambda: simulate(Gemv(8, 32), Config(tile_weights=24), Design.s_quant(PAPER_4BIT, [4])),
            "tile_weights 24 is no multiple",
        ),
        (
            lambda: simulate(Gemv(8, 32), Config(), Design.s_quant(PAPER_4BIT, [4]), counts=np.full(15, 4)),
            "counts of shape .*give 16 integers from 1 to 12",
        ),
        (
            lambda: simulate(Gemv(8, 32), Config(), Design.s_quant(PAPER_4BIT, [4]), counts=np.full(16, 13)),
            "from 1 to 12",
        ),
        (lambda: simulate(Gemv(8, 32), Config(), Design.fp16(), counts=np.full(16, 4)), "counts of shape"),
    ],
)
def test_wrong_input_is_refused_with_a_remedy(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_what_does_not_fit_on_the_chip_is_refused_and_the_remedy_works():
    gemv, config = Gemv(64, 4096), Config(batch=3, tile_weights=16384, sram_bytes=90_000)
    needed = 2 * 2 * 16384 + 3 * 2 * 4096
    assert needed_sram(gemv, config, Design.fp16()) == needed
    for run in (simulate, asic_events.replay):
        with pytest.raises(
            InputError, match=f"sram_bytes 90000 cannot hold two tiles .* 3 input .*use {needed} or more"
        ):
            run(gemv, config, Design.fp16())
    assert simulate(gemv, replace(config, sram_bytes=needed), Design.fp16()).clocks
    assert simulate(gemv, config, Design.rounded()).clocks, "two compressed tiles are smaller"
