"""Multiple-choice questions on facts in plain words, for language models too small for the benchmarks of the paper.

KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782) is measured on questions whose answers a model may know without
picking them. The lists in ``facts.yml`` were written for this book: what a thing is, capitals, continents, opposites,
past tenses. Wrong options are right answers of other questions, so that no word is a right or a wrong one as such, and
never also right: not of the same category, not on the same continent, not as good an opposite. Spelling may still give
the answer away, and does for past tenses, which begin like their verbs: `spelling` tells by how much.

Splits of one task have no option in common, nor what is asked about, except for the few categories and continents,
which come in all: so a probe cannot score on words that it was trained on. Different tasks do share words, such as
countries and verbs. Within a split, the right option of one question is a wrong option of others. Prompts are left to
`icml26.multiple_choice`.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import yaml

from icml26.checks import whole
from icml26.errors import InputError, nearest
from icml26.multiple_choice import Item

__all__ = ["TASKS", "Fact", "facts", "items", "spelling", "split_items"]

TASKS = MappingProxyType(
    {
        "category": "Which of these is {}?",
        "capital": "What is the capital of {}?",
        "continent": "Which of these countries is in {}?",
        "antonym": "What is the opposite of {}?",
        "past": "What is the past tense of {}?",
    }
)


class Fact(NamedTuple):
    """A question's subject and its right answer.

    Attributes
    ----------
    subject : str
        What is asked about: a category, a country, a word.
    answer : str
        The answer. Facts with one subject are all right answers to one question.
    """

    subject: str
    answer: str


def facts(task: str) -> list[Fact]:
    """List what there is to ask about.

    Parameters
    ----------
    task
        A name of `TASKS`.

    Returns
    -------
    list of Fact
        At least 100, no answer twice.

    Raises
    ------
    InputError
        If the task is unknown.

    Examples
    --------
    >>> facts("capital")[0]
    Fact(subject='Afghanistan', answer='Kabul')
    """
    if task not in TASKS:
        raise InputError(f"task={task!r} is none of {', '.join(TASKS)}{nearest(task, TASKS)}")
    listed = _lists()[task].items()
    return [Fact(subject, answer) for subject, found in listed for answer in _several(found)]


def items(task: str, seed: int = 0, *, options: int = 3) -> list[Item]:
    """Ask a question about every fact of a task.

    Parameters
    ----------
    task
        A name of `TASKS`.
    seed
        Of the wrong options and of the order of questions.
    options
        Of each question.

    Returns
    -------
    list of Item
        The right option first: show options in other orders.

    Raises
    ------
    InputError
        If the task is unknown, or there are not so many options.

    Examples
    --------
    >>> item = items("capital")[0]
    >>> len(items("capital")), len(item.options), item.answer
    (119, 3, 0)
    """
    return split_items(task, (len(facts(task)),), seed, options=options)[0]


def split_items(task: str, sizes: Sequence[int], seed: int = 0, *, options: int = 3) -> tuple[list[Item], ...]:
    """Draw questions for training, validation and test, say, without an option in common.

    Parameters
    ----------
    task
        A name of `TASKS`.
    sizes
        Questions in each split.
    seed
        Of the draw.
    options
        Of each question.

    Returns
    -------
    tuple of list of Item
        One for each size, categories and continents in equal shares. The right option comes first.

    Raises
    ------
    InputError
        If the task is unknown or has too few facts, or a split is too small for its options.

    Examples
    --------
    >>> training, test = split_items("category", (40, 20))
    >>> words = [{word for item in split for word in item.options} for split in (training, test)]
    >>> words[0] & words[1]
    set()
    """
    whole("options", options, 2)
    known = facts(task)
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise InputError(f"sizes={sizes!r} must be a list of numbers, one for each split")
    sizes = [whole("sizes", size, 1) for size in sizes]
    if not sizes or sum(sizes) > len(known):
        raise InputError(f"sizes={sizes} must add up to the {len(known)} facts of {task} at most")
    draw = np.random.default_rng(whole("seed", seed, 0))
    mixed = _mixed(known, draw)
    ends = np.cumsum(sizes)
    pools = [mixed[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return tuple([_item(TASKS[task], fact, pool, options, draw) for fact in pool] for pool in pools)


def spelling(item: Item) -> float:
    """Tell how often a reader is right who picks the option that begins like the question's last word.

    Parameters
    ----------
    item
        A question.

    Returns
    -------
    float
        1 if the right option shares more first letters with that word than any other, ties shared.

    Examples
    --------
    >>> spelling(Item("What is the past tense of stride?", ("strode", "arose", "felt"), 0))
    1.0
    """
    word = (item.question.split() or [""])[-1].strip("?.!:\"'").lower()
    alike = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, option.lower(), strict=False)))
        for option in item.options
    ]
    return float(alike[item.answer] == max(alike)) / alike.count(max(alike))


def _item(question: str, fact: Fact, pool: Sequence[Fact], options: int, draw: np.random.Generator) -> Item:
    """Add wrong options, of as many different subjects: of two alike, a reader could tell that both are wrong."""
    chosen = [fact]
    for index in draw.permutation(len(pool)):
        other = pool[index]
        if all(other.subject != one.subject and other.answer not in _alike(one.answer) for one in chosen):
            chosen.append(other)
            if len(chosen) == options:
                return Item(question.format(fact.subject), tuple(one.answer for one in chosen), 0)
    raise InputError(f"a split of {len(pool)} facts has no {options} options for {fact.subject}: make it larger")


def _mixed(known: Sequence[Fact], draw: np.random.Generator) -> list[Fact]:
    """Shuffle facts so that any stretch has about the same share of each subject as the whole list."""
    of: dict[str, list[Fact]] = {}
    for fact in known:
        of.setdefault(fact.subject, []).append(fact)
    placed = []
    for alike in of.values():
        places = (np.arange(len(alike)) + draw.random(len(alike))) / len(alike)
        placed += zip(places, (alike[index] for index in draw.permutation(len(alike))), strict=True)
    return [fact for _, fact in sorted(placed, key=lambda pair: pair[0])]


def _several(found: str | list[str]) -> Iterator[str]:
    return iter([found] if isinstance(found, str) else found)


@cache
def _alike(answer: str) -> frozenset[str]:
    return frozenset(word for group in _lists()["alike"] if answer in group for word in group)


@cache
def _lists() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("facts.yml").read_text(encoding="utf-8"))
