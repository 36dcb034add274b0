"""SeedLM's codec: a seed, a shared exponent and a few 4-bit coefficients for every block of weights.

Shafipour et al., "SeedLM: Compressing LLM Weights into Seeds of Pseudo-Random Generators", ICLR 2025 (arXiv
2410.10714), S-Quant's ancestor. A block of C weights becomes w ~ U_s q 2^e: U_s is C x P from a Fibonacci register of K
bits, q are P two's complement coefficients of 4 bits, e is an exponent from -8 to 7; (K + 4 + 4 P)/C bits per weight.
The seed is that of least *quantised* error over all 2^K - 1.

The search is exact and yet quantises only tens of seeds per block: rounding cannot beat least squares, so a seed whose
unquantised error (from `search`) exceeds a quantised error already reached is out. Bits are counted by `encoded`.
"""

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from icml26.errors import InputError
from icml26.s_quant.bases import as_blocks, as_weight, least_squares
from icml26.s_quant.config import HIGHEST, LOWEST, SEEDLM_4BIT, SeedLMConfig
from icml26.s_quant.encoded import SeedLMEncoded
from icml26.s_quant.search import MARGIN, Progress, scores

__all__ = ["decode", "encode", "numerators", "quantise"]

_PIVOTS = 16  # seeds quantised first in each block: the more, the tighter the bound on the rest
_CHUNK = 1 << 16  # seeds quantised, or blocks decoded, at a time


def quantise(
    blocks: Float64[Tensor, "n C"], config: SeedLMConfig, seeds: Int64[np.ndarray, " n"]
) -> tuple[Float64[Tensor, " n"], Int64[Tensor, " n"], Float64[Tensor, "n P"], Int64[Tensor, " n"]]:
    """Quantise blocks with given seeds: t = U^+ w, the exponent by the rule, q = clip(round(t / 2^e), -8, 7).

    Parameters
    ----------
    blocks : float64 tensor, n x C
        One block per seed.
    config
        The codec's parameters.
    seeds : integer array, n
        Seeds, 1 to 2^K - 1.

    Returns
    -------
    float64 tensor, n
        Squared errors ``|w - U q 2^e|^2``.
    int64 tensor, n
        Exponents; of equal errors the lowest.
    float64 tensor, n x P
        Coefficients.
    int64 tensor, n
        Exponents before they were limited to -8..7 (by the range rule if exponents are searched).

    Examples
    --------
    >>> weights = torch.tensor([[-0.5, 0.25, 1.0, 0.5]], dtype=torch.float64)
    >>> error, e, q, _ = quantise(weights, SeedLMConfig(4, 2, 3), np.array([4]))
    >>> e.item(), q.tolist()
    (-3, [[6.0, -6.0]])
    """
    blocks, power = _normalised(blocks)
    error, exponents, codes, free = _quantise(blocks, power, config, seeds)
    unit = _powers(power)
    return error * unit * unit, exponents, codes, free


def _powers(exponents: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Powers of two, exact."""
    return torch.from_numpy(np.ldexp(1.0, exponents.cpu().numpy())).to(exponents.device)


def _normalised(blocks: Float64[Tensor, "n C"]) -> tuple[Float64[Tensor, "n C"], Int64[Tensor, " n"]]:
    """Blocks divided by a power of two each, so that no square under- or overflows, and the powers."""
    power = torch.frexp(blocks.abs().amax(1)).exponent.long().clamp(-1000, 1000)
    return blocks * _powers(-power)[:, None], power


def _quantise(
    blocks: Float64[Tensor, "n C"], power: Int64[Tensor, " n"], config: SeedLMConfig, seeds: Int64[np.ndarray, " n"]
) -> tuple[Float64[Tensor, " n"], Int64[Tensor, " n"], Float64[Tensor, "n P"], Int64[Tensor, " n"]]:
    """`quantise` for blocks already divided by 2^power, with errors in units of 4^power."""
    half = config.bases.register.half
    matrices = torch.from_numpy(config.bases.integers(seeds, config.rank)).to(blocks.device, torch.float64)
    fitted = least_squares(matrices / (half - 1), blocks)
    free = _exponents(fitted.abs().amax(1), config.exponent_rule, power)
    if config.exponent_rule == "search":
        exponents = torch.arange(LOWEST, HIGHEST + 1, device=blocks.device).expand(len(blocks), -1)
    else:
        exponents = free.clamp(LOWEST, HIGHEST)[:, None]
    scale = _powers(exponents - power[:, None])[:, None]  # n x 1 x exponents
    codes = (fitted[:, :, None] / scale).round_().clamp_(LOWEST, HIGHEST)
    # The decoder's own arithmetic, and one order of summation: equal blocks have equal errors, bit for bit.
    wrong = blocks[:, :, None] - (matrices @ codes) * scale / (half - 1)
    error = wrong[:, 0].square()
    for c in range(1, config.block_size):
        error = error + wrong[:, c].square()
    error, best = error.min(1)
    codes = codes.gather(2, best[:, None, None].expand(-1, config.rank, 1))[:, :, 0]
    return error, exponents.gather(1, best[:, None])[:, 0], codes, free


def encode(
    weight: Tensor | np.ndarray, config: SeedLMConfig = SEEDLM_4BIT, *, progress: Progress | None = None
) -> SeedLMEncoded:
    """Encode a weight tensor: the seed of least quantised error for every block, the lowest of equal ones.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Finite weights, cut row-major into blocks. Heavy work runs on its device.
    config
        The codec's parameters.
    progress
        Called with the share done, 0 to 1.

    Returns
    -------
    SeedLMEncoded
        The encoded tensor.

    Raises
    ------
    InputError
        If the weight is empty or not finite.

    Examples
    --------
    >>> found = encode(torch.arange(16.0) / 16, SeedLMConfig(4, 2, 8))
    >>> found.bits_per_weight(), found.payload_bytes()
    (5.0, 10)
    """
    weight = as_weight(weight)
    blocks = as_blocks(weight, config.block_size)
    size, shift = weight.numel(), 0
    if config.prescale and blocks.any():
        peak = blocks.abs().max()
        rms = peak * ((blocks / peak).square().sum() / size).sqrt()
        shift = int(torch.frexp(rms).exponent.clamp(-128, 127))
        blocks = torch.ldexp(blocks, torch.tensor(-shift, dtype=torch.float64))
    seeds = np.ones(len(blocks), dtype=np.uint32)
    alive = blocks.any(1).nonzero()[:, 0]
    for part, score, maxima in scores(blocks[alive], config.bases, config.rank):
        rows = alive[part]
        seeds[rows.cpu().numpy()] = _best(blocks[rows], score, maxima, config).cpu().numpy()
        if progress:
            progress(part.stop / len(alive))
    if progress:
        progress(1.0)
    exponents, codes, free = [], [], []
    for i in range(0, len(blocks), _CHUNK):
        found = quantise(blocks[i : i + _CHUNK], config, seeds[i : i + _CHUNK])
        for kept, value in zip((exponents, codes, free), found[1:], strict=True):
            kept.append(value.cpu())
    return SeedLMEncoded(
        config=config,
        shape=tuple(weight.shape),
        seeds=seeds,
        exponents=torch.cat(exponents).to(torch.int8).numpy(),
        coefficients=torch.cat(codes).to(torch.int8).numpy(),
        shift=shift,
        below_floor=int((torch.cat(free) < LOWEST).sum()),
    )


def numerators(encoded: SeedLMEncoded, device: torch.device | str = "cpu") -> Float64[Tensor, "n C"]:
    """The integers num_c = sum over p of (z - h) q_p that a block's weights are multiples of.

    Parameters
    ----------
    encoded
        An encoded tensor.
    device
        Where to compute.

    Returns
    -------
    float64 tensor, n x C
        Integers of at most (h - 1) * 8 * P, 21 bits with the sign for 16-bit seeds and P = 3.

    Examples
    --------
    >>> config, one = SeedLMConfig(4, 2, 3), np.ones(1, np.int8)
    >>> numerators(SeedLMEncoded(config, (4,), np.array([4]), one, np.array([[2, -1]]), 0, 0))
    tensor([[-5.,  1.,  1.,  2.]], dtype=torch.float64)
    """
    config, parts = encoded.config, []
    for i in range(0, len(encoded.seeds), _CHUNK):
        matrices = torch.from_numpy(config.bases.integers(encoded.seeds[i : i + _CHUNK], config.rank))
        codes = torch.from_numpy(encoded.coefficients[i : i + _CHUNK].astype(np.float64)).to(device)
        parts.append((matrices.to(device, torch.float64) @ codes[:, :, None])[:, :, 0])
    return torch.cat(parts)


def decode(encoded: SeedLMEncoded, device: torch.device | str = "cpu") -> Float32[Tensor, "..."]:
    """Decode a weight tensor, bit-exact: integers, one float64 division, one cast.

    Parameters
    ----------
    encoded
        An encoded tensor.
    device
        Where to compute, and where the result shall be.

    Returns
    -------
    float32 tensor of the original shape
        num * 2^(e + shift) / (h - 1).

    Examples
    --------
    >>> decode(encode(torch.zeros(3, 5), SeedLMConfig(4, 2, 8))).count_nonzero()
    tensor(0)
    """
    config = encoded.config
    scale = torch.from_numpy(np.ldexp(1.0, encoded.exponents.astype(np.int64) + encoded.shift)).to(device)
    blocks = numerators(encoded, device) * scale[:, None] / (config.bases.register.half - 1)
    return blocks.to(torch.float32).view(-1)[: encoded.size].reshape(encoded.shape)


def _exponents(peak: Float64[Tensor, " n"], rule: str, power: Int64[Tensor, " n"] | int = 0) -> Int64[Tensor, " n"]:
    """The exponent for the greatest coefficient, peak 2^power, before it is limited to four bits; -8 for zeros."""
    # frexp: x = m 2^p with m in [0.5, 1), so that floor(log2 x) = p - 1 and ceil(log2 x) = p, or p - 1 for a power of 2
    if rule == "printed":
        found = torch.frexp(peak).exponent.long() - 1
    else:
        mantissa, exponent = torch.frexp(peak / 7.5)
        found = exponent.long() - (mantissa == 0.5).long()
    return torch.where(peak > 0, found + power, LOWEST)


def _best(
    blocks: Float64[Tensor, "n C"],
    score: Float32[Tensor, "seeds n"],
    maxima: Float32[Tensor, "tiles n"],
    config: SeedLMConfig,
) -> Int64[Tensor, " n"]:
    """The seed of least quantised error for each block, given all seeds' float32 energies."""
    n, device = len(blocks), blocks.device
    blocks, power = _normalised(blocks)
    tiles = score.unflatten(0, (len(maxima), -1))
    energy = blocks.square().sum(1)

    def errors(seed: Tensor, block: Tensor) -> Tensor:
        pieces = [
            _quantise(blocks[part], power[part], config, chosen.cpu().numpy())[0]
            for part, chosen in zip(block.split(_CHUNK), seed.split(_CHUNK), strict=True)
        ]
        return torch.cat(pieces)

    # First the best seed of each of the most promising tiles; what they reach bounds the rest.
    pivot = maxima.topk(min(_PIVOTS, len(maxima)), dim=0).indices
    column = torch.arange(n, device=device).expand_as(pivot)
    row = tiles[pivot, :, column].argmax(2)
    seed = pivot * tiles.shape[1] + row + 1
    reached = errors(seed.flatten(), column.flatten()).view_as(seed).amin(0)
    least = 1 - reached / energy - MARGIN  # the score below which a seed cannot be the best
    tile, block = (maxima >= least).nonzero(as_tuple=True)
    pair, row = (tiles[tile, :, block] >= least[block][:, None]).nonzero(as_tuple=True)
    seed, block = tile[pair] * tiles.shape[1] + row + 1, block[pair]
    inside = seed <= config.bases.register.period  # a bound below zero also admits the table's padding
    seed, block = seed[inside], block[inside]
    error = errors(seed, block)
    best = torch.full((n,), torch.inf, dtype=torch.float64, device=device).scatter_reduce_(0, block, error, "amin")
    winner = error == best[block]
    none = config.bases.register.period + 1
    found = torch.full((n,), none, device=device).scatter_reduce_(0, block[winner], seed[winner], "amin")
    if (found == none).any():
        row = blocks[found == none][0].tolist()
        raise InputError(f"weight has a block that no seed represents ({row[:3]}...): scale it by a power of 2")
    return found
