"""One batch run at a time in a project: locks that a dead process cannot leave behind.

Two files in ``_run/``, locked with flock, which the system releases when the last holder ends: ``.driver`` is held by
the process that the user started, ``.jobs`` by Snakemake and every chapter of that run. So a driver that was killed
alone is told from one that lives, and what it left running is found. What runs is the business of `icml26.batch`.
"""

import fcntl
import json
import os
import platform
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from icml26.errors import Icml26Error

__all__ = ["VARIABLE", "RunLock", "hold", "run_lock"]

VARIABLE = "ICML26_JOBS_LOCK"  # names the lock file to the jobs of a run on this machine
_PATIENCE = 5.0  # seconds that a leftover group has between the polite and the rude signal


class RunLock:
    """The locks of a run that has begun.

    Parameters
    ----------
    jobs : Path
        The file that the jobs lock.
    handle : int
        The descriptor to pass on to Snakemake, so that the lock lives as long as it does.
    stopped : int or None
        The process group of an earlier run that had lost its driver and was stopped.
    """

    def __init__(self, jobs: Path, handle: int, stopped: int | None) -> None:
        self.jobs = jobs
        self.handle = handle
        self.stopped = stopped

    def record(self, group: int) -> None:
        """Write down the process group that Snakemake runs in."""
        _write(self.handle, json.dumps({"host": platform.node(), "group": group}))


@contextmanager
def run_lock(folder: Path) -> Iterator[RunLock]:
    """Take the locks of a batch run for the duration of a block.

    Parameters
    ----------
    folder : Path
        ``_run`` of the project; made if it does not exist.

    Yields
    ------
    RunLock
        The locks; `RunLock.stopped` tells whether a leftover run had to be stopped.

    Raises
    ------
    Icml26Error
        If another run is alive, or what a dead one left running cannot be stopped from here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    driver = _open(folder / ".driver")
    jobs = _open(folder / ".jobs")
    try:
        if not _lock(driver, fcntl.LOCK_EX):
            who = _read(driver)
            raise Icml26Error(f"another run is alive in this project (process {who}); wait for it or stop it first")
        _write(driver, str(os.getpid()))
        stopped = None if _lock(jobs, fcntl.LOCK_EX) else _stop_leftover(jobs)
        _lock(jobs, fcntl.LOCK_SH)
        yield RunLock(folder / ".jobs", jobs, stopped)
    finally:
        os.close(driver)
        os.close(jobs)


@contextmanager
def hold() -> Iterator[None]:
    """Hold the lock of the run that this process is a job of, if it is one."""
    path = os.environ.get(VARIABLE)
    if not path:
        yield
        return
    handle = _open(Path(path))
    try:
        _lock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _stop_leftover(jobs: int) -> int:
    # The lock is held, so the recorded group has living members and its number cannot have gone to someone else.
    known = json.loads(_read(jobs) or "{}")
    if known.get("host") != platform.node():
        raise Icml26Error(
            f"chapters of an earlier run are still running on {known.get('host', 'another machine')}; stop them there"
        )
    group = int(known["group"])
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(group, number)
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if _lock(jobs, fcntl.LOCK_EX):
                return group
            time.sleep(0.05)
    raise Icml26Error(f"chapters of an earlier run do not stop (process group {group}); stop them and run again")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(handle: int) -> str:
    return os.pread(handle, 4096, 0).decode().strip()


def _write(handle: int, text: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)
