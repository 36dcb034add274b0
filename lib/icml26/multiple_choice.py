"""Multiple-choice questions: items, orders of their options, prompts, and the tokens of the letters that answer them.

An `Item` knows its options and which one is right. Shown in some order, each option gets a symbol (A, B, ...); a model
answers with the symbol whose token has the largest logit after a prompt that ends in ``The correct answer is (``.
Labels are places in the order shown, so that a question can be asked in several orders, all of which belong to one
item. Items come from CommonsenseQA through `icml26.data` or from data sets of the hub, or are made by chapters.

Running a model, and splitting items into training and test, are left to the chapters' modules.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from icml26 import data, evaluation
from icml26.checks import is_integer, whole
from icml26.errors import InputError

__all__ = [
    "ENDING",
    "SYMBOLS",
    "Item",
    "chat_prompt",
    "commonsense_questions",
    "cut",
    "cyclic_orders",
    "dataset_choices",
    "label",
    "orders",
    "prompt",
    "symbol_ids",
]

SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ENDING = "The correct answer is ("
_FEW = 40_320  # so many permutations are listed, of more some are drawn


@dataclass(frozen=True)
class Item:
    """A question with its options.

    Parameters
    ----------
    question
        Its text.
    options
        At least two different ones, of one line each.
    answer
        Index of the right one.

    Raises
    ------
    InputError
        If a text is empty, an option comes twice or has a line break, or the answer is no option.

    Examples
    --------
    >>> Item("Which of these is a fruit?", ("chair", "plum", "rain"), 1).answer
    1
    """

    question: str
    options: tuple[str, ...]
    answer: int

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not isinstance(self.options, Iterable):
            raise InputError(f"options={self.options!r} is one text, or none: give a tuple of texts")
        object.__setattr__(self, "options", tuple(self.options))
        for text in (self.question, *self.options):
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"question and options must be texts that are not empty, not {text!r}")
        if any(len(text.splitlines()) > 1 for text in self.options):
            raise InputError(
                f"options={self.options!r} have a line break, which looks like another option: leave it out"
            )
        if len(self.options) < 2 or len({text.strip() for text in self.options}) < len(self.options):
            raise InputError(f"options={self.options!r} must be at least two different texts")
        if not is_integer(self.answer) or not 0 <= self.answer < len(self.options):
            raise InputError(f"answer={self.answer!r} must be an option's index, 0 to {len(self.options) - 1}")


def cyclic_orders(options: int) -> list[tuple[int, ...]]:
    """List the rotations of options: each option comes once at each place.

    Parameters
    ----------
    options
        Their number k.

    Returns
    -------
    list of tuple of int
        k orders; at place j of an order stands the index of the option shown there.

    Raises
    ------
    InputError
        If there are fewer than two options.

    Examples
    --------
    >>> cyclic_orders(3)
    [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    """
    whole("options", options, 2)
    return [tuple((place + turn) % options for place in range(options)) for turn in range(options)]


def orders(options: int, number: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Draw different orders of options at random.

    Parameters
    ----------
    options
        Their number k.
    number
        How many orders, at most k!.
    seed
        Of the draw.

    Returns
    -------
    list of tuple of int
        As of `cyclic_orders`.

    Raises
    ------
    InputError
        If there are fewer than two options or too few orders of them.

    Examples
    --------
    >>> sorted(orders(3, 6)) == list(permutations(range(3)))
    True
    """
    whole("options", options, 2)
    whole("number", number, 1, math.factorial(options))
    draw = np.random.default_rng(whole("seed", seed, 0))
    if math.factorial(options) <= _FEW:
        every = list(permutations(range(options)))
        return [every[index] for index in draw.permutation(len(every))[:number]]
    different: dict[tuple[int, ...], None] = {}
    while len(different) < number:
        different[tuple(draw.permutation(options).tolist())] = None
    return list(different)


def label(item: Item, order: Sequence[int]) -> int:
    """Return the place at which the right option is shown.

    Parameters
    ----------
    item
        The question.
    order
        Of its options, as of `cyclic_orders`.

    Returns
    -------
    int
        0 for the first symbol.

    Raises
    ------
    InputError
        If the order is none of the item's options.

    Examples
    --------
    >>> label(Item("Which is a fruit?", ("plum", "rain"), 0), (1, 0))
    1
    """
    return _ordered(item, order).index(item.answer)


def prompt(
    item: Item, order: Sequence[int] | None = None, *, symbols: Sequence[str] = SYMBOLS, ending: str = ENDING
) -> str:
    """Write a question as plain text, up to the bracket after which the symbol of an answer follows.

    Parameters
    ----------
    item
        The question.
    order
        Of its options, as of `cyclic_orders`; by default as they are.
    symbols
        One for each place.
    ending
        Last line.

    Returns
    -------
    str
        Question, blank line, ``Choices:``, a line ``(A): text`` for each option, blank line, ending.

    Raises
    ------
    InputError
        If the order is none of the item's options, or symbols are too few.

    Examples
    --------
    >>> print(prompt(Item("Which of these is a fruit?", ("plum", "rain"), 0), (1, 0)))
    Which of these is a fruit?
    <BLANKLINE>
    Choices:
    (A): rain
    (B): plum
    <BLANKLINE>
    The correct answer is (
    """
    return f"{_asked(item, order, symbols)}\n\n{ending}"


def chat_prompt(
    tokenizer: Any,
    item: Item,
    order: Sequence[int] | None = None,
    *,
    symbols: Sequence[str] = SYMBOLS,
    ending: str = f" {ENDING}",
    instruction: str = "",
) -> str:
    """Write a question in a chat model's template, the assistant's turn begun up to the bracket.

    Parameters
    ----------
    tokenizer
        With a chat template. The prompt holds its special tokens: encode it with ``add_special_tokens=False``.
    item, order, symbols
        As of `prompt`.
    ending
        What the assistant's turn starts with.
    instruction
        A line above the question.

    Returns
    -------
    str
        The user's turn and the beginning of the assistant's.

    Raises
    ------
    InputError
        As of `prompt`, or if there is no chat template.

    Examples
    --------
    >>> chat_prompt(load_lm("smollm2-135m")[1], item)  # doctest: +SKIP
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("tokenizer has no chat template: use prompt")
    asked = _asked(item, order, symbols)
    turn = {"role": "user", "content": f"{instruction}\n\n{asked}" if instruction else asked}
    return tokenizer.apply_chat_template([turn], tokenize=False, add_generation_prompt=True) + ending


def symbol_ids(tokenizer: Any, symbols: Sequence[str], template: str = "({})") -> list[int]:
    """Find the single tokens that stand for symbols behind an opening bracket.

    A symbol in brackets is encoded, and what holds a bracket at either end is left out; where not exactly one token
    remains, it is the one behind the full stop of ``.A``.

    Parameters
    ----------
    tokenizer
        A model's.
    symbols
        Such as ``"ABC"``.
    template
        Of the brackets; ``" ({})"`` where a leading space changes the tokens.

    Returns
    -------
    list of int
        One for each symbol.

    Raises
    ------
    InputError
        If there are no symbols, one is not a single token, two of them have the same, or the template has no place for
        them.

    Examples
    --------
    >>> from icml26.models_tiny import byte_tokenizer
    >>> tokenizer = byte_tokenizer()
    >>> [tokenizer.decode([index]) for index in symbol_ids(tokenizer, "ABC")]
    ['A', 'B', 'C']
    """
    _different(symbols)
    if not isinstance(template, str) or template.replace("{}", "", 1).count("{") or "{}" not in template:
        raise InputError(f"template={template!r} must have one place, as '({{}})' has")
    found = []
    for symbol in symbols:
        ids = _encoded(tokenizer, template.format(symbol))
        if ids and "(" in tokenizer.decode(ids[:1]):
            ids = ids[1:]
        if ids and ")" in tokenizer.decode(ids[-1:]):
            ids = ids[:-1]
        if len(ids) != 1:
            stop, *ids = _encoded(tokenizer, f".{symbol}")
            if len(ids) != 1 or tokenizer.decode([stop]).strip() != ".":
                raise InputError(f"symbols hold {symbol!r}, which is no token: give symbols of one token each")
        found.append(ids[0])
    if len(set(found)) < len(found):
        raise InputError(f"symbols={symbols!r} have tokens {found}: give symbols of one token each")
    return found


def cut(item: Item, options: int, seed: int = 0) -> Item:
    """Drop wrong options at random.

    Parameters
    ----------
    item
        A question.
    options
        How many to keep; those kept stay in order.
    seed
        Of the draw.

    Returns
    -------
    Item
        The same question.

    Raises
    ------
    InputError
        If it has fewer options than that, or less than two are to be kept.

    Examples
    --------
    >>> shorter = cut(Item("Which is a fruit?", ("chair", "plum", "rain"), 1), 2)
    >>> len(shorter.options), shorter.options[shorter.answer]
    (2, 'plum')
    """
    whole("options", options, 2, len(item.options))
    wrong = [index for index in range(len(item.options)) if index != item.answer]
    draw = np.random.default_rng(whole("seed", seed, 0))
    kept = sorted([item.answer, *draw.choice(wrong, size=options - 1, replace=False).tolist()])
    return Item(item.question, tuple(item.options[index] for index in kept), kept.index(item.answer))


def commonsense_questions(options: int = 4, seed: int = 0) -> list[Item]:
    """Read the questions of CommonsenseQA.

    Parameters
    ----------
    options
        How many of the five to keep, 2 to 5; the wrong ones to drop are drawn.
    seed
        Of the draws.

    Returns
    -------
    list of Item
        In the file's order; the few whose options are not five different ones are left out, and repeated questions.

    Raises
    ------
    MissingData
        If the file is not on this machine; the message says how to have it.
    InputError
        If the number of options is out of range.

    Examples
    --------
    >>> len(commonsense_questions(options=4)[0].options)  # doctest: +SKIP
    4
    """
    whole("options", options, 2, 5)
    rows = json.loads(data.path("function-vectors/commonsense_qa").read_text(encoding="utf-8"))
    seeds = np.random.SeedSequence(whole("seed", seed, 0)).generate_state(len(rows)).tolist()
    found = []
    for row, own in zip(rows, seeds, strict=True):
        question, *lines = row["input"].split("\n")
        texts = tuple(line.partition(": ")[2].strip() for line in lines)
        if len(set(texts)) == len(texts) == 5 and all(texts):
            found.append(cut(Item(question.strip(), texts, "abcde".index(row["output"])), options, own))
    return _once(found)


def dataset_choices(name: str, split: str = "test") -> list[Item]:
    """Read the multiple-choice questions of a data set.

    Parameters
    ----------
    name
        As in `icml26.evaluation.dataset_text`.
    split
        Which, if there are splits.

    Returns
    -------
    list of Item
        In the data set's order, without questions that come again with the same right option, which would be on both
        sides of a split, and without those two of whose options are equal. Line breaks in options become spaces. Read
        are ``question`` and ``choices`` or ``options``, a list of texts (MMLU) or texts with labels (ARC,
        CommonsenseQA), and ``answer`` or ``answerKey``: a label, an index or the right text; or ``question`` and
        ``mc1_targets`` (TruthfulQA).

    Raises
    ------
    InputError
        If the name is neither a hub id nor a folder, there is no such split or column, or an answer is no option.
    MissingData
        If the data set is not on this machine; the message says how to have it.

    Examples
    --------
    >>> dataset_choices("cais/mmlu:college_physics")[0].options  # doctest: +SKIP
    """
    rows = evaluation._rows(name, split)
    columns = rows.column_names
    if "question" not in columns or not {"choices", "options", "mc1_targets"} & set(columns) or not len(rows):
        raise InputError(
            f"data set {name} has {len(rows)} rows of {', '.join(columns)}: give one with `question`, `choices` and "
            "`answer`, with `question`, `choices` and `answerKey`, or with `question` and `mc1_targets`"
        )
    found = [_read(row, f"row {number} of data set {name}") for number, row in enumerate(rows)]
    return _once([item for item in found if item is not None])


def _read(row: Mapping[str, Any], where: str) -> Item | None:
    """Return the question of a row; None if two of its options are equal."""
    targets = row.get("mc1_targets")
    choices = targets or row.get("choices") or row.get("options")
    labelled = isinstance(choices, Mapping) and not targets
    texts = targets["choices"] if targets else choices["text"] if labelled else choices
    if not isinstance(row["question"], str) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where} has no question or no options: leave it out")
    texts = [" ".join(text.split()) for text in texts]
    if targets:
        marks = list(targets["labels"])
        if marks.count(1) != 1:
            raise InputError(f"{where} has {marks.count(1)} right options: give one")
        place = marks.index(1)
    else:
        labels = list(choices["label"] if labelled else SYMBOLS[: len(texts)])
        answer = row.get("answer") if row.get("answer") is not None else row.get("answerKey")
        # Labels that are numbers may start at 1.
        kinds = [labels, list(range(len(texts)))] if labelled else [list(range(len(texts))), labels]
        answer = " ".join(answer.split()) if isinstance(answer, str) else answer
        known = next((kind for kind in [*kinds, texts] if answer in kind), None)
        if known is None or isinstance(answer, bool):
            raise InputError(f"{where} has the answer {answer!r}, which is no option: give an index, a label or a text")
        place = known.index(answer)
    return Item(row["question"].strip(), tuple(texts), place) if len(set(texts)) == len(texts) else None


def _once(items: Sequence[Item]) -> list[Item]:
    found: dict[tuple[str, str], Item] = {}
    for item in items:
        found.setdefault((item.question, item.options[item.answer]), item)
    return list(found.values())


def _different(symbols: Sequence[str]) -> None:
    known = isinstance(symbols, Sequence) and len(symbols) and all(isinstance(one, str) and one for one in symbols)
    if not known or len(set(symbols)) < len(symbols):
        raise InputError(f"symbols={symbols!r} must be different texts, such as 'ABC'")


def _asked(item: Item, order: Sequence[int] | None, symbols: Sequence[str]) -> str:
    places = _ordered(item, range(len(item.options)) if order is None else order)
    _different(symbols)
    if len(symbols) < len(places):
        raise InputError(f"symbols={symbols!r} are fewer than the {len(places)} options: give one for each")
    lines = [f"({symbols[place]}): {item.options[option]}" for place, option in enumerate(places)]
    return "\n".join([item.question, "", "Choices:", *lines])


def _ordered(item: Item, order: Sequence[int]) -> list[int]:
    places = list(order) if isinstance(order, Iterable) else []
    if not all(map(is_integer, places)) or sorted(places) != list(range(len(item.options))):
        raise InputError(f"order={order!r} must have each of the {len(item.options)} options' indices once")
    return places


def _encoded(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]
