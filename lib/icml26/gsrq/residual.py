"""Chains of codebooks for vectors of many channels: each stage codes what the stages before it left over.

The pipeline is that of GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4.5): a vector, the concatenated key or
value heads of a token, is cut into M contiguous sub-vectors of D channels, its positions. At each position R codebooks
of K codewords are trained one after the other, on the residuals of the stage before; encoding is greedy, decoding adds
up the R codewords. So R log2(K) / D bits per value, and the first stages of a code are the code of a lower rate.
One codebook is fitted by `clustering`, the weights of tokens are those of `weights`; a file is written by `file`.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int, UInt
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.clustering import RULES, Codebook, fit_codebook
from icml26.gsrq.vectors import as_vectors, nearest_codeword

__all__ = ["ResidualQuantizer"]


class ResidualQuantizer:
    """Greedy residual quantiser with codebooks of its own for each position.

    Parameters
    ----------
    dimension
        D, channels of a sub-vector.
    stages
        R, codebooks in a chain.
    codewords
        K, of each codebook, 2 to 65536.
    rule
        Of the update: ``"unit"`` (the paper's), ``"sum"`` or ``"mean"`` (Lloyd), see `clustering.fit_codebook`.
    start
        ``"spherical"`` or ``"k-means++"``.
    iterations
        The most passes of each fit.
    starts
        Independent starts of each fit, of which the best is kept.
    seed
        Each position and stage has a stream of its own under it.

    Attributes
    ----------
    codebooks : array (positions, stages, codewords, dimension)
        Once fitted, in float32 if the training vectors were, else in float64.
    sizes : integer array (positions, stages, codewords)
        Training vectors of each codeword; 0 for unused ones.
    passes : integer array (positions, stages)
        Iterations that each fit took.
    converged : bool array (positions, stages)
        Whether it then changed no label.
    energies : float64 array (positions, stages + 1)
        Sums of squares of the training vectors and of what each stage left of them.

    Raises
    ------
    InputError
        If an option is out of range.

    Examples
    --------
    >>> tokens = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    >>> quantizer = ResidualQuantizer(dimension=4, stages=2, codewords=16).fit(tokens)
    >>> codes = quantizer.encode(tokens)
    >>> codes.shape, quantizer.bits_per_value
    ((500, 2, 2), 2.0)
    >>> [round(float(np.mean((quantizer.decode(part) - tokens) ** 2)), 1) for part in (codes[:, :, :1], codes)]
    [0.3, 0.1]
    """

    def __init__(
        self,
        dimension: int = 48,
        stages: int = 16,
        codewords: int = 64,
        *,
        rule: str = "unit",
        start: str = "spherical",
        iterations: int = 100,
        starts: int = 1,
        seed: int = 0,
    ) -> None:
        self.dimension, self.stages = whole("dimension", dimension, 1), whole("stages", stages, 1)
        self.codewords = whole("codewords", codewords, 2, 1 << 16)
        for name, value, known in (("rule", rule, RULES), ("start", start, ("spherical", "k-means++"))):
            if not isinstance(value, str) or value not in known:
                raise InputError(f"{name}={value!r} must be one of {', '.join(known)}")
        self.rule, self.start = rule, start
        self.iterations, self.starts = whole("iterations", iterations, 1), whole("starts", starts, 1)
        self.seed = whole("seed", seed, 0)
        self.codebooks: Float[np.ndarray, "positions stages codewords dimension"] | None = None

    @property
    def bits_per_value(self) -> float:
        """R log2(K) / D: bits per value without the codebooks."""
        return self.stages * float(np.log2(self.codewords)) / self.dimension

    def fit(
        self,
        X: Float[ArrayLike, "tokens channels"],
        weights: Float[ArrayLike, "tokens positions"] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> "ResidualQuantizer":
        """Train the codebooks.

        Parameters
        ----------
        X
            Keys (before the rotary embedding) or values of calibration tokens; channels are a multiple of D.
        weights
            How much each token counts at each position, in all stages alike; equally by default.
        progress
            Called with a line for each position.

        Returns
        -------
        ResidualQuantizer
            This one.

        Raises
        ------
        InputError
            If there are fewer tokens than codewords, or an argument is not finite or of another shape.
        """
        parts = self._split(X)
        if weights is not None:
            weights = as_vectors("weights", weights)
            empty = (weights < 0).any(axis=0) | ~weights.any(axis=0)
            if empty.any():
                raise InputError(f"weights of position {int(empty.argmax())} must not be negative nor all zero")
            if weights.shape != (parts.shape[1], len(parts)):
                raise InputError(
                    f"weights of shape {weights.shape} must be (tokens, positions): {(parts.shape[1], len(parts))}"
                )
        chains = []
        for position, part in enumerate(parts):
            if progress is not None:
                progress(f"position {position + 1} of {len(parts)}")
            chains.append(self._chain(part, None if weights is None else weights[:, position], position))
        books, energies = zip(*chains, strict=True)
        self.codebooks = np.array([[book.codewords for book in chain] for chain in books])
        self.sizes: Int[np.ndarray, "positions stages codewords"] = np.array([[b.sizes for b in c] for c in books])
        self.passes: Int[np.ndarray, "positions stages"] = np.array([[b.iterations for b in c] for c in books])
        self.converged = np.array([[book.converged for book in chain] for chain in books])
        self.energies: Float[np.ndarray, "positions stages+1"] = np.array(energies)
        return self

    def encode(
        self, X: Float[ArrayLike, "tokens channels"], stages: int | None = None
    ) -> UInt[np.ndarray, "tokens positions stages"]:
        """Code vectors greedily, stage by stage.

        Parameters
        ----------
        X
            Vectors of as many channels as in training.
        stages
            Only so many; all by default.

        Returns
        -------
        uint8 array
            Index of each codeword; uint16 if there are more than 256.

        Raises
        ------
        InputError
            Before `fit`, or if X does not fit.
        """
        books = self._fitted()
        stages = self.stages if stages is None else whole("stages", stages, 1, self.stages)
        parts = self._split(X)
        if len(parts) != len(books):
            raise InputError(
                f"X has {len(parts) * self.dimension} channels, in training there were {len(books) * self.dimension}"
            )
        codes = np.empty((parts.shape[1], len(parts), stages), np.uint8 if self.codewords <= 256 else np.uint16)
        for position, (part, chain) in enumerate(zip(parts, books.astype(parts.dtype, copy=False), strict=True)):
            left = part.copy()
            for stage, book in enumerate(chain[:stages]):
                labels = nearest_codeword(left, book)
                left -= book[labels]
                codes[:, position, stage] = labels
        return codes

    def decode(self, codes: Int[ArrayLike, "tokens positions stages"]) -> Float[np.ndarray, "tokens channels"]:
        """Add up the codewords of codes, or of their first stages only.

        Parameters
        ----------
        codes
            What `encode` returned, or ``codes[:, :, :n]`` of it for the first n stages.

        Returns
        -------
        array
            Reconstructions in the type of the codebooks.

        Raises
        ------
        InputError
            Before `fit`, or if there are other positions, more stages, or other codes than codewords.
        """
        books, codes = self._fitted(), np.asarray(codes)
        if codes.ndim != 3 or codes.shape[1] != len(books) or not 1 <= codes.shape[2] <= self.stages:
            raise InputError(
                f"codes of shape {codes.shape} must be (tokens, {len(books)} positions, 1 to {self.stages} stages)"
            )
        if codes.dtype.kind not in "ui" or (codes.size and not 0 <= codes.min() <= codes.max() < self.codewords):
            raise InputError(f"codes must be integers from 0 to {self.codewords - 1}")
        decoded = np.zeros((len(codes), len(books), self.dimension), books.dtype)
        for position, chain in enumerate(books):
            for stage in range(codes.shape[2]):
                decoded[:, position] += chain[stage][codes[:, position, stage]]
        return decoded.reshape(len(codes), len(books) * self.dimension)

    def _chain(
        self, part: Float[np.ndarray, "tokens dimension"], weights: np.ndarray | None, position: int
    ) -> tuple[list[Codebook], list[float]]:
        left, books = part.copy(), []
        energies = [np.square(left, dtype=np.float64).sum()]
        for stage in range(self.stages):
            book = fit_codebook(
                left,
                self.codewords,
                rule=self.rule,
                start=self.start,
                weights=weights,
                iterations=self.iterations,
                starts=self.starts,
                seed=np.random.default_rng([self.seed, position, stage]),
            )
            left -= book.codewords[book.labels]
            books.append(book)
            energies.append(np.square(left, dtype=np.float64).sum())
        return books, energies

    def _split(self, X: ArrayLike) -> Float[np.ndarray, "positions tokens dimension"]:
        X = as_vectors("X", X)
        if X.shape[1] % self.dimension:
            raise InputError(f"X has {X.shape[1]} channels, no multiple of dimension={self.dimension}")
        return X.reshape(len(X), -1, self.dimension).transpose(1, 0, 2)

    def _fitted(self) -> Float[np.ndarray, "positions stages codewords dimension"]:
        if self.codebooks is None:
            raise InputError("this quantiser has no codebooks yet: call fit first")
        wanted = (self.stages, self.codewords, self.dimension)
        if self.codebooks.shape[1:] != wanted:
            raise InputError(f"codebooks of shape {self.codebooks.shape} must be (positions, *{wanted}): fit again")
        return self.codebooks
