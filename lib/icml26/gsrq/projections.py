"""Where keys and values leave a model's projections: hooks that read them there or put others in their place.

Keys before the rotary embedding are what leaves ``k_proj``, or ``k_norm`` in models that normalise keys (of those only
the families whose order of heads and tokens is known here, such as Gemma 3 and Qwen3); values leave ``v_proj``. One row
holds the KV heads of a token side by side, as GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4) cuts them into
sub-vectors. `activations` collects them, `language` measures losses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from icml26.checks import is_integer
from icml26.errors import InputError, nearest

__all__ = [
    "KINDS",
    "Place",
    "Replacement",
    "as_rows",
    "check_head",
    "decoder_of",
    "head_loss",
    "hooked",
    "places_of",
    "replaced",
    "windows_on",
]

KINDS = ("key", "value")

Place = tuple[int, str]
"""A layer, counted from 0, and "key" or "value"."""

Replacement = Callable[[Float32[np.ndarray, "tokens channels"]], Float[np.ndarray, "tokens channels"]]
"""What is made of the keys or values of one window, oldest token first; an array of the same shape."""

# What k_norm sees in each family: (batch, heads, tokens, size), or (batch, tokens, heads, size) or (batch, tokens,
# channels). Others may norm keys after RoPE.
_HEADS_FIRST = ("apertus", "exaone4", "gemma3", "gemma3_text")
_TOKENS_FIRST = ("olmo2", "olmo3", "qwen3", "qwen3_moe")

_HEAD_TOKENS = 8  # enough to tell whether logits are those of the model


@contextmanager
def replaced(model: Any, functions: Mapping[Place, Replacement]) -> Iterator[None]:
    """Replace keys before RoPE and values wherever the model runs inside, without a cache: a teacher-forced test.

    Parameters
    ----------
    model
        A causal language model of `transformers`; any batch of windows without padding may be run.
    functions
        ``{(layer, "key" or "value"): function}``; each window is given to the function on its own. What it returns is
        what the layer attends to.

    Raises
    ------
    InputError
        If a place is unknown, or a function returns another shape or numbers that are not finite.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, _ = load_lm("tiny-random-llama")
    >>> tokens = torch.arange(6)[None]
    >>> with torch.no_grad(), replaced(model, {(0, "value"): lambda x: 0 * x}):
    ...     changed = model(tokens).logits
    >>> bool((changed - model(tokens).logits).abs().max() > 0.01)
    True
    """
    with ExitStack() as stack:
        for place, function in functions.items():
            stack.enter_context(hooked(model, _place(model, place), _replacer(place, function)))
        yield


def head_loss(
    model: Any, hidden: Float[Tensor, "tokens width"], targets: Int64[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Cross-entropy of given tokens from the decoder's last states, after its final norm.

    Parameters
    ----------
    model
        A causal language model of `transformers` that `check_head` lets through.
    hidden
        States at the tokens before.
    targets
        The tokens to predict.

    Returns
    -------
    tensor
        Nats per token, in float32 at least.
    """
    logits = _logits(model, hidden)
    return nn.functional.cross_entropy(
        logits.to(torch.promote_types(logits.dtype, torch.float32)), targets, reduction="none"
    )


def check_head(model: Any, window: Int64[Tensor, " tokens"]) -> None:
    """Make sure that logits made from the decoder's last states are the model's own.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    window
        Tokens, of which the first few are read.

    Raises
    ------
    InputError
        If they differ: the model scales its logits, as Granite and Cohere do, or changes them otherwise.
    """
    first = window[None, :_HEAD_TOKENS]
    with torch.no_grad():
        own = model(input_ids=first, use_cache=False).logits.float()
        ours = _logits(model, decoder_of(model)(input_ids=first, use_cache=False).last_hidden_state).float()
    if not torch.allclose(ours, own, rtol=1e-2, atol=1e-2 * float(own.abs().max())):
        raise InputError(
            f"model of type {type(model).__name__} changes its logits after the output embedding: its losses are not"
            " those measured here, use a model built like Llama"
        )


@contextmanager
def hooked(model: Any, place: Place, change: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Call a function wherever keys or values of a layer leave their projection.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    place
        Layer and kind, as `places_of` returns them.
    change
        Called with the states (batch, tokens, channels), heads side by side; a tensor that it returns takes their
        place.
    """
    attention = decoder_of(model).layers[place[0]].self_attn
    normalised = place[1] == "key" and hasattr(attention, "k_norm")
    before = normalised and model.config.get_text_config(decoder=True).model_type in _HEADS_FIRST

    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
        heads = output.transpose(1, 2) if before else output
        made = change(heads.flatten(2))
        if made is None:
            return None
        made = made.reshape(heads.shape)
        return made.transpose(1, 2) if before else made

    name = "k_norm" if normalised else {"key": "k_proj", "value": "v_proj"}[place[1]]
    handle = getattr(attention, name).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def as_rows(states: Float[Tensor, "batch length channels"]) -> Float32[np.ndarray, "tokens channels"]:
    """Copy states out of torch, the tokens of all windows one after the other.

    Parameters
    ----------
    states
        On any device.

    Returns
    -------
    float32 array
        Rows.
    """
    return states.flatten(0, 1).to("cpu", torch.float32).numpy()


def decoder_of(model: Any) -> Any:
    """Return the stack of layers of a model.

    Parameters
    ----------
    model
        A causal language model of `transformers`.

    Returns
    -------
    module
        With ``layers``, without the output embedding.

    Raises
    ------
    InputError
        If the model has none.
    """
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    if not hasattr(decoder, "layers"):
        raise InputError(
            f"model of type {type(model).__name__} has no decoder with layers: give a causal language model"
        )
    return decoder


def windows_on(model: Any, tokens: Tensor, least: int = 1) -> Int64[Tensor, "windows length"]:
    """Check windows of tokens and bring them to the model's device.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    tokens
        Windows without padding.
    least
        Fewest tokens of a window.

    Returns
    -------
    int64 tensor
        On the device of the model's embedding.

    Raises
    ------
    InputError
        If they are no windows of tokens.
    """
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64 or tokens.ndim != 2:
        raise InputError("tokens must be an int64 tensor of shape (windows, length), such as language.windows makes")
    if not len(tokens) or tokens.shape[1] < least:
        raise InputError(f"tokens of shape {tuple(tokens.shape)} must be at least one window of {least} tokens")
    embedding = decoder_of(model).embed_tokens.weight
    if not 0 <= int(tokens.min()) <= int(tokens.max()) < len(embedding):
        raise InputError(f"tokens must be ids from 0 to {len(embedding) - 1}: use the model's own tokenizer")
    return tokens.to(embedding.device)


def places_of(model: Any, layers: Iterable[int]) -> list[Place]:
    """Name the keys and values of some layers.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    layers
        Counted from 0.

    Returns
    -------
    list
        ``(layer, "key")`` and ``(layer, "value")`` for each layer, ascending.

    Raises
    ------
    InputError
        If no layer is given, there is no such layer, or it has no projections with the usual names.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> places_of(load_lm("tiny-random-llama")[0], [1])
    [(1, 'key'), (1, 'value')]
    """
    if is_integer(layers):
        raise InputError(f"layers={layers!r} must be a list, such as [{layers!r}]")
    chosen = sorted(set(layers))
    if not chosen:
        raise InputError("layers are missing: name at least one, counted from 0")
    return [_place(model, (layer, kind)) for layer in chosen for kind in KINDS]


def _logits(model: Any, hidden: Tensor) -> Tensor:
    logits = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(decoder=True), "final_logit_softcapping", None)
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _place(model: Any, place: Place) -> Place:
    depth = len(decoder_of(model).layers)
    if not isinstance(place, tuple) or len(place) != 2 or not is_integer(place[0]) or not 0 <= place[0] < depth:
        raise InputError(f"place {place!r} must be (layer, kind) with a layer from 0 to {depth - 1}")
    if place[1] not in KINDS:
        raise InputError(f"place {place!r}: its kind must be 'key' or 'value'{nearest(str(place[1]), KINDS)}")
    attention = getattr(decoder_of(model).layers[place[0]], "self_attn", None)
    if not (hasattr(attention, "k_proj") and hasattr(attention, "v_proj")):
        raise InputError(f"layer {place[0]} has no self_attn with k_proj and v_proj: use a model built like Llama")
    family = model.config.get_text_config(decoder=True).model_type
    if hasattr(attention, "v_norm") or (hasattr(attention, "k_norm") and family not in _HEADS_FIRST + _TOKENS_FIRST):
        known = ", ".join(_HEADS_FIRST + _TOKENS_FIRST)
        raise InputError(f"model_type={family!r} normalises keys or values where is not known; known are {known}")
    return place


def _replacer(place: Place, function: Replacement) -> Callable[[Tensor], Tensor]:
    def replace(states: Tensor) -> Tensor:
        made = []
        for window in states:
            rows = as_rows(window[None])
            new = np.asarray(function(rows), dtype=np.float32)
            if new.shape != rows.shape or not np.isfinite(new).all():
                raise InputError(f"the function of {place} must return finite numbers of shape {rows.shape}")
            made.append(torch.from_numpy(np.ascontiguousarray(new)))
        return torch.stack(made).to(states)

    return replace
