"""A small book with one executed chapter, which exercises every mechanism that real chapters use."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from icml26 import paths

HERE = Path(__file__).parent
SLUG = "99_sample"


def executed_sample() -> Any:
    """The sample chapter, executed as a run would execute it."""
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(HERE / "sample.py")
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return notebook


def make_small_book(root: Path) -> Path:
    """Lay out a project with the real settings, style and extension, but one page of prose and one chapter."""
    import nbformat

    project = paths.root()
    for name in ("_config.yml", "book/_static", "book/_ext", "book/references.bib", "lib/icml26/errors.py"):
        origin, copy = project / name, root / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            shutil.copytree(origin, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, copy)
    chapters = [{"file": f"book/chapters/{SLUG}"}, {"file": "book/bibliography"}]
    toc = {"format": "jb-book", "root": "book/index", "parts": [{"caption": "Samples", "chapters": chapters}]}
    (root / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False))
    (root / "CHANGELOG.md").write_text("# Changelog\n")
    (root / "book" / "papers.yml").write_text("[]\n")
    (root / "book" / "index.md").write_text(f"# Small book\n\nSee [the chapter](chapters/{SLUG}.ipynb).\n")
    (root / "book" / "bibliography.md").write_text("# Bibliography\n\n```{bibliography}\n:all:\n```\n")
    (root / "notebooks").mkdir()
    shutil.copy(HERE / "sample.py", root / "notebooks" / f"{SLUG}.py")
    (root / "book" / "chapters").mkdir()
    nbformat.write(executed_sample(), root / "book" / "chapters" / f"{SLUG}.ipynb")
    return root
