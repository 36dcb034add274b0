"""Linear feedback shift registers: their definition, bit by bit, and the papers' taps and masks.

Both papers regenerate pseudo-random basis matrices U(s) from a K-bit seed s: S-Quant (Wang et al., ICML 2026,
arXiv: none; the U_s of Eq. 6) with a Galois register, SeedLM (Shafipour et al., arXiv 2410.10714)
with a Fibonacci register. One convention throughout: registers shift right, bit 0 is the oldest bit and the
output, and "tap t" is bit t. With taps T (always containing 0) the output stream x obeys

    x[n+K] = XOR of x[n+t] over t in T,    characteristic polynomial c(x) = x^K + sum of x^t over t in T,

in *both* forms: the Galois mask is sum of 2^(K-1-t), and a Galois state is its window of K stream bits,
x[n], ..., x[n+K-1] packed LSB first, times 1 + sum of x^(K-t) over t in T without 0, modulo x^K. Vendors' tables
count taps from the other end, which gives the time-reversed stream.

`step_reference` and `states_reference` are plain and slow on purpose; `step` does the same for many states, `lfsr`
has the fast generators, which are tested equal to them, and `gf2` the test that a register's period is maximal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt32

from icml26.errors import InputError
from icml26.s_quant import gf2

# SeedLM's taps for every width (arXiv 2410.10714); S-Quant's masks are the same polynomials but one.
TAPS: dict[int, tuple[int, ...]] = {
    2: (0, 1),
    3: (0, 1),
    4: (0, 1),
    5: (0, 2),
    6: (0, 1),
    7: (0, 1),
    8: (0, 2, 3, 4),
    9: (0, 4),
    10: (0, 3),
    11: (0, 2),
    12: (0, 1, 2, 8),
    13: (0, 1, 2, 5),
    14: (0, 1, 2, 12),
    15: (0, 1),
    16: (0, 1, 3, 12),
    17: (0, 3),
    18: (0, 7),
    19: (0, 1, 2, 5),
    20: (0, 3),
    21: (0, 2),
    22: (0, 1),
    23: (0, 5),
    24: (0, 1, 2, 7),
}
S_QUANT_MASKS: dict[int, int] = {16: 0xB400}
FORMS = ("fibonacci", "galois")


@dataclass(frozen=True)
class Register:
    """A K-bit linear feedback shift register.

    Parameters
    ----------
    width
        K, the number of state bits, 2 to 24.
    form
        ``"fibonacci"``: the new top bit is the parity of the taps (SeedLM). ``"galois"``: the outgoing bit
        flips the mask's bits (S-Quant).
    taps
        Bits whose exclusive or is the next stream bit; contains 0. Default: `TAPS` of this width, all maximal.

    Raises
    ------
    InputError
        If the width, the form or the taps are not as above.

    Examples
    --------
    >>> hex(Register(16).mask), Register.s_quant(16).taps
    ('0xd008', (0, 2, 3, 5))
    >>> Register(4, taps=(0, 1, 2, 3)).is_maximal
    False
    """

    width: int
    form: str = "galois"
    taps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", _checked_width(self.width))
        if not isinstance(self.form, str) or self.form not in FORMS:
            raise InputError(f"form {self.form!r} is not a register form: use 'fibonacci' or 'galois'")
        object.__setattr__(self, "taps", _checked_taps(self.width, self.taps))

    @classmethod
    def from_mask(cls, width: int, mask: int, form: str = "galois") -> "Register":
        """The register with this Galois mask (for the Fibonacci form: with the same stream)."""
        width = _checked_width(width)
        if not gf2.is_integer(mask):
            raise InputError(f"mask {mask!r} is no integer: use a {width}-bit number with its top bit set")
        mask = int(mask)
        if not 0 < mask < 1 << width or not mask >> (width - 1):
            raise InputError(f"mask {mask:#x} must be a {width}-bit number with its top bit set")
        return cls(width, form, tuple(t for t in range(width) if mask >> (width - 1 - t) & 1))

    @classmethod
    def s_quant(cls, width: int) -> "Register":
        """S-Quant's Galois register: `TAPS`, except for mask 0xB400 at 16 bits."""
        width = _checked_width(width)
        return cls.from_mask(width, S_QUANT_MASKS[width]) if width in S_QUANT_MASKS else cls(width, "galois")

    @classmethod
    def seedlm(cls, width: int) -> "Register":
        """SeedLM's Fibonacci register."""
        return cls(width, "fibonacci")

    @property
    def mask(self) -> int:
        """The Galois mask of these taps."""
        return sum(1 << (self.width - 1 - t) for t in self.taps)

    @property
    def polynomial(self) -> int:
        """The characteristic polynomial c(x); bit i is the coefficient of x^i."""
        return 1 << self.width | sum(1 << t for t in self.taps)

    @property
    def period(self) -> int:
        """2^K - 1, the number of seeds and, for a maximal register, of states in its one cycle."""
        return (1 << self.width) - 1

    @property
    def half(self) -> int:
        """h = 2^(K-1): a state z is worth u = (z - h)/(h - 1), from -1 to 1."""
        return 1 << (self.width - 1)

    @property
    def is_maximal(self) -> bool:
        """Whether one cycle visits every seed, that is, whether the polynomial is primitive."""
        return gf2.is_primitive(self.polynomial)


def galois_mask(width: int, taps: Sequence[int] | None = None) -> int:
    """The mask that gives a Galois register the output stream of a Fibonacci register with these taps.

    Parameters
    ----------
    width
        K, the number of state bits.
    taps
        Bits of the Fibonacci register; default `TAPS` of this width.

    Returns
    -------
    int
        Sum of 2^(K-1-t) over the taps t.

    Raises
    ------
    InputError
        If width or taps are not those of a register.

    Examples
    --------
    >>> hex(galois_mask(8)), hex(galois_mask(16, (0, 2, 3, 5)))
    ('0xb8', '0xb400')
    """
    return Register(width, taps=() if taps is None else taps).mask


def _checked_width(width: int) -> int:
    if not gf2.is_integer(width) or int(width) not in TAPS:
        raise InputError(f"width {width!r} is not a register width: use 2 to 24 bits")
    return int(width)


def _checked_taps(width: int, taps: Sequence[int]) -> tuple[int, ...]:
    """Ascending; `TAPS` of the width for none."""
    if not isinstance(taps, Iterable) or not all(map(gf2.is_integer, given := tuple(taps))):
        raise InputError(f"taps {taps!r} must be a sequence of integers, such as {TAPS[width]}")
    found = tuple(sorted(map(int, given))) or TAPS[width]
    if found[0] != 0 or found[-1] >= width or len(set(found)) < len(found):
        raise InputError(f"taps {taps} must be distinct bits 0 to {width - 1} that include bit 0")
    return found


def step_reference(state: int, register: Register) -> int:
    """The successor of one state, bit by bit: the definition that every fast path is tested against.

    Parameters
    ----------
    state
        A state, 1 to 2^K - 1.
    register
        The register.

    Returns
    -------
    int
        The next state.

    Raises
    ------
    InputError
        If the state is zero or too wide.

    Examples
    --------
    >>> step_reference(4, Register(3, "fibonacci")), step_reference(1, Register(4))
    (2, 12)
    """
    if not gf2.is_integer(state) or not 1 <= state <= register.period:
        raise InputError(
            f"seed {state!r} is not a state of a {register.width}-bit register: use 1 to {register.period}"
        )
    if register.form == "galois":
        return state >> 1 ^ (register.mask if state & 1 else 0)
    parity = 0
    for tap in register.taps:
        parity ^= state >> tap & 1
    return state >> 1 | parity << (register.width - 1)


def states_reference(register: Register, seed: int, n: int) -> list[int]:
    """The first n states from a seed, the seed itself first, one Python step at a time.

    Parameters
    ----------
    register
        The register.
    seed
        The first state, 1 to 2^K - 1.
    n
        Number of states.

    Returns
    -------
    list of int
        The states.

    Raises
    ------
    InputError
        If the seed is zero or too wide.

    Examples
    --------
    >>> states_reference(Register(4), 1, 5)  # S-Quant's golden vector, mask 0xC
    [1, 12, 6, 3, 13]
    """
    found, state = [], seed
    for _ in range(n):
        found.append(state)
        state = step_reference(state, register)
    return found


def step(register: Register, seeds: UInt32[np.ndarray, "..."]) -> UInt32[np.ndarray, "..."]:
    """The successors of many states at once; the caller has checked the seeds (zero would stay zero).

    Parameters
    ----------
    register
        The register.
    seeds : uint32 array of any shape
        States, 1 to 2^K - 1.

    Returns
    -------
    uint32 array of the shape of `seeds`
        The next states.

    Examples
    --------
    >>> step(Register(4), np.array([1, 12, 6], dtype=np.uint32))
    array([12,  6,  3], dtype=uint32)
    """
    one = np.uint32(1)
    if register.form == "galois":
        return seeds >> one ^ (seeds & one) * np.uint32(register.mask)
    parity = np.bitwise_xor.reduce([seeds >> np.uint32(tap) for tap in register.taps]) & one
    return seeds >> one | parity << np.uint32(register.width - 1)


def checked_seeds(register: Register, seeds: UInt32[np.ndarray, "..."]) -> UInt32[np.ndarray, "..."]:
    """Seeds as a uint32 array, after making sure that each is a state.

    Parameters
    ----------
    register
        The register.
    seeds : array of any shape
        Integers.

    Returns
    -------
    uint32 array of the shape of `seeds`
        The same numbers.

    Raises
    ------
    InputError
        If a seed is zero, too wide or not an integer.

    Examples
    --------
    >>> checked_seeds(Register(4), [1, 15])
    array([ 1, 15], dtype=uint32)
    """
    seeds = np.asarray(seeds)
    if seeds.dtype.kind not in "iu":
        raise InputError(f"seeds of type {seeds.dtype} are not states: use integers 1 to {register.period}")
    wrong = seeds[(seeds < 1) | (seeds > register.period)]
    if wrong.size:
        limit = f"use 1 to {register.period}"
        raise InputError(f"seeds contain {wrong[0]}, which is no state of a {register.width}-bit register: {limit}")
    return seeds.astype(np.uint32)
