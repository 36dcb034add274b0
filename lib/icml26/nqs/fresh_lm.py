"""Small decoder-only transformers, the seeds of one configuration trained side by side as one stacked model.

They are the fresh evidence for the laws of loss in Li and Maddison (ICML 2026, arXiv 2605.09154): pre-norm transformers
with LayerNorm without gain, ReLU feed-forward layers of four times the width, tied embeddings and linear attention
biases in place of positions (Press et al., arXiv 2108.12409), so that every parameter is one of a matrix product and
compute is 6 N per token. Training is Adam with its usual moments at a constant rate after a short warm-up, one pass
over the text, so that every step count is a checkpoint of one run. Which sizes, batches and steps is `fresh`'s
business.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn
from torch.nn import functional

from icml26.errors import InputError

__all__ = ["HEAD_WIDTH", "LAYERS", "held_out_losses", "initial_weights", "logits", "parameters", "trajectory"]

LAYERS = 2
HEAD_WIDTH = 8
_SLOPES = 3.0  # the heads' biases per token of distance fall from 1 towards 2**-3
_EVALUATED = 1 << 14  # held-out tokens at a time over all seeds

Weights = dict[str, Float[Tensor, "seeds inputs outputs"]]


def parameters(width: int, vocabulary: int) -> int:
    """Count the parameters of one model: the tied embedding and 12 width^2 a layer.

    Parameters
    ----------
    width : int
        Of the residual stream.
    vocabulary : int
        Number of symbols.

    Returns
    -------
    int

    Examples
    --------
    >>> parameters(8, 64)
    2048
    """
    return vocabulary * width + LAYERS * 12 * width**2


def initial_weights(width: int, vocabulary: int, seeds: Sequence[int]) -> Weights:
    """Draw the weights of one model for each seed, stacked along the first axis.

    Matrices are normal with variance one over their inputs, those that write to the residual stream smaller by the
    number of writers, embeddings half the usual spread.

    Parameters
    ----------
    width : int
        Of the residual stream; a multiple of `HEAD_WIDTH`.
    vocabulary : int
        Number of symbols.
    seeds : sequence of int
        A model each; the same seed gives the same weights whatever stands beside it.

    Returns
    -------
    dict of str to tensor
        Leaves that require gradients.

    Raises
    ------
    InputError
        If the width is no multiple of `HEAD_WIDTH`.

    Examples
    --------
    >>> initial_weights(8, 64, [0, 1])["embedding"].shape
    torch.Size([2, 64, 8])
    """
    if width < HEAD_WIDTH or width % HEAD_WIDTH:
        raise InputError(f"width={width} must be a multiple of {HEAD_WIDTH}, the width of an attention head")
    shapes = {"embedding": (vocabulary, width, 0.5 * width**-0.5)}
    for layer in range(LAYERS):
        shapes[f"attend{layer}"] = (width, 3 * width, width**-0.5)
        shapes[f"mix{layer}"] = (width, width, (2 * LAYERS * width) ** -0.5)
        shapes[f"rise{layer}"] = (width, 4 * width, width**-0.5)
        shapes[f"fall{layer}"] = (4 * width, width, (2 * LAYERS * 4 * width) ** -0.5)
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    return {
        name: torch.stack([torch.randn(rows, columns, generator=draw) * std for draw in draws]).requires_grad_()
        for name, (rows, columns, std) in shapes.items()
    }


def logits(
    weights: Weights, tokens: Int64[Tensor, "seeds batch length"]
) -> Float[Tensor, "seeds batch length vocabulary"]:
    """Predict the next symbol after each position.

    Parameters
    ----------
    weights : dict of str to tensor
        As `initial_weights` gives them.
    tokens : int64 tensor, seeds x batch x length
        Each seed's sequences.

    Returns
    -------
    tensor, seeds x batch x length x vocabulary

    Examples
    --------
    >>> logits(initial_weights(8, 64, [0]), torch.zeros(1, 3, 5).long()).shape
    torch.Size([1, 3, 5, 64])
    """
    embedding = weights["embedding"]
    (seeds, batch, length), (_, vocabulary, width) = tokens.shape, embedding.shape
    heads = width // HEAD_WIDTH
    distance = torch.arange(length)[:, None] - torch.arange(length)
    slopes = 2.0 ** (-_SLOPES * torch.arange(heads) / heads)
    bias = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -torch.inf)
    rows = tokens + vocabulary * torch.arange(seeds)[:, None, None]
    hidden = functional.embedding(rows, embedding.reshape(-1, width)).view(seeds, batch * length, width)
    for layer in range(LAYERS):
        mixed = torch.bmm(_normalise(hidden), weights[f"attend{layer}"])
        query, key, value = mixed.view(seeds * batch, length, 3, heads, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
        read = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        read = read.transpose(1, 2).reshape(seeds, batch * length, width)
        hidden = torch.baddbmm(hidden, read, weights[f"mix{layer}"])
        risen = functional.relu(torch.bmm(_normalise(hidden), weights[f"rise{layer}"]))
        hidden = torch.baddbmm(hidden, risen, weights[f"fall{layer}"])
    return torch.bmm(_normalise(hidden), embedding.transpose(1, 2)).view(seeds, batch, length, vocabulary)


def held_out_losses(weights: Weights, segments: Int64[Tensor, "n length"]) -> Float64[np.ndarray, " seeds"]:
    """Measure each seed's mean loss on the same text.

    Parameters
    ----------
    weights : dict of str to tensor
        As `initial_weights` gives them.
    segments : int64 tensor, n x length
        The first symbol of each is given, the others are predicted.

    Returns
    -------
    float64 array, seeds
        Nats per predicted symbol.

    Examples
    --------
    >>> bool(held_out_losses(initial_weights(8, 64, [0]), torch.zeros(2, 9).long())[0] > 0)
    True
    """
    seeds = len(weights["embedding"])
    total = torch.zeros(seeds, dtype=torch.float64)
    with torch.inference_mode():
        for part in segments.split(max(1, _EVALUATED // (seeds * segments.shape[1]))):
            total += _losses(weights, part.expand(seeds, -1, -1)).double().sum(1)
    return (total / segments[:, 1:].numel()).numpy()


def trajectory(
    weights: Weights,
    streams: Sequence[Int64[Tensor, "n length"]],
    held_out: Int64[Tensor, "m length"],
    *,
    batch: int,
    checkpoints: Sequence[int],
    learning_rate: float,
    warmup: int,
) -> Iterator[tuple[int, Float64[np.ndarray, " seeds"]]]:
    """Train in place, one pass, and give the held-out losses at each checkpoint.

    Parameters
    ----------
    weights : dict of str to tensor
        As `initial_weights` gives them.
    streams : sequence of int64 tensors, each n x length
        Each seed's segments in the order in which they are seen; ``batch`` of them a step.
    held_out : int64 tensor, m x length
        Segments to measure on.
    batch : int
        Segments per step.
    checkpoints : sequence of int
        Steps after which to measure, rising.
    learning_rate, warmup : float, int
        Adam's rate, reached linearly over so many steps and kept.

    Yields
    ------
    steps : int
        A checkpoint.
    losses : float64 array, seeds
        Nats per symbol.

    Raises
    ------
    InputError
        If a stream is too short for one pass, or a loss diverges: beyond ten times that of blind guesses.

    Examples
    --------
    >>> stream = torch.arange(9).expand(64, -1)
    >>> run = trajectory(initial_weights(8, 64, [0]), [stream], stream[:2], batch=2, checkpoints=[1, 32],
    ...     learning_rate=0.01, warmup=4)
    >>> (_, early), (_, late) = run
    >>> bool(late[0] < 0.8 * early[0])
    True
    """
    needed = batch * checkpoints[-1]
    if (shortest := min(len(stream) for stream in streams)) < needed:
        raise InputError(f"the text has {shortest} segments and one pass of batch={batch} needs {needed}: add text")
    diverged = 10 * np.log(weights["embedding"].shape[1])
    optimiser = torch.optim.Adam(weights.values(), lr=learning_rate, fused=True)
    for step in range(checkpoints[-1]):
        tokens = torch.stack([stream[step * batch : (step + 1) * batch] for stream in streams])
        optimiser.param_groups[0]["lr"] = learning_rate * min(1.0, (step + 1) / max(1, warmup))
        optimiser.zero_grad()
        # The sum over seeds of means gives each seed the gradient that it would have alone. `backward` lays gradients
        # out like the weights; those of `autograd.grad` are not, and the fused Adam reads them in the wrong order.
        _losses(weights, tokens).mean(1).sum().backward()
        optimiser.step()
        if step + 1 in checkpoints:
            losses = held_out_losses(weights, held_out)
            if not (losses <= diverged).all():  # NaN as well
                told = f"training diverged to a loss of {losses.max():g} after {step + 1} steps"
                raise InputError(f"{told}: lower learning_rate={learning_rate}")
            yield step + 1, losses


def _normalise(hidden: Tensor) -> Tensor:
    return functional.layer_norm(hidden, hidden.shape[-1:])


def _losses(weights: Weights, tokens: Int64[Tensor, "seeds batch length"]) -> Float[Tensor, "seeds predicted"]:
    predicted = logits(weights, tokens[..., :-1])
    return nn.functional.cross_entropy(predicted.flatten(0, 2), tokens[..., 1:].flatten(), reduction="none").view(
        len(tokens), -1
    )
