"""The gain-shape clustering of GSRQ's released code, which is not quite that of the paper.

The paper is GSRQ (Kim et al., ICML 2026, arXiv 2607.01065). Its public code (GitHub JackPark2000/RQ-GSKM, read for
facts) updates a shape by the normalised *sum* of the members, so that large vectors count more; takes the gain from the
*old* shape; floors gains at 1e-4; assigns with gains rounded to bfloat16; and makes ten passes. Its fixed points are
those of Lloyd's algorithm. The paper's own rule is in `clustering`.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.gsrq.clustering import Codebook
from icml26.gsrq.starts import kmeans, plus_plus_start
from icml26.gsrq.vectors import as_vectors, as_weights, nearest_codeword, norms, unit_rows

__all__ = ["released_codebook"]

_FLOOR = 1e-4


def released_codebook(
    vectors: Float[ArrayLike, "vectors dimension"],
    codewords: int,
    *,
    weights: Float[ArrayLike, " vectors"] | None = None,
    iterations: int = 10,
    seed: int | np.random.Generator = 42,
) -> Codebook:
    """Fit a codebook as the released code does, with scikit-learn's k-means in place of cuML's for the start.

    Parameters
    ----------
    vectors
        N training vectors.
    codewords
        K, at most N.
    weights
        How much each vector counts, in the start and in every update; the published results use none.
    iterations
        The most passes; it ends before if no label changes.
    seed
        Of the start.

    Returns
    -------
    Codebook
        As `clustering.fit_codebook` returns it; no gain is below 1e-4.

    Raises
    ------
    InputError
        If an argument is out of range, not finite, or of another shape.

    Examples
    --------
    >>> book = released_codebook([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 5.0]], 2)
    >>> sorted(book.codewords.tolist())
    [[0.0, 3.0], [2.0, 0.0]]
    """
    x, iterations = as_vectors("vectors", vectors), whole("iterations", iterations, 1)
    w = as_weights(weights, x)
    y = unit_rows(x)
    found = kmeans(y, plus_plus_start(y, codewords, weights=w, seed=seed), w, 20, 1e-4)
    shapes = unit_rows(found.cluster_centers_)
    gains = np.maximum(_means(found.labels_, norms(x), w, np.zeros(codewords)), _FLOOR)
    passes, converged, before = 0, False, np.full(len(x), -1)
    while passes < iterations and not converged:
        labels = nearest_codeword(x, (_bfloat16(gains)[:, None] * shapes).astype(x.dtype))
        gains = np.maximum(_means(labels, np.einsum("nd,nd->n", x, shapes[labels]), w, gains), _FLOOR)
        sums = np.stack([_sums(labels, column, w, codewords) for column in x.T], axis=1)
        moved = sums.any(axis=1)
        shapes[moved] = unit_rows(sums[moved])
        passes, converged, before = passes + 1, np.array_equal(labels, before), labels
    book = (gains[:, None] * shapes).astype(x.dtype)
    before, labels = labels, nearest_codeword(x, book)
    converged = converged and np.array_equal(labels, before)
    return Codebook(book, labels, passes, converged, np.bincount(labels, minlength=codewords))


def _means(labels: np.ndarray, values: np.ndarray, w: np.ndarray | None, otherwise: np.ndarray) -> np.ndarray:
    mass = _sums(labels, np.ones(len(labels)), w, len(otherwise))
    return np.where(mass > 0, _sums(labels, values, w, len(otherwise)) / np.where(mass > 0, mass, 1), otherwise)


def _sums(labels: np.ndarray, values: np.ndarray, w: np.ndarray | None, count: int) -> np.ndarray:
    return np.bincount(labels, values if w is None else values * w, count)


def _bfloat16(values: np.ndarray) -> np.ndarray:
    """Round to the nearest number of 8 significant bits, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + (bits >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)
