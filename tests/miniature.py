"""A miniature project for tests: chapters of a few lines that take a kernel's start and no more."""

import json
import os
import shutil
import textwrap
from pathlib import Path

import icml26
from icml26 import papers

REPOSITORY = Path(icml26.__file__).resolve().parents[2]

CLAIMS = """\
claims:
  - id: Q1
    statement: One and one is two.
    paper: {value: null, text: "proved", setting: "any"}
    test: the sum
    rule: {kind: exact}
    scale: paper
  - id: Q2
    statement: The sum grows with its terms.
    paper: {value: null, text: "it grows", setting: "any"}
    test: the difference of two sums
    rule: {kind: difference, direction: above, null: 0}
    scale: small numbers stand in for large ones
"""

CHAPTER = """\
# %% [markdown]
# # The sum called {slug}

# %% tags=["parameters"]
seed: int = 0  # root of all random numbers [number; 0..999]
term: float = 1.0  # what is added to one [units; 0..10]
word: str = "plain"  # how it is said [name; plain | fancy]
widths: list[int] = [1, 2]  # widths to try [columns; 1..64]
check: bool = True  # whether to check [switch]

# %%
{imports}
from icml26.claims import Ledger

# %%
{body}
print("sum", 1 + term)

# %%
ledger = Ledger("{slug}")
ledger.judge("Q1", exact=1 + 1 == 2)
ledger.skip("Q2", reason="too large", needs="a larger machine")
ledger.close()
"""


TOC = """\
# How the parts are ordered.
format: jb-book
root: book/index
parts:
  - caption: Start here
    chapters:
      - file: book/how_to_read
  - caption: Compression
    chapters:
      - file: book/chapters/15_s_quant
  - caption: Reference
    chapters:
      - file: book/extend
"""


def project(folder: Path, chapters: dict[str, dict[str, str]]) -> Path:
    """Make a project with its own copy of the package; `chapters` gives `imports` and `body` by slug."""
    folder.mkdir(parents=True, exist_ok=True)
    # Tests give these papers' names to packages of their own.
    others = {slug.partition("_")[2] for slug in papers.slugs()} - {"s_quant"}
    shutil.copytree(
        REPOSITORY / "lib" / "icml26", folder / "lib" / "icml26", ignore=shutil.ignore_patterns("__pycache__", *others)
    )
    shutil.copytree(REPOSITORY / "workflow", folder / "workflow")
    for name in ("notebooks", "book/claims", "profiles"):
        (folder / name).mkdir(parents=True)
    shutil.copy(REPOSITORY / "book" / "papers.yml", folder / "book" / "papers.yml")
    (folder / "_toc.yml").write_text(TOC)
    for profile in ("quick", "laptop", "paper"):
        (folder / "profiles" / f"{profile}.yml").write_text(
            "".join(f"{slug}:\n  parameters: {{}}\n" for slug in chapters)
        )
    for slug, text in chapters.items():
        chapter(folder, slug, **text)
    return folder


def chapter(folder: Path, slug: str, imports: str = "import math", body: str = "pass") -> Path:
    """Write a chapter's source and claims."""
    source = folder / "notebooks" / f"{slug}.py"
    text = CHAPTER.format(slug=slug, imports=textwrap.dedent(imports), body=textwrap.dedent(body).strip())
    source.write_text(text)
    (folder / "book" / "claims" / f"{slug}.yml").write_text(CLAIMS)
    return source


def pretend_run(folder: Path, slug: str, profile: str, **more: object) -> Path:
    """Write a result and its notebook as a run of the files as they are would, without running anything."""
    from icml26 import chapters
    from icml26.claims import Ledger

    ledger = Ledger(slug, path=folder / "book" / "claims" / f"{slug}.yml")
    ledger.judge("Q1", exact=True)
    ledger.judge("Q2", value=0.2, interval=(0.1, 0.3))
    stamp = {"chapter": slug, "profile": profile, "fingerprint": chapters.fingerprint(slug, profile)}
    result = stamp | {"data": "real", "claims": ledger.close().rows(), "overrides": {}} | more
    out = folder / "_run" / profile
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{slug}.json").write_text(json.dumps(result))
    notebook = {"cells": [], "metadata": {"icml26": stamp}, "nbformat": 4, "nbformat_minor": 5}
    (out / f"{slug}.ipynb").write_text(json.dumps(notebook))
    return out / f"{slug}.json"


def environment(folder: Path) -> dict[str, str]:
    """The environment in which the project's own package and files are used, from whatever folder."""
    return os.environ | {
        "PYTHONPATH": str(folder / "lib"),
        "ICML26_ROOT": str(folder),
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
