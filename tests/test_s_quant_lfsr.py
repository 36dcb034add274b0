"""Registers: the definition, its period, the fast paths equal to it, jumps, and the map to matrix entries."""

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import max_len_seq

from icml26.errors import InputError
from icml26.s_quant import gf2, lfsr
from icml26.s_quant.lfsr import TAPS, Register, basis_integers, bits, cycle, equivalent, jump, phase, states, windows
from icml26.s_quant.register import FORMS, states_reference, step, step_reference

# Width: equivalent Galois mask (S-Quant's own at every width but 16) and characteristic polynomial.
TABLE = {
    2: (0x3, 0x7),
    3: (0x6, 0xB),
    4: (0xC, 0x13),
    5: (0x14, 0x25),
    6: (0x30, 0x43),
    7: (0x60, 0x83),
    8: (0xB8, 0x11D),
    9: (0x110, 0x211),
    10: (0x240, 0x409),
    11: (0x500, 0x805),
    12: (0xE08, 0x1107),
    13: (0x1C80, 0x2027),
    14: (0x3802, 0x5007),
    15: (0x6000, 0x8003),
    16: (0xD008, 0x1100B),
    17: (0x12000, 0x20009),
    18: (0x20400, 0x40081),
    19: (0x72000, 0x80027),
    20: (0x90000, 0x100009),
    21: (0x140000, 0x200005),
    22: (0x300000, 0x400003),
    23: (0x420000, 0x800021),
    24: (0xE10000, 0x1000087),
}
ALL = [Register(width, form) for width in TAPS for form in FORMS] + [Register.s_quant(16)]
SMALL = [register for register in ALL if register.width <= 12]


def unpacked(register, seed, n):
    return np.unpackbits(bits(register, seed, n), bitorder="little")[:n]


@st.composite
def registers(draw, maximal=False):
    width = draw(st.integers(2, 24))
    form = draw(st.sampled_from(FORMS))
    if maximal:
        return Register(width, form)
    others = draw(st.sets(st.integers(1, width - 1)))
    return Register(width, form, (0, *others))


@st.composite
def register_and_seed(draw, maximal=False):
    register = draw(registers(maximal))
    return register, draw(st.integers(1, register.period))


@pytest.mark.parametrize("width", TABLE)
def test_taps_masks_and_polynomials_are_those_of_the_papers(width):
    register = Register(width)
    assert (register.mask, register.polynomial) == TABLE[width]
    assert Register.from_mask(width, register.mask) == register


def test_s_quant_departs_from_seedlm_at_sixteen_bits_alone():
    assert Register.s_quant(16).mask == 0xB400
    assert all(Register.s_quant(width).taps == Register.seedlm(width).taps for width in TAPS if width != 16)


@pytest.mark.parametrize("register", [*ALL[::2], Register.s_quant(16)], ids=str)
def test_every_register_of_the_papers_has_a_primitive_polynomial(register):
    assert register.is_maximal
    assert galois.Poly.Int(register.polynomial).is_primitive()


@pytest.mark.parametrize("width", range(2, 12))
def test_there_are_phi_of_the_period_over_the_width_primitive_polynomials(width):
    found = sum(gf2.is_primitive(1 << width | low) for low in range(1 << width))
    assert found == galois.euler_phi(2**width - 1) // width


@pytest.mark.parametrize("width", range(2, 9))
@pytest.mark.parametrize("form", FORMS)
def test_a_polynomial_is_primitive_exactly_when_the_walk_from_one_visits_every_state(width, form):
    for mask in range(1 << (width - 1), 1 << width):
        register = Register.from_mask(width, mask, form)
        state, visited = step_reference(1, register), 1
        while state != 1:
            state, visited = step_reference(state, register), visited + 1
        assert (visited == register.period) == register.is_maximal


@pytest.mark.parametrize("register", [r for r in ALL if r.width <= 16], ids=str)
def test_the_cycle_table_is_the_bit_by_bit_walk(register):
    assert cycle(register).tolist() == states_reference(register, 1, register.period)


@pytest.mark.parametrize("register", [r for r in ALL if r.width > 16], ids=str)
def test_the_cycle_table_of_a_wide_register_visits_every_state_by_single_steps(register):
    table = cycle.__wrapped__(register)  # not kept: these tables are large
    assert table.size == register.period
    assert np.array_equal(step(register, table), np.roll(table, -1))
    visited = np.zeros(register.period + 1, dtype=bool)
    visited[table] = True
    assert visited[1:].all()


@given(register_and_seed())
def test_the_vectorised_step_is_the_reference_step(case):
    register, seed = case
    assert step(register, np.array([seed], dtype=np.uint32)).tolist() == [step_reference(seed, register)]


@given(register_and_seed(), st.integers(0, 100))
def test_states_are_the_reference_walk_for_any_taps(case, n):
    register, seed = case
    expected = states_reference(register, seed, n)
    assert states(register, seed, n).tolist() == expected
    assert states(register, [[seed, seed]], n).tolist() == [[expected, expected]]


@pytest.mark.parametrize("register", [Register(4), Register(8, "fibonacci"), Register.s_quant(16)], ids=str)
def test_the_table_and_the_stepping_path_give_the_same_states(register, monkeypatch):
    seeds = np.arange(1, register.period + 1, dtype=np.uint32)[:500]
    table = states(register, seeds, 40)
    monkeypatch.setattr(lfsr, "_TABLE_WIDTH", 0)
    assert np.array_equal(states(register, seeds, 40), table)


@given(register_and_seed(), st.integers(0, 3000), st.sampled_from([1, 4, lfsr._CHUNK]))
def test_the_packed_stream_is_the_low_bit_of_the_reference_walk(case, n, chunk):
    register, seed = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lfsr, "_CHUNK", chunk)
        packed = bits(register, seed, n)
    assert packed.size == -(-n // 8)
    stream = np.unpackbits(packed, bitorder="little")
    assert stream[:n].tolist() == [state & 1 for state in states_reference(register, seed, n)]
    assert not stream[n:].any()


@pytest.mark.parametrize("register", [r for r in ALL if r.width in (2, 13, 16)], ids=str)
def test_a_long_packed_stream_repeats_the_cycle(register):
    n = 5_000_000
    low = (np.roll(cycle(register), -5) & 1).astype(np.uint8)
    assert np.array_equal(unpacked(register, int(cycle(register)[5 % register.period]), n), np.resize(low, n))


@pytest.mark.parametrize("register", SMALL[::2], ids=str)
def test_fibonacci_states_are_windows_of_the_stream(register):
    stream = unpacked(register, 1, register.period + register.width).astype(int)
    rows = np.lib.stride_tricks.sliding_window_view(stream, register.width)[: register.period]
    assert np.array_equal(rows @ (1 << np.arange(register.width)), cycle(register))


@given(register_and_seed())
def test_both_forms_put_out_the_same_bits_from_mapped_seeds(case):
    register, seed = case
    other, mapped = equivalent(register, seed)
    assert other.form != register.form
    assert np.array_equal(bits(other, int(mapped), 200), bits(register, seed, 200))
    back, again = equivalent(other, mapped)
    assert (back, int(again)) == (register, seed)


@pytest.mark.parametrize("width", range(3, 13))
def test_shifting_the_polynomial_itself_into_the_mask_reverses_time(width):
    register = Register(width)
    reverse = Register.from_mask(width, register.polynomial >> 1)
    stream = unpacked(reverse, 1, 3 * register.period)[::-1]
    parity = np.bitwise_xor.reduce([stream[tap : tap - width] for tap in register.taps])
    assert np.array_equal(parity, stream[width:])
    assert reverse.mask != register.mask


@given(register_and_seed(maximal=True), st.integers(-60, 60))
def test_a_jump_is_that_many_steps_and_back(case, n):
    register, seed = case
    there = states_reference(register, seed, abs(n) + 1)[-1]
    start, end = (seed, there) if n >= 0 else (there, seed)
    assert int(jump(register, start, n)) == end


@given(register_and_seed(maximal=True), st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_jumps_add_up_and_the_period_is_the_identity(case, a, b):
    register, seed = case
    assert int(jump(register, jump(register, seed, a), b)) == int(jump(register, seed, a + b))
    assert int(jump(register, seed, register.period)) == seed
    assert int(jump(register, seed, register.period - 1)) == int(jump(register, seed, -1))


@pytest.mark.parametrize("register", SMALL, ids=str)
def test_a_jump_moves_the_phase(register):
    seeds = np.arange(1, register.period + 1, dtype=np.uint32)
    moved = phase(register)[jump(register, seeds, 1000)]
    assert np.array_equal(moved, (phase(register)[seeds] + 1000) % register.period)


@given(st.lists(st.integers(1, 2**12 - 1), min_size=12, max_size=12), st.integers(0, 2**12 - 1), st.integers(0, 40))
def test_powers_of_a_linear_map_are_repeated_application(columns, vector, exponent):
    expected = np.array(vector, dtype=np.uint32)
    for _ in range(exponent):
        expected = gf2.apply(tuple(columns), expected)
    assert gf2.apply(gf2.power(tuple(columns), exponent), np.array(vector, dtype=np.uint32)) == expected


@pytest.mark.parametrize("register", SMALL, ids=str)
def test_the_phase_inverts_the_cycle_and_zero_has_none(register):
    assert np.array_equal(phase(register)[cycle(register)], np.arange(register.period))
    with pytest.raises(IndexError):
        cycle(register)[phase(register)[0]]


@pytest.mark.parametrize("n", [1, 3, 7, 20])
def test_windows_wrap_around_the_cycle_even_beyond_one_period(n):
    register = Register(3)
    assert windows(register, n).tolist() == [states_reference(register, int(seed), n) for seed in cycle(register)]


def test_cached_tables_cannot_be_overwritten():
    for table in (cycle(Register(8)), phase(Register(8)), windows(Register(8), 2)):
        assert not table.flags.writeable


@given(register_and_seed(maximal=True))
@settings(max_examples=30)
def test_scipy_and_galois_give_the_same_stream(case):
    register, seed = case
    width, n = register.width, 100
    ours = unpacked(register, seed, n)
    window = [seed >> i & 1 for i in range(width)]
    reverse = galois.Poly.Int(register.polynomial).reverse()
    theirs = (galois.FLFSR if register.form == "fibonacci" else galois.GLFSR)(reverse, state=window[::-1])
    assert np.array_equal(np.asarray(theirs.step(n)), ours)
    if register.form == "fibonacci":
        assert np.array_equal(max_len_seq(width, state=window, length=n, taps=register.taps[1:])[0], ours)


def test_golden_vectors_of_s_quant():
    register = Register.s_quant(4)
    assert register.mask == 0xC
    assert states(register, 1, 5).tolist() == [1, 12, 6, 3, 13]
    assert basis_integers(register, 1, 2, 2).tolist() == [[-7, -2], [4, -5]]


def test_golden_vector_of_seedlms_figure_four():
    found = basis_integers(Register.seedlm(3), 4, 4, 2, layout="row-major", first="successor")
    assert (found + 4).tolist() == [[2, 5], [6, 7], [3, 1], [4, 2]]


@given(register_and_seed(), st.integers(1, 6), st.integers(1, 6))
def test_each_entry_is_the_state_that_its_layout_says(case, rows, columns):
    register, seed = case
    z = states_reference(register, seed, rows * columns + 1)
    for first, shift in (("seed", 0), ("successor", 1)):
        by_row = basis_integers(register, [seed], rows, columns, layout="row-major", first=first)
        by_column = basis_integers(register, [seed], rows, columns, layout="columns", first=first)
        assert by_row.dtype == by_column.dtype == np.int32
        for r in range(rows):
            for c in range(columns):
                assert by_row[0, r, c] == z[r * columns + c + shift] - register.half
                assert by_column[0, r, c] == z[c * rows + r + shift] - register.half


@pytest.mark.parametrize("register", SMALL, ids=str)
def test_entries_reach_both_ends_of_the_range_and_no_further(register):
    seeds = np.arange(1, register.period + 1, dtype=np.uint32)
    found = basis_integers(register, seeds, 1, 1)
    assert (found.min(), found.max()) == (1 - register.half, register.half - 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: states(Register(8), 0, 3), "seeds contain 0"),
        (lambda: states(Register(8), [3, 256], 3), "seeds contain 256.*1 to 255"),
        (lambda: states(Register(8), -1, 3), "seeds contain -1"),
        (lambda: states(Register(8), 1.0, 3), "float64"),
        (lambda: states(Register(8), True, 3), "bool"),
        (lambda: states(Register(8), 1, -1), "n -1"),
        (lambda: jump(Register(8), [1, 0], 3), "seeds contain 0"),
        (lambda: bits(Register(8), 0, 3), "seeds contain 0"),
        (lambda: bits(Register(8), 1, -3), "n -3"),
        (lambda: equivalent(Register(8), 0), "seeds contain 0"),
        (lambda: basis_integers(Register(8), 0, 2, 2), "seeds contain 0"),
        (lambda: basis_integers(Register(8), 1, 2, 2, layout="rows"), "layout 'rows'"),
        (lambda: basis_integers(Register(8), 1, 2, 2, first="next"), "first 'next'"),
        (lambda: step_reference(0, Register(8)), "seed 0"),
        (lambda: states_reference(Register(8), 256, 1), "seed 256"),
        (lambda: windows(Register(8), 0), "n 0"),
        (lambda: Register(25), "width 25"),
        (lambda: Register(True), "width True"),
        (lambda: Register(8, "galois ring"), "form 'galois ring'"),
        (lambda: Register(8, taps=(1, 2)), "include bit 0"),
        (lambda: Register(8, taps=(0, 8)), "bits 0 to 7"),
        (lambda: Register(8, taps=(0, 1, 1)), "distinct"),
        (lambda: Register.from_mask(8, 0x3F), "mask 0x3f"),
        (lambda: Register.from_mask(8, 0x1B8), "mask 0x1b8"),
        (lambda: gf2.is_primitive(3), "degree 1"),
        (lambda: gf2.power((1,), -1), "exponent -1"),
    ],
)
def test_wrong_input_is_refused_with_a_remedy(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("call", [cycle, phase, lambda r: windows(r, 2), lambda r: jump(r, 1, 2)])
def test_a_register_of_several_cycles_is_refused_where_one_cycle_is_meant(call):
    register = Register(4, taps=(0, 1, 2, 3))
    assert not register.is_maximal
    with pytest.raises(InputError, match="more than one cycle"):
        call(register)
