"""What KAPPA is compared with: contrastive activation addition and DoLa.

KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782) compares with two methods. CAA (Rimsky et al., arXiv 2312.06681)
adds m v to the output of a block, v being the mean difference between the hidden states at the letter of the right
answer and at that of a wrong one (`contrast` says which letters, `icml26.kappa.collect` runs them, `caa` averages). It
is added at all tokens after the instruction; in `Steering` that is the last line of the prompt, or its last token
alone, where KAPPA acts. DoLa (Chuang et al., arXiv 2309.03883) subtracts from the log-probabilities of the next token
those that an early layer gives it, of a bucket of layers the one that differs most from the last.

Choosing layers and multipliers is the business of `icml26.kappa.selection`; controls of KAPPA itself, such as random
probes, of `icml26.kappa.controls`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor, nn

from icml26.checks import is_integer, real, whole
from icml26.errors import InputError
from icml26.kappa import hooks
from icml26.kappa.collect import early_logits

__all__ = ["Steering", "caa", "contrast", "dola"]

_OUT = -1000.0  # the released DoLa's score of tokens outside the head set
_ROWS = 64  # prompts whose probabilities of the whole vocabulary are in memory at a time


def contrast(
    labels: Int[ArrayLike, " prompts"], symbol_ids: Sequence[int], *, seed: int = 0
) -> Int[np.ndarray, "prompts 2"]:
    """Choose the letters that CAA contrasts, to be given to `collect` as ``appended``.

    Parameters
    ----------
    labels
        Index of the right option as shown.
    symbol_ids
        Tokens of the options' symbols.
    seed
        Of the draw of wrong ones.

    Returns
    -------
    array
        For each prompt the token of the right symbol and that of a wrong one, all wrong ones equally likely.

    Raises
    ------
    InputError
        If there is one symbol only, or a label is none of them.

    Examples
    --------
    >>> contrast([0, 1], [65, 66])
    array([[65, 66],
           [66, 65]])
    """
    labels, symbols = np.asarray(labels), np.asarray(symbol_ids)
    if symbols.ndim != 1 or len(symbols) < 2:
        raise InputError(f"symbol_ids={symbol_ids!r} must be at least two tokens")
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not np.isin(labels, np.arange(len(symbols))).all():
        raise InputError(f"labels must be options, 0 to {len(symbols) - 1}")
    steps = np.random.default_rng(whole("seed", seed, 0)).integers(1, len(symbols), size=len(labels))
    return symbols[np.stack([labels, (labels + steps) % len(symbols)], axis=1)]


def caa(appended: Float[ArrayLike, "prompts 2 layers width"]) -> Float[np.ndarray, "layers width"]:
    """Compute the vectors of contrastive activation addition.

    Parameters
    ----------
    appended
        Hidden states at the right and at the wrong letter, ``collect(..., appended=contrast(...)).appended``.

    Returns
    -------
    float64 array
        For every block, mean of right minus mean of wrong.

    Raises
    ------
    InputError
        If shapes do not fit or a value is not finite.

    Examples
    --------
    >>> caa(np.array([[[[3.0, 1.0]], [[1.0, 1.0]]]]))
    array([[2., 0.]])
    """
    appended = np.asarray(appended)
    if appended.ndim != 4 or appended.shape[1] != 2 or not appended.size or not np.isfinite(appended).all():
        raise InputError(f"appended has shape {appended.shape}: give finite (prompts, 2, layers, width)")
    right, wrong = appended.mean(0, dtype=np.float64)
    return right - wrong


@dataclass(frozen=True, eq=False)
class Steering:
    """Vectors that are added to the outputs of some blocks, the same for every prompt.

    Parameters
    ----------
    vectors
        By block, counted from 0. None at all leaves a model as it is.
    multiplier
        Scales them.
    positions
        ``"last"``, the last token of the prompt, or ``"after"``, every token from ``start`` on.

    Raises
    ------
    InputError
        If a vector is not finite, or an option is wrong.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> ids = tokenizer("It is (", return_tensors="pt")
    >>> with Steering({1: np.ones(128)}, multiplier=-2.0).applied(model):
    ...     model(**ids).logits.shape
    torch.Size([1, 7, 259])
    """

    vectors: Mapping[int, Float[np.ndarray, " width"]]
    multiplier: float = 1.0
    positions: str = "last"

    def __post_init__(self) -> None:
        if self.positions not in ("last", "after"):
            raise InputError(f"positions={self.positions!r} must be 'last' or 'after'")
        real("multiplier", self.multiplier)
        if not isinstance(self.vectors, Mapping) or not all(is_integer(layer) for layer in self.vectors):
            raise InputError("vectors must map blocks, counted from 0, to what is added there")
        vectors = {int(layer): np.asarray(self.vectors[layer], dtype=np.float64) for layer in sorted(self.vectors)}
        for layer, vector in vectors.items():
            if vector.ndim != 1 or not np.isfinite(vector).all():
                raise InputError(f"vector of block {layer} has shape {vector.shape}: give finite (width,)")
        object.__setattr__(self, "vectors", vectors)

    def applied(
        self,
        model: nn.Module,
        *,
        start: int | Int[Tensor, " batch"] | None = None,
        attention_mask: Int[Tensor, "batch length"] | None = None,
        generated: bool = False,
        prompt_length: int | None = None,
    ) -> AbstractContextManager[None]:
        """Intervene in a model's forward passes while the context lasts.

        Parameters
        ----------
        model
            A causal language model of `transformers`.
        start, attention_mask, generated, prompt_length
            As of `icml26.kappa.hooks.shifted`.

        Returns
        -------
        context manager
            To be put around ``model(...)`` or ``model.generate(...)``.

        Raises
        ------
        InputError
            If the model has no such block, or as of `icml26.kappa.hooks.shifted`.
        """
        return hooks.shifted(
            model,
            {layer: _Added(self.multiplier * vector) for layer, vector in self.vectors.items()},
            positions=self.positions,
            start=start,
            attention_mask=attention_mask,
            generated=generated,
            prompt_length=prompt_length,
        )


class _Added:
    """A shift that does not depend on the hidden state."""

    def __init__(self, vector: Float[np.ndarray, " width"]) -> None:
        self.vector = torch.from_numpy(vector)

    def __call__(self, last: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        if last.shape[-1] != len(self.vector):
            raise InputError(f"vectors have width {len(self.vector)}, the model {last.shape[-1]}: give its own")
        return self.vector.to(last.device, last.dtype).expand_as(last)


@torch.inference_mode()
def dola(
    model: Any,
    hidden: Float[np.ndarray, "prompts layers width"],
    symbol_ids: Sequence[int],
    bucket: Sequence[int],
    thresholds: Sequence[float] = (0.1,),
) -> Float[np.ndarray, "thresholds prompts options"]:
    """Score the options' symbols by contrasting layers.

    For each prompt, the early layer is the one of the bucket whose distribution of the next token has the largest
    Jensen-Shannon divergence from the last layer's. The score of a token is the difference of its log-probabilities
    under the two, for tokens with at least so large a share of the greatest probability as the threshold says; the
    others score -1000 plus their final log-probability, which keeps them in order behind.

    Parameters
    ----------
    model
        A causal language model of `transformers`; its final norm and unembedding are applied to early layers too.
    hidden
        Outputs of all blocks at the last tokens, as `collect` keeps them.
    symbol_ids
        Tokens of the options' symbols.
    bucket
        Layers to choose from, none of them the last.
    thresholds
        From 0, exclusive, to 1.

    Returns
    -------
    float64 array
        Scores, for each threshold.

    Raises
    ------
    InputError
        If a layer or threshold is out of range, or the bucket is empty.

    Examples
    --------
    >>> from icml26.kappa.collect import collect
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> found = collect(model, tokenizer, ["It is (", "So ("], [36, 37])
    >>> dola(model, found.hidden, [36, 37], bucket=[0]).shape
    (1, 2, 2)
    """
    hidden = np.asarray(hidden)
    if hidden.ndim != 3 or not hidden.size:
        raise InputError(f"hidden has shape {hidden.shape}: give (prompts, layers, width)")
    if not len(bucket) or not all(is_integer(layer) and 0 <= layer < hidden.shape[1] - 1 for layer in bucket):
        raise InputError(f"bucket={bucket!r} must be blocks before the last, 0 to {hidden.shape[1] - 2}")
    shares = np.log([real("threshold", threshold, above=0, high=1) for threshold in thresholds])
    symbols, scores = list(symbol_ids), []
    for first in range(0, len(hidden), _ROWS):
        part = hidden[first : first + _ROWS]
        final = early_logits(model, part[:, -1]).log_softmax(-1)
        shared = final.exp()
        furthest = torch.full((len(part),), -torch.inf, device=final.device)
        contrasted = torch.empty(len(part), len(symbols), device=final.device)
        for layer in sorted(bucket):
            early = early_logits(model, part[:, layer]).log_softmax(-1)
            own = early.exp()
            middle = (shared + own) / 2
            # Jensen-Shannon divergence, up to half the entropy of the final distribution, which is the same for all.
            divergence = (own * early).sum(-1) / 2 - torch.xlogy(middle, middle).sum(-1)
            further = divergence > furthest
            furthest = torch.where(further, divergence, furthest)
            contrasted = torch.where(further[:, None], early[:, symbols], contrasted)
        own, best = final[:, symbols].double().cpu().numpy(), final.max(-1, keepdim=True).values.double().cpu().numpy()
        inside = own >= best + shares[:, None, None]
        scores.append(np.where(inside, own - contrasted.double().cpu().numpy(), own + _OUT))
    return np.concatenate(scores, axis=1)
