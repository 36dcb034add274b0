"""Confidences of generated rows, and where rows end: what observing ``generate`` returns.

A row ends behind its first end token, or where the caller says that something else ended it; what follows is padding,
which counts nowhere. The rows of one prompt make a question of CDG (Wang et al., ICML 2026, arXiv 2605.25244). How
confidences come about is `icml26.cdg.observer`'s business.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from icml26.cdg.question import Question
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["Observed", "cut", "limits"]


class Observed(NamedTuple):
    """Confidences of generated rows.

    Attributes
    ----------
    confidences : array, shape (all tokens,)
        Token confidences of the first row, of the second, and so on, in nats; the end token's included.
    lengths : int array, shape (rows,)
        Generated tokens of each row, the end token included and padding left out.
    certainties : array, shape (rows,)
        Self-certainty: the mean over these tokens, in nats; NaN where a token was forbidden to any of them.
    ended : bool array, shape (rows,)
        Whether the row's last token is an end token.
    """

    confidences: Float[np.ndarray, " all_tokens"]
    lengths: Int64[np.ndarray, " rows"]
    certainties: Float64[np.ndarray, " rows"]
    ended: Bool[np.ndarray, " rows"]

    def question(self, answers: Sequence[str | None]) -> Question:
        """Make a question of rows that all continue the same prompt.

        Parameters
        ----------
        answers : sequence of (str or None)
            Extracted from each row.

        Returns
        -------
        Question

        Raises
        ------
        InputError
            If there is not one answer for each row.
        """
        return Question(answers, self.confidences, self.lengths, self.certainties)

    def questions(self, answers: Sequence[str | None], each: int) -> list[Question]:
        """Make a question of each prompt's rows.

        Parameters
        ----------
        answers : sequence of (str or None)
            Extracted from each row.
        each : int
            Consecutive rows of one prompt: ``num_return_sequences`` of ``generate``.

        Returns
        -------
        list of Question
            In the order of the prompts.

        Raises
        ------
        InputError
            If there is not one answer for each row, or the rows are no multiple of `each`.

        Examples
        --------
        >>> observed = Observed(np.ones(6), np.array([1, 2, 1, 2]), np.zeros(4), np.ones(4, bool))
        >>> [question.answers for question in observed.questions(["7", "8", "3", None], each=2)]
        [('7', '8'), ('3', None)]
        """
        every = self.question(answers)
        if len(every) % whole("each", each, 1):
            raise InputError(
                f"each={each!r} does not divide the {len(every)} rows; give num_return_sequences, the same for all"
            )
        return [every.take(np.arange(first, first + each)) for first in range(0, len(every), each)]


def limits(
    tokens: Int[Tensor, "rows steps"],
    end: Int64[Tensor, " ends"],
    pad: int | None = None,
    lengths: Int[ArrayLike, " rows"] | None = None,
) -> Int64[Tensor, " rows"]:
    """Find how many tokens each row can have at most, its end token left aside.

    Parameters
    ----------
    tokens : Tensor, shape (rows, steps)
        Generated tokens and padding, without prompts.
    end : Tensor, shape (ends,)
        End tokens.
    pad, lengths
        As in `icml26.cdg.observer.ConfidenceObserver.finalize`.

    Returns
    -------
    Tensor, shape (rows,)
        At least 1.

    Raises
    ------
    InputError
        If both are given, `pad` is no token id or an end token, or `lengths` are no lengths of these rows.

    Examples
    --------
    >>> limits(torch.tensor([[5, 5, 9], [9, 9, 9]]), torch.tensor([0]), pad=9)
    tensor([2, 1])
    """
    rows, steps = tokens.shape
    if pad is not None and lengths is not None:
        raise InputError("pad and lengths both say where rows end; give one of them")
    if lengths is not None:
        try:
            known = np.asarray(lengths)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError("lengths must be one whole number for each row; give a NumPy array") from error
        if known.dtype.kind not in "iu" or known.shape != (rows,) or not 1 <= known.min() <= known.max() <= steps:
            raise InputError(f"lengths must be one whole number from 1 to {steps} for each of the {rows} rows")
        return torch.from_numpy(known.astype(np.int64))
    if pad is None:
        return torch.full((rows,), steps)
    if whole("pad", pad, 0) in end.tolist():
        raise InputError(
            f"pad={pad!r} is an end token, so that padding looks as if it had been drawn; leave pad out where end "
            "tokens alone end rows, else give lengths"
        )
    steps_drawn = (tokens != pad).cpu() * torch.arange(1, steps + 1)
    return steps_drawn.amax(1).clamp(min=1)  # the first token was drawn, whatever it is


def cut(
    confidences: Float[Tensor, "rows steps"],
    certainties: Float[Tensor, "rows steps"],
    tokens: Int[Tensor, "rows steps"],
    end: Int64[Tensor, " ends"],
    most: Int64[Tensor, " rows"],
) -> Observed:
    """Cut rows behind their end tokens, or where something else ended them.

    Parameters
    ----------
    confidences, certainties : Tensor, shape (rows, steps)
        Of every step, in nats; what stands behind a row's end is not read.
    tokens, end
        As in `limits`.
    most : Tensor, shape (rows,)
        What `limits` returned.

    Returns
    -------
    Observed

    Examples
    --------
    >>> tokens, ones = torch.tensor([[5, 0, 9], [5, 5, 5]]), torch.ones(2, 3)
    >>> cut(ones, ones, tokens, torch.tensor([0]), torch.tensor([3, 3])).lengths
    array([2, 3])
    """
    stop = torch.isin(tokens, end.to(tokens.device)).cpu()
    first = torch.where(stop.any(1), stop.int().argmax(1) + 1, tokens.shape[1] + 1)
    ended, lengths = first <= most, torch.minimum(first, most)
    inside = torch.arange(tokens.shape[1]) < lengths[:, None]
    certainty = torch.where(inside, certainties.cpu().double(), 0.0).sum(1) / lengths
    return Observed(confidences.cpu()[inside].numpy(), lengths.numpy(), certainty.numpy(), ended.numpy())
