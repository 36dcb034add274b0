"""`icml26 new` writes a chapter that runs and keeps the contract, or nothing at all."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from contract import violations
from miniature import REPOSITORY, TOC, environment, project

from icml26 import scaffold
from icml26.errors import InputError
from icml26.papers import slugs
from icml26.scaffold import toc_with


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = project(tmp_path / "p", {"15_s_quant": {}})
    (made / "tests").mkdir()
    monkeypatch.setenv("ICML26_ROOT", str(made))
    return made


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


@pytest.mark.slow
def test_a_new_chapter_keeps_the_contract_and_runs_at_quick(folder):
    done = subprocess.run(
        [sys.executable, "-m", "icml26.cli", "new", "top_w"], env=environment(folder), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "notebooks/17_top_w.py",
        "book/claims/17_top_w.yml",
        "lib/icml26/top_w.py",
        "tests/test_top_w.py",
        "profiles/quick.yml",
        "profiles/laptop.yml",
        "profiles/paper.yml",
        "_toc.yml",
    ]
    assert violations("17_top_w") == []
    run = subprocess.run(
        [sys.executable, "-m", "icml26.cli", "run", "17", "--profile", "quick"],
        env=environment(folder), capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    result = json.loads((folder / "_run" / "quick" / "17_top_w.json").read_text())
    assert result["data"] == "stand-in"
    assert [claim["verdict"] for claim in result["claims"]] == ["not tested"]
    assert result["title"].startswith("Top-W: Geometry-Aware Decoding")
    for path in ("tests/test_top_w.py", "lib/icml26/top_w.py", "notebooks/17_top_w.py"):
        compile((folder / path).read_text(), path, "exec")


def test_the_skeleton_of_every_paper_passes_the_project_s_own_linter_and_formatter(folder):
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    shutil.copy(REPOSITORY / "notebooks" / "ruff.toml", folder / "notebooks")
    library = REPOSITORY / "lib" / "icml26"
    modules = {path.stem for path in library.iterdir()}
    without = [slug for slug in slugs() if slug.partition("_")[2] not in modules]
    written = [path for slug in without for path in scaffold.new(slug) if path.suffix == ".py"]
    assert len(written) == 3 * len(without) > 0
    for arguments in (("check",), ("format", "--check")):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", *map(str, written)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "taken", ["lib/icml26/top_w.py", "tests/test_top_w.py", "book/claims/17_top_w.yml", "notebooks/17_top_w.py"]
)
def test_nothing_is_written_where_a_file_exists(folder, taken, monkeypatch):
    (folder / taken).write_text("mine")
    before = contents(folder)
    with pytest.raises(InputError, match=rf"17_top_w: {taken} exists already"):
        scaffold.new("17_top_w")
    assert contents(folder) == before


def test_nothing_is_left_when_writing_fails_half_way(folder, monkeypatch):
    before = contents(folder)
    write = scaffold.paths.write_atomic

    def full_disk(path, text):
        if path.name == "laptop.yml":
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(scaffold.paths, "write_atomic", full_disk)
    with pytest.raises(OSError, match="No space"):
        scaffold.new("17_top_w")
    assert contents(folder) == before


def test_a_paper_that_has_a_chapter_or_is_unknown_is_refused(folder):
    with pytest.raises(InputError, match="exists already"):
        scaffold.new("15")
    with pytest.raises(InputError, match="did you mean 'top_w'"):
        scaffold.new("topw")


def test_a_page_comes_last_in_its_part_and_a_missing_part_comes_in_the_books_order():
    text = toc_with(TOC, "Compression", "book/chapters/11_qtale")
    text = toc_with(text, "Understanding", "book/chapters/14_function_vectors")
    text = toc_with(text, "Decoding and serving", "book/chapters/01_cdg")
    text = toc_with(text, "Training", "book/chapters/19_nqs")
    toc = yaml.safe_load(text)
    assert [part["caption"] for part in toc["parts"]] == [
        "Start here", "Decoding and serving", "Compression", "Training", "Understanding", "Reference",
    ]  # fmt: skip
    assert [page["file"][-8:] for page in toc["parts"][2]["chapters"]] == ["_s_quant", "11_qtale"]
    assert text.startswith("# How the parts are ordered.\n"), "comments stay"


def test_a_table_of_contents_in_another_form_is_refused():
    with pytest.raises(InputError, match=r"_toc\.yml"):
        toc_with("parts: [{caption: Training, chapters: []}]\n", "Training", "x")
