"""Encoded weights in compiled code: decoded, or multiplied with a few vectors, without leaving their packed form.

S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv 2410.10714) count on hardware that
regenerates weights as it reads them. On a processor, ``native.c`` does: it is compiled with the machine's C compiler
when it is first needed, once, into the cache folder. Without a compiler, or with ``ICML26_NATIVE=0``, everything works
through `codec` instead, slowly; `reason` says why. What a layer does with this is in `linear`.

Every basis is a run of a table of the register's cycle: for columns the cycle itself, in which basis vector j begins
j * B places after the first one; for rows of k the cycle dealt out to k rows like cards, in which it begins in the
j-th row after the first one's. ``place`` says by seed where that first one is.
"""

import ctypes
import hashlib
import os
import platform
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from icml26 import paths
from icml26.s_quant.bases import Bases
from icml26.s_quant.config import SeedLMConfig, SQuantConfig
from icml26.s_quant.lfsr import cycle, phase
from icml26.s_quant.store import unpack

__all__ = ["PackedWeight", "reason", "supports"]

SOURCE = Path(__file__).with_name("native.c")
_OPENMP = (["-fopenmp"], [])
_MACHINE = (["-march=native"], ["-mcpu=native"], [])
_MOST, _PAD = 64, 32  # as in the source


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_ = (
        _fields(ctypes.c_void_p, "seeds counts codes scales")
        + _fields(ctypes.c_int64, "seeds_size counts_size codes_size")
        + _fields(ctypes.c_void_p, "starts place table")
        + _fields(ctypes.c_int64, "stride rows columns group")
        + _fields(ctypes.c_int32, "word block seed_bits count_bits code_bits k shift")
        + _fields(ctypes.c_double, "span")
    )


def reason() -> str:
    """Why there is no compiled code here; empty if there is.

    Returns
    -------
    str
        A short phrase.

    Examples
    --------
    >>> isinstance(reason(), str)
    True
    """
    return _library()[1]


def supports(config: SQuantConfig | SeedLMConfig, shift: int = 0) -> bool:
    """Whether the compiled code covers a codec: seeds of up to 16 bits, and no rows of varying length.

    Parameters
    ----------
    config
        The codec's parameters.
    shift
        SeedLM's power of two for the tensor.

    Returns
    -------
    bool
        Whether `PackedWeight` takes it.

    Examples
    --------
    >>> supports(SeedLMConfig()), supports(SQuantConfig(seed_bits=20))
    (True, False)
    """
    if isinstance(config, SeedLMConfig):
        return config.register_bits <= 16 and abs(shift) <= 100
    varying = config.k_min < config.k_max and not config.bases.nested
    return config.seed_bits <= 16 and config.k_max < _MOST and not varying


class PackedWeight:
    """One layer's streams, ready for the compiled code.

    Parameters
    ----------
    config
        How the weight was encoded.
    shape
        Rows and columns of the weight.
    streams
        The packed streams by name, contiguous uint8 tensors on the processor. They are used in place.

    Raises
    ------
    RuntimeError
        If there is no compiled code (`reason`) or it does not cover the codec (`supports`).

    Examples
    --------
    See `icml26.s_quant.linear.SeedLinear`, which falls back on the codec.
    """

    def __init__(
        self, config: SQuantConfig | SeedLMConfig, shape: tuple[int, int], streams: Mapping[str, Tensor]
    ) -> None:
        library, why = _library()
        shift = int(streams["shift"].view(torch.int8).sum()) if "shift" in streams else 0
        if library is None or not supports(config, shift):
            raise RuntimeError(why or f"the compiled code does not cover {config}")
        self._library = library
        self.shape = shape
        self.streams = dict(streams)  # the addresses below are theirs
        k = config.rank if isinstance(config, SeedLMConfig) else config.k_max
        self._table, self._place, stride = _table(config.bases, k)
        layer = self._layer = _Layer(rows=shape[0], columns=shape[1], stride=stride, block=config.block_size, group=1)
        layer.table, layer.place = self._table.ctypes.data, self._place.ctypes.data
        layer.span = config.bases.register.half - 1
        if isinstance(config, SeedLMConfig):
            layer.seeds, layer.seeds_size = streams["words"].data_ptr(), streams["words"].numel()
            layer.word, layer.seed_bits, layer.k = config.word_bits, config.register_bits, k
            layer.shift = shift
            return
        layer.seeds, layer.seeds_size = streams["seeds"].data_ptr(), streams["seeds"].numel()
        layer.codes, layer.codes_size = streams["coefficients"].data_ptr(), streams["coefficients"].numel()
        layer.scales, layer.group = streams["scales"].data_ptr(), config.group_size
        layer.seed_bits, layer.code_bits, layer.k = config.seed_bits, config.coefficient_bits, k
        layer.count_bits = config.count_bits
        first = np.arange(shape[0], dtype=np.int64) * shape[1] // config.block_size
        if config.count_bits:
            layer.counts, layer.counts_size = streams["counts"].data_ptr(), streams["counts"].numel()
            counts = unpack(streams["counts"].numpy(), config.count_bits, -(-shape[0] * shape[1] // config.block_size))
            first = (np.cumsum(counts, dtype=np.int64) - counts.astype(np.int64))[first]
        else:
            first *= k
        self._starts = first
        layer.starts = first.ctypes.data

    def forward(self, x: Float32[Tensor, "m columns"]) -> Float32[Tensor, "m rows"]:
        """The product ``x @ weight.T``, each weight to within two units in its last place.

        Parameters
        ----------
        x : float32 tensor, m x columns
            Few vectors: the weight is decoded once and multiplied with each in turn.

        Returns
        -------
        float32 tensor, m x rows
            The products.
        """
        x = x.contiguous()
        y = torch.empty(len(x), self.shape[0])
        self._library.icml26_forward(ctypes.byref(self._layer), x.data_ptr(), len(x), y.data_ptr())
        return y

    def decode(self, first: int, last: int) -> Float32[Tensor, "rows columns"]:
        """The rows from first to last - 1 of the weight, equal to the codec's to the bit.

        Parameters
        ----------
        first, last
            Range of rows, within the weight's.

        Returns
        -------
        float32 tensor, (last - first) x columns
            The rows.
        """
        found = torch.empty(last - first, self.shape[1])
        self._library.icml26_decode(ctypes.byref(self._layer), first, last, found.data_ptr())
        return found


@lru_cache(maxsize=8)
def _table(bases: Bases, k: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The table, the place in it of each seed's first basis vector, and the stride to the next one."""
    register, size = bases.register, bases.block_size
    integers = cycle(register).astype(np.int32) - register.half
    start = phase(register).astype(np.int64) + (bases.first == "successor")
    start[0] = 0  # no seed, but a damaged file may say so
    if bases.nested:
        stride, places = size, np.arange(register.period + 1 + size * (k + 2) + _PAD)
    else:
        stride = register.period // k + 1 + size + _PAD
        rows = np.arange(2 * k + 1)[:, None]  # the first vector may begin in row k - 1
        places = (rows % k + (rows // k + np.arange(stride)) * k).ravel()
        start = start % k * stride + start // k
    dealt = integers[places % register.period]
    return dealt[:-stride] & 0xFFFF | dealt[stride:] << 16, start.astype(np.int32), stride


@lru_cache(maxsize=1)
def _library() -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get("ICML26_NATIVE", "1") == "0":
        return None, "compiled code is switched off by ICML26_NATIVE=0"
    if sys.byteorder != "little":
        return None, "compiled code needs a little-endian processor"
    compiler = _compiler()
    if compiler is None:
        return None, "there is no C compiler"
    failure = ""
    for openmp in _OPENMP:
        for machine in _MACHINE:
            try:
                return _load(_build(compiler, ["-O3", *machine, *openmp])), ""
            except (OSError, subprocess.SubprocessError) as error:
                failure = failure or " ".join(str(getattr(error, "stderr", None) or error).split())[:200]
    return None, f"the C compiler failed: {failure}"


def _compiler() -> str | None:
    chosen = os.environ.get("CC", "cc")
    return next(filter(None, map(shutil.which, (chosen, "cc", "gcc", "clang"))), None)


def _build(compiler: str, options: list[str]) -> Path:
    """Compile, unless the cache has it; threads are those of torch, whose OpenMP the symbols are found in."""
    told = "\0".join((compiler, *options, platform.machine(), _processor())).encode()
    key = hashlib.sha256(SOURCE.read_bytes() + told).hexdigest()[:24]
    target = paths.cache() / "native" / f"s_quant-{key}.so"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{key}.{os.getpid()}.{secrets.token_hex(4)}")
    objects, library = part.with_suffix(".o"), part.with_suffix(".so")
    linking = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    try:
        for command in (
            [compiler, *options, "-fPIC", "-c", str(SOURCE), "-o", str(objects)],
            [compiler, "-shared", *linking, str(objects), "-o", str(library)],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        library.replace(target)
    finally:
        objects.unlink(missing_ok=True)
        library.unlink(missing_ok=True)
    return target


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    layer, floats = ctypes.POINTER(_Layer), ctypes.c_void_p
    library.icml26_forward.argtypes = (layer, floats, ctypes.c_int64, floats)
    library.icml26_decode.argtypes = (layer, ctypes.c_int64, ctypes.c_int64, floats)
    library.icml26_forward.restype = library.icml26_decode.restype = None
    return library


def _processor() -> str:
    """What `native` instructions depend on: a cache may be shared by several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
