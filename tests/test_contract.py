"""Every chapter keeps the contract: its source, and its executed copies that the project commits."""

import pytest
from contract import executed_violations, process_words, violations

from icml26 import chapters, paths

EXECUTED = sorted(
    path for folder in ("book/chapters", "tests/reference") for path in (paths.root() / folder).glob("*.ipynb")
)


@pytest.mark.parametrize("slug", chapters.existing())
def test_a_chapter_keeps_the_contract(slug):
    assert violations(slug) == []


@pytest.mark.parametrize("path", EXECUTED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_executed_chapter_keeps_the_contract(path):
    assert executed_violations(path) == []


def test_every_executed_chapter_has_a_source():
    assert {path.stem for path in EXECUTED} <= set(chapters.existing())


def test_every_part_of_the_papers_is_one_of_the_books():
    assert {paper["part"] for paper in chapters.papers()} == set(chapters.PARTS)
    assert len(chapters.slugs()) == 19


@pytest.mark.parametrize("text", ["second half: needs a model", "see issue 7", "TODO", "done later", "not run yet"])
def test_a_reason_of_our_own_work_is_found_as_a_keyword_and_in_a_dictionary(text):
    assert process_words(f"ledger.skip('Q1', reason={text!r}, needs='a GPU')") == [text]
    assert process_words(f"large = {{'reason': 'too large', 'needs': f'{text} {{number}}'}}") == [f"{text} "]
    assert process_words(f"print({text!r}); ledger.skip('Q1', reason='it needs a GPU', needs='a GPU')") == []
