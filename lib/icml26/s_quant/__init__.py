"""S-Quant and SeedLM: weights stored as seeds of shift registers and a few coefficients.

The papers are S-Quant (Wang et al., ICML 2026, arXiv: none) and its ancestor SeedLM (Shafipour et al.,
ICLR 2025, arXiv 2410.10714). `register` defines the shift registers, `lfsr` generates the pseudo-random bases,
`gf2` holds the algebra that proves their period, `theory` the closed forms that a codec is measured against. `codec` is
the way in for weights: `squant` and `seedlm` encode and decode with the parameters in `config`, on top of `bases` and
`search`; `encoded` counts bits, `store` packs them into files, `baselines` rounds plainly for comparison.
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
