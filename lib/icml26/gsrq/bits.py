"""What a compressed cache of keys and values takes: codes, side information, windows and codebooks, in exact bytes.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065) counts bits per activation, ``BPA = R log2(K) / D`` (section 4): R codes
into codebooks of K words for each D channels, and nothing else. Its tables count KIVI (Liu et al., arXiv 2402.02750) at
b + 0.25 bits and coupled quantisation (Zhang et al., arXiv 2405.03917) at b/c. That figure is `paper_bits` of each
method here; beside it stand `bits_per_value`, with padding to whole bytes and with KIVI's float16 scale and minimum of
every group, and `effective_bits`, which adds the float16 window and the float16 codebooks spread over the tokens that
are held. How the values are made is for `residual`, `coupled` and `integers`, how a model keeps them for `cache`.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError

__all__ = [
    "POSITION_BYTES",
    "IntegerStorage",
    "Storage",
    "coupled",
    "full_precision",
    "integers",
    "residual",
]

POSITION_BYTES = 4
"""An int32 position per token, once for all layers: what `cache.CodedCache` keeps beside the codes of its keys."""

_FLOAT16 = 2  # bytes
_PAPER_GROUP_BITS = 8  # per group: GSRQ's tables give KIVI-2 2.25 bits and KIVI-1 1.25 at groups of 32


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The keys and the values of some layers, kept in one way; made by `residual`, `coupled` and `full_precision`.

    Parameters
    ----------
    channels
        Keys of one token in one layer: KV heads times the size of a head. Values have as many.
    layers
        Layers that are kept this way.
    paper_bits
        Bits per value as the GSRQ paper counts them.
    row_bytes
        What the keys (or the values) of one more token take in one layer, padded to a whole byte.
    codebook_bytes
        Of all codebooks in float16, however many tokens there are.
    """

    channels: int
    layers: int
    paper_bits: float
    row_bytes: float
    codebook_bytes: int = 0

    @property
    def bits_per_value(self) -> float:
        """Bits per value of one more token: codes and side information, without codebooks."""
        return 8 * self.row_bytes / self.channels

    def cache_bytes(self, tokens: int | Int[ArrayLike, "*lengths"], sequences: int = 1) -> Int[np.ndarray, "*lengths"]:
        """Bytes of the cache without its codebooks.

        Parameters
        ----------
        tokens
            Tokens of each sequence, at least 0.
        sequences
            Sequences of that length in the batch.

        Returns
        -------
        int array
            Of the shape of `tokens`.

        Raises
        ------
        InputError
            If a number is no integer in range.

        Examples
        --------
        >>> int(residual(1024, dimension=128, stages=16, codewords=256, layers=32).cache_bytes(1))
        8192
        """
        counted = np.asarray(tokens)
        if not np.issubdtype(counted.dtype, np.integer) or (counted < 0).any():
            raise InputError(f"tokens={tokens!r} must be integers of at least 0")
        sequences = whole("sequences", sequences, 1)
        # In float16 all would take most, and Python's integers do not wrap.
        if counted.size and int(counted.max()) * sequences * self.layers * 4 * self.channels >= 1 << 60:
            raise InputError(f"tokens={tokens!r} and sequences={sequences} are more than can be counted: lower them")
        return sequences * self.layers * self._sequence_bytes(counted.astype(np.int64))

    def effective_bits(
        self, tokens: int | Int[ArrayLike, "*lengths"], sequences: int = 1
    ) -> Float[np.ndarray, "*lengths"]:
        """Bits per value with everything counted: codes, side information, windows and codebooks.

        Parameters
        ----------
        tokens
            Tokens of each sequence, at least 1.
        sequences
            Sequences of that length in the batch; codebooks are shared by all.

        Returns
        -------
        float array
            Of the shape of `tokens`.

        Raises
        ------
        InputError
            If a number is no integer in range.

        Examples
        --------
        >>> llama = residual(1024, dimension=128, stages=16, codewords=256, layers=32)
        >>> llama.paper_bits, float(llama.effective_bits(8192)), float(llama.effective_bits(65536))
        (1.0, 9.0, 2.0)
        """
        total = 8 * (self.cache_bytes(tokens, sequences) + self.codebook_bytes)
        if not np.asarray(tokens).all():
            raise InputError(f"tokens={tokens!r} must be integers of at least 1")
        return total / (2.0 * self.layers * self.channels * sequences * np.asarray(tokens))

    def _sequence_bytes(self, tokens: Int[np.ndarray, "*lengths"]) -> Int[np.ndarray, "*lengths"]:
        return 2 * self.row_bytes * tokens


@dataclass(frozen=True, kw_only=True)
class IntegerStorage(Storage):
    """Min-max integers with a float16 scale and minimum per group; made by `integers`.

    Parameters
    ----------
    channels, layers, paper_bits, row_bytes, codebook_bytes
        See `Storage`; `row_bytes` is the mean of a row of keys and one of values, in the long run.
    bits
        Of one integer.
    group
        Tokens of one channel (keys), channels of one token (values).
    window
        Newest tokens in float16. Keys are quantised in whole groups of tokens, so up to ``group - 1`` more of theirs
        wait in float16.
    """

    bits: int
    group: int
    window: int

    def _sequence_bytes(self, tokens: Int[np.ndarray, "*lengths"]) -> Int[np.ndarray, "*lengths"]:
        old = np.maximum(tokens - self.window, 0)
        groups = old // self.group
        keys = groups * _key_group_bytes(self.channels, self.bits, self.group)
        values = old * _value_row_bytes(self.channels, self.bits, self.group)
        waiting = (tokens - groups * self.group) + (tokens - old)
        return keys + values + waiting * _FLOAT16 * self.channels


def full_precision(channels: int, layers: int = 1) -> Storage:
    """Float16 keys and values.

    Parameters
    ----------
    channels
        Keys of one token in one layer.
    layers
        Layers.

    Returns
    -------
    Storage
        16 bits per value.

    Raises
    ------
    InputError
        If a number is no integer of at least 1.

    Examples
    --------
    >>> int(full_precision(1024, layers=32).cache_bytes(1)) >> 10
    128
    """
    channels = whole("channels", channels, 1)
    return Storage(channels=channels, layers=whole("layers", layers, 1), paper_bits=16.0, row_bytes=_FLOAT16 * channels)


def residual(channels: int, *, dimension: int, stages: int, codewords: int, layers: int = 1) -> Storage:
    """Residual quantisation: R codes for each D channels, BPA = R log2(K) / D.

    Codebooks hold ``2 layers M R K D`` float16 numbers, M = channels / D, for keys and values together; the paper
    leaves them out.

    Parameters
    ----------
    channels
        Keys of one token in one layer, a multiple of `dimension`.
    dimension
        D, channels of a sub-vector.
    stages
        R, residual stages.
    codewords
        K, words of a codebook; a code takes the whole bits that K needs.
    layers
        Layers with codebooks of their own.

    Returns
    -------
    Storage
        Of the keys and the values of all layers.

    Raises
    ------
    InputError
        If a number is out of range or D does not divide the channels.

    Examples
    --------
    >>> smol = residual(192, dimension=48, stages=3, codewords=64, layers=2)
    >>> smol.paper_bits, smol.row_bytes, smol.codebook_bytes
    (0.375, 9, 294912)
    """
    channels, layers = whole("channels", channels, 1), whole("layers", layers, 1)
    dimension, stages = whole("dimension", dimension, 1), whole("stages", stages, 1)
    codewords = whole("codewords", codewords, 2, 1 << 16)
    if channels % dimension:
        raise InputError(f"dimension={dimension} does not divide channels={channels}: use a divisor")
    codes = channels // dimension * stages
    return Storage(
        channels=channels,
        layers=layers,
        paper_bits=stages * float(np.log2(codewords)) / dimension,
        codebook_bytes=2 * layers * codes * codewords * dimension * _FLOAT16,
        row_bytes=-(-codes * (codewords - 1).bit_length() // 8),
    )


def coupled(channels: int, *, coupled_channels: int, bits: int, layers: int = 1) -> Storage:
    """Coupled quantisation, CQ-``<c>c<b>b``: one code of b bits for each c channels, b/c bits per value.

    Parameters
    ----------
    channels
        Keys of one token in one layer, a multiple of c.
    coupled_channels
        c, channels that share a code.
    bits
        b, bits of a code.
    layers
        Layers with codebooks of their own.

    Returns
    -------
    Storage
        Of the keys and the values of all layers; their codebooks hold ``2 layers channels 2^b`` float16 numbers.

    Raises
    ------
    InputError
        If a number is out of range or c does not divide the channels.

    Examples
    --------
    >>> coupled(1024, coupled_channels=8, bits=8, layers=32).codebook_bytes >> 20
    32
    """
    dimension, bits = whole("coupled_channels", coupled_channels, 1), whole("bits", bits, 1, 16)
    return residual(channels, dimension=dimension, stages=1, codewords=1 << bits, layers=layers)


def integers(channels: int, *, bits: int, group: int = 32, window: int = 0, layers: int = 1) -> IntegerStorage:
    """KIVI-b: integers of b bits, and 32 bits per group for its scale and minimum: b + 32/group bits per value.

    The GSRQ paper counts b + 0.25 at groups of 32, where two float16 numbers make it b + 1.

    Parameters
    ----------
    channels
        Keys of one token in one layer.
    bits
        b, of one integer, 1 to 8.
    group
        Numbers that share a scale.
    window
        Newest tokens that stay in float16; the released code keeps about 128.
    layers
        Layers.

    Returns
    -------
    IntegerStorage
        Of the keys and the values of all layers.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> kivi = integers(192, bits=2)
    >>> kivi.paper_bits, kivi.bits_per_value
    (2.25, 3.0)
    """
    channels, bits, group = whole("channels", channels, 1), whole("bits", bits, 1, 8), whole("group", group, 1)
    return IntegerStorage(
        channels=channels,
        layers=whole("layers", layers, 1),
        paper_bits=bits + _PAPER_GROUP_BITS / group,
        row_bytes=(_key_group_bytes(channels, bits, group) / group + _value_row_bytes(channels, bits, group)) / 2,
        bits=bits,
        group=group,
        window=whole("window", window, 0),
    )


def _key_group_bytes(channels: int, bits: int, group: int) -> int:
    return channels * (-(-group * bits // 8) + 2 * _FLOAT16)


def _value_row_bytes(channels: int, bits: int, group: int) -> int:
    return -(-channels * bits // 8) + -(-channels // group) * 2 * _FLOAT16
