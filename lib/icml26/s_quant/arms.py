"""The codecs that the chapter compares on whole models, by name, and the weights they make of a model's layers.

`arms` names configurations of S-Quant (Wang et al., ICML 2026, arXiv: none) as printed, of SeedLM (Shafipour et al.,
arXiv 2410.10714), of the project's own variants of S-Quant, and of rounding, at about 4 and about 3 logical bits per
weight. Encodings that are kept in files are `kept`'s business, what the weights do to a model is `endtoend`'s.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from torch import Tensor

from icml26.errors import InputError
from icml26.s_quant import baselines, calibrated, codec
from icml26.s_quant.calibrated import Calibration
from icml26.s_quant.config import PAPER_3BIT, PAPER_4BIT, REPAIR_FACTORS, SEEDLM_3BIT, SEEDLM_4BIT

__all__ = ["Arm", "Replaced", "arms", "decoded", "rounded"]


@dataclass(frozen=True)
class Arm:
    """One codec of the comparison.

    Attributes
    ----------
    name : str
        What the chapter calls it.
    kind : str
        ``"s-quant"`` (as printed), ``"baseline"`` (rounding and SeedLM) or ``"variant"`` (the project's own).
    rate : int
        4 or 3: the table that it belongs to.
    config : SQuantConfig or SeedLMConfig, optional
        Of a codec with seeds.
    rounding : callable, optional
        Of a codec without: ``rounding(weight)``, or ``rounding(weight, calibration)`` if `calibrated`.
    calibrated : bool
        Whether it needs the layer's inputs.
    """

    name: str
    kind: str
    rate: int
    config: codec.SQuantConfig | codec.SeedLMConfig | None = None
    rounding: Callable[..., baselines.Quantised] | None = None
    calibrated: bool = False


class Replaced(NamedTuple):
    """New weights for a model's layers.

    Attributes
    ----------
    weights : dict of str to float32 tensor
        By layer name.
    bits : float
        Logical bits per weight over all of them.
    """

    weights: dict[str, Tensor]
    bits: float


def arms() -> dict[str, Arm]:
    """Name the codecs.

    Every variant has 16-bit seeds and a fixed number of bases. The first, "fixed k", is the printed codec with that
    change alone; the others of its name change one thing more at the same 4.125 bits (3.125 in the table of 3 bits) and
    the same 128 weights per scale. Those named after blocks of 8 combine changes, at 4.125 and at 3.75 bits with 64
    weights per scale. "Aware" means seeds and scales chosen by the error after rounding.

    Returns
    -------
    dict of str to Arm
        In the order of the chapter's tables.

    Examples
    --------
    >>> [arm.name for arm in arms().values() if arm.kind == "s-quant"]
    ['S-Quant, R=0.95', 'S-Quant, R=0.9', 'S-Quant, R=0.8']
    """
    found = [
        Arm("S-Quant, R=0.95", "s-quant", 4, replace(PAPER_4BIT, threshold=0.95)),
        Arm("S-Quant, R=0.9", "s-quant", 4, PAPER_4BIT),
        Arm("S-Quant, R=0.8", "s-quant", 3, PAPER_3BIT),
        Arm("SeedLM 4 bits", "baseline", 4, SEEDLM_4BIT),
        Arm("SeedLM 3 bits", "baseline", 3, SEEDLM_3BIT),
    ]
    data_free = {
        "RTN": baselines.rtn,
        "clipped RTN": baselines.rtn_clipped,
        "block floating point": baselines.block_floating_point,
    }
    calibrated_ones = {"AWQ": calibrated.awq, "GPTQ": calibrated.gptq}
    for bits, group in ((4, 128), (3, 128), (3, 1024)):  # with groups of 1024, 3 bits are in reach of S-Quant's 2.9
        found += [
            Arm(
                f"{name} {bits} bits" + (f", groups of {group}" if group != 128 else ""),
                "baseline",
                bits,
                rounding=partial(rounding, bits=bits, group=group),
                calibrated=name in calibrated_ones,
            )
            for name, rounding in (data_free | calibrated_ones).items()
            if group == 128 or name not in ("RTN", "block floating point")
        ]
    after = {"seed_choice": "after", "scale_factors": REPAIR_FACTORS}
    rows = {"layout": "row-major"}
    changes = {"": {}, ", row-major": rows, ", aware": after, ", aware row-major": after | rows}
    few = {"coefficient_bits": 4}
    eight = {"block_size": 8}
    ladders = {
        "fixed k": (4, 6, {}),
        "fixed k, row-major": (4, 6, rows),
        "fixed k, aware": (4, 6, after),
        "fixed k, blocks of 8": (4, 2, eight | {"group_size": 16}),
        **{f"fixed k, 4-bit coefficients{name}": (4, 12, few | change) for name, change in changes.items()},
        **{f"blocks of 8, 5 bits{name}": (4, 3, eight | {"coefficient_bits": 5} | c) for name, c in changes.items()},
        **{f"blocks of 8, 4 bits{name}": (4, 3, eight | few | change) for name, change in changes.items()},
        "fixed k, 3 bits": (3, 4, {}),
        "fixed k, row-major, 3 bits": (3, 4, rows),
        "fixed k, aware, 3 bits": (3, 4, after),
        "fixed k, blocks of 8, 3 bits": (3, 1, eight | {"group_size": 16}),
        **{f"fixed k, 4-bit coefficients{name}, 3 bits": (3, 8, few | change) for name, change in changes.items()},
    }
    found += [
        Arm(name, "variant", rate, replace(PAPER_4BIT, k_min=k, k_max=k, **change))
        for name, (rate, k, change) in ladders.items()
    ]
    return {arm.name: arm for arm in found}


def rounded(arm: Arm, weights: Mapping[str, Tensor], calibrations: Mapping[str, Calibration] | None = None) -> Replaced:
    """Round a model's layers.

    Parameters
    ----------
    arm
        A codec without seeds.
    weights : mapping of str to tensor, out x in
        Weight by layer name, as `study.linear_weights` returns them.
    calibrations
        The layers' inputs, as `calibrated.collect` returns them, if the arm needs them.

    Returns
    -------
    Replaced
        The rounded weights and their bits.

    Raises
    ------
    InputError
        If the arm has seeds, or needs calibrations that are missing.

    Examples
    --------
    >>> import torch
    >>> rounded(arms()["clipped RTN 4 bits"], {"layer": torch.ones(2, 128)}).bits
    4.125
    """
    if arm.rounding is None:
        raise InputError(f"{arm.name!r} does not round: encode the weights with its config, or use `encodings`")
    if arm.calibrated and (calibrations is None or set(weights) - set(calibrations)):
        raise InputError(f"{arm.name!r} needs calibrations of every layer: use calibrated.collect")
    found = {
        name: arm.rounding(weight, calibrations[name]) if arm.calibrated else arm.rounding(weight)
        for name, weight in weights.items()
    }
    bits = {name: one.bits_per_weight * weights[name].numel() for name, one in found.items()}
    total = sum(weight.numel() for weight in weights.values())
    return Replaced({name: one.weight for name, one in found.items()}, sum(bits.values()) / total)


def decoded(encoded: Mapping[str, codec.Encoded | codec.SeedLMEncoded]) -> Replaced:
    """Decode a model's layers.

    Parameters
    ----------
    encoded
        Encoded weight by layer name.

    Returns
    -------
    Replaced
        The decoded weights and their logical bits, counts and scales included.

    Examples
    --------
    >>> import torch
    >>> decoded({"layer": codec.encode(torch.ones(2, 8), codec.SeedLMConfig(register_bits=8))}).bits
    3.0
    """
    bits = sum(one.bits_per_weight() * one.size for one in encoded.values())
    return Replaced(
        {name: codec.decode(one) for name, one in encoded.items()}, bits / sum(one.size for one in encoded.values())
    )
