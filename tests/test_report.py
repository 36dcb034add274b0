"""The pages of a run say what its results say, and what is missing; nothing needs the script that filters."""

import json
import re

import pytest
from miniature import pretend_run, project

from icml26 import chapters, report
from icml26.errors import InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = project(tmp_path / "p", {"01_cdg": {}, "15_s_quant": {}, "17_top_w": {}})
    monkeypatch.setenv("ICML26_ROOT", str(made))
    return made


@pytest.fixture
def run(folder):
    claims = folder / "book" / "claims" / "15_s_quant.yml"
    claims.write_text(claims.read_text().replace("One and one is two.", 'Is <b> & "quoted" | bold?'))
    pretend_run(folder, "01_cdg", "laptop")
    pretend_run(folder, "15_s_quant", "laptop", data="stand-in", overrides={"term": 2.0})
    return folder / "_run" / "laptop"


def test_the_ledger_s_page_has_a_row_for_every_claim_with_what_the_filter_needs(run, tmp_path):
    assert [path.name for path in report.write(run, tmp_path / "out")] == [
        "claims.md",
        "claims.json",
        "papers_table.md",
    ]
    page = (tmp_path / "out" / "claims.md").read_text()
    rows = re.findall(r'<tr data-paper="(\w+)" data-paper-name="([^"]+)" data-verdict="([^"]+)">', page)
    assert rows == [
        ("01_cdg", "CDG", "holds"), ("01_cdg", "CDG", "holds in direction"),
        ("15_s_quant", "S-Quant", "holds"), ("15_s_quant", "S-Quant", "holds in direction"),
    ]  # fmt: skip
    assert page.count('<th scope="row"><a href="chapters/') == 4
    assert "Is &lt;b&gt; &amp; &quot;quoted&quot; | bold?" in page
    assert "0.2 [0.1, 0.3]" in page
    form = page[page.index("<form") : page.index("</form>")]
    assert '<form class="claims-filter" hidden>' in form, "without the script no dead control shows"
    assert re.findall(r'<option value="([^"]*)">', form) == [
        "",
        "01_cdg",
        "15_s_quant",
        "",
        "holds",
        "holds in direction",
    ]
    assert form.count("<label>") == 2
    assert 'aria-live="polite">4 of 4 claims' in form
    html = page[page.index("```{raw} html") : page.index("```\n", page.index("</table>"))]
    assert "\n\n" not in html, "an empty line would end the block"


def test_the_pages_say_what_is_missing_changed_by_hand_or_not_real(run, tmp_path):
    report.write(run, tmp_path)
    page = (tmp_path / "claims.md").read_text()
    assert "S-Quant was measured on stand-in data." in page
    assert "S-Quant was run with parameters set by hand: `term = 2.0`." in page
    assert "CDG was" not in page
    assert "- Top-W, *Geometry-Aware" in page
    assert page.count(": written, no result in this run") == 1
    assert page.count(": not written yet") == 16

    lines = (tmp_path / "papers_table.md").read_text().splitlines()
    assert len(lines) == 2 + 19
    assert all(line.count(" | ") == 5 for line in lines[2:])
    assert [line.split(" | ")[0][2:] for line in lines[2:6]] == ["Decoding and serving"] * 4
    cdg = next(line for line in lines if "| 1. " in line)
    assert "[Inference Time Optimization with Confidence Dynamics](chapters/01_cdg.ipynb)" in cdg
    assert "[2605.25244](https://arxiv.org/abs/2605.25244)" in cdg
    assert cdg.endswith("| executed at `laptop` | 1 holds, 1 holds in direction |")
    unknown = next(line for line in lines if "| 2. " in line)
    assert "| not known to us | none known | not written yet | – |" in unknown


def test_the_claims_file_has_every_row_and_what_decided_it(run, tmp_path):
    report.write(run, tmp_path)
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert [(claim["chapter"], claim["id"]) for claim in claims] == [
        ("01_cdg", "Q1"), ("01_cdg", "Q2"), ("15_s_quant", "Q1"), ("15_s_quant", "Q2"),
    ]  # fmt: skip
    assert {"verdict", "value", "interval", "exact", "rule", "profile", "data"} <= set(claims[0])


def test_a_run_without_results_is_a_page_too_and_a_missing_or_damaged_one_an_error(folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    page = report.pages(empty, tmp_path)[tmp_path / "claims.md"]
    assert "0 so far from 0 of 19 papers: none yet" in page
    assert "<table" not in page
    with pytest.raises(InputError, match=r"no results at .*; run `icml26 reproduce` first"):
        report.collect(tmp_path / "nowhere")
    (empty / "01_cdg.json").write_text("{}")
    with pytest.raises(InputError, match=r"01_cdg\.json is no result of a chapter"):
        report.collect(empty)


def test_the_readme_s_table_is_replaced_between_its_marks_and_nothing_else_is(run):
    table = report.readme_table(report.collect(run))
    assert len(table.splitlines()) == 2 + len(chapters.slugs())
    assert "| 1 holds, 1 holds in direction |" in table
    text = "# Title\n\n<!-- verdicts:begin -->\nold\n<!-- verdicts:end -->\n\nend\n"
    once = report.update_readme(text, table)
    assert once.startswith("# Title\n\n<!-- verdicts:begin -->\n| Paper |")
    assert once.endswith("|\n<!-- verdicts:end -->\n\nend\n")
    assert report.update_readme(once, table) == once
    for broken in ("none", text + text, "<!-- verdicts:end --><!-- verdicts:begin -->"):
        with pytest.raises(InputError, match=r"README\.md needs the lines"):
            report.update_readme(broken, table)
