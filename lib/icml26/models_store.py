"""Where packaged models lie: their files inside installed packages, and the cache of converted ones.

Knows how a model's file is found without importing the package that carries it, how it is verified (SHA-256), and how a
GGUF file becomes a folder of fp32 safetensors that appears in the cache whole or not at all, however many processes try
at once. Which models there are, and loading them, is `icml26.models`' business.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any

from icml26 import paths
from icml26.errors import Icml26Error, MissingModel
from icml26.models_registry import ModelInfo

__all__ = ["cached", "convert", "entry_problem", "package_files", "verify"]

FORMAT = 1  # of a cache entry; a change of the conversion makes old entries stale
RECORD = "source.json"
MARGIN = 64 * 2**20  # bytes of free space beyond the estimate
ABANDONED = 3600  # seconds after which a part that a killed process left is swept away

Say = Callable[[str], None]


def cached(info: ModelInfo) -> Path:
    """Return the cache folder of a converted model, whether it exists or not."""
    return paths.cache() / "models" / info.name


def package_files(info: ModelInfo) -> list[Path]:
    """Find a model's parts in the installed packages without importing them.

    Raises
    ------
    MissingModel
        If a package is absent or incomplete, or the parts' total size is wrong.
    """
    found = []
    for distribution, path in info.files:
        try:
            file = Path(str(metadata.distribution(distribution).locate_file(path)))
        except metadata.PackageNotFoundError:
            raise MissingModel(
                f"{info.name}: package {distribution} is not installed; run `{info.install}`, then `{info.get}`"
            ) from None
        if not file.is_file():
            raise _damaged(info, f"{file} is missing")
        found.append(file)
    size = sum(file.stat().st_size for file in found)
    if size != info.size:
        raise _damaged(info, f"{found[0]} has {size:,} bytes where {info.size:,} are expected")
    return found


def verify(info: ModelInfo) -> list[Path]:
    """Find a model's parts and compare their SHA-256 with the registry's.

    Raises
    ------
    MissingModel
        As `package_files`, or if the content differs.
    """
    found = package_files(info)
    digest = hashlib.sha256()
    for file in found:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    if digest.hexdigest() != info.sha256:
        raise _damaged(info, f"{found[0]} is not the expected file (its SHA-256 is {digest.hexdigest()[:12]}...)")
    return found


def _damaged(info: ModelInfo, what: str) -> MissingModel:
    repair = info.install.replace("install", "install --force-reinstall", 1)
    return MissingModel(f"{info.name}: {what}; reinstall it with `{repair}`, then run `{info.get}`")


def entry_problem(info: ModelInfo, *, full: bool) -> str | None:
    """Say what is wrong with a model's cache entry, or return None.

    Parameters
    ----------
    info : ModelInfo
        A model that converts.
    full : bool
        Hash every file; otherwise only presence, sizes and origin are compared.
    """
    folder = cached(info)
    if not folder.is_dir():
        return "has not been prepared"
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        origin = (record["format"], record["source"]["sha256"])
        files = {folder / name: (entry["bytes"], entry["sha256"]) for name, entry in record["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"has a damaged cache entry ({folder / RECORD} is not readable)"
    if origin != (FORMAT, info.sha256):
        return f"has an outdated cache entry in {folder}"
    for file, (size, sha256) in files.items():
        if not file.is_file() or file.stat().st_size != size or (full and _sha256(file) != sha256):
            return f"has a damaged cache entry ({file})"
    return None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def convert(info: ModelInfo, say: Say) -> Path:
    """Convert a verified GGUF file into a folder of fp32 safetensors and its tokenizer, and publish it in the cache.

    Parameters
    ----------
    info : ModelInfo
        A model that converts.
    say : callable
        Takes one line of progress.

    Returns
    -------
    Path
        The cache folder. If another process published it first, its result is kept.

    Raises
    ------
    MissingModel
        If the package is absent or damaged.
    Icml26Error
        If the cache cannot be written, for example because the disk is full. Nothing half-written stays.
    """
    say(f"{info.name}: checking {info.package}")
    parts = verify(info)
    if util.find_spec("accelerate") is None:
        raise MissingModel(f"{info.name}: conversion needs accelerate; run `pip install accelerate`, then `{info.get}`")
    target = cached(info)
    part = target.with_name(f".{info.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with _disk_errors(info, target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            _sweep(target)
            _check_space(info, target.parent)
            part.mkdir()
            source = parts[0] if len(parts) == 1 else _join(parts, part / "source.gguf")
        say(f"{info.name}: reading {info.size / 1e6:,.0f} MB of blocks (up to a few minutes)")
        with _silence():
            model, tokenizer = _read_gguf(source)
        say(f"{info.name}: writing {info.disk / 1e6:,.0f} MB to {target}")
        with _disk_errors(info, target.parent):
            if len(parts) > 1:
                source.unlink()
            with _silence():
                model.save_pretrained(part)
                tokenizer.save_pretrained(part)
            _record(info, part)
            _publish(info, part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _join(parts: list[Path], target: Path) -> Path:
    with target.open("wb") as whole:
        for file in parts:
            with file.open("rb") as stream:
                shutil.copyfileobj(stream, whole, 1 << 20)
    return target


def _read_gguf(source: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name, "local_files_only": True}
    quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, device_map="cpu")
    # The loaded model remembers its quantiser and refuses to be saved; a fresh one of the same shape does not.
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(**where), dtype=torch.float32)
    model.load_state_dict(quantised.state_dict(), strict=True)
    model.generation_config = quantised.generation_config
    return model, AutoTokenizer.from_pretrained(**where)


def _record(info: ModelInfo, part: Path) -> None:
    libraries = ("torch", "transformers", "gguf", "safetensors", "tokenizers")
    record = {
        "format": FORMAT,
        "name": info.name,
        "source": {"package": info.package, "bytes": info.size, "sha256": info.sha256, "licence": info.licence},
        "versions": {library: metadata.version(library) for library in libraries},
        "files": {
            file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(part.iterdir())
        },
    }
    (part / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    mode = (part / RECORD).stat().st_mode  # as the umask allows: safetensors makes its files private
    for file in part.iterdir():
        file.chmod(mode)


def _publish(info: ModelInfo, part: Path, target: Path) -> None:
    """Rename `part` to `target`; a sound entry that is already there stays, a damaged one makes way."""
    while True:
        try:
            part.rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if entry_problem(info, full=True) is None:
            return
        if not target.is_dir():  # moved away by another process, which is about to publish: who is first wins
            continue
        stale = target.with_name(f".{info.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
        with contextlib.suppress(FileNotFoundError):  # another process may have moved it just now
            target.rename(stale)
        shutil.rmtree(stale, ignore_errors=True)


def _sweep(target: Path) -> None:
    for left in target.parent.glob(f".{target.name}.*.part"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left, ignore_errors=True)


def _check_space(info: ModelInfo, folder: Path) -> None:
    needed = info.disk + MARGIN + (info.size if len(info.files) > 1 else 0)
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:,.0f} MB are needed")


@contextlib.contextmanager
def _disk_errors(info: ModelInfo, folder: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or "os error 28" in str(error)
        reason = "the disk is full" if full else str(error).splitlines()[0]
        raise Icml26Error(
            f"{info.name} could not be written to {folder}: {reason}; free about "
            f"{(info.disk + info.size + MARGIN) / 1e6:,.0f} MB there or set ICML26_CACHE to another folder, "
            f"then run `{info.get}`"
        ) from error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    # transformers draws its GGUF progress bar with plain tqdm, which only listens to the stream.
    with contextlib.redirect_stderr(io.StringIO()):
        yield
