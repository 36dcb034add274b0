"""The parts of a compressed model's folder that are not encoded tensors, and the folder's layout.

- ``compress.json``, the plan, written first: the codec, the layers, the SHA-256 of every file of the model;
- ``encoded/NAME.safetensors``, one file for each encoded tensor, checksummed by `store`, with its relative error;
- ``rest-*.safetensors``, the tensors that stay as they are; the model's small files; configuration and index, by which
  ``from_pretrained`` finds all of this; a README that says how;
- ``checksums.json``, written last: every file's SHA-256. A folder without it is not finished.

The codecs are S-Quant's (Wang et al., ICML 2026, arXiv: none) and SeedLM's (Shafipour et al., arXiv 2410.10714). What
writes the plan and the encoded tensors is `compress`.
"""

import json
import os
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from icml26.errors import Icml26Error
from icml26.paths import write_atomic
from icml26.s_quant import store
from icml26.s_quant.checkpoint import Checkpoint, digest
from icml26.s_quant.config import SeedLMConfig, SQuantConfig

__all__ = ["CHECKSUMS", "FOLDER", "FORMAT", "INDEX", "LOCK", "PLAN", "VERSION", "assemble", "write_json"]

PLAN, CHECKSUMS, FOLDER, INDEX, LOCK = (
    "compress.json",
    "checksums.json",
    "encoded",
    "model.safetensors.index.json",
    ".lock",
)
FORMAT, VERSION = "icml26.s_quant.model", 1
_REST = 1 << 29  # bytes of tensors that stay as they are, per file
_SMALL = {".json", ".txt", ".model", ".jinja"}
_README = """# A model with packed weights

```python
import icml26.s_quant.hf  # registers {method}; without it transformers would leave the packed layers random
from transformers import {model}

model = {model}.from_pretrained("this folder")
```

`icml26 compress --check FOLDER` verifies every file. The codec and its settings are in `compress.json`.
"""


def assemble(
    source: Checkpoint,
    out: Path,
    config: SQuantConfig | SeedLMConfig,
    chosen: list[str],
) -> None:
    """Write everything that is not an encoded tensor, the checksums last.

    Parameters
    ----------
    source
        The model.
    out
        The folder, which holds the encoded tensors.
    config
        The codec's parameters.
    chosen
        Names of the encoded modules in the files.

    Raises
    ------
    Icml26Error
        If a file cannot be written.
    """
    from icml26.s_quant.hf import METHOD, SeedQuantConfig  # imports transformers

    place = {}
    for name in chosen:
        file = f"{FOLDER}/{name}.safetensors"
        ((_, (_, streams)),) = store.read(out / file).items()
        place |= {f"{name}.{stream}": file for stream in streams}
    try:
        place |= _copy_rest(source, out, {f"{name}.weight" for name in chosen})
        for path in sorted(source.folder.iterdir()):
            small = path.suffix in _SMALL or path.name.upper().startswith(("LICENSE", "NOTICE"))
            if small and path.is_file() and path.name not in ("config.json", PLAN, CHECKSUMS, INDEX):
                write_atomic(out / path.name, path.read_bytes())
        model = (source.config.get("architectures") or ["AutoModel"])[0]
        write_atomic(out / "README.md", _README.format(method=METHOD, model=model))
    except OSError as error:
        raise Icml26Error(f"{out} cannot be written: {error.strerror or error}") from error
    left = [*source.left, *(name for key, name in source.names.items() if key not in set(chosen))]
    settings = SeedQuantConfig(config, modules_to_not_convert=left).to_dict()
    # Without a type in the configuration transformers takes the first file's, which may be that of packed bytes.
    write_json(out / "config.json", source.config | {"dtype": source.dtype, "quantization_config": settings})
    sizes = sum((out / file).stat().st_size for file in set(place.values()))
    write_json(out / INDEX, {"metadata": {"total_size": sizes}, "weight_map": dict(sorted(place.items()))})
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.name not in (CHECKSUMS, LOCK))
    sums = {str(path.relative_to(out)): digest(path) for path in files}
    write_json(out / CHECKSUMS, {"format": FORMAT, "version": VERSION, "sha256": sums})


def _copy_rest(source: Checkpoint, out: Path, encoded: set[str]) -> dict[str, str]:
    """Write the other tensors, a bounded number of bytes at a time; returns where each is."""
    place: dict[str, str] = {}
    groups: list[list[str]] = [[]]
    size = 0
    for key, (_, length) in source.tensors.items():
        if key in encoded:
            continue
        if groups[-1] and size + length > _REST:
            groups.append([])
            size = 0
        groups[-1].append(key)
        size += length
    for number, keys in enumerate(filter(None, groups), 1):
        file = f"rest-{number:05d}.safetensors"
        part = out / f".{file}.{os.getpid()}.part"
        try:
            save_file({key: source.read(key) for key in keys}, part, metadata={"format": "pt"})
            part.replace(out / file)
        finally:
            part.unlink(missing_ok=True)
        place |= dict.fromkeys(keys, file)
    return place


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of JSON, whole or not at all.

    Parameters
    ----------
    path
        The file.
    content
        What JSON can hold.

    Raises
    ------
    Icml26Error
        If it cannot be written.
    """
    try:
        write_atomic(path, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise Icml26Error(f"{path} cannot be written: {error.strerror or error}") from error
