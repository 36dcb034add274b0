"""One chapter's run: refused before a kernel starts, executed by this interpreter, scrubbed, honest when it fails."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from miniature import chapter, environment, project

from icml26 import batch, runner
from icml26.claims_view import MIMETYPE
from icml26.errors import ChapterError, InputError
from icml26.execution import harvest, scrub

REPORT = """\
import os, sys, warnings
from icml26 import paths
warnings.warn("look out")
print(paths.root() / "lib", os.environ["OMP_NUM_THREADS"], "ICML26_SETTING" in os.environ)
open("stray.txt", "w").write("x")
print(sorted(set("abcdef"), key=hash), sys.flags.hash_randomization)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = project(tmp_path / "p", {"01_cdg": {}, "15_s_quant": {}})
    monkeypatch.setenv("ICML26_ROOT", str(made))
    return made


def outputs(notebook: Path) -> str:
    cells = json.loads(notebook.read_text())["cells"]
    return json.dumps([cell.get("outputs") for cell in cells])


@pytest.mark.slow
def test_a_run_is_repeatable_says_what_it_ran_and_names_nothing_of_the_machine(folder, tmp_path, monkeypatch):
    chapter(folder, "01_cdg", body=REPORT)
    # A user's own Jupyter has a `python3` that is another interpreter.
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["false"], "display_name": "mine", "language": "python"}')
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("ICML26_SETTING", "paper")
    steps = []
    first = runner.run_chapter(
        "01_cdg", profile="quick", overrides={"term": 4}, progress=lambda cell, cells: steps.append((cell, cells))
    )
    assert first == folder / "_run" / "quick" / "01_cdg.json"
    assert steps == [(cell, 5) for cell in (1, 2, 3, 4, 5)]
    result = json.loads(first.read_text())
    assert (result["chapter"], result["profile"], result["data"]) == ("01_cdg", "quick", "real")
    assert result["title"] == "The sum called 01_cdg"
    assert result["parameters"] == {"seed": 0, "term": 4.0, "word": "plain", "widths": [1, 2], "check": True}
    assert result["overrides"] == {"term": 4.0}
    assert [(claim["id"], claim["verdict"]) for claim in result["claims"]] == [("Q1", "holds"), ("Q2", "not tested")]
    assert set(result["versions"]) == {"python", "icml26", "torch", "numpy", "scipy", "transformers"}
    assert 40 < result["peak_memory_mb"] < 1000
    assert result["seconds"] > 0
    assert result["seed"] == 0
    assert "notebooks/01_cdg.py" in result["sources"]

    notebook = first.with_suffix(".ipynb")
    text = notebook.read_text()
    assert "sum 5.0" in text
    assert '"lib 1 False\\n"' in text, "one thread, and the paper's setting only for its profile"
    assert "<cell>:3: UserWarning: look out" in text
    assert MIMETYPE not in text, "the result holds it, and Sphinx does not know it"
    for name in (str(folder), str(Path.home()) + "/", "/tmp/", "iopub", "start_time"):
        assert name not in text
    metadata = json.loads(text)["metadata"]
    assert set(metadata["papermill"]) == {"duration", "parameters", "version", "exception"}
    assert metadata["kernelspec"]["name"] == "python3"
    assert metadata["icml26"]["fingerprint"] == result["fingerprint"]
    assert not list(folder.rglob("stray.txt"))
    assert not (folder / "_run" / "quick" / "failed" / "01_cdg.ipynb").exists()

    again = runner.run_chapter("01_cdg", profile="quick", overrides={"term": 4.0}, out=tmp_path / "again")
    cells = [json.loads(path.with_suffix(".ipynb").read_text())["cells"] for path in (first, again)]
    assert cells[0] == cells[1]
    assert batch.outdated("01_cdg", "quick") == "its result has parameters set by hand"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import os\nos._exit(3)", r"01_cdg failed in code cell 3 `import os`: the kernel died"),
        (
            "# why\n\nraise ValueError('two\\nlines')",
            r"code cell 3 `raise ValueError\(.*\)`: ValueError: two lines; partial",
        ),
    ],
)
def test_a_failed_chapter_is_one_line_and_keeps_its_notebook(folder, body, said):
    chapter(folder, "01_cdg", body=body)
    with pytest.raises(ChapterError, match=said) as error:
        runner.run_chapter("01_cdg", profile="quick")
    assert "\n" not in str(error.value)
    partial = folder / "_run" / "quick" / "failed" / "01_cdg.ipynb"
    notebook = nbformat.read(partial, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3", "the user can open it"
    assert not (folder / "_run" / "quick" / "01_cdg.json").exists()


@pytest.mark.slow
def test_a_single_run_keeps_others_out_and_a_polite_signal_leaves_nothing_behind(folder, tmp_path):
    told, scratch = tmp_path / "kernel", tmp_path / "scratch"
    scratch.mkdir()
    body = f"import os, time\nfrom pathlib import Path\nPath({str(told)!r}).write_text(str(os.getpid()))"
    chapter(folder, "01_cdg", body=f"{body}\ntime.sleep(300)")
    command = [sys.executable, "-m", "icml26.cli", "run", "01_cdg", "--profile", "quick"]
    env = environment(folder) | {"TMPDIR": str(scratch)}
    run = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: told.is_file() and told.read_text())
        for arguments in (["run", "15", "--profile", "quick"], ["reproduce", "--profile", "quick"]):
            other = subprocess.run([*command[:3], *arguments], env=env, capture_output=True, text=True)
            assert other.returncode == 1
            assert other.stderr == (
                f"icml26: another run is alive in this project (process {run.pid}); wait for it or stop it first\n"
            )
        assert list(scratch.glob("icml26-*"))
        run.terminate()
        assert run.wait(30) == 130
    finally:
        run.kill()
    wait(lambda: not alive(int(told.read_text())))
    assert not list(scratch.glob("icml26-*"))


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")  # a zombie has ended
    return not (stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def wait(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("ledger", "said"), [(None, "no cell displays a closed ledger"), ("17_top_w", "that of 17_top_w")]
)
def test_a_chapter_that_closes_no_ledger_of_its_own_fails(ledger, said):
    data = {"text/plain": "x"} | ({MIMETYPE: {"chapter": ledger, "claims": []}} if ledger else {})
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("display_data", data=data)])
    with pytest.raises(Exception, match=said):
        harvest(nbformat.v4.new_notebook(cells=[cell]), "01_cdg")


@pytest.mark.parametrize(
    ("slug", "profile", "overrides", "said"),
    [
        ("01_cdg", "quick", {"trem": 1}, "did you mean 'term'"),
        ("01_cdg", "quick", {"term": "1"}, "not of type float"),
        ("01_cdg", "quick", {"term": 11.0}, "out of range"),
        ("01_cdg", "fast", {}, "no profile is called 'fast'"),
        ("17_top_w", "quick", {}, "not written yet"),
    ],
)
def test_bad_input_is_refused_before_a_process_starts(folder, monkeypatch, slug, profile, overrides, said):
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("a process was started"))
    with pytest.raises(InputError, match=said):
        runner.run_chapter(slug, profile=profile, overrides=overrides)
    assert not (folder / "_run").exists()


def test_the_paper_s_setting_is_told_to_the_kernel_only_by_its_unchanged_profile(folder, monkeypatch):
    told = []

    def pretend(job, env, progress):
        told.append(env.get("ICML26_SETTING"))
        return {"ledger": {"data": "real", "claims": []}, "versions": {}, "peak_memory_mb": 1}

    monkeypatch.setattr(runner, "_execute", pretend)
    runner.run_chapter("01_cdg", profile="paper")
    runner.run_chapter("01_cdg", profile="paper", overrides={"term": 2.0})
    runner.run_chapter("01_cdg", profile="laptop")
    assert told == ["paper", None, None]


def test_a_plain_installation_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("papermill", "snakemake") else 1)
    for run in (lambda: runner.run_chapter("01_cdg"), batch.reproduce):
        with pytest.raises(InputError, match=r"^(papermill|snakemake) not installed; .*pip install 'icml26\[book\]'"):
            run()


def test_scrubbing_keeps_what_the_chapter_shows(folder):
    notebook = nbformat.v4.new_notebook(metadata={"papermill": {"duration": 1.7, "input_path": "/x", "version": "2"}})
    cell = nbformat.v4.new_code_cell(
        "1", metadata={"papermill": {"status": "completed"}, "tags": ["keep"], "lines_to_next_cell": 0, "mystnb": {}}
    )
    cell.outputs = [
        nbformat.v4.new_output("stream", text=f"{folder}/lib/a.py:3: odd\n/tmp/ipykernel_12/345.py:1: Warning\n"),
        nbformat.v4.new_output("display_data", data={"image/png": "iVBOR", "text/html": f"<a href='{folder}/x'>x</a>"}),
    ]
    notebook.cells = [cell]
    clean = scrub(notebook)
    assert clean.metadata.papermill == {"duration": 2, "version": "2"}
    assert clean.cells[0].metadata == {"tags": ["keep"], "mystnb": {}}
    assert clean.cells[0].outputs[0].text == "lib/a.py:3: odd\n<cell>:1: Warning\n"
    assert clean.cells[0].outputs[1].data == {"image/png": "iVBOR", "text/html": "<a href='x'>x</a>"}
    nbformat.validate(clean)


def test_a_batch_refuses_bad_arguments_before_anything_runs(folder):
    for arguments, said in (
        ({"jobs": 0}, "jobs=0 is too few"),
        ({"executor": "pbs"}, "executor='pbs' is unknown"),
        ({"chapters": ["17"]}, "not written yet: 17_top_w"),
        ({"profile": "fast"}, "no profile"),
    ):
        with pytest.raises(InputError, match=said):
            batch.reproduce(**arguments)
    assert not (folder / "_run").exists()


def test_a_faulty_profile_entry_of_one_chapter_stops_the_batch_before_it_starts(folder):
    (folder / "profiles" / "quick.yml").write_text("01_cdg:\n  parameters: {term: 99}\n")
    with pytest.raises(InputError, match=r"profiles/quick.yml, 01_cdg: parameter term=99.* out of range"):
        batch.plan("quick")
    assert [status.slug for status in batch.plan("quick", ["15", "s_quant"]).chapters] == ["15_s_quant"]
