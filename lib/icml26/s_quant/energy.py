"""Energy per weight, from published energies of operations.

The table is Horowitz's (ISSCC 2014; key `horowitz2014` in the bibliography): 45 nm, 0.9 V. Neither S-Quant (Wang et
al., ICML 2026, arXiv: none) nor SeedLM (Shafipour et al., arXiv 2410.10714) gives a formula; this project's is

    E = q (e_DRAM + e_SRAM) + k (e_mul + e_add) + batch (e_fp16_mul + e_fp16_add)    per weight,

with q stored bits and k bases per block. Products of a register's state by a coefficient have no entry in the table:
the int8 product's energy is scaled by the product of the widths. Control, registers and leakage are left out, and so is
the scaling of a group, which is shared by many weights.
"""

from typing import NamedTuple

from icml26.errors import InputError
from icml26.s_quant.asic_config import Design

__all__ = ["DRAM_HBM", "DRAM_LPDDR", "SRAM_32KB", "TABLE", "Entry", "breakdown", "energy_per_weight", "product_energy"]


class Entry(NamedTuple):
    """Energy of one operation, in pJ, and where the number is from (a key of the bibliography)."""

    picojoules: float
    source: str = "horowitz2014"


TABLE = {
    "int8 add": Entry(0.03),
    "int32 add": Entry(0.1),
    "int8 multiply": Entry(0.2),
    "int32 multiply": Entry(3.1),
    "fp16 add": Entry(0.4),
    "fp16 multiply": Entry(1.1),
    "fp32 add": Entry(0.9),
    "fp32 multiply": Entry(3.7),
    "64-bit read, 8 KB SRAM": Entry(10),
    "64-bit read, 32 KB SRAM": Entry(20),
    "64-bit read, 1 MB SRAM": Entry(100),
    "64-bit read, DRAM, least": Entry(1300),
    "64-bit read, DRAM, most": Entry(2600),
}
DRAM_LPDDR = TABLE["64-bit read, DRAM, least"].picojoules / 64  # pJ per bit
DRAM_HBM = 4.0  # pJ per bit, this project's round number for stacked memory; not from the table
SRAM_32KB = TABLE["64-bit read, 32 KB SRAM"].picojoules / 64  # pJ per bit


def product_energy(state_bits: int, coefficient_bits: int) -> float:
    """Energy of an integer product, the table's int8 one scaled by the product of the widths.

    Parameters
    ----------
    state_bits, coefficient_bits
        Widths of the factors.

    Returns
    -------
    float
        pJ.

    Examples
    --------
    >>> product_energy(16, 4), product_energy(16, 8)
    (0.2, 0.4)
    """
    return TABLE["int8 multiply"].picojoules * state_bits * coefficient_bits / 64


def breakdown(design: Design, *, batch: int = 1, dram: float = DRAM_LPDDR, sram: float = 0.0) -> dict[str, float]:
    """Energy per weight by where it goes.

    Parameters
    ----------
    design
        How weights are stored.
    batch
        Input vectors.
    dram, sram
        pJ per bit read; `SRAM_32KB` is about a sixtieth of DRAM and left out unless given.

    Returns
    -------
    dict of str to float
        pJ per weight for ``dram``, ``sram``, ``reconstruction`` and ``product``.

    Raises
    ------
    InputError
        If an energy is negative or the batch below 1.

    Examples
    --------
    >>> {part: round(energy, 2) for part, energy in breakdown(Design.seedlm()).items()}
    {'dram': 81.25, 'sram': 0.0, 'reconstruction': 0.9, 'product': 1.5}
    """
    if not (dram >= 0 and sram >= 0 and batch >= 1):
        raise InputError(f"dram {dram}, sram {sram}, batch {batch}: use pJ per bit from 0, and 1 or more vectors")
    reconstruction = 0.0
    if design.decoder:
        product = product_energy(design.decoder.bases.register.width, design.decoder.coefficient_bits)
        reconstruction = float(design.mean_bases) * (product + TABLE["int32 add"].picojoules)
    return {
        "dram": float(design.bits) * dram,
        "sram": float(design.bits) * sram,
        "reconstruction": reconstruction,
        "product": batch * (TABLE["fp16 multiply"].picojoules + TABLE["fp16 add"].picojoules),
    }


def energy_per_weight(design: Design, *, batch: int = 1, dram: float = DRAM_LPDDR, sram: float = 0.0) -> float:
    """Energy per weight.

    Parameters
    ----------
    design, batch, dram, sram
        As in `breakdown`.

    Returns
    -------
    float
        pJ.

    Raises
    ------
    InputError
        As `breakdown`.

    Examples
    --------
    >>> round(energy_per_weight(Design.fp16())), round(energy_per_weight(Design.seedlm()))
    (326, 84)
    """
    return sum(breakdown(design, batch=batch, dram=dram, sram=sram).values())
