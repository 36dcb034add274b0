"""The package finds its project and cache from anywhere, and its files appear whole or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from icml26 import paths
from icml26.errors import ChapterError, Icml26Error, InputError, MissingData, MissingModel, ProjectNotFound, nearest


def book(folder: Path) -> Path:
    (folder / "notebooks").mkdir(parents=True)
    (folder / "_toc.yml").touch()
    return folder


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("ICML26_ROOT", raising=False)
    monkeypatch.delenv("ICML26_CACHE", raising=False)


def test_the_root_is_the_clone_that_holds_the_package_from_any_working_directory(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert paths.root() == project


def test_the_package_s_own_clone_wins_over_the_working_directory(project, tmp_path, monkeypatch):
    monkeypatch.chdir(book(tmp_path / "other"))
    assert paths.root() == project


def test_an_installed_package_finds_the_clone_above_the_working_directory(tmp_path, monkeypatch):
    clone = book(tmp_path / "clone")
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "site" / "icml26" / "paths.py"))
    monkeypatch.chdir(clone / "notebooks")
    assert paths.root() == clone


def test_the_environment_decides_the_root(tmp_path, monkeypatch):
    monkeypatch.setenv("ICML26_ROOT", str(book(tmp_path / "chosen")))
    assert paths.root() == tmp_path / "chosen"


def test_an_environment_that_names_no_clone_is_an_error_and_not_a_fallback(tmp_path, monkeypatch):
    monkeypatch.setenv("ICML26_ROOT", str(tmp_path))
    with pytest.raises(ProjectNotFound, match=r"^ICML26_ROOT=.* unset it$"):
        paths.root()


@pytest.mark.parametrize("part", ["_toc.yml", "notebooks"])
def test_half_a_clone_is_none(tmp_path, monkeypatch, part):
    (tmp_path / part).mkdir()  # a folder named _toc.yml does not count either
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "paths.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProjectNotFound, match="run inside a clone of the book or set ICML26_ROOT"):
        paths.root()


def test_the_cache_is_the_environment_s_or_the_user_s(tmp_path, monkeypatch):
    assert paths.cache().name == "icml26"
    assert paths.cache().is_absolute()
    monkeypatch.setenv("ICML26_CACHE", str(tmp_path / "models"))
    assert paths.cache() == tmp_path / "models"
    assert not paths.cache().exists()


@pytest.mark.parametrize("data", ["wörds\r\n", b"\x00\xff", "", b""])
def test_a_written_file_holds_exactly_what_was_given(tmp_path, data):
    path = tmp_path / "new" / "folder" / "file"
    paths.write_atomic(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        paths.write_atomic(path, "new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "old")]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_a_written_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "ordinary").touch()
    paths.write_atomic(tmp_path / "atomic", "")
    mode = stat.S_IMODE((tmp_path / "ordinary").stat().st_mode)
    assert stat.S_IMODE((tmp_path / "atomic").stat().st_mode) == mode


def test_a_reader_never_sees_part_of_a_file(tmp_path):
    path = tmp_path / "file"
    contents = {letter * 2_000_000 for letter in "ab"}
    paths.write_atomic(path, "a" * 2_000_000)
    writer = (
        "import sys; from icml26.paths import write_atomic\n"
        "for turn in range(40): write_atomic(sys.argv[1], 'ab'[turn % 2] * 2_000_000)"
    )
    with subprocess.Popen([sys.executable, "-c", writer, str(path)]) as process:
        while process.poll() is None:
            assert path.read_text() in contents
    assert process.returncode == 0


def test_an_error_s_message_is_one_line():
    assert str(InputError("first\n   second\r\nthird")) == "first second third"


def test_bad_input_and_failed_chapters_are_told_apart():
    for error in (ProjectNotFound, MissingData, MissingModel):
        assert issubclass(error, InputError)
    assert issubclass(InputError, ValueError)
    assert issubclass(ChapterError, Icml26Error)
    assert not issubclass(ChapterError, InputError)


def test_the_nearest_name_is_suggested_only_when_there_is_one():
    assert nearest("15_squant", ["17_top_w", "15_s_quant"]) == "; did you mean '15_s_quant'?"
    assert nearest("BLOCKS", ["blocks"]) == "; did you mean 'blocks'?"
    assert nearest("seed", ["temperature"]) == ""
    assert nearest("seed", []) == ""
