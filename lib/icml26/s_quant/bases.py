"""Blocks of weights and the bases they are projected on: what the two codecs and their search share.

S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv 2410.10714) both cut a weight
tensor into blocks T of B weights and approximate each by U_s a, with a basis U_s of k columns that a register
generates from the seed s. Here: the blocks, the matrices U_s, an orthonormal basis Q_s of the same span for every
seed at once, and least squares. Which seed is best is `search`'s question, coefficients and bits are the codecs'.

Columns in S-Quant's order are nested, U_s for k is the first k columns of U_s for k + 1, and so is Q_s; the
row-major order (SeedLM's, and S-Quant's variant) gives another matrix for every k.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float16, Float64, Int32
from torch import Tensor

from icml26.errors import InputError
from icml26.s_quant.lfsr import Register, basis_integers

__all__ = [
    "Bases",
    "as_blocks",
    "as_weight",
    "float16_scales",
    "least_squares",
    "orthonormal",
    "orthonormalise",
    "unit_blocks",
]

TILE = 256  # seeds whose best score is kept; the rows of an orthonormal table are padded to whole tiles
RANK = 1e-10  # a column adds to the span if its new part is longer than this, relative to the longest
CACHE_BYTES = 1 << 29  # orthonormal tables kept in memory, together
TABLE_BYTES = 1 << 32  # the largest table that is made
_ROWS = 4096  # seeds orthonormalised at a time: 4096 x 16 x 16 float64 numbers are 8 MiB
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_cache: OrderedDict[tuple, Tensor] = OrderedDict()


@dataclass(frozen=True)
class Bases:
    """The family of candidate bases: one matrix U_s of B rows for every seed s and every number of columns k.

    Parameters
    ----------
    register
        The register that generates the entries.
    block_size
        B, weights per block.
    layout
        ``"columns"`` (nested in k) or ``"row-major"``.
    first
        ``"seed"`` (S-Quant) or ``"successor"`` (SeedLM): the state that fills the first entry.

    Examples
    --------
    >>> Bases(Register(4), 2).matrices([1], 2) * 7  # S-Quant's golden vector
    tensor([[[-7., -2.],
             [ 4., -5.]]], dtype=torch.float64)
    """

    register: Register
    block_size: int
    layout: str = "columns"
    first: str = "seed"

    @property
    def nested(self) -> bool:
        """Whether the basis for k + 1 extends the one for k."""
        return self.layout == "columns"

    def integers(self, seeds: np.ndarray, k: int) -> Int32[np.ndarray, "n B k"]:
        """The integers z - h of each seed's matrix, from -(h - 1) to h - 1."""
        return basis_integers(self.register, seeds, self.block_size, k, layout=self.layout, first=self.first)

    def matrices(self, seeds: np.ndarray, k: int, device: torch.device | str = "cpu") -> Float64[Tensor, "n B k"]:
        """The matrices U_s = (z - h)/(h - 1), entries from -1 to 1."""
        return torch.from_numpy(self.integers(seeds, k)).to(device, torch.float64) / (self.register.half - 1)


def as_weight(weight: Tensor | np.ndarray) -> Float[Tensor, "..."]:
    """What every encoder and rounding takes as weights: a dense floating-point tensor, detached and contiguous.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Of 16, 32 or 64 bits; parameters and any strides are welcome.

    Returns
    -------
    tensor of the same shape
        On the weight's device, of its type; float64 for an array.

    Raises
    ------
    InputError
        If it is neither tensor nor array, not floating-point, of eight bits, sparse, or without data (meta).

    Examples
    --------
    >>> as_weight(np.arange(3.0)[::-1])
    tensor([2., 1., 0.], dtype=torch.float64)
    """
    if isinstance(weight, np.ndarray):
        if weight.dtype.kind != "f":
            raise InputError(f"weight of type {weight.dtype} is not floating-point: convert it")
        return torch.from_numpy(np.array(weight, dtype=np.float64, order="C", subok=False))
    if not isinstance(weight, Tensor):
        raise InputError(f"weight of type {type(weight).__name__} is no tensor: give a torch tensor or a numpy array")
    if weight.dtype not in _FLOATS:
        raise InputError(f"weight of type {weight.dtype} is not floating-point of 16 to 64 bits: convert it")
    if weight.layout != torch.strided or weight.is_meta:
        kind = "on the meta device" if weight.is_meta else "sparse"
        raise InputError(f"weight is {kind}: give a dense tensor with data")
    return weight.detach().contiguous()


def as_blocks(weight: Tensor | np.ndarray, block_size: int) -> Float64[Tensor, "n B"]:
    """Flatten a weight row-major and cut it into blocks, the last one padded with zeros.

    Parameters
    ----------
    weight : torch tensor or numpy array of any shape
        Finite floating-point weights.
    block_size
        B, weights per block.

    Returns
    -------
    float64 tensor, ceil(size / B) x B
        The blocks, on the weight's device.

    Raises
    ------
    InputError
        If the weight is empty, holds NaN or infinity, or is none (`as_weight`).

    Examples
    --------
    >>> as_blocks(np.arange(3.0), 2)
    tensor([[0., 1.],
            [2., 0.]], dtype=torch.float64)
    """
    flat = as_weight(weight).reshape(-1)
    if not flat.numel():
        raise InputError("weight is empty: there is nothing to encode")
    if not torch.isfinite(flat).all():
        place = int((~torch.isfinite(flat)).nonzero()[0])
        raise InputError(f"weight is {flat[place].item()} at flat index {place}: only finite weights can be encoded")
    blocks = torch.zeros(-(-flat.numel() // block_size), block_size, dtype=torch.float64, device=flat.device)
    blocks.view(-1)[: flat.numel()] = flat
    return blocks


def unit_blocks(blocks: Float64[Tensor, "n B"]) -> Float64[Tensor, "n B"]:
    """The blocks divided by their Euclidean norms; zero blocks stay zero.

    Parameters
    ----------
    blocks : float64 tensor, n x B
        Blocks of weights.

    Returns
    -------
    float64 tensor, n x B
        Blocks of norm 1 or 0.

    Examples
    --------
    >>> unit_blocks(torch.tensor([[3e-300, 4e-300], [0, 0]], dtype=torch.float64))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]], dtype=torch.float64)
    """
    peak = blocks.abs().amax(1, keepdim=True)
    scaled = blocks / torch.where(peak > 0, peak, 1.0)  # no square of it under- or overflows
    norm = scaled.norm(dim=1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, 1.0)


def orthonormalise(matrices: Float64[Tensor, "n B k"]) -> Float64[Tensor, "k n B"]:
    """Nested orthonormal bases of many matrices: the first j rows span what the first j columns span.

    Gram-Schmidt over all matrices at once, every projection done twice, which leaves Q orthogonal to rounding. A
    column that adds nothing (its new part below 1e-10 of the longest so far) becomes zero, so that the sum of squared
    projections stays the energy of the least-squares fit whatever the rank.

    Parameters
    ----------
    matrices : float64 tensor, n x B x k
        The matrices.

    Returns
    -------
    float64 tensor, k x n x B
        Row j of each matrix's basis: orthonormal vectors, or zero.

    Examples
    --------
    >>> orthonormalise(torch.tensor([[[3.0, 6, 3], [4, 8, 5]]], dtype=torch.float64))[:, 0]
    tensor([[ 0.6000,  0.8000],
            [ 0.0000,  0.0000],
            [-0.8000,  0.6000]], dtype=torch.float64)
    """
    n, rows, k = matrices.shape
    found = matrices.new_zeros(k, n, rows)
    longest = matrices.new_zeros(n, 1)
    for j in range(k):  # each column needs the finished ones
        vector, before = matrices[:, :, j].clone(), found[:j]
        for _ in range(2):
            vector -= ((before * vector).sum(-1, keepdim=True) * before).sum(0)
        length = vector.norm(dim=1, keepdim=True)
        longest = torch.maximum(longest, length)
        found[j] = torch.where(length > RANK * longest, vector / length, 0.0)
    return found


def orthonormal(bases: Bases, k: int, device: torch.device | str = "cpu") -> Float64[Tensor, "tiles k TILE B"]:
    """The table Q of every seed's orthonormal basis, in tiles: [i, :, j] belongs to seed i * TILE + j + 1.

    Tables are kept up to `CACHE_BYTES` in all, the least recently used dropped first.

    Parameters
    ----------
    bases
        The family of bases.
    k
        Columns.
    device
        Where the table shall be.

    Returns
    -------
    float64 tensor, ceil((2^K - 1) / TILE) x k x TILE x B
        See `orthonormalise`; zero rows fill up the last tile.

    Raises
    ------
    InputError
        If the table would take more than `TABLE_BYTES`.

    Examples
    --------
    >>> orthonormal(Bases(Register(10), 4), 2).shape
    torch.Size([4, 2, 256, 4])
    """
    key = (bases, k, str(device))
    if key in _cache:
        _cache.move_to_end(key)
        return _cache[key]
    period, size = bases.register.period, bases.block_size
    if (needed := period * k * size * 8) > TABLE_BYTES:
        raise InputError(
            f"k {k} for {period} seeds takes a table of {needed >> 30} GiB: use fewer seed bits or a lower k"
        )
    table = torch.zeros(-(-period // TILE), k, TILE, size, dtype=torch.float64, device=device)
    for start in range(0, period, _ROWS):
        seeds = np.arange(start + 1, min(start + _ROWS, period) + 1)
        found = orthonormalise(bases.matrices(seeds, k, device))
        tiles = torch.nn.functional.pad(found, (0, 0, 0, -seeds.size % TILE)).unflatten(1, (-1, TILE))
        table[start // TILE : start // TILE + tiles.shape[1]] = tiles.transpose(0, 1)
    _cache[key] = table
    while sum(kept.nbytes for kept in _cache.values()) > CACHE_BYTES:
        _cache.popitem(last=False)
    return table


def least_squares(matrices: Float64[Tensor, "n B k"], blocks: Float64[Tensor, "n B"]) -> Float64[Tensor, "n k"]:
    """The coefficients U_s^+ T of many small problems, by QR; rank-deficient ones by the pseudo-inverse.

    Parameters
    ----------
    matrices : float64 tensor, n x B x k
        One basis for each block.
    blocks : float64 tensor, n x B
        The blocks.

    Returns
    -------
    float64 tensor, n x k
        Coefficients of least error, and of least norm among those.

    Examples
    --------
    >>> matrix = torch.tensor([[[1.0, 1], [1, 1], [0, 0]]], dtype=torch.float64)
    >>> least_squares(matrix, torch.tensor([[2.0, 2, 5]], dtype=torch.float64))
    tensor([[1.0000, 1.0000]], dtype=torch.float64)
    """
    q, r = torch.linalg.qr(matrices)
    diagonal = r.diagonal(dim1=1, dim2=2).abs()
    full = diagonal.amin(1) > RANK * diagonal.amax(1)
    safe = torch.where(full[:, None, None], r, torch.eye(r.shape[-1], dtype=r.dtype, device=r.device))
    found = torch.linalg.solve_triangular(safe, q.mT @ blocks[:, :, None], upper=True)[:, :, 0]
    if not full.all():
        rest = ~full
        found[rest] = (torch.linalg.pinv(matrices[rest], rtol=RANK) @ blocks[rest][:, :, None])[:, :, 0]
    return found


def float16_scales(wanted: Float64[np.ndarray, " n"]) -> Float16[np.ndarray, " n"]:
    """Scales rounded to float16, at least its least positive number; 1 where zero is wanted (all values are zero).

    Parameters
    ----------
    wanted : float64 array, n
        Scales, not negative.

    Returns
    -------
    float16 array, n
        Positive scales.

    Raises
    ------
    InputError
        If a scale exceeds float16 or is no number.

    Examples
    --------
    >>> float16_scales(np.array([0.1, 1e-9, 0.0]))
    array([1.e-01, 6.e-08, 1.e+00], dtype=float16)
    """
    with np.errstate(over="ignore", invalid="ignore"):  # NumPy rounds once; torch would go through float32
        rounded = wanted.astype(np.float16)
    if not np.isfinite(rounded).all():  # weights near the end of float64 have coefficients that are not even numbers
        group = int((~np.isfinite(rounded)).argmax())
        raise InputError(
            f"scale {wanted[group]:.3g} of group {group} exceeds float16: divide the weight by a power of 2"
        )
    return np.where(wanted > 0, np.maximum(rounded, np.float16(2.0**-24)), np.float16(1)).astype(np.float16)
