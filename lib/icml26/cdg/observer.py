"""Collect token confidence while ``generate`` of transformers runs, without keeping its logits.

`ConfidenceObserver` is a ``LogitsProcessor`` that changes nothing: at each step it reads the logits of the next token
and keeps two numbers per row. Rows that have ended keep receiving logits; `finalize` cuts every row behind its end
token, whose own confidence counts. Where something else ends rows too (``stop_strings``, a criterion of one's own),
what follows is padding that no processor can tell from drawn tokens: `finalize` must be told of it. ``generate`` runs a
processor of one's own behind its built-in ones (repetition penalty, suppressed tokens, ...) and before temperature,
top-k and top-p: what is seen is raw iff none of the built-in ones is set. Tokens that one of them forbids, as
``min_new_tokens`` does the end token, are left out of the confidence, and self-certainty is NaN there.
`from_generate` computes the same from raw logits that ``generate`` kept. The definitions are DeepConf's (Fu et al.,
arXiv 2508.15260), `icml26.cdg.confidence`, and its reader is CDG (Wang et al., arXiv 2605.25244). Beams and assisted
decoding are refused.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor
from transformers import LogitsProcessor

from icml26.cdg.confidence import self_certainty, token_confidence
from icml26.cdg.observed import Observed, cut, limits
from icml26.checks import is_integer, whole
from icml26.errors import InputError

__all__ = ["ConfidenceObserver", "Observed", "from_generate"]

_LARGEST = 2**63 - 1  # token id that a tensor can hold


class ConfidenceObserver(LogitsProcessor):
    """Observe the confidence of every token that ``generate`` draws; logits pass unchanged.

    Use one for one call: ``generate(..., logits_processor=[observer])``, then `finalize` with what it returned.

    Parameters
    ----------
    end : int or sequence of int
        Tokens that end a row, such as ``model.generation_config.eos_token_id``.
    k : int
        As in `token_confidence`.
    sampled : bool
        Whether the drawn token counts where it is not among the k most likely, as with vLLM. It is known a step later,
        so that the logits of one step are kept.
    decimals : int, optional
        As in `token_confidence`.

    Raises
    ------
    InputError
        If an argument is out of range.

    Examples
    --------
    >>> observer = ConfidenceObserver(end=0, k=2)
    >>> ids = torch.tensor([[5], [5]])
    >>> for drawn in ([3, 0], [0, 0]):  # what generate does: the second row ends first
    ...     _ = observer(ids, torch.zeros(2, 8))
    ...     ids = torch.cat([ids, torch.tensor(drawn)[:, None]], 1)
    >>> observed = observer.finalize(ids)
    >>> observed.lengths.tolist(), observed.confidences.round(3)
    ([2, 1], array([2.079, 2.079, 2.079], dtype=float32))
    """

    def __init__(
        self, end: int | Sequence[int], k: int = 20, *, sampled: bool = False, decimals: int | None = None
    ) -> None:
        self.end = _ends(end)
        self.k = whole("k", k, 1)
        if not isinstance(sampled, bool):
            raise InputError(f"sampled={sampled!r} must be True or False")
        self.sampled = sampled
        self.decimals = decimals if decimals is None else whole("decimals", decimals, 0)
        self.reset()

    def reset(self) -> None:
        """Forget what was observed, so that another ``generate`` can be."""
        self._seen: Tensor | None = None  # input_ids of the last call
        self._start = 0
        self._running: Tensor | None = None
        self._confidences: list[Tensor] = []
        self._certainties: list[Tensor] = []
        self._waiting: Tensor | None = None

    def __call__(self, input_ids: Int[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocabulary"]) -> Tensor:
        """Observe one step.

        Parameters
        ----------
        input_ids : Tensor, shape (rows, tokens)
            Prompts, padded on the left, and the tokens drawn so far.
        scores : Tensor, shape (rows, vocabulary)
            Logits of the next token.

        Returns
        -------
        Tensor
            `scores`, unchanged.

        Raises
        ------
        InputError
            If the call does not continue the last one by one drawn token, as in beam search or another ``generate``,
            or a running row's logits are not raw.
        """
        if self._seen is None:
            if bool((torch.logsumexp(scores.float(), -1).abs() < 1e-4).all()):
                raise InputError(
                    "generate hands over log-probabilities, as beam search does; draw with num_beams=1 to observe"
                )
            self._start = input_ids.shape[1]
            self._running = torch.ones(len(input_ids), dtype=torch.bool, device=input_ids.device)
        else:
            self._check_next(input_ids)
            drawn = input_ids[:, -1]
            self._settle(drawn)
            self._running = self._running & ~torch.isin(drawn, self.end.to(drawn.device))
        self._seen = input_ids
        self._observe(scores)
        return scores

    def finalize(
        self,
        sequences: Int[Tensor, "rows tokens"] | Any,
        *,
        pad: int | None = None,
        lengths: Int[ArrayLike, " rows"] | None = None,
    ) -> Observed:
        """Return what was observed of the sequences that ``generate`` returned.

        A row ends at its first end token; without one, at the last step. Where ``stop_strings`` or a criterion of one's
        own ends rows too, give `pad` or `lengths`: otherwise padding counts as tokens.

        Parameters
        ----------
        sequences : Tensor, shape (rows, tokens), or what ``generate(return_dict_in_generate=True)`` returned
            Prompts and generated tokens.
        pad : int, optional
            ``pad_token_id`` of the call: what a row holds of it at its end does not count. It must be no end token, for
            then a row that ended otherwise looks as if the end token had been drawn.
        lengths : int array, shape (rows,), optional
            Generated tokens of each row, where you know them yourself; a row's first end token still ends it.

        Returns
        -------
        Observed

        Raises
        ------
        InputError
            If nothing was observed, these are not the sequences of the observed call, or `pad` or `lengths` are none.

        Examples
        --------
        >>> observer = ConfidenceObserver(end=0, k=2)
        >>> ids = torch.tensor([[5], [5]])
        >>> for drawn in ([3, 4], [6, 4]):  # a stop string ends the first row, and 6 pads it
        ...     _ = observer(ids, torch.zeros(2, 8))
        ...     ids = torch.cat([ids, torch.tensor(drawn)[:, None]], 1)
        >>> observer.finalize(ids, pad=6).lengths, observer.finalize(ids).lengths
        (array([1, 2]), array([2, 2]))
        """
        if self._seen is None:
            raise InputError("nothing was observed; pass the observer to generate as logits_processor=[observer]")
        sequences = _sequences(sequences)
        steps = len(self._confidences)
        rows = len(self._seen)
        if sequences.ndim != 2 or sequences.shape != (rows, self._start + steps):
            raise InputError(
                f"sequences has shape {tuple(sequences.shape)}, but {rows} rows of {self._start} + {steps} tokens were "
                "observed; give the sequences that the same call of generate returned, drawn with num_beams=1"
            )
        self._check_next(sequences)
        drawn = sequences[:, self._start :]
        most = limits(drawn, self.end, pad, lengths)
        self._settle(sequences[:, -1])
        columns = (torch.stack(column, 1) for column in (self._confidences, self._certainties))
        return cut(*columns, drawn, self.end, most)

    def _check_next(self, input_ids: Tensor) -> None:
        """Refuse ids that do not lengthen every row by one token."""
        if len(input_ids) != len(self._seen) or input_ids.shape[1] != self._seen.shape[1] + 1:
            raise InputError(
                f"ids have shape {tuple(input_ids.shape)} after {tuple(self._seen.shape)}; use one observer for one "
                "call of generate, or reset() it; beams, assisted decoding and dropped rows cannot be observed"
            )
        if not torch.equal(input_ids[:, :-1].to(self._seen.device), self._seen):
            raise InputError("rows were reordered, as beam search does; draw with num_beams=1 to observe")

    def _observe(self, scores: Tensor) -> None:
        """Measure the running rows; the logits of the others may be anything."""
        rows = self._running.to(scores.device).nonzero()[:, 0]
        raw = scores.detach()[rows]
        confidence = scores.new_full((len(scores),), torch.nan, dtype=torch.float32)
        certainty = confidence.clone()
        if len(rows):
            confidence[rows] = token_confidence(raw, self.k, decimals=self.decimals).float()
            whole_law = ~torch.isneginf(raw).any(-1)  # a forbidden token makes the mean over the vocabulary infinite
            certainty[rows[whole_law]] = self_certainty(raw[whole_law]).float()
        self._confidences.append(confidence)
        self._certainties.append(certainty)
        self._waiting = (rows, raw.clone()) if self.sampled else None

    def _settle(self, drawn: Tensor) -> None:
        """Count the drawn tokens that the last step's logits did not have among their k largest."""
        if self._waiting is None:
            return
        (rows, raw), self._waiting = self._waiting, None
        if len(rows):
            drawn = drawn.to(raw.device)[rows]
            found = token_confidence(raw, self.k, sampled=drawn, decimals=self.decimals)
            self._confidences[-1][rows] = found.float()


def from_generate(
    output: Any,
    end: int | Sequence[int],
    k: int = 20,
    *,
    sampled: bool = False,
    decimals: int | None = None,
    pad: int | None = None,
    lengths: Int[ArrayLike, " rows"] | None = None,
) -> Observed:
    """Compute confidences from what ``generate(output_logits=True, return_dict_in_generate=True)`` returned.

    It reads ``output.logits``, which are raw; ``output.scores`` are behind the warpers.

    Parameters
    ----------
    output : transformers.generation.GenerateDecoderOnlyOutput
        With ``sequences`` and ``logits``.
    end, k, sampled, decimals
        As in `ConfidenceObserver`.
    pad, lengths
        As in `ConfidenceObserver.finalize`.

    Returns
    -------
    Observed

    Raises
    ------
    InputError
        If the output has no logits, comes from beam search, or an argument is out of range.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> output = SimpleNamespace(sequences=torch.tensor([[5, 3, 0]]), logits=(torch.zeros(1, 8), torch.zeros(1, 8)))
    >>> from_generate(output, end=0).lengths
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: k=20 is above the 8 tokens of the vocabulary; give fewer
    >>> from_generate(output, end=0, k=2).lengths
    array([2])
    """
    if not isinstance(getattr(output, "logits", None), Sequence) or not output.logits:
        raise InputError(
            "output has no logits; call generate with output_logits=True and return_dict_in_generate=True "
            "(its scores are behind the warpers)"
        )
    sequences, steps = _sequences(output), len(output.logits)
    if getattr(output, "beam_indices", None) is not None or len(sequences) != len(output.logits[0]):
        raise InputError("output comes from beam search, whose logits do not belong to its rows; draw with num_beams=1")
    observer = ConfidenceObserver(end, k, sampled=sampled, decimals=decimals)
    start = sequences.shape[1] - steps
    for step, logits in enumerate(output.logits):
        observer(sequences[:, : start + step], logits)
    return observer.finalize(sequences, pad=pad, lengths=lengths)


def _ends(end: int | Sequence[int]) -> Tensor:
    tokens = [end] if is_integer(end) else end
    try:
        return torch.tensor([whole("end", token, 0, _LARGEST) for token in tokens], dtype=torch.long)
    except TypeError as error:
        raise InputError(f"end={end!r} must be one token id or several") from error


def _sequences(output: Any) -> Tensor:
    """Sequences as ``generate`` returns them, alone or beside other things."""
    sequences = getattr(output, "sequences", output)
    if not isinstance(sequences, Tensor) or sequences.is_floating_point() or sequences.dtype == torch.bool:
        raise InputError(f"sequences={type(sequences).__name__} must be what generate returned, a tensor of token ids")
    return sequences
