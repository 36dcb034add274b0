"""What the accelerator model is told: the machine, how weights are stored, and the products to compute.

S-Quant (Wang et al., ICML 2026, arXiv: none) streams encoded weights from DRAM into decoder lanes that rebuild them in
front of a multiplier array; SeedLM (Shafipour et al., arXiv 2410.10714) does the same on an FPGA. `Config` is the
hardware and holds everything that a register-transfer description of it needs, register and taps included, because the
decoder takes them from the codec's own parameters. `Design` is a way to store weights, with its bits in exact
fractions, so that several can be run on one machine at equal bandwidth. Time passes in `asic`, nothing is simulated
here; energy is in `energy`.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from jaxtyping import Integer

from icml26.errors import InputError, nearest
from icml26.s_quant.bases import Bases
from icml26.s_quant.config import PAPER_4BIT, SEEDLM_4BIT, SeedLMConfig, SQuantConfig, check_integer

__all__ = ["INITIATIONS", "OFFSET_BITS", "Config", "Decoder", "Design", "Gemv"]

INITIATIONS = ("serial", "overlapped", "column-parallel", "leap-forward")
OFFSET_BITS = 32  # where a tile's coefficients start, stored once per tile if their number varies


@dataclass(frozen=True)
class Decoder:
    """What every decoder lane is built for.

    Parameters
    ----------
    bases
        Register with its taps or mask, weights per block, order of the states.
    k_max
        Most basis vectors a block may have.
    coefficient_bits
        Width of a coefficient, two's complement.

    Examples
    --------
    >>> Decoder.of(SEEDLM_4BIT).accumulator_bits, hex(Decoder.of(PAPER_4BIT).bases.register.mask)
    (21, '0xb400')
    """

    bases: Bases
    k_max: int
    coefficient_bits: int

    def __post_init__(self) -> None:
        check_integer("k_max", self.k_max, 1, 255)
        check_integer("coefficient_bits", self.coefficient_bits, 2, 8)

    @classmethod
    def of(cls, codec: SQuantConfig | SeedLMConfig) -> "Decoder":
        """The decoder of a codec: taps and widths come from the encoder's own parameters."""
        if isinstance(codec, SeedLMConfig):
            return cls(codec.bases, codec.rank, 4)
        return cls(codec.bases, codec.k_max, codec.coefficient_bits)

    @property
    def block_size(self) -> int:
        """Weights per block."""
        return self.bases.block_size

    @property
    def accumulator_bits(self) -> int:
        """Signed width that holds every numerator, sum of (z - h) q over k_max bases, |z - h| <= h - 1."""
        largest = (self.bases.register.half - 1) * (1 << (self.coefficient_bits - 1)) * self.k_max
        return largest.bit_length() + 1


S_QUANT_DECODER = Decoder.of(PAPER_4BIT)


@dataclass(frozen=True)
class Config:
    """The accelerator: one DRAM port, two tile buffers, decoder lanes, one multiplier array.

    Parameters
    ----------
    bytes_per_clock
        beta, bytes that the DRAM port delivers per clock.
    multipliers
        Multiply-accumulate units of the array, products per clock.
    lanes
        Decoder lanes, each working on one block at a time.
    initiation
        Clocks that a lane spends on a block of B weights with k bases: ``"serial"`` Bk + B (one multiplier, then
        emission, as in the released description), ``"overlapped"`` max(Bk, B) (emission behind the next block),
        ``"column-parallel"`` B (k_max registers and multipliers), ``"leap-forward"`` 1 (B k_max multipliers).
    decoder
        What the lanes are built for.
    latency
        Clocks before the first byte of a product arrives: DRAM and pipelines, once per product.
    tile_weights
        Weights per tile; a product's last tile has the rest.
    batch
        Input vectors that share each weight.
    sram_bytes
        On-chip memory, for two tiles of stored weights and the FP16 input vectors.
    clock_hz
        Clocks per second; only seconds depend on it.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> machine = Config(initiation="serial")
    >>> machine.interval(5), machine.lane_multipliers
    (96, 1)
    """

    bytes_per_clock: int = 64
    multipliers: int = 256
    lanes: int = 256
    initiation: str = "column-parallel"
    decoder: Decoder = S_QUANT_DECODER
    latency: int = 0
    tile_weights: int = 1 << 16
    batch: int = 1
    sram_bytes: int = 1 << 22
    clock_hz: float = 1e9

    def __post_init__(self) -> None:
        check_integer("bytes_per_clock", self.bytes_per_clock, 1, 1 << 16)
        check_integer("multipliers", self.multipliers, 1, 1 << 24)
        check_integer("lanes", self.lanes, 1, 1 << 20)
        check_integer("latency", self.latency, 0, 1 << 40)
        check_integer("tile_weights", self.tile_weights, 1, 1 << 24)
        check_integer("batch", self.batch, 1, 1 << 20)
        check_integer("sram_bytes", self.sram_bytes, 1, 1 << 40)
        if self.initiation not in INITIATIONS:
            close = nearest(self.initiation, INITIATIONS)
            raise InputError(f"initiation {self.initiation!r} is none of {', '.join(INITIATIONS)}{close}")
        if not 0 < self.clock_hz < float("inf"):
            raise InputError(f"clock_hz {self.clock_hz} is no frequency: use clocks per second, such as 1e9")

    def interval(self, k: int) -> int:
        """Clocks that a lane spends on a block with k bases, from taking it to taking the next one."""
        block = self.decoder.block_size
        if self.initiation == "serial":
            return block * k + block
        if self.initiation == "overlapped":
            return max(block * k, block)
        return block if self.initiation == "column-parallel" else 1

    @property
    def lane_multipliers(self) -> int:
        """Reconstruction multipliers in each lane."""
        if self.initiation == "column-parallel":
            return self.decoder.k_max
        return self.decoder.block_size * self.decoder.k_max if self.initiation == "leap-forward" else 1

    def for_design(self, design: "Design") -> "Config":
        """The same machine with the lanes built for this design; unchanged if the design needs none."""
        return replace(self, decoder=design.decoder) if design.decoder else self


@dataclass(frozen=True)
class Design:
    """A way to store weights.

    Parameters
    ----------
    name
        For tables and figures.
    bits
        Stored bits per weight with everything that belongs to it (counts, scales), an exact fraction.
    decoder
        What rebuilds the weights; None if they enter the array as stored (FP16), or scaled behind it (integers).
    histogram
        How many blocks have 0, 1, 2, ... bases, measured; with a decoder only.
    tile_bits
        Bits stored once per tile.

    Raises
    ------
    InputError
        If the bits are not an exact positive number, or the histogram does not fit the decoder.

    Examples
    --------
    >>> Design("made up", Fraction("3.75"), Decoder.of(PAPER_4BIT), (0, 0, 0, 0, 0, 3, 1)).mean_bases
    Fraction(21, 4)
    """

    name: str
    bits: Fraction
    decoder: Decoder | None = None
    histogram: tuple[int, ...] = ()
    tile_bits: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int | Fraction) or not 0 < self.bits <= 64:
            raise InputError(f"bits {self.bits!r} per weight must be exact, above 0, at most 64: use Fraction('3.75')")
        check_integer("tile_bits", self.tile_bits, 0, 1 << 20)
        object.__setattr__(self, "bits", Fraction(self.bits))
        object.__setattr__(self, "histogram", tuple(int(n) for n in self.histogram))
        if self.decoder is None and self.histogram:
            raise InputError(f"histogram of design {self.name!r} counts bases, but there is no decoder: give both")
        if self.decoder is None:
            return
        used = [k for k, n in enumerate(self.histogram) if n]
        if min(self.histogram, default=-1) < 0 or not used or not 1 <= used[0] <= used[-1] <= self.decoder.k_max:
            limit = f"count blocks with 1 to {self.decoder.k_max} bases"
            raise InputError(f"histogram {self.histogram} of design {self.name!r} does not fit its decoder: {limit}")

    @classmethod
    def fp16(cls) -> "Design":
        """Uncompressed weights."""
        return cls("FP16", Fraction(16))

    @classmethod
    def rounded(cls, bits: int = 4, group: int = 128, zero_point: bool = False) -> "Design":
        """Integers with one FP16 scale per group, and a zero point of `bits` bits if wanted; no time to decode."""
        check_integer("group", group, 1, 1 << 24)
        return cls(f"INT{bits} g{group}", bits + Fraction(16 + bits * zero_point, group))

    @classmethod
    def seedlm(cls, codec: SeedLMConfig = SEEDLM_4BIT) -> "Design":
        """SeedLM: every block has P bases."""
        bits = Fraction(codec.word_bits, codec.block_size)
        return cls(f"SeedLM {float(bits):g} b", bits, Decoder.of(codec), (0,) * codec.rank + (1,))

    @classmethod
    def s_quant(cls, codec: SQuantConfig, counts: Integer[np.ndarray, " n"], count_bits: int | None = None) -> "Design":
        """S-Quant with the numbers of bases that an encoding of whole blocks came to.

        Parameters
        ----------
        codec
            Its parameters.
        counts : integer array, n blocks
            k of each block, such as ``Encoded.counts``.
        count_bits
            What each stored k costs; default: its field in the stream. 0 is the paper's count (Eq. 13).
        """
        counts = np.asarray(counts)
        check_integer("size of counts", counts.size, 1, 1 << 40)
        bits = codec.seed_bits + (codec.count_bits if count_bits is None else count_bits)
        scales = -(-counts.size // codec.group_size)
        stored = counts.size * bits + codec.coefficient_bits * int(counts.sum(dtype=np.int64)) + 16 * scales
        per_weight = Fraction(stored, counts.size * codec.block_size)
        histogram = tuple(np.bincount(counts).tolist())
        offset = OFFSET_BITS if codec.k_min < codec.k_max else 0
        return cls(f"S-Quant {float(per_weight):.3g} b", per_weight, Decoder.of(codec), histogram, offset)

    @property
    def mean_bases(self) -> Fraction:
        """Mean number of bases per block, which is also reconstruction products per weight; 0 without decoder."""
        if self.decoder is None:
            return Fraction(0)
        return Fraction(sum(k * n for k, n in enumerate(self.histogram)), sum(self.histogram))

    def stored_bits(self, weights: int) -> int:
        """Bits of a tile of so many weights, in integers: the mean rate, rounded up, and what a tile stores once."""
        return -(-int(weights) * self.bits.numerator // self.bits.denominator) + self.tile_bits


@dataclass(frozen=True)
class Gemv:
    """A matrix-vector product, weights stored row by row.

    Parameters
    ----------
    rows, columns
        Outputs and inputs of the layer.
    name
        For tables.
    repeat
        Layers of this shape.
    compressed
        False for a layer that every design leaves in FP16.

    Examples
    --------
    >>> Gemv(11008, 4096, "gate").weights
    45088768
    """

    rows: int
    columns: int
    name: str = ""
    repeat: int = 1
    compressed: bool = True

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "repeat"):
            check_integer(name, getattr(self, name), 1, 1 << 24)

    @property
    def weights(self) -> int:
        """Weights of one such layer."""
        return self.rows * self.columns
