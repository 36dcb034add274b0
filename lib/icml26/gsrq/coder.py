"""Residual codes on tensors: vectors to packed bytes and back, on whatever device the vectors are.

The arithmetic is that of `residual.ResidualQuantizer`: greedy residual quantisation as in GSRQ (Kim et al., ICML 2026,
arXiv 2607.01065, section 4) assigns each sub-vector to its nearest codeword, subtracts that, and goes on with what is
left; decoding adds up R looked-up codewords. Codes are packed token by token, position by position and stage by stage,
lowest bit first, each row padded to a whole byte, so that rows can be appended, cropped and reordered. Used by `cache`.
"""

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.vectors import real_array

__all__ = ["Coder"]

_SCORES = 1 << 19  # of vectors against codewords, held at a time: they stay in the processor's cache


class Coder:
    """Encode and decode with given codebooks.

    Parameters
    ----------
    codebooks
        Of every position and stage, at most 65,536 words each.
    stages
        Use only the first so many; all by default.

    Raises
    ------
    InputError
        If the codebooks have another shape or are not finite, or there are fewer stages.

    Examples
    --------
    >>> coder = Coder(np.array([[[[0.0, 0.0], [1.0, 1.0]], [[0.25, 0.0], [-0.25, 0.0]]]]))
    >>> rows = coder.encode(torch.tensor([[0.8, 1.0], [0.1, 0.0]]))
    >>> rows.tolist(), coder.decode(rows).tolist()
    ([[3], [0]], [[0.75, 1.0], [0.25, 0.0]])
    """

    def __init__(self, codebooks: Float[ArrayLike, "positions stages codewords dimension"], stages: int | None = None):
        books = real_array("codebooks", codebooks).astype(np.float32)
        if books.ndim != 4 or not books.size or not 2 <= books.shape[2] <= 1 << 16:
            raise InputError(
                f"codebooks of shape {books.shape} must be (positions, stages, 2 to 65536 words, dimension)"
            )
        if not np.isfinite(books).all():
            raise InputError(
                "codebooks hold NaN or numbers beyond float32: scale down what they are fitted to, or read them again"
            )
        stages = books.shape[1] if stages is None else whole("stages", stages, 1, books.shape[1])
        self.books = torch.tensor(books[:, :stages])
        # Distances do not change when all is moved by the mean codeword, and what is common cancels no digits.
        self._centres = self.books.mean(dim=2, keepdim=True)
        self._halves = -(self.books - self._centres).square().sum(-1) / 2
        self.bits = (books.shape[2] - 1).bit_length()

    @property
    def channels(self) -> int:
        """Channels of a vector: positions times dimension."""
        return self.books.shape[0] * self.books.shape[3]

    @property
    def row_bytes(self) -> int:
        """Bytes of one vector's codes."""
        return -(-self.books.shape[0] * self.books.shape[1] * self.bits // 8)

    def encode(self, vectors: Float[Tensor, "*batch channels"]) -> UInt8[Tensor, "*batch row_bytes"]:
        """Find and pack the codes of vectors.

        Parameters
        ----------
        vectors
            Of any floating type; distances are computed in float32.

        Returns
        -------
        uint8 tensor
            One row of bytes for each vector.

        Raises
        ------
        InputError
            If the vectors are no floating tensor, have another number of channels, or are not finite.
        """
        if not isinstance(vectors, Tensor) or not vectors.is_floating_point() or not vectors.ndim:
            raise InputError("vectors must be a tensor of floating numbers with an axis of channels")
        if vectors.shape[-1] != self.channels:
            raise InputError(f"vectors have {vectors.shape[-1]} channels, the codebooks {self.channels}")
        if not vectors.isfinite().all():
            raise InputError("vectors hold NaN or infinite numbers, which no code stands for: run the model in float32")
        self._move(vectors.device)
        positions, _, codewords, dimension = self.books.shape
        flat = vectors.reshape(-1, positions, dimension).float()
        rows = [
            self._pack(self._nearest(part.transpose(0, 1)))
            for part in flat.split(max(1, _SCORES // (positions * codewords)))
        ]
        return torch.cat(rows).view(*vectors.shape[:-1], self.row_bytes)

    def decode(self, rows: UInt8[Tensor, "*batch row_bytes"]) -> Float[Tensor, "*batch channels"]:
        """Unpack codes and add up their codewords.

        Parameters
        ----------
        rows
            What `encode` returned.

        Returns
        -------
        float32 tensor
            The reconstructions.

        Raises
        ------
        InputError
            If a row has another number of bytes, or a code names no codeword.
        """
        codes = self.codes(rows)
        self._move(rows.device)
        positions, stages, codewords, _ = self.books.shape
        books = torch.arange(positions * stages, device=rows.device).view(positions, stages)
        total = embedding_bag((books * codewords + codes).reshape(-1, stages), self.books.flatten(0, 2), mode="sum")
        return total.reshape(*rows.shape[:-1], self.channels)

    def codes(self, rows: UInt8[Tensor, "*batch row_bytes"]) -> Int[Tensor, "*batch positions stages"]:
        """Unpack rows without looking anything up.

        Parameters
        ----------
        rows
            What `encode` returned.

        Returns
        -------
        int64 tensor
            Index of each codeword.

        Raises
        ------
        InputError
            If a row has another number of bytes, or a code names no codeword.
        """
        if not isinstance(rows, Tensor) or not rows.ndim or rows.dtype != torch.uint8:
            raise InputError("rows must be a tensor of torch.uint8 with an axis of bytes")
        if rows.shape[-1] != self.row_bytes:
            raise InputError(f"rows of {rows.shape[-1]} bytes must have {self.row_bytes}")
        first, shift, span = self._places(rows.device)
        wide = pad(rows, (0, span - 1)).long()
        words = sum(wide[..., first + byte] << 8 * byte for byte in range(span))
        codes = (words >> shift) & ((1 << self.bits) - 1)
        codewords = self.books.shape[2]
        if codewords < 1 << self.bits and codes.numel() and int(codes.max()) >= codewords:
            raise InputError(f"rows hold the code {int(codes.max())} of {codewords} codewords: they are damaged")
        return codes.unflatten(-1, self.books.shape[:2])

    def _move(self, device: torch.device) -> None:
        self.books, self._halves, self._centres = (
            part.to(device) for part in (self.books, self._halves, self._centres)
        )

    def _nearest(
        self, residuals: Float[Tensor, "positions vectors dimension"]
    ) -> Int[Tensor, "vectors positions stages"]:
        position = torch.arange(len(self.books), device=residuals.device)[:, None]
        codes = []
        for stage in range(self.books.shape[1]):
            book, centre = self.books[:, stage], self._centres[:, stage]
            # |r - c|^2 is least where r.c - |c|^2 / 2 is largest.
            scores = torch.baddbmm(self._halves[:, None, stage], residuals - centre, (book - centre).mT)
            codes.append(scores.argmax(-1))
            residuals = residuals - book[position, codes[-1]]
        return torch.stack(codes, dim=-1).transpose(0, 1)

    def _pack(self, codes: Int[Tensor, "vectors positions stages"]) -> UInt8[Tensor, "vectors row_bytes"]:
        first, shift, span = self._places(codes.device)
        words = codes.flatten(1) << shift
        rows = words.new_zeros(len(words), self.row_bytes + span - 1)
        for byte in range(span):
            rows.index_add_(1, first + byte, (words >> 8 * byte) & 255)
        return rows[:, : self.row_bytes].to(torch.uint8)

    def _places(self, device: torch.device) -> tuple[Tensor, Tensor, int]:
        """The byte in which each code starts, at which bit, and over how many bytes one may reach."""
        bit = torch.arange(self.books.shape[0] * self.books.shape[1], device=device) * self.bits
        return bit // 8, bit % 8, (self.bits + 14) // 8
