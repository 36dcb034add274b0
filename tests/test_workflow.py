"""The batch reproduction as a user meets it: real processes, in a miniature project with its own copy of the package.

Snakemake and a kernel take seconds to start, so each test tells a story with few starts.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from miniature import chapter, environment, project

pytestmark = pytest.mark.slow

PLAN = "from icml26.planning import plan; print({s.slug: s.why for s in plan('quick').waiting()})"
WAIT = """\
import time
from pathlib import Path
while not Path({flag!r}).exists():
    time.sleep(0.05)
"""


def icml26(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "icml26.cli", *arguments]
    return subprocess.run(command, env=environment(folder), cwd="/", capture_output=True, text=True, timeout=300)


def start(folder: Path) -> subprocess.Popen[str]:
    shutil.rmtree(folder / "_run" / "quick" / ".status", ignore_errors=True)  # so that what is seen is the new run's
    command = [sys.executable, "-m", "icml26.cli", "reproduce", "--profile", "quick", "--jobs", "2"]
    return subprocess.Popen(
        command, env=environment(folder), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def due(folder: Path) -> dict[str, str]:
    """The chapters that a run would execute, and why."""
    done = subprocess.run(
        [sys.executable, "-c", PLAN], env=environment(folder), capture_output=True, text=True, check=True
    )
    return eval(done.stdout)


def wait(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def running_cell(folder: Path, slug: str, cell: int) -> bool:
    try:
        status = json.loads((folder / "_run" / "quick" / ".status" / f"{slug}.json").read_text())
    except FileNotFoundError:
        return False
    return status["state"] == "running" and status["cell"] == cell


def jobs_alive(folder: Path) -> bool:
    with (folder / "_run" / ".jobs").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def jobs_group(folder: Path) -> int | None:
    try:
        return json.loads((folder / "_run" / ".jobs").read_text())["group"]
    except (OSError, ValueError):
        return None  # it is being written


def made(folder: Path, slug: str) -> int:
    """When a result was written, so that a re-run shows."""
    return (folder / "_run" / "quick" / f"{slug}.json").stat().st_mtime_ns


def set_parameter(folder: Path, slug: str, term: float) -> None:
    (folder / "profiles" / "quick.yml").write_text(f"{slug}:\n  parameters: {{term: {term}}}\n")


def test_only_the_chapters_concerned_run_again_and_a_failure_stops_no_other(tmp_path):
    folder = project(
        tmp_path / "a b",
        {
            "01_cdg": {"imports": "from icml26 import alpha", "body": "print(alpha.beta.NUMBER)"},
            "15_s_quant": {"imports": "import icml26.gamma"},
            "17_top_w": {"body": "broken = [1]\nbroken[3]"},
        },
    )
    package = folder / "lib" / "icml26"
    (package / "alpha.py").write_text("from . import beta\n")
    (package / "beta.py").write_text("NUMBER = 1\n")
    (package / "gamma.py").write_text("")

    first = icml26(folder, "reproduce", "--profile", "quick", "--jobs", "2")
    assert first.returncode == 1, first.stderr
    line = "17_top_w failed in code cell 3 `broken = [1]`: IndexError: list index out of range"
    assert f"{line}; partial notebook: _run/quick/failed/17_top_w.ipynb" in first.stdout
    partial = json.loads((folder / "_run" / "quick" / "failed" / "17_top_w.ipynb").read_text())
    assert any("IndexError" in json.dumps(cell.get("outputs", [])) for cell in partial["cells"])
    assert re.search(r"01_cdg +finished", first.stdout)
    assert re.search(r"15_s_quant +finished", first.stdout)
    assert list(due(folder)) == ["17_top_w"]

    (package / "beta.py").write_text("NUMBER = 2\n")
    chapter(folder, "17_top_w")
    before = {slug: made(folder, slug) for slug in ("01_cdg", "15_s_quant")}
    shutil.rmtree(folder / "_run" / ".snakemake")  # what is out of date does not hang on Snakemake's own records
    second = icml26(folder, "reproduce", "--profile", "quick", "--jobs", "2")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "2 of 3 chapters to run" in second.stdout
    assert made(folder, "01_cdg") > before["01_cdg"]
    assert made(folder, "15_s_quant") == before["15_s_quant"]
    assert '"2\\n"' in (folder / "_run" / "quick" / "01_cdg.ipynb").read_text()
    assert not (folder / "_run" / "quick" / "failed" / "17_top_w.ipynb").exists()

    for path in folder.rglob("*"):
        os.utime(path, (time.time() + 1000, time.time() + 1000))
    shutil.rmtree(folder / "_run" / ".snakemake")
    third = icml26(folder, "reproduce", "--profile", "quick")
    assert third.returncode == 0
    assert "0 of 3 chapters to run" in third.stdout
    assert not (folder / "_run" / ".snakemake").exists(), "with nothing to do Snakemake does not even start"

    set_parameter(folder, "15_s_quant", 3.0)
    assert due(folder) == {"15_s_quant": "its parameters changed"}
    set_parameter(folder, "15_s_quant", 1.0)
    assert due(folder) == {}, "a value equal to the default changes nothing"
    (package / "gamma.py").write_text("# new\n")
    assert due(folder) == {"15_s_quant": "lib/icml26/gamma.py changed"}
    chapter(folder, "17_top_w", body="pass  # new")
    assert set(due(folder)) == {"15_s_quant", "17_top_w"}
    (folder / "_run" / "quick" / "01_cdg.json").write_text('{"chapter": "01_')
    assert due(folder)["01_cdg"] == "its result is damaged"

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("_run", "__pycache__"))
    for number, path in enumerate(copy.rglob("*")):
        os.utime(path, (number * 7919 % 10**9,) * 2)
    assert set(due(copy).values()) == {"no result yet"}
    assert len(due(copy)) == 3


def test_a_run_that_was_killed_or_interrupted_is_completed_by_the_same_command(tmp_path):
    flag = tmp_path / "go on"
    folder = project(tmp_path / "p", {"01_cdg": {}, "15_s_quant": {"body": WAIT.format(flag=str(flag))}})

    driver = start(folder)
    wait(lambda: (folder / "_run" / "quick" / "01_cdg.json").exists() and running_cell(folder, "15_s_quant", 3))
    group = json.loads((folder / "_run" / ".jobs").read_text())["group"]
    os.killpg(driver.pid, signal.SIGKILL)
    os.killpg(group, signal.SIGKILL)
    driver.communicate()
    wait(lambda: not jobs_alive(folder))
    kept = made(folder, "01_cdg")
    flag.touch()
    done = icml26(folder, "reproduce", "--profile", "quick", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped" not in done.stdout
    assert made(folder, "01_cdg") == kept, "what was finished is kept"
    assert (folder / "_run" / "quick" / "15_s_quant.json").exists()

    flag.unlink()
    set_parameter(folder, "15_s_quant", 2.0)
    driver = start(folder)
    wait(lambda: running_cell(folder, "15_s_quant", 4))
    second = icml26(folder, "reproduce", "--profile", "quick")
    assert second.returncode == 1
    assert second.stderr.splitlines() == [
        f"icml26: another run is alive in this project (process {driver.pid}); wait for it or stop it first"
    ]
    os.kill(driver.pid, signal.SIGINT)
    driver.communicate(timeout=60)
    assert driver.returncode == 130
    wait(lambda: not jobs_alive(folder), 10)

    driver = start(folder)
    wait(lambda: running_cell(folder, "15_s_quant", 4))
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert jobs_alive(folder), "Snakemake and its chapter outlive a driver that was killed alone"
    left = jobs_group(folder)
    again = start(folder)
    wait(lambda: jobs_group(folder) not in (left, None))  # only then may the chapter go on, or what was left would end
    flag.touch()
    told, errors = again.communicate(timeout=300)
    assert again.returncode == 0, told + errors
    assert "stopped what an earlier, killed run had left running" in told
    assert made(folder, "01_cdg") == kept
    assert json.loads((folder / "_run" / "quick" / "15_s_quant.json").read_text())["parameters"]["term"] == 2.0


def test_slurm_and_snakemake_by_hand_accept_the_plan_in_a_dry_run(tmp_path):
    folder = project(tmp_path / "p", {"01_cdg": {}, "15_s_quant": {}})
    (folder / "profiles" / "quick.yml").write_text("01_cdg:\n  resources: {memory_gb: 12.5, gpus: 2, minutes: 90}\n")
    done = icml26(folder, "reproduce", "--profile", "quick", "--executor", "slurm", "--jobs", "8", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert re.search(r"01_cdg +no result yet", done.stdout)
    assert not (folder / "_run" / "quick").exists(), "a dry run leaves no results"

    by_hand = [sys.executable, "-m", "snakemake", "-s", "workflow/Snakefile", "-d", "_run", "--cores", "2", "-n"]
    planned = subprocess.run(by_hand, cwd=folder, env=environment(folder), capture_output=True, text=True)
    assert re.search(r"^chapter +2$", planned.stdout + planned.stderr, re.MULTILINE)

    (folder / "workflow" / "Snakefile").write_text("rule broken\n")
    refused = icml26(folder, "reproduce", "--profile", "quick", "--executor", "slurm", "--dry-run")
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
