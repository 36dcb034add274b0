"""Codes in as many bits as they need: six for 64 codewords, lowest bit first, with no gap between codes.

The bits per value that GSRQ counts (Kim et al., ICML 2026, arXiv 2607.01065, section 4: R log2(K) / D) are those of
packed codes. The codes come from `residual`; rows of them that a cache appends to are packed by `coder`, where each row
ends on a whole byte.
"""

import math

import numpy as np
from jaxtyping import Integer, UInt8
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.vectors import real_array

__all__ = ["pack", "unpack"]


def pack(codes: Integer[ArrayLike, "*shape"], bits: int) -> UInt8[np.ndarray, " bytes"]:
    """Put codes one after the other, in C order.

    Parameters
    ----------
    codes
        Integers from 0 to 2^bits - 1.
    bits
        Of each, 1 to 16.

    Returns
    -------
    uint8 array of ceil(n bits / 8) bytes
        The last one filled up with zero bits.

    Raises
    ------
    InputError
        If a code does not fit.

    Examples
    --------
    >>> pack([1, 2, 7], 3)
    array([209,   1], dtype=uint8)
    """
    codes, bits = real_array("codes", codes), whole("bits", bits, 1, 16)
    if codes.dtype.kind not in "ui":
        raise InputError(f"codes of type {codes.dtype} must be integers")
    if codes.size and not 0 <= codes.min() <= codes.max() < 1 << bits:
        raise InputError(f"codes from {codes.min()} to {codes.max()} do not fit {bits} bits")
    digits = codes.reshape(-1, 1).astype(np.uint16) >> np.arange(bits, dtype=np.uint16) & 1
    return np.packbits(digits.astype(np.uint8), bitorder="little")


def unpack(packed: UInt8[ArrayLike, " bytes"], bits: int, shape: tuple[int, ...]) -> Integer[np.ndarray, "*shape"]:
    """Take codes apart: the inverse of `pack`.

    Parameters
    ----------
    packed
        What `pack` returned.
    bits
        Of each code, 1 to 16.
    shape
        Of the codes.

    Returns
    -------
    uint8 array
        The codes; uint16 if they have more than 8 bits.

    Raises
    ------
    InputError
        If there are more or fewer bytes than the codes fill, or bits after the last code that are not zero.

    Examples
    --------
    >>> unpack(pack([[1, 2], [7, 0]], 3), 3, (2, 2)).tolist()
    [[1, 2], [7, 0]]
    """
    packed, bits = real_array("packed", packed), whole("bits", bits, 1, 16)
    if not isinstance(shape, tuple | list):
        raise InputError(f"shape={shape!r} must be a tuple of integers")
    used = math.prod(whole("shape", size, 0) for size in shape) * bits
    if packed.dtype != np.uint8 or packed.shape != (-(-used // 8),):
        raise InputError(
            f"packed of shape {packed.shape} and type {packed.dtype} must be {-(-used // 8)} bytes for codes of shape "
            f"{tuple(shape)}"
        )
    digits = np.unpackbits(packed, bitorder="little")
    if digits[used:].any():
        raise InputError("packed ends in bits that are not zero: bits or shape belong to other codes")
    places = 1 << np.arange(bits, dtype=np.uint16)
    codes = (digits[:used].reshape(-1, bits) * places).sum(1, dtype=np.uint16)
    return codes.astype(np.uint8 if bits <= 8 else np.uint16).reshape(shape)
