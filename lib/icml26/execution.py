"""The process in which one chapter is executed: jupytext reads the source, papermill runs it, the ledger is taken out.

`icml26.runner` starts it as ``python -m icml26.execution`` with a `Job` as JSON on the standard input, so that its peak
memory is the chapter's alone; it answers with one JSON object a line on the standard output: ``{"cell", "cells"}`` as
cells start, at the end ``{"done"}`` or ``{"failed"}``. Which parameters are right is settled before it starts.
"""

import json
import os
import re
import resource
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from icml26 import paths
from icml26.claims_view import MIMETYPE

__all__ = ["Job", "execute", "harvest", "scrub"]

_KERNEL = "icml26-chapter"
_VERSIONS = ("icml26", "torch", "numpy", "scipy", "transformers")
_KEPT = ("duration", "exception", "parameters", "version")
_DROPPED = ("papermill", "execution", "lines_to_next_cell", "lines_to_end_of_cell_marker")
_KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
_LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}


@dataclass(frozen=True)
class Job:
    """What is to be executed and where the notebook goes.

    Parameters
    ----------
    slug : str
        The chapter.
    source : str
        Its py:percent source text.
    parameters : dict
        The values that differ from the source's defaults; papermill puts them into a cell after the `parameters` cell.
    partial : str
        Where the notebook lies while it runs, and stays if it fails.
    notebook : str
        Where the finished notebook goes.
    stamp : dict
        What the finished notebook's metadata say under ``icml26``.
    """

    slug: str
    source: str
    parameters: dict[str, Any]
    partial: str
    notebook: str
    stamp: dict[str, Any]


class _ChapterFailed(Exception):
    """Carries the one line that says what failed."""


def execute(job: Job, emit: Callable[[dict[str, Any]], None]) -> None:
    """Execute a chapter with this interpreter and write its notebook.

    Parameters
    ----------
    job : Job
        What to execute.
    emit : callable
        Receives the events; the last is ``{"done": ...}`` with ``ledger``, ``versions`` and ``peak_memory_mb``, or
        ``{"failed": line}``.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="icml26-") as scratch:
            notebook = _run(job, Path(scratch), emit)
        ledger = harvest(notebook, job.slug)
        for output in _outputs(notebook):
            output.get("data", {}).pop(MIMETYPE, None)  # Sphinx does not know it; the result file holds it
    except _ChapterFailed as failure:
        emit({"failed": str(failure)})
        return
    notebook.metadata["icml26"] = job.stamp
    paths.write_atomic(job.notebook, _text(notebook))
    Path(job.partial).unlink(missing_ok=True)
    emit({"done": {"ledger": ledger, "versions": _versions(), "peak_memory_mb": _peak_memory_mb()}})


def _run(job: Job, scratch: Path, emit: Callable[[dict[str, Any]], None]) -> Any:
    _own_kernel(scratch)
    import jupytext
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.engines import NBClientEngine, papermill_engines

    running: list[str] = []

    class Engine(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
            code = [index for index, cell in enumerate(nb_man.nb.cells) if cell.cell_type == "code"]
            started = nb_man.cell_start

            def cell_start(cell: Any, cell_index: int | None = None, **rest: Any) -> None:
                if cell_index in code:
                    running.append(cell.source)
                    emit({"cell": code.index(cell_index) + 1, "cells": len(code)})
                started(cell, cell_index, **rest)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **kwargs)

    papermill_engines.register(_KERNEL, Engine)
    notebook = jupytext.reads(job.source, fmt="py:percent")
    notebook.metadata["kernelspec"] = nbformat.from_dict(_KERNELSPEC)
    partial = Path(job.partial)
    partial.parent.mkdir(parents=True, exist_ok=True)
    workplace = scratch / "work"  # a stray relative path of a chapter ends here
    workplace.mkdir()
    try:
        done = papermill.execute_notebook(
            notebook,
            str(partial).replace("{", "{{").replace("}", "}}"),  # papermill fills braces in paths
            parameters=job.parameters,
            engine_name=_KERNEL,
            kernel_name=_KERNEL,
            language="python",
            progress_bar=False,
            cwd=str(workplace),
            coalesce_streams=True,
        )
    except papermill.PapermillExecutionError as error:
        said = " ".join(f"{error.ename}: {error.evalue}".split())
        raise _ChapterFailed(f"{_cell(_read(partial), error.source)}: {said}") from None
    except DeadKernelError:
        where = _cell(_read(partial), running[-1]) if running else "before the first cell"
        raise _ChapterFailed(f"{where}: the kernel died (out of memory, or killed)") from None
    finally:
        if partial.is_file():
            paths.write_atomic(partial, _text(scrub(_read(partial))))
    return scrub(done)


def _own_kernel(scratch: Path) -> None:
    """Make a kernel of this very interpreter known, whatever `python3` means to the user's Jupyter and IPython."""
    folder = scratch / "share" / "kernels" / _KERNEL
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": _KERNEL, "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    os.environ["JUPYTER_PATH"] = str(scratch / "share")
    os.environ["IPYTHONDIR"] = str(scratch / "ipython")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(scratch / "runtime")


def _outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def _cell(notebook: Any, source: str) -> str:
    """Name a code cell by its number, as it counts in Jupyter, and its first line of code."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]
    return f"in code cell {code.index(source) + 1} `{lines[0] if lines else ''}`"


def harvest(notebook: Any, slug: str) -> dict[str, Any]:
    """Take the closed ledger out of an executed notebook.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        The executed chapter.
    slug : str
        The chapter whose ledger it must be.

    Returns
    -------
    dict
        ``chapter``, ``data``, ``at_paper_setting`` and ``claims``.
    """
    found = [output.data[MIMETYPE] for output in _outputs(notebook) if MIMETYPE in output.get("data", {})]
    if not found:
        raise _ChapterFailed("no cell displays a closed ledger; end the Claims section with `ledger.close()`")
    if found[-1]["chapter"] != slug:
        raise _ChapterFailed(f"the closed ledger is that of {found[-1]['chapter']}; say `Ledger({slug!r})`")
    return json.loads(json.dumps(found[-1]))


def scrub(notebook: Any) -> Any:
    """Remove what depends on the machine or the moment, in place.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        An executed notebook.

    Returns
    -------
    nbformat.NotebookNode
        The same notebook: of papermill's metadata only duration (whole seconds), parameters, version and exception are
        left; cell ids are numbers, kernel and language are the generic ones, paths are relative to the project.
    """
    kept = {key: value for key, value in notebook.metadata.get("papermill", {}).items() if key in _KEPT}
    if kept.get("duration") is not None:
        kept["duration"] = round(kept["duration"])
    notebook.metadata.clear()
    notebook.metadata.update(kernelspec=dict(_KERNELSPEC), language_info=dict(_LANGUAGE), papermill=kept)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03d}"
        for key in _DROPPED:
            cell.metadata.pop(key, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = _without_paths(output["text"])
            for mimetype, content in output.get("data", {}).items():
                if isinstance(content, str) and not mimetype.startswith("image/"):
                    output["data"][mimetype] = _without_paths(content)
    return notebook


def _without_paths(text: str) -> str:
    text = text.replace(f"{paths.root()}{os.sep}", "").replace(sysconfig.get_path("purelib"), "site-packages")
    return re.sub(r"\S*ipykernel_\d+/\d+\.py", "<cell>", text)


def _read(path: Path) -> Any:
    import nbformat

    return nbformat.read(path, as_version=4)


def _text(notebook: Any) -> str:
    import nbformat

    return nbformat.writes(notebook) + "\n"


def _versions() -> Mapping[str, str | None]:
    found: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in _VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _peak_memory_mb() -> int:
    """The largest resident set of the kernel, the only child of this process."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # bytes on macOS, kB elsewhere
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


def _main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the scratch folder is removed
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to the log, not between the events

    def emit(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    execute(Job(**json.load(sys.stdin)), emit)


if __name__ == "__main__":
    _main()
