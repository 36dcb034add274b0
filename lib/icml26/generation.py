"""Ancestral sampling from a causal language model, many continuations at a time.

``sample(model, prompts, samples=20, ...)`` draws several continuations of every prompt in one batch with a key-value
cache, drops rows as they end, and returns their tokens. Row ``i`` consumes its own row of uniform numbers by inverting
the cumulative distribution, so that what is drawn for it does not depend on which other rows have ended or on how rows
are grouped (up to rounding in the model). Prompts of different lengths are padded on the left and masked.

What changes the distribution comes in as ``processors``, those of ``transformers`` (temperature, top-p, ...) or one's
own, and what is read off it on the way, such as a confidence of each step, as ``measure``. What ends a continuation is
one token; beams and stopping strings are left to ``transformers.GenerationMixin.generate``.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["Continuations", "sample"]

# Rows that have ended are dropped once they are this share of the batch: dropping copies the whole cache.
_DROP = 0.2
_ROWS_AT_A_TIME = 32  # moved within a cache: what is copied meanwhile stays small
_IDS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

_Logits = Float32[Tensor, "rows vocabulary"]
_Processor = Callable[[Int64[Tensor, "rows tokens"], _Logits], _Logits]
_Measure = Callable[[_Logits], Float[Tensor, "rows *values"]]


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
    measured : Tensor, shape (prompts, samples, max_new_tokens) or (prompts, samples, max_new_tokens, values), or None
        What ``measure`` gave at the step that drew each token; NaN after the end token. None without ``measure``.
    """

    tokens: Int64[Tensor, "prompts samples max_new_tokens"]
    lengths: Int64[Tensor, "prompts samples"]
    ended: Bool[Tensor, "prompts samples"]
    measured: Float32[Tensor, "prompts samples max_new_tokens *values"] | None = None


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
    processors: Sequence[_Processor] = (),
    measure: _Measure | None = None,
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
        Divides the logits, after the processors. To warp what a temperature has changed, as
        ``transformers.GenerationMixin.generate`` does, put a ``TemperatureLogitsWarper`` before the other processors
        and leave this at 1.
    processors : sequence of transformers.LogitsProcessor
        Called in order as ``processor(input_ids, logits)`` on the raw logits in float32, of shape (rows, vocabulary);
        -inf forbids a token. The ids hold prompt and drawn tokens, padded with 0 on the left; those of ended rows,
        which stay in the batch for a while, repeat the end token. Rows are dropped on the way, so that a processor must
        hold no state of its own for each row.
    measure : callable, optional
        Called at each step on the raw logits in float32, before any processor; returns a tensor of shape (rows,) or
        (rows, values).
    progress : callable, optional
        Called after each step with the step and the number of rows still running.

    Returns
    -------
    Continuations

    Raises
    ------
    InputError
        If there is no prompt, a prompt is empty or not a vector of the model's token ids, a number is out of range, the
        generator is none, a processor or the measure gives another shape, or no token is left to draw.

    Examples
    --------
    >>> from icml26 import models
    >>> model, _ = models.load_lm("tiny-random-llama")
    >>> drawn = sample(model, [torch.tensor([3, 1, 4])], samples=5, max_new_tokens=8, end=0,
    ...                generator=torch.Generator().manual_seed(0), measure=lambda logits: logits.softmax(-1).amax(-1))
    >>> drawn.tokens.shape, bool((drawn.lengths <= 8).all()), drawn.measured.shape
    (torch.Size([1, 5, 8]), True, torch.Size([1, 5, 8]))
    """
    samples = whole("samples", samples, 1)
    max_new_tokens = whole("max_new_tokens", max_new_tokens, 1)
    end = whole("end", end, 0)
    temperature = real("temperature", temperature, above=0)
    _check_prompts(prompts, model.get_input_embeddings().num_embeddings)
    _check_calls(generator, processors, measure)
    ids, mask = _left_padded(prompts)
    rows, longest = len(prompts) * samples, ids.shape[1]
    uniform = torch.rand((rows, max_new_tokens), generator=generator, dtype=torch.float64)
    tokens = torch.full((rows, max_new_tokens), end)
    lengths = torch.full((rows,), max_new_tokens)
    ended = torch.zeros(rows, dtype=torch.bool)
    measured = None

    device = model.device
    ids, mask = ids.to(device), mask.to(device)
    cache = _cache(model.config)
    padded = not bool(mask.all())  # without a mask, attention takes its fast path

    def forward(ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        known = {"attention_mask": mask} if padded else {}
        out = model(input_ids=ids, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1, **known)
        return out.logits[:, -1]

    logits = forward(ids, (mask.cumsum(1) - 1).clamp(min=0), mask).repeat_interleave(samples, 0)
    cache.batch_repeat_interleave(samples)
    position = mask.sum(1).repeat_interleave(samples)
    mask = torch.cat([mask, mask.new_ones((len(prompts), max_new_tokens))], 1).repeat_interleave(samples, 0)
    context = ids.repeat_interleave(samples, 0) if processors else None
    alive = torch.arange(rows)  # the rows in the batch, in order; some may have ended already
    for step in range(max_new_tokens):
        logits, running = logits.float(), ~ended[alive]
        if measure is not None:
            values = measure(logits)
            _check_measured(values, len(alive))
            if measured is None:
                measured = torch.full((rows, max_new_tokens, *values.shape[1:]), torch.nan)
            measured[alive[running], step] = values.float().cpu()[running]
        for processor in processors:
            shape, logits = logits.shape, processor(context, logits)
            if getattr(logits, "shape", None) != shape:
                raise InputError(f"processor {processor!r} must return logits of shape {tuple(shape)}, as it gets them")
        drawn, possible = _invert(logits, uniform[alive, step], temperature)
        if not possible[running].all():
            prompt = int(alive[running & ~possible][0]) // samples
            raise InputError(
                f"logits of prompts[{prompt}] leave no token to draw at step {step + 1}: all are -inf, or some are NaN "
                f"or +inf; {'let the processors keep a token' if processors else 'load the model in another precision'}"
            )
        drawn[~running] = end
        tokens[alive, step] = drawn
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
            alive, drawn = alive[keep], drawn[keep]
            keep = keep.to(device)
            cache.batch_select_indices(keep)
            mask, position = mask[keep], position[keep]
            context = context[keep] if processors else None
        drawn = drawn[:, None].to(device)
        if processors:
            context = torch.cat([context, drawn], 1)
        logits = forward(drawn, position[:, None], mask[:, : longest + step + 1])
        position = position + 1
    shape = (len(prompts), samples)
    return Continuations(
        tokens.reshape(*shape, -1),
        lengths.reshape(shape),
        ended.reshape(shape),
        None if measured is None else measured.unflatten(0, shape),
    )


class _GrowingLayer(DynamicLayer):
    """A cache layer that writes new tokens and drops rows in place: the parent copies the whole cache for each."""

    _room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all of them."""
        if not self.is_initialized or self.keys.numel() == 0:
            return super().update(key_states, value_states)
        used = self.keys.shape[-2]
        needed = used + key_states.shape[-2]
        if not self._in_room() or needed > self._room[0].shape[-2]:
            self._room = tuple(self._widened(part, max(2 * used, needed)) for part in (self.keys, self.values))
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[..., used:needed, :] = new
        self._view(needed)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows, given in ascending order."""
        if not self._in_room():
            super().batch_select_indices(indices)
            return
        used, kept = self.keys.shape[-2], len(indices)
        for start in range(0, kept, _ROWS_AT_A_TIME):  # no row moves down before what lay there has
            rows = slice(start, min(start + _ROWS_AT_A_TIME, kept))
            for room in self._room:
                room[rows, :, :used] = room[indices[rows], :, :used]
        self._room = tuple(room[:kept] for room in self._room)
        self._view(used)

    def _in_room(self) -> bool:
        # Repeating rows replaces the views by copies.
        return self._room is not None and self.keys.data_ptr() == self._room[0].data_ptr()

    def _view(self, length: int) -> None:
        self.keys, self.values = (room[..., :length, :] for room in self._room)

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
) -> tuple[Int64[Tensor, " rows"], Bool[Tensor, " rows"]]:
    """The token at which each row's cumulative probability passes its uniform number, and whether there is one."""
    cumulative = torch.softmax(logits / temperature, -1).cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # The total is one up to rounding. Below it a token of positive probability is always found; "right" skips those of
    # probability zero where the uniform number is exactly zero.
    found = torch.searchsorted(cumulative, uniform.to(total.device)[:, None] * total, right=True)[:, 0]
    # A total that is not a number comes of logits that are all -inf, or not numbers either.
    return found.clamp(max=logits.shape[-1] - 1).cpu(), (total[:, 0] > 0).cpu()


def _left_padded(prompts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    ids = torch.zeros((len(prompts), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    return ids, mask


def _check_prompts(prompts: Sequence[Tensor], vocabulary: int) -> None:
    if not len(prompts):
        raise InputError("prompts is empty; give at least one tensor of token ids")
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, Tensor) or prompt.ndim != 1 or not len(prompt) or prompt.dtype not in _IDS:
            raise InputError(f"prompts[{index}] must be a non-empty vector of integer token ids")
        low, high = int(prompt.min()), int(prompt.max())
        if low < 0 or high >= vocabulary:
            wrong = low if low < 0 else high
            raise InputError(f"prompts[{index}] holds {wrong}; give token ids from 0 to {vocabulary - 1}, the model's")


def _check_calls(generator: torch.Generator, processors: Sequence[_Processor], measure: _Measure | None) -> None:
    if not isinstance(generator, torch.Generator):
        raise InputError(f"generator={generator!r} must be a torch.Generator, such as torch.Generator().manual_seed(0)")
    if not isinstance(processors, Sequence) or not all(map(callable, processors)):
        raise InputError(f"processors={processors!r} must be a sequence, such as [transformers.TopPLogitsWarper(0.9)]")
    if measure is not None and not callable(measure):
        raise InputError(f"measure={measure!r} must be None or a function of the logits")


def _check_measured(values: Float[Tensor, "rows *values"], rows: int) -> None:
    if not isinstance(values, Tensor) or values.ndim not in (1, 2) or len(values) != rows:
        found = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else repr(values)
        raise InputError(f"measure gave {found}; return a tensor of shape ({rows},) or ({rows}, values), a row each")
