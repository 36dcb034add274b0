"""Settings of a voting method, compared on calibration questions; and the single draw that voting has to beat.

Every method that CDG (Wang et al., ICML 2026, arXiv 2605.25244) is compared with, and CDG itself, gets its settings
from `tune`, so that none is tuned on other questions or by another rule than the others; how many settings each tries
is the caller's to choose and to tell. Reported questions are for the caller to keep apart. Which answers are right is
decided by one judge for all methods; by default texts are compared, stripped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from icml26.cdg.traces import Question, Trace
from icml26.cdg.voting import electorate
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["Tuned", "labels", "outcomes", "pass_at_1", "tune"]

Judge = Callable[[str, str], bool]


class Tuned(NamedTuple):
    """What `tune` found.

    Attributes
    ----------
    setting : dict
        The best setting, the earliest of several.
    accuracy : float
        Its share of right answers on the calibration questions.
    settings : list of dict
        All settings, in order.
    accuracies : array
        Share of right answers of each.
    """

    setting: dict[str, Any]
    accuracy: float
    settings: list[dict[str, Any]]
    accuracies: Float[np.ndarray, " settings"]


def outcomes(
    method: Callable[..., str | None],
    questions: Iterable[Sequence[Trace]],
    answers: Sequence[str],
    judge: Judge | None = None,
    **setting: Any,
) -> Bool[np.ndarray, " questions"]:
    """Whether a method answers each question right.

    Parameters
    ----------
    method : callable
        From a question to its winner or None.
    questions : iterable of questions
        Each a sequence of `Trace`.
    answers : sequence of str
        Right answer of each.
    judge : callable, optional
        ``judge(winner, answer) -> bool``; by default the stripped texts must be equal.
    **setting
        Passed to the method.

    Returns
    -------
    bool array, shape (questions,)
        False where there is no winner.

    Raises
    ------
    InputError
        If there is not one right answer for each question, or none at all.

    Examples
    --------
    >>> from icml26.cdg.baselines import majority
    >>> outcomes(majority, [[("7", [1.0])], [("8", [1.0])], [(None, [1.0])]], ["7", "7", "7"])
    array([ True, False, False])
    """
    judge, winners = judge or _same_text, [method(question, **setting) for question in questions]
    _check_answers(len(winners), answers)
    return np.array(
        [winner is not None and bool(judge(winner, answer)) for winner, answer in zip(winners, answers, strict=True)]
    )


def tune(
    method: Callable[..., str | None],
    grid: Mapping[str, Sequence] | Sequence[Mapping[str, Any]],
    questions: Sequence[Sequence[Trace]],
    answers: Sequence[str],
    judge: Judge | None = None,
) -> Tuned:
    """Find a method's most accurate setting on calibration questions.

    Parameters
    ----------
    method : callable
        From a question and a setting to the winner or None.
    grid : mapping of str to sequence, or sequence of mappings
        Values of each argument, whose product is tried with the last argument varying fastest; or the settings.
    questions, answers, judge
        As in `outcomes`.

    Returns
    -------
    Tuned
        Ties go to the earlier setting.

    Raises
    ------
    InputError
        As `outcomes`, or if the grid has no setting.

    Examples
    --------
    >>> from icml26.cdg.voting import cdg
    >>> question = [("7", np.linspace(9, 10, 20)), ("8", np.linspace(11, 10, 20))]
    >>> tune(cdg, {"beta": [0, 1, 2]}, [question], ["7"]).setting
    {'beta': 1}
    """
    settings = (
        [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        if isinstance(grid, Mapping)
        else [dict(setting) for setting in grid]
    )
    if not settings:
        raise InputError("grid has no setting; give at least one value for each argument")
    questions = [Question.of(question) for question in questions]
    accuracies = np.array([outcomes(method, questions, answers, judge, **setting).mean() for setting in settings])
    best = int(accuracies.argmax())
    return Tuned(settings[best], float(accuracies[best]), settings, accuracies)


def labels(question: Sequence[Trace], answer: str, judge: Judge | None = None) -> Bool[np.ndarray, " traces"]:
    """Whether each trace's answer is right; every text is judged once.

    Parameters
    ----------
    question : sequence of Trace
        All traces of a question.
    answer : str
        The right answer.
    judge : callable, optional
        As in `outcomes`.

    Returns
    -------
    bool array, shape (traces,)
        False where there is no answer.

    Raises
    ------
    InputError
        If the question is none.

    Examples
    --------
    >>> labels([("7", [1.0]), (" 7", [1.0]), (None, [1.0])], "7")
    array([ True,  True, False])
    """
    judge, texts = judge or _same_text, Question.of(question).answers
    right = {text: bool(judge(text, answer)) for text in dict.fromkeys(texts) if text is not None}
    return np.array([right.get(text, False) for text in texts])


def pass_at_1(
    questions: Iterable[Sequence[Trace]],
    answers: Sequence[str],
    judge: Judge | None = None,
    *,
    draws: int | None = None,
    seed: int | None = None,
) -> float:
    """Share of right traces among those with an answer, pooled over questions, as released.

    Questions with more answered traces weigh more.

    Parameters
    ----------
    questions, answers, judge
        As in `outcomes`.
    draws : int, optional
        Draw so many traces of each question that has one with an answer instead, with replacement; the release draws 5.
    seed : int, optional
        Of the draws.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    InputError
        As `outcomes`, or if no trace has an answer, or draws come without a seed.

    Examples
    --------
    >>> pass_at_1([[("7", [1.0]), ("8", [1.0])], [("7", [1.0]), (None, [1.0])]], ["7", "7"])
    0.6666666666666666
    """
    questions = [Question.of(question) for question in questions]
    _check_answers(len(questions), answers)
    right = [
        labels(question, answer, judge)[electorate(question)[1]]
        for question, answer in zip(questions, answers, strict=True)
    ]
    if not any(len(row) for row in right):
        raise InputError("no trace has an answer; give questions with answered traces")
    if draws is not None:
        whole("draws", draws, 1)
        generator = np.random.default_rng(whole("seed", seed, 0))
        right = [generator.choice(row, draws) for row in right if len(row)]
    return float(np.concatenate(right).mean())


def _same_text(winner: str, answer: str) -> bool:
    return winner.strip() == answer.strip()


def _check_answers(count: int, answers: Sequence[str]) -> None:
    if isinstance(answers, str) or not hasattr(answers, "__len__") or len(answers) != count or not count:
        raise InputError(f"answers must be one text for each of the {count} questions, at least one; give as many")
    for answer in answers:
        if not isinstance(answer, str):
            raise InputError(f"answer {answer!r} must be text, such as '7', as the traces' answers are")
