"""The chapters: which there are, what their source imports, which parameters and resources a profile gives them.

It also tells when a result is out of date: the fingerprint is a hash of everything of ours that can change a chapter's
outputs (its source, the `icml26` modules that it imports, directly or not, its claims and its parameters), and of file
contents only, so that file times never matter. The papers are listed by `icml26.papers`, knobs are read by
`icml26.parameters`, chapters run by `icml26.runner`.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml26 import paths
from icml26.errors import InputError, nearest
from icml26.papers import PARTS, papers, resolve, slugs, strict_yaml
from icml26.parameters import Parameter, bound, parameters

__all__ = [
    "PARTS",
    "PROFILES",
    "Parameter",
    "Resources",
    "bind",
    "digests",
    "existing",
    "fingerprint",
    "papers",
    "parameters",
    "profile",
    "read",
    "resolve",
    "resources",
    "slugs",
    "source",
    "sources",
    "title",
]

PROFILES = ("quick", "laptop", "paper")
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Resources:
    """What a chapter needs of a machine: memory in GB, number of GPUs, minutes."""

    memory_gb: float = 4
    gpus: int = 0
    minutes: int = 10


def __getattr__(name: str) -> tuple[str, ...]:
    if name == "SLUGS":  # read when asked for, because the package also works outside a clone of the book
        return slugs()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def existing() -> list[str]:
    """Return the slugs of the chapters that are written, in the papers' order."""
    return [slug for slug in slugs() if source(slug).is_file()]


def source(slug: str) -> Path:
    """Return the path of a chapter's source, whether it exists or not."""
    return paths.root() / "notebooks" / f"{slug}.py"


def read(slug: str) -> str:
    """Return the text of a chapter's source; `InputError` where it is not written."""
    return _text(source(slug))


def title(slug: str) -> str:
    """Return the first heading of a chapter's source."""
    found = re.search(r"^# # (.+)$", read(slug), re.MULTILINE)
    return found[1].strip() if found else slug


def profile(name: str) -> dict[str, dict[str, Any]]:
    """Read a profile.

    Parameters
    ----------
    name : str
        ``quick``, ``laptop`` or ``paper``.

    Returns
    -------
    dict of str to dict
        For each slug in it ``{"parameters": {...}, "resources": {...}}``.

    Raises
    ------
    InputError
        If there is no such profile, or it has a slug or key that nobody knows.
    """
    if name not in PROFILES:
        hint = nearest(name, PROFILES) or f"; use one of {', '.join(PROFILES)}"
        raise InputError(f"no profile is called {name!r}{hint}")
    entries = _yaml(paths.root() / "profiles" / f"{name}.yml") or {}
    known = slugs()
    for slug, entry in entries.items():
        where = f"profiles/{name}.yml: {slug}"
        if slug not in known:
            raise InputError(f"{where} is no chapter{nearest(slug, known)}")
        for key in entry or {}:
            if key not in ("parameters", "resources"):
                raise InputError(f"{where} has {key!r}; only `parameters` and `resources` are known")
        fields = Resources.__dataclass_fields__
        for key in (entry or {}).get("resources") or {}:
            if key not in fields:
                raise InputError(f"{where} has the resource {key!r}{nearest(key, fields)}")
    return {
        slug: {key: (entry or {}).get(key) or {} for key in ("parameters", "resources")}
        for slug, entry in entries.items()
    }


def resources(slug: str, profile_name: str) -> Resources:
    """Return what a chapter needs of a machine at a profile."""
    return Resources(**profile(profile_name).get(slug, {}).get("resources", {}))


def bind(slug: str, profile_name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a chapter's full set of parameters: its defaults, over them the profile's, over them the user's.

    Parameters
    ----------
    slug : str
        A chapter that is written.
    profile_name : str
        ``quick``, ``laptop`` or ``paper``.
    overrides : mapping of str to object, optional
        The user's values.

    Returns
    -------
    dict of str to object
        A value for every knob.

    Raises
    ------
    InputError
        If a parameter is unknown, of the wrong type or out of its range.
    """
    entry = profile(profile_name).get(slug, {}).get("parameters", {})
    layers = ((f"profiles/{profile_name}.yml, {slug}", entry), (slug, overrides or {}))
    return bound(parameters(read(slug)), *layers)


def sources(slug: str) -> list[Path]:
    """Return the files whose content can change a chapter's outputs: source, claims, imported `icml26` modules.

    Parameters
    ----------
    slug : str
        A chapter that is written.

    Returns
    -------
    list of Path
        Absolute paths, in a stable order.

    Raises
    ------
    InputError
        If the chapter is not written.
    """
    notebook = source(slug)
    seen: set[Path] = set()
    waiting = list(_imports(notebook, package=()))
    while waiting:
        parts = waiting.pop()
        for length in range(1, len(parts) + 1):
            file = _module_file(parts[:length])
            if file is not None and file not in seen:
                seen.add(file)
                inside = parts[:length] if file.name == "__init__.py" else parts[: length - 1]
                waiting.extend(_imports(file, package=inside))
    claims = paths.root() / "book" / "claims" / f"{slug}.yml"
    return [notebook, *([claims] if claims.is_file() else []), *sorted(seen)]


def _imports(file: Path, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the dotted names that a file imports from this package, its functions' own imports among them."""
    try:
        tree = ast.parse(_text(file))
    except SyntaxError:
        return  # executing the chapter will say so; until then only the file's own text counts
    for node in ast.walk(tree):
        names: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple((node.module or "").split(".")) if node.module else ()
            names = [(*base, alias.name) for alias in node.names]
        yield from (name for name in names if name[0] == "icml26")


def _module_file(parts: tuple[str, ...]) -> Path | None:
    stem = _PACKAGE.joinpath(*parts[1:])
    for file in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
        if file.is_file():
            return file
    return None  # a name inside a module


def digests(slug: str) -> dict[str, str]:
    """Return the sha256 of each of a chapter's sources by its path in the project."""
    return {_name(file): hashlib.sha256(_text(file).encode()).hexdigest() for file in sources(slug)}


def fingerprint(slug: str, profile_name: str, overrides: Mapping[str, Any] | None = None) -> str:
    """Return a hash of everything of ours that can change a chapter's outputs.

    Parameters
    ----------
    slug : str
        A chapter that is written.
    profile_name : str
        ``quick``, ``laptop`` or ``paper``.
    overrides : mapping of str to object, optional
        The user's values.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    InputError
        As `bind` and `sources`.
    """
    # The profile's name counts because the ledger judges differently at the paper's setting.
    known = [bind(slug, profile_name, overrides), digests(slug), profile_name == "paper" and not overrides]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _name(file: Path) -> str:
    if file.is_relative_to(_PACKAGE):
        return f"lib/icml26/{file.relative_to(_PACKAGE).as_posix()}"
    return file.relative_to(paths.root()).as_posix()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if file.parent.name == "notebooks":
            written = ", ".join(existing()) or "none"
            raise InputError(f"chapter {file.stem} is not written yet; written: {written}") from None
        raise InputError(f"{_name(file)} does not exist") from None


def _yaml(file: Path) -> Any:
    return strict_yaml(_text(file), _name(file))
