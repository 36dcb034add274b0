"""Traces from what vLLM returned: confidences of the log-probabilities that the server sent.

DeepConf (Fu et al., arXiv 2508.15260) and CDG (Wang et al., ICML 2026, arXiv 2605.25244) read vLLM's ``logprobs``: at
each position a dictionary of the K most likely tokens, and of the drawn one where it is not among them. The released
code averages all entries, so that an unlikely drawn token raises the confidence, rounds to 3 decimals, and skips
positions whose dictionary is empty. Objects are read by their attributes; vLLM is not imported. Ask for
``SamplingParams(logprobs=20)`` and for raw log-probabilities: processed ones are minus infinity outside of top-k.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from icml26.cdg.question import Question, Trace
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["from_vllm"]

_SENTINEL = -9000.0  # some builds return -9999 for entries that they did not compute


def from_vllm(
    outputs: Iterable[Any],
    answer: Callable[[str], str | None],
    *,
    k: int | None = None,
    decimals: int | None = None,
    missing: str = "refuse",
) -> list[Question]:
    """Make a question of each request's outputs.

    Parameters
    ----------
    outputs : iterable of vllm.RequestOutput
        Each has ``outputs``, whose items have ``text`` and ``logprobs``, a sequence of dictionaries from token to an
        object with ``logprob``.
    answer : callable
        Extracts the answer of a text, None where there is none.
    k : int, optional
        Average the k largest entries only, so that the drawn token never counts beyond them; by default all entries,
        as released. Positions with entries, but fewer than k that have a value, are refused.
    decimals : int, optional
        Round confidences to so many decimals; DeepConf stores 3.
    missing : {"refuse", "drop"}
        What to do with entries of minus infinity or -9999, which stand for no value: refuse the outputs, or leave the
        entries out of the mean, which is then over fewer tokens.

    Returns
    -------
    list of Question
        Without self-certainty, which needs all logits. Positions without entries are skipped, so that a trace can have
        fewer confidences than tokens.

    Raises
    ------
    InputError
        If the outputs are not laid out so, log-probabilities are missing, too few, no numbers or positive, or an option
        is out of range.

    Examples
    --------
    >>> from types import SimpleNamespace as Object
    >>> position = {3: Object(logprob=-0.5), 7: Object(logprob=-1.5)}
    >>> request = Object(outputs=[Object(text="so 7", logprobs=[position, {}])])
    >>> from_vllm([request], answer=lambda text: text.split()[-1])[0][0]
    Trace(answer='7', confidences=array([1.]), certainty=None)
    """
    if k is not None:
        whole("k", k, 1)
    if decimals is not None:
        whole("decimals", decimals, 0)
    if missing not in ("refuse", "drop"):
        raise InputError(f"missing={missing!r} must be 'refuse' or 'drop'")
    if not callable(answer):
        raise InputError(f"answer={answer!r} must be callable, from a text to its answer or None")
    questions = []
    for request in _items(outputs, "outputs", "a list of vLLM's RequestOutput, [request] if there is one"):
        traces = []
        rows = getattr(request, "outputs", None)
        for row in _items(rows, "a request's outputs", "those of a vLLM RequestOutput"):
            positions, text = getattr(row, "logprobs", None), getattr(row, "text", None)
            if positions is None:
                raise InputError("an output has no logprobs; ask vLLM for SamplingParams(logprobs=20)")
            if not isinstance(text, str):
                raise InputError(f"an output's text={text!r} must be text; give vLLM's outputs with detokenize=True")
            positions = _items(positions, "an output's logprobs", "one dictionary for each position")
            found = [_confidence(position, k, missing) for position in positions]
            confidences = np.array([value for value in found if value is not None])
            traces.append(Trace(answer(text), confidences if decimals is None else confidences.round(decimals)))
        questions.append(Question.of(traces))
    return questions


def _items(values: Any, name: str, remedy: str) -> Iterable[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InputError(f"{name} is {type(values).__name__}; give {remedy}")
    return values


def _value(entry: Any) -> float:
    """An entry's log-probability; minus infinity and NaN are for the caller to judge."""
    value = getattr(entry, "logprob", entry)
    if value is entry or isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(
            f"an entry of logprobs is {type(entry).__name__} with logprob={value!r}; give vLLM's own entries, objects "
            "whose logprob is a number"
        )
    return float(value)


def _confidence(position: Mapping[int, Any] | None, k: int | None, missing: str) -> float | None:
    """Mean negative log-probability of a position's entries; None where there are none."""
    if position is not None and not isinstance(position, Mapping):
        raise InputError(
            f"a position of logprobs is {type(position).__name__}; give a dictionary from token to an object with "
            "logprob, as vLLM does"
        )
    if not position:
        return None
    values: Sequence[float] = [_value(entry) for entry in position.values()]
    kept = [value for value in values if not value < _SENTINEL]
    if len(kept) < len(values) and missing == "refuse":
        raise InputError(
            f"log-probabilities hold {min(values)}, which stands for no value; ask vLLM for raw ones, or pass "
            "missing='drop' to leave such entries out"
        )
    if not all(value <= 1e-6 for value in kept):  # NaN fails it
        raise InputError(f"log-probabilities hold {max(kept)}; they must be numbers of at most 0")
    if k is not None and kept:
        if len(kept) < k:
            raise InputError(
                f"k={k!r} is above the {len(kept)} entries of a position that have a value; ask vLLM for more logprobs"
            )
        kept = sorted(kept, reverse=True)[:k]
    return max(0.0, -float(np.mean(kept))) if kept else None
