"""Run multiple-choice prompts through a language model: hidden states of every block, logits of the options' symbols.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). Its hidden state is the output of a decoder block
at the last token of the prompt, before the answer; of the last block too, where `transformers` itself reports what the
final norm made of it. `collect` reads it with forward hooks. Prompts whose last lines have as many tokens run together,
padded on the left, if the model takes positions; otherwise those of equal length. A beginning that several of them
share, such as the question in all orders of its options, is computed once.

`Prepared` answers the same prompts under an intervention. An intervention on the last token leaves keys and values of
all earlier tokens as they were, and outputs of the blocks before the first one that it changes: with both kept, one
setting costs one token a prompt through the remaining blocks, and of the unembedding only the symbols' rows. On all
tokens of the last line it costs those tokens. What comes out is what a forward pass over the whole prompt gives, up to
rounding.

Making prompts is left to `icml26.multiple_choice`, interventions to `icml26.kappa.intervention` and
`icml26.kappa.baselines`.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from icml26.checks import is_integer, real, whole
from icml26.errors import InputError
from icml26.kappa.hooks import blocks

__all__ = ["Collected", "Intervention", "Prepared", "collect", "early_logits", "last_line"]


class Intervention(Protocol):
    """What `Prepared.answers` takes, such as `Kappa` and `Steering`.

    Attributes
    ----------
    positions : str
        ``"last"``, or ``"after"`` for all tokens of the last line.
    vectors or pairs : mapping
        By the blocks that it changes.
    applied : callable
        ``applied(model, start=..., prompt_length=...)`` is a context, as of `icml26.kappa.hooks.shifted`.
    """

    positions: str
    applied: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Collected:
    """What a model made of some prompts.

    Attributes
    ----------
    hidden : float32 array, prompts x layers x width
        Output of every block at the last token, before the final norm.
    logits : float64 array, prompts x options
        Of the options' symbols as the next token.
    appended : float32 array, prompts x tokens x layers x width, or None
        Output of every block at a token put after the prompt, for each of those asked for.
    prepared : Prepared or None
        The means to intervene, if kept.
    """

    hidden: Float[np.ndarray, "prompts layers width"]
    logits: Float[np.ndarray, "prompts options"]
    appended: Float[np.ndarray, "prompts tokens layers width"] | None = None
    prepared: "Prepared | None" = None


class _Group(NamedTuple):
    """Prompts padded to equal length whose last lines start at the same token."""

    rows: list[int]
    tokens: Int[Tensor, "rows length"]
    mask: Int[Tensor, "rows length"] | None  # None where nothing is padded
    start: int
    states: Float[Tensor, "layers rows line width"] | None  # outputs of blocks at the tokens of the last line
    cache: Any  # of all tokens; None where memory does not allow it

    @property
    def nbytes(self) -> int:
        if self.cache is None:
            return 0
        return self.states.nbytes + sum(
            part.nbytes for layer in self.cache.layers for part in (layer.keys, layer.values)
        )


@torch.inference_mode()
def collect(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    symbol_ids: Sequence[int],
    *,
    appended: Int[np.ndarray, "prompts tokens"] | None = None,
    keep_cache: bool = False,
    memory: float = 4e9,
    batch: int = 64,
    special_tokens: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Collected:
    """Run prompts and keep their hidden states at the last token.

    Parameters
    ----------
    model
        A causal language model of `transformers`, on its device.
    tokenizer
        Its tokenizer; None if the prompts are rows of tokens.
    prompts
        Texts, or rows of tokens; of the latter the last line is taken to be the last token.
    symbol_ids
        Tokens of the options' symbols.
    appended
        For each prompt, tokens that are put after it, one at a time.
    keep_cache
        Whether `Collected.prepared` is made. It keeps keys and values of all tokens: 46 kB a token of SmolLM2.
    memory
        Bytes that may be kept, at most. Prompts beyond it are run as a whole for every answer.
    batch
        Prompts in one pass, at most.
    special_tokens
        Whether the tokenizer adds its own at the start; not where a chat template has.
    progress
        Called with one line of text after each pass.

    Returns
    -------
    Collected

    Raises
    ------
    InputError
        If there is no prompt, one is empty or longer than the model takes, a token is none of the model's, or the model
        is in training mode.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> found = collect(model, tokenizer, ["(A): plum\\nAnswer: (", "It is ("], [36, 37], keep_cache=True)
    >>> found.hidden.shape, found.logits.shape
    ((2, 2, 128), (2, 2))
    >>> bool(np.allclose(found.prepared.answers(None), found.logits, atol=1e-5))
    True
    """
    whole("batch", batch, 1)
    real("memory", memory, low=0)
    rows = _tokens(tokenizer, prompts, special_tokens)
    extra = _extra(appended, len(rows))
    if model.training:
        raise InputError("model is in training mode, in which dropout makes answers random: call its eval()")
    if len(set(symbol_ids)) < len(symbol_ids):
        raise InputError(f"symbol_ids={list(symbol_ids)} must be different tokens")
    vocabulary = model.get_input_embeddings().num_embeddings
    known = [*symbol_ids, *(token for row in rows for token in row), *extra.flatten().tolist()]
    if len(symbol_ids) < 2 or not all(is_integer(token) and 0 <= token < vocabulary for token in known):
        raise InputError(
            f"prompts, appended and two or more symbol_ids must be tokens of the model, 0 to {vocabulary - 1}"
        )
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(map(len, rows)) + bool(extra.size)
    if most and longest > most:
        raise InputError(f"prompts have up to {longest} tokens, the model takes {most}: shorten them")
    device = model.get_input_embeddings().weight.device
    starts = [
        last_line(tokenizer, prompt, special_tokens) if isinstance(prompt, str) else len(row) - 1
        for prompt, row in zip(prompts, rows, strict=True)
    ]
    layers = blocks(model)[1]
    hidden = np.empty((len(rows), len(layers), model.config.get_text_config().hidden_size), np.float32)
    after = np.empty((len(rows), extra.shape[1], *hidden.shape[1:]), np.float32)
    logits = np.empty((len(rows), len(symbol_ids)))
    groups, done, kept = [], 0, 0
    shapes = [(len(row) - start, len(row)) for row, start in zip(rows, starts, strict=True)]
    with _Captured(layers) as captured, _only(model, symbol_ids):
        for chosen in _batches(shapes, batch, "position_ids" in signature(model.forward).parameters):
            tokens, mask = _padded([rows[row] for row in chosen], device)
            line = shapes[chosen[0]][0]
            cache = _new_cache(model)
            shared, first, back = _beginning(tokens, mask, tokens.shape[1] - line)
            if shared:
                head = tokens[first, :shared]
                _last_logits(model, head, cache, symbol_ids, None if mask is None else mask[first, :shared])
                captured.taken()
                cache.batch_select_indices(back)
            captured.length = line if keep_cache else 1
            logits[chosen] = _last_logits(model, tokens[:, shared:], cache, symbol_ids, mask)
            states = captured.taken()
            hidden[chosen] = states[:, :, -1].transpose(0, 1).float().cpu()
            captured.length = 1
            for place, column in enumerate(extra[chosen].T):
                token = torch.tensor(column[:, None], device=device)
                longer = None if mask is None else torch.cat([mask, mask[:, -1:]], 1)
                _last_logits(model, token, _copied(cache), symbol_ids, longer)
                after[chosen, place] = captured.taken()[:, :, -1].transpose(0, 1).float().cpu()
            if keep_cache:
                group = _Group(chosen, tokens, mask, tokens.shape[1] - line, states, cache)
                kept += group.nbytes
                if kept > memory:
                    group = group._replace(states=None, cache=None)
                groups.append(group)
            done += len(chosen)
            if progress:
                progress(f"{done} of {len(rows)} prompts run")
    prepared = Prepared(model, list(symbol_ids), groups) if keep_cache else None
    return Collected(hidden, logits, after if extra.size else None, prepared)


class Prepared:
    """Prompts that a model can answer again and again under interventions; made by `collect`.

    Parameters
    ----------
    model
        The model, unchanged since.
    symbol_ids
        Tokens of the options' symbols.
    groups
        Prompts of equal length with their states and caches.
    """

    def __init__(self, model: nn.Module, symbol_ids: Sequence[int], groups: Sequence[_Group]) -> None:
        self.model, self.symbol_ids, self._groups = model, symbol_ids, groups

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept: keys, values, outputs of blocks."""
        return sum(group.nbytes for group in self._groups)

    @torch.inference_mode()
    def answers(
        self, intervention: Intervention | None, *, whole_prompt: bool = False
    ) -> Float[np.ndarray, "prompts options"]:
        """Return the logits of the symbols under an intervention.

        Parameters
        ----------
        intervention
            A `Kappa`, a `Steering`, or None for the model as it is.
        whole_prompt
            Whether to run all tokens and all blocks, to check or to time the way that does not.

        Returns
        -------
        float64 array, prompts x options
            In the order of the prompts.

        Raises
        ------
        InputError
            As the intervention does.

        Examples
        --------
        >>> from icml26.kappa.baselines import Steering
        >>> from icml26.models import load_lm
        >>> model, tokenizer = load_lm("tiny-random-llama")
        >>> prepared = collect(model, tokenizer, ["It is ("], [36, 37], keep_cache=True).prepared
        >>> steering = Steering({0: np.ones(128)})
        >>> quick, slow = prepared.answers(steering), prepared.answers(steering, whole_prompt=True)
        >>> bool(np.allclose(quick, slow, atol=1e-5))
        True
        """
        layers = blocks(self.model)[1]
        first = _first(intervention, len(layers))
        if first >= len(layers):
            raise InputError(f"layer {first} is no block of the model: use 0 to {len(layers) - 1}")
        after = intervention is not None and intervention.positions == "after"
        logits = np.empty((sum(len(group.rows) for group in self._groups), len(self.symbol_ids)))
        for group in self._groups:
            length = group.tokens.shape[1]
            tokens, cache = group.tokens, None
            with ExitStack() as stack:
                stack.enter_context(_only(self.model, self.symbol_ids))
                if group.cache is not None and not whole_prompt:
                    run = length - group.start if after else 1
                    tokens, cache = tokens[:, -run:], _copied(group.cache)
                    cache.crop(-run)
                    stack.enter_context(_resumed(layers, first, group.states[first][:, -run:]))
                if intervention is not None:
                    named = {"start": group.start} if after else {}
                    stack.enter_context(intervention.applied(self.model, prompt_length=length, **named))
                logits[group.rows] = _last_logits(self.model, tokens, cache, self.symbol_ids, group.mask)
        return logits


@torch.inference_mode()
def early_logits(
    model: nn.Module, hidden: Float[np.ndarray, "prompts width"], symbol_ids: Sequence[int] | None = None
) -> Float[Tensor, "prompts vocabulary"]:
    """Apply a model's final norm and unembedding to hidden states of any block.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    hidden
        Outputs of a block.
    symbol_ids
        Tokens whose logits are wanted; all of them by default.

    Returns
    -------
    Tensor, float32
        Logits.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> found = collect(model, tokenizer, ["It is (", "So ("], [36, 37])
    >>> logits = early_logits(model, found.hidden[:, -1], [36, 37])
    >>> bool(np.allclose(logits, found.logits, atol=1e-5))
    True
    """
    layers = blocks(model)[1]
    embedding = model.get_input_embeddings().weight
    states = torch.as_tensor(np.asarray(hidden)).to(embedding.device, embedding.dtype)[:, None]
    dummy = torch.zeros(len(states), 1, dtype=torch.long, device=embedding.device)
    ids = list(range(model.config.get_text_config().vocab_size)) if symbol_ids is None else symbol_ids
    with nullcontext() if symbol_ids is None else _only(model, ids), _resumed(layers, len(layers) - 1, states):
        logits = model(input_ids=dummy, use_cache=False).logits[:, -1]
    return (logits if logits.shape[1] == len(ids) else logits[:, ids]).float()


def last_line(tokenizer: Any, prompt: str, special_tokens: bool = True) -> int:
    """Find the first token of a prompt's last line: where the instruction ends and the answer begins.

    Parameters
    ----------
    tokenizer
        Of the model.
    prompt
        A text.
    special_tokens
        As of `collect`.

    Returns
    -------
    int
        Position, from 0.

    Examples
    --------
    >>> from icml26.models_tiny import byte_tokenizer
    >>> last_line(byte_tokenizer(), "1 + 1?\\n\\nIt is ("), last_line(byte_tokenizer(), "It is (")
    (8, 0)
    """
    ids = tokenizer(prompt, add_special_tokens=special_tokens)["input_ids"]
    before = prompt[: prompt.rfind("\n") + 1]
    if not before:
        return 0
    head = tokenizer(before, add_special_tokens=special_tokens)["input_ids"]
    # A tokenizer that ends texts with a token of its own, or joins line breaks with what follows, differs at the end.
    same = next((place for place, (one, other) in enumerate(zip(ids, head, strict=False)) if one != other), len(head))
    return min(same, len(ids) - 1)


def _tokens(tokenizer: Any, prompts: Sequence[Any], special_tokens: bool) -> list[list[int]]:
    if isinstance(prompts, str) or not len(prompts):
        raise InputError("prompts must be a list of at least one text or row of tokens")
    texts = [isinstance(prompt, str) for prompt in prompts]
    if any(texts) and (not all(texts) or tokenizer is None):
        raise InputError("prompts that are texts need a tokenizer, and none of them may be a row of tokens")
    if all(texts):
        rows = tokenizer(list(prompts), add_special_tokens=special_tokens)["input_ids"]
    else:
        rows = [list(prompt) for prompt in prompts]
    if not all(len(row) >= 2 for row in rows):
        raise InputError("prompts must have two tokens at least: the last one is where the answer is read")
    return rows


def _extra(appended: Any, prompts: int) -> Int[np.ndarray, "prompts tokens"]:
    if appended is None:
        return np.empty((prompts, 0), np.int64)
    appended = np.asarray(appended)
    if appended.ndim != 2 or len(appended) != prompts or appended.dtype.kind not in "iu":
        raise InputError(f"appended has shape {appended.shape}: give tokens, a row for each of {prompts} prompts")
    return appended.astype(np.int64)


def _batches(shapes: Sequence[tuple[int, int]], batch: int, padded: bool) -> Iterator[list[int]]:
    """Divide prompts with as long last lines, short ones first, into passes of about equal size."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for row, (line, length) in enumerate(shapes):
        alike.setdefault((line,) if padded else (line, length), []).append(row)
    for _, rows in sorted(alike.items()):
        rows.sort(key=lambda row: shapes[row][1])
        yield from (part.tolist() for part in np.array_split(rows, -(-len(rows) // batch)))


def _padded(
    rows: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "rows length"], Int[Tensor, "rows length"] | None]:
    """Pad on the left with each prompt's own first token."""
    length = max(map(len, rows))
    tokens = torch.tensor([[row[0]] * (length - len(row)) + list(row) for row in rows], device=device)
    if min(map(len, rows)) == length:
        return tokens, None
    mask = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows], device=device)
    return tokens, mask


def _beginning(
    tokens: Int[Tensor, "rows length"], mask: Int[Tensor, "rows length"] | None, most: int
) -> tuple[int, list[int], Int[Tensor, " rows"] | None]:
    """Find how many tokens to run once for all rows that share them: their number, rows that have them, whose they are.

    A share of the work has to be saved; every pass has costs of its own.
    """
    both = tokens.cpu().numpy() if mask is None else np.concatenate([tokens.cpu(), mask.cpu()], 1)
    length, best = tokens.shape[1], (0.9 * tokens.numel(), 0, None)
    for shared in range(1, most + 1):
        columns = np.r_[:shared] if mask is None else np.r_[:shared, length : length + shared]
        _, first, back = np.unique(both[:, columns], axis=0, return_index=True, return_inverse=True)
        work = len(first) * shared + len(tokens) * (length - shared)
        if work < best[0] and (mask is None or mask[:, shared - 1].all()):
            best = work, shared, (first.tolist(), torch.as_tensor(back.reshape(-1), device=tokens.device))
    return (0, [], None) if best[2] is None else (best[1], *best[2])


def _new_cache(model: nn.Module) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()  # so that sliding windows can give up their last tokens
    return cache


def _copied(cache: Any) -> Any:
    """Return a cache that grows by itself: dynamic layers never write into the tensors that they hold."""
    found = copy.copy(cache)
    found.layers = [copy.copy(layer) for layer in cache.layers]
    return found


def _last_logits(
    model: nn.Module, tokens: Tensor, cache: Any, symbol_ids: Sequence[int], mask: Tensor | None
) -> Float[np.ndarray, "rows options"]:
    named = {}
    if mask is not None:
        positions = (mask.cumsum(1) - 1).clip(0)
        named = {"attention_mask": mask, "position_ids": positions[:, -tokens.shape[1] :]}
    out = model(input_ids=tokens, cache=cache, use_cache=cache is not None, logits_to_keep=1, **named).logits[:, -1]
    return (out if out.shape[1] == len(symbol_ids) else out[:, symbol_ids]).double().cpu().numpy()


def _first(intervention: Intervention | None, layers: int) -> int:
    """Return the first block that an intervention changes; without one the last, which is the least to compute."""
    if intervention is None:
        return layers - 1
    changed = intervention.vectors if hasattr(intervention, "vectors") else intervention.pairs
    return min(changed, default=layers - 1)


@contextmanager
def _replaced(module: nn.Module, forward: Callable) -> Iterator[None]:
    """Put another function in the place of a module's own, inside its hooks."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


@contextmanager
def _resumed(layers: nn.ModuleList, last: int, states: Tensor) -> Iterator[None]:
    """Skip all blocks up to `last` but say that the last one skipped has put out `states`."""

    def passed(hidden_states: Tensor, *args: Any, **named: Any) -> Tensor:
        return hidden_states

    def given(hidden_states: Tensor, *args: Any, **named: Any) -> Tensor:
        return states

    with ExitStack() as stack:
        for layer in range(last):
            stack.enter_context(_replaced(layers[layer], passed))
        stack.enter_context(_replaced(layers[last], given))
        yield


@contextmanager
def _only(model: nn.Module, symbol_ids: Sequence[int]) -> Iterator[None]:
    """Compute only some rows of the unembedding, if it is a plain matrix."""
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear:
        yield
        return
    weight = head.weight[list(symbol_ids)]
    bias = None if head.bias is None else head.bias[list(symbol_ids)]
    with _replaced(head, lambda hidden: functional.linear(hidden, weight, bias)):
        yield


class _Captured(ExitStack):
    """Keeps each block's output at the last `length` tokens of a pass while the context lasts."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.length, self._found = 1, []
        for layer in layers:
            self.callback(layer.register_forward_hook(self._keep).remove)

    def _keep(self, module: nn.Module, arguments: tuple, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise InputError(f"model's blocks return a {type(output).__name__}: use one whose blocks return tensors")
        self._found.append(output[:, -self.length :])

    def taken(self) -> Float[Tensor, "layers rows tokens width"]:
        """Return what the last pass put out, and forget it."""
        states = torch.stack(self._found)
        self._found.clear()
        return states
