"""Bit-packed streams and the file that holds them, whichever codec made them.

A stream is as in S-Quant's released codec (Wang et al., ICML 2026, arXiv: none): numbers of a fixed width one after
the other, least significant bit first, padded with zero bits to a whole byte. The file is a safetensors file of such
streams; its metadata name the format and its version and hold a SHA-256 of the whole file, in which the digest's own 64
digits count as zeros, so that no byte can change unnoticed. Equal tensors give equal files. What a stream means is the
business of `encoded`.
"""

import hashlib
import json
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Integer, UInt8, UInt64
from safetensors import SafetensorError
from safetensors.numpy import load as parse
from safetensors.numpy import save as serialise

from icml26.errors import InputError
from icml26.paths import write_atomic

__all__ = ["FORMAT", "VERSION", "StoreError", "pack", "read", "unpack", "write"]

FORMAT = "icml26.s_quant"
VERSION = 1
_BLANK = "0" * 64


class StoreError(InputError):
    """A file of encoded weights is damaged, of another kind, or of a newer version."""


def pack(values: Integer[np.ndarray, " n"], bits: int) -> UInt8[np.ndarray, " bytes"]:
    """Put unsigned or two's complement numbers one after the other, least significant bit first.

    Parameters
    ----------
    values : integer array of n numbers
        Numbers that fit the width: from 0 to 2^bits - 1 or, if any is negative, -2^(bits-1) to 2^(bits-1) - 1.
    bits
        Width of each, 1 to 64.

    Returns
    -------
    uint8 array of ceil(n * bits / 8) bytes
        The stream, its last byte filled up with zeros.

    Raises
    ------
    InputError
        If a number does not fit the width.

    Examples
    --------
    >>> pack(np.array([1, 2, 7]), 3), pack(np.array([-1, 3]), 4)
    (array([209,   1], dtype=uint8), array([63], dtype=uint8))
    """
    values = np.asarray(values)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if low < -(1 << (bits - 1)) or high >= 1 << (bits - 1 if low < 0 else bits):
        raise InputError(f"values from {low} to {high} do not fit {bits} bits each")
    word = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    digits = np.empty((values.size, bits), dtype=np.uint8)
    for i in range(bits):  # a plane of bits at a time: no temporary of 8 bytes per bit
        digits[:, i] = word >> np.uint64(i) & np.uint64(1)
    return np.packbits(digits.reshape(-1), bitorder="little")


def unpack(stream: UInt8[np.ndarray, " bytes"], bits: int, n: int) -> UInt64[np.ndarray, " n"]:
    """The n unsigned numbers of a stream: the inverse of `pack`.

    Parameters
    ----------
    stream : uint8 array of ceil(n * bits / 8) bytes
        The stream.
    bits
        Width of each number, 1 to 64.
    n
        How many there are.

    Returns
    -------
    uint64 array of n numbers
        The numbers; two's complement is left to the caller.

    Raises
    ------
    InputError
        If the stream has another length, or its padding is not zero.

    Examples
    --------
    >>> unpack(np.array([209, 1], dtype=np.uint8), 3, 3)
    array([1, 2, 7], dtype=uint64)
    """
    if stream.size != -(-n * bits // 8):
        raise InputError(f"a stream of {stream.size} bytes does not hold {n} numbers of {bits} bits")
    digits = np.unpackbits(stream, bitorder="little")
    if digits[n * bits :].any():
        raise InputError(f"a stream of {n} numbers of {bits} bits ends in bits that are not zero")
    planes = digits[: n * bits].reshape(n, bits)
    found = np.zeros(n, dtype=np.uint64)
    for i in range(bits):
        found |= planes[:, i].astype(np.uint64) << np.uint64(i)
    return found


def write(path: str | PathLike[str], entries: dict[str, tuple[dict, dict[str, UInt8[np.ndarray, " bytes"]]]]) -> None:
    """Write named sets of streams as one file, atomically.

    Parameters
    ----------
    path
        The file.
    entries
        For each name a header (what JSON can hold) and the streams.

    Raises
    ------
    OSError
        If the file cannot be written; a file already there is then untouched.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a", {"layer": ({"rows": 2}, {"seeds": pack(np.array([1, 2]), 4)})})
    ...     read(Path(folder) / "a")
    {'layer': ({'rows': 2}, {'seeds': array([33], dtype=uint8)})}
    """
    headers = {name: [header, list(streams)] for name, (header, streams) in entries.items()}
    # One metadata field, the digest first: several would be written in random order, and names may hold anything.
    metadata = {FORMAT: json.dumps({"sha256": _BLANK, "version": VERSION, "entries": headers})}
    tensors = {f"{name}.{stream}": data for name, (_, streams) in entries.items() for stream, data in streams.items()}
    blank = serialise(tensors, metadata=metadata)
    write_atomic(path, blank.replace(_BLANK.encode(), hashlib.sha256(blank).hexdigest().encode(), 1))


def read(path: str | PathLike[str]) -> dict[str, tuple[dict, dict[str, UInt8[np.ndarray, " bytes"]]]]:
    """Read what `write` wrote, after checking every byte.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        As given to `write`.

    Raises
    ------
    StoreError
        If the file is missing, truncated, damaged, of another kind, or of a newer version.

    Examples
    --------
    See `write`.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    try:
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][FORMAT])
        digest = metadata["sha256"].encode()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is no file of encoded weights, or is damaged: encode the weights again") from error
    blank = data.replace(digest, _BLANK.encode(), 1)
    if len(digest) != 64 or hashlib.sha256(blank).hexdigest().encode() != digest:
        raise StoreError(f"{path} is damaged (checksum): copy or encode it again")
    if metadata.get("version") != VERSION:
        raise StoreError(f"{path} has format version {metadata.get('version')}, this is {VERSION}: update icml26")
    try:
        tensors = parse(data)
        return {
            name: (fields, {stream: tensors[f"{name}.{stream}"] for stream in streams})
            for name, (fields, streams) in metadata["entries"].items()
        }
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} was not written by `codec.save`: encode the weights again") from error
