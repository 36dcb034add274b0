"""Speed-ups of the accelerator: simulated against rates, at equal area, with overhead, and with their intervals."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from icml26.errors import InputError
from icml26.s_quant import overhead, roofline, workloads
from icml26.s_quant.asic import Config, Decoder, Design, Gemv, simulate
from icml26.s_quant.asic_study import enough_lanes, equal_area, speedup, speedup_interval, step_clocks, sweep
from icml26.s_quant.config import PAPER_4BIT, SEEDLM_3BIT, SQuantConfig

LARGE = [Gemv(4096, 4096)]
S_QUANT = Design("S-Quant, Eq. 13", Fraction("3.75"), Decoder.of(PAPER_4BIT), (0, 0, 0, 0, 0, 3, 1))  # mean k 5.25
S_QUANT_COUNTED = replace(S_QUANT, bits=Fraction(4))
SEEDLM, FP16 = Design.seedlm(), Design.fp16()
COUNTS = np.random.default_rng(0).integers(3, 9, 64 * PAPER_4BIT.group_size)


def test_few_multipliers_end_the_speed_up_at_batch_one_and_many_at_sixteen():
    few, many = Config(multipliers=128), Config(multipliers=2048)
    batch = np.array([1, 2, 4, 8, 16, 32, 64, 128])
    assert roofline.roofline_speedup(few, SEEDLM, batch=batch) == pytest.approx(np.maximum(4 / np.minimum(batch, 4), 1))
    assert roofline.roofline_speedup(many, SEEDLM, batch=batch).tolist() == [4, 4, 4, 4, 4, 2, 1, 1]
    assert [roofline.compute_bound_batch(few, design) for design in (FP16, SEEDLM)] == [4, 1]
    assert [roofline.compute_bound_batch(many, design) for design in (FP16, SEEDLM)] == [64, 16]


@pytest.mark.parametrize(
    "design", [SEEDLM, S_QUANT, Design.rounded(), Design.seedlm(SEEDLM_3BIT)], ids=lambda d: d.name
)
@pytest.mark.parametrize("initiation", ["serial", "overlapped", "column-parallel", "leap-forward"])
def test_simulated_clocks_are_the_rooflines_and_a_little_more(design, initiation):
    # 12 divides 4092, but not 4096
    gemv = Gemv(4096, 4096 - 4096 % (design.decoder.block_size if design.decoder else 1))
    for batch, lanes in ((1, 1024), (1, 64), (8, 1024)):
        config = Config(initiation=initiation, batch=batch, lanes=lanes, tile_weights=12 * 4096)
        config = config.for_design(design)
        least = gemv.weights * roofline.clocks_per_weight(config, design)
        found = simulate(gemv, config, design).clocks
        slack = 1.01 if len(set(design.histogram)) < 3 else 1.2  # lanes of differing bases wait for each other
        assert least * 0.999 <= found <= least * slack + found / 100


def test_the_simulated_sweep_over_the_batch_follows_the_roofline():
    config, batch = Config(multipliers=512), [1, 2, 4, 8, 16, 32]
    found = sweep("batch", batch, LARGE, config, SEEDLM)
    assert found == pytest.approx(roofline.roofline_speedup(config, SEEDLM, batch=batch), rel=0.01)
    assert found[-1] < 1.01


def test_the_sweep_over_the_lanes_rises_to_the_ratio_of_bits_where_lanes_are_enough():
    config = Config(multipliers=1024)
    enough = enough_lanes(config, SEEDLM)
    found = sweep("lanes", [enough // 8, enough // 2, enough, 4 * enough], LARGE, config, SEEDLM)
    assert found == pytest.approx([0.5, 2, 4, 4], rel=0.01)
    assert roofline.roofline_speedup(config, SEEDLM, lanes=enough // 8) == pytest.approx(0.5)


@pytest.mark.parametrize("initiation", ["serial", "overlapped", "column-parallel", "leap-forward"])
def test_enough_lanes_are_the_least_with_which_no_draw_outlasts_a_load(initiation):
    config = Config(initiation=initiation, decoder=S_QUANT.decoder, tile_weights=16384)
    enough = enough_lanes(config, S_QUANT)
    worst = np.full(2 * 16384 // 16, 6)

    def decode_and_load(lanes):
        first = simulate(Gemv(8, 4096), replace(config, lanes=lanes), S_QUANT, counts=worst).schedule[0]
        return first["decode_end"] - first["compute_start"], first["load_end"] - first["load_start"]

    assert np.subtract(*decode_and_load(enough)) <= 0 < np.subtract(*decode_and_load(enough - 1))


def test_a_tile_that_loads_faster_than_one_block_decodes_has_never_enough_lanes():
    with pytest.raises(InputError, match=r"tile_weights 160 load in 2 clocks, a block takes 112: use more"):
        enough_lanes(Config(initiation="serial", tile_weights=160), S_QUANT)


def test_bandwidth_alone_gives_sixteen_over_the_stored_bits():
    rates = [16 / bits for bits in (4, 3.8, 3.8 + 4 / 16, 2.7)]
    assert [round(rate, 2) for rate in rates] == [4.0, 4.21, 3.95, 5.93]
    wide = Config(multipliers=4096, lanes=1024)
    for design in (SEEDLM, S_QUANT, S_QUANT_COUNTED, Design.rounded()):
        assert speedup(LARGE, wide, design) == pytest.approx(16 / float(design.bits), rel=0.01)


def test_against_four_bit_integers_bandwidth_gives_a_tenth_at_most():
    wide = Config(multipliers=4096, lanes=1024, tile_weights=1 << 17)  # large tiles: no rounding to speak of
    plain, exact = Design.rounded(), Design.rounded(zero_point=True)
    assert speedup(LARGE, wide, S_QUANT_COUNTED, plain) == pytest.approx(1.03, abs=0.005)
    assert speedup(LARGE, wide, S_QUANT, exact) == pytest.approx(1.11, abs=0.005)


def test_a_shared_budget_of_multipliers_breaks_even_late_and_is_slower_below():
    def gain(design, budget):
        rates = [float(roofline.shared_budget_rate(d, budget)) for d in (design, FP16)]
        return rates[0] / rates[1]

    assert gain(S_QUANT, 128) == pytest.approx(0.64)
    assert gain(S_QUANT, 200) == pytest.approx(1)
    assert roofline.budget_for(S_QUANT, roofline.port_rate(FP16)) == pytest.approx(200)
    for design, full, top in ((S_QUANT, 853, 4.27), (S_QUANT_COUNTED, 800, 4.0)):
        assert roofline.budget_for(design, roofline.port_rate(design)) == pytest.approx(full, abs=0.5)
        assert gain(design, full + 1) == pytest.approx(top, abs=0.005)
        assert gain(design, full - 100) < top - 0.3
    assert roofline.port_rate(replace(S_QUANT, bits=Fraction("3.78"))) * 5.25 == pytest.approx(710, abs=2)


def test_the_simulated_machine_at_equal_area_is_no_faster_than_the_shared_budget_and_not_much_slower():
    fixed = replace(S_QUANT, histogram=(0, 0, 0, 0, 0, 1))  # equal blocks: lanes need not wait
    for design in (S_QUANT, fixed, SEEDLM, Design.rounded(), FP16):
        for budget in (64, 128, 200, 853, 2000):
            machine = equal_area(Config(tile_weights=1 << 17), design, budget)
            used = machine.multipliers + (machine.lanes * machine.lane_multipliers if design.decoder else 0)
            assert used == budget
            rate = simulate(LARGE[0], machine, design).summary()["weights_per_clock"]
            bound = float(roofline.shared_budget_rate(design, budget))
            assert rate <= bound * (1.001 if design is not S_QUANT else 1.01)
            assert rate >= bound * (0.9 if design is not S_QUANT else 0.8)


def test_one_overhead_fitted_to_the_smallest_product_predicts_the_printed_series():
    printed = list(overhead.SEEDLM_PRINTED.values())
    found = overhead.overhead_speedup([512, 1024, 2048], overhead.fit_overhead(3.67, 512))
    assert found.round(3).tolist() == [3.67, 3.91, 3.977]
    assert np.abs(found - printed).max() < 0.01
    fits = [overhead.fit_overhead(speed, size) for size, speed in overhead.SEEDLM_PRINTED.items()]
    assert np.round(fits).tolist() == [253, 224, 220]
    assert [round(overhead.fit_overhead(speed, 512)) for speed in (3.675, 3.665)] == [249, 257]


def test_the_prediction_and_its_interval_are_those_of_the_rounding_of_the_fitted_number():
    value, low, high = overhead.predicted_speedup()
    assert low < value < high
    assert value == pytest.approx(3.977, abs=0.0005)
    assert [low, high] == pytest.approx([overhead.overhead_speedup(2048, o) for o in (257.4, 248.7)], abs=2e-5)
    assert overhead.predicted_speedup(512).value == pytest.approx(3.67)
    assert overhead.predicted_speedup(512).interval == pytest.approx((3.665, 3.675))


def test_the_overhead_is_the_simulators_latency_and_last_tile():
    config = Config(multipliers=512, lanes=512, latency=125)  # the last of 65536 weights take 128 clocks more
    for size, printed in overhead.SEEDLM_PRINTED.items():
        assert speedup([Gemv(size, size)], config, SEEDLM) == pytest.approx(printed, abs=0.011)


def test_what_stays_uncompressed_caps_the_decoding_step():
    assert float(roofline.streamed_speedup("llama-3-8b", 3.8)) == pytest.approx(3.44, abs=0.005)
    assert float(roofline.streamed_speedup("llama-2-7b", 3.8)) == pytest.approx(3.96, abs=0.005)
    assert float(roofline.streamed_speedup("llama-2-7b", 3.8, tokens=4096)) == pytest.approx(2.8, abs=0.01)
    curve = roofline.streamed_speedup("llama-2-7b", 3.8, tokens=0, head_bits=3.8)
    assert float(curve) == pytest.approx(16 / 3.8)
    assert roofline.streamed_speedup("llama-3-8b", [16, 4, 2]).tolist()[0] == 1


def test_the_models_have_the_weights_they_are_known_for():
    inside = {
        name: sum(g.repeat * g.weights for g in workloads.decode_step(name, head=False)) for name in workloads.MODELS
    }
    assert inside["llama-3-8b"] == pytest.approx(6.98e9, rel=1e-3)
    assert inside["llama-2-7b"] == pytest.approx(6.476e9, rel=1e-3)
    assert workloads.decode_step("llama-3-8b")[-1].weights == pytest.approx(0.525e9, rel=2e-3)
    assert not workloads.decode_step("llama-3-8b")[-1].compressed
    assert workloads.cache_bytes("llama-2-7b", 4096) == 2 << 30


def test_a_simulated_decoding_step_follows_amdahls_law():
    wide = Config(multipliers=1024, lanes=512)
    for name in workloads.MODELS:
        found = speedup(workloads.decode_step(name), wide, SEEDLM)
        assert found == pytest.approx(float(roofline.streamed_speedup(name, 4.0)), rel=0.01)


def test_a_step_is_the_sum_of_its_products():
    gemvs = [Gemv(64, 256, repeat=3), Gemv(32, 128, compressed=False)]
    config = Config(tile_weights=1024).for_design(SEEDLM)
    parts = 3 * simulate(gemvs[0], config, SEEDLM).clocks + simulate(gemvs[1], config, FP16).clocks
    assert step_clocks(gemvs, config, SEEDLM) == parts


@pytest.mark.parametrize("count_bits", [None, 0])
def test_the_intervals_value_is_the_simulated_speed_up_of_the_same_counts(count_bits):
    rng, config = np.random.default_rng(1), Config(multipliers=600, lanes=400)
    gemvs = [Gemv(100, 4096, repeat=2), Gemv(16, 16), Gemv(100, 300, compressed=False), Gemv(33, 16 * 1000)]
    groups = COUNTS.reshape(-1, PAPER_4BIT.group_size)
    for _ in range(5):
        counts = groups[rng.integers(len(groups), size=len(groups))].reshape(-1)
        found = speedup_interval(gemvs, config, PAPER_4BIT, counts, seed=2, resamples=10, count_bits=count_bits)
        assert found.value == speedup(gemvs, config, Design.s_quant(PAPER_4BIT, counts, count_bits))


def test_the_interval_covers_the_spread_of_resampled_groups():
    config = Config(multipliers=4096, lanes=1024, tile_weights=1 << 17)
    found = speedup_interval(LARGE, config, PAPER_4BIT, COUNTS, seed=3)
    groups, rng = COUNTS.reshape(-1, PAPER_4BIT.group_size), np.random.default_rng(4)
    bits = [
        float(Design.s_quant(PAPER_4BIT, groups[rng.integers(len(groups), size=len(groups))].reshape(-1)).bits)
        for _ in range(2000)
    ]
    low, high = 16 / np.quantile(bits, [0.975, 0.025])
    assert found.low < found.value < found.high
    assert [found.low, found.high] == pytest.approx([low, high], rel=0.004)


def test_a_fixed_number_of_bases_has_an_interval_without_width():
    codec = SQuantConfig(block_size=8, k_min=3, k_max=3, coefficient_bits=4, layout="row-major")
    found = speedup_interval(LARGE, Config(), codec, np.full(64, 3), seed=5, resamples=50)
    assert found.low == found.value == found.high == speedup(LARGE, Config(), Design.s_quant(codec, [3] * 64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: speedup_interval(LARGE, Config(), PAPER_4BIT, COUNTS[:-1], seed=0), "counts hold 511 blocks"),
        (lambda: speedup_interval(LARGE, Config(lanes=64), PAPER_4BIT, COUNTS, seed=0), "lanes 64 .* or more"),
        (lambda: sweep("batches", [1], LARGE, Config(), SEEDLM), "field 'batches'.*batch"),
        (lambda: equal_area(Config(), SEEDLM, 1), "budget 1"),
        (lambda: overhead.fit_overhead(4.01, 512), "speedup 4.01.*at most 4"),
        (lambda: overhead.fit_overhead(1, 512), "speedup 1 "),
        (lambda: overhead.predicted_speedup(fitted_at=500), "fitted_at 500.*512"),
        (lambda: roofline.streamed_speedup("llama-2-7b", [4, 0]), "above 0"),
        (lambda: roofline.streamed_speedup("llama-2-7", 4), "did you mean 'llama-2-7b'"),
        (lambda: roofline.streamed_speedup("llama-2-7b", 4, tokens=-1), "tokens -1"),
    ],
)
def test_wrong_input_is_refused_with_a_remedy(call, message):
    with pytest.raises(InputError, match=message):
        call()
