"""Confidence of generated tokens, from logits, and its change along a trace.

Token confidence is DeepConf's (Fu et al., arXiv 2508.15260), on which CDG (Wang et al., ICML 2026, arXiv 2605.25244)
builds: the mean negative log-probability of the K most likely tokens,

    C_t = -1/K sum_{j in top K} log p_t(j) = ln K + KL(U || p_t on the top K),

with U uniform on those K tokens and p_t not renormalised there. It is LARGE where the distribution is peaked: the mean
is over alternatives, not over what was drawn. It depends on K, on the vocabulary and on the logarithm's base, and it is
not monotone in entropy. Self-certainty (Kang, Zhao and Song, arXiv 2502.18581) is the same with K the whole vocabulary,
minus ln K. The gain of one trace is computed here too, in the two versions of the released code; for many traces use
`icml26.cdg.traces`. Logits must be raw: truncated ones hold minus infinity, which no mean survives.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from icml26.cdg.question import Question
from icml26.cdg.traces import curves, summarise
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["bin_gain", "bin_means", "measure", "self_certainty", "token_confidence", "window_gain"]

_SHORTEST = 10  # tokens; the released helpers call the gain of anything shorter 0


def token_confidence(
    logits: Float[Tensor | np.ndarray, "*batch vocabulary"],
    k: int = 20,
    *,
    sampled: Int[Tensor | np.ndarray, "*batch"] | None = None,
    decimals: int | None = None,
) -> Float[Tensor | np.ndarray, "*batch"]:
    """Mean negative log-probability of the k most likely tokens: C_t (arXiv 2508.15260, Section 2).

    Parameters
    ----------
    logits : Tensor or array, shape (..., vocabulary)
        Raw logits or log-probabilities of each position; minus infinity is allowed outside of the k largest.
    k : int
        K; the paper's 20 is what its server returned. Values for different k do not compare.
    sampled : int Tensor or array, shape (...), optional
        The drawn tokens. Where one is not among the k largest, the mean is over k + 1 entries, as vLLM returns them:
        such an unlikely token RAISES the confidence. By default only the k largest count.
    decimals : int, optional
        Round to so many decimals; DeepConf stores 3.

    Returns
    -------
    Tensor or array, shape (...)
        Nats, at least ln k; of the logits' own type, but no smaller than float32.

    Raises
    ------
    InputError
        If the logits are not numbers, hold NaN or plus infinity, or minus infinity among the k largest, or an option
        is out of range.

    Examples
    --------
    >>> token_confidence(np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]]), k=3).round(3).tolist()
    [1.099, 6.0]
    """
    whole("k", k, 1)
    if decimals is not None:
        whole("decimals", decimals, 0)
    scores = _scores(logits)
    if k > scores.shape[-1]:
        raise InputError(f"k={k!r} is above the {scores.shape[-1]} tokens of the vocabulary; give fewer")
    top = torch.topk(scores, k, sorted=False)
    total = torch.logsumexp(scores, -1)
    found = total - top.values.mean(-1)
    if sampled is not None:
        drawn = _drawn(sampled, scores)
        cost = total - scores.gather(-1, drawn[..., None])[..., 0]
        outside = ~(top.indices == drawn[..., None]).any(-1)
        found = torch.where(outside, (k * found + cost) / (k + 1), found)
    return _returned(found if decimals is None else found.round(decimals=decimals), logits)


def self_certainty(logits: Float[Tensor | np.ndarray, "*batch vocabulary"]) -> Float[Tensor | np.ndarray, "*batch"]:
    """KL divergence of the uniform law over the whole vocabulary from the model's: arXiv 2502.18581, Section 3.

    A trace's self-certainty is the mean over its tokens.

    Parameters
    ----------
    logits : Tensor or array, shape (..., vocabulary)
        Raw logits of each position.

    Returns
    -------
    Tensor or array, shape (...)
        Nats, at least 0.

    Raises
    ------
    InputError
        If the logits are not finite numbers.

    Examples
    --------
    >>> self_certainty(np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]])).round(3).tolist()
    [0.0, 4.902]
    """
    scores = _scores(logits)
    return _returned(torch.logsumexp(scores, -1) - scores.mean(-1) - math.log(scores.shape[-1]), logits)


def measure(k: int = 20) -> Callable[[Float[Tensor, "rows vocabulary"]], Float[Tensor, "rows 2"]]:
    """Make what `icml26.generation.sample` calls at each step to measure tokens as they are drawn.

    Parameters
    ----------
    k : int
        As in `token_confidence`.

    Returns
    -------
    callable
        It maps raw logits to two columns: confidence and self-certainty.

    Raises
    ------
    InputError
        If k is out of range.

    Examples
    --------
    >>> measure(k=2)(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """
    whole("k", k, 1)
    return lambda logits: torch.stack([token_confidence(logits, k), self_certainty(logits)], -1)


def window_gain(confidences: Float[ArrayLike, " tokens"], percent: int = 10) -> float:
    """Dynamic gain as votes use it: mean of the last k tokens minus mean of the first k, k = max(1, floor(n P / 100)).

    Parameters
    ----------
    confidences : array, shape (tokens,)
        Of one trace, in nats.
    percent : int
        P, from 1 to 100; above 50 the two windows overlap.

    Returns
    -------
    float
        Nats; 0 for fewer than 10 tokens, as in the released code. Votes drop such traces instead.

    Raises
    ------
    InputError
        If the confidences are no such vector or the percentage is out of range.

    Examples
    --------
    >>> window_gain(np.arange(20.0))
    18.0
    """
    question = _one(confidences)
    gain = summarise([question], percent).gain[0]
    return float(gain) if question.lengths[0] >= _SHORTEST else 0.0


def bin_means(confidences: Float[ArrayLike, " tokens"], bins: int = 10) -> Float[np.ndarray, " bins"]:
    """Mean confidence of equal stretches of position, as the paper's curves show.

    Parameters
    ----------
    confidences : array, shape (tokens,)
        Of one trace, in nats.
    bins : int
        Stretches; at most as many as tokens. Stretch i begins at token ``i n // bins``.

    Returns
    -------
    array, shape (bins,)
        Nats.

    Raises
    ------
    InputError
        If the confidences are no such vector or are fewer than the bins.

    Examples
    --------
    >>> bin_means(np.arange(20.0), bins=4)
    array([ 2.,  7., 12., 17.])
    """
    question = _one(confidences)
    means = curves([question], bins)[0]
    if np.isnan(means).any():
        raise InputError(f"confidences holds {question.lengths[0]} tokens, fewer than bins={bins!r}; give fewer bins")
    return means


def bin_gain(confidences: Float[ArrayLike, " tokens"], percent: int = 10) -> float:
    """Dynamic gain as the paper's text and tests define it: last minus first P percent of ten position bins.

    It is the mean of bin means, and equals `window_gain` where 10 divides the number of tokens.

    Parameters
    ----------
    confidences : array, shape (tokens,)
        Of one trace, in nats.
    percent : int
        P, a multiple of 10 from 10 to 100; for others only `window_gain` is defined.

    Returns
    -------
    float
        Nats; 0 for fewer than 10 tokens, as in the released code.

    Raises
    ------
    InputError
        If the confidences are no such vector or the percentage is out of range.

    Examples
    --------
    >>> bin_gain(np.arange(20.0))
    18.0
    """
    if whole("percent", percent, 10, 100) % 10:
        raise InputError(f"percent={percent!r} must be a multiple of 10, a whole number of bins; else use window_gain")
    question = _one(confidences)
    if question.lengths[0] < _SHORTEST:
        return 0.0
    means, count = curves([question])[0], percent // 10
    return float(means[-count:].mean() - means[:count].mean())


def _one(confidences: ArrayLike) -> Question:
    question = Question.of([(None, confidences)])
    if not question.lengths[0]:
        raise InputError("confidences is empty; give at least one token")
    return question


def _scores(logits: Tensor | np.ndarray) -> Tensor:
    """Logits as a tensor of at least float32, whose log-probabilities are numbers."""
    try:
        scores = torch.as_tensor(logits)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(f"logits must be a tensor or an array of numbers: {why}") from error
    if not scores.ndim or not scores.shape[-1] or not scores.is_floating_point():
        raise InputError(f"logits is {scores.dtype} of shape {tuple(scores.shape)}; give floats, vocabulary last")
    return scores if scores.dtype == torch.float64 else scores.float()


def _drawn(sampled: Tensor | np.ndarray, scores: Tensor) -> Tensor:
    try:
        drawn = torch.as_tensor(sampled, device=scores.device)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(f"sampled must be a tensor or an array of token ids: {why}") from error
    if drawn.shape != scores.shape[:-1] or drawn.is_floating_point() or drawn.dtype == torch.bool:
        raise InputError(
            f"sampled is {drawn.dtype} of shape {tuple(drawn.shape)}; give a token id for each position, "
            f"of shape {tuple(scores.shape[:-1])}"
        )
    if drawn.numel() and not 0 <= int(drawn.min()) <= int(drawn.max()) < scores.shape[-1]:
        raise InputError(
            f"sampled holds ids outside of 0 to {scores.shape[-1] - 1}; give ids of the logits' vocabulary"
        )
    return drawn.long()


def _returned(found: Tensor, logits: Tensor | np.ndarray) -> Tensor | np.ndarray:
    """The result as the logits came, once it is finite: what is not comes from truncated or broken logits."""
    if not torch.isfinite(found).all():
        raise InputError("logits hold NaN, or infinity among the tokens that count; give raw ones, before any warper")
    return found if isinstance(logits, Tensor) else found.numpy()
