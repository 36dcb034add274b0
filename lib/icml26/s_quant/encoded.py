"""Encoded weight tensors: what is stored, in how many bits, and as which streams.

The streams of S-Quant (Wang et al., ICML 2026, arXiv: none) are those of its released codec: seeds, counts,
coefficients and scales, each in block order. SeedLM (Shafipour et al., arXiv 2410.10714) gives no word layout; ours
puts the seed into the low bits. Bits are counted as stored, (S + 8 k + 16/G)/B per weight by S-Quant's Eq. 13 and the
per-block counts that it omits, over weights without padding. `store` packs bits and keeps files, `squant` and `seedlm`
encode and decode.
"""

from dataclasses import asdict, dataclass
from typing import ClassVar, Self

import numpy as np
from jaxtyping import Float16, Int8, UInt8, UInt32, UInt64

from icml26.errors import InputError
from icml26.s_quant.config import LOWEST, SeedLMConfig, SQuantConfig
from icml26.s_quant.store import pack, unpack

__all__ = ["Encoded", "SeedLMEncoded"]


def _shape(header: dict) -> tuple[int, ...]:
    shape = header["shape"]
    if not isinstance(shape, list) or not all(type(length) is int and length > 0 for length in shape):
        raise InputError(f"shape {shape!r} is no list of positive lengths")
    return tuple(shape)


@dataclass(frozen=True, eq=False)
class Encoded:
    """An encoded weight tensor.

    Parameters
    ----------
    config
        How it was encoded.
    shape
        Of the weight.
    seeds : uint32 array, n blocks
        Seeds, 1 to 2^S - 1.
    counts : uint8 array, n blocks
        k of each block.
    coefficients : int8 array, sum of counts
        The codes, block after block.
    scales : float16 array, ceil(n / G)
        One positive scale per group.
    missed
        Blocks that stayed below the threshold at k_max; 0 if k is fixed.
    """

    codec: ClassVar[str] = "s-quant"
    config: SQuantConfig
    shape: tuple[int, ...]
    seeds: UInt32[np.ndarray, " n"]
    counts: UInt8[np.ndarray, " n"]
    coefficients: Int8[np.ndarray, " sum_k"]
    scales: Float16[np.ndarray, " groups"]
    missed: int

    @property
    def size(self) -> int:
        """Number of weights."""
        return int(np.prod(self.shape, dtype=np.int64))

    def bits_per_weight(self, counts: bool = True) -> float:
        """Bits per weight, padding not counted as weights: Eq. 13, plus the counts' bits unless ``counts=False``."""
        config, n = self.config, len(self.seeds)
        bits = n * (config.seed_bits + counts * config.count_bits) + 16 * len(self.scales)
        return (bits + config.coefficient_bits * len(self.coefficients)) / self.size

    def payload_bytes(self) -> int:
        """Bytes of the four streams: the bits above, each stream padded to a whole byte."""
        config, n = self.config, len(self.seeds)
        bits = (n * config.seed_bits, n * config.count_bits, len(self.coefficients) * config.coefficient_bits)
        return sum(-(-stream // 8) for stream in bits) + 2 * len(self.scales)

    def k_histogram(self) -> np.ndarray:
        """How many blocks have k = 0, 1, ..., k_max."""
        return np.bincount(self.counts, minlength=self.config.k_max + 1)

    def streams(self) -> dict[str, UInt8[np.ndarray, " bytes"]]:
        """The four bit-packed streams, in block order."""
        config = self.config
        return {
            "seeds": pack(self.seeds, config.seed_bits),
            "counts": pack(self.counts, config.count_bits) if config.count_bits else np.empty(0, np.uint8),
            "coefficients": pack(self.coefficients, config.coefficient_bits),
            "scales": self.scales.astype("<f2").view(np.uint8),
        }

    def header(self) -> dict:
        """What the streams do not say, for a file."""
        return {"config": asdict(self.config), "shape": list(self.shape), "missed": self.missed}

    @classmethod
    def from_streams(cls, header: dict, streams: dict[str, UInt8[np.ndarray, " bytes"]]) -> Self:
        """The inverse of `header` and `streams`; InputError if they are not consistent."""
        config = SQuantConfig(**header["config"])
        shape = _shape(header)
        n = -(-int(np.prod(shape, dtype=np.int64)) // config.block_size)
        seeds = unpack(streams["seeds"], config.seed_bits, n).astype(np.uint32)
        counts = np.full(n, config.k_min, dtype=np.uint8)
        if config.count_bits:
            counts = unpack(streams["counts"], config.count_bits, n).astype(np.uint8)
        bits = config.coefficient_bits
        codes = unpack(streams["coefficients"], bits, int(counts.sum())).astype(np.int16)
        codes -= (codes >> (bits - 1)) << bits
        scales = streams["scales"].view("<f2").astype(np.float16)
        if scales.size != -(-n // config.group_size) or not np.all((scales > 0) & np.isfinite(scales)):
            raise InputError(f"{scales.size} scales do not serve {n} blocks in groups of {config.group_size}")
        if not (seeds.all() and np.all((counts >= config.k_min) & (counts <= config.k_max))):
            raise InputError(f"a seed is 0, or a count is not within {config.k_min} to {config.k_max}")
        return cls(config, shape, seeds, counts, codes.astype(np.int8), scales, header["missed"])


@dataclass(frozen=True, eq=False)
class SeedLMEncoded:
    """An encoded weight tensor.

    Parameters
    ----------
    config
        How it was encoded.
    shape
        Of the weight.
    seeds : uint32 array, n blocks
        Seeds, 1 to 2^K - 1.
    exponents : int8 array, n blocks
        e, -8 to 7.
    coefficients : int8 array, n x P
        q, -8 to 7.
    shift
        The weight was divided by 2^shift; 0 without prescaling.
    below_floor
        Blocks whose exponent would have been below -8 (by the range rule if exponents were searched).
    """

    codec: ClassVar[str] = "seedlm"
    config: SeedLMConfig
    shape: tuple[int, ...]
    seeds: UInt32[np.ndarray, " n"]
    exponents: Int8[np.ndarray, " n"]
    coefficients: Int8[np.ndarray, "n P"]
    shift: int
    below_floor: int

    @property
    def size(self) -> int:
        """Number of weights."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def words(self) -> UInt64[np.ndarray, " n"]:
        """One word per block: seed in the low bits, then e, then q_0, q_1, ..., four bits each in two's complement."""
        word = self.seeds.astype(np.uint64)
        for i, nibble in enumerate((self.exponents, *self.coefficients.T)):
            word |= (nibble.astype(np.int64) & 15).astype(np.uint64) << np.uint64(self.config.register_bits + 4 * i)
        return word

    @property
    def floor_share(self) -> float:
        """Share of blocks at the least exponent, -8."""
        return float((self.exponents == LOWEST).mean())

    def bits_per_weight(self, counts: bool = True) -> float:
        """Bits per weight, padding not counted as weights; the number of bases is fixed, ``counts`` changes nothing."""
        return (len(self.seeds) * self.config.word_bits + 8 * self.config.prescale) / self.size

    def payload_bytes(self) -> int:
        """Bytes of the stream of words, and of the shift if there is one."""
        return -(-len(self.seeds) * self.config.word_bits // 8) + self.config.prescale

    def streams(self) -> dict[str, UInt8[np.ndarray, " bytes"]]:
        """The bit-packed words, and the shift."""
        shift = np.array([self.shift] * self.config.prescale, dtype=np.int8)
        return {"words": pack(self.words, self.config.word_bits), "shift": shift.view(np.uint8)}

    def header(self) -> dict:
        """What the streams do not say, for a file."""
        return {"config": asdict(self.config), "shape": list(self.shape), "below_floor": self.below_floor}

    @classmethod
    def from_streams(cls, header: dict, streams: dict[str, UInt8[np.ndarray, " bytes"]]) -> Self:
        """The inverse of `header` and `streams`; InputError if they are not consistent."""
        config = SeedLMConfig(**header["config"])
        shape = _shape(header)
        n = -(-int(np.prod(shape, dtype=np.int64)) // config.block_size)
        words = unpack(streams["words"], config.word_bits, n)
        seeds = (words & np.uint64(config.bases.register.period)).astype(np.uint32)
        if not seeds.all():
            raise InputError("a seed is 0, which is no state of a register")
        places = np.arange(config.register_bits, config.word_bits, 4, dtype=np.uint64)
        nibbles = (words[:, None] >> places & np.uint64(15)).astype(np.int8)
        nibbles -= (nibbles & 8) << 1
        shift = streams["shift"].view(np.int8)
        if shift.size != config.prescale:
            raise InputError("the shift is missing, or is there without prescaling")
        exponents, codes = nibbles[:, 0], np.ascontiguousarray(nibbles[:, 1:])
        return cls(config, shape, seeds, exponents, codes, int(shift.sum()), header["below_floor"])
