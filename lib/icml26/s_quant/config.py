"""The two codecs' parameters, with the papers' settings as named constants.

S-Quant is Wang et al., ICML 2026 (arXiv: none), SeedLM is Shafipour et al., ICLR 2025 (arXiv 2410.10714). The project's
own variants of S-Quant are settings of the same class. What the parameters do is in `squant` and `seedlm`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from icml26.errors import InputError
from icml26.s_quant.bases import Bases
from icml26.s_quant.lfsr import Register

__all__ = [
    "OFFICIAL_DEFAULT",
    "PAPER_3BIT",
    "PAPER_4BIT",
    "REPAIR_FACTORS",
    "SEEDLM_3BIT",
    "SEEDLM_4BIT",
    "SQuantConfig",
    "SeedLMConfig",
]


def check_integer(name: str, value: int, low: int, high: int) -> int:
    """Return value as int; raise InputError unless it is an integer from low to high.

    Parameters
    ----------
    name
        The argument's name.
    value
        What was given.
    low, high
        The range.

    Returns
    -------
    int
        The value; a NumPy integer becomes Python's.

    Raises
    ------
    InputError
        If it is not.

    Examples
    --------
    >>> check_integer("group", np.int64(128), 1, 4096)
    128
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(f"{name} {value!r} is out of range: use an integer from {low} to {high}")
    return int(value)


def check_number(name: str, value: float) -> float:
    """Return value as float; raise InputError unless it is a finite number.

    Parameters
    ----------
    name
        The argument's name.
    value
        What was given; an integer or a NumPy number will do.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InputError
        If it is none.

    Examples
    --------
    >>> check_number("threshold", np.float64(0.5))
    0.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"{name} {value!r} is no number: give one, such as 0.9")
    if not np.isfinite(value):
        raise InputError(f"{name} {value} is not finite: give a finite number")
    return float(value)


def _normalise(config: object, ranges: dict[str, tuple[int, int]], switches: tuple[str, ...] = ()) -> None:
    """Replace NumPy integers and booleans in the fields of a frozen configuration by Python's, after checks."""
    for name, (low, high) in ranges.items():
        object.__setattr__(config, name, check_integer(name, getattr(config, name), low, high))
    for name in switches:
        if not isinstance(value := getattr(config, name), bool | np.bool_):
            raise InputError(f"{name} {value!r} is no switch: use True or False")
        object.__setattr__(config, name, bool(value))


def _check_choice(name: str, value: str, *choices: str) -> None:
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise InputError(f"{name} {value!r} is not known: use {known}")


@dataclass(frozen=True)
class SQuantConfig:
    """Parameters of the codec, <B, S, G, R_th> in the paper.

    The defaults give the paper's 3.8-bit rows as far as they can be inferred (`PAPER_4BIT`); the released code's own
    defaults are `OFFICIAL_DEFAULT`.

    Parameters
    ----------
    block_size
        B, weights per block.
    seed_bits
        S, bits per seed and width of the register, 2 to 24.
    group_size
        G, blocks that share a scale.
    threshold
        R_th, the share of a block's energy to keep, above 0 and at most 1.
    k_min, k_max
        Least and greatest number of basis vectors, 1 to B. Equal: a fixed number, whose count is not stored.
    coefficient_bits
        Bits per coefficient, 2 to 8; the codes are symmetric, +-(2^(bits-1) - 1).
    layout
        ``"columns"``: basis vectors are consecutive runs of B states (the paper's). ``"row-major"``: rows are.
    register
        ``"galois"`` (the paper's) or ``"fibonacci"``.
    mask
        Galois mask of the register's taps. Default: the paper's (0xB400 at 16 bits) for the Galois form, SeedLM's taps
        for the Fibonacci form.
    seed_choice
        ``"before"``: the seed of least unquantised error (the paper's). ``"after"``: of least quantised error among
        the `candidates` best.
    candidates
        Seeds tried per block when they are chosen after quantisation.
    scale_factors
        Multiples of the usual scale tried for each group, seeds chosen anew for each; only with "after".

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> SQuantConfig(block_size=8, k_min=3, k_max=3, coefficient_bits=4).count_bits
    0
    """

    block_size: int = 16
    seed_bits: int = 16
    group_size: int = 8
    threshold: float = 0.9
    k_min: int = 2
    k_max: int = 12
    coefficient_bits: int = 8
    layout: str = "columns"
    register: str = "galois"
    mask: int | None = None
    seed_choice: str = "before"
    candidates: int = 512
    scale_factors: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        _normalise(self, {"block_size": (1, 255), "seed_bits": (2, 24), "group_size": (1, 1 << 31)})
        _normalise(self, {"k_min": (1, self.block_size)})
        _normalise(self, {"k_max": (self.k_min, self.block_size)})
        _normalise(self, {"coefficient_bits": (2, 8), "candidates": (1, 1 << 24)})
        if self.mask is not None:
            _normalise(self, {"mask": (1, (1 << self.seed_bits) - 1)})
        object.__setattr__(self, "threshold", check_number("threshold", self.threshold))
        if isinstance(self.scale_factors, str) or not isinstance(self.scale_factors, Iterable):
            raise InputError(f"scale_factors {self.scale_factors!r} must be a sequence of numbers, such as (0.5, 1.0)")
        factors = tuple(check_number("scale_factors", factor) for factor in self.scale_factors)
        object.__setattr__(self, "scale_factors", factors)
        if not 0 < self.threshold <= 1:
            raise InputError(f"threshold {self.threshold} is no share of energy: use above 0 and at most 1")
        _check_choice("layout", self.layout, "columns", "row-major")
        _check_choice("seed_choice", self.seed_choice, "before", "after")
        if not self.scale_factors or not all(factor > 0 for factor in self.scale_factors):
            raise InputError(f"scale_factors {self.scale_factors} must be positive numbers, at least one")
        if self.seed_choice == "before" and self.scale_factors != (1.0,):
            raise InputError("scale_factors need seed_choice='after': set it, or leave the factors at (1.0,)")
        self.bases  # noqa: B018  raises if register or mask is wrong

    @property
    def bases(self) -> Bases:
        """The candidate bases."""
        if self.mask is not None:
            register = Register.from_mask(self.seed_bits, self.mask, self.register)
        elif self.register == "galois":
            register = Register.s_quant(self.seed_bits)
        else:
            register = Register(self.seed_bits, self.register)
        return Bases(register, self.block_size, self.layout)

    @property
    def limit(self) -> int:
        """The greatest coefficient code, 127 for 8 bits."""
        return (1 << (self.coefficient_bits - 1)) - 1

    @property
    def count_bits(self) -> int:
        """Bits stored per block for k: none if k is fixed."""
        return 0 if self.k_min == self.k_max else self.k_max.bit_length()


OFFICIAL_DEFAULT = SQuantConfig(seed_bits=8, group_size=32, k_max=16)  # of the released code
PAPER_4BIT = SQuantConfig()  # 3.75 bits by Eq. 13: inferred from the paper's 3.8
PAPER_3BIT = SQuantConfig(threshold=0.8)  # 2.62 to 2.72 bits: inferred from the paper's 2.7
REPAIR_FACTORS = (
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.7,
    1.0,
)  # for the project's variants with 4 or 5 bits


LOWEST, HIGHEST = -8, 7  # SeedLM's coefficients and exponents alike


@dataclass(frozen=True)
class SeedLMConfig:
    """Parameters of the codec, (C, P, K) in the paper.

    Parameters
    ----------
    block_size
        C, weights per block.
    rank
        P, basis vectors per block, 1 to C.
    register_bits
        K, bits per seed, 2 to 24.
    exponent_rule
        ``"range"``: the least e for which no coefficient clips, ``ceil(log2(max|t|/7.5))``. ``"printed"``: the paper's
        ``max floor(log2|t|)``, which leaves codes -2 to 2 in use. ``"search"``: every e is tried.
    prescale
        Divide the tensor by a power of two near its root mean square first, stored in one byte: small weights would
        otherwise fall below the least exponent.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> SeedLMConfig().word_bits, SeedLMConfig(12, 4).word_bits
    (32, 36)
    """

    block_size: int = 8
    rank: int = 3
    register_bits: int = 16
    exponent_rule: str = "range"
    prescale: bool = False

    def __post_init__(self) -> None:
        _normalise(self, {"block_size": (1, 255), "register_bits": (2, 24)}, switches=("prescale",))
        _normalise(self, {"rank": (1, min(self.block_size, 9))})
        _check_choice("exponent_rule", self.exponent_rule, "range", "printed", "search")

    @property
    def bases(self) -> Bases:
        """The candidate bases."""
        return Bases(Register.seedlm(self.register_bits), self.block_size, "row-major", "successor")

    @property
    def word_bits(self) -> int:
        """Bits per block, K + 4 + 4 P."""
        return self.register_bits + 4 + 4 * self.rank


SEEDLM_4BIT = SeedLMConfig()
SEEDLM_3BIT = SeedLMConfig(block_size=12, rank=4)
