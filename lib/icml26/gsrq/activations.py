"""Keys and values of a causal language model: read them, their gradients, and put others in their place.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4 and appendix C) quantises keys before the rotary embedding, and
values, with the KV heads side by side: for one token and layer, one row of ``heads x head size`` channels. Keys are
therefore what leaves ``k_proj``, or ``k_norm`` in models that normalise keys; values leave ``v_proj``.
The gradient of the text's loss with respect to a sub-vector weighs that vector in the paper's calibration.

All work on models of `transformers` built like Llama, Gemma 3 or Qwen3 and refuse others, one window of text at a time;
only the layers that are asked for are held. Losses of a text with replaced keys and values are for `language`, weights
for `weights`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from numpy.typing import ArrayLike
from torch import Tensor, nn

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.projections import (
    Place,
    as_rows,
    check_head,
    decoder_of,
    head_loss,
    hooked,
    places_of,
    replaced,
    windows_on,
)
from icml26.gsrq.vectors import norms, real_array

__all__ = ["collect", "collect_gradients", "gradient_norms", "replaced"]

_LOGITS = 64  # tokens whose logits are held at a time


def collect(
    model: Any,
    tokens: Int64[Tensor, "windows length"],
    layers: Iterable[int],
    *,
    progress: Callable[[str], None] | None = None,
) -> dict[Place, Float32[np.ndarray, "tokens channels"]]:
    """Read the keys before RoPE and the values of some layers.

    Parameters
    ----------
    model
        A causal language model of `transformers`; it is run up to the last of the layers.
    tokens
        Windows of text, each read on its own.
    layers
        Counted from 0.
    progress
        Called with a line of text after each window.

    Returns
    -------
    dict
        ``{(layer, "key" or "value"): states}``; the windows' tokens one after the other.

    Raises
    ------
    InputError
        If the tokens are no windows, or the model has no such layer or other names for its projections.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, _ = load_lm("tiny-random-llama")
    >>> states = collect(model, torch.arange(12).reshape(2, 6), [1])
    >>> {place: array.shape for place, array in states.items()}
    {(1, 'key'): (12, 64), (1, 'value'): (12, 64)}
    """
    windows, places = windows_on(model, tokens), places_of(model, layers)
    last = decoder_of(model).layers[max(layer for layer, _ in places)]
    found: dict[Place, list[np.ndarray]] = {place: [] for place in places}
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(hooked(model, place, _recorder(found[place])))
        stack.enter_context(_stopped_after(last))
        for number, window in enumerate(windows, 1):
            with torch.no_grad(), suppress(_Stop):
                decoder_of(model)(input_ids=window[None], use_cache=False)
            _say(progress, f"keys and values of window {number} of {len(windows)}")
    return {place: np.concatenate(rows) for place, rows in found.items()}


def collect_gradients(
    model: Any,
    tokens: Int64[Tensor, "windows length"],
    layers: Iterable[int],
    *,
    progress: Callable[[str], None] | None = None,
) -> tuple[dict[Place, Float32[np.ndarray, "tokens channels"]], dict[Place, Float32[np.ndarray, "tokens channels"]]]:
    """Read keys and values as `collect` does, and the gradient of each window's loss with respect to them.

    The loss is the cross-entropy of the next token, summed over a window: a scale that the paper's weights do not see.
    The parameters take no gradients, and nothing before the first of the layers is remembered. The last token of a
    window predicts nothing, and its gradient is exactly 0.

    Parameters
    ----------
    model, tokens, layers, progress
        As in `collect`; windows of at least two tokens. The whole model is run.

    Returns
    -------
    states, gradients
        Two dictionaries as `collect` returns one.

    Raises
    ------
    InputError
        As in `collect`, or if the model changes its logits after the output embedding (`projections.check_head`).

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, _ = load_lm("tiny-random-llama")
    >>> states, gradients = collect_gradients(model, torch.arange(12).reshape(2, 6), [0])
    >>> gradients[0, "value"].shape, bool(gradients[0, "value"][5].any())
    ((12, 64), False)
    """
    windows, places = windows_on(model, tokens, least=2), places_of(model, layers)
    check_head(model, windows[0])
    states: dict[Place, list[np.ndarray]] = {place: [] for place in places}
    gradients: dict[Place, list[np.ndarray]] = {place: [] for place in places}
    with _frozen(model):
        for number, window in enumerate(windows, 1):
            # A zero that is added: its gradient is the projection's, and that of other layers passes through.
            added: dict[Place, Tensor] = {}
            with ExitStack() as stack:
                for place in places:
                    stack.enter_context(hooked(model, place, _recorder(states[place], place, added)))
                with torch.enable_grad():
                    hidden = decoder_of(model)(input_ids=window[None], use_cache=False).last_hidden_state
            leaf = hidden.detach().requires_grad_()
            with torch.enable_grad():
                for start in range(0, len(window) - 1, _LOGITS):
                    stop = min(start + _LOGITS, len(window) - 1)
                    head_loss(model, leaf[0, start:stop], window[start + 1 : stop + 1]).sum().backward()
            for place, gradient in zip(
                added, torch.autograd.grad(hidden, list(added.values()), leaf.grad), strict=True
            ):
                gradients[place].append(as_rows(gradient))
            _say(progress, f"gradients of window {number} of {len(windows)}")
    return tuple({place: np.concatenate(rows) for place, rows in found.items()} for found in (states, gradients))


def gradient_norms(
    gradients: Float[ArrayLike, "tokens channels"], dimension: int
) -> Float64[np.ndarray, "tokens positions"]:
    """Euclidean norm of the gradient of each sub-vector, as `weights` takes them.

    Parameters
    ----------
    gradients
        One of the arrays of `collect_gradients`.
    dimension
        D, channels of a sub-vector; a divisor of the channels.

    Returns
    -------
    float64 array
        Norms.

    Raises
    ------
    InputError
        If the gradients are no finite matrix or D does not divide its columns.

    Examples
    --------
    >>> gradient_norms([[3.0, 4.0, 0.0, 2.0]], 2).tolist()
    [[5.0, 2.0]]
    """
    array = real_array("gradients", gradients).astype(np.float64)
    dimension = whole("dimension", dimension, 1)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InputError(f"gradients of shape {array.shape} must be a matrix (tokens, channels) of finite numbers")
    if array.shape[1] % dimension:
        raise InputError(f"dimension={dimension} does not divide the {array.shape[1]} channels: use a divisor")
    return norms(array.reshape(-1, dimension)).reshape(len(array), -1)


class _Stop(Exception):
    """Raised to leave a forward pass early."""


@contextmanager
def _stopped_after(layer: nn.Module) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _Stop

    handle = layer.register_forward_hook(stop)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _frozen(model: Any) -> Iterator[None]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _recorder(
    found: list[np.ndarray], place: Place | None = None, added: dict[Place, Tensor] | None = None
) -> Callable[[Tensor], Tensor | None]:
    def record(states: Tensor) -> Tensor | None:
        found.append(as_rows(states.detach()))
        if added is None:
            return None
        added[place] = torch.zeros_like(states).requires_grad_()
        return states + added[place]

    return record


def _say(progress: Callable[[str], None] | None, line: str) -> None:
    if progress:
        progress(line)
