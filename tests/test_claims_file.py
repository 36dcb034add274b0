"""A claims file says everything that decides its claims, or it is refused."""

import re

import pytest

from icml26.claims_file import Rule, load
from icml26.errors import InputError

ROW = """
claims:
  - id: Q2
    statement: A dedicated accelerator is
      fast.
    paper: {value: 4.0, text: "4x", setting: "7 nm ASIC"}
    test: clocks over clocks
    rule: {kind: within, direction: above, null: 1, tolerance: 0.4}
    scale: a model
"""


def read(tmp_path, text):
    path = tmp_path / "99_test.yml"
    path.write_text(text)
    return load(path)


def test_yaml_s_bare_null_key_is_read_as_the_rule_s_null(tmp_path):
    quoted = ROW.replace("null: 1", '"null": 1')
    assert read(tmp_path, ROW) == read(tmp_path, quoted)
    assert read(tmp_path, ROW)["Q2"].rule == Rule("within", "above", 1.0, 0.4)
    assert read(tmp_path, ROW)["Q2"].statement == "A dedicated accelerator is fast."


@pytest.mark.parametrize(("kind", "null"), [("difference", 0.0), ("ratio", 1.0)])
def test_a_difference_is_against_zero_and_a_ratio_against_one_unless_said_otherwise(tmp_path, kind, null):
    text = ROW.replace("within", kind)
    assert read(tmp_path, text.replace("null: 1, ", ""))["Q2"].rule.null == null
    assert read(tmp_path, text.replace("null: 1", "null: 2"))["Q2"].rule.null == 2.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", tolerance: 0.4", "", "claim Q2: rule: key 'tolerance' is missing"),
        ("within, direction: above, null: 1, tolerance: 0.4", "ratio, direction: above", "'tolerance' is missing"),
        ("within, direction: above, null: 1, tolerance: 0.4", "difference, direction: above", "'tolerance' is missing"),
        ("null: 1, ", "", "claim Q2: rule: key 'null' is missing"),
        ("direction: above, ", "", "claim Q2: rule: key 'direction' is missing"),
        ("kind: within, ", "", "claim Q2: rule: key 'kind' is missing"),
        ("kind: within", "kind: witin", "one of difference, ratio, within, exact, not 'witin'; did you mean 'within'"),
        ("direction: above", "direction: up", "must be one of above, below, not 'up'"),
        ("tolerance: 0.4", "tolerance: 0", "'tolerance' must be above 0"),
        ("tolerance: 0.4", "tolerance: .nan", "'tolerance' must be a finite number"),
        ("tolerance: 0.4", "tolerance: small", "'tolerance' must be a finite number, not 'small'"),
        ("tolerance: 0.4", "tolerence: 0.4", "unknown key 'tolerence'; did you mean 'tolerance'"),
        ("tolerance: 0.4", "tolerance: 3", "must lie above the null 1.0 by more than the tolerance 3"),
        ("direction: above", "direction: below", "must lie below the null 1.0 by more than the tolerance 0.4"),
        ("null: 1", "null: true", "'null' must be a finite number, not True"),
        ("null: 1", 'null: 1, "null": 2', "unknown key None"),
        ("value: 4.0", "value: null", "kind 'within' needs the paper's number"),
        ("value: 4.0, ", "", "claim Q2: paper: key 'value' is missing"),
        ('text: "4x"', 'text: ""', "claim Q2: paper: key 'text' must be a text"),
        (', setting: "7 nm ASIC"', "", "claim Q2: paper: key 'setting' is missing"),
        (
            "kind: within, direction: above",
            "kind: exact, direction: above",
            "'direction' has no meaning for kind 'exact'",
        ),
        ("    scale: a model\n", "", "claim Q2: key 'scale' is missing"),
        ("scale: a model", "scale: 3", "claim Q2: key 'scale' must be a text, not 3"),
        ("scale: a model", "scale: a model\n    verdict: holds", "claim Q2: unknown key 'verdict'"),
        ("id: Q2", "id: 2", "claim number 1 needs an 'id'"),
        ("id: Q2", "id: Q 2", "claim number 1 needs an 'id'"),
        ("claims:", "claim:", "unknown key 'claim'; did you mean 'claims'"),
        (ROW, "claims: []", "at least one claim"),
        (ROW, "", "must be a mapping with the keys claims"),
        (ROW, "claims: [1]", "claim number 1 needs an 'id'"),
        (ROW, "claims: [", "cannot be read"),
        ("kind: within", "kind: within, kind: ratio", "line 8: key 'kind' appears twice"),
        ("    test: clocks", "    test: seconds\n    test: clocks", "line 8: key 'test' appears twice"),
        ("value: 4.0", "value: 1:30", "line 6: '1:30' is no usable number"),
        ("value: 4.0", "value: 1:30.5", "'1:30.5' is no usable number"),
        ("null: 1", f"null: {10**20}", "is no usable number"),
        ("null: 1", f"null: {'9' * 5000}", "is no usable number"),
        ("value: 4.0", "value: 2026-13-45", "cannot be read: month must be in 1..12"),
        ("scale: a model", "scale: Paper", "'scale' is 'Paper'; write exactly paper"),
        ("scale: a model", 'scale: " paper"', "'scale' is ' paper'; write exactly paper"),
        ("scale: a model", "scale: papr", "'scale' is 'papr'; write exactly paper"),
        ("scale: a model", "scale: the paper's own setting", "write exactly paper"),
    ],
)
def test_a_faulty_claims_file_is_an_error_that_names_file_claim_and_key(tmp_path, old, new, message):
    assert old in ROW
    with pytest.raises(InputError, match=f"99_test.yml.*{re.escape(message)}") as caught:
        read(tmp_path, ROW.replace(old, new, 1))
    assert "\n" not in str(caught.value)


def test_a_tolerance_without_a_number_to_be_around_is_an_error(tmp_path):
    text = ROW.replace("value: 4.0", "value: null").replace("within", "ratio")
    with pytest.raises(InputError, match="'tolerance' needs the paper's number"):
        read(tmp_path, text)


def test_the_word_paper_and_texts_that_speak_of_the_paper_are_scales(tmp_path):
    for scale in ("paper", "a model of the paper's accelerator"):
        assert read(tmp_path, ROW.replace("scale: a model", f"scale: {scale}"))["Q2"].scale == scale


def test_two_claims_with_one_id_are_an_error(tmp_path):
    with pytest.raises(InputError, match="claim Q2 appears twice"):
        read(tmp_path, ROW + ROW.split("claims:\n")[1])


def test_every_claims_file_of_the_book_is_sound(project):
    files = sorted((project / "book" / "claims").glob("*.yml"))
    assert files
    for file in files:
        assert load(file)
