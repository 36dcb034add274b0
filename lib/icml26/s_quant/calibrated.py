"""Rounding that looks at activations: GPTQ and AWQ, two of the baselines that need calibration data.

GPTQ (Frantar et al., arXiv 2210.17323) rounds column by column and lets the columns to come make up for each error;
AWQ (Lin et al., arXiv 2306.00978) scales input channels before rounding. S-Quant's own table (Wang et al., ICML 2026,
arXiv: none) compares with AWQ. Both round to the grid of `baselines.rtn_clipped`, symmetric codes with a float16 scale
per group of consecutive weights, row-major, at b + 16/g bits per weight; AWQ's channel scales cost nothing, because the
operation before absorbs their inverse. `collect` reduces the calibration inputs of each layer to their second moments,
in memory that does not grow with the data. Rounding without activations is in `baselines`.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor, nn

from icml26.errors import InputError, nearest
from icml26.s_quant.baselines import Quantised, checked_group
from icml26.s_quant.bases import as_blocks, as_weight, float16_scales
from icml26.s_quant.config import check_number
from icml26.s_quant.layers import is_transposed, layer_shape

__all__ = ["Calibration", "awq", "collect", "gptq", "output_error"]

SHARES = np.linspace(1.0, 0.4, 31)  # clipping points tried: those of `baselines.rtn_clipped`


class Calibration(NamedTuple):
    """What a linear layer's calibration inputs are reduced to.

    Attributes
    ----------
    gram : float64 tensor, in x in
        The sum of x x^T over the inputs x.
    magnitude : float64 tensor, in
        The mean of |x|.
    count : int
        Inputs (tokens) seen.
    """

    gram: Float64[Tensor, "in in"]
    magnitude: Float64[Tensor, " in"]
    count: int


def collect(
    model: nn.Module, batches: Iterable[Tensor | Mapping[str, Any]], names: Iterable[str]
) -> dict[str, Calibration]:
    """Run a model on calibration data and gather the second moments of named linear layers' inputs.

    Parameters
    ----------
    model
        A `transformers` model.
    batches
        Token ids, batch x tokens, or the model's keyword arguments; tokens with an attention mask of 0 do not count.
    names
        Layers, as `study.linear_weights` names them.

    Returns
    -------
    dict of str to Calibration
        One for each layer.

    Raises
    ------
    InputError
        If a name is no linear layer, or a layer saw no input.

    Examples
    --------
    >>> from icml26 import models
    >>> model, _ = models.load_lm("tiny-random-llama")
    >>> found = collect(model, [torch.zeros(2, 5).long()], ["model.layers.0.mlp.up_proj"])
    >>> found["model.layers.0.mlp.up_proj"].count
    10
    """
    layers = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) or is_transposed(module)
    }
    sums: dict[str, list] = {}
    mask: list[Tensor | None] = [None]

    def hook(name: str) -> Any:
        def add(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            x = arguments[0].detach()
            x = (x if mask[0] is None else x[mask[0].bool()]).reshape(-1, layer_shape(module)[1]).float()
            found = sums.setdefault(name, [0.0, 0.0, 0])
            for i, part in enumerate(((x.T @ x).double(), x.abs().double().sum(0), len(x))):
                found[i] = found[i] + part

        return add

    handles = []
    try:
        for name in names:
            if name not in layers:
                raise InputError(f"names has {name!r}, which is no linear layer of the model{nearest(name, layers)}")
            handles.append(layers[name].register_forward_pre_hook(hook(name)))
            sums[name] = [0.0, 0.0, 0]
        with torch.no_grad():
            for batch in batches:
                arguments = batch if isinstance(batch, Mapping) else {"input_ids": batch}
                mask[0] = arguments.get("attention_mask")
                model(**arguments)
    finally:
        for handle in handles:
            handle.remove()
    if unseen := [name for name, (_, _, count) in sums.items() if not count]:
        raise InputError(f"batches brought no input to {unseen[0]!r}: give one batch or more")
    return {name: Calibration(gram, total / count, count) for name, (gram, total, count) in sums.items()}


def output_error(
    weight: Float32[Tensor, "out in"], rounded: Float32[Tensor, "out in"], calibration: Calibration
) -> float:
    """Squared error of a layer's output on the calibration inputs, summed over outputs, mean over inputs.

    Parameters
    ----------
    weight, rounded : tensor, out x in
        The layer's weight before and after rounding.
    calibration
        Its inputs.

    Returns
    -------
    float
        ``mean |(W - W') x|^2``.

    Examples
    --------
    >>> one = Calibration(torch.eye(2).double(), torch.ones(2).double(), 1)
    >>> output_error(torch.ones(3, 2), torch.zeros(3, 2), one)
    6.0
    """
    wrong = (rounded - weight).double()
    return (((wrong @ calibration.gram) * wrong).sum() / calibration.count).item()


def gptq(
    weight: Float32[Tensor, "out in"],
    calibration: Calibration,
    bits: int = 4,
    group: int = 128,
    *,
    damping: float = 0.01,
) -> Quantised:
    """GPTQ: round the columns in order, spread each column's error over those to come.

    With H = 2 X X^T + damping * mean(diag) I and U the upper Cholesky factor of its inverse (U^T U = H^-1), column j's
    error (w_j - q_j) / U_jj, times row j of U, is subtracted from the columns after j. A group's scale is fixed when
    the sweep reaches its first column, by a search of the clipping point on the weights as they are then; groups of
    several short rows, or across the end of a row, are fixed in the same way.

    Parameters
    ----------
    weight : tensor, out x in
        Finite weights.
    calibration
        Inputs of the layer.
    bits
        b, bits per code, 2 to 8.
    group
        g, consecutive weights, row-major, that share a scale.
    damping
        Share of the mean diagonal added to H.

    Returns
    -------
    Quantised
        The rounded weights and their bits, b + 16/g.

    Raises
    ------
    InputError
        If the weight is not finite, the calibration does not fit or is all zero, or an argument is out of range.

    Examples
    --------
    >>> inputs = Calibration(torch.eye(4).double(), torch.ones(4).double(), 4)
    >>> gptq(torch.tensor([[-1.0, 0.0, 0.5, 1.0]]), inputs, bits=2, group=4).bits_per_weight
    6.0
    """
    weight, group = _checked(weight, calibration, bits, group)
    groups = as_blocks(weight, group)
    if not check_number("damping", damping) > 0:
        raise InputError(f"damping={damping} must be positive, such as 0.01")
    hessian = 2 * calibration.gram
    hessian = hessian + damping * hessian.diagonal().mean() * torch.eye(len(hessian), dtype=torch.float64)
    spread = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(hessian)), upper=True)
    rows, width = weight.shape
    half = 1 << (bits - 1)
    left = groups.new_zeros(len(groups) * group)  # the weights as they are now, and padding
    current = left[: rows * width].view(rows, width)
    current.copy_(weight)
    found = torch.empty_like(current)
    owner = (torch.arange(rows * width) // group).view(rows, width)
    starts = torch.arange(len(groups)) * group
    ends = (starts + group).clamp_max(rows * width)
    opens = torch.where(starts // width == (ends - 1) // width, starts % width, 0)  # the first column of each group
    scales = groups.new_zeros(len(groups), 1)
    borders = [*torch.unique(opens).tolist(), width]
    for first, last in pairwise(borders):
        opened = opens == first
        scales[opened] = _clipped_scales(left.view(-1, group)[opened], half)
        scale = scales[owner[:, first:last], 0]
        errors = torch.empty_like(scale)
        for j in range(first, last):  # each column needs what the ones before have left
            column = current[:, j]
            step = scale[:, j - first]
            found[:, j] = (column / step).round().clamp(-half, half - 1) * step
            error = (column - found[:, j]) / spread[j, j]
            current[:, j:last] -= error[:, None] * spread[j, j:last]
            errors[:, j - first] = error
        current[:, last:] -= errors @ spread[first:last, last:]
    return Quantised(found.float(), bits + 16 * len(groups) / weight.numel())


def awq(
    weight: Float32[Tensor, "out in"],
    calibration: Calibration,
    bits: int = 4,
    group: int = 128,
    *,
    exponents: Iterable[float] = tuple(np.linspace(0, 1, 20)),
    clip: bool = True,
) -> Quantised:
    """AWQ: scale the input channels by a power of their mean magnitude, round, then search the clipping point.

    Channel j is multiplied by s_j = (mean |x_j|)^a, normalised so that the product of the largest and the smallest is
    1; a is the exponent of least output error, rounding with the scale set by each group's peak. Then each group's
    clipping point is the one of least output error of the group alone.

    Parameters
    ----------
    weight : tensor, out x in
        Finite weights.
    calibration
        Inputs of the layer.
    bits
        b, bits per code, 2 to 8.
    group
        g, consecutive weights, row-major, that share a scale.
    exponents
        The a tried; of equal errors the first.
    clip
        Whether to search the clipping point.

    Returns
    -------
    Quantised
        The rounded weights W' diag(s) diag(1/s), and their bits, b + 16/g.

    Raises
    ------
    InputError
        If the weight is not finite, the calibration does not fit or is all zero, or an argument is out of range.

    Examples
    --------
    >>> inputs = Calibration(torch.eye(4).double(), torch.ones(4).double(), 4)
    >>> awq(torch.tensor([[-1.5, 0.0, 0.9, 1.5]]), inputs, bits=2, group=4, clip=False).weight
    tensor([[-2.,  0.,  1.,  1.]])
    """
    weight, group = _checked(weight, calibration, bits, group)
    as_blocks(weight, group)  # refuses what is not finite
    half = 1 << (bits - 1)
    gram = calibration.gram
    exact = weight.double()
    relative = (calibration.magnitude / calibration.magnitude.max()).clamp_min(1e-4)
    best, least = None, np.inf
    for exponent in exponents:
        channel = relative**exponent
        channel = channel / (channel.max() * channel.min()).sqrt()
        wrong = _round(exact * channel, half, group, 1.0) / channel - exact
        error = ((wrong @ gram) * wrong).sum().item()
        if error < least:
            best, least = channel, error
    if best is None:
        raise InputError("exponents are missing, or no error is finite: give numbers from 0 to 1")
    scaled = exact * best
    n = -(-weight.numel() // group)
    chosen, lowest = torch.empty(0), torch.full((n,), torch.inf, dtype=torch.float64)
    pieces = _pieces(*weight.shape, group)
    for share in SHARES if clip else SHARES[:1]:
        tried = _round(scaled, half, group, share)
        wrong = tried / best - exact
        error = torch.zeros(n, dtype=torch.float64)
        for columns, rows, owner in pieces:
            part = wrong[rows, columns]
            error.index_add_(0, owner, ((part @ gram[columns, columns]) * part).sum(1))
        better = (error < lowest).repeat_interleave(group)[: weight.numel()].view(weight.shape)
        chosen = torch.where(better, tried, chosen) if chosen.numel() else tried
        lowest = torch.minimum(lowest, error)
    return Quantised((chosen / best).float(), bits + 16 * n / weight.numel())


def _checked(weight: Tensor, calibration: Calibration, bits: int, group: int) -> tuple[Float[Tensor, "out in"], int]:
    """The weight as every encoder takes it, and the group, no longer than the weight."""
    weight = as_weight(weight)
    if not isinstance(calibration, Calibration):
        raise InputError(f"calibration of type {type(calibration).__name__} is none: give what collect returned")
    group = checked_group(bits, group, weight.numel())
    if weight.ndim != 2 or len(calibration.gram) != weight.shape[1]:
        raise InputError(
            f"weight has shape {tuple(weight.shape)}, calibration is of {len(calibration.gram)} inputs: "
            "give the inputs of the same layer"
        )
    if not (torch.isfinite(calibration.gram).all() and torch.isfinite(calibration.magnitude).all()):
        raise InputError("calibration holds values that are not finite: collect it from finite inputs")
    if not calibration.gram.diagonal().any():
        raise InputError("calibration holds nothing but zeros: collect it from data")
    return weight, group


def _scales(wanted: Float64[Tensor, " groups"]) -> Float64[Tensor, "groups 1"]:
    return torch.from_numpy(float16_scales(wanted.numpy()).astype(np.float64))[:, None]


def _clipped_scales(groups: Float64[Tensor, "groups g"], half: int) -> Float64[Tensor, "groups 1"]:
    """Each group's scale of least squared error, as in `baselines.rtn_clipped`."""
    peak = groups.abs().amax(1)
    best, least = torch.ones(len(groups), 1, dtype=torch.float64), torch.full_like(peak, torch.inf)
    for share in SHARES:
        scale = _scales(float(share) * peak / (half - 0.5))
        error = ((groups / scale).round().clamp(-half, half - 1) * scale - groups).square().sum(1)
        better = error < least
        best[better], least[better] = scale[better], error[better]
    return best


def _round(weight: Float64[Tensor, "out in"], half: int, group: int, share: float) -> Float64[Tensor, "out in"]:
    """Symmetric rounding with each group's clipping point at a share of its peak."""
    groups = as_blocks(weight, group)
    scale = _scales(float(share) * groups.abs().amax(1) / (half - 0.5))
    found = (groups / scale).round().clamp(-half, half - 1) * scale
    return found.reshape(-1)[: weight.numel()].view(weight.shape)


def _pieces(rows: int, width: int, group: int) -> list[tuple[slice, Int64[Tensor, " n"], Int64[Tensor, " n"]]]:
    """The rows' pieces between borders of groups: columns, the rows that have such a piece, and their groups."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    period = group // gcd(group, width)  # the pattern of borders repeats after so many rows
    for row in range(min(rows, period)):
        start = row * width
        cuts = sorted({0, width, *range(-start % group, width, group)})
        for a, b in pairwise(cuts):
            found.setdefault((a, b), []).append((row, (start + a) // group))
    pieces = []
    for (a, b), first in found.items():
        times = torch.arange(-(-rows // period))[:, None]
        here = (torch.tensor([row for row, _ in first]) + times * period).flatten()
        owner = (torch.tensor([g for _, g in first]) + times * (period * width // group)).flatten()
        pieces.append((slice(a, b), here[here < rows], owner[here < rows]))
    return pieces
