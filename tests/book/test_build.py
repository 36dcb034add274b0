"""A strict build of a small book works, is repeatable and clean, and says in one line what is wrong when it fails."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
import yaml
from smallbook import SLUG

from icml26 import book
from icml26.errors import Icml26Error, InputError


@pytest.fixture(scope="module")
def built(small_book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a small book that has been built strictly."""
    root = tmp_path_factory.mktemp("built") / "project"
    shutil.copytree(small_book, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICML26_ROOT", str(root))
        assert book.build() == root / "_build" / "html"
    return root


@pytest.fixture
def project(small_book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of an unbuilt small book that a test may change."""
    root = tmp_path / "project"
    shutil.copytree(small_book, root)
    monkeypatch.setenv("ICML26_ROOT", str(root))
    return root


def page(root: Path, name: str = f"book/chapters/{SLUG}.html") -> str:
    return (root / "_build" / "html" / name).read_text(encoding="utf-8")


def html_pages(html: Path) -> list[Path]:
    return [file for file in html.rglob("*.html") if "_static" not in file.parts]


def snapshot(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def test_glue_citations_equations_listings_and_figures_reach_the_page(built: Path) -> None:
    html = page(built)
    assert 'visits <span class="pasted-text">15</span> states' in html
    assert 'mean is <span class="pasted-text">8.00</span>' in html
    assert 'id="equation-99-sample-recurrence"' in html
    assert re.search(r'href="#equation-99-sample-recurrence">\(1\)<', html)
    assert re.search(r'Shafipour <em>et al.</em> \[<a class="reference internal" href="#id\d+"[^>]*>2025</a>', html)
    assert "get_close_matches" in html
    assert 'alt="A walk"' in html
    assert "Figure 1" in html
    assert 'class="verdict verdict-holds-in-direction"' in html


def test_every_local_address_on_every_page_leads_to_a_file(built: Path) -> None:
    html = built / "_build" / "html"
    missing = []
    for file in html_pages(html):
        for address in re.findall(r'(?:href|src)="([^"#?]+)', file.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", address) and not (file.parent / address).exists():
                missing.append(f"{file.relative_to(html)}: {address}")
    assert not missing


def test_no_page_names_a_script_or_style_of_another_host(built: Path) -> None:
    for file in html_pages(built / "_build" / "html"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//', text), file
        assert "thebe" not in text.casefold(), file


def test_the_downloads_are_the_executed_notebook_and_its_source(built: Path) -> None:
    links = re.findall(r'<a href="([^"]+)" download>', page(built))
    files = [(built / "_build/html/book/chapters" / link).resolve() for link in links]
    assert [file.suffix for file in files] == [".ipynb", ".py"]
    notebook = nbformat.read(files[0], as_version=4)
    nbformat.validate(notebook)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert files[1].read_bytes() == (built / "notebooks" / f"{SLUG}.py").read_bytes()


def test_a_second_build_writes_no_page_removes_former_ones_and_leaves_nothing_outside(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICML26_ROOT", str(built))
    staged, steps = snapshot(built / "_build" / "source"), []
    former = [built / "_build" / "html" / name for name in ("book/former.html", "_sources/book/former.md")]
    for file in former:
        file.write_text("a page that is no longer in the book")
    book.build(progress=steps.append)
    assert not any(file.exists() for file in former)
    assert "15" in page(built)
    assert snapshot(built / "_build" / "source") == staged
    assert not [step for step in steps if step.startswith(("reading", "writing"))]
    assert {entry.name for entry in built.iterdir()} == {
        "_build", "_config.yml", "_toc.yml", "CHANGELOG.md", "book", "lib", "notebooks",
    }  # fmt: skip


def test_a_warning_fails_the_build_each_time_with_one_line_and_the_log(project: Path) -> None:
    index = project / "book" / "index.md"
    index.write_text(index.read_text() + "\nSee {ref}`nowhere`.\n")
    for _ in range(2):
        shown: list[str] = []
        with pytest.raises(Icml26Error, match=r"book/index\.md:\d+: WARNING: undefined label: 'nowhere'") as failure:
            book.build(progress=shown.append)
        assert "\n" not in str(failure.value)
        assert "nowhere" in (project / "_build" / "book.log").read_text()
        assert any("nowhere" in line for line in shown)


def test_staging_rewrites_only_what_changed_and_removes_what_is_gone(project: Path) -> None:
    target = book.stage()
    before = snapshot(target)
    (project / "book" / "index.md").write_text("# Another\n")
    (project / "book" / "_static" / "claims.js").unlink()
    (project / "book" / "__pycache__").mkdir()
    (project / "book" / "__pycache__" / "x.pyc").write_bytes(b"")
    after = snapshot(book.stage())
    assert before.keys() - after.keys() == {"book/_static/claims.js"}
    assert not after.keys() - before.keys()
    assert [name for name in after if after[name] != before[name]] == ["book/index.md"]


def test_a_chapter_of_the_contents_that_was_never_published_is_named(project: Path) -> None:
    (project / "book" / "chapters" / f"{SLUG}.ipynb").unlink()
    with pytest.raises(InputError, match=rf"book/chapters/{SLUG} of _toc\.yml has no executed notebook; run `make"):
        book.stage()


def test_a_run_takes_the_place_of_the_committed_chapters_and_pages(project: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    committed = project / "book" / "chapters" / f"{SLUG}.ipynb"
    notebook = json.loads(committed.read_text())
    notebook["cells"][0]["source"] = "# From the run"
    (run / f"{SLUG}.ipynb").write_text(json.dumps(notebook))
    (project / "book" / "claims.md").write_text("# Committed\n")
    before = snapshot(project)
    target = book.stage(tmp_path / "staged", results=run)
    assert "From the run" in (target / "book" / "chapters" / f"{SLUG}.ipynb").read_text()
    assert "Committed" not in (target / "book" / "claims.md").read_text()
    assert snapshot(project) == before


def test_a_run_that_lacks_a_chapter_leaves_it_and_its_empty_part_out(project: Path, tmp_path: Path) -> None:
    toc = yaml.safe_load((project / "_toc.yml").read_text())
    toc["parts"].append({"caption": "Later", "chapters": [{"file": "book/chapters/98_failed"}]})
    (project / "_toc.yml").write_text(yaml.safe_dump(toc))
    staged = yaml.safe_load((book.stage(results=tmp_path) / "_toc.yml").read_text())
    assert [part["caption"] for part in staged["parts"]] == ["Samples"]


def test_a_run_that_does_not_exist_is_an_input_error(project: Path) -> None:
    with pytest.raises(InputError, match="no run at"):
        book.stage(results=project / "_run" / "laptop")


def test_no_launch_link_and_no_colab_copy_without_a_repository(built: Path) -> None:
    assert not re.search(r"mybinder|colab", page(built))
    assert not (built / "_build" / "html" / "_static" / "colab").exists()


def test_one_address_gives_binder_and_colab_whose_copy_installs_first(project: Path) -> None:
    config = project / "_config.yml"
    config.write_text(config.read_text().replace('url: ""', "url: https://github.com/owner/name"))
    html = book.build()
    text = page(project)
    assert f"https://mybinder.org/v2/gh/owner/name/main?urlpath=lab/tree/book/chapters/{SLUG}.ipynb" in text
    assert f"https://colab.research.google.com/github/owner/name/blob/gh-pages/_static/colab/{SLUG}.ipynb" in text
    copy = nbformat.read(html / "_static" / "colab" / f"{SLUG}.ipynb", as_version=4)
    nbformat.validate(copy)
    assert "git clone" in copy.cells[0].source
    assert "https://github.com/owner/name" in copy.cells[0].source
    assert len(copy.cells) == 1 + len(nbformat.read(project / f"book/chapters/{SLUG}.ipynb", as_version=4).cells)


def test_magnitudes_in_docstrings_are_text_and_not_substitutions(project: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(project / "book" / "_ext"))
    from icml26_book import escape_bars

    lines = ["At most |z - h|, with ``max|t|`` as it is.", ">>> 3 | 4", "7", "", "a \\| b | c"]
    escape_bars(None, "function", "f", None, None, lines)
    assert lines == ["At most \\|z - h\\|, with ``max|t|`` as it is.", ">>> 3 | 4", "7", "", "a \\| b \\| c"]
