"""A new chapter's files: a skeleton that runs and keeps the contract, its content aside.

Files are written all or none. What the contract asks is in the book's page "Extend the book" and in the tests; which
papers there are is known to `icml26.chapters`.
"""

import textwrap
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import yaml

from icml26 import chapters, paths
from icml26.errors import InputError

__all__ = ["new", "toc_with"]

_WIDTH = 120  # of a line, as in pyproject.toml
_RESOURCES = "{memory_gb: 4, gpus: 0, minutes: 5}"


def new(name: str) -> list[Path]:
    """Write the skeleton of a chapter.

    Parameters
    ----------
    name : str
        A paper that has no chapter yet, as `icml26.chapters.resolve` takes it.

    Returns
    -------
    list of Path
        The files written or changed: source, module, claims, test, profiles, table of contents.

    Raises
    ------
    InputError
        If the paper is unknown or any of its files exists; nothing has been written then.
    """
    slug = chapters.resolve(name)
    root = paths.root()
    paper = next(paper for paper in chapters.papers() if paper["slug"] == slug)
    module = slug.partition("_")[2]
    library = root / "lib" / "icml26"
    created = {
        root / "notebooks" / f"{slug}.py": "chapter.py.txt",
        root / "book" / "claims" / f"{slug}.yml": "claims.yml.txt",
        library / f"{module}.py": "module.py.txt",
        root / "tests" / f"test_{module}.py": "test.py.txt",
    }
    if taken := [path for path in (*created, library / module) if path.exists()]:
        raise InputError(f"{slug}: {taken[0].relative_to(root)} exists already; remove it or work on it as it is")
    fields = {
        "slug": slug,
        "module": module,
        "short": paper["short"],
        "title": paper["title"],
        "byline": _byline(paper),
        "byline_in_comment": _byline(paper, "# "),
    }
    folder = resources.files("icml26") / "templates"
    texts = {
        path: Template((folder / file).read_text(encoding="utf-8")).substitute(fields) for path, file in created.items()
    }
    texts |= {
        path: _profile_with(path, slug, "{data: stand-in}" if path.stem == "quick" else "{}")
        for path in (root / "profiles" / f"{profile}.yml" for profile in chapters.PROFILES)
    }
    toc = root / "_toc.yml"
    texts[toc] = toc_with(toc.read_text(encoding="utf-8"), paper["part"], f"book/chapters/{slug}")
    _write_all(texts)
    return list(texts)


def _byline(paper: dict[str, Any], prefix: str = "") -> str:
    """Return who wrote a paper, what and where, in lines as long as the project's formatter allows."""
    authors = ", ".join(paper["authors"] or []) or "Authors not known to us"
    arxiv = f", [arXiv:{paper['arxiv']}](https://arxiv.org/abs/{paper['arxiv']})" if paper["arxiv"] else ""
    line = f"{authors}. *{paper['title']}*, {paper['venue']}{arxiv}."
    lines = textwrap.wrap(line, _WIDTH - len(prefix), break_long_words=False, break_on_hyphens=False)
    return "\n".join(prefix + line for line in lines)


def _profile_with(path: Path, slug: str, parameters: str) -> str:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    before = yaml.safe_load(text) or {}
    if slug in before:
        raise InputError(f"profiles/{path.name} has an entry {slug} already; remove it first")
    gap = "" if not text or text.endswith("\n") else "\n"
    after = f"{text}{gap}{slug}:\n  parameters: {parameters}\n  resources: {_RESOURCES}\n"
    _same(
        after,
        before | {slug: {"parameters": yaml.safe_load(parameters), "resources": yaml.safe_load(_RESOURCES)}},
        path,
    )
    return after


def toc_with(text: str, part: str, page: str) -> str:
    """Add a page to a part of a table of contents, and the part where it is missing; all other lines stay as they are.

    Parameters
    ----------
    text : str
        A ``_toc.yml`` with parts, each an item ``- caption: ...`` with ``chapters:``.
    part : str
        The part's caption, one of `icml26.chapters.PARTS`.
    page : str
        The page, without suffix; it comes last in its part.

    Returns
    -------
    str
        The new table of contents.

    Raises
    ------
    InputError
        If the file is not written in that form.

    Examples
    --------
    >>> print(toc_with("parts:\\n  - caption: Training\\n    chapters:\\n      - file: a\\n", "Training", "b"))
    parts:
      - caption: Training
        chapters:
          - file: a
          - file: b
    <BLANKLINE>
    """
    toc = yaml.safe_load(text)
    captions = [entry["caption"] for entry in toc["parts"]]
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.lstrip().startswith("- caption:")]
    if len(starts) != len(captions):
        raise InputError("_toc.yml: begin every part with its `- caption:`, so that a chapter can be added")
    ends = [*starts[1:], len(lines)]
    entry = f"      - file: {page}"
    if part in captions:
        at = ends[captions.index(part)]
        lines[at:at] = [entry]
        toc["parts"][captions.index(part)]["chapters"].append({"file": page})
    else:
        order = chapters.PARTS
        later = [
            n for n, caption in enumerate(captions) if caption in order and order.index(caption) > order.index(part)
        ]
        earlier = [
            n for n, caption in enumerate(captions) if caption in order and order.index(caption) < order.index(part)
        ]
        index = later[0] if later else earlier[-1] + 1 if earlier else len(captions)
        at = starts[index] if index < len(starts) else len(lines)
        lines[at:at] = [f"  - caption: {part}", "    chapters:", entry]
        toc["parts"].insert(index, {"caption": part, "chapters": [{"file": page}]})
    after = "\n".join(lines) + "\n"
    _same(after, toc, Path("_toc.yml"))
    return after


def _same(text: str, expected: Any, path: Path) -> None:
    try:
        same = yaml.safe_load(text) == expected
    except yaml.YAMLError:
        same = False
    if not same:
        raise InputError(f"{path.name} is written in a form that cannot be added to; use block style, one entry a line")


def _write_all(texts: dict[Path, str]) -> None:
    before = {path: path.read_text(encoding="utf-8") if path.exists() else None for path in texts}
    try:
        for path, text in texts.items():
            paths.write_atomic(path, text)
    except BaseException:
        for path, text in before.items():
            if text is None:
                path.unlink(missing_ok=True)
            elif path.read_text(encoding="utf-8") != text:
                paths.write_atomic(path, text)
        raise
