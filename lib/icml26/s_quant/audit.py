"""Verify a compressed model's folder, file by file, and say what is stored in how many bits and with what error.

Of S-Quant (Wang et al., ICML 2026, arXiv: none) the bits of Eq. 13 and the counts that it leaves out are told apart;
SeedLM (Shafipour et al., arXiv 2410.10714) has one stream. The folder's layout is described in `assemble`, which
`compress` uses to write it.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from icml26.errors import InputError
from icml26.s_quant import codec, store
from icml26.s_quant.assemble import CHECKSUMS, FOLDER, FORMAT, VERSION
from icml26.s_quant.checkpoint import Checkpoint, digest
from icml26.s_quant.compress import read_plan
from icml26.s_quant.encoded import Encoded, SeedLMEncoded

__all__ = ["Audit", "Row", "audit"]

_KINDS = {kind.codec: kind for kind in (Encoded, SeedLMEncoded)}


@dataclass(frozen=True)
class Row:
    """One encoded tensor.

    Parameters
    ----------
    name
        Its module's name in the files.
    shape
        Rows and columns.
    streams
        Bytes of each stream.
    bits
        Bits per weight, counts included.
    bits_without_counts
        The same by Eq. 13.
    error
        Relative error, ``|decoded - weight| / |weight|``, as it was when the tensor was encoded.
    measured
        The same against the original model, if that was given.
    """

    name: str
    shape: tuple[int, int]
    streams: dict[str, int]
    bits: float
    bits_without_counts: float
    error: float
    measured: float | None

    @property
    def weights(self) -> int:
        """How many weights it has."""
        return self.shape[0] * self.shape[1]


@dataclass
class Audit:
    """What `audit` found.

    Parameters
    ----------
    rows
        The sound tensors.
    problems
        What is wrong, one line each.
    sizes
        Bytes of the folder: each stream, ``"headers"`` of the encoded files, ``"rest"`` for tensors that stay as they
        are, ``"other"`` files.
    """

    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)

    @property
    def weights(self) -> int:
        """Encoded weights."""
        return sum(row.weights for row in self.rows)

    def mean_bits(self, counts: bool = True) -> float:
        """Bits per encoded weight over all sound tensors, with the counts or by Eq. 13; NaN if there are none."""
        bits = sum(row.weights * (row.bits if counts else row.bits_without_counts) for row in self.rows)
        return bits / self.weights if self.rows else float("nan")


def audit(
    out: Path, original: Checkpoint | None = None, progress: Callable[[str, int, int], None] | None = None
) -> Audit:
    """Verify the checksum of every file in a folder that `compress` wrote.

    Parameters
    ----------
    out
        The folder.
    original
        The model that it was made from, to measure the errors again.
    progress
        Called with the file in work, how many are done and how many there are.

    Returns
    -------
    Audit
        Sound tensors, sizes, and problems: a file that is missing, damaged or does not belong there, or a run that has
        not finished.

    Raises
    ------
    InputError
        If the folder is none of `compress`, or the model given is not the one it was made from.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from icml26.s_quant.compress import compress
    >>> from icml26.s_quant.presets import preset
    >>> with TemporaryDirectory() as folder:
    ...     done = compress("tiny-random-llama", Path(folder), preset("seedlm", register_bits=6))
    ...     found = audit(Path(folder))
    >>> found.problems, len(found.rows), found.mean_bits()
    ([], 14, 2.75)
    """
    plan = read_plan(out)
    if original is not None:
        sums = original.fingerprint()
        changed = next((name for name in sums if plan["source"].get(name) != sums[name]), None)
        if changed:
            raise InputError(f"{out} was not made from {original.folder}: its {changed} is another; give the right one")
    found = Audit()
    sums = _checksums(out, plan, found)
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    files = [name for name in files if name != CHECKSUMS and not Path(name).name.startswith(".")]
    for name in sorted(sums.keys() - set(files)):
        found.problems.append(f"{out / name} is missing: {_remedy(name)}")
    for number, name in enumerate(files):
        if progress:
            progress(name, number, len(files))
        if name not in sums:
            if sums:
                found.problems.append(f"{out / name} does not belong to this model: remove it")
            continue
        if digest(out / name) != sums[name]:
            found.problems.append(f"{out / name} is damaged (checksum): {_remedy(name)}")
            continue
        size = (out / name).stat().st_size
        if name.startswith(f"{FOLDER}/"):
            row = _row(out / name, original, found)
            if row is not None:
                found.rows.append(row)
                found.sizes.update(row.streams)
                found.sizes["headers"] += size - sum(row.streams.values())
        else:
            found.sizes["rest" if name.startswith("rest-") else "other"] += size
    return found


def _remedy(name: str) -> str:
    return "run the same compress command again" if name.startswith(f"{FOLDER}/") else "copy the folder again"


def _checksums(out: Path, plan: dict, found: Audit) -> dict[str, str]:
    path = out / CHECKSUMS
    if not path.exists():
        done = sum((out / FOLDER / f"{name}.safetensors").is_file() for name in plan["tensors"])
        of = f"{done} of {len(plan['tensors'])} tensors are encoded"
        found.problems.append(f"{out} is not finished, {of}: run the same compress command again")
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sums = dict(content["sha256"])
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(content["version"])
    except (OSError, ValueError, KeyError, TypeError):
        found.problems.append(f"{path} is damaged: run the same compress command again")
        return {}
    return sums


def _row(path: Path, original: Checkpoint | None, found: Audit) -> Row | None:
    try:
        ((name, (header, streams)),) = store.read(path).items()
        encoded = _KINDS[header["codec"]].from_streams(header, streams)
        error = float(header["relative_error"])
    except (InputError, KeyError, TypeError, ValueError) as problem:
        found.problems.append(f"{path} is not consistent ({problem}): {_remedy(f'{FOLDER}/')}")
        return None
    measured = None
    if original is not None:
        weight = original.read_linear(name).double()
        wrong = torch.linalg.vector_norm(codec.decode(encoded).double() - weight)
        measured = (wrong / torch.linalg.vector_norm(weight)).item() if weight.any() else 0.0
    sizes = {stream: data.size for stream, data in streams.items() if data.size}
    return Row(
        name=name,
        shape=encoded.shape,
        streams=sizes,
        bits=encoded.bits_per_weight(),
        bits_without_counts=encoded.bits_per_weight(counts=False),
        error=error,
        measured=measured,
    )
