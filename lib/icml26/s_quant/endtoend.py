"""What compressed weights do to a model: its loss on text, or its sentences' similarities.

`with_weights` puts a codec's weights into a model for a while, `token_losses` measures a language model by segments of
text, `embed` and `similarity_fidelity` an encoder by sentences. S-Quant (Wang et al., ICML 2026, arXiv: none) reports
perplexity, the exponential of such a loss. The codecs to compare are named in `arms`, encodings kept in
`kept`, losses compared in `comparison`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from scipy.stats import rankdata
from torch import Tensor, nn

from icml26 import stats
from icml26.errors import InputError, nearest
from icml26.s_quant.arms import arms
from icml26.s_quant.kept import encodings

__all__ = ["Fidelity", "arms", "embed", "encodings", "similarity_fidelity", "token_losses", "with_weights"]

_LOGITS = 1 << 24  # logits held at a time: 64 MB
_TOKENS = 1 << 13  # tokens embedded at a time


class Fidelity(NamedTuple):
    """How close an encoder's embeddings stay to the original ones.

    Attributes
    ----------
    cosine : Interval
        Mean cosine of each sentence's two embeddings.
    pearson, spearman : Interval
        Correlation, over pairs of sentences, of the cosine between the two in the original and in the other encoder;
        of the values, and of their ranks.
    """

    cosine: stats.Interval
    pearson: stats.Interval
    spearman: stats.Interval


@contextmanager
def with_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """Give named linear layers other weights, and the very same ones back at the end.

    Parameters
    ----------
    model
        Any model.
    weights
        New weight by layer name, of the old one's shape; cast to its type and device.

    Yields
    ------
    nn.Module
        The model.

    Raises
    ------
    InputError
        If a name is no linear layer, or a shape differs; the model is then as it was.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False))
    >>> before = model[0].weight.data
    >>> with with_weights(model, {"0": torch.ones(1, 2)}):
    ...     model(torch.tensor([[3.0, 4.0]])).item()
    7.0
    >>> model[0].weight.data is before or torch.equal(model[0].weight.data, before)
    True
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    for name, new in weights.items():
        if name not in layers:
            raise InputError(f"weights has {name!r}, which is no linear layer of the model{nearest(name, layers)}")
        if (shape := tuple(layers[name].weight.shape)) != tuple(new.shape):
            raise InputError(f"weights[{name!r}] has shape {tuple(new.shape)}, the layer's is {shape}")
    old = {name: layers[name].weight.data for name in weights}
    try:
        for name, new in weights.items():
            layers[name].weight.data = new.detach().to(old[name])
        yield model
    finally:
        for name, weight in old.items():
            layers[name].weight.data = weight


def token_losses(model: nn.Module, segments: Int64[Tensor, "n length"]) -> Float64[np.ndarray, " n"]:
    """Mean loss of each segment of text, in nats per predicted token.

    Parameters
    ----------
    model
        A causal language model of `transformers`, in evaluation mode.
    segments : int64 tensor, n x length
        Token ids; the first of each segment is given, the others are predicted.

    Returns
    -------
    float64 array, n
        Losses. Memory does not grow with n.

    Raises
    ------
    InputError
        If the segments hold fewer than two tokens each.

    Examples
    --------
    >>> from icml26 import models
    >>> model, _ = models.load_lm("tiny-random-llama")
    >>> token_losses(model, torch.zeros(3, 8).long()).shape
    (3,)
    """
    if segments.ndim != 2 or segments.shape[1] < 2:
        raise InputError(f"segments have shape {tuple(segments.shape)}: use n x length, length 2 or more")
    length, found = segments.shape[1], []
    batch = max(1, _LOGITS // (length * model.config.vocab_size))
    with torch.inference_mode():
        for part in segments.split(batch):
            logits = model(input_ids=part, use_cache=False).logits[:, :-1]
            losses = nn.functional.cross_entropy(logits.flatten(0, 1).float(), part[:, 1:].flatten(), reduction="none")
            found.append(losses.view(len(part), -1).double().mean(1))
    return torch.cat(found).cpu().numpy()


def embed(encoder: nn.Module, tokenizer: Any, sentences: Sequence[str]) -> Float32[np.ndarray, "n width"]:
    """Embed sentences as sentence encoders do: the mean of the last hidden states, normalised.

    Parameters
    ----------
    encoder, tokenizer
        As `icml26.models.load_encoder` returns them.
    sentences
        Texts.

    Returns
    -------
    float32 array, n x width
        Unit vectors.

    Raises
    ------
    InputError
        If there are no sentences, or an empty one.

    Examples
    --------
    >>> from icml26 import models
    >>> embed(*models.load_encoder("tiny-random-bert"), ["a sentence", "another"]).shape
    (2, 128)
    """
    if not sentences or not all(sentences):
        raise InputError("sentences are missing, or one is empty: give texts")
    longest = min(encoder.config.max_position_embeddings, tokenizer.model_max_length)
    batch = max(1, _TOKENS // longest)
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))  # little padding
    found = torch.empty(len(sentences), encoder.config.hidden_size)
    with torch.inference_mode():
        for i in range(0, len(order), batch):
            rows = order[i : i + batch]
            texts = [sentences[row] for row in rows]
            tokens = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=longest)
            states = encoder(**tokens).last_hidden_state.float()
            mask = tokens["attention_mask"][:, :, None]
            found[rows] = nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
    return found.numpy()


def similarity_fidelity(
    original: Float32[np.ndarray, "n width"],
    changed: Float32[np.ndarray, "n width"],
    *,
    seed: int,
    resamples: int = 2000,
) -> Fidelity:
    """Compare two encoders' embeddings of the same sentences, with bootstrap intervals over sentences.

    A sentence drawn twice makes no pair with itself. Ranks of pairs are those among all sentences.

    Parameters
    ----------
    original, changed : array, n x width
        Unit vectors of `embed`.
    seed, resamples
        Of the bootstrap.

    Returns
    -------
    Fidelity
        Three intervals; all 1 if nothing changed.

    Raises
    ------
    InputError
        If the shapes differ or there are fewer than ten sentences.

    Examples
    --------
    >>> vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))[0] + 0.3
    >>> vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    >>> [round(interval.low, 6) for interval in similarity_fidelity(vectors, vectors, seed=0)]
    [1.0, 1.0, 1.0]
    """
    if original.shape != changed.shape or len(original) < 10:
        raise InputError(f"embeddings have shapes {original.shape} and {changed.shape}: give equal ones, n 10 or more")
    first, second = np.asarray(original, dtype=float), np.asarray(changed, dtype=float)
    n = len(first)
    cosine = stats.bootstrap_interval(np.mean, (first * second).sum(1), seed=seed, resamples=resamples)
    places = np.arange(n)
    similar = [first @ first.T, second @ second.T]
    upper = np.triu_indices(n, 1)
    ranked = [np.zeros((n, n)) for _ in similar]
    for ranks, values in zip(ranked, similar, strict=True):
        ranks[upper] = rankdata(values[upper])
        ranks += ranks.T
    intervals = [
        stats.bootstrap_interval(_pair_correlation(*pair), places, seed=seed, resamples=resamples)
        for pair in (similar, ranked)
    ]
    return Fidelity(cosine, *intervals)


def _pair_correlation(first: Float64[np.ndarray, "n n"], second: Float64[np.ndarray, "n n"]) -> Any:
    """A statistic of sentences' places: the correlation of two symmetric matrices over pairs of different sentences."""
    n = len(first)
    pairs = 1 - np.eye(n)
    x, y = ((matrix - matrix[pairs > 0].mean()) * pairs for matrix in (first, second))

    def correlation(places: Float64[np.ndarray, "... n"], axis: int) -> Float64[np.ndarray, "..."]:
        times = counts(places, n)
        total, sx, sy, xx, yy, xy = (
            ((times @ matrix) * times).sum(axis) for matrix in (pairs, x, y, x * x, y * y, x * y)
        )
        return (total * xy - sx * sy) / np.sqrt((total * xx - sx**2) * (total * yy - sy**2))

    return correlation


def counts(places: Float64[np.ndarray, "... draws"], n: int) -> Float64[np.ndarray, "... n"]:
    """Count how often each of n items was drawn.

    Parameters
    ----------
    places : array, ... x draws
        Places of items, 0 to n - 1, as `stats.bootstrap_interval` resamples them.
    n
        Number of items.

    Returns
    -------
    float64 array, ... x n
        Counts.

    Examples
    --------
    >>> counts(np.array([[0.0, 2.0, 2.0]]), 3)
    array([[1., 0., 2.]])
    """
    flat = places.reshape(-1, places.shape[-1]).astype(np.int64)
    shifted = flat + n * np.arange(len(flat))[:, None]
    return np.bincount(shifted.ravel(), minlength=n * len(flat)).reshape(*places.shape[:-1], n).astype(float)
