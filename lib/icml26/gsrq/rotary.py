"""Undoing and redoing a model's rotary embedding of keys, by position.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, appendix C) quantises keys before the rotary embedding (RoPE), and the
caches of `transformers` receive them after it. RoPE turns each pair of channels (i, i + half) of a head by an angle
that grows with the token's position; turning back needs the same cosines and sines. They are those of the model's own
rotary module, in the model's precision, so that a key that is turned back and forth meets the same rounding. Used by
`cache`.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["FAMILIES", "Rotary"]

FAMILIES = ("gemma3_text", "llama", "mistral", "qwen2", "qwen3")
"""Model types whose keys are known to be rotated whole, in halves, right before they reach the cache."""

_FIXED = ("default", "linear", "llama3", "yarn")  # angles depend on nothing but the position


class Rotary:
    """The rotation of one layer's keys.

    Parameters
    ----------
    config
        Of the model, of one of the `FAMILIES`.
    layer
        Its number, from 0: in Gemma 3 layers with a sliding window turn at other angles.

    Raises
    ------
    InputError
        If the model is of another family, or its angles change with the length of the text.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> rotary = Rotary(load_lm("tiny-random-llama")[0].config, layer=0)
    >>> keys, positions = torch.randn(2, 3, 5, 32), torch.tensor([[0, 0, 1, 2, 3]])
    >>> torch.allclose(rotary.undo(rotary.apply(keys, positions), positions), keys, atol=1e-5)
    True
    """

    def __init__(self, config: Any, layer: int) -> None:
        family = getattr(config, "model_type", None)
        if family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise InputError(f"model_type={family!r}: its keys cannot be rotated back; known are {known}")
        whole("layer", layer, 0, config.num_hidden_layers - 1)
        self._kind = (config.layer_types[layer],) if family == "gemma3_text" else ()
        settings = config.rope_parameters[self._kind[0]] if self._kind else config.rope_parameters
        rotation = settings["rope_type"]
        if rotation not in _FIXED or settings.get("partial_rotary_factor", 1.0) != 1.0:
            raise InputError(f"rope_type={rotation!r} must be one of {_FIXED}, and turn all of a head")
        if family == "gemma3_text":
            from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding as Embedding
        else:
            from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding as Embedding
        self._embedding = Embedding(config)

    def apply(
        self, keys: Float[Tensor, "batch heads tokens size"], positions: Int[Tensor, "rows tokens"]
    ) -> Float[Tensor, "batch heads tokens size"]:
        """Rotate keys to their positions, exactly as the model does.

        Parameters
        ----------
        keys
            Before RoPE.
        positions
            Position ids of each sequence, or one row for all.

        Returns
        -------
        tensor
            In the type of the keys.
        """
        cos, sin = self._angles(keys, positions)
        return keys * cos + _turned(keys) * sin

    def undo(
        self, keys: Float[Tensor, "batch heads tokens size"], positions: Int[Tensor, "rows tokens"]
    ) -> Float[Tensor, "batch heads tokens size"]:
        """Rotate keys back from their positions.

        Parameters
        ----------
        keys
            After RoPE.
        positions
            Position ids of each sequence, or one row for all.

        Returns
        -------
        float32 tensor
            The keys before RoPE.
        """
        cos, sin = (part.float() for part in self._angles(keys, positions))
        keys = keys.float()
        # The inverse of what `apply` does, also where rounding or scaled angles leave cos^2 + sin^2 off 1.
        return (keys * cos - _turned(keys) * sin) / (cos.square() + sin.square())

    def _angles(self, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self._embedding.to(like.device)(like, positions, *self._kind)
        return cos[:, None], sin[:, None]


def _turned(keys: Tensor) -> Tensor:
    first, second = keys.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
