"""Where things are: the project's root, the cache folder, and files that appear whole or not at all.

Nothing here depends on the working directory unless the package is installed outside a clone of the book. What lies in
the folders is the business of the modules that put it there.
"""

import os
import secrets
from pathlib import Path

from icml26.errors import ProjectNotFound

__all__ = ["cache", "root", "write_atomic"]


def root() -> Path:
    """Return the project's root: the folder that holds ``_toc.yml`` and ``notebooks/``.

    The environment variable ``ICML26_ROOT`` decides if it is set; otherwise the first such parent of this package, then
    of the working directory.

    Returns
    -------
    Path
        Absolute path.

    Raises
    ------
    ProjectNotFound
        If there is no such folder, or ``ICML26_ROOT`` names one that is not the book's.

    Examples
    --------
    >>> (root() / "notebooks").is_dir()
    True
    """
    chosen = os.environ.get("ICML26_ROOT")
    if chosen:
        folder = Path(chosen).expanduser().resolve()
        if not _is_root(folder):
            raise ProjectNotFound(
                f"ICML26_ROOT={chosen} holds no _toc.yml and notebooks/; set it to a clone of the book or unset it"
            )
        return folder
    for start in (Path(__file__).resolve().parent, Path.cwd().resolve()):
        for folder in (start, *start.parents):
            if _is_root(folder):
                return folder
    raise ProjectNotFound("the book's files were not found; run inside a clone of the book or set ICML26_ROOT to one")


def _is_root(folder: Path) -> bool:
    return (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir()


def cache() -> Path:
    """Return the folder of prepared models and data: ``ICML26_CACHE``, else the user's cache folder.

    Returns
    -------
    Path
        Absolute path; the folder need not exist yet.

    Examples
    --------
    >>> cache().is_absolute()
    True
    """
    chosen = os.environ.get("ICML26_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    import pooch  # slow to import, and needed only here

    return Path(pooch.os_cache("icml26")).resolve()


def write_atomic(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part, even after a kill.

    Parameters
    ----------
    path : path-like
        The file; its folder is created.
    data : str or bytes
        The whole content; a string is encoded as UTF-8 with line ends as they are.

    Raises
    ------
    OSError
        If the folder is not writable or the disk is full; the old file is then untouched.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomic(Path(folder) / "a.txt", "new")
    ...     (Path(folder) / "a.txt").read_text()
    'new'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # open() honours the umask, which tempfile's private mode 0600 would not.
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
