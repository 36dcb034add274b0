"""Many chapters at once: Snakemake runs those whose results are out of date.

Snakemake schedules, in a process group of its own. Each job reports through a small status file, so the display is the
same on a laptop and on a cluster. What is out of date is found by `icml26.planning`; one chapter is `icml26.runner`'s
business, showing things `icml26.cli`'s.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from icml26 import locking, paths
from icml26.errors import ChapterError, Icml26Error, InputError
from icml26.planning import Batch, Status, outdated, plan
from icml26.runner import read_result, require, run_chapter, run_folder

__all__ = ["Batch", "Status", "outdated", "plan", "reproduce", "run_chapter", "run_job"]

_POLL = 0.2  # seconds between two looks at the jobs
_PATIENCE = 15.0  # seconds that an interrupted run has to end by itself


def reproduce(
    profile: str = "laptop",
    jobs: int | None = None,
    chapters: Iterable[str] = (),
    executor: str | None = None,
    dry_run: bool = False,
    keep_going: bool = True,
    listen: Callable[[Batch], None] = lambda batch: None,
) -> int:
    """Run every chapter whose result is out of date.

    Parameters
    ----------
    profile : str
        ``quick``, ``laptop`` or ``paper``.
    jobs : int, optional
        Chapters at a time; on this machine as many as it has processors if not given, on a cluster 100.
    chapters : iterable of str
        Chapters as `icml26.chapters.resolve` takes them; none means all that are written.
    executor : str, optional
        ``slurm`` for a cluster; this machine if not given.
    dry_run : bool
        Plan only, Snakemake's own plan included.
    keep_going : bool
        Whether the other chapters go on when one fails.
    listen : callable
        Called with the batch whenever a chapter's status changes; the first time before anything runs.

    Returns
    -------
    int
        0, or 1 if a chapter failed.

    Raises
    ------
    InputError
        If anything is wrong with the arguments or the parameters of a chapter; nothing has run then.
    Icml26Error
        If another run is alive in this project, or Snakemake itself fails.
    KeyboardInterrupt
        After an interrupt, when everything that this run started has ended.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs} is too few; give at least 1")
    if executor not in (None, "slurm"):
        raise InputError(f"executor={executor!r} is unknown; use 'slurm', or none for this machine")
    require("snakemake", *(["snakemake_executor_plugin_slurm"] if executor else []))
    batch = plan(profile, chapters)
    if dry_run or not batch.waiting():
        listen(batch)
    if not batch.waiting():
        return 0
    base = run_folder(profile).parent
    command = _command(batch, jobs, executor, keep_going)
    if dry_run:
        base.mkdir(exist_ok=True)
        done = subprocess.run([*command[:3], "--dry-run", *command[3:]], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Icml26Error(f"Snakemake refuses the plan: {_last_line(done.stdout + done.stderr)}")
        return 0
    with locking.run_lock(base) as lock:
        if lock.stopped is not None:
            batch.notes.append(f"stopped what an earlier, killed run had left running (process group {lock.stopped})")
        listen(batch)
        return _follow(batch, command, lock, executor, listen)


def _command(batch: Batch, jobs: int | None, executor: str | None, keep_going: bool) -> list[str]:
    targets = [f"{batch.profile}/{status.slug}.json" for status in batch.waiting()]
    base = run_folder(batch.profile).parent
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(paths.root() / "workflow" / "Snakefile")]
    command += ["--directory", str(base), "--config", f"profile={batch.profile}", "--nolock", "--rerun-incomplete"]
    command += ["--scheduler", "greedy", "--rerun-triggers", "params", *(["--keep-going"] if keep_going else [])]
    if executor:
        command += ["--executor", executor, "--jobs", str(jobs or 100), "--latency-wait", "60"]
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        # One chapter at a time has the GPU; a chapter that asks for more memory than there is runs alone.
        command += ["--cores", str(jobs or os.cpu_count() or 1), "--resources", f"mem_mb={memory}", "gpu=1"]
    # Snakemake's own records may be gone or about another run: what is out of date was found by content.
    return [*command, "--forcerun", *targets, "--", *targets]


def _follow(
    batch: Batch, command: list[str], lock: locking.RunLock, executor: str | None, listen: Callable[[Batch], None]
) -> int:
    folder = run_folder(batch.profile)
    shutil.rmtree(folder / ".status", ignore_errors=True)
    (folder / ".status").mkdir(parents=True)
    for status in batch.waiting():
        (folder / "failed" / f"{status.slug}.ipynb").unlink(missing_ok=True)
    env = os.environ | {"ICML26_ROOT": str(paths.root())}
    env |= {} if executor else {locking.VARIABLE: str(lock.jobs)}
    log = folder / "snakemake.log"
    with log.open("w") as file:
        snakemake = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True, pass_fds=(lock.handle,),
        )  # fmt: skip
    lock.record(snakemake.pid)
    try:
        while snakemake.poll() is None:
            time.sleep(_POLL)
            _look(batch, listen)
    except BaseException:
        _stop(snakemake)
        raise
    _look(batch, listen, last=True)
    if snakemake.returncode and not batch.failed():
        raise Icml26Error(f"Snakemake failed: {_last_line(log.read_text())}; see {log.relative_to(paths.root())}")
    return 1 if batch.failed() else 0


def _look(batch: Batch, listen: Callable[[Batch], None], last: bool = False) -> None:
    folder = run_folder(batch.profile)
    changed = False
    for status in batch.waiting():
        if status.state in ("finished", "failed"):
            continue
        before = (status.state, status.cell)
        with suppress(FileNotFoundError):
            told = json.loads((folder / ".status" / f"{status.slug}.json").read_text())
            status.state, status.cell, status.cells = told["state"], told["cell"], told["cells"]
            status.message = told["message"]
            status.seconds = told.get("seconds") or max(0.0, time.time() - told["since"])
        if status.state == "finished":
            status.result = read_result(folder / f"{status.slug}.json")
        elif last and status.state != "failed":
            log = f"_run/{batch.profile}/snakemake.log"
            status.message = f"{status.slug} ended without a result (killed, or out of memory); see {log}"
            status.state = "failed"
        changed |= before != (status.state, status.cell)
    if changed:
        listen(batch)


def _stop(snakemake: subprocess.Popen[bytes]) -> None:
    """End Snakemake and its jobs: first as the user's interrupt would, then without asking."""
    for number, patience in ((signal.SIGINT, _PATIENCE), (signal.SIGKILL, _PATIENCE)):
        with suppress(ProcessLookupError):
            os.killpg(snakemake.pid, number)
        with suppress(subprocess.TimeoutExpired):
            snakemake.wait(patience)
            return


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def run_job(slug: str, profile: str) -> None:
    """Run a chapter as a job of a batch: tell its status in ``_run/PROFILE/.status`` and hold the run's lock.

    Parameters
    ----------
    slug : str
        A chapter that is written.
    profile : str
        ``quick``, ``laptop`` or ``paper``.

    Raises
    ------
    InputError, ChapterError
        As `run_chapter`.
    """
    since = time.time()
    count = [0, 0]

    def tell(state: str, **more: Any) -> None:
        told = {"state": state, "cell": count[0], "cells": count[1], "since": since, "message": ""} | more
        paths.write_atomic(run_folder(profile) / ".status" / f"{slug}.json", json.dumps(told))

    def progress(cell: int, cells: int) -> None:
        count[:] = cell, cells
        tell("running")

    with locking.hold():
        tell("running")
        try:
            path = run_chapter(slug, profile=profile, progress=progress)
        except (InputError, ChapterError) as error:
            tell("failed", message=str(error), seconds=time.time() - since)
            raise
        tell("finished", seconds=read_result(path)["seconds"])
