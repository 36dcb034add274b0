"""Chained arithmetic modulo 10 with written-out steps: problems, training texts, and the verdict on a continuation.

A problem has one or more branches. Each starts from a digit and applies operations to it, one after the other, all
modulo 10; the answer is the sum of the branches' last values. In one vocabulary of 71 tokens a problem and one of its
solutions read

    ``<s> a0 3 , a1 + 4 , a2 * 7 , b0 7 , b1 * 3 , b2 - 6 ?``

    ``a1 3 + 4 = 7 b1 7 * 3 = 1 a2 7 * 7 = 9 b2 1 - 6 = 5 # 9 + 5 = 4 .``

The steps of different branches may come in any order that keeps each branch's own, so that a problem of several
branches has several right solutions (`orders`). With ``checked=True`` all steps are written a second time, in the same
order, before the answer. Every problem of a task has the same length, and so has every solution. Addends lie in 1..9
and multipliers in {3, 7, 9}, which have inverses modulo 10: values stay uniform, and one wrong result always changes
the answer unless another makes up for it.

Nothing here knows a model; `icml26.arithmetic.models` trains some, `icml26.generation` samples from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Int8, Int64
from torch import Tensor

from icml26.checks import whole
from icml26.errors import InputError, nearest

__all__ = [
    "END",
    "START",
    "VOCABULARY",
    "Checked",
    "CheckedAll",
    "Problems",
    "Task",
    "answer",
    "check",
    "check_all",
    "decode",
    "encode",
    "orders",
    "problems",
    "texts",
]

_MOST_STEPS = 16
_BRANCHES = "abc"
_SIGNS = ("+", "-", "*")
_MULTIPLIERS = np.array([3, 7, 9])
_LABELS = tuple(f"{branch}{step}" for branch in _BRANCHES for step in range(_MOST_STEPS + 1))
VOCABULARY: tuple[str, ...] = (*"0123456789", *_SIGNS, "=", *_LABELS, ",", "?", "check", "#", ".", "<s>")
_ID = {token: number for number, token in enumerate(VOCABULARY)}
END = _ID["."]
START = _ID["<s>"]
_PLUS, _EQUALS, _COMMA, _QUESTION, _CHECK, _HASH = (_ID[token] for token in ("+", "=", ",", "?", "check", "#"))
_FIRST_LABEL = _ID["a0"]
_STEP_TOKENS = 6  # label, value before, sign, operand, "=", result


@dataclass(frozen=True)
class Task:
    """What all problems of a kind share.

    Parameters
    ----------
    branches
        Chains of operations, 1 to 3; their last values are added.
    steps
        Operations in each, 1 to 16.
    checked
        Whether solutions write all steps twice.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> task = Task(branches=2, steps=3)
    >>> task.prompt_length, task.solution_length, task.length
    (31, 43, 74)
    """

    branches: int = 2
    steps: int = 3
    checked: bool = False

    def __post_init__(self) -> None:
        whole("branches", self.branches, 1, len(_BRANCHES))
        whole("steps", self.steps, 1, _MOST_STEPS)
        if not isinstance(self.checked, bool):
            raise InputError(f"checked={self.checked!r} must be True or False")

    @property
    def prompt_length(self) -> int:
        """Tokens of a prompt, start token included."""
        return 1 + self.branches * (3 + 4 * self.steps)

    @property
    def solution_length(self) -> int:
        """Tokens of a solution, end token included."""
        written = self.branches * self.steps * _STEP_TOKENS
        return written + (1 + written) * self.checked + self._answer_length

    @property
    def length(self) -> int:
        """Tokens of a training text: prompt and solution."""
        return self.prompt_length + self.solution_length

    @property
    def _answer_length(self) -> int:
        return 3 if self.branches == 1 else 3 + 2 * self.branches


@dataclass(frozen=True, eq=False)
class Problems:
    """Some problems of one task.

    ``len(problems)`` counts them; ``problems[index]`` takes an integer, a slice or an array of integers or booleans and
    returns `Problems` again.

    Parameters
    ----------
    task
        What they share.
    starts
        First digit of each branch.
    signs
        0, 1, 2 for plus, minus, times.
    operands
        Digit that each step applies.
    """

    task: Task
    starts: Int64[np.ndarray, "problems branches"]
    signs: Int64[np.ndarray, "problems branches steps"]
    operands: Int64[np.ndarray, "problems branches steps"]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int | slice | np.ndarray | Sequence[int]) -> "Problems":
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"problem {index} of {len(self)}")
            index = [index]
        return Problems(self.task, self.starts[index], self.signs[index], self.operands[index])

    @property
    def values(self) -> Int64[np.ndarray, "problems branches steps+1"]:
        """Every branch's values, the first digit included."""
        found = [self.starts]
        for step in range(self.task.steps):
            before, by = found[-1], self.operands[..., step]
            found.append(np.choose(self.signs[..., step], (before + by, before - by, before * by)) % 10)
        return np.stack(found, -1)

    @property
    def prompts(self) -> list[Int64[Tensor, " prompt_length"]]:
        """One vector of token ids a problem, as `icml26.generation.sample` takes them."""
        return list(torch.from_numpy(_prompts(self)))

    @property
    def answers(self) -> list[str]:
        """The right answers, one digit each."""
        return [str(digit) for digit in self.values[..., -1].sum(1) % 10]


class Checked(NamedTuple):
    """What `check` says of a continuation.

    Attributes
    ----------
    answer : str or None
        As `answer` reads it.
    correct : bool
        Whether that is the right answer.
    valid : bool
        Whether every token is right: all steps, in an order that is allowed, and the answer.
    order : tuple of str, or None
        The steps' labels as written, which tell one solution from another; None if not valid.
    """

    answer: str | None
    correct: bool
    valid: bool
    order: tuple[str, ...] | None


class CheckedAll(NamedTuple):
    """What `check_all` says of several continuations of every problem.

    Attributes
    ----------
    answers : int8 array, shape (problems, samples)
        The digit, or -1 where there is no well-formed answer.
    correct, valid : bool array, shape (problems, samples)
        As in `Checked`.
    orders : int8 array, shape (problems, samples, branches * steps)
        Token ids of the steps' labels as written; -1 where not valid.
    """

    answers: Int8[np.ndarray, "problems samples"]
    correct: Bool[np.ndarray, "problems samples"]
    valid: Bool[np.ndarray, "problems samples"]
    orders: Int8[np.ndarray, "problems samples steps"]


def encode(text: str) -> Int64[Tensor, " tokens"]:
    """Turn words between blanks into token ids.

    Parameters
    ----------
    text : str
        Words of `VOCABULARY`.

    Returns
    -------
    int64 tensor, tokens

    Raises
    ------
    InputError
        If a word is not in the vocabulary.

    Examples
    --------
    >>> encode("3 + 4 = 7 .")
    tensor([ 3, 10,  4, 13,  7, 69])
    """
    words = text.split()
    for word in words:
        if word not in _ID:
            raise InputError(f"text holds {word!r}, which is not in the vocabulary{nearest(word, VOCABULARY)}")
    return torch.tensor([_ID[word] for word in words], dtype=torch.int64)


def decode(tokens: Int[Tensor, " tokens"] | Sequence[int]) -> str:
    """Turn token ids into words between blanks.

    Parameters
    ----------
    tokens : integer tensor or sequence, tokens
        Ids below ``len(VOCABULARY)``.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If a number is no token id.

    Examples
    --------
    >>> decode(encode("a1 3 + 4 = 7"))
    'a1 3 + 4 = 7'
    """
    return " ".join(VOCABULARY[token] for token in _tokens(tokens, 1))


def problems(task: Task, n: int, seed: int | np.random.Generator) -> Problems:
    """Draw problems: digits, signs and operands independent and uniform.

    Parameters
    ----------
    task : Task
        What they share.
    n : int
        How many.
    seed : int or numpy.random.Generator
        Equal seeds give equal problems.

    Returns
    -------
    Problems

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> few = problems(Task(branches=1, steps=2), 3, seed=0)
    >>> decode(few.prompts[0]), few.answers[0]
    ('<s> a0 8 , a1 + 8 , a2 + 6 ?', '2')
    """
    whole("n", n, 1)
    draw = _generator(seed)
    shape = (n, task.branches, task.steps)
    starts = draw.integers(0, 10, shape[:2])
    signs = draw.integers(0, len(_SIGNS), shape)
    addends, multipliers = draw.integers(1, 10, shape), draw.choice(_MULTIPLIERS, shape)
    return Problems(task, starts, signs, np.where(signs == _SIGNS.index("*"), multipliers, addends))


def texts(problems: Problems, seed: int | np.random.Generator) -> Int64[Tensor, "problems length"]:
    """Write each problem with one of its solutions, the order of steps drawn uniformly from those allowed.

    Parameters
    ----------
    problems : Problems
        To write.
    seed : int or numpy.random.Generator
        Of the orders.

    Returns
    -------
    int64 tensor, problems x task.length

    Raises
    ------
    InputError
        If the seed is none.

    Examples
    --------
    >>> decode(texts(problems(Task(branches=1, steps=1), 1, seed=0), seed=0)[0])
    '<s> a0 8 , a1 - 5 ? a1 8 - 5 = 3 # 3 .'
    """
    task, draw = problems.task, _generator(seed)
    # A shuffled row that holds each branch's number once per step is a uniform order; steps count up in each branch.
    branches = draw.permuted(np.tile(np.repeat(np.arange(task.branches), task.steps), (len(problems), 1)), axis=1)
    places = np.argsort(branches, axis=1, kind="stable")  # of branch a's steps in order, then of b's
    steps = np.empty_like(branches)
    np.put_along_axis(steps, places, np.arange(branches.shape[1])[None], 1)
    written = np.take_along_axis(_steps(problems), steps[..., None], 1).reshape(len(problems), -1)
    parts = [_prompts(problems), written]
    if task.checked:
        parts += [np.full((len(problems), 1), _CHECK), written]
    return torch.from_numpy(np.concatenate([*parts, _endings(problems)], 1))


def orders(task: Task) -> int:
    """Count the orders in which a problem's steps may be written.

    Parameters
    ----------
    task : Task
        What the problems share.

    Returns
    -------
    int
        (branches * steps)! / steps! ** branches.

    Examples
    --------
    >>> orders(Task(branches=2, steps=3)), orders(Task(branches=1, steps=10))
    (20, 1)
    """
    return factorial(task.branches * task.steps) // factorial(task.steps) ** task.branches


def answer(tokens: Int[Tensor, " tokens"] | Sequence[int]) -> str | None:
    """Read the answer that a continuation ends in.

    Parameters
    ----------
    tokens : integer tensor or sequence, tokens
        What follows the prompt; tokens after the first end token do not count.

    Returns
    -------
    str or None
        One digit; None unless the end is ``# d .``, ``# d + d = d .`` or ``# d + d + d = d .``.

    Raises
    ------
    InputError
        If a number is no token id.

    Examples
    --------
    >>> answer(encode("a1 3 + 4 = 7 # 7 .")), answer(encode("# 4 + 5 = 8 . .")), answer(encode("a1 3 + 4 = 7 ."))
    ('7', '8', None)
    """
    found = int(_answers(_tokens(tokens, 1)[None])[0])
    return None if found < 0 else str(found)


def check(problems: Problems, index: int, tokens: Int[Tensor, " tokens"] | Sequence[int]) -> Checked:
    """Judge one continuation of one problem.

    Parameters
    ----------
    problems : Problems
        The problems.
    index : int
        Which of them.
    tokens : integer tensor or sequence, tokens
        What follows the prompt; tokens after the first end token do not count.

    Returns
    -------
    Checked

    Raises
    ------
    InputError
        If there is no such problem, or a number is no token id.

    Examples
    --------
    >>> one = problems(Task(branches=1, steps=1), 1, seed=0)  # a0 8, a1 - 5
    >>> check(one, 0, encode("a1 8 - 5 = 3 # 3 ."))
    Checked(answer='3', correct=True, valid=True, order=('a1',))
    >>> check(one, 0, encode("a1 8 - 5 = 4 # 3 .")).valid
    False
    """
    whole("index", index, 0, len(problems) - 1)
    found = check_all(problems[index], _tokens(tokens, 1)[None, None])
    digit, correct, valid = int(found.answers[0, 0]), bool(found.correct[0, 0]), bool(found.valid[0, 0])
    order = tuple(VOCABULARY[label] for label in found.orders[0, 0]) if valid else None
    return Checked(None if digit < 0 else str(digit), correct, valid, order)


def check_all(problems: Problems, tokens: Int[Tensor, "problems samples length"] | np.ndarray) -> CheckedAll:
    """Judge several continuations of every problem at once.

    Parameters
    ----------
    problems : Problems
        The problems.
    tokens : integer tensor or array, problems x samples x length
        As `icml26.generation.sample` draws them; tokens after the first end token do not count.

    Returns
    -------
    CheckedAll

    Raises
    ------
    InputError
        If the shape does not fit the problems, or a number is no token id.

    Examples
    --------
    >>> some = problems(Task(branches=2, steps=2), 100, seed=0)
    >>> solutions = texts(some, seed=0)[:, some.task.prompt_length :]
    >>> bool(check_all(some, solutions[:, None]).valid.all())
    True
    """
    tokens = _tokens(tokens, 3)
    if len(tokens) != len(problems):
        raise InputError(f"tokens are of {len(tokens)} problems, problems of {len(problems)}: give a row for each")
    task = problems.task
    count = task.branches * task.steps
    digits = _answers(tokens)
    correct = digits == (problems.values[..., -1].sum(1) % 10)[:, None]
    if tokens.shape[2] < task.solution_length:
        valid = np.zeros(tokens.shape[:2], dtype=bool)
        return CheckedAll(digits, correct, valid, np.full((*valid.shape, count), -1, dtype=np.int8))
    written = tokens[..., : count * _STEP_TOKENS]
    labels = written[..., ::_STEP_TOKENS]
    number = _numbers(task)[labels]
    allowed = (np.sort(number, -1) == np.arange(count)).all(-1)
    places = np.argsort(number, -1, kind="stable").reshape(*number.shape[:2], task.branches, task.steps)
    allowed &= (np.diff(places, axis=-1) > 0).all((-1, -2))
    expected = _steps(problems)[np.arange(len(problems))[:, None, None], number.clip(0)]
    valid = allowed & (written == expected.reshape(written.shape)).all(-1)
    if task.checked:
        valid &= tokens[..., written.shape[2]] == _CHECK
        valid &= (tokens[..., written.shape[2] + 1 : 2 * written.shape[2] + 1] == written).all(-1)
    ending = tokens[..., task.solution_length - task._answer_length : task.solution_length]
    valid &= (ending == _endings(problems)[:, None]).all(-1)
    return CheckedAll(digits, correct, valid, np.where(valid[..., None], labels, -1).astype(np.int8))


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(whole("seed", seed, 0))


def _tokens(tokens: object, axes: int) -> np.ndarray:
    """Token ids as an array with so many axes."""
    found = np.asarray(tokens)
    if found.ndim != axes or (found.size and found.dtype.kind not in "iu"):
        raise InputError(f"tokens have {found.ndim} axes and type {found.dtype}: give integers on {axes}")
    if found.size and not (found.min() >= 0 and found.max() < len(VOCABULARY)):
        wrong = int(found.min()) if found.min() < 0 else int(found.max())
        raise InputError(f"tokens hold {wrong}: give token ids from 0 to {len(VOCABULARY) - 1}")
    return found.astype(np.int64, copy=False)


def _labels(task: Task) -> np.ndarray:
    """Ids of all labels of a task: branches x (steps + 1)."""
    return _FIRST_LABEL + (_MOST_STEPS + 1) * np.arange(task.branches)[:, None] + np.arange(task.steps + 1)


def _numbers(task: Task) -> np.ndarray:
    """The number of the step that a token labels, -1 for other tokens."""
    found = np.full(len(VOCABULARY), -1)
    found[_labels(task)[:, 1:].ravel()] = np.arange(task.branches * task.steps)
    return found


def _prompts(problems: Problems) -> np.ndarray:
    """Token ids of the prompts: problems x prompt_length."""
    n, labels = len(problems), _labels(problems.task)
    parts = [np.full((n, 1), START)]
    for branch, (first, *others) in enumerate(labels):
        parts.append(np.stack([np.full(n, first), problems.starts[:, branch]], 1))
        for step, label in enumerate(others):
            sign, by = problems.signs[:, branch, step] + _PLUS, problems.operands[:, branch, step]
            parts.append(np.stack([np.full(n, _COMMA), np.full(n, label), sign, by], 1))
        parts.append(np.full((n, 1), _QUESTION if branch + 1 == len(labels) else _COMMA))
    return np.concatenate(parts, 1)


def _steps(problems: Problems) -> np.ndarray:
    """Token ids of the written steps, branch after branch: problems x (branches * steps) x 6."""
    values, labels = problems.values, _labels(problems.task)[:, 1:]
    parts = (labels, values[..., :-1], problems.signs + _PLUS, problems.operands, _EQUALS, values[..., 1:])
    return np.stack(np.broadcast_arrays(*parts), -1).reshape(len(problems), -1, _STEP_TOKENS)


def _endings(problems: Problems) -> np.ndarray:
    """Token ids of the answers' lines, from "#" to the end token."""
    last = problems.values[..., -1]
    n, task = len(problems), problems.task
    found = np.full((n, task._answer_length), _PLUS)
    found[:, 0], found[:, -2], found[:, -1] = _HASH, last.sum(1) % 10, END
    if task.branches > 1:
        found[:, 1 : 2 * task.branches : 2], found[:, 2 * task.branches] = last, _EQUALS
    return found


def _answers(tokens: Int64[np.ndarray, "*batch length"]) -> Int8[np.ndarray, "*batch"]:
    """The digit that each continuation ends in, -1 without one."""
    longest = 2 * len(_BRANCHES) + 2  # tokens before the end token
    padded = np.concatenate([np.full((*tokens.shape[:-1], longest), START), tokens], -1)
    ends = padded == END
    first = np.where(ends.any(-1), ends.argmax(-1), longest)
    tail = np.take_along_axis(padded, first[..., None] + np.arange(-longest, 0), -1)
    digit = tail < 10
    formed = digit[..., -1] & (tail[..., -2] == _HASH)
    for branches in range(2, len(_BRANCHES) + 1):
        line = tail[..., longest - 2 * branches - 2 :]
        formed |= (
            (line[..., 0] == _HASH)
            & digit[..., longest - 2 * branches - 1 :: 2].all(-1)
            & (line[..., 2:-2:2] == _PLUS).all(-1)
            & (line[..., -2] == _EQUALS)
        )
    return np.where(formed, tail[..., -1], -1).astype(np.int8)
