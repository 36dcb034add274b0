"""Fast generation from shift registers: states, bit streams, jumps, and the bases that codecs build from them.

What S-Quant (Wang et al., ICML 2026, arXiv: none; the bases U_s of Eq. 6) and SeedLM (Shafipour et al., arXiv
2410.10714) compute from a seed, for many seeds at once and without a loop over bits. `register` says
what a register is. Least squares, quantisation and files are left to the codecs.

Two facts carry the speed. The states of a maximal register form one cycle, so that all candidate bases are
windows of one table (`cycle`, `windows`), and a seed is a place in it (`phase`). And squaring a polynomial over
GF(2) only spreads its exponents, c(x)^2 = c(x^2), so that the recurrence of single bits,
x[n+K] = XOR of x[n+t], also holds between runs of 2^j bits; `bits` therefore adds whole words.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Int32, UInt8, UInt32

from icml26.errors import InputError
from icml26.s_quant import gf2
from icml26.s_quant.register import TAPS, Register, checked_seeds, galois_mask, states_reference, step, step_reference

__all__ = [
    "TAPS",
    "Register",
    "basis_integers",
    "bits",
    "cycle",
    "equivalent",
    "galois_mask",
    "jump",
    "phase",
    "states",
    "states_reference",
    "step",
    "step_reference",
    "windows",
]

LAYOUTS = ("columns", "row-major")
FIRST = ("seed", "successor")
_TABLE_WIDTH = 20  # widest register whose whole cycle (4 MB at K = 20) is tabulated to answer for a few seeds
_CHUNK = 1 << 15  # words of a run in `bits`: a few runs fit into the processor's second-level cache


def states(register: Register, seeds: UInt32[np.ndarray, "..."], n: int) -> UInt32[np.ndarray, "... n"]:
    """The first n states from each of many seeds, the seed itself first.

    Up to K = 20 these are rows of the cycle's table; wider or non-maximal registers step all seeds together.

    Parameters
    ----------
    register
        The register.
    seeds : array of any shape
        First states, 1 to 2^K - 1.
    n
        Number of states per seed.

    Returns
    -------
    uint32 array, shape of `seeds` and n
        The states in order along the last axis.

    Raises
    ------
    InputError
        If a seed is zero, too wide or not an integer, or n is negative.

    Examples
    --------
    >>> states(Register(4), [1, 6], 4)
    array([[ 1, 12,  6,  3],
           [ 6,  3, 13, 10]], dtype=uint32)
    """
    if n < 0:
        raise InputError(f"n {n} is negative: ask for 0 or more states")
    seeds = checked_seeds(register, seeds)
    if n > 0 and register.width <= _TABLE_WIDTH and register.is_maximal:
        return windows(register, n)[phase(register)[seeds]]
    found = np.empty((n, *seeds.shape), dtype=np.uint32)
    for i in range(n):
        found[i] = seeds
        seeds = step(register, seeds)
    return np.ascontiguousarray(np.moveaxis(found, 0, -1))


@lru_cache(maxsize=8)
def cycle(register: Register) -> UInt32[np.ndarray, "period"]:
    """Every state of a maximal register in order, from state 1; read-only and cached.

    Parameters
    ----------
    register
        A maximal register.

    Returns
    -------
    uint32 array of 2^K - 1 states
        The cycle; position p is phase p.

    Raises
    ------
    InputError
        If the register is not maximal.

    Examples
    --------
    >>> cycle(Register(3, "fibonacci"))
    array([1, 4, 2, 5, 6, 7, 3], dtype=uint32)
    """
    _maximal(register)
    packed = bits(register, 1, register.period + 32).astype(np.uint32)
    # Four bytes from each byte on hold eight windows: K + 7 bits at most are needed, and K <= 24.
    words = packed[:-3] | packed[1:-2] << 8 | packed[2:-1] << 16 | packed[3:] << 24
    window = (words[:, None] >> np.arange(8, dtype=np.uint32)).ravel()[: register.period] & register.period
    found = _from_window(register, window.astype(np.uint32))
    found.flags.writeable = False
    return found


@lru_cache(maxsize=8)
def phase(register: Register) -> UInt32[np.ndarray, "states"]:
    """The discrete logarithm: the place of every seed in the cycle, so that ``cycle[phase[s]] == s``.

    Parameters
    ----------
    register
        A maximal register.

    Returns
    -------
    uint32 array of 2^K entries, indexed by seed
        Phases 0 to 2^K - 2. Entry 0, which no seed has, is 2^32 - 1: using it as an index fails.

    Raises
    ------
    InputError
        If the register is not maximal.

    Examples
    --------
    >>> phase(Register(3, "fibonacci"))[[1, 4, 3]]
    array([0, 1, 6], dtype=uint32)
    """
    found = np.full(register.period + 1, np.iinfo(np.uint32).max, dtype=np.uint32)
    found[cycle(register)] = np.arange(register.period, dtype=np.uint32)
    found.flags.writeable = False
    return found


def windows(register: Register, n: int) -> UInt32[np.ndarray, "period n"]:
    """The n states from every phase of the cycle, as a read-only view into the table wrapped at its end.

    Parameters
    ----------
    register
        A maximal register.
    n
        States per window, at least 1.

    Returns
    -------
    uint32 array, (2^K - 1) x n
        Row p holds the states from phase p on.

    Raises
    ------
    InputError
        If the register is not maximal, or n is below 1.

    Examples
    --------
    >>> windows(Register(3, "fibonacci"), 2)[-1]
    array([3, 1], dtype=uint32)
    """
    if n < 1:
        raise InputError(f"n {n} is no window: ask for 1 or more states")
    table = np.resize(cycle(register), register.period + n - 1)
    return np.lib.stride_tricks.sliding_window_view(table, n)


def bits(register: Register, seed: int, n: int) -> UInt8[np.ndarray, "bytes"]:
    """The first n output bits from a seed, packed LSB first.

    Parameters
    ----------
    register
        Any register, maximal or not.
    seed
        First state, 1 to 2^K - 1; its bit 0 is the first output bit.
    n
        Number of bits.

    Returns
    -------
    uint8 array of ceil(n/8) bytes
        Bit i of the stream is bit i % 8 of byte i // 8; bits from n on are zero.

    Raises
    ------
    InputError
        If the seed is zero or too wide, or n is negative.

    Examples
    --------
    >>> np.unpackbits(bits(Register(3, "fibonacci"), 4, 7), bitorder="little")
    array([0, 0, 1, 0, 1, 1, 1, 0], dtype=uint8)
    """
    if n < 0:
        raise InputError(f"n {n} is negative: ask for 0 or more bits")
    window = _window(register, checked_seeds(register, seed))
    start = (window >> np.arange(register.width, dtype=np.uint32) & np.uint32(1)).astype(np.uint8)
    first = np.packbits(_extended(start, 64 * register.width, register), bitorder="little").view("<u8")
    packed = _extended(first, max(-(-n // 64), register.width), register).view(np.uint8)[: -(-n // 8)]
    if n % 8:
        packed[-1] &= (1 << n % 8) - 1
    return packed


def jump(register: Register, seeds: UInt32[np.ndarray, "..."], n: int) -> UInt32[np.ndarray, "..."]:
    """The states n steps after many states (before them, if n is negative), in O(K log n).

    The step is linear over GF(2), s' = M s, so that n steps are M^n; M^(2^K - 1) is the identity.

    Parameters
    ----------
    register
        A maximal register.
    seeds : array of any shape
        States, 1 to 2^K - 1.
    n
        Number of steps; any integer.

    Returns
    -------
    uint32 array of the shape of `seeds`
        The states after n steps.

    Raises
    ------
    InputError
        If a seed is zero, too wide or not an integer, or the register is not maximal.

    Examples
    --------
    >>> jump(Register(4), [1, 13], 4), jump(Register(4), 12, -1)
    (array([13,  7], dtype=uint32), array(1, dtype=uint32))
    """
    _maximal(register)
    units = np.uint32(1) << np.arange(register.width, dtype=np.uint32)
    columns = gf2.power(tuple(step(register, units).tolist()), n % register.period)
    return gf2.apply(columns, checked_seeds(register, seeds))


def equivalent(register: Register, seeds: UInt32[np.ndarray, "..."]) -> tuple[Register, UInt32[np.ndarray, "..."]]:
    """The register of the other form, and the seeds from which it puts out the same bits.

    Parameters
    ----------
    register
        A register of either form.
    seeds : array of any shape
        Its states, 1 to 2^K - 1.

    Returns
    -------
    Register
        The same taps in the other form.
    uint32 array of the shape of `seeds`
        States of that register with the same output streams.

    Raises
    ------
    InputError
        If a seed is zero, too wide or not an integer.

    Examples
    --------
    >>> equivalent(Register(4), [1, 12])
    (Register(width=4, form='fibonacci', taps=(0, 1)), array([ 9, 12], dtype=uint32))
    """
    other = Register(register.width, "fibonacci" if register.form == "galois" else "galois", register.taps)
    return other, _from_window(other, _window(register, checked_seeds(register, seeds)))


def basis_integers(
    register: Register,
    seeds: UInt32[np.ndarray, "..."],
    rows: int,
    columns: int,
    *,
    layout: str = "columns",
    first: str = "seed",
) -> Int32[np.ndarray, "... rows columns"]:
    """The matrices z - h that each seed stands for; the basis is U = (z - h)/(h - 1), h = 2^(K-1).

    With z(0) the seed and z(1) its successor, S-Quant's Eq. 6 takes ``layout="columns", first="seed"``:
    U[r, c] from z(c*rows + r). SeedLM takes ``layout="row-major", first="successor"``: U[r, c] from
    z(r*columns + c + 1).

    Parameters
    ----------
    register
        The register.
    seeds : array of any shape
        Seeds, 1 to 2^K - 1.
    rows, columns
        Shape of each matrix: the block's length and the number of basis vectors.
    layout
        ``"columns"`` or ``"row-major"``: the order in which successive states fill a matrix.
    first
        ``"seed"`` or ``"successor"``: the state that fills the first entry.

    Returns
    -------
    int32 array, shape of `seeds`, rows, columns
        Integers from -(h - 1) to h - 1.

    Raises
    ------
    InputError
        If a seed is zero, too wide or not an integer, or layout or first is none of the above.

    Examples
    --------
    >>> basis_integers(Register(4), 1, 2, 2)  # S-Quant's golden vector, times 7
    array([[-7, -2],
           [ 4, -5]], dtype=int32)
    >>> basis_integers(Register(3, "fibonacci"), 4, 4, 2, layout="row-major", first="successor") + 4  # SeedLM, fig. 4
    array([[2, 5],
           [6, 7],
           [3, 1],
           [4, 2]], dtype=int32)
    """
    if layout not in LAYOUTS:
        raise InputError(f"layout {layout!r} is not known: use 'columns' or 'row-major'")
    if first not in FIRST:
        raise InputError(f"first {first!r} is not known: use 'seed' or 'successor'")
    skipped = FIRST.index(first)
    found = states(register, seeds, rows * columns + skipped)[..., skipped:].astype(np.int32) - register.half
    if layout == "row-major":
        return found.reshape(*found.shape[:-1], rows, columns)
    return np.ascontiguousarray(found.reshape(*found.shape[:-1], columns, rows).swapaxes(-1, -2))


def _maximal(register: Register) -> None:
    if not register.is_maximal:
        remedy = f"use those of TAPS, {TAPS[register.width]}"
        raise InputError(f"taps {register.taps} give {register.width} bits more than one cycle: {remedy}")


def _extended(start: np.ndarray, n: int, register: Register) -> np.ndarray:
    """Continue a stream of runs: item i + K*run is the XOR of items i + t*run for every power of two `run`."""
    found = np.empty(max(n, start.size), dtype=start.dtype)
    found[: start.size] = start
    width, taps, filled, run = register.width, register.taps, start.size, 1
    while filled < n:
        while 2 * run * width <= filled and run < _CHUNK:
            run *= 2
        origin = filled - run * width
        target = found[filled : min(filled + run * (width - taps[-1]), n)]
        target[:] = found[origin : origin + target.size]
        for tap in taps[1:]:
            target ^= found[origin + tap * run : origin + tap * run + target.size]
        filled += target.size
    return found[:n]


def _window(register: Register, seeds: UInt32[np.ndarray, "..."]) -> UInt32[np.ndarray, "..."]:
    """The first K output bits, packed LSB first: a Fibonacci register's own state."""
    if register.form == "fibonacci":
        return seeds
    window = np.zeros_like(seeds)
    for bit in range(register.width):
        window |= (seeds & np.uint32(1)) << np.uint32(bit)
        seeds = step(register, seeds)
    return window


def _from_window(register: Register, window: UInt32[np.ndarray, "..."]) -> UInt32[np.ndarray, "..."]:
    """The inverse of `_window`; in the Galois form the product with 1 + sum of x^(K-t), modulo x^K."""
    if register.form == "fibonacci":
        return window
    found = window.copy()
    for tap in register.taps[1:]:
        found ^= window << np.uint32(register.width - tap)
    return found & np.uint32(register.period)
