"""A question's sampled solutions: their answers, and the confidences of all their tokens as one flat array.

CDG (Wang et al., ICML 2026, arXiv 2605.25244) and the votes it is compared with read, of each trace, an extracted
answer and the confidence of every generated token. Traces are ragged; end to end in one array they are summed in one
pass, in float64 whatever is stored. How confidences come about is `icml26.cdg.confidence`'s business; what is computed
of them, `icml26.cdg.traces`'.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Float64, Int, Int64
from numpy.typing import ArrayLike

from icml26.cdg.segments import blocks, segment_sums
from icml26.errors import InputError

__all__ = ["Question", "Trace"]


class Trace(NamedTuple):
    """One sampled solution of a question.

    Attributes
    ----------
    answer : str or None
        Extracted answer as written; None where there is none.
    confidences : array, shape (tokens,)
        Token confidences C_t in nats, the end token's included.
    certainty : float, optional
        Self-certainty of the trace, in nats; only the Borda baseline reads it.
    """

    answer: str | None
    confidences: Float[np.ndarray, " tokens"]
    certainty: float | None = None


@dataclass(frozen=True, eq=False)
class Question(Sequence):
    """All traces of a question, with their confidences end to end.

    It is a sequence of `Trace` itself. Every function that takes a question takes this or any other sequence of traces
    (`Question.of` converts them); convert once where a question is used often.

    Parameters
    ----------
    answers : sequence of (str or None)
        One for each trace.
    confidences : array, shape (all tokens,)
        Token confidences of the first trace, of the second, and so on; 0 or above, of any floating type of NumPy. A
        tensor is taken if NumPy can read it; of bfloat16 give ``.float()``.
    lengths : int array, shape (traces,)
        Tokens of each trace; they add up to the confidences.
    certainties : array, shape (traces,), optional
        Self-certainty of each trace, NaN where it is not known.

    Raises
    ------
    InputError
        If these do not fit together, there is no trace, an answer is no text, or a confidence is negative or not
        finite.

    Examples
    --------
    >>> question = Question.of([Trace("7", np.array([1.0, 2.0])), Trace(None, np.array([3.0]))])
    >>> question.answers, question.lengths.tolist(), question[1].confidences
    (('7', None), [2, 1], array([3.]))
    """

    answers: Sequence[str | None]
    confidences: Float[np.ndarray, " all_tokens"]
    lengths: Int64[np.ndarray, " traces"]
    certainties: Float64[np.ndarray, " traces"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.answers, str) or not isinstance(self.answers, Iterable):
            raise InputError(f"answers={self.answers!r} must be a sequence of texts or None, one for each trace")
        answers, lengths = tuple(self.answers), _array("lengths", self.lengths)
        if not answers:
            raise InputError("the question has no trace; give at least one")
        for answer in answers:
            if answer is not None and not isinstance(answer, str):
                raise InputError(f"answer={answer!r} must be text as extracted, such as '7', or None")
        if lengths.dtype.kind not in "iu" or lengths.shape != (len(answers),) or lengths.min() < 0:
            raise InputError(f"lengths={lengths!r} must be one whole number for each of the {len(answers)} answers")
        confidences = _confidences("confidences", self.confidences)
        if lengths.sum() != len(confidences):
            raise InputError(
                f"lengths add up to {lengths.sum()}, the confidences to {len(confidences)}; they must agree"
            )
        if len(confidences) and not (confidences.min() >= 0 and confidences.max() < np.inf):  # NaN fails the first
            wrong = confidences[~((confidences >= 0) & (confidences < np.inf))][0]
            raise InputError(
                f"confidences hold {wrong}; give mean negative log-probabilities of raw logits: finite, never below 0"
            )
        unknown = np.full(len(answers), np.nan)
        certainties = unknown if self.certainties is None else _array("certainties", self.certainties)
        if certainties.dtype.kind not in "iuf":
            raise InputError(f"certainties is {certainties.dtype}; give one number for each trace, NaN if not known")
        certainties = certainties.astype(float)
        if certainties.shape != lengths.shape or np.isinf(certainties).any():
            raise InputError("certainties must be one finite number for each trace, or NaN where it is not known")
        for name, value in (
            ("answers", answers),
            ("confidences", confidences),
            ("lengths", lengths.astype(np.int64)),
            ("certainties", certainties),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, traces: Sequence[Trace], equal: Callable[[str, str], bool] | None = None) -> Self:
        """Make a question of traces; one that is a question already is returned as it is.

        Parameters
        ----------
        traces : sequence of Trace
            Or of plain tuples (answer, confidences[, certainty]).
        equal : callable, optional
            Whether two answers are the same; such answers get the first one's text, see `merge`.

        Returns
        -------
        Question

        Raises
        ------
        InputError
            As for `Question`.

        Examples
        --------
        >>> Question.of([("1/2", [3.0, 4.0]), ("0.5", [2.0])]).answers
        ('1/2', '0.5')
        """
        if not isinstance(traces, cls):
            traces = cls._from(traces)
        return traces if equal is None else traces.merge(equal)

    @classmethod
    def _from(cls, traces: Sequence[Trace]) -> Self:
        try:
            rows = [Trace(*trace) for trace in traces]
        except TypeError as error:
            raise InputError(f"a question must be a sequence of Trace(answer, confidences): {error}") from error
        if not rows:
            raise InputError("the question has no trace; give at least one")
        parts = [_confidences(f"confidences of trace {index}", row.confidences) for index, row in enumerate(rows)]
        known = [np.nan if row.certainty is None else row.certainty for row in rows]
        return cls([row.answer for row in rows], np.concatenate(parts), np.array([len(part) for part in parts]), known)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int | slice) -> Trace | list[Trace]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        index = range(len(self))[index]
        known = self.certainties[index]
        part = self.confidences[self.starts[index] : self.stops[index]]
        return Trace(self.answers[index], part, None if np.isnan(known) else float(known))

    def __iter__(self) -> Iterator[Trace]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def stops(self) -> Int64[np.ndarray, " traces"]:
        """Where each trace's confidences end."""
        return np.cumsum(self.lengths)

    @cached_property
    def starts(self) -> Int64[np.ndarray, " traces"]:
        """Where each trace's confidences begin."""
        return self.stops - self.lengths

    def take(self, rows: Int[ArrayLike, " kept"]) -> "Question":
        """Return the question with some of its traces, in the given order.

        Parameters
        ----------
        rows : int array
            Indices of traces, at least one.

        Returns
        -------
        Question

        Raises
        ------
        InputError
            If these are no such indices.
        """
        rows = _array("rows", rows)
        if rows.dtype.kind not in "iu" or rows.ndim != 1 or not rows.size:
            raise InputError(f"rows is {rows.dtype} of shape {rows.shape}; give a vector of at least one trace's index")
        if not -len(self) <= rows.min() <= rows.max() < len(self):
            raise InputError(f"rows holds indices outside of the {len(self)} traces; give 0 to {len(self) - 1}")
        flat = self.confidences[_ranges(self.starts[rows], self.lengths[rows])]
        return Question([self.answers[row] for row in rows], flat, self.lengths[rows], self.certainties[rows])

    def part(self, starts: Int[ArrayLike, "#traces"], stops: Int[ArrayLike, "#traces"]) -> "Question":
        """Return the question with a stretch of each trace's tokens, as if the others had not been generated.

        Parameters
        ----------
        starts, stops : int or int array, shape (traces,)
            First token and the one behind the last, counted from 0 in each trace; at most its length.

        Returns
        -------
        Question
            With the certainties of the whole traces.

        Raises
        ------
        InputError
            If a stretch does not lie in its trace.

        Examples
        --------
        >>> question = Question.of([("7", [1.0, 2.0, 3.0]), ("8", [4.0, 5.0])])
        >>> question.part(0, question.lengths - 1).confidences
        array([1., 2., 4.])
        """
        starts, stops = _array("starts", starts), _array("stops", stops)
        for name, end in (("starts", starts), ("stops", stops)):
            if end.shape not in ((), (1,), self.lengths.shape):
                raise InputError(
                    f"{name} has shape {end.shape}; give one number, or one for each of {len(self)} traces"
                )
        starts, stops = (np.broadcast_to(end, self.lengths.shape) for end in (starts, stops))
        if starts.dtype.kind not in "iu" or stops.dtype.kind not in "iu":
            raise InputError("starts and stops must be whole numbers of tokens")
        if ((starts < 0) | (stops < starts) | (stops > self.lengths)).any():
            raise InputError("starts and stops must satisfy 0 <= start <= stop <= length in every trace")
        flat = self.confidences[_ranges(self.starts + starts, stops - starts)]
        return Question(self.answers, flat, stops - starts, self.certainties)

    def merge(self, equal: Callable[[str, str], bool]) -> "Question":
        """Return the question with equivalent answers written alike, as the first of them seen.

        Each new text is compared with the first texts of the classes so far, in the order in which they were seen.

        Parameters
        ----------
        equal : callable
            ``equal(first, other) -> bool``.

        Returns
        -------
        Question

        Examples
        --------
        >>> question = Question.of([("0.50", [1.0]), ("2", [1.0]), ("0.5", [1.0])])
        >>> question.merge(lambda a, b: float(a) == float(b)).answers
        ('0.50', '2', '0.50')
        """
        known: dict[str, str] = {}
        for answer in self.answers:
            if answer is not None and answer not in known:
                known[answer] = next((first for first in dict.fromkeys(known.values()) if equal(first, answer)), answer)
        answers = [None if answer is None else known[answer] for answer in self.answers]
        return Question(answers, self.confidences, self.lengths, self.certainties)

    def sums(self, sizes: Int64[np.ndarray, " traces"]) -> tuple[Float64[np.ndarray, " traces"], ...]:
        """Sum each trace, its first tokens and its last ones.

        Parameters
        ----------
        sizes : int array, shape (traces,)
            Tokens of head and tail, at most the length.

        Returns
        -------
        total, head, tail : arrays, shape (traces,)
            Of float64.
        """
        starts, stops = self.starts, self.stops
        if not ((2 * sizes <= self.lengths) & (sizes > 0)).all():
            stretches = ((starts, stops), (starts, starts + sizes), (stops - sizes, stops))
            return tuple(segment_sums(self.confidences, *stretch) for stretch in stretches)
        # One pass over head, middle and tail.
        edges, found = np.stack([starts, starts + sizes, stops - sizes], 1), np.empty((len(self), 3))
        for rows in blocks(starts, stops):
            part = self.confidences[starts[rows][0] : stops[rows][-1]].astype(float, copy=False)
            found[rows] = np.add.reduceat(part, (edges[rows] - starts[rows][0]).ravel()).reshape(-1, 3)
        head, middle, tail = found.T
        middle = np.where(2 * sizes < self.lengths, middle, 0)  # of an empty stretch it is the first element
        return head + middle + tail, head, tail


def _confidences(name: str, values: ArrayLike) -> Float[np.ndarray, " tokens"]:
    """A vector of floating numbers; integers become floats."""
    array = _array(name, values)
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.size):
        raise InputError(f"{name} is {array.dtype} of shape {array.shape}; give one real number for each token")
    return array if array.dtype.kind == "f" else array.astype(float)


def _array(name: str, values: ArrayLike) -> np.ndarray:
    """What NumPy makes of values; it reads no tensor of bfloat16, with a gradient or on another device."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        remedy = "of a tensor give .detach().float().cpu().numpy()"
        raise InputError(f"{name} must be an array of numbers; {remedy} ({why})") from error


def _ranges(starts: Int64[np.ndarray, " n"], lengths: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " total"]:
    """All indices of the stretches, one stretch behind the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())
