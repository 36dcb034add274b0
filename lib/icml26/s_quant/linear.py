"""A linear layer that keeps its weight packed.

For S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv 2410.10714). `SeedLinear` holds
the bit-packed streams of `encoded` as buffers and nothing else of the weight's size. A few vectors at a time, as when
a model generates, are multiplied straight from the streams by `native`; for more, or where there is no compiled code,
some rows are decoded at a time and multiplied as usual. Which layers of a model are replaced is in `layers`; loading
and saving whole models is the business of `hf` and `compress`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn.functional import linear

from icml26.s_quant import codec, native
from icml26.s_quant.config import SeedLMConfig, SQuantConfig
from icml26.s_quant.encoded import Encoded, SeedLMEncoded
from icml26.s_quant.layers import dense_weight

__all__ = ["FEW", "SeedLinear"]

FEW = 8  # vectors up to which each weight is decoded once per row and multiplied on the spot
_PART = 1 << 20  # weights decoded at a time otherwise: 4 MiB


class SeedLinear(nn.Module):
    """``y = x W^T + b`` with W as bit-packed streams, decoded on the fly.

    The streams are buffers named as in the codec's file; those that a setting leaves empty are not kept. Without
    streams the module is a frame for `load_state_dict`, which takes streams of any length and checks them.

    Parameters
    ----------
    in_features, out_features
        Columns and rows of W.
    config
        How W is encoded.
    streams
        Stream name to uint8 tensor.
    bias
        The bias, a tensor of out_features; True for one that is loaded later; None or False for none.
    dtype
        What `weight` is returned in, and a bias that is loaded later is made in; torch's default if not given.

    Raises
    ------
    InputError
        If the streams do not hold a weight of this shape.

    Examples
    --------
    >>> dense = nn.Linear(16, 4, bias=False)
    >>> packed = SeedLinear.from_linear(dense, SQuantConfig(seed_bits=8))
    >>> packed(torch.ones(1, 16)).shape, packed
    (torch.Size([1, 4]), SeedLinear(in_features=16, out_features=4, bias=False, codec=s-quant, bytes=...))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        config: SQuantConfig | SeedLMConfig,
        streams: Mapping[str, Tensor] | None = None,
        *,
        bias: Tensor | bool | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.settings = in_features, out_features, config
        self.dtype = dtype or torch.get_default_dtype()
        self._packed: native.PackedWeight | None = None
        for name in self.stream_names:
            found = streams[name] if streams else torch.empty(0, dtype=torch.uint8)
            self.register_buffer(name, found)
        if isinstance(bias, Tensor):
            bias = nn.Parameter(bias.detach(), requires_grad=False)
        elif bias:
            bias = nn.Parameter(torch.empty(out_features, dtype=self.dtype), requires_grad=False)
        self.register_parameter("bias", bias if isinstance(bias, nn.Parameter) else None)
        if streams:
            self.encoded()

    @classmethod
    def from_encoded(
        cls, encoded: Encoded | SeedLMEncoded, bias: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Self:
        """The layer of an encoded weight.

        Parameters
        ----------
        encoded
            What `codec.encode` or `codec.load` returned, of a matrix.
        bias
            The bias, if there is one.
        dtype
            What `weight` is returned in.

        Returns
        -------
        SeedLinear
            The layer.
        """
        rows, columns = encoded.shape
        streams = {name: torch.from_numpy(stream.copy()) for name, stream in encoded.streams().items()}
        return cls(columns, rows, encoded.config, streams, bias=bias, dtype=dtype)

    @classmethod
    def from_linear(cls, module: nn.Module, config: SQuantConfig | SeedLMConfig) -> Self:
        """Encode a dense layer.

        Parameters
        ----------
        module
            An `nn.Linear`, or GPT-2's `Conv1D`, whose weight is transposed.
        config
            The codec's parameters.

        Returns
        -------
        SeedLinear
            A layer with the module's bias itself.

        Raises
        ------
        InputError
            If the weight is not finite.
        """
        weight = dense_weight(module, module.weight.detach())
        return cls.from_encoded(codec.encode(weight, config), module.bias, module.weight.dtype)

    @property
    def stream_names(self) -> tuple[str, ...]:
        """The streams that this configuration has, in their order."""
        if isinstance(self.settings, SeedLMConfig):
            return ("words", "shift") if self.settings.prescale else ("words",)
        counts = ("counts",) if self.settings.count_bits else ()
        return ("seeds", *counts, "coefficients", "scales")

    @property
    def packed_bytes(self) -> int:
        """Bytes of all streams."""
        return sum(self._buffers[name].numel() for name in self.stream_names)

    def encoded(self) -> Encoded | SeedLMEncoded:
        """The weight as the codec has it, unpacked and checked.

        Returns
        -------
        Encoded or SeedLMEncoded
            What `codec.encode` returned, except for the number of blocks that missed the threshold or the floor.

        Raises
        ------
        InputError
            If the streams do not hold a weight of this shape.
        """
        streams = dict.fromkeys(("counts", "shift"), np.empty(0, dtype=np.uint8))
        streams |= {name: self._buffers[name].cpu().numpy() for name in self.stream_names}
        kind = SeedLMEncoded if isinstance(self.settings, SeedLMConfig) else Encoded
        shape = [self.out_features, self.in_features]
        header = {"config": asdict(self.settings), "shape": shape, "missed": 0, "below_floor": 0}
        return kind.from_streams(header, streams)

    def decode(self, first: int = 0, last: int | None = None) -> Float32[Tensor, "rows in"]:
        """Rows of the weight, equal to `codec.decode` to the bit.

        Parameters
        ----------
        first, last
            Range of rows, last not included; to the end if not given.

        Returns
        -------
        float32 tensor, rows x in_features
            On the streams' device.
        """
        last = self.out_features if last is None else last
        packed = self._native()
        if packed is not None:
            return packed.decode(first, last)
        return codec.decode(self.encoded(), self._buffers[self.stream_names[0]].device)[first:last]

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        """The weight, decoded at each access, for code that asks a linear layer for it."""
        return self.decode().to(self.dtype)

    def forward(self, x: Float[Tensor, "... in"]) -> Float[Tensor, "... out"]:
        """The layer's output.

        Parameters
        ----------
        x : floating-point tensor, ... x in_features
            Inputs; gradients reach them, but not the weight.

        Returns
        -------
        tensor of x's type, ... x out_features
            ``x W^T + b``.
        """
        rows, packed = self.out_features, self._native()
        flat = x.reshape(-1, self.in_features)
        plain = x.dtype == torch.float32 and not (x.requires_grad and torch.is_grad_enabled())
        if packed is not None and plain and 0 < len(flat) <= FEW:
            y = packed.forward(flat)
            return (y if self.bias is None else y.add_(self.bias)).view(*x.shape[:-1], rows)
        step = max(1, _PART // self.in_features) if packed is not None else rows
        parts = []
        for first in range(0, rows, step):
            last = min(first + step, rows)
            bias = None if self.bias is None else self.bias[first:last]
            parts.append(linear(flat, self.decode(first, last).to(x.dtype), bias))
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).view(*x.shape[:-1], rows)

    def extra_repr(self) -> str:
        """What `repr` shows."""
        name = "seedlm" if isinstance(self.settings, SeedLMConfig) else "s-quant"
        shape = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{shape}, codec={name}, bytes={self.packed_bytes}"

    def _native(self) -> native.PackedWeight | None:
        streams = {name: self._buffers[name] for name in self.stream_names}
        if self._packed is not None and all(self._packed.streams[name] is kept for name, kept in streams.items()):
            return self._packed
        self._packed = None
        first = next(iter(streams.values()))
        shift = int(streams["shift"].view(torch.int8).sum()) if "shift" in streams else 0
        if first.device.type == "cpu" and not native.reason() and native.supports(self.settings, shift):
            self.encoded()  # raises if the streams are not what the configuration says
            shape = (self.out_features, self.in_features)
            self._packed = native.PackedWeight(self.settings, shape, streams)
        return self._packed

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        for name in self.stream_names:  # a stream's length is part of what is loaded
            found = state_dict.get(prefix + name)
            if found is not None and found.dtype == torch.uint8 and found.ndim == 1:
                self._buffers[name] = torch.empty_like(found, device=self._buffers[name].device)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packed": None}  # addresses are worth nothing in a copy
