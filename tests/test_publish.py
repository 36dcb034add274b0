"""Publishing copies complete runs on real data, and rewrites only what changed."""

import json

import pytest
from miniature import chapter, pretend_run, project

from icml26.errors import InputError
from icml26.publish import publish

SLUGS = ("01_cdg", "15_s_quant")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = project(tmp_path / "p", {slug: {} for slug in SLUGS})
    (made / "README.md").write_text("# T\n<!-- verdicts:begin -->\n<!-- verdicts:end -->\n")
    monkeypatch.setenv("ICML26_ROOT", str(made))
    for slug in SLUGS:
        for profile in ("laptop", "quick"):
            pretend_run(made, slug, profile)
    return made


def names(folder, changed):
    return sorted(path.relative_to(folder).as_posix() for path in changed)


def test_everything_that_the_project_commits_is_written_once(folder):
    assert names(folder, publish()) == [
        "README.md",
        "book/chapters/01_cdg.ipynb",
        "book/chapters/15_s_quant.ipynb",
        "book/claims.json",
        "book/claims.md",
        "book/papers_table.md",
        "results/laptop/01_cdg.json",
        "results/laptop/15_s_quant.json",
        "tests/reference/01_cdg.ipynb",
        "tests/reference/15_s_quant.ipynb",
    ]
    assert "| 1 holds, 1 holds in direction |" in (folder / "README.md").read_text()
    assert json.loads((folder / "tests/reference/01_cdg.ipynb").read_text())["metadata"]["icml26"]["profile"] == "quick"
    assert publish() == []


def test_a_second_run_of_the_same_files_changes_nothing_and_a_new_source_only_its_chapter(folder):
    publish()
    again = folder / "_run" / "laptop" / "15_s_quant.ipynb"
    again.write_text(again.read_text().replace('"cells": []', '"cells": [{}]'))
    assert publish() == []
    chapter(folder, "15_s_quant", body="pass  # new")
    for profile in ("laptop", "quick"):
        pretend_run(folder, "15_s_quant", profile)
    assert names(folder, publish()) == [
        "book/chapters/15_s_quant.ipynb",
        "results/laptop/15_s_quant.json",
        "tests/reference/15_s_quant.ipynb",
    ]


def test_an_incomplete_run_is_refused_and_what_is_missing_is_named(folder):
    (folder / "_run" / "quick" / "01_cdg.json").unlink()
    chapter(folder, "15_s_quant", body="pass  # new")
    with pytest.raises(
        InputError, match=r"15_s_quant at laptop .*15_s_quant\.py changed.*01_cdg at quick .no result yet"
    ):
        publish()
    assert not (folder / "results").exists()
    assert not (folder / "book" / "chapters").exists()


def test_parameters_set_by_hand_stand_in_data_and_large_chapters_are_refused(folder):
    pretend_run(folder, "01_cdg", "laptop", fingerprint="0", overrides={"term": 2.0})
    with pytest.raises(InputError, match=r"01_cdg at laptop .its result has parameters set by hand"):
        publish()
    pretend_run(folder, "01_cdg", "laptop", data="stand-in")
    with pytest.raises(InputError, match="01_cdg was measured on stand-in data"):
        publish()
    pretend_run(folder, "01_cdg", "laptop")
    with (folder / "_run" / "laptop" / "01_cdg.ipynb").open("a") as file:
        file.write(" " * 1_500_000)
    with pytest.raises(InputError, match="01_cdg: the executed chapter has 1,500,"):
        publish()
    assert not (folder / "results").exists()


def test_a_reference_keeps_what_is_compared_and_no_pictures(folder):
    run = folder / "_run" / "quick" / "01_cdg.ipynb"
    notebook = json.loads(run.read_text())
    picture = {
        "output_type": "display_data",
        "data": {"image/png": "iVBOR", "text/plain": ["<Figure>"]},
        "metadata": {},
    }
    stream = {"output_type": "stream", "name": "stdout", "text": ["Q6 holds"]}
    notebook["cells"] = [{"cell_type": "code", "outputs": [picture, stream]}]
    run.write_text(json.dumps(notebook))
    publish()
    kept = json.loads((folder / "tests/reference/01_cdg.ipynb").read_text())["cells"][0]["outputs"]
    assert kept == [{**picture, "data": {"text/plain": ["<Figure>"]}}, stream]
    assert "image/png" in json.dumps(notebook)
