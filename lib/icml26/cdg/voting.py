"""CDG voting: pick one of a question's answers by mean confidence, its gain along the trace, and a damped count.

The paper is CDG (Wang et al., ICML 2026, arXiv 2605.25244, Section 3). A trace scores s = C + beta dC, its mean
confidence plus beta times its dynamic gain; an answer a with traces T_a scores

    R(a) = |T_a|^alpha * mean of s over T_a,

and the largest R wins. Edge cases are those of the released voting script: candidates are texts as extracted, a tie
goes to the answer seen first, empty answers and traces of fewer than 10 tokens do not vote, and without voters there is
no winner. Where the mean score of an answer is negative, |T_a|^alpha counts its votes AGAINST it; the script has no
guard, and the two offered here are ours. Statistics of traces come from `icml26.cdg.traces`, the choice of beta from
`icml26.cdg.voter`, other votes from `icml26.cdg.baselines`; `icml26.cdg.decision` says what decides between two
answers.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import ArrayLike

from icml26.cdg.traces import Question, Trace, summarise
from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["Vote", "cdg", "electorate", "tally", "vote"]

GUARDS = ("clip", "shift")


class Vote(NamedTuple):
    """Outcome of a vote.

    Attributes
    ----------
    winner : str or None
        The answer with the largest score, None where nobody votes.
    table : dict
        Score R(a) of each answer, in the order in which they were first seen.
    counts : dict
        Traces behind each answer.
    """

    winner: str | None
    table: dict[str, float]
    counts: dict[str, int]

    @property
    def negative(self) -> list[str]:
        """Answers whose votes count against them, because their mean score is below 0."""
        return [answer for answer, score in self.table.items() if score < 0]


def tally(answers: Sequence[str], scores: Float[ArrayLike, " voters"], alpha: float = 1.0) -> Vote:
    """Score answers by their traces: R(a) = |T_a|^alpha * mean(s), the sum of scores at alpha = 1.

    Parameters
    ----------
    answers : sequence of str
        One for each voting trace.
    scores : array, shape (voters,)
        Score s of each voting trace.
    alpha : float
        Exponent of the count, at least 0.

    Returns
    -------
    Vote
        Of no winner if nobody votes.

    Raises
    ------
    InputError
        If there is not one finite score for each answer, or alpha is out of range.

    Examples
    --------
    >>> tally(["7", "8", "8"], [5.0, 3.0, 3.0], alpha=0.5)
    Vote(winner='7', table={'7': 5.0, '8': 4.242640687119286}, counts={'7': 1, '8': 2})
    """
    alpha, scores = real("alpha", alpha, low=0), np.asarray(scores, dtype=float)
    if scores.shape != (len(answers),) or not np.isfinite(scores).all():
        raise InputError(f"scores must be one finite number for each of the {len(answers)} answers")
    if not len(answers):
        return Vote(None, {}, {})
    seen: dict[str, int] = {}
    group = [seen.setdefault(answer, len(seen)) for answer in answers]
    counts, sums = np.bincount(group), np.bincount(group, scores)
    # At alpha = 1 the sums themselves, so that ties of sums remain ties.
    totals = sums if alpha == 1 else counts**alpha * (sums / counts)
    names = list(seen)
    return Vote(
        names[int(totals.argmax())],
        dict(zip(names, totals.tolist(), strict=True)),
        dict(zip(names, counts.tolist(), strict=True)),
    )


def electorate(
    question: Sequence[Trace],
    *,
    min_length: int = 0,
    equal: Callable[[str, str], bool] | None = None,
    keep_empty: bool = False,
) -> tuple[Question, Int64[np.ndarray, " voters"]]:
    """Find the traces that vote; every method of the chapter asks here.

    Parameters
    ----------
    question : sequence of Trace
        All traces of a question.
    min_length : int
        Fewest tokens of a trace that votes.
    equal : callable, optional
        ``equal(first, other)`` tells whether two answers are the same one; by default answers are their texts.
    keep_empty : bool
        Whether the empty text is an answer, as in the released sweep, or none, as in the released voting script.

    Returns
    -------
    question : Question
        With equal answers written alike.
    rows : int array, shape (voters,)
        Indices of the traces that vote.

    Raises
    ------
    InputError
        If the question is none or an option is out of range.

    Examples
    --------
    >>> electorate([("7", [1.0]), (None, [1.0]), ("", [1.0]), ("8", [1.0])])[1]
    array([0, 3])
    """
    question = Question.of(question, equal)
    whole("min_length", min_length, 0)
    if not isinstance(keep_empty, bool | np.bool_):
        raise InputError(f"keep_empty={keep_empty!r} must be True or False")
    valid = np.array([answer is not None and (answer != "" or keep_empty) for answer in question.answers])
    return question, np.flatnonzero(valid & (question.lengths >= min_length))


def vote(
    question: Sequence[Trace],
    alpha: float = 0.5,
    beta: float = 10.0,
    percent: int = 10,
    min_length: int = 10,
    *,
    guard: str | None = None,
    equal: Callable[[str, str], bool] | None = None,
    keep_empty: bool = False,
) -> Vote:
    """Vote by confidence and its gain (arXiv 2605.25244, Section 3).

    Parameters
    ----------
    question : sequence of Trace
        All traces of a question, those without an answer included.
    alpha : float
        Exponent of the count; 1 is the older gradient vote.
    beta : float
        Weight of the gain. The paper's 10 and 3 belong to its models, K and vocabularies; `CDGVoter` calibrates it.
    percent : int
        P: the head is the first, the tail the last max(1, floor(n P / 100)) tokens; above 50 they overlap.
    min_length : int
        Fewest tokens of a trace that votes, at least 1.
    guard : {"clip", "shift"}, optional
        Ours, not the paper's. "clip" raises negative trace scores to 0; "shift" subtracts the lowest trace score from
        all where it is negative. Without negative scores both change nothing.
    equal, keep_empty
        As in `electorate`.

    Returns
    -------
    Vote

    Raises
    ------
    InputError
        If the question is none or an option is out of range.

    Examples
    --------
    >>> rising, flat = np.linspace(10, 12, 20), np.full(20, 11.0)
    >>> question = [Trace("7", flat), Trace("7", flat), Trace("8", rising)]
    >>> vote(question).winner, vote(question, beta=0).winner
    ('8', '7')
    """
    beta = real("beta", beta)
    whole("min_length", min_length, 1)
    if guard is not None and guard not in GUARDS:
        raise InputError(f"guard={guard!r} must be None, 'clip' or 'shift'")
    question, rows = electorate(question, min_length=min_length, equal=equal, keep_empty=keep_empty)
    summary = summarise([question], percent)
    scores = summary.mean[rows] + beta * summary.gain[rows]
    if guard == "clip":
        scores = np.maximum(scores, 0)
    elif guard == "shift" and len(scores):
        scores = scores - min(scores.min(), 0)
    return tally([question.answers[row] for row in rows], scores, alpha)


def cdg(question: Sequence[Trace], alpha: float = 0.5, beta: float = 10.0, **options: object) -> str | None:
    """Return the winner of `vote`, called as the other methods are.

    Parameters
    ----------
    question, alpha, beta
        As in `vote`.
    **options
        Its other arguments.

    Returns
    -------
    str or None
        The winner; None where nobody votes.

    Raises
    ------
    InputError
        As `vote`.

    Examples
    --------
    >>> cdg([("7", np.ones(12)), ("8", np.full(12, 2.0))], beta=0)
    '8'
    """
    return vote(question, alpha, beta, **options).winner
