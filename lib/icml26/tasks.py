"""Texts for the chapters, with splits that never overlap, and token tensors cut into segments.

GSM8K's problems (Cobbe et al., arXiv 2110.14168) come from the registered data file; the documentation that ships with
Python stands in for English where that file is missing. Training texts and held-out texts are disjoint by problem or by
topic. Finding the file is `icml26.data`'s business, losses and training are `icml26.training`'s and the chapters'.
"""

import json
import re
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from icml26 import data
from icml26.errors import InputError, nearest

__all__ = ["GSM8K", "Problem", "byte_tokens", "english_text", "gsm8k_problems", "gsm8k_text", "segments", "sentences"]

GSM8K = "gsm8k-test"  # its name in the data registry
SPLITS = ("train", "held-out")
TRAIN_SHARE = 0.9


class Problem(NamedTuple):
    """A word problem in natural language.

    Attributes
    ----------
    question, solution : str
        The problem; its solution step by step, without the calculator's annotations.
    answer : str
        What the solution ends in, digits without thousands separators.
    """

    question: str
    solution: str
    answer: str


def gsm8k_problems(split: str) -> list[Problem]:
    """Read GSM8K's test problems: the first 90 % to train on, or the last 10 % held out.

    Parameters
    ----------
    split : {"train", "held-out"}
        Which problems.

    Returns
    -------
    list of Problem
        1,187 or 132 problems, in the file's order.

    Raises
    ------
    MissingData
        If the file is not on this machine; the message names both ways to have it.
    InputError
        If the split is not known.

    Examples
    --------
    >>> gsm8k_problems("held-out")[0].answer  # doctest: +SKIP
    '6'
    """
    _check(split)
    problems = []
    for line in data.path(GSM8K).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        solution, answer = re.sub(r"<<[^>]*>>", "", entry["answer"]).split("\n#### ")
        problems.append(Problem(entry["question"], solution, answer.replace(",", "")))
    return _part(problems, split)


def gsm8k_text(split: str) -> str:
    """Join GSM8K's problems into one text: question, solution and ``#### answer``, a blank line between problems.

    Parameters
    ----------
    split : {"train", "held-out"}
        Which problems, as in `gsm8k_problems`.

    Returns
    -------
    str
        About 590 and 66 kB in UTF-8.

    Raises
    ------
    MissingData
        If the file is not on this machine; the message names both ways to have it.
    InputError
        If the split is not known.

    Examples
    --------
    >>> gsm8k_text("train")[:40]  # doctest: +SKIP
    'Janet’s ducks lay 16 eggs per day. She e'
    """
    return "".join(f"{p.question}\n{p.solution}\n#### {p.answer}\n\n" for p in gsm8k_problems(split))


def english_text(split: str) -> str:
    """Read the language reference that ships with Python (`pydoc_data.topics`): technical English, always there.

    Its topics are sorted by name; the first 90 % are for training. Topics quote each other: paragraphs that are also in
    the training topics are not held out. The text differs between versions of Python, and so does every number
    measured on it.

    Parameters
    ----------
    split : {"train", "held-out"}
        Which topics.

    Returns
    -------
    str
        About 430 and 36 kB in Python 3.11.

    Raises
    ------
    InputError
        If the split is not known.

    Examples
    --------
    >>> len(english_text("train")) > 4 * len(english_text("held-out")) > 0
    True
    """
    _check(split)
    from pydoc_data.topics import topics

    texts = [text for _, text in sorted(topics.items())]
    known = {_words(p) for text in _part(texts, "train") for p in text.split("\n\n")} if split == "held-out" else set()
    return "\n\n".join(
        p for text in _part(texts, split) for p in text.strip("\n").split("\n\n") if _words(p) not in known
    )


def sentences(text: str) -> list[str]:
    """Pick the plain sentences of a text, without code and headings.

    Parameters
    ----------
    text : str
        Paragraphs apart by blank lines.

    Returns
    -------
    list of str
        Sentences of 30 to 300 characters, on one line each, every one once, in order.

    Examples
    --------
    >>> sentences("A title\\n\\nIt rained all day in\\nthe old town. We stayed at home and read a book.\\n\\n   x = 1")
    ['It rained all day in the old town.', 'We stayed at home and read a book.']
    """
    found = {}
    for paragraph in re.split(r"\n\s*\n", text):
        joined = " ".join(paragraph.split())
        for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z])", joined):
            if re.fullmatch(r"[A-Z][^<>={}|*_]{28,298}[.?!]", sentence) and not paragraph.startswith(" "):
                found[sentence] = None
    return list(found)


def byte_tokens(text: str) -> Int64[Tensor, " bytes"]:
    """Turn a text into its UTF-8 bytes, the tokens of byte-level models.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    int64 tensor, bytes
        Numbers from 0 to 255.

    Examples
    --------
    >>> byte_tokens("Hé")
    tensor([ 72, 195, 169])
    """
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long() if text else torch.empty(0).long()


def segments(tokens: Int64[Tensor, " tokens"], length: int, limit: int | None = None) -> Int64[Tensor, "n length"]:
    """Cut tokens into consecutive segments; what is left at the end is dropped.

    Parameters
    ----------
    tokens : int64 tensor, tokens
        The tokens.
    length : int
        Tokens per segment.
    limit : int, optional
        Segments at most, spread evenly over the text.

    Returns
    -------
    int64 tensor, n x length
        The segments, in order.

    Raises
    ------
    InputError
        If there are too few tokens for one segment, or a number is not positive.

    Examples
    --------
    >>> segments(torch.arange(9), 2, limit=2)
    tensor([[0, 1],
            [4, 5]])
    """
    if length < 1 or (limit is not None and limit < 1):
        raise InputError(f"length={length} and limit={limit} must be positive")
    n = len(tokens) // length
    if n == 0:
        raise InputError(f"tokens are {len(tokens)}, fewer than one segment's {length}: use a longer text")
    cut = tokens[: n * length].view(n, length)
    return cut if limit is None or limit >= n else cut[torch.arange(limit) * n // limit]


def _check(split: str) -> None:
    if split not in SPLITS:
        raise InputError(f"split={split!r} is none of {', '.join(SPLITS)}{nearest(split, SPLITS)}")


def _words(text: str) -> str:
    return " ".join(text.split())


def _part(items: list, split: str) -> list:
    border = round(TRAIN_SHARE * len(items))
    return items[:border] if split == "train" else items[border:]
