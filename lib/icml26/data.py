"""Real data files by short name: found on this machine, verified, and downloaded only when asked to.

``path("azure-conv")`` returns a file of the registry (`data_registry.yml`), from the folder that ``ICML26_DATA`` names
or from the cache; `get` downloads it with pooch from its repository, pinned at a commit. Every file is compared with
its SHA-256. What the files mean, and reading them, is left to the modules that use them.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import yaml

from icml26 import paths
from icml26.errors import Icml26Error, InputError, MissingData, nearest

__all__ = ["DataFile", "Status", "available", "get", "path", "registry", "status"]

HOST = "https://raw.githubusercontent.com"
TIMEOUT = 60  # seconds without an answer


@dataclass(frozen=True)
class DataFile:
    """A file of a public repository.

    Attributes
    ----------
    name : str
        Short name.
    repository, commit, path : str
        ``owner/repository``, full commit hash, path inside.
    bytes, sha256 : int, str
        Size and SHA-256.
    licence, what : str
        Licence; content in one line.
    """

    name: str
    repository: str
    commit: str
    path: str
    bytes: int
    sha256: str
    licence: str
    what: str

    @property
    def relative(self) -> str:
        """Path of the file inside the cache and inside ``ICML26_DATA``."""
        return f"{self.repository}/{self.path}"

    @property
    def url(self) -> str:
        """Address of exactly these bytes."""
        return f"{HOST}/{self.repository}/{self.commit}/{self.path}"


class Status(NamedTuple):
    """One row of `status`: a registered file on this machine.

    Attributes
    ----------
    name, licence, what : str
        As in the registry.
    size : int
        Bytes of the file.
    ready : bool
        Whether `path` will find it.
    where : str
        The file, or what is wrong and the command that helps.
    """

    name: str
    size: int
    licence: str
    ready: bool
    where: str
    what: str


@lru_cache(maxsize=1)
def registry() -> MappingProxyType[str, DataFile]:
    """Return all registered files by short name (read-only).

    Examples
    --------
    >>> registry()["gsm8k-test"].licence
    'MIT'
    """
    text = Path(__file__).with_name("data_registry.yml").read_text(encoding="utf-8")
    return MappingProxyType({name: DataFile(name=name, **entry) for name, entry in yaml.safe_load(text).items()})


def path(name: str) -> Path:
    """Find a data file on this machine; nothing is ever downloaded.

    Parameters
    ----------
    name : str
        A name of `registry`, for example ``"function-vectors/antonym"``.

    Returns
    -------
    Path
        The verified file.

    Raises
    ------
    MissingData
        If the file is neither in ``ICML26_DATA`` nor in the cache; the message names both ways to have it.
    InputError
        If the name is unknown or the file's content is not the registered one.

    Examples
    --------
    >>> path("gsm8k")
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: unknown data file 'gsm8k'; did you mean 'gsm8k-test'?; `icml26 data` lists all names
    """
    file = _entry(name)
    found = _find(file)
    if found is None:
        now = os.environ.get("ICML26_DATA")
        raise MissingData(
            f"data file {name} is not on this machine; run `icml26 data get {name}`, or set ICML26_DATA to a folder "
            f"that holds {file.relative}{f' (it is now {now})' if now else ''}"
        )
    if _sha256(found) != file.sha256:
        kept = found.is_relative_to(_cache())
        remedy = f"run `icml26 data get {name}` to replace it" if kept else "replace it or unset ICML26_DATA"
        raise InputError(f"{found} is not the registered {name} (its SHA-256 differs); {remedy}")
    return found


def available(name: str) -> bool:
    """Tell whether `path` finds a file, for chapters whose real data is optional.

    Parameters
    ----------
    name : str
        A name of `registry`.

    Returns
    -------
    bool

    Raises
    ------
    InputError
        If the name is unknown, or a file is there but damaged: that is never a reason to use a stand-in silently.

    Examples
    --------
    >>> available("nsq")
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: unknown data file 'nsq'; did you mean 'nqs'?; `icml26 data` lists all names
    """
    try:
        path(name)
    except MissingData:
        return False
    return True


def get(name: str, progress: Callable[[str], None] | None = None) -> Path:
    """Have a data file on this machine: as `path` finds it, else downloaded into the cache and verified.

    Parameters
    ----------
    name : str
        A name of `registry`.
    progress : callable, optional
        Called with one line of text at each step.

    Returns
    -------
    Path
        The verified file.

    Raises
    ------
    MissingData
        If the download fails.
    Icml26Error
        If the downloaded content is not the registered one, or the cache cannot be written.
    InputError
        If the name is unknown, or the copy in ``ICML26_DATA`` is not the registered file.

    Examples
    --------
    >>> get("nqs", print)  # doctest: +SKIP
    nqs: downloading 9 kB from https://raw.githubusercontent.com/chuningxdy/Noisy-Quadratic-System/...
    """
    say = progress or (lambda line: None)
    file = _entry(name)
    found = _find(file)
    if found and (not found.is_relative_to(_cache()) or _sha256(found) == file.sha256):
        say(f"{name}: ready in {path(name)}")
        return found
    say(f"{name}: downloading {file.bytes / 1e3:,.0f} kB from {file.url}")
    target = _download(file)
    say(f"{name}: ready in {target}")
    return target


def status() -> list[Status]:
    """List the registered files: size, licence, and where each is or what is missing.

    Returns
    -------
    list of Status

    Examples
    --------
    >>> status()[0].name
    'azure-conv'
    """
    rows = []
    for file in registry().values():
        try:
            where, ready = str(path(file.name)), True
        except InputError as error:
            where, ready = str(error), False
        rows.append(Status(file.name, file.bytes, file.licence, ready, where, file.what))
    return rows


def _entry(name: str) -> DataFile:
    if name not in registry():
        raise InputError(f"unknown data file {name!r}{nearest(name, registry())}; `icml26 data` lists all names")
    return registry()[name]


def _cache() -> Path:
    return paths.cache() / "data"


def _find(file: DataFile) -> Path | None:
    chosen = os.environ.get("ICML26_DATA")
    folders = [Path(chosen).expanduser().resolve()] if chosen else []
    for folder in (*folders, _cache()):
        if (folder / file.relative).is_file():
            return folder / file.relative
    return None


def _download(file: DataFile) -> Path:
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    target = _cache() / file.relative
    try:
        # pooch downloads to a temporary file beside the target, verifies it and renames it.
        pooch.retrieve(
            file.url,
            known_hash=f"sha256:{file.sha256}",
            fname=target.name,
            path=target.parent,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT),
        )
    except requests.RequestException as error:
        reason = str(error).splitlines()[0]
        raise MissingData(
            f"data file {file.name} could not be downloaded: {reason}; try again, or set ICML26_DATA to a folder that "
            f"holds {file.relative}"
        ) from error
    except OSError as error:
        raise Icml26Error(
            f"data file {file.name} could not be written to {target.parent}: {error.strerror or error}; make room or "
            f"set ICML26_CACHE to another folder"
        ) from error
    except ValueError as error:  # what pooch raises for a wrong hash
        raise Icml26Error(
            f"the download of data file {file.name} is not the registered file (its SHA-256 differs); try again, or "
            f"set ICML26_DATA to a folder that holds {file.relative}"
        ) from error
    return target


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
