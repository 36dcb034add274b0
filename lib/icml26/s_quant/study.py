"""The chapter's measurements: samples of weights, errors by scale group, adaptive against fixed numbers of bases.

S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv 2410.10714) are compared on segments
of weights that hold whole scale groups, because blocks of one group share a scale and are not independent. Errors of a
tensor are divided by its mean square weight, so that every tensor counts alike whatever its scale. Bits (Eq. 13, with
and without counts) come from the codecs; intervals from `icml26.stats`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from scipy import stats as scipy_stats
from torch import Tensor, nn

from icml26 import stats
from icml26.errors import InputError, nearest
from icml26.s_quant.bases import as_weight
from icml26.s_quant.codec import Encoded
from icml26.s_quant.config import check_integer, check_number
from icml26.s_quant.layers import dense_weight, is_transposed

__all__ = [
    "DISTRIBUTIONS",
    "Sample",
    "adaptive_over_fixed",
    "group_bits",
    "linear_weights",
    "sample_weights",
    "synthetic_weights",
]

DISTRIBUTIONS = {
    "gaussian": scipy_stats.norm(),
    "laplace": scipy_stats.laplace(scale=1 / np.sqrt(2)),
    "student-t4": scipy_stats.t(4, scale=1 / np.sqrt(2)),
}  # of variance 1


@dataclass(frozen=True, eq=False)
class Sample:
    """Segments of consecutive weights of several tensors.

    Parameters
    ----------
    segments : float32 tensor, n x length
        Each inside one tensor, flattened row-major, at a multiple of the length.
    owner : int64 array, n
        Index of each segment's tensor.
    power : float64 array, tensors
        Mean square weight of each tensor's segments.
    """

    segments: Float32[Tensor, "n length"]
    owner: Int64[np.ndarray, " n"]
    power: Float64[np.ndarray, " tensors"]

    def squares(self, values: Float[Tensor, "n length"], length: int | None = None) -> Float64[np.ndarray, " units"]:
        """Sum the squares of each run of `length` values (default: a segment), in units of the tensor's mean square.

        Parameters
        ----------
        values : tensor, n x length of a segment
            Weights, or what a codec gets wrong about them.
        length
            Values a sum runs over, a divisor of the segment's length.
        """
        length = length or self.segments.shape[1]
        summed = values.double().square().reshape(len(values), -1, length).sum(-1).numpy()
        return (summed / self.power[self.owner, None]).reshape(-1)

    def error(
        self, decoded: Float[Tensor, "n length"], *, seed: int, resamples: int = 2000, length: int | None = None
    ) -> stats.Interval:
        """Relative Frobenius error of a decoded sample, with a bootstrap interval over runs of `length` weights.

        Parameters
        ----------
        decoded : tensor, n x length of a segment
            What the codec made of the segments.
        seed, resamples
            Of the bootstrap.
        length
            Weights that are resampled together: a scale group, or a block for codecs without groups.
        """
        wrong = self.squares(self.segments - decoded.reshape(self.segments.shape), length)
        norm = self.squares(self.segments, length)
        return stats.bootstrap_interval(stats.root_ratio_of_sums, wrong, norm, seed=seed, resamples=resamples)


def synthetic_weights(law: str, size: int, *, seed: int, sigma: float = 0.02) -> Float32[Tensor, " size"]:
    """Draw independent weights of mean 0.

    Parameters
    ----------
    law
        ``"gaussian"``, ``"laplace"`` or ``"student-t4"`` (Student's t with 4 degrees of freedom).
    size
        How many.
    seed
        Of the draw.
    sigma
        Their standard deviation. SeedLM's exponents cannot follow weights much smaller than the default.

    Returns
    -------
    float32 tensor, size
        The weights.

    Raises
    ------
    InputError
        If the law is not known, or size, seed or sigma are out of range.

    Examples
    --------
    >>> synthetic_weights("student-t4", 4, seed=0).shape
    torch.Size([4])
    """
    check_integer("size", size, 1, 1 << 40)
    check_integer("seed", seed, 0, 1 << 128)
    sigma = check_number("sigma", sigma)
    if not isinstance(law, str):
        raise InputError(f"law={law!r} is none of {', '.join(DISTRIBUTIONS)}")
    if law not in DISTRIBUTIONS:
        raise InputError(f"law={law!r} is none of {', '.join(DISTRIBUTIONS)}{nearest(law, DISTRIBUTIONS)}")
    drawn = DISTRIBUTIONS[law].rvs(size, random_state=np.random.default_rng(seed))
    return torch.from_numpy(drawn * sigma).float()


def linear_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that weight-only codecs replace: linear layers inside the blocks; heads and embeddings stay.

    Parameters
    ----------
    model
        A `transformers` model; its blocks are the numbered modules.

    Returns
    -------
    dict of str to tensor
        Weight by layer name, detached, as out x in: that of GPT-2's `Conv1D` layers, which store its transpose, is
        transposed, as a linear layer's would be.

    Raises
    ------
    InputError
        If the model is none, or has no such layer.

    Examples
    --------
    >>> block = nn.ModuleList([nn.Linear(2, 2)])
    >>> list(linear_weights(nn.ModuleDict({"layer": block, "pooler": nn.Linear(2, 2)})))
    ['layer.0']
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model of type {type(model).__name__} is none: give a torch module")
    found = {
        name: dense_weight(module, module.weight.detach())
        for name, module in model.named_modules()
        if (isinstance(module, nn.Linear) or is_transposed(module)) and re.search(r"(^|\.)\d+(\.|$)", name)
    }
    if not found:
        raise InputError(f"model {type(model).__name__} has no linear layer in a numbered block: give a transformer")
    return found


def sample_weights(weights: Mapping[str, Tensor] | Tensor, length: int, size: int, *, seed: int) -> Sample:
    """Take random segments of each tensor, without replacement.

    Parameters
    ----------
    weights : mapping of str to tensor, or one tensor
        Where to sample.
    length
        Weights in a segment: a multiple of the codec's scale group, so that no group is cut.
    size
        At least so many weights of each tensor, or all whole segments of a smaller one.
    seed
        Of the choice.

    Returns
    -------
    Sample
        The segments, tensor by tensor in order of position.

    Raises
    ------
    InputError
        If there is no tensor, one is shorter than a segment or all zero, or a number is out of range.

    Examples
    --------
    >>> sample_weights(torch.arange(1.0, 13.0), 3, 6, seed=0).segments.shape
    torch.Size([2, 3])
    """
    check_integer("length", length, 1, 1 << 40)
    check_integer("size", size, 1, 1 << 40)
    rng = np.random.default_rng(check_integer("seed", seed, 0, 1 << 128))
    tensors = weights if isinstance(weights, Mapping) else {"weights": weights}
    if not tensors:
        raise InputError("weights are none: give one tensor or more")
    parts, owner, power = [], [], []
    for name, given in tensors.items():
        tensor = as_weight(given)
        places = tensor.numel() // length
        if not places or not tensor.any():
            raise InputError(f"weights {name!r} hold {tensor.numel()} values: need {length} or more, not all zero")
        chosen = np.sort(rng.choice(places, min(places, -(-size // length)), replace=False))
        part = tensor.reshape(-1)[: places * length].reshape(places, length)[torch.from_numpy(chosen)].float()
        owner += [len(power)] * len(part)
        power.append(part.double().square().mean().item())
        parts.append(part)
    return Sample(torch.cat(parts), np.array(owner), np.array(power))


def group_bits(encoded: Encoded, count_bits: float | None = None) -> Float64[np.ndarray, " groups"]:
    """Bits per weight of each scale group under S-Quant (Eq. 13 of one group, and its counts).

    Parameters
    ----------
    encoded
        Whole groups, as `sample_weights` takes them.
    count_bits
        What each stored k costs; default: its field in the stream. 0 is the paper's count.

    Returns
    -------
    float64 array, groups
        Their mean is ``encoded.bits_per_weight()``.

    Raises
    ------
    InputError
        If the last group is short.

    Examples
    --------
    >>> from icml26.s_quant import codec
    >>> group_bits(codec.encode(torch.zeros(2, 128)))  # two bases a block: 16 + 4 + 2 * 8 + 16/8 bits for 16 weights
    array([2.375, 2.375])
    """
    config = encoded.config
    weights = config.group_size * config.block_size
    if encoded.size % weights:
        raise InputError(f"encoded holds {encoded.size} weights, no multiple of the scale group's {weights}: cut it")
    vectors = encoded.counts.reshape(-1, config.group_size).sum(1, dtype=np.int64)
    fixed = config.group_size * (config.seed_bits + (config.count_bits if count_bits is None else count_bits)) + 16
    return (fixed + config.coefficient_bits * vectors) / weights


def adaptive_over_fixed(
    norm: Float64[np.ndarray, " groups"],
    adaptive: tuple[Float64[np.ndarray, " groups"], Float64[np.ndarray, " groups"]],
    fixed: Mapping[int, Float64[np.ndarray, " groups"]],
    fixed_bits: Sequence[float],
    *,
    seed: int,
    resamples: int = 2000,
) -> stats.Interval:
    """Ratio of relative errors, number of bases chosen per block over a fixed number, at equal bits.

    The fixed numbers give points of bits and error; between them the logarithm of the error is interpolated linearly in
    the bits, at the bits that the adaptive codec spends. Everything is done anew in each resample of the groups.

    Parameters
    ----------
    norm : array, groups
        Squared norm of each scale group.
    adaptive : (array, array), groups each
        Squared error, and bits per weight, of each group under the adaptive codec.
    fixed : mapping of int to array, groups
        Squared error of each group with k bases in every block, for consecutive k.
    fixed_bits : sequence of float
        Bits per weight at each of these k, evenly spaced and increasing.
    seed, resamples
        Of the bootstrap.

    Returns
    -------
    Interval
        Below 1 where choosing k per block pays.

    Raises
    ------
    InputError
        If lengths differ, there are fewer than two fixed numbers, their bits are not evenly spaced and increasing, or
        the adaptive codec's bits lie outside them.

    Examples
    --------
    >>> one = np.ones(8)
    >>> adaptive_over_fixed(one, (0.25 * one, 1.5 * one), {1: one, 2: 0.0625 * one}, [1.0, 2.0], seed=0).value
    1.0
    """
    wrong, bits = adaptive
    grid = np.asarray(fixed_bits, dtype=float)
    if grid.ndim != 1 or not 2 <= len(grid) == len(fixed):
        raise InputError(f"fixed_bits has shape {grid.shape}, fixed {len(fixed)} entries: give two or more, as many")
    steps = np.diff(grid)
    if not (steps > 0).all() or not np.allclose(steps, steps[0]):
        raise InputError(f"fixed_bits {grid.tolist()} must be increasing and evenly spaced: give consecutive k")
    lengths = [len(one) for one in (norm, wrong, bits, *fixed.values())]
    if len(set(lengths)) > 1:
        raise InputError(f"norm, adaptive and fixed have {lengths} groups: give the same groups to all")
    if not grid[0] <= bits.mean() <= grid[-1]:
        raise InputError(f"adaptive bits {bits.mean():.3f} lie outside fixed_bits {grid[0]:g} to {grid[-1]:g}: add k")

    def ratio(norm: np.ndarray, wrong: np.ndarray, bits: np.ndarray, *fixed: np.ndarray, axis: int) -> np.ndarray:
        curve = np.stack([0.5 * np.log(e.sum(axis) / norm.sum(axis)) for e in fixed])
        place = np.clip((bits.mean(axis) - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1)
        left = np.minimum(place.astype(int), len(grid) - 2)
        low, high = (np.take_along_axis(curve, (left + i)[None], 0)[0] for i in (0, 1))
        return np.sqrt(wrong.sum(axis) / norm.sum(axis)) / np.exp(low + (place - left) * (high - low))

    return stats.bootstrap_interval(ratio, norm, wrong, bits, *fixed.values(), seed=seed, resamples=resamples)
