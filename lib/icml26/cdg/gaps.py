"""The gap between correct and wrong traces, within questions and pooled.

CDG (Wang et al., arXiv 2605.25244) compares the confidence gains of correct and wrong traces pooled over questions.
Easy questions have both more correct and more confident traces, so a pooled gap may exist where no question has one
(Simpson's paradox). `question_gaps` therefore compares traces of the same question, and only the questions with at
least two of each count; `pooled` gives the comparison of the paper beside it. Which values are compared (gain, mean,
tail, the confidence of a bin) is for the caller to choose; intervals are left to `icml26.cdg.intervals`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy import stats as scipy_stats

from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["Pooled", "effect_size", "pooled", "question_gaps", "question_shares", "shared_share"]


class Pooled(NamedTuple):
    """What `pooled` returns.

    Attributes
    ----------
    gap : float
        Mean over correct traces less mean over wrong ones.
    d : float
        Cohen's d: the gap over the pooled standard deviation.
    mann_whitney, welch : float
        One-sided p-values of the paper's two tests, which take traces for independent.
    """

    gap: float
    d: float
    mann_whitney: float
    welch: float


def question_gaps(
    values: Float[ArrayLike, " traces"],
    correct: Bool[ArrayLike, " traces"],
    question: Int[ArrayLike, " traces"],
    *,
    least: int = 2,
    questions: int | None = None,
) -> Float[np.ndarray, " questions"]:
    """Mean over a question's correct traces less that over its wrong ones, for each question that has enough of both.

    Parameters
    ----------
    values : array-like, traces
        What to compare, such as the gain.
    correct : array-like of bool, traces
        Whether the trace's answer is right.
    question : array-like of int, traces
        The trace's question, from 0 on.
    least : int
        Least number of correct and of wrong traces for a question to count.
    questions : int, optional
        How many there are; gives each of them an entry, NaN where it does not count.

    Returns
    -------
    float64 array, questions that count, or all
        In the order of their numbers; empty if none does.

    Raises
    ------
    InputError
        If the shapes differ, a value is not finite, or a question's number is negative or not below `questions`.

    Examples
    --------
    >>> question_gaps([1.0, 1, 3, 5, 0, 0], [False, False, True, True, True, False], [0, 0, 0, 0, 1, 1])
    array([3.])
    """
    values, correct, question = _traces(values, correct, question)
    counts, sums = _sums(values, correct, question, questions)
    enough = (counts >= least).all(0)
    means = sums[:, enough] / counts[:, enough]
    if questions is None:
        return means[1] - means[0]
    every = np.full(questions, np.nan)
    every[enough] = means[1] - means[0]
    return every


def effect_size(
    values: Float[ArrayLike, " traces"],
    correct: Bool[ArrayLike, " traces"],
    question: Int[ArrayLike, " traces"],
    *,
    least: int = 2,
) -> float:
    """Cohen's d within questions: the mean of `question_gaps` over the standard deviation of traces of one kind.

    Parameters
    ----------
    values, correct, question, least
        As in `question_gaps`.

    Returns
    -------
    float
        NaN if no question counts; the deviation is that about the mean of a question's correct, or wrong, traces, over
        the questions that count, with one degree of freedom lost to each mean.

    Raises
    ------
    InputError
        As `question_gaps`.

    Examples
    --------
    >>> round(effect_size([1.0, 3, 4, 6], [False, False, True, True], [0, 0, 0, 0]), 3)
    2.121
    """
    gaps = question_gaps(values, correct, question, least=least)
    if not len(gaps):
        return float("nan")
    values, correct, question = _traces(values, correct, question)
    counts, sums = _sums(values, correct, question)
    enough = (counts >= least).all(0)
    means = sums / np.maximum(counts, 1)
    deviation = (values - means[correct.astype(int), question])[enough[question]]
    freedom = counts[:, enough].sum() - 2 * enough.sum()
    return float(gaps.mean() / np.sqrt((deviation**2).sum() / freedom)) if deviation.any() else float("nan")


def pooled(values: Float[ArrayLike, " traces"], correct: Bool[ArrayLike, " traces"]) -> Pooled:
    """Compare correct and wrong traces of all questions at once, as the paper does.

    Parameters
    ----------
    values : array-like, traces
        What to compare.
    correct : array-like of bool, traces
        Whether the trace's answer is right.

    Returns
    -------
    Pooled
        All NaN if there are fewer than two traces of a kind.

    Raises
    ------
    InputError
        If the shapes differ or a value is not finite.

    Examples
    --------
    >>> found = pooled([1.0, 2, 3, 3, 4, 5], [False, False, False, True, True, True])
    >>> found.gap, found.d
    (2.0, 2.0)
    """
    values, correct, _ = _traces(values, correct, np.zeros(np.shape(correct), dtype=int))
    right, wrong = values[correct], values[~correct]
    if min(len(right), len(wrong)) < 2:
        return Pooled(*[float("nan")] * 4)
    gap = right.mean() - wrong.mean()
    freedom = len(values) - 2
    spread = np.sqrt(((len(right) - 1) * right.var(ddof=1) + (len(wrong) - 1) * wrong.var(ddof=1)) / freedom)
    return Pooled(
        float(gap),
        float(gap / spread) if spread else float("nan"),
        float(scipy_stats.mannwhitneyu(right, wrong, alternative="greater").pvalue),
        float(scipy_stats.ttest_ind(right, wrong, equal_var=False, alternative="greater").pvalue)
        if spread
        else float("nan"),
    )


def question_shares(
    holds: Bool[ArrayLike, " traces"],
    among: Bool[ArrayLike, " traces"],
    question: Int[ArrayLike, " traces"],
    *,
    questions: int | None = None,
) -> tuple[Float[np.ndarray, " questions"], Float[np.ndarray, " questions"]]:
    """Share of a question's traces for which something holds, and their number, which is the question's weight.

    Parameters
    ----------
    holds : array-like of bool, traces
        What is counted, such as a gain above zero.
    among : array-like of bool, traces
        The traces that are asked, such as the correct ones.
    question : array-like of int, traces
        The trace's question, from 0 on.
    questions : int, optional
        How many there are; gives each of them an entry, of share NaN and weight 0 where it has no such trace.

    Returns
    -------
    shares, weights : float64 arrays, questions with at least one such trace, or all
        As `icml26.cdg.intervals.stratified_mean` takes them: the weighted mean is the share of all such traces.

    Raises
    ------
    InputError
        If the shapes differ, or a question's number is negative or not below `questions`.

    Examples
    --------
    >>> question_shares([True, False, True], [True, True, True], [0, 0, 3])
    (array([0.5, 1. ]), array([2., 1.]))
    """
    holds, among, question = _traces(np.asarray(holds, dtype=float), among, question)
    counts, sums = _sums(holds, among, question, questions)
    asked = counts[1] > 0
    if questions is None:
        return sums[1, asked] / counts[1, asked], counts[1, asked].astype(float)
    every = np.full(questions, np.nan)
    every[asked] = sums[1, asked] / counts[1, asked]
    return every, counts[1].astype(float)


def shared_share(
    values: Float[ArrayLike, " traces"], answer: Int[ArrayLike, " traces"], question: Int[ArrayLike, " traces"]
) -> float:
    """Share of the variance within a question that the traces of an answer have in common.

    It is the intraclass correlation of a one-way analysis of variance; more traces of an answer average away the rest.

    Parameters
    ----------
    values : array-like, traces
        Such as the gain.
    answer : array-like of int, traces
        Number of the trace's answer in its question, from 0 on.
    question : array-like of int, traces
        The trace's question, from 0 on.

    Returns
    -------
    float
        At most 1; about 0, and possibly below, if the answer says nothing. NaN if no question has two answers, one of
        them given twice.

    Raises
    ------
    InputError
        If the shapes differ, a value is not finite, or a number is negative.

    Examples
    --------
    >>> shared_share([1.0, 1.0, 5.0, 5.0], [0, 0, 1, 1], [0, 0, 0, 0])
    1.0
    """
    answer = np.asarray(answer)
    values, _, question = _traces(values, np.zeros(answer.shape, dtype=bool), question)
    if len(answer) and (answer.dtype.kind not in "iu" or answer.min() < 0):
        raise InputError("answer must hold the numbers of the traces' answers, from 0 on")
    if not len(values):
        return float("nan")
    cells, cell = np.unique(question * (int(answer.max()) + 1) + answer, return_inverse=True)
    owner = cells // (int(answer.max()) + 1)
    several = np.bincount(owner)[owner] > 1
    sizes = np.bincount(cell).astype(float)
    means = np.bincount(cell, weights=values) / sizes
    inner = ((values - means[cell]) ** 2)[several[cell]].sum()
    inner_freedom = (sizes - 1)[several].sum()
    middle = np.bincount(owner, weights=sizes * means) / np.maximum(np.bincount(owner, weights=sizes), 1)
    outer = (sizes * (means - middle[owner]) ** 2)[several].sum()
    per_question = np.bincount(owner, weights=sizes * several)
    squares = np.bincount(owner, weights=sizes**2 * several)
    asked = per_question > 0
    outer_freedom = several.sum() - asked.sum()
    if not inner_freedom or not outer_freedom:
        return float("nan")
    typical = (per_question[asked] - squares[asked] / per_question[asked]).sum() / outer_freedom
    within, between = inner / inner_freedom, (outer / outer_freedom - inner / inner_freedom) / typical
    return float(between / (between + within)) if between + within else float("nan")


def _traces(values: ArrayLike, correct: ArrayLike, question: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, correct, question = np.asarray(values, dtype=float), np.asarray(correct), np.asarray(question)
    if not values.shape == correct.shape == question.shape or values.ndim != 1:
        raise InputError(
            f"values, correct and question have shapes {values.shape}, {correct.shape}, {question.shape}; "
            "give vectors with an entry for each trace"
        )
    if not np.isfinite(values).all():
        raise InputError("values must be finite; leave traces without confidences out")
    if correct.dtype != bool:
        raise InputError("correct must hold truth values, whether each trace is right")
    if len(question) and (question.dtype.kind not in "iu" or question.min() < 0):
        raise InputError("question must hold the numbers of the traces' questions, from 0 on")
    return values, correct, question


def _sums(
    values: np.ndarray, correct: np.ndarray, question: np.ndarray, questions: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Counts and sums of values, of wrong traces (row 0) and correct ones (row 1), for each question."""
    least = int(question.max()) + 1 if len(question) else 0
    questions = least if questions is None else whole("questions", questions, least)
    cells = correct * questions + question
    shape = (2, questions)
    counts = np.bincount(cells, minlength=2 * questions).reshape(shape)
    return counts, np.bincount(cells, weights=values, minlength=2 * questions).reshape(shape)
