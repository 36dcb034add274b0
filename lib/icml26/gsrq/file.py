"""Fitted quantisers as files: a safetensors file that names its format and version and carries its own checksum.

The metadata hold the options and a SHA-256 of the whole file, in which the digest's own 64 digits count as zeros, so
that no byte can change unnoticed. Equal quantisers give equal files. The quantiser is that of `residual`, after GSRQ
(Kim et al., ICML 2026, arXiv 2607.01065, section 4); codes are not stored here.
"""

import hashlib
import json
from os import PathLike
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse
from safetensors.numpy import save as serialise

from icml26.errors import InputError
from icml26.gsrq.coupled import CoupledQuantizer
from icml26.gsrq.residual import ResidualQuantizer
from icml26.paths import write_atomic

__all__ = ["FORMAT", "VERSION", "load", "save"]

FORMAT = "icml26.gsrq"
VERSION = 1
_BLANK = "0" * 64
_OPTIONS = ("dimension", "stages", "codewords", "rule", "start", "iterations", "starts", "seed")
_ARRAYS = ("codebooks", "sizes", "passes", "converged", "energies")


def save(path: str | PathLike[str], quantizer: ResidualQuantizer) -> None:
    """Write a fitted quantiser, atomically.

    Parameters
    ----------
    path
        The file.
    quantizer
        It.

    Raises
    ------
    InputError
        If it is no quantiser, is not fitted, or has codebooks of another shape than its options say.
    OSError
        If the file cannot be written; one already there is then untouched.

    Examples
    --------
    >>> import tempfile
    >>> quantizer = ResidualQuantizer(2, 1, 4).fit(np.random.default_rng(0).normal(size=(50, 4)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "a.gsrq", quantizer)
    ...     bool(np.array_equal(load(Path(folder) / "a.gsrq").codebooks, quantizer.codebooks))
    True
    """
    if not isinstance(quantizer, ResidualQuantizer):
        raise InputError(f"quantizer of type {type(quantizer).__name__} must be a ResidualQuantizer, or a coupled one")
    quantizer._fitted()
    options = {name: getattr(quantizer, name) for name in _OPTIONS}
    kind = "coupled" if isinstance(quantizer, CoupledQuantizer) else "residual"
    # One field, the digest first: safetensors writes several in random order.
    metadata = {FORMAT: json.dumps({"sha256": _BLANK, "version": VERSION, "kind": kind, "options": options})}
    blank = serialise({name: np.ascontiguousarray(getattr(quantizer, name)) for name in _ARRAYS}, metadata=metadata)
    write_atomic(path, blank.replace(_BLANK.encode(), hashlib.sha256(blank).hexdigest().encode(), 1))


def load(path: str | PathLike[str]) -> ResidualQuantizer:
    """Read a quantiser, after checking every byte of its file.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    ResidualQuantizer
        As it was saved; a `coupled.CoupledQuantizer` if it was one.

    Raises
    ------
    InputError
        If the file is missing, truncated, damaged, of another kind, or of a newer version.

    Examples
    --------
    See `save`.
    """
    if not isinstance(path, str | PathLike):
        raise InputError(f"path={path!r} must name a file")
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][FORMAT])
        digest, version = metadata["sha256"].encode(), metadata["version"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is no file of a quantiser, or is damaged: save the quantiser again") from error
    blank = data.replace(digest, _BLANK.encode(), 1)
    if len(digest) != 64 or hashlib.sha256(blank).hexdigest().encode() != digest:
        raise InputError(f"{path} is damaged (checksum): copy or save it again")
    if version != VERSION:
        raise InputError(f"{path} has format version {version}, this is {VERSION}: update icml26")
    try:
        options, arrays = metadata["options"], parse(data)
        options = {name: options[name] for name in _OPTIONS}
        if metadata["kind"] == "coupled":
            chosen = {name: options[name] for name in ("iterations", "seed")}
            quantizer = CoupledQuantizer(options["dimension"], (options["codewords"] - 1).bit_length(), **chosen)
        else:
            quantizer = ResidualQuantizer(**options)
        if any(getattr(quantizer, name) != value for name, value in options.items()):
            raise ValueError("options contradict each other")
        _check(quantizer, arrays)
        for name in _ARRAYS:
            setattr(quantizer, name, arrays[name])
    except (SafetensorError, InputError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} was not written by `save`: save the quantiser again") from error
    return quantizer


def _check(quantizer: ResidualQuantizer, arrays: dict[str, np.ndarray]) -> None:
    positions, chain = len(arrays["codebooks"]), quantizer.stages
    expected = {
        "codebooks": ("f", (positions, chain, quantizer.codewords, quantizer.dimension)),
        "sizes": ("i", (positions, chain, quantizer.codewords)),
        "passes": ("i", (positions, chain)),
        "converged": ("b", (positions, chain)),
        "energies": ("f", (positions, chain + 1)),
    }
    for name, (kind, shape) in expected.items():
        array = arrays[name]
        if array.dtype.kind != kind or array.dtype == np.float16 or array.shape != shape or not array.size:
            raise ValueError(f"{name} contradict the options")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} are not finite")
