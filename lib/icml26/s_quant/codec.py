"""Both codecs behind one interface: encode and decode a weight tensor, save and load many.

S-Quant (Wang et al., ICML 2026, arXiv: none) is in `squant`, its ancestor SeedLM (Shafipour et al., arXiv 2410.10714)
in `seedlm`; the configuration's type says which is meant. `baselines` holds plain rounding for comparison. Applying a
codec to a model's layers is left to the caller.

Examples
--------
>>> import torch
>>> weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
>>> encoded = encode(weight, SeedLMConfig())
>>> encoded.bits_per_weight(), bool((decode(encoded) - weight).norm() < 0.15 * weight.norm())
(4.0, True)
"""

from collections.abc import Mapping
from os import PathLike

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from icml26.errors import InputError
from icml26.s_quant import seedlm, squant, store
from icml26.s_quant.bases import as_blocks
from icml26.s_quant.config import (
    OFFICIAL_DEFAULT,
    PAPER_3BIT,
    PAPER_4BIT,
    REPAIR_FACTORS,
    SEEDLM_3BIT,
    SEEDLM_4BIT,
    SeedLMConfig,
    SQuantConfig,
    check_integer,
)
from icml26.s_quant.encoded import Encoded, SeedLMEncoded
from icml26.s_quant.search import Progress, SearchPath, search_path
from icml26.s_quant.store import StoreError

__all__ = [
    "OFFICIAL_DEFAULT",
    "PAPER_3BIT",
    "PAPER_4BIT",
    "REPAIR_FACTORS",
    "SEEDLM_3BIT",
    "SEEDLM_4BIT",
    "Encoded",
    "SQuantConfig",
    "SearchPath",
    "SeedLMConfig",
    "SeedLMEncoded",
    "StoreError",
    "decode",
    "encode",
    "encode_path",
    "load",
    "save",
]


def encode(
    weight: Tensor | np.ndarray,
    config: SQuantConfig | SeedLMConfig = PAPER_4BIT,
    *,
    path: SearchPath | None = None,
    progress: Progress | None = None,
) -> Encoded | SeedLMEncoded:
    """Encode a weight tensor with the codec that the configuration names.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Finite floating-point weights.
    config
        `SQuantConfig` or `SeedLMConfig`.
    path
        S-Quant only: the result of `encode_path`, from which every threshold and fixed k is read off.
    progress
        Called with the share done, 0 to 1.

    Returns
    -------
    Encoded or SeedLMEncoded
        Codes, with ``bits_per_weight()`` and ``payload_bytes()``.

    Raises
    ------
    InputError
        If the weight is empty or not finite, a scale exceeds float16, or the path or the configuration does not fit.

    Examples
    --------
    >>> encode(torch.ones(2, 8), SQuantConfig(seed_bits=8)).counts
    array([8], dtype=uint8)
    """
    if isinstance(config, SQuantConfig):
        return squant.encode(weight, config, path=path, progress=progress)
    _check("config", config, SeedLMConfig, "an SQuantConfig or a SeedLMConfig")
    if path is not None:
        raise InputError("path serves S-Quant alone: leave it out for SeedLM")
    return seedlm.encode(weight, config, progress=progress)


def encode_path(
    weight: Tensor | np.ndarray, config: SQuantConfig = PAPER_4BIT, *, k_min: int = 1, progress: Progress | None = None
) -> SearchPath:
    """One search for all thresholds: the best seed of every block for each k from k_min to the configuration's k_max.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Finite floating-point weights.
    config
        Its bases and k_max count; threshold, group size and coefficients do not.
    k_min
        Least k searched, 1 or more.
    progress
        Called with the share done, 0 to 1.

    Returns
    -------
    SearchPath
        To pass to `encode` with any configuration of the same bases.

    Raises
    ------
    InputError
        If the weight is empty or not finite, or k_min is out of range.

    Examples
    --------
    >>> from dataclasses import replace
    >>> weight, config = torch.ones(2, 8), SQuantConfig(seed_bits=8)
    >>> path = encode_path(weight, config)
    >>> encode(weight, config, path=path).counts, encode(weight, replace(config, threshold=0.5), path=path).counts
    (array([8], dtype=uint8), array([2], dtype=uint8))
    """
    _check("config", config, SQuantConfig, "an SQuantConfig: a path serves S-Quant alone")
    check_integer("k_min", k_min, 1, config.k_max)
    blocks = as_blocks(weight, config.block_size)
    return search_path(blocks, config.bases, k_min, config.k_max, progress=progress)


def decode(encoded: Encoded | SeedLMEncoded, device: torch.device | str = "cpu") -> Float32[Tensor, "..."]:
    """Decode a weight tensor, bit-exact on every machine.

    Parameters
    ----------
    encoded
        What `encode` or `load` returned.
    device
        Where to compute, and where the result shall be.

    Returns
    -------
    float32 tensor of the original shape
        The weights.

    Examples
    --------
    >>> decode(encode(torch.zeros(2, 3), SeedLMConfig(register_bits=8))).shape
    torch.Size([2, 3])
    """
    if isinstance(encoded, Encoded):
        return squant.decode(encoded, device)
    _check("encoded", encoded, SeedLMEncoded, "what encode or load returned")
    return seedlm.decode(encoded, device)


def _check(name: str, value: object, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"{name} {value if isinstance(value, type) else type(value)!r} is not known: give {wanted}")


def save(path: str | PathLike[str], tensors: Mapping[str, Encoded | SeedLMEncoded]) -> None:
    """Write encoded tensors as one bit-packed, checksummed safetensors file, atomically.

    Parameters
    ----------
    path
        The file.
    tensors
        Encoded tensors by name.

    Raises
    ------
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/a.safetensors", {"layer": encode(torch.zeros(2, 3), SQuantConfig(seed_bits=8))})
    ...     decode(load(f"{folder}/a.safetensors")["layer"]).shape
    torch.Size([2, 3])
    """
    store.write(path, {name: ({"codec": one.codec, **one.header()}, one.streams()) for name, one in tensors.items()})


def load(path: str | PathLike[str]) -> dict[str, Encoded | SeedLMEncoded]:
    """Read what `save` wrote, every byte checked.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        Encoded tensors by name.

    Raises
    ------
    StoreError
        If the file is missing, truncated, damaged, of another kind, or of a newer version.

    Examples
    --------
    See `save`.
    """
    known = {Encoded.codec: Encoded, SeedLMEncoded.codec: SeedLMEncoded}
    found = {}
    for name, (header, streams) in store.read(path).items():
        try:
            found[name] = known[header["codec"]].from_streams(header, streams)
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{path}: {name!r} is not consistent ({error}): encode the weights again") from error
    return found
