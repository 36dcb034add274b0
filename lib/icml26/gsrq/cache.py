"""A cache for `transformers` that keeps keys and values as packed codes of a residual quantiser.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4 and appendix C) quantises keys before the rotary embedding
(RoPE) and reads them as: unpack, look up, rotate, attend. A model hands its cache keys that are rotated already, so a
coded layer here rotates them back by the position ids that come with them, encodes, and keeps bytes and nothing else;
on reading it looks the codes up and rotates again. What a model attends to is always what was read back, in the prompt
too: generation, decoding token by token and one pass over a text see the same keys and values, and agree with a model
whose projections' outputs are replaced by their reconstructions.

Every token is quantised, there is no window in full precision, and all that is kept is decoded at every step: this
saves memory, not time, for which the paper has fused kernels. Batches, left padding, beam search, prompt lookup and
sliding windows work as with any cache. Fitting the quantisers is for `residual` and `coupled`, counting bytes for
`bits`, the arithmetic for `coder` and `rotary`.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from icml26.checks import is_integer
from icml26.errors import InputError
from icml26.gsrq.coder import Coder
from icml26.gsrq.rotary import Rotary

__all__ = ["CodedCache", "Quantizer"]

_KINDS = ("key", "value")


class Quantizer(Protocol):
    """What the cache needs of a fitted quantiser: `residual.ResidualQuantizer`, `coupled.CoupledQuantizer` or other."""

    codebooks: Float[np.ndarray, "positions stages codewords dimension"]


class CodedCache(DynamicCache):
    """Keys and values of chosen layers as packed codes, all others as they are.

    Pass it to ``model(..., past_key_values=cache)`` or ``model.generate(..., past_key_values=cache)`` (newer versions
    of `transformers` call the argument ``cache``); it is for one batch of sequences, and for another after ``reset()``.

    Parameters
    ----------
    config
        Of the model; if keys are coded, of one of `rotary.FAMILIES`.
    quantizers
        ``{(layer, "key" or "value"): fitted quantiser}``, layers from 0. Those of keys are fitted on keys before RoPE.
    stages
        Of each residual chain only the first so many stages are used; all by default.

    Raises
    ------
    InputError
        If a quantiser does not fit the model, or the model's keys cannot be rotated back.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> codebooks = np.random.default_rng(0).normal(size=(4, 2, 16, 16))  # 64 channels: 8 codes of 4 bits
    >>> cache = CodedCache(model.config, {(0, "key"): SimpleNamespace(codebooks=codebooks)})
    >>> prompt = tokenizer("ab", return_tensors="pt")
    >>> tokens = model.generate(**prompt, cache=cache, max_new_tokens=3, do_sample=False)
    >>> cache.get_seq_length(), cache.code_nbytes
    (4, 16)
    """

    def __init__(self, config: Any, quantizers: Mapping[tuple[int, str], Quantizer], stages: int | None = None) -> None:
        if not hasattr(config, "get_text_config"):
            raise InputError(f"config of type {type(config).__name__} must be the configuration of a model")
        config = config.get_text_config(decoder=True)
        super().__init__(config=config)
        if not isinstance(quantizers, Mapping) or not quantizers:
            raise InputError('quantizers must be a dictionary {(layer, "key" or "value"): fitted quantiser}')
        coders: dict[int, dict[str, Coder]] = {}
        for place, quantizer in quantizers.items():
            layer, kind = _checked(place, len(self.layers))
            coders.setdefault(layer, {})[kind] = _coder(place, quantizer, config, stages)
        for layer, own in coders.items():
            rotary = Rotary(config, layer) if "key" in own else None
            self.layers[layer] = _coded(self.layers[layer], own, rotary)
        self.positions: Int[Tensor, "batch tokens"] | None = None

    def update(
        self,
        key_states: Float[Tensor, "batch heads new size"],
        value_states: Float[Tensor, "batch heads new size"],
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Float[Tensor, "batch heads kept size"], Float[Tensor, "batch heads kept size"]]:
        """Keep the new keys and values of a layer and return all that it attends to; attention layers call this.

        Parameters
        ----------
        key_states
            After RoPE.
        value_states
            As many.
        layer_idx
            The layer.
        *args, **kwargs
            What the model passes beside: ``kwargs["kwargs"]["position_ids"]`` is needed where keys are coded.

        Returns
        -------
        tuple
            Keys (after RoPE) and values, those of coded layers as they are read back.

        Raises
        ------
        InputError
            If position ids are missing, or an earlier pass was cut short and left layers of different lengths.
        """
        layer = self.layers[layer_idx]
        if not isinstance(layer, _Coded) or layer.rotary is None:
            return super().update(key_states, value_states, layer_idx, *args, **kwargs)
        self._note(kwargs.get("kwargs", kwargs).get("position_ids"), key_states, layer.get_seq_length())
        return layer.update(key_states, value_states, positions=self.positions)

    @property
    def code_nbytes(self) -> int:
        """Bytes of the packed codes: `bits.Storage.cache_bytes`, if both keys and values are coded."""
        return sum(states.nbytes for states in self._states() if states.dtype == torch.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of all that grows with the text: codes, states in full precision, `bits.POSITION_BYTES` per token."""
        return sum(states.nbytes for states in self._states()) + (
            0 if self.positions is None else self.positions.nbytes
        )

    @property
    def codebook_nbytes(self) -> int:
        """Bytes of the codebooks as they are held, in float32; `bits` counts them in float16."""
        coded = [layer for layer in self.layers if isinstance(layer, _Coded)]
        return sum(coder.books.nbytes for layer in coded for coder in layer.coders.values())

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the newest tokens.

        Parameters
        ----------
        tokens_to_remove
            Minus their number, as everywhere in `transformers`.
        """
        super().crop(tokens_to_remove)
        if tokens_to_remove:
            self._arrange(lambda positions: positions[:, :tokens_to_remove])

    def reset(self) -> None:
        """Forget all tokens."""
        super().reset()
        self.positions = None

    def reorder_cache(self, beam_idx: Int[Tensor, " batch"]) -> None:
        """Let each sequence continue the past of another: a step of beam search.

        Parameters
        ----------
        beam_idx
            Whose past each one continues.
        """
        super().reorder_cache(beam_idx)
        self._arrange(lambda positions: positions.index_select(0, beam_idx.to(positions.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence.

        Parameters
        ----------
        repeats
            How often.
        """
        super().batch_repeat_interleave(repeats)
        self._arrange(lambda positions: positions.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Int[Tensor, " kept"]) -> None:
        """Keep some sequences only.

        Parameters
        ----------
        indices
            Which ones.
        """
        super().batch_select_indices(indices)
        self._arrange(lambda positions: positions[indices])

    def _arrange(self, change: Any) -> None:
        if self.positions is not None:
            self.positions = change(self.positions)

    def _states(self) -> list[Tensor]:
        return [states for layer in self.layers if layer.is_initialized for states in (layer.keys, layer.values)]

    def _note(self, position_ids: Tensor | None, keys: Tensor, length: int) -> None:
        """Append the position ids of a pass, which all layers share, when the first of them comes by."""
        batch, _, new, _ = keys.shape
        noted = 0 if self.positions is None else self.positions.shape[1]
        if noted == length + new:
            return
        if noted != length:
            raise InputError(f"an interrupted pass left layers of {noted} and {length} tokens: call reset()")
        if position_ids is None:
            raise InputError("the model passed no position_ids to its cache: use a model that does, as Llama does")
        if position_ids.shape[-1] != new or (self.positions is not None and len(self.positions) != batch):
            raise InputError(
                f"position_ids or a batch of {batch} differ from those before: call reset() for other text"
            )
        added = position_ids.to(keys.device, torch.int32).expand(batch, new)
        self.positions = added.clone() if self.positions is None else torch.cat([self.positions, added], dim=1)


class _Coded:
    """A layer whose `keys` or `values` are rows of bytes, (batch, 1, tokens, row_bytes): all else is the base class's.

    That shape makes the base class append, crop, reorder, repeat and slide over codes as it does over states.
    """

    _layer_type = None  # or transformers would make these layers its default
    supports_early_init = False
    coders: dict[str, Coder]
    rotary: Rotary | None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, positions: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys = key_states
        if self.rotary is not None:
            keys = self.rotary.undo(keys, positions[:, -keys.shape[-2] :])
        keys, values = super().update(self._written("key", keys), self._written("value", value_states))
        keys, values = self._read("key", keys, key_states), self._read("value", values, value_states)
        if self.rotary is not None:
            keys = self.rotary.apply(keys, positions[:, -keys.shape[-2] :])
        return keys, values

    def _written(self, kind: str, states: Tensor) -> Tensor:
        if kind not in self.coders:
            return states
        return self.coders[kind].encode(states.transpose(1, 2).flatten(2))[:, None]

    def _read(self, kind: str, kept: Tensor, like: Tensor) -> Tensor:
        if kind not in self.coders:
            return kept
        states = self.coders[kind].decode(kept[:, 0]).to(like.dtype)
        return states.unflatten(-1, (like.shape[1], like.shape[3])).transpose(1, 2)


class _CodedLayer(_Coded, DynamicLayer):
    pass


class _CodedSlidingLayer(_Coded, DynamicSlidingWindowLayer):
    pass


def _coded(plain: CacheLayerMixin, coders: dict[str, Coder], rotary: Rotary | None) -> CacheLayerMixin:
    if type(plain) is DynamicSlidingWindowLayer:
        layer = _CodedSlidingLayer(plain.sliding_window)
    elif type(plain) is DynamicLayer:
        layer = _CodedLayer()
    else:
        raise InputError(f"a layer whose cache is a {type(plain).__name__} cannot be coded: choose attention layers")
    layer.coders, layer.rotary = coders, rotary
    return layer


def _checked(place: Any, layers: int) -> tuple[int, str]:
    known = isinstance(place, tuple) and len(place) == 2 and is_integer(place[0]) and place[1] in _KINDS
    if not known or not 0 <= place[0] < layers:
        raise InputError(f'quantizers has {place!r}: keys are (layer, "key" or "value") with layers 0 to {layers - 1}')
    return place


def _coder(place: tuple[int, str], quantizer: Quantizer, config: Any, stages: int | None) -> Coder:
    codebooks = getattr(quantizer, "codebooks", None)
    if codebooks is None:
        raise InputError(f"the quantiser of {place} has no codebooks: fit it first")
    coder = Coder(codebooks, stages)
    if getattr(config, "num_key_value_heads", None) is None:
        raise InputError(
            f"model_type={getattr(config, 'model_type', None)!r} names no KV heads: use one built like Llama"
        )
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    channels = config.num_key_value_heads * size
    if coder.channels != channels:
        raise InputError(f"the quantiser of {place} has {coder.channels} channels: the model's heads have {channels}")
    return coder
