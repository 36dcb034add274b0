"""A model's folder as `compress` sees it: which tensors lie in which file, and which of them are to be encoded.

Weights are read lazily, one tensor at a time, from safetensors files; the model itself is only built without weights,
to learn what its modules are. S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv
2410.10714) encode the linear layers inside the blocks (`layers`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from icml26.errors import InputError
from icml26.s_quant.layers import block_linears, is_transposed, layer_shape

__all__ = ["Checkpoint", "digest", "read_checkpoint"]

_CHUNK = 1 << 22
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Checkpoint:
    """A local model.

    Parameters
    ----------
    folder
        Where it is.
    config
        Its ``config.json``.
    tensors
        The file and the number of bytes of every tensor.
    linears
        Tensors to encode, by the name of their module in the files; each with its rows, columns and whether it lies
        in the file transposed.
    names
        For each of those the name that the model itself has for the module, which may have another prefix.
    left
        The model's names of linear layers in its blocks that the files do not have as one tensor each.
    dtype
        The type of its weights, as torch calls it: what the configuration says, or else what most bytes are.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, tuple[str, int]]
    linears: dict[str, tuple[int, int, bool]]
    names: dict[str, str]
    left: tuple[str, ...]
    dtype: str

    @property
    def files(self) -> list[str]:
        """The weight files, sorted."""
        return sorted({file for file, _ in self.tensors.values()})

    def read(self, key: str) -> Tensor:
        """One tensor as it is stored.

        Parameters
        ----------
        key
            Its name in the files.

        Returns
        -------
        tensor
            A copy in memory.
        """
        with safe_open(self.folder / self.tensors[key][0], "pt") as file:
            return file.get_tensor(key)

    def read_linear(self, name: str) -> Tensor:
        """The weight of a linear layer.

        Parameters
        ----------
        name
            Its module's name in the files.

        Returns
        -------
        tensor, out x in
            A copy in memory.
        """
        weight = self.read(f"{name}.weight")
        return weight.T.contiguous() if self.linears[name][2] else weight

    def fingerprint(self, progress: Callable[[int], None] | None = None) -> dict[str, str]:
        """The SHA-256 of the configuration and of every weight file.

        Parameters
        ----------
        progress
            Called with the number of bytes read since the last call.

        Returns
        -------
        dict
            Digest by file name.
        """
        return {name: digest(self.folder / name, progress) for name in ("config.json", *self.files)}


def digest(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file.

    Parameters
    ----------
    path
        The file.
    progress
        Called with the number of bytes read since the last call.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> digest(Path(__file__)) == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    True
    """
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            found.update(data)
            if progress:
                progress(len(data))
    return found.hexdigest()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Look into a model's folder; no weights are read.

    Parameters
    ----------
    folder
        A folder with ``config.json`` and safetensors files, as ``save_pretrained`` writes it.

    Returns
    -------
    Checkpoint
        What is there.

    Raises
    ------
    InputError
        If it is no such folder, the model is quantised already, its class is unknown, or no linear layer is found.

    Examples
    --------
    >>> import tempfile
    >>> from icml26.models import load_lm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_lm("tiny-random-llama")[0].save_pretrained(folder)
    ...     found = read_checkpoint(Path(folder))
    >>> len(found.linears), found.linears["model.layers.0.mlp.up_proj"]
    (14, (384, 128, False))
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} is no model: its config.json cannot be read ({error})") from error
    if "quantization_config" in config:
        method = config["quantization_config"].get("quant_method")
        raise InputError(f"{folder} is quantised already ({method}): give the original model")
    tensors, shapes, floats = {}, {}, Counter(float32=0)
    for name in _weight_files(folder):
        for key, (shape, size, kind) in _header(folder / name).items():
            shapes[key], tensors[key] = shape, (name, size)
            floats[_FLOATS.get(kind, "float32")] += size
    modules, prefix = _modules(folder, config)
    linears, names, left = {}, {}, []
    for name, module in modules.items():
        other = name.removeprefix(f"{prefix}.") if name.startswith(f"{prefix}.") else f"{prefix}.{name}"
        known = [one for one in (name, other) if shapes.get(f"{one}.weight") == tuple(module.weight.shape)]
        if not known:
            left.append(name)
            continue
        linears[known[0]], names[known[0]] = (*layer_shape(module), is_transposed(module)), name
    if not linears:
        raise InputError(f"{folder}: no linear layer inside the blocks of {config.get('architectures')} was found")
    dtype = config.get("dtype") or config.get("torch_dtype") or floats.most_common(1)[0][0]
    return Checkpoint(folder, config, tensors, linears, names, tuple(left), dtype)


def _weight_files(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{index} cannot be read: copy the model again") from error
    else:
        names = ["model.safetensors"]
    for name in names:
        if not (folder / name).is_file():
            other = sorted(file.name for file in folder.glob("*.bin"))
            remedy = "save the model as safetensors with save_pretrained" if other else "copy the model again"
            raise InputError(f"{folder} lacks {name}: {remedy}")
    return names


def _header(path: Path) -> dict[str, tuple[tuple[int, ...], int, str]]:
    """Shape, bytes and type of every tensor in a safetensors file."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size) if size < 1 << 27 else b"")
        header.pop("__metadata__", None)
        found = {
            key: (tuple(entry["shape"]), entry["data_offsets"][1] - entry["data_offsets"][0], entry["dtype"])
            for key, entry in header.items()
        }
        whole = 8 + size + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{path} is no safetensors file, or is damaged: copy the model again") from error
    if path.stat().st_size != whole:
        raise InputError(f"{path} has {path.stat().st_size} bytes, not {whole}: copy the model again")
    return found


def _modules(folder: Path, config: dict[str, Any]) -> tuple[dict[str, torch.nn.Module], str]:
    import transformers

    known = [getattr(transformers, name, None) for name in config.get("architectures") or ()]
    try:
        settings = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            model = known[0](settings) if known and known[0] else transformers.AutoModel.from_config(settings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{folder}: transformers cannot build {config.get('architectures')} ({reason})") from error
    return block_linears(model), model.base_model_prefix
