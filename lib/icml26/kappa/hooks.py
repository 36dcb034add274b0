"""Shift the residual stream of a running `transformers` model after some of its blocks.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782): the shift is computed from the output of a decoder
block at the last token of the prompt and added there, or to every token from some position on. Which shift is for the
caller: `icml26.kappa.intervention` has KAPPA's. Hooks run in the order of the blocks, each on states that the earlier
ones have shifted. They change no tensor in place, are gone when the context ends, by an exception too, and without any
shifts nothing is hooked at all.

A decoding step looks like a short prompt. So a forward pass counts as the end of a prompt only if nothing is in its
cache, or if it reaches the token that `prompt_length` names. Where it cannot be told from the passes where a prompt
ends (decoding without a cache, prompts fed in pieces, another turn on a filled cache), `prompt_length` has to be given.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from icml26.checks import is_integer, whole
from icml26.errors import InputError

__all__ = ["added", "blocks", "shifted"]

_LISTS = ("layers", "h", "blocks")  # what families of models call their list of blocks


def blocks(model: nn.Module) -> tuple[nn.Module, nn.ModuleList]:
    """Find the decoder of a causal language model and its blocks.

    Parameters
    ----------
    model
        Such as `transformers` loads.

    Returns
    -------
    decoder : nn.Module
        The module that runs the blocks.
    blocks : nn.ModuleList
        In order of depth.

    Raises
    ------
    InputError
        If there is no list of blocks where such models have it.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> decoder, found = blocks(load_lm("tiny-random-llama")[0])
    >>> type(decoder).__name__, len(found)
    ('LlamaModel', 2)
    """
    # Towers for images have blocks of their own, and come first in some models.
    text = model.get_decoder() if hasattr(model, "get_decoder") else model
    for decoder in (text or model).modules():
        for name in _LISTS:
            found = getattr(decoder, name, None)
            if isinstance(found, nn.ModuleList) and len(found):
                return decoder, found
    raise InputError(f"model is a {type(model).__name__} without a list of blocks: give a decoder-only transformer")


def added(
    hidden: Float[Tensor, "... length width"], step: Float[Tensor, "... 1 width"], chosen: Bool[Tensor, "... length 1"]
) -> Float[Tensor, "... length width"]:
    """Add a step to hidden states at some tokens, in their own precision.

    Parameters
    ----------
    hidden
        Hidden states; left as they are.
    step
        What is added, of any precision.
    chosen
        Where.

    Returns
    -------
    Tensor
        A new one of the type of `hidden`.

    Raises
    ------
    InputError
        If a sum is beyond that precision.

    Examples
    --------
    >>> states, step = torch.ones(2, 1, dtype=torch.float16), torch.tensor([[0.5]])
    >>> added(states, step, torch.tensor([[False], [True]])).flatten().tolist()
    [1.0, 1.5]
    """
    moved = torch.where(chosen, hidden + step.to(hidden.dtype), hidden)
    if hidden.dtype in (torch.float16, torch.bfloat16) and not (moved.isfinite() | ~chosen).all():
        raise InputError(f"shifted states are beyond {hidden.dtype}: use a smaller strength, or another precision")
    return moved


@contextmanager
def shifted(
    model: nn.Module,
    shifts: Mapping[int, Callable[[Float[Tensor, "batch width"]], Float[Tensor, "batch width"]]],
    *,
    positions: str = "last",
    start: int | Int[Tensor, " batch"] | None = None,
    attention_mask: Int[Tensor, "batch length"] | None = None,
    generated: bool = False,
    prompt_length: int | None = None,
) -> Iterator[None]:
    """Add shifts to the outputs of blocks while the context lasts.

    Parameters
    ----------
    model
        A causal language model; all its forward passes are seen, those of ``generate`` too.
    shifts
        For block l, counted from 0, a function from its output at the last token, as float32 (float64 of a float64
        model), to what is added to it.
    positions
        ``"last"``: the shift is added at the last token alone; ``"after"``: at every token from `start` to the last.
    start
        With ``"after"``: the first position that is shifted, counted in the padded prompt, one for all rows or one for
        each.
    attention_mask
        Of the prompts, padding zero. By default the one that the model is called with; the last token of a row is the
        last with a one. Without any mask no row is taken to be padded. A mask of four axes does not tell: of several
        rows this one has to be given.
    generated
        Whether tokens that are decoded after the prompt are shifted too, each by its own shift; that needs a cache.
    prompt_length
        Tokens of the padded prompt, cached ones included: each pass that reaches it from below shifts there. By default
        each pass with an empty cache ends a prompt, and the context refuses to start with a filled one.

    Raises
    ------
    InputError
        If there is no such block, arguments do not fit one another, or the first pass finds tokens in the cache though
        nothing says what they are.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> ids = tokenizer("two words", return_tensors="pt")
    >>> plain = model(**ids).logits
    >>> with shifted(model, {1: lambda last: torch.ones_like(last)}):
    ...     moved = model(**ids).logits
    >>> torch.equal(moved[:, :-1], plain[:, :-1]), torch.equal(moved[:, -1], plain[:, -1])
    (True, False)
    """
    decoder, layers = blocks(model)
    for layer in shifts:
        if not is_integer(layer) or not 0 <= layer < len(layers):
            raise InputError(f"layer {layer!r} is no block of the model: use 0 to {len(layers) - 1}")
    if positions not in ("last", "after"):
        raise InputError(f"positions={positions!r} must be 'last' or 'after'")
    if (positions == "after") != (start is not None):
        raise InputError(f"positions={positions!r} with start={start!r}: 'after' needs a start, 'last' takes none")
    if prompt_length is not None:
        whole("prompt_length", prompt_length, 1)
    state = _Pass(positions, start, attention_mask, generated, prompt_length)
    names = list(signature(decoder.forward).parameters)

    def before(module: nn.Module, arguments: tuple, named: dict[str, Any]) -> None:
        state.begin(dict(zip(names, arguments, strict=False)) | named)

    def hook(shift: Callable[[Tensor], Tensor]) -> Callable:
        def after(module: nn.Module, arguments: tuple, output: Any) -> Any:
            if not state.acts:
                return None
            if isinstance(output, Tensor):
                return state.moved(output, shift)
            return (state.moved(output[0], shift), *output[1:])

        return after

    with ExitStack() as stack:
        if shifts:
            stack.callback(decoder.register_forward_pre_hook(before, with_kwargs=True).remove)
            # Before other hooks: whatever records the output of a block records the shifted one.
            for layer, shift in shifts.items():
                stack.callback(layers[layer].register_forward_hook(hook(shift), prepend=True).remove)
        yield


class _Pass:
    """What the hooks of one context know about the forward pass that is running."""

    def __init__(self, positions: str, start: Any, mask: Tensor | None, generated: bool, end: int | None) -> None:
        self.positions, self.start, self.mask, self.generated, self.end = positions, start, mask, generated, end
        self.acts = False
        self._first, self._ids = True, None

    def begin(self, named: dict[str, Any]) -> None:
        """Decide from the arguments of the decoder whether this pass is shifted, and where its last tokens are."""
        cache = named.get("cache", named.get("past_key_values"))
        self.cached = int(cache.get_seq_length()) if cache is not None else 0
        given = next((named[name] for name in ("input_ids", "inputs_embeds") if named.get(name) is not None), None)
        if given is None:
            raise InputError("the model was called without input_ids and inputs_embeds: give it a prompt")
        rows, length = given.shape[:2]
        reached = self.cached + length
        if self._first and self.cached and self.end is None and not self.generated:
            raise InputError(
                f"the first pass finds {self.cached} tokens in the cache: say prompt_length={reached} if it ends the "
                "prompt, or generated=True if it decodes"
            )
        if self.end is None:
            self._alone(named.get("input_ids"), length)
        self._first = False
        prompt = self.cached == 0 if self.end is None else self.cached < self.end <= reached
        beyond = self.end is not None and reached > self.end
        if prompt and beyond and self.generated:
            raise InputError(
                f"a pass reaches token {reached}, beyond prompt_length={self.end}: generated=True needs a cache, so "
                "that what is decoded comes in passes of its own"
            )
        self.acts = prompt or (self.generated and (self.end is None or beyond))
        if self.acts:
            self._locate(named.get("attention_mask"), rows, length, prompt)

    def _alone(self, ids: Tensor | None, length: int) -> None:
        """Refuse passes that go on with an earlier one, of which nothing says where the prompt in them ends."""
        if self.cached and length > 1:
            raise InputError(
                f"a pass of {length} tokens finds {self.cached} in the cache: say prompt_length, the tokens of the "
                "whole prompt"
            )
        before, self._ids = self._ids, ids if not self.cached else None
        longer = before is not None and ids is not None and ids.shape == (len(before), before.shape[1] + 1)
        if not self.cached and longer and torch.equal(ids[:, :-1], before):
            raise InputError(
                f"a pass repeats the one before with a token more, as decoding without a cache does: say "
                f"prompt_length={before.shape[1]}, or use a context for each prompt"
            )

    def _locate(self, seen: Any, rows: int, length: int, prompt: bool) -> None:
        mask = self.mask if self.mask is not None and prompt else seen
        span = length if self.end is None or not prompt else self.end - self.cached  # tokens of the prompt in this pass
        at = torch.arange(length)
        self.last = torch.full((rows,), span - 1)
        if isinstance(mask, Tensor) and mask.ndim == 2:
            own = span if mask is self.mask and mask.shape[1] == self.end else length
            if len(mask) != rows or mask.shape[1] < own:
                raise InputError(f"attention_mask has shape {tuple(mask.shape)}: the pass has shape {(rows, length)}")
            used = mask[:, -own:][:, :span].cpu() != 0
            if not used.any(1).all():
                raise InputError("attention_mask has a row of padding alone: leave that prompt out")
            self.last = torch.where(used, at[:span], -1).max(1).values
        elif mask is not None and rows > 1 and length > 1:
            raise InputError(
                "attention_mask is not of shape (rows, tokens), so it does not tell what is padding: give one to "
                "applied(attention_mask=...)"
            )
        if self.positions == "last" or not prompt:
            self.chosen = at == self.last[:, None]
            return
        first = torch.as_tensor(self.start).cpu()
        if first.is_floating_point() or first.ndim > 1 or (first.ndim and len(first) != rows):
            raise InputError(f"start={self.start!r} must be one position, or one for each of {rows} rows")
        first = first - self.cached
        if (first < 0).any() or (first > self.last).any():
            raise InputError(
                f"start={self.start!r} must lie in the prompt, from {self.cached} (what is cached cannot be shifted) "
                "to its last token"
            )
        self.chosen = (at >= first.reshape(-1, 1)) & (at <= self.last[:, None])

    def moved(
        self, hidden: Float[Tensor, "batch length width"], shift: Callable
    ) -> Float[Tensor, "batch length width"]:
        """Add the shift of the last tokens at the chosen ones, in a new tensor."""
        rows = torch.arange(len(hidden), device=hidden.device)
        last = hidden[rows, self.last.to(hidden.device)]
        step = shift(last if last.dtype == torch.float64 else last.float())
        return added(hidden, step[:, None], self.chosen.to(hidden.device)[..., None])
