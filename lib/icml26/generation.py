"""Ancestral sampling from a causal language model, many continuations at a time.

``sample(model, prompts, samples=20, ...)`` draws several continuations of every prompt in one batch with a key-value
cache, drops rows as they end, and returns their tokens. Row ``i`` consumes its own row of uniform numbers by inverting
the cumulative distribution, so that what is drawn for it does not depend on which other rows have ended or on how rows
are grouped (up to rounding in the model). Prompts of different lengths are padded on the left and masked. What ends a
continuation is one token; truncation of the distribution, beams and stopping strings are left to
``transformers.GenerationMixin.generate``.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from icml26.errors import InputError

__all__ = ["Continuations", "sample"]

# Rows that have ended are dropped once they are this share of the batch: dropping copies the whole cache.
_DROP = 0.2
_IDS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Continuations(NamedTuple):
    """What `sample` returns.

    Attributes
    ----------
    tokens : Tensor, shape (prompts, samples, max_new_tokens)
        Drawn tokens; after the end token, the end token again.
    lengths : Tensor, shape (prompts, samples)
        Number of drawn tokens, the end token included.
    ended : Tensor, shape (prompts, samples)
        Whether the end token was drawn; where not, the length is censored at ``max_new_tokens``.
    """

    tokens: Int64[Tensor, "prompts samples max_new_tokens"]
    lengths: Int64[Tensor, "prompts samples"]
    ended: Bool[Tensor, "prompts samples"]


@torch.inference_mode()
def sample(
    model: Any,
    prompts: Sequence[Int64[Tensor, " prompt_tokens"]],
    *,
    samples: int,
    max_new_tokens: int,
    end: int,
    generator: torch.Generator,
    temperature: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Continuations:
    """Draw continuations of every prompt from the model's distribution.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model that takes a ``cache``; put into evaluation mode by the caller.
    prompts : sequence of Tensor, each of shape (prompt_tokens,)
        Token ids, one tensor a prompt, of at least one token.
    samples : int
        Continuations of each prompt.
    max_new_tokens : int
        Most tokens of a continuation, the end token included.
    end : int
        Token that ends a continuation.
    generator : torch.Generator
        On the CPU; source of one uniform number for each row and step.
    temperature : float
        Divides the logits.
    progress : callable, optional
        Called after each step with the step and the number of rows still running.

    Returns
    -------
    Continuations

    Raises
    ------
    InputError
        If there is no prompt, a prompt is empty or not a vector of the model's token ids, a number is out of range, or
        the generator is none.

    Examples
    --------
    >>> from icml26 import models
    >>> model, _ = models.load_lm("tiny-random-llama")
    >>> drawn = sample(model, [torch.tensor([3, 1, 4])], samples=5, max_new_tokens=8, end=0,
    ...                generator=torch.Generator().manual_seed(0))
    >>> drawn.tokens.shape, bool((drawn.lengths <= 8).all())
    (torch.Size([1, 5, 8]), True)
    """
    _check(prompts, samples, max_new_tokens, end, temperature)
    vocabulary = model.get_input_embeddings().num_embeddings
    for index, prompt in enumerate(prompts):
        low, high = int(prompt.min()), int(prompt.max())
        if low < 0 or high >= vocabulary:
            wrong = low if low < 0 else high
            raise InputError(f"prompts[{index}] holds {wrong}; give token ids from 0 to {vocabulary - 1}, the model's")
    if not isinstance(generator, torch.Generator):
        raise InputError(f"generator={generator!r} must be a torch.Generator, such as torch.Generator().manual_seed(0)")
    ids, mask = _left_padded(prompts)
    rows = len(prompts) * samples
    uniform = torch.rand((rows, max_new_tokens), generator=generator, dtype=torch.float64)
    tokens = torch.full((rows, max_new_tokens), end)
    lengths = torch.full((rows,), max_new_tokens)
    ended = torch.zeros(rows, dtype=torch.bool)

    device = model.device
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = _cache(model.config)
    padded = not bool(mask.all())  # without a mask, attention takes its fast path

    def forward(ids: Tensor, positions: Tensor) -> Tensor:
        known = {"attention_mask": mask.to(device)} if padded else {}
        ids, positions = ids.to(device), positions.to(device)
        out = model(input_ids=ids, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1, **known)
        return out.logits[:, -1]

    logits = forward(ids, positions).repeat_interleave(samples, 0)
    cache.batch_repeat_interleave(samples)
    mask = mask.repeat_interleave(samples, 0)
    position = mask.sum(1)
    alive = torch.arange(rows)  # the rows in the batch, in order; some may have ended already
    for step in range(max_new_tokens):
        drawn = _invert(logits, uniform[alive, step], temperature)
        running = ~ended[alive]
        tokens[alive[running], step] = drawn[running]
        finished = alive[running & (drawn == end)]
        ended[finished] = True
        lengths[finished] = step + 1
        left = ~ended[alive]
        if progress is not None:
            progress(step + 1, int(left.sum()))
        if not left.any() or step + 1 == max_new_tokens:
            break
        if left.sum() <= (1 - _DROP) * len(alive):
            keep = left.nonzero()[:, 0]
            cache.batch_select_indices(keep.to(device))
            alive, drawn, mask, position = alive[keep], drawn[keep], mask[keep], position[keep]
        mask = torch.cat([mask, torch.ones((len(alive), 1), dtype=mask.dtype)], 1)
        logits, position = forward(drawn[:, None], position[:, None]), position + 1
    shape = (len(prompts), samples)
    return Continuations(tokens.reshape(*shape, -1), lengths.reshape(shape), ended.reshape(shape))


class _GrowingLayer(DynamicLayer):
    """A cache layer that writes new tokens in place: the parent copies the whole cache for each of them."""

    _room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all of them."""
        if not self.is_initialized or self.keys.numel() == 0:
            return super().update(key_states, value_states)
        used = self.keys.shape[-2]
        needed = used + key_states.shape[-2]
        # Selecting or repeating rows has replaced the views by copies.
        if self._room is None or self.keys.data_ptr() != self._room[0].data_ptr() or needed > self._room[0].shape[-2]:
            self._room = tuple(self._widened(part, max(2 * used, needed)) for part in (self.keys, self.values))
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[..., used:needed, :] = new
        self.keys, self.values = (room[..., :needed, :] for room in self._room)
        return self.keys, self.values

    @staticmethod
    def _widened(part: Tensor, length: int) -> Tensor:
        room = part.new_empty((*part.shape[:-2], length, part.shape[-1]))
        room[..., : part.shape[-2], :] = part
        return room


def _cache(config: Any) -> DynamicCache:
    cache = DynamicCache(config=config)
    cache.layers = [_GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def _invert(
    logits: Float[Tensor, "rows vocabulary"], uniform: Float[Tensor, " rows"], temperature: float
) -> Int64[Tensor, " rows"]:
    """The token at which each row's cumulative probability passes its uniform number."""
    cumulative = torch.softmax(logits.float() / temperature, -1).cumsum(-1, dtype=torch.float64).cpu()
    # The total is one up to rounding. Below it a token of positive probability is always found; "right" skips those of
    # probability zero where the uniform number is exactly zero.
    return torch.searchsorted(cumulative, (uniform * cumulative[:, -1])[:, None], right=True)[:, 0].clamp(
        max=logits.shape[-1] - 1
    )


def _left_padded(prompts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    ids = torch.zeros((len(prompts), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    return ids, mask


def _check(prompts: Sequence[Tensor], samples: int, max_new_tokens: int, end: int, temperature: float) -> None:
    if not len(prompts):
        raise InputError("prompts is empty; give at least one tensor of token ids")
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, Tensor) or prompt.ndim != 1 or not len(prompt) or prompt.dtype not in _IDS:
            raise InputError(f"prompts[{index}] must be a non-empty vector of integer token ids")
    for name, value, least in (("samples", samples, 1), ("max_new_tokens", max_new_tokens, 1), ("end", end, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name}={value!r} must be an integer of at least {least}")
    if not isinstance(temperature, int | float) or not 0 < temperature < float("inf"):
        raise InputError(f"temperature={temperature!r} must be a positive number; 1 leaves the distribution as it is")
