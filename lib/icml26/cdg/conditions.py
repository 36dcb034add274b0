"""Conditions: questions with many traces each, from the committed models of arithmetic and from SmolLM2.

CDG (Wang et al., arXiv 2605.25244) is measured on 512 sampled traces of each of 30 questions, with the 20 highest
log-probabilities of every token. A `Condition` holds the traces of one model on one set of questions, the right
answers, and two marks in each trace: where the answer's own tokens begin, and where the write-up after the thinking
begins. `from_checkpoint` samples a small model of `icml26.arithmetic`, `from_smollm2` reads kept traces; models of
one's own are in `icml26.cdg.own_models`. Confidences are of the raw distribution at temperature 1, whatever
the sampling temperature. Voting is left to `icml26.cdg.accuracy`, comparing traces to `icml26.cdg.gaps`.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64

from icml26 import generation
from icml26.arithmetic import models as arithmetic_models
from icml26.arithmetic import task as arithmetic
from icml26.cdg import smollm2
from icml26.cdg.confidence import measure
from icml26.cdg.question import Question, Trace
from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["Condition", "calibration_count", "from_checkpoint", "from_smollm2", "questions_of"]

# Rows sampled together: more hardly save time on a CPU, and their uniform numbers and caches take memory.
_ROWS = 1024
# A trace that is longer than a right solution by so many tokens is cut off, without an answer.
_SLACK = 8


@dataclass(frozen=True, eq=False)
class Condition:
    """The traces of one model on one set of questions.

    Parameters
    ----------
    name
        In tables and figures.
    questions
        For each question its traces, the same number for all.
    truths
        The right answers.
    answer_at, writeup_at
        For each question and trace, the tokens before the answer's own ones, and before the write-up; the trace's
        length where there is no such mark.
    calibration
        So many questions, the first ones, choose settings; only the others are reported. Shuffle sets that are sorted.
    top
        Log-probabilities in a token's confidence (K).
    equal
        Whether an answer is the right one; called with both.

    Raises
    ------
    InputError
        If the numbers of questions or traces do not fit, or no question is left to report.

    Examples
    --------
    >>> question = [Trace("7", np.ones(12)), Trace(None, np.ones(12))]
    >>> ends = np.array([[10, 12]] * 2)
    >>> found = Condition("two", (question, question), ("7", "8"), ends, ends, calibration=1)
    >>> found.correct.tolist(), found.cut().questions[0].lengths.tolist()
    ([[True, False], [False, False]], [10, 12])
    """

    name: str
    questions: Sequence[Sequence[Trace]]
    truths: Sequence[str]
    answer_at: Int[np.ndarray, "questions traces"]
    writeup_at: Int[np.ndarray, "questions traces"]
    calibration: int
    top: int = 5
    equal: Callable[[str, str], bool] = operator.eq

    def __post_init__(self) -> None:
        whole("calibration", self.calibration, 1, len(self.questions) - 1)
        object.__setattr__(self, "questions", tuple(map(Question.of, self.questions)))
        shape = (len(self.questions), len(self.questions[0]))
        if any(len(question) != shape[1] for question in self.questions) or len(self.truths) != shape[0]:
            raise InputError(
                "questions must have the same number of traces each, and truths an answer for each of them"
            )
        if not self.answer_at.shape == self.writeup_at.shape == shape:
            raise InputError(f"answer_at and writeup_at must have the shape {shape}, a mark for each trace")

    @cached_property
    def correct(self) -> Bool[np.ndarray, "questions traces"]:
        """Whether each trace has the right answer; one without an answer has not."""
        found = []
        for question, truth in zip(self.questions, self.truths, strict=True):
            right = {text: self.equal(text, truth) for text in set(question.answers) - {None}}
            found.append([right.get(text, False) for text in question.answers])
        return np.array(found)

    def cut(self) -> "Condition":
        """Drop the answer's own tokens and all that follow from every trace (claim C6)."""
        return self._until(self.answer_at)

    def thinking(self) -> "Condition":
        """Drop the write-up from every trace."""
        return self._until(self.writeup_at)

    def _until(self, marks: np.ndarray) -> "Condition":
        parts = [question.part(0, row) for question, row in zip(self.questions, marks, strict=True)]
        ends = {"answer_at": np.minimum(self.answer_at, marks), "writeup_at": np.minimum(self.writeup_at, marks)}
        return replace(self, questions=parts, **ends)


def from_checkpoint(
    name: str,
    questions: int,
    traces: int,
    *,
    seed: int,
    calibration_share: float = 0.3,
    top: int = 5,
    temperature: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Condition:
    """Sample a small model of written-out arithmetic.

    Parameters
    ----------
    name : str
        A checkpoint of `icml26.arithmetic.models`, such as ``"chain-0"``.
    questions, traces : int
        Problems, and traces of each.
    seed : int
        Of problems and draws. Models of the same task get the same problems for a seed.
    calibration_share : float
        Share of the questions that choose settings.
    top : int
        Log-probabilities in a token's confidence.
    temperature : float
        Of the sampling.
    progress : callable, optional
        Called with the questions done and their number.

    Returns
    -------
    Condition
        The answer's mark is ``#``; the write-up begins there too, or with the second writing of the steps.

    Raises
    ------
    InputError
        If a number is out of range or there is no such checkpoint.

    Examples
    --------
    >>> from_checkpoint("chain-0", 4, 2, seed=0).correct.shape
    (4, 2)
    """
    whole("questions", questions, 2)
    whole("traces", traces, 1, _ROWS)
    whole("seed", seed, 0)
    model, task = arithmetic_models.load(name).model, arithmetic_models.task_of(name)
    problems = arithmetic.problems(task, questions, seed)
    # Every model draws anew, from the same problems.
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0]))
    found: list[Question] = []
    marks: list[np.ndarray] = []
    chunk = max(1, _ROWS // traces)
    for start in range(0, questions, chunk):
        part = problems[start : start + chunk]
        drawn = generation.sample(
            model,
            part.prompts,
            samples=traces,
            max_new_tokens=task.solution_length + _SLACK,
            end=arithmetic.END,
            generator=generator,
            temperature=temperature,
            measure=measure(top),
        )
        digits = arithmetic.check_all(part, drawn.tokens).answers
        answers = np.where(digits < 0, None, digits.astype(str))
        found += questions_of(answers, drawn)
        marks.append(np.stack([_first(drawn, "#"), _first(drawn, "check") if task.checked else _first(drawn, "#")]))
        if progress is not None:
            progress(min(start + chunk, questions), questions)
    answer_at, writeup_at = np.concatenate(marks, 1)
    calibration = calibration_count(questions, calibration_share)
    return Condition(name, found, problems.answers, answer_at, writeup_at, calibration, top)


def from_smollm2(
    questions: int | None = None, traces: int | None = None, *, calibration_share: float = 0.3
) -> Condition:
    """Read the kept traces of SmolLM2-135M-Instruct.

    Parameters
    ----------
    questions, traces : int, optional
        The first so many, at most all that are kept; all by default.
    calibration_share : float
        Share of the questions that choose settings.

    Returns
    -------
    Condition
        Both marks are where the sentence with the answer begins.

    Raises
    ------
    InputError
        If a number is out of range, or the file is damaged.

    Examples
    --------
    >>> from_smollm2(4, 8).correct.shape
    (4, 8)
    """
    kept = smollm2.load()
    rows, columns = (
        top if wanted is None else min(top, whole(name, wanted, least))
        for name, wanted, least, top in (
            ("questions", questions, 2, kept.recipe["questions"]),
            ("traces", traces, 1, kept.recipe["traces"]),
        )
    )
    marks = np.array([starts[:columns] for starts in kept.write_up[:rows]])
    return Condition(
        "SmolLM2",
        [question[:columns] for question in kept.questions[:rows]],
        tuple(kept.answers[:rows]),
        marks,
        marks,
        calibration_count(rows, calibration_share),
        kept.recipe["log_probabilities"],
    )


def calibration_count(questions: int, share: float) -> int:
    """Turn a share into a number of questions that leaves at least one to either side.

    Parameters
    ----------
    questions : int
        Of the condition, at least two.
    share : float
        Of those that choose settings, between 0 and 1.

    Returns
    -------
    int

    Raises
    ------
    InputError
        If the share is out of range.

    Examples
    --------
    >>> calibration_count(120, 1 / 3), calibration_count(3, 0.01)
    (40, 1)
    """
    return min(max(1, round(real("calibration_share", share, above=0, below=1) * questions)), questions - 1)


def questions_of(answers: np.ndarray, drawn: generation.Continuations) -> list[Question]:
    """Make questions of sampled continuations.

    Parameters
    ----------
    answers : object array of (str or None), questions x traces
        Read from the continuations.
    drawn : generation.Continuations
        Measured by `icml26.cdg.confidence.measure`.

    Returns
    -------
    list of Question

    Examples
    --------
    >>> tokens, measured = torch.zeros((1, 2, 3), dtype=torch.int64), torch.ones((1, 2, 3, 2))
    >>> drawn = generation.Continuations(tokens, torch.tensor([[3, 2]]), torch.ones((1, 2), dtype=torch.bool), measured)
    >>> questions_of(np.array([["7", None]], dtype=object), drawn)[0].lengths.tolist()
    [3, 2]
    """
    lengths = drawn.lengths.numpy()
    inside = np.arange(drawn.tokens.shape[-1]) < lengths[..., None]
    confidence, certainty = (drawn.measured[..., value].numpy() for value in range(2))
    certainties = np.where(inside, certainty, 0).sum(-1, dtype=float) / lengths
    return [
        Question(*row) for row in zip(answers, map(np.extract, inside, confidence), lengths, certainties, strict=True)
    ]


def _first(drawn: generation.Continuations, word: str) -> Int64[np.ndarray, "questions traces"]:
    """Tokens before the first that is a word; the trace's length where there is none."""
    is_mark = (drawn.tokens == arithmetic.VOCABULARY.index(word)).numpy()
    return np.where(is_mark.any(-1), is_mark.argmax(-1), drawn.lengths.numpy())
