"""The command line: quick to start, one line and the right exit code for every error, an example for every command."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from types import ModuleType

import nbformat
import pytest
import typer
from miniature import environment, pretend_run
from miniature import project as miniature

from icml26 import __version__, batch, chapters, cli, locking
from icml26 import data as icml26_data
from icml26 import models as icml26_models
from icml26.errors import ChapterError, Icml26Error, InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = miniature(tmp_path / "p", {"01_cdg": {}, "15_s_quant": {}})
    monkeypatch.setenv("ICML26_ROOT", str(made))
    return made


def commands(command=None, name="icml26"):
    command = command or typer.main.get_command(cli.app)
    yield name, command
    for child in getattr(command, "commands", {}).values():
        yield from commands(child, f"{name} {child.name}")


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_says_what_it_does_and_shows_an_example(name, command, icml26):
    code, out, _ = icml26(*name.split()[1:], "--help")
    assert code == 0
    assert out.partition("Examples")[2].count(name) >= 1
    assert command.help


def run_examples():
    """The examples of `icml26 run` in all helps."""
    for _, command in commands():
        for line in (command.epilog or "").splitlines():
            if line.strip().startswith("icml26 run "):
                yield line.strip()


@pytest.mark.parametrize("line", sorted(set(run_examples())))
def test_every_example_of_a_run_names_a_chapter_and_parameters_that_exist(project, icml26, monkeypatch, line):
    monkeypatch.setenv("ICML26_ROOT", str(project))
    bound = []

    def pretend(slug, *, profile, overrides, progress):
        bound.append(chapters.bind(slug, profile, overrides))
        raise ChapterError("far enough")

    monkeypatch.setattr(batch, "run_chapter", pretend)
    monkeypatch.setattr(locking, "run_lock", lambda folder: nullcontext())  # the project may be running
    code, _, err = icml26(*shlex.split(line)[1:])
    assert (code, err.splitlines()[-1]) == (1, "icml26: far enough")
    assert len(bound) == 1


def test_help_is_there_within_a_second_and_loads_nothing_heavy():
    heavy = (
        "{'torch', 'numpy', 'scipy', 'transformers', 'papermill', 'jupytext', 'nbformat', 'snakemake', 'matplotlib'}"
    )
    code = f"import sys, icml26.cli; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
    spent = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "icml26.cli", "--help"], capture_output=True, check=True)
        spent.append(time.perf_counter() - start)
    assert min(spent) < 1


def test_the_version_is_the_package_s(icml26):
    assert icml26("--version") == (0, f"icml26 {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "s_quan"), "no paper is called 's_quan'; did you mean 's_quant'?"),
        (("run", "15", "-p", "trem=1"), "15_s_quant: unknown parameter 'trem'; did you mean 'term'?"),
        (("run", "15", "-p", "term=eleven"), "parameter term='eleven' is not of type float; give 0..10 [units]"),
        (("run", "15", "-p", "term=11"), "parameter term=11.0 is out of range; give 0..10 [units]"),
        (("run", "15", "-p", "term"), "-p term: write it as key=value"),
        (("run", "15", "--profile", "labtop"), "no profile is called 'labtop'; did you mean 'laptop'?"),
        (("run", "17"), "chapter 17_top_w is not written yet; written: 01_cdg, 15_s_quant"),
        (("reproduce", "--jobs", "0"), "jobs=0 is too few; give at least 1"),
        (("report", "--profile", "quick"), "no results at "),
        (("verify", "15"), "tests/reference/15_s_quant.ipynb does not exist; `icml26 publish` writes the references"),
        (("new", "15"), "15_s_quant: notebooks/15_s_quant.py exists already"),
        (("publish",), "the runs are not complete: 01_cdg at laptop (no result yet)"),
    ],
)
def test_bad_input_is_one_line_on_the_error_stream_and_exit_code_2(folder, icml26, arguments, said):
    code, out, err = icml26(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith(f"icml26: {said}")
    assert len(err.splitlines()) == 1


def test_a_usage_error_is_exit_code_2(icml26):
    assert icml26("reproduse")[0] == 2
    assert icml26("run")[0] == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ChapterError("it failed"), 1), (Icml26Error("it\nfailed"), 1), (InputError("it failed"), 2)],
)
def test_an_error_shows_its_traceback_only_when_asked(folder, icml26, monkeypatch, error, expected):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(batch, "run_chapter", fail)
    code, _, err = icml26("run", "15")
    assert code == expected
    assert err.splitlines()[-1] == "icml26: it failed"
    assert "Traceback" not in err
    monkeypatch.setattr(sys, "argv", ["icml26", "--debug", "run", "15"])
    with pytest.raises(Icml26Error, match="it failed"):
        cli.main()


def test_an_interrupt_is_exit_code_130(folder, icml26, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "reproduce", interrupt)
    assert icml26("reproduce")[0] == 130


def test_run_passes_typed_values_on_and_shows_the_verdicts(folder, icml26, monkeypatch):
    def pretend(slug, *, profile, overrides, progress):
        assert (slug, profile, overrides) == ("15_s_quant", "quick", {"term": 2.0, "widths": [4, 8]})
        progress(1, 5)
        return pretend_run(folder, slug, profile, seconds=1.5, peak_memory_mb=90)

    monkeypatch.setattr(batch, "run_chapter", pretend)
    code, out, _ = icml26("run", "15", "--profile", "quick", "-p", "term=2", "-p", "widths=4,8")
    assert code == 0
    assert "holds in direction" in out
    assert "15_s_quant finished in 1.5 s, 90 MB at most: _run/quick/15_s_quant.ipynb" in out


def test_list_tells_what_is_written_and_each_knob_in_full(folder, icml26):
    _, out, _ = icml26("list")
    lines = out.splitlines()
    assert len(lines) == 1 + 19
    assert "seed, term, word, widths, check" in next(line for line in lines if line.startswith("15_s_quant"))
    assert "not written yet" in next(line for line in lines if line.startswith("17_top_w"))
    _, out, _ = icml26("list", "15")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["seed", "term", "word", "widths", "check"]
    assert "list[int]" in out
    assert "what is added to one" in out


def test_reproduce_with_nothing_to_do_shows_the_table(folder, icml26):
    for slug in ("01_cdg", "15_s_quant"):
        pretend_run(folder, slug, "quick", seconds=2.0, peak_memory_mb=80)
    code, out, _ = icml26("reproduce", "--profile", "quick", "--chapters", "1 15")
    assert code == 0
    assert "0 of 2 chapters to run at profile quick" in out
    assert out.count("unchanged") == 2
    code, out, _ = icml26("report", "--profile", "quick")
    assert out.splitlines()[0] == "_run/quick/claims.md"
    assert out.splitlines()[-1] == "2 chapters: 2 holds, 2 holds in direction"


def test_models_and_data_are_listed_and_one_failure_does_not_hide_another(icml26, tmp_path, monkeypatch):
    monkeypatch.setenv("ICML26_CACHE", str(tmp_path))
    monkeypatch.delenv("ICML26_DATA", raising=False)
    assert "tiny-random-llama" in icml26("models")[1]
    assert "gsm8k-test" in icml26("data")[1]
    code, _, err = icml26("models", "check", "smollm2-135m", "nonsense")
    assert code == 2
    assert [("smollm2-135m: " in line or "smollm2-135m " in line) for line in err.splitlines()] == [True, False]


def test_in_a_pipe_each_row_of_a_list_is_one_line_however_narrow(icml26, tmp_path, monkeypatch):
    monkeypatch.setenv("ICML26_CACHE", str(tmp_path / "a folder" / ("long" * 30)))
    monkeypatch.setenv("ICML26_DATA", str(tmp_path))
    monkeypatch.setattr(icml26_models, "status", lambda: [LONG])
    for arguments, names in ((("models", "list"), ["a-model"]), (("data", "list"), list(icml26_data.registry()))):
        _, out, _ = icml26(*arguments)
        rows = out.splitlines()[1 : 1 + len(names)]
        assert [row.split()[0] for row in rows] == names
        assert all(row == row.rstrip() for row in rows)
        assert len(out.splitlines()) == 1 + len(names) + (arguments[0] == "data")
    assert icml26("models", "list")[1].splitlines()[1].endswith("word " * 99 + "end")


LONG = icml26_models.Status("a-model", "lm", None, "MIT", False, "word " * 99 + "end", "", "")


def test_a_paper_s_own_command_is_loaded_only_when_called(icml26, monkeypatch):
    module = ModuleType("paper_cli")
    module.app = typer.Typer()
    module.app.command()(lambda: print("warped"))
    monkeypatch.setitem(cli.COMMANDS, "warp", "paper_cli:app")
    code, _, _ = icml26("list", "--help")
    assert code == 0, "the module does not even exist yet"
    monkeypatch.setitem(sys.modules, "paper_cli", module)
    assert icml26("warp")[:2] == (0, "warped\n")


def _result(text):
    return nbformat.v4.new_output("execute_result", data={"text/plain": text}, execution_count=1)


@pytest.mark.slow
def test_verify_compares_only_what_is_tagged_and_fails_where_it_differs(folder):
    tagged = {"tags": ["nbval-check-output"]}
    cells = [
        nbformat.v4.new_code_cell("1 + 1", execution_count=1, metadata=metadata, outputs=[_result(shown)])
        for metadata, shown in (({}, "7"), (tagged, "2"), (tagged, "3"))
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "x", "language": "python"}
    (folder / "tests" / "reference").mkdir(parents=True)
    nbformat.write(notebook, folder / "tests" / "reference" / "15_s_quant.ipynb")
    command = [sys.executable, "-m", "icml26.cli", "verify", "15"]
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert "15_s_quant.ipynb::Cell 2" in done.stdout


def test_make_help_lists_every_check_that_make_test_runs(project):
    makefile = (project / "Makefile").read_text()
    checks = re.search(r"^test: ([a-z ]+?) *##", makefile, re.MULTILINE)[1].split()
    out = subprocess.run(["make", "help"], cwd=project, capture_output=True, text=True, check=True).stdout
    assert len(checks) == 5
    assert {*checks, "test", "reproduce"} <= {
        line.split()[1] for line in out.splitlines() if line.startswith("  make ")
    }


def test_make_stops_where_python_is_not_that_of_the_environment(project, tmp_path):
    shutil.copy(project / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 2.7\n")
    python.chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")}

    def install(*variables):
        return subprocess.run(["make", "install", *variables], cwd=tmp_path, env=env, capture_output=True, text=True)

    assert "Creating" not in install().stdout, "the environment is up to date"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    refused = install(f"PYTHON={sys.executable}")
    assert refused.returncode != 0
    said = (
        f"make: PYTHON={sys.executable} is Python {version}, but .venv has Python 2.7; remove .venv or leave PYTHON out"
    )
    assert refused.stderr.splitlines()[0] == said
    python.write_text(f"#!/bin/sh\necho {version}\n")
    same = install(f"PYTHON={sys.executable}")
    assert same.returncode == 0
    assert "Creating" not in same.stdout
