"""Codecs by name, for the command line and whoever does not want to choose every parameter.

S-Quant is Wang et al., ICML 2026 (arXiv: none), SeedLM Shafipour et al. (arXiv 2410.10714). Their settings are in
`config`; "squant-repaired" is the project's own variant, with a fixed number of basis vectors, 4-bit coefficients, rows
of consecutive states, and seeds chosen by the error after rounding.
"""

from dataclasses import fields, replace
from typing import Any

from icml26.errors import InputError, nearest
from icml26.s_quant.config import (
    PAPER_3BIT,
    PAPER_4BIT,
    REPAIR_FACTORS,
    SEEDLM_3BIT,
    SEEDLM_4BIT,
    SeedLMConfig,
    SQuantConfig,
)

__all__ = ["CODECS", "preset"]

_AWARE = {"coefficient_bits": 4, "layout": "row-major", "seed_choice": "after", "scale_factors": REPAIR_FACTORS}
CODECS: dict[tuple[str, int], SQuantConfig | SeedLMConfig] = {
    ("squant", 4): PAPER_4BIT,
    ("squant", 3): PAPER_3BIT,
    ("squant-repaired", 4): SQuantConfig(block_size=8, k_min=3, k_max=3, **_AWARE),
    ("squant-repaired", 3): SQuantConfig(block_size=16, k_min=8, k_max=8, **_AWARE),
    ("seedlm", 4): SEEDLM_4BIT,
    ("seedlm", 3): SEEDLM_3BIT,
}
"""Settings by name and about how many bits."""


def preset(name: str, bits: int = 4, **changes: Any) -> SQuantConfig | SeedLMConfig:
    """A codec's configuration by name.

    Parameters
    ----------
    name
        ``"squant"``, ``"squant-repaired"`` or ``"seedlm"``.
    bits
        About how many bits per weight, 3 or 4.
    **changes
        Fields of `SQuantConfig` or `SeedLMConfig` to set otherwise.

    Returns
    -------
    SQuantConfig or SeedLMConfig
        The settings.

    Raises
    ------
    InputError
        If a name is unknown or a value out of range.

    Examples
    --------
    >>> preset("seedlm", 3).word_bits, preset("squant", seed_bits=8).seed_bits
    (36, 8)
    """
    names = list(dict.fromkeys(known for known, _ in CODECS))
    if name not in names:
        raise InputError(f"codec {name!r} is not known: use {', '.join(names)}{nearest(name, names)}")
    if (name, bits) not in CODECS:
        raise InputError(f"bits={bits} is not prepared for {name}: use 3 or 4, and set single parameters")
    known = [field.name for field in fields(CODECS[name, bits])]
    for change in changes:
        if change not in known:
            raise InputError(f"{name} has no parameter {change!r}: it has {', '.join(known)}{nearest(change, known)}")
    return replace(CODECS[name, bits], **changes)
