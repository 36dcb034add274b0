"""Loss of a language model whose keys and values are partly quantised, token by token, and the text it is measured on.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 5) reports perplexity with every token's keys and values
quantised, none kept in full precision: a teacher-forced pass in which keys before RoPE and values are replaced by their
reconstructions. Layers before the first quantised one do not change, so their output is computed once and each setting
starts from it. Text is split by position: nothing that is measured is near what codebooks or choices were made on.

Reading keys and values is for `activations`, quantisers for `residual`, `coupled` and `integers`, and which of them are
compared for `rates`.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike
from torch import Tensor, nn

from icml26 import tasks
from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.projections import (
    Place,
    Replacement,
    check_head,
    decoder_of,
    head_loss,
    places_of,
    replaced,
    windows_on,
)
from icml26.gsrq.vectors import real_array

__all__ = ["Corpus", "Evaluator", "block_means", "corpus", "windows"]

_LOGITS = 128  # tokens whose logits are held at a time


@dataclass(frozen=True, eq=False)
class Corpus:
    """Windows of one text for three purposes, from places that do not overlap.

    Attributes
    ----------
    name : str
        What the text is.
    calibration, validation, test : int64 tensor, windows x length
        Codebooks are fitted on the first, baselines chosen on the second, losses reported on the third.
    sha256 : str
        Of the whole text in UTF-8: that of Python's help differs between versions of Python.
    """

    name: str
    calibration: Int64[Tensor, "n_calibration length"]
    validation: Int64[Tensor, "n_validation length"]
    test: Int64[Tensor, "n_test length"]
    sha256: str


def windows(tokenizer: Any, text: str, length: int, limit: int) -> Int64[Tensor, "limit length"]:
    """Cut a text into windows of equal length, spread evenly over it.

    Parameters
    ----------
    tokenizer
        Of the model. Tokens that it puts at the front of every text, such as a Llama's ``<|begin_of_text|>``, open
        each window.
    text
        The text.
    length
        Tokens of a window, those at the front included.
    limit
        How many.

    Returns
    -------
    int64 tensor
        Token ids, without padding.

    Raises
    ------
    InputError
        If the text is too short or a number is out of range.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> windows(load_lm("tiny-random-llama")[1], "some words to read", length=4, limit=2).shape
    torch.Size([2, 4])
    """
    limit = whole("limit", limit, 1)
    front = _front(tokenizer)
    body = whole("length", length, len(front) + 2) - len(front)
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if len(ids) < limit * body:
        raise InputError(
            f"limit={limit} windows of length={length} need {limit * body} tokens, the text has {len(ids)}"
        )
    cut = tasks.segments(torch.tensor(ids), body, limit)
    return torch.cat([torch.tensor(front, dtype=torch.int64).expand(len(cut), -1), cut], dim=1)


def corpus(
    tokenizer: Any,
    name: str,
    *,
    calibration: int = 12,
    validation: int = 2,
    test: int = 2,
    length: int = 512,
    texts: tuple[str, str] | None = None,
) -> Corpus:
    """Cut a text into calibration, validation and test windows.

    Parameters
    ----------
    tokenizer
        Of the model.
    name
        ``"python"``, the language reference that ships with Python (`tasks.english_text`), ``"gsm8k"``, questions and
        solutions (`tasks.gsm8k_text`), or any other name where `texts` is given.
    calibration, validation, test
        Windows of each kind. The first are spread over the training part of the text, the others over the two halves
        of the part that is held out.
    length
        Tokens of a window.
    texts
        The training part and the part that is held out, for another text.

    Returns
    -------
    Corpus
        The windows.

    Raises
    ------
    InputError
        If the name is unknown and no texts are given, or the text is too short.
    MissingData
        If GSM8K is not on this machine.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> found = corpus(load_lm("tiny-random-llama")[1], "python", length=16)
    >>> found.calibration.shape, found.test.shape
    (torch.Size([12, 16]), torch.Size([2, 16]))
    """
    if texts is None:
        read = {"python": tasks.english_text, "gsm8k": tasks.gsm8k_text}.get(name)
        if read is None:
            raise InputError(f"name={name!r} must be 'python' or 'gsm8k', unless texts=(training, held out) are given")
        texts = read("train"), read("held-out")
    if not isinstance(texts, tuple | list) or [type(part) for part in texts] != [str, str]:
        raise InputError("texts must be two strings: the training part, and the part that is held out")
    training, held_out = texts
    # Cut between lines, so that no word is in both halves.
    half = held_out.find("\n", len(held_out) // 2) + 1 or len(held_out) // 2
    parts = {"calibration": training, "validation": held_out[:half], "test": held_out[half:]}
    sizes = {"calibration": calibration, "validation": validation, "test": test}
    cut = {part: windows(tokenizer, text, length, sizes[part]) for part, text in parts.items()}
    return Corpus(name=name, **cut, sha256=hashlib.sha256("".join(texts).encode()).hexdigest())


class Evaluator:
    """Per-token losses of fixed windows under different replacements of keys and values.

    Parameters
    ----------
    model
        A causal language model of `transformers`, built like Llama or Gemma 3.
    tokens
        Windows of at least two tokens, without padding.
    first_layer
        The first layer whose keys or values will be replaced, counted from 0: the model runs up to it once, here.
    progress
        Called with a line of text after each window.

    Raises
    ------
    InputError
        If the tokens are no windows, there is no such layer, or the model changes its logits after the output
        embedding (`projections.check_head`).

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> evaluator = Evaluator(model, windows(tokenizer, "some words to read here", 8, 2), first_layer=1)
    >>> before = evaluator.losses()
    >>> before.shape, bool(evaluator.losses({(1, "value"): lambda x: 0 * x}).mean() == before.mean())
    ((2, 7), False)
    """

    def __init__(
        self,
        model: Any,
        tokens: Int64[Tensor, "windows length"],
        first_layer: int,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._tokens = windows_on(model, tokens, least=2)
        check_head(model, self._tokens[0])
        self._first = places_of(model, [first_layer])[0][0]
        self._model = model
        layers = decoder_of(model).layers
        states: list[Tensor] = []
        # What else a layer is given (masks, angles) is the same for all windows, as they are equally long.
        self._given: dict[int, dict[str, Any]] = {}

        def keep(index: int) -> Callable[..., None]:
            def hook(_module: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any]) -> None:
                self._given[index] = {key: value for key, value in given.items() if key != "hidden_states"}
                if index == self._first:
                    states.append(inputs[0] if inputs else given["hidden_states"])

            return hook

        for number, window in enumerate(self._tokens, 1):
            with ExitStack() as stack, torch.no_grad():
                for index in range(self._first, len(layers)):
                    handle = layers[index].register_forward_pre_hook(keep(index), with_kwargs=True)
                    stack.callback(handle.remove)
                decoder_of(model)(input_ids=window[None], use_cache=False)
            if progress:
                progress(f"the first {self._first} layers on window {number} of {len(self._tokens)}")
        self._states = states
        self._unchanged: Float64[np.ndarray, "windows length-1"] | None = None  # kept, as several comparisons need it

    @property
    def channels(self) -> int:
        """Keys of one token in one layer, as many as values."""
        return decoder_of(self._model).layers[self._first].self_attn.k_proj.out_features

    @property
    def length(self) -> int:
        """Tokens of a window."""
        return self._tokens.shape[1]

    def losses(self, functions: Mapping[Place, Replacement] | None = None) -> Float64[np.ndarray, "windows length-1"]:
        """Measure the loss of every token but a window's first.

        Parameters
        ----------
        functions
            ``{(layer, "key" or "value"): function}`` as for `projections.replaced`; nothing is replaced by default.

        Returns
        -------
        float64 array
            Cross-entropy in nats of tokens 1, 2, ... of each window, given those before.

        Raises
        ------
        InputError
            If a layer lies before the first one, or a function returns something else than its argument's shape.
        """
        functions = functions or {}
        if not functions and self._unchanged is not None:
            return self._unchanged.copy()
        early = [place for place in functions if isinstance(place, tuple) and place and place[0] < self._first]
        if early:
            raise InputError(f"place {early[0]!r} lies before first_layer={self._first}: make another Evaluator")
        decoder, found = decoder_of(self._model), []
        with torch.no_grad(), replaced(self._model, functions):
            for window, hidden in zip(self._tokens, self._states, strict=True):
                for index, given in self._given.items():
                    made = decoder.layers[index](hidden, **given)
                    hidden = made[0] if isinstance(made, tuple) else made
                hidden = decoder.norm(hidden)[0, :-1]
                parts = zip(hidden.split(_LOGITS), window[1:].split(_LOGITS), strict=True)
                losses = torch.cat([head_loss(self._model, states, targets) for states, targets in parts])
                found.append(losses.double().cpu().numpy())
        if not functions:
            self._unchanged = np.stack(found)
        return np.stack(found)


def block_means(losses: ArrayLike, block: int = 64) -> Float64[np.ndarray, " blocks"]:
    """Average losses over blocks of consecutive tokens, the units that are resampled.

    Parameters
    ----------
    losses : array-like, windows x tokens
        Of `Evaluator.losses`: the first loss is that of a window's second token.
    block
        Tokens of a block, counted from a window's start; a window's first block lacks its first token, for which there
        is no loss, and its last block may be shorter.

    Returns
    -------
    float64 array
        Nats per token, the blocks of all windows one after the other.

    Raises
    ------
    InputError
        If the losses are no finite matrix or the block is no integer of at least 2.

    Examples
    --------
    >>> block_means([[1.0, 3.0, 5.0]], block=2).tolist()
    [1.0, 4.0]
    """
    array = real_array("losses", losses).astype(np.float64)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InputError(f"losses of shape {array.shape} must be a matrix (windows, tokens) of finite numbers")
    starts = np.arange(0, array.shape[1] + 1, whole("block", block, 2)) - 1
    starts[0] = 0
    starts = starts[starts < array.shape[1]]
    sizes = np.diff(starts, append=array.shape[1])
    return (np.add.reduceat(array, starts, axis=1) / sizes).ravel()


def _front(tokenizer: Any) -> list[int]:
    """Tokens that open every text."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    return full[: full.index(plain[0])] if plain and plain[0] in full else []
