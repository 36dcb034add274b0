"""Answers of models of one's own: read from boxes, and compared as numbers only where both are numbers."""

import sys

import pytest

from icml26.cdg.own_models import boxed, same_answer
from icml26.errors import InputError


@pytest.mark.parametrize(
    ("answer", "truth"),
    [("1_0", "10"), ("1e400", "inf"), ("1e400", "1e401"), ("inf", "infinity"), ("1,5", "15"), ("12,34", "1234"),
     (",1", "1"), ("1,0000", "10000"), ("\u0661\u0660", "10"), ("9007199254740993", "9007199254740992"),
     ("0x10", "16"), ("1e9999", "1e9999999999999999999"), ("", "0"), ("7 0", "70")],
)  # fmt: skip
def test_texts_that_only_a_loose_reader_takes_for_the_same_number_differ(answer, truth, monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)  # as if it were not installed
    assert not same_answer(answer, truth)
    assert not same_answer(truth, answer)


@pytest.mark.parametrize(
    ("answer", "truth"),
    [("070", "70"), ("1,000", "1000"), ("1,234,567.50", "1234567.5"), ("+7", "7"), ("7.", "7.0"), (".5", "0.5"),
     ("-0", "0"), ("1e3", "1000"), (" 7 ", "7"), (r"\text{7}", "7")],
)  # fmt: skip
def test_numbers_are_the_same_however_they_are_written(answer, truth):
    assert same_answer(answer, truth)
    assert same_answer(truth, answer)


def test_the_last_word_boxed_counts_even_behind_the_answer():
    assert boxed(r"\boxed{7}. Check: the boxed value is 8") == "value is 8"


@pytest.mark.parametrize("wrong", [None, 7, b"7"])
def test_what_is_no_text_is_refused(wrong):
    for call in (lambda: boxed(wrong), lambda: same_answer(wrong, "7"), lambda: same_answer("7", wrong)):
        with pytest.raises(InputError, match="must be text"):
            call()
