"""Splits are disjoint and complete, answers are what the texts end in, segments lose nothing but the end."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icml26 import data, tasks
from icml26.errors import InputError, MissingData


@pytest.fixture
def problems(monkeypatch, tmp_path):
    """Twenty problems in GSM8K's format, in place of the file."""
    lines = [
        json.dumps(
            {"question": f"What is {n},000 and 1?", "answer": f"It is <<{n}000+1={n}001>>{n},001.\n#### {n},001"}
        )
        for n in range(1, 21)
    ]
    file = tmp_path / "test.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(data, "path", lambda name: file if name == "gsm8k-test" else None)


@pytest.mark.usefixtures("problems")
def test_the_first_nine_tenths_of_the_problems_are_for_training_and_the_rest_is_held_out():
    train, held_out = tasks.gsm8k_problems("train"), tasks.gsm8k_problems("held-out")
    assert [p.question for p in train + held_out] == [f"What is {n},000 and 1?" for n in range(1, 21)]
    assert len(train) == 18


@pytest.mark.usefixtures("problems")
def test_a_problem_has_no_calculator_annotations_and_a_plain_number_as_answer():
    first = tasks.gsm8k_problems("train")[0]
    assert first == ("What is 1,000 and 1?", "It is 1,001.", "1001")


@pytest.mark.usefixtures("problems")
def test_the_text_holds_every_problem_of_its_split_once():
    assert tasks.gsm8k_text("held-out") == (
        "What is 19,000 and 1?\nIt is 19,001.\n#### 19001\n\nWhat is 20,000 and 1?\nIt is 20,001.\n#### 20001\n\n"
    )


@pytest.mark.skipif(not data.available("gsm8k-test"), reason="needs GSM8K: icml26 data get gsm8k-test")
def test_the_real_problems_all_have_a_number_as_answer():
    train, held_out = tasks.gsm8k_problems("train"), tasks.gsm8k_problems("held-out")
    assert (len(train), len(held_out)) == (1187, 132)
    assert not {p.question for p in train} & {p.question for p in held_out}
    assert all(float(p.answer) is not None and "<<" not in p.solution for p in train + held_out)


def test_without_the_file_the_error_names_both_ways_to_have_it(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML26_CACHE", str(tmp_path))
    monkeypatch.delenv("ICML26_DATA", raising=False)
    with pytest.raises(MissingData, match=r"icml26 data get gsm8k-test.*ICML26_DATA"):
        tasks.gsm8k_text("train")


def test_the_english_splits_share_no_paragraph_and_are_long_enough():
    train, held_out = tasks.english_text("train"), tasks.english_text("held-out")
    assert len(train) > 200_000
    assert len(held_out) > 20_000
    first, second = ({" ".join(p.split()) for p in text.split("\n\n")} for text in (train, held_out))
    assert not first & second


@pytest.mark.parametrize("read", [tasks.gsm8k_text, tasks.english_text])
def test_an_unknown_split_is_named_with_the_known_ones(read):
    with pytest.raises(InputError, match=r"split='test' is none of train, held-out"):
        read("test")


def test_sentences_are_whole_and_without_code():
    found = tasks.sentences(tasks.english_text("train"))
    assert len(found) == len(set(found)) > 300
    assert all(s[0].isupper() and s[-1] in ".?!" and "\n" not in s and 30 <= len(s) <= 300 for s in found)
    assert not [s for s in found if "::=" in s or ">>>" in s]


@given(st.text(max_size=50))
def test_bytes_decode_to_the_text(text):
    assert bytes(tasks.byte_tokens(text).tolist()).decode() == text


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 9))
def test_segments_follow_each_other_and_a_limit_spreads_over_the_text(size, length, limit):
    tokens = torch.arange(size)
    if size < length:
        with pytest.raises(InputError, match="longer text"):
            tasks.segments(tokens, length)
        return
    cut = tasks.segments(tokens, length)
    assert torch.equal(cut.flatten(), tokens[: size // length * length])
    some = tasks.segments(tokens, length, limit)
    assert len(some) == min(limit, len(cut))
    firsts = some[:, 0].tolist()
    assert firsts == sorted(set(firsts))
    assert set(firsts) <= set(cut[:, 0].tolist())
    assert len(cut) - 1 - firsts[-1] // length <= -(-len(cut) // len(some))


def test_numbers_that_make_no_segments_are_refused():
    for length, limit in ((0, None), (2, 0)):
        with pytest.raises(InputError, match="must be positive"):
            tasks.segments(torch.arange(9), length, limit)
