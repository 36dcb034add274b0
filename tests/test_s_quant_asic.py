"""The accelerator's clocks: the closed form against state machines, its properties, and what it refuses."""

import io
import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.s_quant import asic_events
from icml26.s_quant.asic import Config, Decoder, Design, Gemv, closed_form, draw_counts, simulate
from icml26.s_quant.asic_config import INITIATIONS
from icml26.s_quant.asic_study import step_clocks
from icml26.s_quant.bases import Bases
from icml26.s_quant.config import PAPER_4BIT
from icml26.s_quant.register import Register
from icml26.s_quant.workloads import decode_step

SMALL = {size: Decoder(Bases(Register(4), size), 3, 4) for size in (1, 2, 3, 4)}


def make(pick, constant=False):
    """A small machine and product, whole tiles or not, bound by memory, decoder or array; `pick` draws integers."""
    block = pick(1, 4)
    bits = min(Fraction(pick(1, 120), pick(1, 12)), Fraction(16))
    design = Design("plain", bits)
    if pick(0, 3):
        histogram = [(0, 1), (0, 0, 0, 1), (0, 0, 1), (0, 3, 2, 1), (0, 1, 0, 1)][pick(0, 2 if constant else 4)]
        design = Design("rebuilt", bits, SMALL[block], histogram, tile_bits=5 * pick(0, 1))
    config = Config(
        bytes_per_clock=pick(1, 9),
        multipliers=pick(1, 40),
        lanes=pick(1, 6),
        initiation=INITIATIONS[pick(0, 3)],
        decoder=SMALL[block],
        latency=pick(0, 9),
        tile_weights=block * pick(1, 12),
        batch=pick(1, 4),
    )
    return Gemv(pick(1, 5), block * pick(1, 9)), config, design, pick(0, 1 << 32)


@st.composite
def cases(draw, constant=False):
    return make(lambda low, high: draw(st.integers(low, high)), constant)


def random_cases(number, seed, constant=False):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield make(lambda low, high: int(rng.integers(low, high, endpoint=True)), constant)


def agree(gemv, config, design, seed):
    found = simulate(gemv, config, design, seed=seed)
    s, clocks = found.schedule, asic_events.replay(gemv, config, design, seed=seed)
    assert np.array_equal(s, clocks.schedule), (gemv, config, design, seed)
    assert found.summary() == clocks.summary()
    total = closed_form(s["load_end"] - s["load_start"], s["compute_end"] - s["compute_start"], config.latency)
    assert found.clocks == total
    return found


@settings(max_examples=300)
@given(cases())
def test_the_closed_form_is_the_schedule_of_the_state_machines_to_the_clock(case):
    agree(*case)


def test_so_it_is_in_thousands_of_random_cases_of_every_kind():
    decoders, shapes, bounds = set(), set(), set()
    for gemv, config, design, seed in random_cases(3000, 0):
        found = agree(gemv, config, design, seed)
        s = found.schedule
        decoders.add(sum(n > 0 for n in design.histogram))  # none, one k, several
        shapes.add((min(len(s), 3), bool(gemv.weights % config.tile_weights)))
        bounds.add((found.summary()["memory_bound"] > 0.5, bool((s["decode_end"] > s["multiply_end"]).any())))
    assert decoders >= {0, 1, 2, 3}
    assert len(shapes) == 6
    assert len(bounds) == 4


def test_so_it_is_at_a_realistic_size_too():
    counts = np.random.default_rng(1).integers(2, 13, 512 * 256 // 16)
    for initiation, lanes in (("column-parallel", 128), ("serial", 800)):
        config = Config(lanes=lanes, initiation=initiation, latency=250, tile_weights=16384)
        gemv, design = Gemv(512, 256), Design.s_quant(PAPER_4BIT, counts)
        found = simulate(gemv, config, design, counts=counts)
        assert np.array_equal(found.schedule, asic_events.replay(gemv, config, design, counts=counts).schedule)


def test_a_schedule_by_hand():
    # Three tiles of 8, 8 and 4 weights at 3 bits: 24, 24 and 12 bits, 8 a clock, load in 3, 3 and 2 clocks. Two lanes
    # take 4 clocks for a block of 4, so 4 for every tile, the last one's single block too. One product a clock.
    decoder = Decoder(Bases(Register(4), 4), 2, 4)
    design = Design("by hand", Fraction(3), decoder, (0, 0, 1))
    config = Config(1, multipliers=1, lanes=2, decoder=decoder, latency=10, tile_weights=8)
    found = simulate(Gemv(1, 20), config, design)
    assert found.schedule[["load_start", "load_end"]].tolist() == [(10, 13), (13, 16), (21, 23)]
    columns = ["compute_start", "decode_end", "multiply_end", "compute_end"]
    assert found.schedule[columns].tolist() == [(13, 17, 21, 21), (21, 25, 29, 29), (29, 33, 33, 33)]
    assert found.clocks == 33
    slow = replace(config, initiation="serial", multipliers=8)  # 4 * 2 + 4 clocks a block
    assert simulate(Gemv(1, 20), slow, design).schedule["compute_end"].tolist() == [25, 37, 49]


@given(cases(constant=True))
def test_with_the_same_number_of_bases_everywhere_decoding_takes_whole_rounds(case):
    gemv, config, design, seed = case
    s = simulate(gemv, config, design, seed=seed).schedule
    for row in s if design.decoder else ():
        rounds = math.ceil(math.ceil(row["weights"] / design.decoder.block_size) / config.lanes)
        k = next(k for k, n in enumerate(design.histogram) if n)
        assert row["decode_end"] - row["compute_start"] == rounds * config.interval(k)


@given(cases(constant=True), st.sampled_from(["bytes_per_clock", "multipliers", "lanes"]), st.integers(1, 5))
def test_more_bandwidth_multipliers_or_lanes_never_take_longer_with_constant_intervals(case, field, more):
    gemv, config, design, seed = case
    faster = replace(config, **{field: getattr(config, field) + more})
    assert simulate(gemv, faster, design, seed=seed).clocks <= simulate(gemv, config, design, seed=seed).clocks


def test_one_lane_more_can_take_longer_when_the_numbers_of_bases_differ():
    config = Config(multipliers=64, initiation="overlapped", decoder=SMALL[4], tile_weights=16)
    gemv, design = Gemv(1, 16), Design("mixed", Fraction(1), SMALL[4], (0, 2, 0, 2))
    two, three = (
        simulate(gemv, replace(config, lanes=lanes), design, counts=np.array([3, 1, 1, 3])).clocks for lanes in (2, 3)
    )
    assert three - two == 4 * (3 + 3) - 4 * (3 + 1)


@given(
    st.integers(1, 64),
    st.integers(1, 9),
    st.integers(1, 12),
    st.fractions(Fraction(1, 8), 16, max_denominator=99),
    st.integers(0, 50),
    st.integers(1, 4),
)
def test_no_speed_up_exceeds_the_ratio_of_bits_when_fp16_tiles_fill_whole_words(
    words, rows, mult, bits, latency, batch
):
    beta = 8
    config = Config(beta, mult, latency=latency, tile_weights=words * beta // 2, batch=batch, sram_bytes=1 << 30)
    gemv = Gemv(rows, beta // 2 * 7)  # every tile, the last one too, has 2 w divisible by beta
    before = simulate(gemv, config, Design.fp16()).clocks
    assert before * bits <= 16 * simulate(gemv, config, Design("any", bits)).clocks


def test_without_whole_words_rounding_lets_the_speed_up_exceed_the_ratio_of_bits():
    config = Config(multipliers=1024, tile_weights=409)
    before, after = (simulate(Gemv(50, 409), config, Design("any", Fraction(q))).clocks for q in (16, 5))
    assert (before, after) == (651, 201)
    assert before / after > 16 / 5


def test_the_latency_and_the_first_load_count_once():
    gemv, design = Gemv(100, 64), Design.rounded()
    base = Config(tile_weights=64)
    assert simulate(gemv, replace(base, latency=77), design).clocks == simulate(gemv, base, design).clocks + 77
    one = simulate(Gemv(1, 64), base, design)
    assert one.clocks == math.ceil(64 * 4.125 / 512) + 1


@given(cases())
def test_work_is_conserved_and_utilisation_is_a_share(case):
    gemv, config, design, seed = case
    found = simulate(gemv, config, design, seed=seed)
    s, summary = found.schedule, found.summary()
    assert s["weights"].sum() == gemv.weights
    exact = gemv.weights * design.bits + len(s) * design.tile_bits
    assert 0 <= s["bits"].sum() - exact < len(s), "rounded up by less than a bit a tile"
    if design.decoder:
        counts = draw_counts(gemv, design, seed)
        assert s["lane_clocks"].sum() == sum(config.interval(int(k)) for k in counts)
    assert 0 < summary["lane_balance"] <= 1
    assert all(0 <= summary[f"{unit}_utilisation"] <= 1 for unit in ("port", "array", "lane"))
    assert summary["weights_per_clock"] * summary["clocks"] == pytest.approx(gemv.weights)


def test_utilisation_says_what_binds():
    gemv = Gemv(256, 4096)
    memory = simulate(gemv, Config(multipliers=1024), Design.fp16()).summary()
    assert memory["port_utilisation"] > 0.99
    assert memory["memory_bound"] == 1
    assert memory["lane_utilisation"] == 0
    array = simulate(gemv, Config(batch=64), Design.fp16()).summary()
    assert array["array_utilisation"] > 0.99
    assert array["memory_bound"] == 0
    lanes = Config(initiation="serial", lanes=64).for_design(Design.seedlm())
    lanes = simulate(gemv, lanes, Design.seedlm()).summary()
    assert lanes["lane_utilisation"] > 0.98
    assert lanes["lane_balance"] == 1, "equal blocks in full rounds"


def test_lanes_wait_for_each_other_when_blocks_differ_and_less_so_in_larger_tiles():
    counts = np.random.default_rng(2).integers(2, 13, 4096)
    design = Design.s_quant(PAPER_4BIT, counts)
    balances = [
        simulate(Gemv(256, 4096), Config(lanes=64, initiation="serial", tile_weights=size), design).summary()[
            "lane_balance"
        ]
        for size in (1024, 16384, 262144)
    ]
    assert balances == sorted(balances)
    assert balances[0] < 0.7 < 0.85 < balances[2] < 1


def test_the_schedule_goes_through_csv():
    found = simulate(Gemv(64, 4096), Config(), Design.fp16())
    read = pd.read_csv(io.StringIO(found.table().to_csv()), index_col="tile")
    assert read.equals(found.table())
    assert list(read.columns) == list(found.schedule.dtype.names)


def test_bases_are_drawn_from_the_histogram_and_repeat_with_the_seed():
    design = Design("drawn", Fraction(4), Decoder.of(PAPER_4BIT), (0, 0, 10, 0, 30, 60))
    gemv = Gemv(400, 4096)
    drawn = draw_counts(gemv, design, 3)
    shares = np.bincount(drawn) / drawn.size
    assert drawn.size == gemv.weights // 16
    assert np.abs(shares - np.array(design.histogram) / 100).max() < 0.006
    assert np.array_equal(drawn, draw_counts(gemv, design, 3))
    assert not np.array_equal(drawn, draw_counts(gemv, design, 4))


def test_a_decode_step_of_seven_billion_weights_takes_seconds():
    counts = np.random.default_rng(6).integers(2, 13, 4096)
    design, start = Design.s_quant(PAPER_4BIT, counts), time.perf_counter()
    clocks = step_clocks(decode_step("llama-2-7b"), Config(initiation="serial"), design)
    assert time.perf_counter() - start < 10
    assert clocks > 6.5e9 / 137
