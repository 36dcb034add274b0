"""Registers beside peers: bits of one stream, and the first states of many seeds, at K = 16.

Each result is compared with the others' of its group. Slow members do less work per call, so that no call lasts much
longer than a millisecond or two and other work on the machine does not cut it up.
"""

import galois
import numpy as np
import pytest
from scipy.signal import max_len_seq

from icml26.s_quant.lfsr import Register, bits, jump, states
from icml26.s_quant.register import states_reference, step

REGISTER = Register.seedlm(16)
SEED = 0xACE1
BITS = 1_000_000
STREAM = "Bits of one stream, SeedLM's 16-bit register"
SEEDS = np.arange(1, 4097, dtype=np.uint32)
STATES = 48  # three basis vectors of sixteen weights
MANY = f"The first {STATES} states of {SEEDS.size:,} seeds, SeedLM's 16-bit register"
JUMP = f"Steps of {SEEDS.size:,} states, SeedLM's 16-bit register"


def loop(seed, n):
    """One bit per turn: the plain Python that a reader would write."""
    state, stream = seed, bytearray(n)
    for i in range(n):
        stream[i] = state & 1
        new = (state ^ state >> 1 ^ state >> 3 ^ state >> 12) & 1
        state = state >> 1 | new << 15
    return np.frombuffer(stream, dtype=np.uint8)


def unpacked(seed, n):
    return np.unpackbits(bits(REGISTER, seed, n), bitorder="little", count=n)


@pytest.fixture(scope="module")
def stream():
    return loop(SEED, BITS)


def test_scipy(measure, stream):
    n = 100_000
    window = np.array([SEED >> i & 1 for i in range(16)], dtype=np.int8)

    def run():
        return max_len_seq(16, state=window, length=n, taps=REGISTER.taps[1:])[0]

    assert np.array_equal(measure(STREAM, "`scipy.signal.max_len_seq`", n, "bit", run, baseline=True), stream[:n])


def test_ours_packed(measure, stream):
    found = measure(STREAM, "`lfsr.bits`, eight bits per byte", BITS, "bit", bits, REGISTER, SEED, BITS)
    assert np.array_equal(np.unpackbits(found, bitorder="little", count=BITS), stream)


def test_ours_unpacked(measure, stream):
    found = measure(STREAM, "`lfsr.bits` and `numpy.unpackbits`, one bit per byte", BITS, "bit", unpacked, SEED, BITS)
    assert np.array_equal(found, stream)


def test_ours_short(measure, stream):
    n = 100_000
    found = measure(STREAM, "the same, as few bits as the baseline's", n, "bit", unpacked, SEED, n)
    assert np.array_equal(found, stream[:n])


def test_ours_long(measure, stream):
    n = 50 * BITS
    found = measure(STREAM, "`lfsr.bits`, a long stream", n, "bit", bits, REGISTER, SEED, n)
    assert np.array_equal(np.unpackbits(found, bitorder="little", count=BITS), stream)


def test_galois(measure, stream):
    n = 20_000
    window = [SEED >> i & 1 for i in reversed(range(16))]
    register = galois.FLFSR(galois.Poly.Int(REGISTER.polynomial).reverse(), state=window)
    assert np.array_equal(np.asarray(register.step(n)), stream[:n])  # and compiles it before it is timed

    def run():
        register.reset()
        return register.step(n)

    assert np.array_equal(np.asarray(measure(STREAM, "`galois.FLFSR.step`", n, "bit", run)), stream[:n])


def test_python_loop(measure, stream):
    n = 5_000
    assert np.array_equal(measure(STREAM, "Python loop over bits", n, "bit", loop, SEED, n), stream[:n])


def stepped(seeds, n):
    found = np.empty((n, seeds.size), dtype=np.uint32)
    for i in range(n):
        found[i], seeds = seeds, step(REGISTER, seeds)
    return found.T


def test_states_by_steps(measure):
    work = SEEDS.size * STATES
    found = measure(MANY, "NumPy, all seeds one step at a time", work, "state", stepped, SEEDS, STATES, baseline=True)
    assert np.array_equal(found, states(REGISTER, SEEDS, STATES))


def test_states_by_table(measure):
    states(REGISTER, SEEDS, STATES)  # the cycle's table is built once per process
    work = SEEDS.size * STATES
    found = measure(MANY, "`lfsr.states`, windows of the cycle", work, "state", states, REGISTER, SEEDS, STATES)
    assert found[:, 1].tolist() == step(REGISTER, SEEDS).tolist()


def test_states_by_loop(measure):
    few = SEEDS[:64]

    def run():
        return [states_reference(REGISTER, seed, STATES) for seed in few.tolist()]

    found = measure(MANY, "Python reference, 64 of the seeds", few.size * STATES, "state", run)
    assert np.array_equal(found, states(REGISTER, few, STATES))


def walked(seeds, n):
    for _ in range(n):
        seeds = step(REGISTER, seeds)
    return seeds


def test_walk(measure):
    n = 20
    found = measure(JUMP, "NumPy, one step at a time", n * SEEDS.size, "step", walked, SEEDS, n, baseline=True)
    assert np.array_equal(found, jump(REGISTER, SEEDS, n))


@pytest.mark.parametrize("n", [100, 10_000])
def test_jump(measure, n):
    found = measure(JUMP, f"`lfsr.jump`, {n:,} ahead", n * SEEDS.size, "step", jump, REGISTER, SEEDS, n)
    assert np.array_equal(found, walked(SEEDS, n))
