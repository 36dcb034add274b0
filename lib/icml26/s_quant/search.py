"""The exhaustive search for the best seed of every block, as matrix products.

S-Quant (Wang et al., ICML 2026, arXiv: none) keeps for a block T the seed of largest R_k(s), Eq. 6:
``R_k(s) = 1 - |T - U_s a|^2 / |T|^2``, and raises k until R_k reaches the threshold (Alg. 1). With an orthonormal
basis q_1..q_k of the columns of U_s, R_k(s) is the sum over j <= k of ``(q_j . T)^2 / |T|^2``: one matrix product for
all seeds and many blocks per column, and nested columns give every k in one pass.

Exactness: products in float32 only rank. Every tile of seeds whose best score comes within `MARGIN` of the maximum is
scored again in float64, and seeds within `TIE` of the best are a tie that the lowest one wins, so that rounding decides
nothing. Work is cut into pieces that stay in the processor's cache. Coefficients are the codecs' business.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from icml26.errors import InputError
from icml26.s_quant.bases import TILE, Bases, orthonormal, unit_blocks

__all__ = ["MARGIN", "TIE", "Progress", "SearchPath", "best_candidates", "scores", "search_path"]

MARGIN = 1e-5  # float32 scores are off by less than half of this (about 1e-6)
TIE = 1e-10  # float64 scores this close are equal
Progress = Callable[[float], None]  # called with the share done, 0 to 1
WORKSPACE = 1 << 20  # bytes of scores in work at a time on a processor: about its second-level cache
_DEVICE_WORKSPACE = 1 << 28  # the same on an accelerator
_WIDTH = 256  # blocks per matrix product
_GROUP = 512  # blocks between two reports of progress
_SMALL = 32  # seeds per tile in `best_candidates`
_SCORES = 1 << 25  # bytes of all seeds' scores at a time, in `scores`


@dataclass(frozen=True, eq=False)
class SearchPath:
    """The best seed of each block for every number of bases k from k_first on.

    Parameters
    ----------
    bases
        The family that was searched.
    k_first
        k of the first column.
    seeds : int64 array, blocks x ks
        Best seeds; 0 where the search stopped before or after this k.
    energy : float64 array, blocks x ks
        Their R_k; NaN where not searched.
    """

    bases: Bases
    k_first: int
    seeds: Int64[np.ndarray, "n ks"]
    energy: Float64[np.ndarray, "n ks"]


def search_path(
    blocks: Float64[Tensor, "n B"],
    bases: Bases,
    k_first: int,
    k_last: int,
    *,
    threshold: float | None = None,
    workspace: int | None = None,
    progress: Progress | None = None,
) -> SearchPath:
    """Search all seeds for every block and every k, or for the first k that reaches a threshold.

    Parameters
    ----------
    blocks : float64 tensor, n x B
        Blocks of weights (`as_blocks`). A zero block counts as reconstructed (R = 1) by seed 1.
    bases
        The family of bases.
    k_first, k_last
        Range of k.
    threshold
        If given, each block's search stops at the first k with max R_k >= threshold - 1e-10, and only that k is filled
        in (k_last if none reaches it).
    workspace
        Bytes of scores held at a time.
    progress
        Called with the share done.

    Returns
    -------
    SearchPath
        Seeds and energies.

    Raises
    ------
    InputError
        If the range of k is empty or not within 1 to B, or a block has another length than the bases.

    Examples
    --------
    >>> from icml26.s_quant.lfsr import Register
    >>> found = search_path(torch.eye(4, dtype=torch.float64), Bases(Register(8), 4), 1, 3)
    >>> found.seeds.shape, bool((np.diff(found.energy) >= 0).all())
    ((4, 3), True)
    """
    if not 1 <= k_first <= k_last <= bases.block_size:
        raise InputError(f"k from {k_first} to {k_last} is no range within 1 to {bases.block_size}")
    if blocks.shape[1] != bases.block_size:
        raise InputError(f"blocks of {blocks.shape[1]} weights do not fit bases of {bases.block_size} rows")
    n, unit = len(blocks), unit_blocks(blocks)
    seeds = np.zeros((n, k_last - k_first + 1), dtype=np.int64)
    energy = np.full(seeds.shape, np.nan)
    alive = blocks.any(1)
    zero = (~alive).nonzero()[:, 0].cpu().numpy()
    columns = slice(None) if threshold is None else slice(1)
    seeds[zero, columns], energy[zero, columns] = 1, 1.0

    stages = [range(k, k + 1) for k in range(k_first, k_last + 1)]
    if bases.nested:
        stages = [range(k_first, k_last + 1)]
        if threshold is not None and n >= 2 * _GROUP:
            stages = _split(search_path(blocks[: _GROUP // 4], bases, k_first, k_last, threshold=threshold), k_last)
    waiting, done = alive.nonzero()[:, 0], len(zero) / n
    for levels in stages:
        if not len(waiting):
            break
        table = orthonormal(bases, k_last if bases.nested else levels[-1], blocks.device)[:, : levels[-1]]
        target = slice(levels[0] - k_first, levels[-1] - k_first + 1)
        still = []
        for part in waiting.split(_GROUP):
            found, reached = _search(unit[part], table, levels, threshold, levels[-1] == k_last, workspace)
            rows, hit = part.cpu().numpy(), (found > 0).any(0)
            seeds[rows, target], energy[rows, target] = found.T.cpu().numpy(), reached.T.cpu().numpy()
            still.append(part if threshold is None else part[~hit])
            done += (len(part) / len(stages) if threshold is None else int(hit.sum())) / n
            if progress:
                progress(min(done, 1.0))
        waiting = torch.cat(still)
    if progress:
        progress(1.0)
    return SearchPath(bases, k_first, seeds, energy)


def scores(
    blocks: Float64[Tensor, "n B"], bases: Bases, k: int, *, workspace: int | None = None
) -> Iterator[tuple[slice, Float32[Tensor, "seeds m"], Float32[Tensor, "tiles m"]]]:
    """All seeds' scores R_k in float32, for a few blocks at a time.

    Parameters
    ----------
    blocks : float64 tensor, n x B
        Blocks of weights.
    bases
        The family of bases.
    k
        Columns.
    workspace
        Bytes of scores worked on at a time; the scores yielded take up to 32 MiB (at least one block's).

    Yields
    ------
    slice
        Which blocks.
    float32 tensor, (2^K - 1, padded with zeros to whole tiles) x m
        Scores; row i belongs to seed i + 1. Overwritten in the next turn.
    float32 tensor, tiles x m
        Their maxima in tiles of `TILE` rows.

    Examples
    --------
    >>> from icml26.s_quant.lfsr import Register
    >>> for part, found, maxima in scores(torch.eye(4, dtype=torch.float64), Bases(Register(8), 4), 4):
    ...     print(part, found.shape, maxima.shape)
    slice(0, 4, None) torch.Size([256, 4]) torch.Size([1, 4])
    """
    table, unit = orthonormal(bases, k, blocks.device), unit_blocks(blocks)
    rows = len(table) * TILE
    size = max(1, _SCORES // (4 * rows))
    kept = torch.empty(rows, min(size, len(unit)), dtype=torch.float32, device=unit.device)
    for start in range(0, len(unit), size):
        part = slice(start, min(start + size, len(unit)))
        found = kept[:, : part.stop - start]
        yield part, found, _tile_maxima(unit[part], table, range(k, k + 1), workspace, found)[0]


def best_candidates(
    blocks: Float64[Tensor, "n B"], bases: Bases, k: int, count: int, *, workspace: int | None = None
) -> Int64[Tensor, "n count"]:
    """The seeds of largest R_k of every block, as a list in ascending order of seed.

    Which of two seeds with R_k equal to float32 rounding is the last on the list is left open.

    Parameters
    ----------
    blocks : float64 tensor, n x B
        Blocks of weights.
    bases
        The family of bases.
    k
        Columns.
    count
        Seeds per block; at most 2^K - 1.
    workspace
        Bytes of scores worked on at a time.

    Returns
    -------
    int64 tensor, n x count
        Seeds.

    Examples
    --------
    >>> from icml26.s_quant.lfsr import Register
    >>> best_candidates(torch.eye(2, dtype=torch.float64), Bases(Register(4), 2), 1, 3)
    tensor([[ 9, 11, 14],
            [ 6,  7,  8]])
    """
    period = bases.register.period
    if not 1 <= count <= period:
        raise InputError(f"count {count} is not within the {period} seeds: use 1 to {period}")
    found = []
    for _, score, _ in scores(blocks, bases, k, workspace=workspace):
        # The best `count` scores lie in the `count` tiles of largest maxima: two small selections for one large one.
        tiles = score.unflatten(0, (-1, _SMALL))
        chosen = tiles.amax(1).T.topk(min(count, len(tiles)), sorted=False).indices
        values = tiles[chosen, :, torch.arange(len(chosen), device=score.device)[:, None]]
        place = values.flatten(1).topk(count, sorted=False).indices
        found.append(chosen.gather(1, place // _SMALL) * _SMALL + place % _SMALL + 1)
    return torch.cat(found).sort(1).values


def _split(pilot: SearchPath, k_last: int) -> list[range]:
    """Two ranges of k: up to where most blocks stop, and on to the end, which restarts from the first column."""
    first = pilot.k_first
    stops = first + np.isfinite(pilot.energy).argmax(1)
    cut = min(range(first, k_last + 1), key=lambda k: k + (stops > k).mean() * k_last)
    return [levels for levels in (range(first, cut + 1), range(cut + 1, k_last + 1)) if levels]


def _search(
    unit: Float64[Tensor, "n B"],
    table: Float64[Tensor, "tiles k TILE B"],
    levels: range,
    threshold: float | None,
    final: bool,
    workspace: int | None,
) -> tuple[Int64[Tensor, "ks n"], Float64[Tensor, "ks n"]]:
    """Best seeds and energies at every level, or at the first level that reaches the threshold (or the final one)."""
    maxima = _tile_maxima(unit, table, levels, workspace)
    if threshold is None:
        return _resolve(unit, table, levels, maxima, torch.ones_like(maxima[:, 0], dtype=torch.bool))
    hopeful = maxima.amax(1) >= threshold - MARGIN
    hopeful[-1] |= final
    while True:  # once, unless a float32 score passed the threshold and its float64 score does not
        wanted = hopeful & (hopeful.cumsum(0) == 1)
        seeds, energy = _resolve(unit, table, levels, maxima, wanted)
        failed = wanted & (energy < threshold - TIE)
        failed[-1] &= not final
        if not failed.any():
            return seeds, energy
        hopeful &= ~failed


def _tile_maxima(
    unit: Float64[Tensor, "n B"],
    table: Float64[Tensor, "tiles k TILE B"],
    levels: range,
    workspace: int | None,
    keep: Float32[Tensor, "seeds n"] | None = None,
) -> Float32[Tensor, "ks tiles n"]:
    """The best float32 score of each tile at every level; the last level's scores are left in `keep`."""
    n, device = len(unit), unit.device
    workspace = workspace or (WORKSPACE if device.type == "cpu" else _DEVICE_WORKSPACE)
    width = min(n, max(1, workspace // (8 * TILE)), _WIDTH)  # blocks at a time; two float32 buffers of scores
    height = max(1, workspace // (8 * TILE * width))  # tiles at a time
    right = unit.T.to(torch.float32)
    parts = [(slice(i, min(i + width, n)), right[:, i : i + width].contiguous()) for i in range(0, n, width)]
    maxima = torch.empty(len(levels), len(table), n, dtype=torch.float32, device=device)
    product, total = torch.empty(2, height * TILE, width, dtype=torch.float32, device=device)
    with _full_precision():
        for top in range(0, len(table), height):
            tiles = slice(top, min(top + height, len(table)))
            columns = table[tiles].to(torch.float32).transpose(0, 1).flatten(1, 2).unbind()
            rows = slice(top * TILE, tiles.stop * TILE)
            for part, block in parts:
                shape = (len(columns[0]), block.shape[1])
                if shape != product.shape:
                    product, total = torch.empty(2, *shape, dtype=torch.float32, device=device)
                if keep is not None:
                    total = keep[rows, part]
                tiled, best = total.unflatten(0, (-1, TILE)), maxima[:, tiles, part].unbind()
                for j, column in enumerate(columns):
                    torch.mm(column, block, out=product)
                    torch.mul(product, product, out=total) if j == 0 else total.addcmul_(product, product)
                    if j + 1 >= levels[0]:
                        torch.amax(tiled, 1, out=best[j + 1 - levels[0]])
    return maxima


def _resolve(
    unit: Float64[Tensor, "n B"],
    table: Float64[Tensor, "tiles k TILE B"],
    levels: range,
    maxima: Float32[Tensor, "ks tiles n"],
    wanted: Bool[Tensor, "ks n"],
) -> tuple[Int64[Tensor, "ks n"], Float64[Tensor, "ks n"]]:
    """The lowest of the best seeds and its float64 score, from the tiles that can hold it; (0, NaN) if not wanted."""
    n = len(unit)
    possible = ((maxima >= maxima.amax(1, keepdim=True) - MARGIN) & wanted[:, None]).transpose(0, 1).contiguous()
    unsettled = wanted.clone()
    keys, candidates, values = [], [], []
    for tile in possible.flatten(1).any(1).nonzero()[:, 0].tolist():
        level, block = (possible[tile] & unsettled).nonzero(as_tuple=True)
        if not len(level):
            continue
        columns, column = block.unique(return_inverse=True)
        score = (table[tile] @ unit[columns].T).square_()
        for j in range(1, len(score)):
            score[j] += score[j - 1]
        score = score[level + (levels[0] - 1), :, column]  # one row of TILE scores per pair of level and block
        top = score.amax(1)
        unsettled[level, block] = top < 1 - TIE  # a perfect seed ends the search: no later, higher one can win
        pair, row = (score >= top[:, None] - TIE).nonzero(as_tuple=True)
        keys.append((level * n + block)[pair])
        candidates.append(row + (tile * TILE + 1))
        values.append(score[pair, row])
    best = torch.full((wanted.numel(),), -1.0, dtype=torch.float64, device=unit.device)
    seeds = torch.full_like(best, torch.iinfo(torch.int64).max, dtype=torch.int64)
    if keys:
        key, candidate, value = torch.cat(keys), torch.cat(candidates), torch.cat(values)
        best.scatter_reduce_(0, key, value, "amax")
        tied = value >= best[key] - TIE
        seeds.scatter_reduce_(0, key[tied], candidate[tied], "amin")
    unwanted = ~wanted.flatten()
    seeds[unwanted], best[unwanted] = 0, torch.nan
    return seeds.view_as(wanted), best.view_as(wanted)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keep float32 products in float32, whatever the process has chosen: TF32 or bfloat16 would break `MARGIN`."""
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)
