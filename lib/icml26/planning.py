"""What a batch has to run: the chapters whose results are not those of the files as they are.

A result is out of date when its fingerprint differs; file times never count. Running is `icml26.batch`'s business.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml26 import chapters
from icml26.errors import InputError
from icml26.runner import read_result, run_folder

__all__ = ["Batch", "Status", "outdated", "plan"]


@dataclass
class Status:
    """Where one chapter of a batch stands.

    Parameters
    ----------
    slug : str
        The chapter.
    why : str
        Why it has to run; empty where its result is up to date.
    state : str
        ``unchanged``, ``waiting``, ``running``, ``finished`` or ``failed``.
    cell, cells : int
        The code cell that runs, and their count.
    seconds : float or None
        How long it took, or has been running.
    message : str
        What failed, in one line.
    result : dict or None
        The result, once there is one.
    """

    slug: str
    why: str
    state: str
    cell: int = 0
    cells: int = 0
    seconds: float | None = None
    message: str = ""
    result: dict[str, Any] | None = None


@dataclass
class Batch:
    """All chapters of a batch, and remarks on the run as a whole."""

    profile: str
    chapters: list[Status]
    notes: list[str] = field(default_factory=list)

    def waiting(self) -> list[Status]:
        """The chapters that have to run."""
        return [status for status in self.chapters if status.why]

    def failed(self) -> list[Status]:
        """The chapters that failed."""
        return [status for status in self.chapters if status.state == "failed"]


def outdated(slug: str, profile: str, folder: Path | None = None) -> str:
    """Say why a chapter's result must be made anew, or nothing.

    Parameters
    ----------
    slug : str
        A chapter that is written.
    profile : str
        ``quick``, ``laptop`` or ``paper``.
    folder : Path, optional
        Where the result lies, if not in ``_run/PROFILE``.

    Returns
    -------
    str
        A reason in words; empty where notebook and result are those of the files as they are.

    Raises
    ------
    InputError
        If the chapter's parameters are wrong.
    """
    folder = run_folder(profile) if folder is None else folder
    now = chapters.fingerprint(slug, profile)
    if not (folder / f"{slug}.json").is_file() or not (folder / f"{slug}.ipynb").is_file():
        return "no result yet"
    try:
        result = read_result(folder / f"{slug}.json")
    except InputError:
        return "its result is damaged"
    if result["fingerprint"] == now:
        return ""
    if result.get("overrides"):
        return "its result has parameters set by hand"
    old, new = result.get("sources", {}), chapters.digests(slug)
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return f"{', '.join(changed)} changed" if changed else "its parameters changed"


def plan(profile: str, names: Iterable[str] = ()) -> Batch:
    """Find what a batch has to run.

    Parameters
    ----------
    profile : str
        ``quick``, ``laptop`` or ``paper``.
    names : iterable of str
        Chapters as `icml26.chapters.resolve` takes them; none means all that are written.

    Returns
    -------
    Batch
        Its chapters are ``unchanged`` or ``waiting``.

    Raises
    ------
    InputError
        If a name, the profile or a parameter is wrong, or a chapter is not written.
    """
    written = chapters.existing()
    slugs = list(dict.fromkeys(chapters.resolve(name) for name in names)) or written
    if missing := [slug for slug in slugs if slug not in written]:
        raise InputError(f"not written yet: {', '.join(missing)}; written are {', '.join(written)}")
    found = []
    for slug in slugs:
        why = outdated(slug, profile)
        result = None if why else read_result(run_folder(profile) / f"{slug}.json")
        found.append(Status(slug, why, "waiting" if why else "unchanged", result=result))
    return Batch(profile, found)
