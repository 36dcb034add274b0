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
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor, nn

from icml26.checks import is_integer, real, whole
from icml26.errors import InputError
from icml26.kappa import hooks
from icml26.kappa.collect import early_logits

__all__ = ["Contrasted", "Steering", "caa", "contrast", "contrasted", "dola", "dola_scores"]

_OUT = -1000.0  # the released DoLa's score of tokens outside the head set
_ROWS = 128  # prompts whose probabilities of the whole vocabulary are in memory at a time


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


class Contrasted(NamedTuple):
    """What DoLa compares, before it is decided which tokens count.

    Attributes
    ----------
    difference : float64 array, prompts x options
        Log-probability of each symbol under the last layer less that under the early layer.
    final : float64 array, prompts x options
        Its log-probability under the last layer.
    best : float64 array, prompts
        That of the most probable token.
    """

    difference: Float[np.ndarray, "prompts options"]
    final: Float[np.ndarray, "prompts options"]
    best: Float[np.ndarray, " prompts"]


@torch.inference_mode()
def contrasted(
    model: Any,
    hidden: Float[np.ndarray, "prompts layers width"],
    symbol_ids: Sequence[int],
    bucket: Sequence[int],
) -> Contrasted:
    """Contrast the last layer with an early one.

    For each prompt, the early layer is the one of the bucket whose distribution of the next token has the largest
    Jensen-Shannon divergence from the last layer's.

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

    Returns
    -------
    Contrasted
        To be made scores by `dola_scores`.

    Raises
    ------
    InputError
        If a layer or symbol is out of range, a value is not finite, or the bucket is empty.

    Examples
    --------
    >>> from icml26.kappa.collect import collect
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> found = collect(model, tokenizer, ["It is (", "So ("], [36, 37])
    >>> contrasted(model, found.hidden, [36, 37], bucket=[0]).difference.shape
    (2, 2)
    """
    hidden, symbols = np.asarray(hidden), list(symbol_ids)
    if hidden.ndim != 3 or not hidden.size:
        raise InputError(f"hidden has shape {hidden.shape}: give (prompts, layers, width)")
    if not np.isfinite(hidden).all():
        raise InputError("hidden holds values that are not finite: DoLa has no answer to them")
    if not len(bucket) or not all(is_integer(layer) and 0 <= layer < hidden.shape[1] - 1 for layer in bucket):
        raise InputError(f"bucket={bucket!r} must be blocks before the last, 0 to {hidden.shape[1] - 2}")
    vocabulary = model.get_input_embeddings().num_embeddings
    if not symbols or not all(is_integer(token) and 0 <= token < vocabulary for token in symbols):
        raise InputError(f"symbol_ids={symbol_ids!r} must be tokens of the model, 0 to {vocabulary - 1}")
    found = []
    for first in range(0, len(hidden), _ROWS):
        part = hidden[first : first + _ROWS]
        final = early_logits(model, part[:, -1]).log_softmax(-1)
        shared = final.exp()
        furthest = torch.full((len(part),), -torch.inf, device=final.device)
        chosen = torch.empty(len(part), len(symbols), device=final.device)
        for layer in sorted(bucket):
            early = early_logits(model, part[:, layer]).log_softmax(-1)
            own = early.exp()
            middle = (shared + own) / 2
            # Jensen-Shannon divergence, up to half the entropy of the final distribution, which is the same for all.
            divergence = (own * early).sum(-1) / 2 - torch.xlogy(middle, middle).sum(-1)
            further = divergence > furthest
            furthest = torch.where(further, divergence, furthest)
            chosen = torch.where(further[:, None], early[:, symbols], chosen)
        own, best = final[:, symbols].double().cpu().numpy(), final.max(-1).values.double().cpu().numpy()
        found.append((own - chosen.double().cpu().numpy(), own, best))
    return Contrasted(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def dola_scores(
    found: Contrasted,
    thresholds: Sequence[float] = (0.1,),
    *,
    difference: Float[ArrayLike, " options"] = 0.0,
    final: Float[ArrayLike, " options"] = 0.0,
) -> Float[np.ndarray, "thresholds prompts options"]:
    """Score the options' symbols as DoLa does.

    The score of a token is the difference of its log-probabilities under the two layers, for tokens with at least so
    large a share of the greatest probability as the threshold says; the others score -1000 plus their final
    log-probability, which keeps them in order behind. The differences are on another scale than the model's logits and
    like other symbols, so they are corrected by a mean of their own.

    Parameters
    ----------
    found
        The contrast.
    thresholds
        From 0, exclusive, to 1.
    difference, final
        Subtracted from differences and final log-probabilities to correct for the liking of some symbols: their means
        over training prompts. By default there is no correction.

    Returns
    -------
    float64 array
        Scores, for each threshold.

    Raises
    ------
    InputError
        If a threshold is out of range.

    Examples
    --------
    >>> found = Contrasted(np.array([[2.0, 1.0]]), np.log([[0.4, 0.1]]), np.log([0.5]))
    >>> dola_scores(found, [0.1, 0.5]).round(1).tolist()
    [[[2.0, 1.0]], [[2.0, -1002.3]]]
    >>> dola_scores(found, difference=[2.0, 0.0]).tolist()
    [[[0.0, 1.0]]]
    """
    shares = np.log([real("threshold", threshold, above=0, high=1) for threshold in thresholds])
    inside = found.final >= found.best[:, None] + shares[:, None, None]
    return np.where(inside, found.difference - np.asarray(difference), found.final - np.asarray(final) + _OUT)


def dola(
    model: Any,
    hidden: Float[np.ndarray, "prompts layers width"],
    symbol_ids: Sequence[int],
    bucket: Sequence[int],
    thresholds: Sequence[float] = (0.1,),
) -> Float[np.ndarray, "thresholds prompts options"]:
    """Score the options' symbols by contrasting layers, without any correction: `contrasted` and `dola_scores`.

    Parameters
    ----------
    model, hidden, symbol_ids, bucket
        As of `contrasted`.
    thresholds
        As of `dola_scores`.

    Returns
    -------
    float64 array
        Scores, for each threshold.

    Raises
    ------
    InputError
        As of both.

    Examples
    --------
    >>> from icml26.kappa.collect import collect
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> found = collect(model, tokenizer, ["It is (", "So ("], [36, 37])
    >>> dola(model, found.hidden, [36, 37], bucket=[0]).shape
    (1, 2, 2)
    """
    return dola_scores(contrasted(model, hidden, symbol_ids, bucket), thresholds)
