"""A closed ledger shows itself as an accessible table, as stable text, and as data for the runner."""

import json
import re
from html.parser import HTMLParser

import pytest

from icml26.claims import MIMETYPE, VERDICTS, Ledger


@pytest.fixture(autouse=True)
def off_the_paper_s_setting(monkeypatch):
    monkeypatch.delenv("ICML26_SETTING", raising=False)


def closed(project, q3=(1.04, 1.02, 1.06)):
    ledger = Ledger("15_s_quant", path=project / "book" / "claims" / "15_s_quant.yml")
    for id in ("L1", "L2", "L3", "L4", "Q1", "Q2", "Q5"):
        ledger.skip(id, reason="a < b", needs="time & money")
    ledger.judge("Q6", exact=True, value=65535)
    ledger.judge("Q3", value=q3[0], interval=q3[1:], note="one <threshold>")
    ledger.judge("Q4", value=3.9, interval=(3.8, 4.0))
    return ledger.close()


def test_the_plain_text_is_one_line_a_claim_with_numbers_only_for_what_is_exact(project):
    assert repr(closed(project)) == (
        "Q1 not tested\nQ2 not tested\nQ3 contradicted at this scale\nQ4 holds in direction\nQ5 not tested\n"
        "Q6 holds (65535)\nL1 not tested\nL2 not tested\nL3 not tested\nL4 not tested"
    )


def test_the_plain_text_does_not_change_with_the_last_digits_of_a_measurement(project):
    assert repr(closed(project)) == repr(closed(project, q3=(1.0400001, 1.0199999, 1.06)))
    assert closed(project).exact() == "Q5 not tested\nQ6 holds (65535)"


def test_what_a_display_hands_out_cannot_change_the_ledger(project):
    summary = closed(project)
    summary._repr_mimebundle_()[MIMETYPE]["claims"][5]["verdict"] = "contradicted"
    assert summary._repr_mimebundle_()[MIMETYPE]["claims"] == summary.rows()
    assert summary.rows()[5]["verdict"] == "holds"


def test_the_data_of_a_ledger_is_json_with_every_claim_in_the_file_s_order(project):
    content = closed(project)._repr_mimebundle_()[MIMETYPE]
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert {key: content[key] for key in ("chapter", "data", "at_paper_setting")} == {
        "chapter": "15_s_quant",
        "data": "real",
        "at_paper_setting": False,
    }
    assert [row["id"] for row in content["claims"]] == ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "L1", "L2", "L3", "L4"]
    for row in content["claims"]:
        assert row.keys() == {
            *("id", "statement", "paper", "test", "scale", "rule", "verdict", "label", "at_paper_setting"),
            *("value", "interval", "exact", "reason", "needs", "note"),
        }
        assert row["verdict"] in VERDICTS
    assert content["claims"][2]["interval"] == [1.02, 1.06]
    assert content["claims"][1]["rule"] == {"kind": "within", "direction": "above", "null": 1.0, "tolerance": 0.4}


class Table(HTMLParser):
    """Collects a table's cells and checks that tags nest."""

    def __init__(self, html):
        super().__init__()
        self.open, self.cells, self.attributes = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.attributes.append((tag, dict(attributes)))
        if tag != "br":
            self.open.append(tag)
        if tag in ("th", "td", "caption"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.cells and data.strip():
            self.cells[-1] += data


def test_the_table_is_readable_by_screen_readers_and_leaves_colours_to_the_style_sheet(project):
    html = closed(project)._repr_mimebundle_()["text/html"]
    table = Table(html)
    scopes = [attributes.get("scope") for tag, attributes in table.attributes if tag == "th"]
    assert scopes == ["col"] * 6 + ["row"] * 10
    assert table.cells[0] == "Claims of chapter 15_s_quant and what this run found (real data)"
    classes = [attributes["class"] for tag, attributes in table.attributes if tag == "span"]
    assert classes[2:6] == [
        "verdict verdict-contradicted",
        "verdict verdict-holds-in-direction",
        "verdict verdict-not-tested",
        "verdict verdict-holds",
    ]
    assert not re.search(r"color|background|bgcolor|#[0-9a-f]{3}", html)


def test_the_table_shows_each_claim_with_paper_s_value_ours_verdict_and_scale(project):
    cells = Table(closed(project)._repr_mimebundle_()["text/html"]).cells[7:]
    rows = {cells[start]: cells[start + 1 : start + 6] for start in range(0, len(cells), 6)}
    statement, paper, ours, verdict, remarks = rows["Q4"]
    assert statement.startswith("The stored weights shrink several times over.")
    assert statement.endswith("Decided by: interval above 2; at the paper's setting inside 4.2 ± 0.3.")
    assert paper.startswith("16/3.8 = 4.2×")
    assert (ours, verdict) == ("3.9 [3.8, 4]", "holds in direction")
    assert remarks == "sampled blocks of a sentence encoder stand in for Llama's weights"
    assert rows["Q3"][4].endswith("one <threshold>")  # escaped, and so read back as it was
    assert rows["Q6"][2:4] == ["true (65535)", "holds"]
    assert rows["Q6"][4] == "the paper's own setting"
    assert rows["Q1"][2] == "not measured"
    assert rows["Q1"][4] == "Not tested: a < b. Needs: time & money."


SCALES = """
claims:
  - id: E
    statement: One is one.
    paper: {value: null, text: "so", setting: "any"}
    test: counting
    rule: {kind: exact}
    scale: paper
  - id: D
    statement: More is more.
    paper: {value: null, text: "so", setting: "any"}
    test: a difference
    rule: {kind: difference, direction: above}
    scale: paper
  - id: S
    statement: Less is less.
    paper: {value: null, text: "so", setting: "any"}
    test: a difference
    rule: {kind: difference, direction: below}
    scale: small numbers stand in for large ones
"""
OWN = "the paper's own setting"


@pytest.mark.parametrize(
    ("data", "setting", "said"),
    [
        ("real", "", [OWN, OWN, "small numbers stand in for large ones"]),
        ("real", "paper", [OWN, OWN, OWN]),
        (
            "stand-in",
            "paper",
            [
                "exact, on stand-in data",
                "stand-in data, not the paper's setting",
                "small numbers stand in for large ones",
            ],
        ),
    ],
)
def test_only_what_was_at_the_paper_s_setting_is_shown_as_such(tmp_path, monkeypatch, data, setting, said):
    path = tmp_path / "99_test.yml"
    path.write_text(SCALES)
    monkeypatch.setenv("ICML26_SETTING", setting)
    ledger = Ledger("99_test", data=data, path=path)
    ledger.judge("E", exact=True)
    ledger.judge("D", value=1, interval=(0, 2))
    ledger.judge("S", value=1, interval=(0, 2))
    cells = Table(ledger.close()._repr_mimebundle_()["text/html"]).cells[7:]
    assert cells[5::6] == said
