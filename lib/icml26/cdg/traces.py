"""What votes need of each trace: its mean confidence, its head, its tail, and the gain between them.

The dynamic gain of CDG (Wang et al., ICML 2026, arXiv 2605.25244) is the mean confidence of the last P percent of a
trace's tokens minus that of the first P percent. `summarise` makes one row of statistics per trace and `curves` one
curve per trace over equal stretches of position, both a question at a time and all its traces together. How traces vote
is `icml26.cdg.voting`'s business.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int, Int64
from numpy.typing import ArrayLike

from icml26.cdg.question import Question, Trace
from icml26.cdg.segments import segment_sums
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["Question", "Summary", "Trace", "curves", "summarise", "window_sizes"]


def window_sizes(lengths: Int[ArrayLike, " traces"], percent: int) -> Int64[np.ndarray, " traces"]:
    """Tokens of head and tail: k = max(1, floor(n P / 100)), and none of a trace without tokens.

    Parameters
    ----------
    lengths : int array, shape (traces,)
        Tokens n.
    percent : int
        P, from 1 to 100; above 50 head and tail share tokens, at 100 both are the trace and the gain is 0.

    Returns
    -------
    int array, shape (traces,)

    Raises
    ------
    InputError
        If the percentage is out of range.

    Examples
    --------
    >>> window_sizes([9, 29, 30], 10)
    array([1, 2, 3])
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    return np.minimum(np.maximum(1, lengths * whole("percent", percent, 1, 100) // 100), lengths)


class Summary(NamedTuple):
    """One row per trace, in the order of questions and traces.

    Attributes
    ----------
    question : int array
        Index of the trace's question.
    answer : object array of (str or None)
        Answer as extracted.
    n, size : int array
        Tokens n of the trace, and k of head and tail.
    mean, head, tail : array
        Mean confidence of the trace, of its first and of its last k tokens, in nats; NaN where n is 0.
    gain : array
        ``tail - head``, the dynamic gain, in nats.
    certainty : array
        Self-certainty, NaN where it is not known.
    """

    question: Int64[np.ndarray, " traces"]
    answer: np.ndarray
    n: Int64[np.ndarray, " traces"]
    size: Int64[np.ndarray, " traces"]
    mean: Float64[np.ndarray, " traces"]
    head: Float64[np.ndarray, " traces"]
    tail: Float64[np.ndarray, " traces"]
    gain: Float64[np.ndarray, " traces"]
    certainty: Float64[np.ndarray, " traces"]


def summarise(questions: Iterable[Sequence[Trace]], percent: int = 10) -> Summary:
    """Compute what votes need of every trace: length, mean, head, tail and gain (arXiv 2605.25244, Section 3).

    The gain of every trace with a token is computed; that traces of fewer than 10 tokens do not vote is the vote's
    rule. Questions are read one at a time, so that an iterator holds one question's confidences in memory.

    Parameters
    ----------
    questions : iterable of questions
        Each a sequence of `Trace`.
    percent : int
        P of `window_sizes`.

    Returns
    -------
    Summary

    Raises
    ------
    InputError
        If there is no question, or a question or the percentage is none.

    Examples
    --------
    >>> summary = summarise([[Trace("7", np.arange(20.0)), Trace("8", np.ones(10))]])
    >>> summary.gain, summary.mean
    (array([18.,  0.]), array([9.5, 1. ]))
    """
    rows, answers = [], []
    for index, traces in enumerate(questions):
        question = Question.of(traces)
        n, sizes = question.lengths, window_sizes(question.lengths, percent)
        total, head, tail = question.sums(sizes)
        with np.errstate(invalid="ignore"):  # a trace without tokens has no mean
            mean, head, tail = total / n, head / sizes, tail / sizes
        rows.append((np.full(len(n), index), n, sizes, mean, head, tail, tail - head, question.certainties))
        answers += question.answers
    if not rows:
        raise InputError("questions is empty; give at least one sequence of traces")
    question, *columns = (np.concatenate(column) for column in zip(*rows, strict=True))
    texts = np.empty(len(answers), dtype=object)
    texts[:] = answers
    return Summary(question, texts, *columns)


def curves(questions: Iterable[Sequence[Trace]], bins: int = 10) -> Float64[np.ndarray, "traces bins"]:
    """Mean confidence in equal stretches of position, a row per trace in the order of `summarise`.

    Stretch i holds the tokens from ``i n // bins`` up to, not including, ``(i + 1) n // bins``.

    Parameters
    ----------
    questions : iterable of questions
        Each a sequence of `Trace`.
    bins : int
        Stretches.

    Returns
    -------
    array, shape (traces, bins)
        In nats; NaN for a trace of fewer tokens than bins.

    Raises
    ------
    InputError
        If there is no question, or a question or the number of bins is none.

    Examples
    --------
    >>> curves([[Trace("7", np.arange(25.0))]], bins=4)
    array([[ 2.5,  8.5, 14.5, 21. ]])
    """
    bins = whole("bins", bins, 1)
    rows = []
    for traces in questions:
        question = Question.of(traces)
        found = np.full((len(question), bins), np.nan)
        long = question.lengths >= bins
        edges = np.arange(bins + 1) * question.lengths[long, None] // bins
        first, last = (question.starts[long, None] + edges[:, side] for side in (slice(-1), slice(1, None)))
        if long.any():
            sums = segment_sums(question.confidences, first.ravel(), last.ravel())
            found[long] = sums.reshape(-1, bins) / (last - first)
        rows.append(found)
    if not rows:
        raise InputError("questions is empty; give at least one sequence of traces")
    return np.concatenate(rows)
