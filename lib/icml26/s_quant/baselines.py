"""Plain rounding of weights in groups, at the same bits as the codecs: what S-Quant is compared with.

Three round-to-nearest (RTN) quantisers: asymmetric (a scale and a zero point per group), symmetric with the clipping
point searched, and block floating point, which is the latter without a search. S-Quant's own table (Wang et al., ICML
2026, arXiv: none) compares with SeedLM, AWQ, OmniQuant and QuIP#; of these SeedLM is in `seedlm`, and those that need
calibration data or lattices are left out.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from icml26.errors import InputError
from icml26.s_quant.bases import as_blocks, as_weight, float16_scales
from icml26.s_quant.config import check_integer, check_number

__all__ = ["Quantised", "block_floating_point", "checked_group", "rtn", "rtn_clipped"]


class Quantised(NamedTuple):
    """De-quantised weights and what storing them takes.

    Parameters
    ----------
    weight : float32 tensor
        The weights after rounding, in the original shape.
    bits_per_weight
        Codes, scales and zero points, over the number of weights.
    """

    weight: Float32[Tensor, "..."]
    bits_per_weight: float


def rtn(weight: Tensor | np.ndarray, bits: int = 4, group: int = 128) -> Quantised:
    """Round to nearest with a float16 scale and a zero point per group: b + (16 + b)/g bits per weight.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Finite weights, cut row-major into groups.
    bits
        b, bits per code, 2 to 8.
    group
        g, weights per group; the last one may be shorter.

    Returns
    -------
    Quantised
        The rounded weights and their bits.

    Raises
    ------
    InputError
        If the weight is empty or not finite, bits or group are out of range, or a scale exceeds float16.

    Examples
    --------
    >>> rtn(torch.tensor([-1.0, 0.0, 0.25, 2.0]), bits=2, group=4)
    Quantised(weight=tensor([-1.,  0.,  0.,  2.]), bits_per_weight=6.5)
    """
    weight = as_weight(weight)
    groups = _groups(weight, bits, group)
    top = (1 << bits) - 1
    low, high = groups.amin(1).clamp_max(0), groups.amax(1).clamp_min(0)
    scale = _rounded((high - low) / top)
    zero = (-low[:, None] / scale).round()
    codes = ((groups / scale).round() + zero).clamp(0, top)
    return _quantised(weight, (codes - zero) * scale, bits, bits + 16)


def rtn_clipped(
    weight: Tensor | np.ndarray, bits: int = 4, group: int = 128, *, lowest: float = 0.4, points: int = 31
) -> Quantised:
    """Symmetric rounding with the clipping point searched for each group: b + 16/g bits per weight.

    The scale is c max|w| / (2^(b-1) - 1/2) for the c of least squared error among `points` from `lowest` to 1.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Finite weights, cut row-major into groups.
    bits
        b, bits per code, 2 to 8.
    group
        g, weights per group; the last one may be shorter.
    lowest
        Least c; for groups of thousands of weights start lower, at 0.15.
    points
        Number of c tried.

    Returns
    -------
    Quantised
        The rounded weights and their bits.

    Raises
    ------
    InputError
        If the weight is empty or not finite, an argument is out of range, or a scale exceeds float16.

    Examples
    --------
    >>> rtn_clipped(torch.tensor([-1.0, 0.0, 0.5, 1.0]), bits=2, group=4).bits_per_weight
    6.0
    """
    weight = as_weight(weight)
    if not 0 < check_number("lowest", lowest) <= 1:
        raise InputError(f"lowest {lowest} is no share of the peak: use above 0 and at most 1")
    check_integer("points", points, 1, 1 << 16)
    groups = _groups(weight, bits, group)
    half = 1 << (bits - 1)
    peak = groups.abs().amax(1)
    best, least = torch.zeros_like(groups), torch.full_like(peak, torch.inf)
    for share in np.linspace(1.0, lowest, points):
        scale = _rounded(float(share) * peak / (half - 0.5))
        tried = (groups / scale).round().clamp(-half, half - 1) * scale
        error = (tried - groups).square().sum(1)
        better = error < least
        best[better], least[better] = tried[better], error[better]
    return _quantised(weight, best, bits, 16)


def block_floating_point(weight: Tensor | np.ndarray, bits: int = 4, group: int = 128) -> Quantised:
    """Symmetric rounding with the scale set by each group's peak: `rtn_clipped` with c = 1.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Finite weights, cut row-major into groups.
    bits
        b, bits per code, 2 to 8.
    group
        g, weights per group; the last one may be shorter.

    Returns
    -------
    Quantised
        The rounded weights and their bits, b + 16/g.

    Raises
    ------
    InputError
        If the weight is empty or not finite, an argument is out of range, or a scale exceeds float16.

    Examples
    --------
    >>> block_floating_point(torch.tensor([-1.5, 0.0, 0.9, 1.5]), bits=2, group=4)
    Quantised(weight=tensor([-2.,  0.,  1.,  1.]), bits_per_weight=6.0)
    """
    return rtn_clipped(weight, bits, group, lowest=1.0, points=1)


def checked_group(bits: int, group: int, size: int) -> int:
    """The weights per group, no more than there are, after making sure that bits and group are in range.

    Parameters
    ----------
    bits
        Bits per code, 2 to 8.
    group
        Weights per group, 1 or more.
    size
        Weights there are.

    Returns
    -------
    int
        Weights per group: memory is that of the data, however large the group asked for.

    Raises
    ------
    InputError
        If bits or group are out of range.

    Examples
    --------
    >>> checked_group(4, 128, 1000), checked_group(4, 1 << 31, 1000)
    (128, 1000)
    """
    check_integer("bits", bits, 2, 8)
    return min(check_integer("group", group, 1, 1 << 31), max(size, 1))


def _groups(weight: Tensor, bits: int, group: int) -> Float64[Tensor, "groups g"]:
    # Zeros at the end change neither a group's range nor its error.
    return as_blocks(weight, checked_group(bits, group, weight.numel()))


def _rounded(scale: Float64[Tensor, " groups"]) -> Float64[Tensor, "groups 1"]:
    exact = float16_scales(scale.cpu().numpy()).astype(np.float64)
    return torch.from_numpy(exact).to(scale.device)[:, None]


def _quantised(weight: Tensor, groups: Float64[Tensor, "groups g"], bits: int, extra: int) -> Quantised:
    size = weight.numel()
    found = groups.to(torch.float32).view(-1)[:size].reshape(weight.shape)
    return Quantised(found, bits + extra * len(groups) / size)
