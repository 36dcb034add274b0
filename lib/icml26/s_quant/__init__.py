"""S-Quant and SeedLM: weights stored as seeds of shift registers and a few coefficients.

The papers are S-Quant (Wang et al., ICML 2026, arXiv: none) and its ancestor SeedLM (Shafipour et al.,
ICLR 2025, arXiv 2410.10714). `register` defines the shift registers, `lfsr` generates the pseudo-random bases,
`gf2` holds the algebra that proves their period, `theory` the closed forms that a codec is measured against. `codec` is
the way in for weights: `squant` and `seedlm` encode and decode with the parameters in `config`, on top of `bases` and
`search`; `encoded` counts bits, `store` packs them into files. Beside them for comparison: `baselines` rounds plainly,
`calibrated` with a look at activations.

The chapter's experiments: `study` samples weights, `byte_lm` is the model trained here, `arms` names the codecs, `kept`
holds their encodings, `endtoend` and `comparison` measure and compare losses. The accelerator: `asic` and `asic_events`
count clocks for what `asic_config` describes, `asic_study`, `roofline`, `overhead`, `energy` and `workloads` ask them
questions. Whole models: `compress` writes a folder, `hf` lets `transformers` load it, `linear` is the packed layer.
"""

from icml26.s_quant.codec import SeedLMConfig, SQuantConfig, decode, encode, load, save
from icml26.s_quant.lfsr import Register, basis_integers, cycle, phase, states

__all__ = [
    "Register",
    "SQuantConfig",
    "SeedLMConfig",
    "basis_integers",
    "cycle",
    "decode",
    "encode",
    "load",
    "phase",
    "save",
    "states",
]
