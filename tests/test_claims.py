"""No call can set a verdict; the rule and the measurement decide, and every way around them is an error."""

import inspect
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from icml26.claims import VERDICTS, Claim, Ledger, Paper, Rule, decide, load
from icml26.errors import InputError

numbers = st.floats(-100, 100)


@st.composite
def rules(draw):
    """A directional rule with the paper's number or without, as a claims file may hold it."""
    direction, null = draw(st.sampled_from(["above", "below"])), draw(numbers)
    if draw(st.booleans()):
        return Rule(draw(st.sampled_from(["difference", "ratio"])), direction, null), None
    tolerance = draw(st.floats(0.01, 10))
    distance = tolerance * draw(st.floats(1.01, 10))
    number = null + distance if direction == "above" else null - distance
    return Rule(draw(st.sampled_from(["difference", "ratio", "within"])), direction, null, tolerance), number


def claim(rule: Rule, number: float | None = None) -> Claim:
    return Claim("Q1", "It works.", Paper(number, "as printed", "theirs"), "a measurement", rule, "a small stand-in")


def settle(tmp_path, rule, number=None, *, scale="a small stand-in", data="real", **measured):
    path = tmp_path / "claims.yml"
    row = {
        "id": "Q1",
        "statement": "It works.",
        "paper": {"value": number, "text": "as printed", "setting": "theirs"},
        "test": "a measurement",
        "rule": rule,
        "scale": scale,
    }
    path.write_text(yaml.safe_dump({"claims": [row]}))
    ledger = Ledger("99_test", data=data, path=path)
    ledger.judge("Q1", **measured)
    return ledger.rows()[0]


@pytest.fixture(autouse=True)
def off_the_paper_s_setting(monkeypatch):
    monkeypatch.delenv("ICML26_SETTING", raising=False)


@pytest.fixture
def ledger(project):
    return Ledger("15_s_quant", path=project / "book" / "claims" / "15_s_quant.yml")


def expected(rule, number, at_paper, low, high):
    """The design's table of verdicts once more, written from its words by comparing positions on the line."""
    if at_paper and number is not None:
        inside = abs(low - number) <= rule.tolerance and abs(high - number) <= rule.tolerance
        apart = max(low - number, number - high) > rule.tolerance
        return "holds" if inside else "contradicted" if apart else "inconclusive"
    sides = {math.copysign(1, end - rule.null) if end != rule.null else 0 for end in (low, high)}
    claimed = 1 if rule.direction == "above" else -1
    return {(claimed,): "holds in direction", (-claimed,): "contradicted"}.get(tuple(sides), "inconclusive")


@given(rules(), st.booleans(), numbers, st.floats(0, 50))
def test_the_verdict_is_the_one_that_the_table_of_verdicts_gives(drawn, at_paper, low, width):
    rule, number = drawn
    high = low + width
    if number is not None:  # at the very edge of the tolerance the two ways to compute it round differently
        assume(not any(math.isclose(abs(end - number), rule.tolerance, rel_tol=1e-9) for end in (low, high)))
    verdict = decide(claim(rule, number), at_paper=at_paper, interval=(low, high))
    assert verdict == expected(rule, number, at_paper, low, high)


@given(rules(), st.booleans(), st.floats(0, 50), st.floats(0, 50))
def test_an_interval_that_holds_or_touches_the_null_never_holds_in_direction_nor_contradicts(
    drawn, at_paper, left, right
):
    rule, number = drawn
    if number is None or not at_paper:
        interval = (rule.null - left, rule.null + right)
        assert decide(claim(rule, number), at_paper=at_paper, interval=interval) == "inconclusive"


@given(rules(), st.floats(0, 1), st.floats(1e-6, 50))
def test_an_interval_across_the_edge_of_the_tolerance_is_never_more_than_inconclusive(drawn, inside, outside):
    rule, number = drawn
    if number is not None:
        for edge, sign in ((number + rule.tolerance, 1), (number - rule.tolerance, -1)):
            ends = sorted([edge - sign * inside * rule.tolerance, edge + sign * outside])
            assert decide(claim(rule, number), at_paper=True, interval=tuple(ends)) == "inconclusive"


@given(rules(), numbers, st.floats(0, 50))
def test_off_the_paper_s_setting_nothing_holds_but_in_direction(drawn, low, width):
    rule, number = drawn
    assert decide(claim(rule, number), at_paper=False, interval=(low, low + width)) != "holds"


@given(rules(), numbers, st.floats(0, 50))
def test_what_holds_at_the_paper_s_setting_lies_on_the_claimed_side_of_the_null(drawn, low, width):
    rule, number = drawn
    if decide(claim(rule, number), at_paper=True, interval=(low, low + width)) == "holds":
        assert decide(claim(rule, number), at_paper=False, interval=(low, low + width)) == "holds in direction"


@given(rules(), st.booleans(), numbers, st.floats(0, 20), st.floats(0, 20))
def test_a_wider_interval_never_turns_one_finding_into_its_opposite(drawn, at_paper, low, width, more):
    rule, number = drawn
    narrow = decide(claim(rule, number), at_paper=at_paper, interval=(low, low + width))
    wide = decide(claim(rule, number), at_paper=at_paper, interval=(low - more, low + width + more))
    assert wide in (narrow, "inconclusive")


@pytest.mark.parametrize("at_paper", [True, False])
def test_an_exact_claim_holds_or_is_contradicted_at_any_scale(at_paper):
    exact = claim(Rule("exact"))
    assert decide(exact, at_paper=at_paper, exact=True) == "holds"
    assert decide(exact, at_paper=at_paper, exact=False) == "contradicted"


def test_no_method_of_the_ledger_takes_a_rule_or_a_verdict():
    taken = {
        name: set(inspect.signature(method).parameters) - {"self"}
        for name, method in inspect.getmembers(Ledger, inspect.isfunction)
        if not name.startswith("_")
    }
    assert taken == {
        "judge": {"id", "value", "interval", "exact", "note", "stand_in"},
        "skip": {"id", "reason", "needs"},
        "verdict": {"id"},
        "paper": {"id"},
        "close": set(),
        "counts": set(),
        "rows": set(),
    }


def test_a_verdict_or_rule_passed_to_a_call_is_an_error(ledger):
    for word in ("verdict", "rule", "tolerance", "null", "direction", "label"):
        with pytest.raises(TypeError):
            ledger.judge("Q3", value=1.0, interval=(0.9, 1.1), **{word: "holds"})
        with pytest.raises(TypeError):
            ledger.skip("Q3", reason="no", needs="more", **{word: "holds"})


@settings(max_examples=25)  # each reads the file
@given(numbers, st.floats(0, 5), st.sampled_from(["Q1", "Q2", "Q3", "Q4", "L4"]), st.text(max_size=20))
def test_a_judged_claim_carries_the_verdict_of_its_file_s_rule_whatever_else_is_passed(project, low, width, id, note):
    path = project / "book" / "claims" / "15_s_quant.yml"
    ledger = Ledger("15_s_quant", path=path)
    ledger.judge(id, value=low, interval=(low, low + width), note=f"verdict: holds {note}")
    assert ledger.verdict(id) == decide(load(path)[id], at_paper=False, interval=(low, low + width))
    assert ledger.verdict(id) in set(VERDICTS) - {"holds", "not tested"}


def test_what_a_ledger_hands_out_cannot_change_what_it_holds(ledger):
    for id in ("Q1", "Q2", "Q3", "Q4", "Q5", "L1", "L2", "L3", "L4"):
        ledger.skip(id, reason="later", needs="time")
    ledger.judge("Q6", exact=False)
    summary = ledger.close()
    for rows in (ledger.rows(), summary.rows()):
        rows[5]["verdict"] = rows[5]["label"] = "holds"
        rows[5]["rule"]["kind"] = "difference"
    assert ledger.verdict("Q6") == "contradicted"
    assert summary.rows() == ledger.rows()
    with pytest.raises(AttributeError):
        ledger.paper("Q2").value = 1.0


def test_not_tested_comes_from_skip_alone(ledger):
    ledger.skip("L1", reason="needs 70B", needs="eight GPUs")
    assert ledger.verdict("L1") == "not tested"
    row = ledger.rows()[0]
    assert (row["reason"], row["needs"], row["value"], row["interval"]) == ("needs 70B", "eight GPUs", None, None)


NEAR = {"value": 4.0, "interval": (3.9, 4.1)}
SPEED = {"kind": "within", "direction": "above", "null": 1, "tolerance": 0.4}


def test_the_same_measurement_holds_only_at_the_paper_s_setting(tmp_path, monkeypatch):
    assert settle(tmp_path, SPEED, 4.0, **NEAR)["verdict"] == "holds in direction"
    assert settle(tmp_path, SPEED, 4.0, scale="paper", **NEAR)["verdict"] == "holds"
    monkeypatch.setenv("ICML26_SETTING", "paper")
    assert settle(tmp_path, SPEED, 4.0, **NEAR)["verdict"] == "holds"
    monkeypatch.setenv("ICML26_SETTING", "laptop")
    assert settle(tmp_path, SPEED, 4.0, **NEAR)["verdict"] == "holds in direction"


def test_a_claim_without_a_number_holds_at_most_in_direction_even_at_the_paper_s_setting(tmp_path):
    rule = {"kind": "ratio", "direction": "below"}
    row = settle(tmp_path, rule, scale="paper", value=0.5, interval=(0.4, 0.6))
    assert row["verdict"] == "holds in direction"


def test_stand_in_data_is_never_the_paper_s_setting(tmp_path, monkeypatch):
    at_paper = {"scale": "paper", **NEAR}
    assert settle(tmp_path, SPEED, 4.0, data="real", **at_paper)["verdict"] == "holds"
    assert settle(tmp_path, SPEED, 4.0, data="stand-in", **at_paper)["verdict"] == "holds in direction"
    monkeypatch.setenv("ICML26_SETTING", "paper")
    assert settle(tmp_path, SPEED, 4.0, data="stand-in", **NEAR)["verdict"] == "holds in direction"


def test_a_measurement_of_a_stand_in_for_the_paper_s_system_is_never_at_its_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("ICML26_SETTING", "paper")
    row = settle(tmp_path, SPEED, 4.0, stand_in=True, **NEAR)
    assert (row["verdict"], row["at_paper_setting"]) == ("holds in direction", False)
    with pytest.raises(InputError, match="stand_in='no' must be True or False"):
        settle(tmp_path, SPEED, 4.0, stand_in="no", **NEAR)


def test_a_contradiction_off_the_paper_s_setting_says_so(tmp_path):
    slow = {"value": 0.5, "interval": (0.4, 0.6)}
    off, at = settle(tmp_path, SPEED, 4.0, **slow), settle(tmp_path, SPEED, 4.0, scale="paper", **slow)
    assert (off["verdict"], off["label"]) == ("contradicted", "contradicted at this scale")
    assert (at["verdict"], at["label"]) == ("contradicted", "contradicted")


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({}, "value is missing"),
        ({"value": 1.0}, "interval is missing"),
        ({"interval": (1, 2)}, "value is missing"),
        ({"value": math.nan, "interval": (1, 2)}, "value=nan is not a finite number"),
        ({"value": math.inf, "interval": (1, 2)}, "value=inf is not a finite number"),
        ({"value": 1.0, "interval": (math.nan, 2)}, "interval end=nan is not a finite number"),
        ({"value": 1.0, "interval": (1, math.inf)}, "interval end=inf is not a finite number"),
        ({"value": 1.0, "interval": (2, 1)}, "is reversed"),
        ({"value": 1.0, "interval": (1, 2, 3)}, "needs two ends"),
        ({"value": 1.0, "interval": 2.0}, "needs two ends"),
        ({"value": "1", "interval": (1, 2)}, "value='1' is not a finite number"),
        ({"value": True, "interval": (1, 2)}, "value=True is not a finite number"),
        ({"exact": True}, "decided by an interval"),
        ({"value": 1.0, "interval": (1, 2), "exact": False}, "decided by an interval"),
        ({"value": 1.0, "interval": (1, 2), "note": None}, "note=None must be a text"),
        ({"value": 0.9, "interval": (1, 2)}, "value=0.9 lies outside its interval (1.0, 2.0)"),
        ({"value": 2.1, "interval": (1, 2), "note": "At half the size: 3."}, "value=2.1 lies outside its interval"),
    ],
)
def test_a_measurement_that_does_not_fit_the_rule_is_an_error_and_settles_nothing(ledger, measured, message):
    with pytest.raises(InputError, match=f"claim Q3.*{re.escape(message)}"):
        ledger.judge("Q3", **measured)
    assert ledger.rows() == []


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (1.0, ""),
        (2.0, ""),
        (1 - 1e-9, ""),
        (float(np.float32(2.0000002)), ""),
        (2.1, "The largest of three; its interval lies beside it."),
    ],
)
def test_a_value_lies_in_its_interval_but_for_rounding_or_for_a_reason_in_the_note(ledger, value, note):
    ledger.judge("Q3", value=value, interval=(1, 2), note=note)
    assert ledger.rows()[0]["value"] == value


def test_a_chapter_cannot_put_itself_at_the_paper_s_setting(ledger):
    with pytest.raises(AttributeError):
        ledger.at_paper_setting = True
    assert ledger.at_paper_setting is False


@pytest.mark.parametrize(
    "measured",
    [{}, {"exact": None}, {"exact": 1}, {"exact": "yes"}, {"exact": True, "interval": (0, 1)}, {"value": 1.0}],
)
def test_an_exact_claim_wants_true_or_false_alone(ledger, measured):
    with pytest.raises(InputError, match="claim Q6 is exact: give exact=True or exact=False"):
        ledger.judge("Q6", **measured)


def test_numpy_s_numbers_and_truths_are_taken_as_plain_ones(ledger):
    ledger.judge("Q6", exact=np.bool_(True), value=np.int64(3))
    ledger.judge("Q3", value=np.float32(1.5), interval=np.array([1.25, 1.75]))
    q3, q6 = ledger.rows()
    assert json.loads(json.dumps([q3, q6])) == [q3, q6]
    assert (q6["exact"], q6["value"], q3["interval"]) == (True, 3.0, [1.25, 1.75])


def test_an_unknown_id_is_an_error_with_the_nearest_known_one(ledger):
    for call in (
        lambda: ledger.judge("q3", value=1, interval=(1, 1)),
        lambda: ledger.skip("q3", reason="a", needs="b"),
        lambda: ledger.verdict("q3"),
        lambda: ledger.paper("q3"),
    ):
        with pytest.raises(InputError, match="15_s_quant has no claim 'q3'; did you mean 'Q3'"):
            call()


def test_a_claim_is_settled_once(ledger):
    ledger.judge("Q6", exact=False)
    with pytest.raises(InputError, match=r"Q6 is settled already \(contradicted\)"):
        ledger.judge("Q6", exact=True)
    with pytest.raises(InputError, match="Q6 is settled already"):
        ledger.skip("Q6", reason="a", needs="b")
    with pytest.raises(InputError, match="Q1 is not settled yet"):
        ledger.verdict("Q1")


@pytest.mark.parametrize(("reason", "needs", "name"), [("", "b", "reason"), ("a", " ", "needs"), ("a", None, "needs")])
def test_a_skip_says_why_and_what_it_would_take(ledger, reason, needs, name):
    with pytest.raises(InputError, match=f"claim Q1: {name}"):
        ledger.skip("Q1", reason=reason, needs=needs)


def test_closing_lists_what_is_neither_judged_nor_skipped_and_ends_the_judging(ledger):
    ledger.judge("Q6", exact=True)
    with pytest.raises(InputError, match="claims Q1, Q2, Q3, Q4, Q5, L1, L2, L3, L4 of 15_s_quant are neither"):
        ledger.close()
    for id in ("Q1", "Q2", "Q3", "Q4", "Q5", "L1", "L2", "L3", "L4"):
        ledger.skip(id, reason="later", needs="time")
    assert ledger.close() is ledger.close()
    with pytest.raises(InputError, match="ledger of 15_s_quant is closed"):
        ledger.judge("Q6", exact=True)
    with pytest.raises(InputError, match="ledger of 15_s_quant is closed"):
        ledger.skip("Q6", reason="a", needs="b")


def test_a_ledger_without_a_file_names_the_nearest_chapter(project, monkeypatch):
    monkeypatch.setenv("ICML26_ROOT", str(project))
    with pytest.raises(InputError, match=r"no claims file book/claims/15_squant.yml; did you mean '15_s_quant'"):
        Ledger("15_squant")
    with pytest.raises(InputError, match="data='fake': say 'real' or 'stand-in'"):
        Ledger("15_s_quant", data="fake")


def test_counts_name_all_five_verdicts(ledger):
    ledger.judge("Q6", exact=True)
    ledger.judge("Q2", value=4, interval=(3, 5))
    ledger.skip("L1", reason="a", needs="b")
    assert ledger.counts() == {
        "holds": 1,
        "holds in direction": 1,
        "inconclusive": 0,
        "contradicted": 0,
        "not tested": 1,
    }
    assert list(ledger.counts()) == list(VERDICTS)


def test_the_ledger_is_quick_to_import_and_brings_neither_torch_nor_matplotlib():
    code = "import sys, icml26.claims; print(*({'torch', 'matplotlib', 'scipy', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
