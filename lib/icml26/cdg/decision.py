"""What decides a CDG vote between two answers, and how often its sign turns.

With R(a) = |T_a|^alpha * mean(s) and positive means, n1 votes of mean score m1 lose to n2 < n1 of mean score m2 iff
m2 / m1 > (n1 / n2)^alpha. With s = C + beta dC this is a line in mean confidence and gain, for every beta. Where means
are negative the rule turns round; `sign_hazard` counts that. The vote is that of CDG (Wang et al., ICML 2026, arXiv
2605.25244), `icml26.cdg.voting`; the rule is ours.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from icml26.cdg.traces import Trace
from icml26.cdg.voting import vote
from icml26.checks import real
from icml26.errors import InputError

__all__ = ["Hazard", "critical_gain", "minority_wins", "sign_hazard"]


class Hazard(NamedTuple):
    """How often votes count against answers.

    Attributes
    ----------
    answers : float
        Share of all candidate answers whose mean score is negative.
    leaders : float
        Share of questions in which that of the answer with most votes is, the first seen of several.
    """

    answers: float
    leaders: float


def sign_hazard(questions: Iterable[Sequence[Trace]], beta: float = 10.0, **options: object) -> Hazard:
    """Measure how often a mean score is negative, so that more votes make an answer worse.

    With mean confidence C this happens as soon as the mean gain is below -C / beta.

    Parameters
    ----------
    questions : iterable of questions
        Those without voters do not count.
    beta : float
        Weight of the gain.
    **options
        Other arguments of `vote`.

    Returns
    -------
    Hazard

    Raises
    ------
    InputError
        As `vote`, or if no question has a voter.

    Examples
    --------
    >>> falling = np.linspace(12, 8, 20)
    >>> sign_hazard([[("7", falling), ("7", falling), ("8", np.ones(20))]])
    Hazard(answers=0.5, leaders=1.0)
    """
    found = [vote(question, beta=beta, **options) for question in questions]
    found = [each for each in found if each.winner is not None]
    if not found:
        raise InputError("no question has a voter; give questions with answered traces of at least min_length tokens")
    leaders = [each.table[max(each.counts, key=each.counts.__getitem__)] < 0 for each in found]
    answers = [score < 0 for each in found for score in each.table.values()]
    return Hazard(float(np.mean(answers)), float(np.mean(leaders)))


def minority_wins(
    majority: Int[ArrayLike, "*cases"],
    minority: Int[ArrayLike, "*cases"],
    majority_score: Float[ArrayLike, "*cases"],
    minority_score: Float[ArrayLike, "*cases"],
    alpha: float = 0.5,
) -> Bool[np.ndarray, "*cases"]:
    """Whether the smaller of two answers wins: m2 / m1 > (n1 / n2)^alpha, all shapes broadcast.

    One trace against n wins as soon as its score exceeds n^alpha times the others' mean. At equality the answer seen
    first wins, which this rule does not know.

    Parameters
    ----------
    majority, minority : int array
        Votes n1 and n2, at least 1.
    majority_score, minority_score : array
        Mean scores m1 and m2, above 0; the rule does not hold for others.
    alpha : float
        Exponent of the count, at least 0.

    Returns
    -------
    bool array

    Raises
    ------
    InputError
        If counts or scores are out of range.

    Examples
    --------
    >>> minority_wins(9, 1, 10.0, [29.0, 31.0])
    array([False,  True])
    """
    n1, n2 = (_positive(*pair) for pair in (("majority", majority), ("minority", minority)))
    m1 = _positive("majority_score", majority_score)
    m2 = _positive("minority_score", minority_score)
    return m2 / m1 > (n1 / n2) ** real("alpha", alpha, low=0)


def critical_gain(
    ratio: Float[ArrayLike, "*cases"],
    mean: Float[ArrayLike, "*cases"],
    gain: Float[ArrayLike, "*cases"],
    minority_mean: Float[ArrayLike, "*cases"],
    *,
    alpha: float = 0.5,
    beta: float = 10.0,
) -> Float[np.ndarray, "*cases"]:
    """Mean gain above which the smaller of two answers wins: ((n1/n2)^alpha (C1 + beta dC1) - C2) / beta.

    Parameters
    ----------
    ratio : array
        Votes of the larger answer over those of the smaller, n1 / n2, above 0.
    mean, gain : array
        Mean confidence C1 and mean gain dC1 of the larger answer's traces, in nats, of positive score.
    minority_mean : array
        Mean confidence C2 of the smaller answer's traces, in nats.
    alpha, beta : float
        Of the vote; beta above 0.

    Returns
    -------
    array
        In nats.

    Raises
    ------
    InputError
        If an argument is out of range.

    Examples
    --------
    >>> float(critical_gain(4.0, 10.0, 0.0, 10.0))
    1.0
    """
    alpha, beta = real("alpha", alpha, low=0), real("beta", beta, above=0)
    score = _positive("mean + beta * gain", np.asarray(mean, dtype=float) + beta * np.asarray(gain, dtype=float))
    return (_positive("ratio", ratio) ** alpha * score - np.asarray(minority_mean, dtype=float)) / beta


def _positive(name: str, values: ArrayLike) -> Float[np.ndarray, "*cases"]:
    try:
        array = np.asarray(values).astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}={values!r} must be numbers above 0") from error
    if not (np.isfinite(array) & (array > 0)).all():
        raise InputError(f"{name}={values!r} must be finite and above 0")
    return array
