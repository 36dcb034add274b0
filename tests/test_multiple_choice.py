"""Items, orders, prompts, symbols' tokens, and the data sets that questions are read from."""

import json
from collections import Counter
from itertools import permutations

import pytest

from icml26 import evaluation
from icml26 import multiple_choice as choice
from icml26.errors import InputError
from icml26.models_tiny import byte_tokenizer
from icml26.multiple_choice import Item

ITEM = Item("Which of these is a fruit?", ("chair", "plum", "rain"), 1)


class Words:
    """A tokenizer that knows some texts; what is no word of it falls into letters."""

    def __init__(self, *words):
        self.words = sorted(words, key=len, reverse=True)
        self.known = [*self.words, *map(chr, range(32, 127))]

    def __call__(self, text, add_special_tokens):
        ids = []
        while text:
            word = next(word for word in self.known if text.startswith(word))
            ids.append(self.known.index(word))
            text = text[len(word) :]
        return {"input_ids": ids}

    def decode(self, ids):
        return "".join(self.known[index] for index in ids)


class Rows(list):
    @property
    def column_names(self):
        return list(self[0]) if self else []


@pytest.mark.parametrize("options", [2, 3, 5])
def test_in_cyclic_orders_every_option_stands_once_at_every_place(options):
    orders = choice.cyclic_orders(options)
    assert len(orders) == options
    for place in range(options):
        assert sorted(order[place] for order in orders) == list(range(options))


def test_random_orders_are_different_and_all_can_be_had():
    assert set(choice.orders(4, 24, seed=1)) == set(permutations(range(4)))
    drawn = choice.orders(4, 8, seed=2)
    assert len(set(drawn)) == 8
    assert drawn == choice.orders(4, 8, seed=2)
    assert drawn != choice.orders(4, 8, seed=3)
    many = choice.orders(12, 9)
    assert len(set(many)) == 9
    assert all(sorted(order) == list(range(12)) for order in many)


def test_the_label_is_where_the_right_option_is_shown():
    for order in permutations(range(3)):
        text = choice.prompt(ITEM, order)
        shown = "ABC"[choice.label(ITEM, order)]
        assert f"\n({shown}): plum\n" in text
        assert sorted(text.splitlines()[3:6]) == sorted(
            f"({symbol}): {ITEM.options[option]}" for symbol, option in zip("ABC", order, strict=True)
        )


def test_symbols_and_ending_can_be_others():
    text = choice.prompt(ITEM, symbols=["i", "ii", "iii"], ending="Answer: (")
    assert text == "Which of these is a fruit?\n\nChoices:\n(i): chair\n(ii): plum\n(iii): rain\n\nAnswer: ("


def test_chat_prompts_begin_the_assistants_turn():
    tokenizer = byte_tokenizer()
    with pytest.raises(InputError, match="no chat template"):
        choice.chat_prompt(tokenizer, ITEM)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    text = choice.chat_prompt(tokenizer, ITEM, (1, 0, 2), instruction="Choose.")
    asked = choice.prompt(ITEM, (1, 0, 2)).removesuffix(f"\n\n{choice.ENDING}")
    assert text == f"<user>Choose.\n\n{asked}</><assistant> The correct answer is ("


@pytest.mark.parametrize(
    ("words", "template", "found"),
    [
        ((), "({})", ["A", "B"]),  # brackets are tokens of their own
        ((" (", "(A", "):"), " ({})", ["A", "B"]),
        (("(A", "(B"), "({})", ["A", "B"]),  # a bracket sticks to the symbol: the one after a full stop
    ],
)
def test_a_symbols_token_is_what_stands_between_the_brackets(words, template, found):
    tokenizer = Words(*words)
    assert [tokenizer.decode([index]) for index in choice.symbol_ids(tokenizer, "AB", template)] == found


@pytest.mark.parametrize("words", [("(", ")", "A)", "B)", ".A", ".B"), ("(A", "(B", ".A", ".B")])
def test_symbols_that_never_stand_alone_have_no_token(words):
    with pytest.raises(InputError, match="one token each"):
        choice.symbol_ids(Words(*words), "AB")


def test_numbers_of_two_tokens_are_not_their_last_figure():
    with pytest.raises(InputError, match="'10', which is no token"):
        choice.symbol_ids(byte_tokenizer(), ["10", "21"])


def test_roman_numerals_that_share_their_last_token_are_refused():
    with pytest.raises(InputError, match="one token each"):
        choice.symbol_ids(byte_tokenizer(), ["i", "ii"])
    tokenizer = Words("ii", "iii")
    ids = choice.symbol_ids(tokenizer, ["i", "ii", "iii"])
    assert [tokenizer.decode([index]) for index in ids] == ["i", "ii", "iii"]


def test_cutting_keeps_the_right_option_the_order_and_any_of_the_wrong_ones():
    item = Item("Which?", tuple("abcde"), 3)
    kept = Counter()
    for seed in range(200):
        shorter = choice.cut(item, 3, seed)
        assert shorter.options[shorter.answer] == "d"
        assert list(shorter.options) == sorted(shorter.options)
        kept.update(shorter.options)
    assert kept["d"] == 200
    assert all(70 < kept[option] < 130 for option in "abce")
    assert choice.cut(item, 5) == item


def test_commonsense_questions_are_read_from_their_file(tmp_path, monkeypatch):
    rows = [
        {"input": "Where to?\na: home\nb: the desert\nc: sea: far\nd: inn\ne: up", "output": "c"},
        {"input": "Twice?\na: box\nb: box\nc: c\nd: d\ne: e", "output": "c"},
        {"input": "Who?\na: me\nb: you\nc: he\nd: she\ne: it", "output": "a"},
    ]
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(rows))
    monkeypatch.setattr(choice.data, "path", lambda name: file)
    whole = choice.commonsense_questions(options=5)
    assert whole == [
        Item("Where to?", ("home", "the desert", "sea: far", "inn", "up"), 2),
        Item("Who?", ("me", "you", "he", "she", "it"), 0),
    ]
    cut = choice.commonsense_questions(options=4, seed=1)
    assert [len(item.options) for item in cut] == [4, 4]
    assert [item.options[item.answer] for item in cut] == ["sea: far", "me"]
    assert cut == choice.commonsense_questions(options=4, seed=1)
    assert any(cut != choice.commonsense_questions(options=4, seed=seed) for seed in range(2, 6))


EXPECTED = Item("What?", ("one", "two"), 1)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "What?", "choices": ["one", "two"], "answer": 1},
        {"question": " What? ", "options": ["one", "two"], "answer": "two"},
        {"question": "What?", "choices": ["one", "two"], "answer": "B"},
        {"question": "What?", "choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answerKey": "B"},
        {"question": "What?", "choices": {"text": ["one", "two"], "label": ["1", "2"]}, "answerKey": "2"},
        {"question": "What?", "choices": {"text": ["one", "two"], "label": [1, 2]}, "answerKey": 2},
        {"question": "What?", "choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answerKey": 1},
        {"question": "What?", "options": ["one", "two\n"], "answer": "two "},
        {"question": "What?", "mc1_targets": {"choices": ["one", "two"], "labels": [0, 1]}, "mc2_targets": None},
    ],
)
def test_the_common_forms_of_data_sets_are_read(row, monkeypatch):
    monkeypatch.setattr(evaluation, "_rows", lambda name, split: Rows([row]))
    assert choice.dataset_choices("owner/name") == [EXPECTED]


def test_a_question_that_comes_again_with_the_same_answer_is_read_once(monkeypatch):
    rows = [
        {"question": "What?", "choices": ["one", "two"], "answer": 1},
        {"question": "What?", "choices": ["one", "two"], "answer": 0},
        {"question": "What? ", "choices": ["two", "three"], "answer": 0},
        {"question": "Who?", "choices": ["me", "me "], "answer": 0},
    ]
    monkeypatch.setattr(evaluation, "_rows", lambda name, split: Rows(rows))
    assert choice.dataset_choices("owner/name") == [EXPECTED, Item("What?", ("one", "two"), 0)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "0 rows"),
        ([{"question": "What?", "answer": 1}], "of question, answer"),
        ([{"question": "What?", "choices": ["one", "two"], "answer": "C"}], "row 0 of data set owner/name .*'C'"),
        ([{"question": "What?", "choices": ["one", "two"], "answer": True}], "True, which is no option"),
        ([{"question": None, "choices": ["one", "two"], "answer": 1}], "no question or no options"),
        ([{"question": "What?", "choices": None, "answer": 1}], "no question or no options"),
        ([{"question": "What?", "mc1_targets": {"choices": ["one", "two"], "labels": [1, 1]}}], "2 right options"),
    ],
)
def test_other_data_sets_are_refused(rows, message, monkeypatch):
    monkeypatch.setattr(evaluation, "_rows", lambda name, split: Rows(rows))
    with pytest.raises(InputError, match=message):
        choice.dataset_choices("owner/name")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Item("", ("a", "b"), 0), "not empty"),
        (lambda: Item("What?", ("a", " "), 0), "not empty"),
        (lambda: Item("What?", "ab", 0), "one text"),
        (lambda: Item("What?", ("a",), 0), "two different"),
        (lambda: Item("What?", ("a", "a"), 0), "two different"),
        (lambda: Item("What?", ("plum", "plum "), 0), "two different"),
        (lambda: Item("What?", ("plum\n(B): x", "rain"), 0), "line break"),
        (lambda: Item("What?", None, 0), "one text, or none"),
        (lambda: Item("What?", ("a", "b"), 2), "0 to 1"),
        (lambda: Item("What?", ("a", "b"), True), "0 to 1"),
        (lambda: choice.cyclic_orders(1), "options=1"),
        (lambda: choice.orders(3, 7), "number=7"),
        (lambda: choice.prompt(ITEM, (0, 1)), "order="),
        (lambda: choice.prompt(ITEM, symbols="AB"), "fewer than the 3 options"),
        (lambda: choice.label(ITEM, (0, 1, 1)), "order="),
        (lambda: choice.label(ITEM, (0.0, 1.0, 2.0)), "order="),
        (lambda: choice.label(ITEM, (True, False, 2)), "order="),
        (lambda: choice.label(ITEM, None), "order=None"),
        (lambda: choice.prompt(ITEM, symbols="AAA"), "symbols="),
        (lambda: choice.symbol_ids(byte_tokenizer(), None), "symbols=None"),
        (lambda: choice.symbol_ids(byte_tokenizer(), "AB", "({}{})"), "one place"),
        (lambda: choice.symbol_ids(byte_tokenizer(), "AB", "()"), "one place"),
        (lambda: choice.symbol_ids(byte_tokenizer(), ""), "symbols="),
        (lambda: choice.symbol_ids(byte_tokenizer(), "AA"), "symbols="),
        (lambda: choice.cut(ITEM, 1), "options=1"),
        (lambda: choice.cut(ITEM, 4), "options=4"),
        (lambda: choice.commonsense_questions(6), "options=6"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
