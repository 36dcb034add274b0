"""Run one chapter at a profile: check its parameters, execute it in a process of its own, write notebook and result.

Everything that can be refused is refused before a kernel starts. The execution itself is `icml26.execution`'s, many
chapters at once `icml26.batch`'s; showing progress is the caller's.
"""

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from icml26 import chapters, paths
from icml26.errors import ChapterError, InputError
from icml26.execution import Job

__all__ = ["environment", "read_result", "require", "run_chapter", "run_folder"]

_PATIENCE = 10.0  # seconds that an interrupted worker has to end by itself
_THREADS = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")


def run_folder(profile: str) -> Path:
    """Return the folder of a profile's runs, ``_run/PROFILE``."""
    return paths.root() / "_run" / profile


def require(*modules: str) -> None:
    """Raise `InputError` unless the book's tools are installed, which a plain installation does not bring."""
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise InputError(f"{', '.join(missing)} not installed; install the book's tools: pip install 'icml26[book]'")


def environment(*, paper: bool = False) -> dict[str, str]:
    """Return the environment of a batch run's kernel: one thread, no network, no progress bars, fixed hash seed.

    Parameters
    ----------
    paper : bool
        Whether the ledger may judge at the paper's setting.

    Returns
    -------
    dict of str to str
        This process's environment with those variables set.

    Examples
    --------
    >>> environment()["OMP_NUM_THREADS"]
    '1'
    """
    env = {**os.environ, **{f"{library}_NUM_THREADS": "1" for library in _THREADS}}
    env |= {"VECLIB_MAXIMUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
    env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    env |= {"PYTHONHASHSEED": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "ICML26_ROOT": str(paths.root())}
    env["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm, where a notebook has no widgets
    env.pop("ICML26_SETTING", None)
    return env | ({"ICML26_SETTING": "paper"} if paper else {})


def run_chapter(
    slug: str,
    *,
    profile: str = "laptop",
    overrides: Mapping[str, Any] | None = None,
    out: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Execute a chapter and write ``SLUG.ipynb`` and ``SLUG.json``.

    Parameters
    ----------
    slug : str
        A chapter that is written.
    profile : str
        ``quick``, ``laptop`` or ``paper``.
    overrides : mapping of str to object, optional
        Parameters that differ from the profile's. The result says so, and a later `icml26.batch.reproduce` replaces it.
    out : Path, optional
        Another folder than ``_run/PROFILE``.
    progress : callable, optional
        Called with the number of the code cell that starts and their count.

    Returns
    -------
    Path
        The result file; the notebook lies beside it.

    Raises
    ------
    InputError
        If the chapter, the profile or a parameter is unknown or wrong; no kernel has started then.
    ChapterError
        If a cell fails or no ledger is closed; the notebook so far is kept in the subfolder ``failed``.
    """
    require("jupytext", "papermill", "ipykernel")
    overrides = dict(overrides or {})
    values = chapters.bind(slug, profile, overrides)
    overrides = {name: values[name] for name in overrides}
    fingerprint = chapters.fingerprint(slug, profile, overrides)
    digests = chapters.digests(slug)
    source = chapters.read(slug)
    knobs = chapters.parameters(source)
    folder = run_folder(profile) if out is None else Path(out).resolve()
    job = Job(
        slug=slug,
        source=source,
        parameters={name: value for name, value in values.items() if value != knobs[name].default},
        partial=str(folder / "failed" / f"{slug}.ipynb"),
        notebook=str(folder / f"{slug}.ipynb"),
        stamp={"chapter": slug, "profile": profile, "fingerprint": fingerprint},
    )
    start = time.monotonic()
    done = _execute(job, environment(paper=profile == "paper" and not overrides), progress)
    result = {
        "chapter": slug,
        "title": chapters.title(slug),
        "profile": profile,
        "data": done["ledger"]["data"],
        "claims": done["ledger"]["claims"],
        "parameters": values,
        "overrides": overrides,
        "seed": values.get("seed"),
        "versions": done["versions"],
        "platform": f"{platform.system()} {platform.machine()}",
        "seconds": round(time.monotonic() - start, 1),
        "peak_memory_mb": done["peak_memory_mb"],
        "fingerprint": fingerprint,
        "sources": digests,
    }
    path = folder / f"{slug}.json"
    paths.write_atomic(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return path


def _execute(job: Job, env: Mapping[str, str], progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "icml26.execution"]
    last: dict[str, Any] = {}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as worker,
    ):
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(json.dumps(asdict(job)))
            worker.stdin.close()
            for line in worker.stdout:
                last = json.loads(line)
                if "cell" in last and progress is not None:
                    progress(last["cell"], last["cells"])
        except BaseException:
            worker.terminate()
            try:
                worker.wait(_PATIENCE)  # it ends its kernel and removes its scratch folder
            except subprocess.TimeoutExpired:
                worker.kill()
            raise
        worker.wait()
        log.seek(0)
        lines = [line.strip() for line in log if line.strip()] or ["no message"]
        tail = next((line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception): ", line)), lines[-1])
    if "done" in last:
        return last["done"]
    said = last.get("failed") or f"the process ended with status {worker.returncode} ({tail})"
    partial = Path(job.partial)
    kept = f"; partial notebook: {_short(partial)}" if partial.is_file() else ""
    raise ChapterError(f"{job.slug} failed{' ' if said.startswith('in ') else ': '}{said}{kept}")


def _short(path: Path) -> str:
    return str(path.relative_to(paths.root())) if path.is_relative_to(paths.root()) else str(path)


def read_result(path: Path) -> dict[str, Any]:
    """Read a result file.

    Parameters
    ----------
    path : Path
        A file that `run_chapter` wrote.

    Returns
    -------
    dict
        The result.

    Raises
    ------
    InputError
        If it is no result file.
    """
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        result["chapter"], result["claims"], result["fingerprint"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{_short(path)} is no result of a chapter; remove it and run the chapter again") from None
    return result
