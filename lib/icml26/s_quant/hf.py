"""S-Quant and SeedLM as a quantisation method of `transformers`; importing this module registers it.

S-Quant is Wang et al., ICML 2026 (arXiv: none), SeedLM Shafipour et al. (arXiv 2410.10714). With this module imported,
``from_pretrained(folder)`` loads what `compress` or ``save_pretrained`` wrote, and
``from_pretrained(folder, quantization_config=SeedQuantConfig(...))`` encodes an ordinary checkpoint as it loads, which
suits small models: the search for seeds is slow, and `compress` resumes. In either case the dense layers inside the
model's blocks become `linear.SeedLinear`; nothing else changes.

Examples
--------
>>> import tempfile
>>> from transformers import AutoModelForCausalLM
>>> from icml26.models import load_lm
>>> model, tokenizer = load_lm("tiny-random-llama")
>>> with tempfile.TemporaryDirectory() as folder:
...     model.save_pretrained(folder)
...     config = SeedQuantConfig(SeedLMConfig(8, 3, 6))
...     packed = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config)
>>> packed.model.layers[0].self_attn.q_proj
SeedLinear(in_features=128, out_features=128, bias=False, codec=seedlm, bytes=5632)
>>> tokens = packed.generate(**tokenizer("ab", return_tensors="pt"), max_new_tokens=3, do_sample=False)
"""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.utils.quantization_config import QuantizationConfigMixin

from icml26.errors import InputError, nearest
from icml26.s_quant import codec
from icml26.s_quant.config import SeedLMConfig, SQuantConfig
from icml26.s_quant.encoded import Encoded, SeedLMEncoded
from icml26.s_quant.layers import block_linears, dense_weight, layer_shape
from icml26.s_quant.linear import SeedLinear

__all__ = ["METHOD", "SeedQuantConfig", "SeedQuantizer"]

METHOD = "icml26-s-quant"
_CODECS = {Encoded.codec: SQuantConfig, SeedLMEncoded.codec: SeedLMConfig}


@register_quantization_config(METHOD)
class SeedQuantConfig(QuantizationConfigMixin):
    """Which codec to use, and on which layers.

    Parameters
    ----------
    codec
        `SQuantConfig` or `SeedLMConfig`; or ``"s-quant"`` or ``"seedlm"``, as a model's own configuration names it.
    parameters
        The codec's parameters, if it is given by name; what is left out is the paper's.
    modules_to_not_convert
        Layers inside the blocks that stay dense: names, prefixes, suffixes or regular expressions, as transformers
        matches them.
    quant_method
        Always "icml26-s-quant".

    Raises
    ------
    InputError
        If the codec or a parameter is unknown or out of range.

    Examples
    --------
    >>> SeedQuantConfig(SeedLMConfig(12, 4), modules_to_not_convert=["down_proj"]).settings.word_bits
    36
    >>> SeedQuantConfig("s-quant", {"threshold": 0.8}).settings.threshold
    0.8
    """

    def __init__(
        self,
        codec: SQuantConfig | SeedLMConfig | str = "seedlm",
        parameters: dict[str, Any] | None = None,
        modules_to_not_convert: list[str] | None = None,
        quant_method: str = METHOD,
    ) -> None:
        if not isinstance(codec, str):
            names = {kind: name for name, kind in _CODECS.items()}
            if type(codec) not in names or parameters:
                raise InputError(f"codec {codec!r}: give SQuantConfig or SeedLMConfig, or a name and parameters")
            codec, parameters = names[type(codec)], asdict(codec)
        if codec not in _CODECS:
            raise InputError(f"codec {codec!r} is not known: use {' or '.join(_CODECS)}{nearest(codec, _CODECS)}")
        known = _CODECS[codec].__dataclass_fields__
        for name in parameters or {}:
            if name not in known:
                raise InputError(f"{codec} has no parameter {name!r}: it has {', '.join(known)}{nearest(name, known)}")
        self.quant_method = quant_method
        self.codec = codec
        self.parameters = asdict(_CODECS[codec](**(parameters or {})))
        self.modules_to_not_convert = list(modules_to_not_convert or [])

    @property
    def settings(self) -> SQuantConfig | SeedLMConfig:
        """The codec's configuration."""
        return _CODECS[self.codec](**self.parameters)


@register_quantizer(METHOD)
class SeedQuantizer(HfQuantizer):
    """What `from_pretrained` and `save_pretrained` do with `SeedQuantConfig`; not for use by hand."""

    quantization_config: SeedQuantConfig

    def _process_model_before_weight_loading(self, model: nn.Module, **kwargs: Any) -> None:
        kept = self.quantization_config.modules_to_not_convert
        self._chosen = {
            name: module for name, module in block_linears(model).items() if should_convert_module(name, kept)
        }
        if not self._chosen:
            raise InputError(f"{type(model).__name__} has no linear layer inside its blocks to replace")
        if not self.pre_quantized:
            return
        for name, module in self._chosen.items():
            rows, columns = layer_shape(module)
            bias, dtype = module.bias is not None, module.weight.dtype
            packed = SeedLinear(columns, rows, self.quantization_config.settings, bias=bias, dtype=dtype)
            model.set_submodule(name, packed)
        # Files of encoded weights also hold the streams that a setting leaves empty.
        ignored = set(model._keys_to_ignore_on_load_unexpected or ())
        model._keys_to_ignore_on_load_unexpected = ignored | {r"\.(counts|shift)$"}

    def param_needs_quantization(self, model: nn.Module, param_name: str, **kwargs: Any) -> bool:
        """Whether a weight is to be encoded, or a stream to be taken whatever its length."""
        name, _, last = param_name.rpartition(".")
        if self.pre_quantized:
            module = model.get_submodule(name)
            return isinstance(module, SeedLinear) and last in module.stream_names
        return last == "weight" and name in self._chosen

    def get_quantize_ops(self) -> ConversionOps:
        """The operation that encodes a weight."""
        return _Encode(self.quantization_config.settings)

    def _process_model_after_weight_loading(self, model: nn.Module, **kwargs: Any) -> nn.Module:
        for name, module in model.named_modules():
            if isinstance(module, SeedLinear):
                try:
                    module.encoded()
                except InputError as error:
                    raise InputError(f"{name} is missing or damaged ({error}): compress the model again") from error
        return model

    def _dequantize(self, model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
        for name, module in list(model.named_modules()):
            if isinstance(module, SeedLinear):
                dense = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
                dense.weight = nn.Parameter(module.decode().to(dtype or module.dtype))
                dense.bias = module.bias
                model.set_submodule(name, dense)
        return model

    def is_serializable(self) -> bool:
        """Packed models can be saved."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Packed weights cannot be trained."""
        return False


class _Encode(ConversionOps):
    """Put an encoded layer in the place of a dense one as its weight arrives."""

    def __init__(self, settings: SQuantConfig | SeedLMConfig) -> None:
        self._settings = settings

    def convert(
        self,
        input_dict: dict[str, Tensor | list[Tensor]],
        *args: Any,
        model: nn.Module,
        full_layer_name: str,
        missing_keys: set[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        (value,) = input_dict.values()
        weight = value[0] if isinstance(value, list) else value
        name = full_layer_name.rpartition(".")[0]
        dense = model.get_submodule(name)
        encoded = codec.encode(dense_weight(dense, weight), self._settings)
        packed = SeedLinear.from_encoded(encoded, dense.bias, dense.weight.dtype)
        packed._is_hf_initialized = True
        model.set_submodule(name, packed)
        if missing_keys is not None:
            missing_keys.discard(full_layer_name)
        return {}
