"""Codebooks by gain-shape k-means (GSKM) and, beside it, by Lloyd's algorithm from the same starts.

The method is that of GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4): a codeword is a gain times a unit
shape, mu_k = g_k s_k. Every pass assigns each vector to its nearest codeword, the largest 2 g_k x.s_k - g_k^2, then
turns each shape to the mean *direction* of its members and projects the members on it for the gain. Three rules of the
update can be compared: `unit` (the paper's: every member counts equally, whatever its norm), `sum` (the normalised sum
of the members, as in the released code; its fixed points are Lloyd's) and `mean` (Lloyd's algorithm itself, by
scikit-learn). The rest of what the released code does differently is in `released`, weights of vectors are made by
`weights`, chains of codebooks by `residual`.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import sparse

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.starts import kmeans, plus_plus_start, spherical_start
from icml26.gsrq.vectors import as_vectors, as_weights, exponent, nearest_codeword, norms, unit_rows

__all__ = ["RULES", "Codebook", "assign", "fit_codebook", "inertia"]

RULES = ("unit", "sum", "mean")
_STARTS = {"spherical": spherical_start, "k-means++": plus_plus_start}
_CANCELLED = 1e-6  # a mean of unit vectors that is shorter has no direction


@dataclass(frozen=True, eq=False)
class Codebook:
    """What a fit found.

    Parameters
    ----------
    codewords
        K of them, g_k s_k.
    labels
        The nearest codeword of each training vector, as `assign` finds it.
    iterations
        Passes made, an update and an assignment each.
    converged
        Whether the last pass changed no label, so that the codewords were made from these very labels.
    sizes
        Members of each codeword; 0 for one that is not used.
    """

    codewords: Float[np.ndarray, "codewords dimension"]
    labels: Int[np.ndarray, " vectors"]
    iterations: int
    converged: bool
    sizes: Int[np.ndarray, " codewords"]

    @property
    def gains(self) -> Float[np.ndarray, " codewords"]:
        """g_k, the norms of the codewords."""
        return norms(self.codewords)

    @property
    def shapes(self) -> Float[np.ndarray, "codewords dimension"]:
        """s_k, the directions of the codewords; zero where the gain is."""
        return unit_rows(self.codewords)

    @property
    def unused(self) -> int:
        """How many codewords no training vector is nearest to."""
        return int((self.sizes == 0).sum())


def fit_codebook(
    vectors: Float[ArrayLike, "vectors dimension"],
    codewords: int,
    *,
    rule: str = "unit",
    start: str | Float[ArrayLike, "codewords dimension"] = "spherical",
    weights: Float[ArrayLike, " vectors"] | None = None,
    iterations: int = 100,
    starts: int = 1,
    seed: int | np.random.Generator = 0,
) -> Codebook:
    """Fit a codebook to vectors, until no label changes or the passes are used up.

    The update of a cluster C_k with weights w_i (section 4.2, and 4.4 with weights; 1 without):

    - `unit`: s_k is the direction of the sum of w_i x_i / |x_i|, g_k = max(0, sum w_i x_i.s_k / sum w_i);
    - `sum`: s_k is the direction of the sum of w_i x_i, g_k as above;
    - `mean`: the weighted mean of the members.

    Assignment takes no weights; equal distances go to the lowest index. Under the first two rules a cluster that is
    empty, weightless or without a mean direction keeps its codeword (zero if its start had no member); scikit-learn
    moves an empty one to a far vector, which is an advantage of `mean` where vectors are few.
    The unit rule does not minimise the squared error, which may rise from one pass to the next.

    Parameters
    ----------
    vectors
        N training vectors; float32 stays float32, other types become float64.
    codewords
        K, at most N. If there are fewer distinct vectors, the surplus codewords end up unused.
    rule
        ``"unit"``, ``"sum"`` or ``"mean"``.
    start
        ``"spherical"`` (`spherical_start`), ``"k-means++"`` (`plus_plus_start`), or the first codewords themselves.
    weights
        How much each vector counts, at least 0; only their ratios matter.
    iterations
        The most passes.
    starts
        Independent starts, of which the one with the least (weighted) squared error on the vectors is kept.
    seed
        Of the random starts.

    Returns
    -------
    Codebook
        Codewords of the vectors' type.

    Raises
    ------
    InputError
        If an argument is out of range, not finite, or of another shape.

    Examples
    --------
    >>> east, north = np.outer([1.0, 2.0, 3.0], [1, 0]), np.outer([4.0, 6.0], [0, 1])
    >>> book = fit_codebook(np.vstack([east, north]), 2)
    >>> book.codewords[book.labels].tolist()
    [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 5.0], [0.0, 5.0]]
    """
    x = as_vectors("vectors", vectors)
    codewords, starts = whole("codewords", codewords, 1), whole("starts", starts, 1)
    iterations = whole("iterations", iterations, 1)
    if rule not in RULES:
        raise InputError(f"rule={rule!r} must be one of {', '.join(RULES)}")
    if len(x) < codewords:
        raise InputError(f"{len(x)} vectors are too few for codewords={codewords}: pass at least as many")
    w = as_weights(weights, x)
    power = exponent(x)
    x = np.ldexp(x, -power) if power else x
    found = []
    for first in _first_codewords(x, codewords, start, w, starts, seed, power):
        found.append(_lloyd(x, first, w, iterations) if rule == "mean" else _gain_shape(x, first, w, iterations, rule))
    book = found[0] if starts == 1 else min(found, key=lambda book: inertia(x, book.codewords, book.labels, w))
    return replace(book, codewords=np.ldexp(book.codewords, power)) if power else book


def assign(
    vectors: Float[ArrayLike, "vectors dimension"], codewords: Float[ArrayLike, "codewords dimension"]
) -> Int[np.ndarray, " vectors"]:
    """Find the nearest codeword of each vector: the k of the largest 2 g_k x.s_k - g_k^2 (section 4.2, step 1).

    Parameters
    ----------
    vectors
        N vectors.
    codewords
        K codewords, g_k s_k.

    Returns
    -------
    integer array
        The index of each vector's codeword, the lowest of several that are equally near.

    Raises
    ------
    InputError
        If an argument is not finite or the dimensions differ.

    Examples
    --------
    >>> assign([[0.1, 2.0], [3.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([1, 0])
    """
    x, book = as_vectors("vectors", vectors), as_vectors("codewords", codewords)
    if x.shape[1] != book.shape[1]:
        raise InputError(f"vectors have {x.shape[1]} columns, codewords {book.shape[1]}")
    return nearest_codeword(x, book.astype(x.dtype, copy=False))


def inertia(
    x: Float[np.ndarray, "vectors dimension"],
    codewords: Float[np.ndarray, "codewords dimension"],
    labels: Int[np.ndarray, " vectors"],
    weights: Float[np.ndarray, " vectors"] | None = None,
) -> float:
    """Sum of the squared distances of vectors to their codewords, the objective of section 4.2.

    Parameters
    ----------
    x
        Vectors.
    codewords
        Codewords.
    labels
        The index of each vector's codeword, not checked.
    weights
        How much each vector counts; equally by default.

    Returns
    -------
    float
        Summed in float64.

    Examples
    --------
    >>> inertia(np.array([[0.0], [3.0]]), np.array([[1.0]]), np.array([0, 0]))
    5.0
    """
    errors = x - codewords[labels]
    distances = np.einsum("nd,nd->n", errors, errors).astype(np.float64)
    return float(distances.sum() if weights is None else distances @ weights)


def _first_codewords(x, count, start, w, starts, seed, power):
    if not isinstance(start, str):
        first = as_vectors("start", start)
        if first.shape != (count, x.shape[1]):
            raise InputError(f"start of shape {first.shape} must be {(count, x.shape[1])}: a vector for each codeword")
        if starts > 1:
            raise InputError(f"starts={starts} would repeat the codewords given as start: leave out one of the two")
        return [np.ldexp(first, -power).astype(x.dtype)]
    if start not in _STARTS:
        raise InputError(f"start={start!r} must be {', '.join(_STARTS)} or an array of codewords")
    generator = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(whole("seed", seed, 0))
    return (_STARTS[start](x, count, weights=w, seed=generator) for _ in range(starts))


def _lloyd(x: np.ndarray, first: np.ndarray, w: np.ndarray | None, iterations: int) -> Codebook:
    found = kmeans(x, first, w, iterations)
    book = found.cluster_centers_.astype(x.dtype, copy=False)
    # scikit-learn does not say whether the last pass that it was allowed changed a label; an earlier end says no.
    return _book(book, nearest_codeword(x, book), found.n_iter_, found.n_iter_ < iterations)


def _gain_shape(x: np.ndarray, first: np.ndarray, w: np.ndarray | None, iterations: int, rule: str) -> Codebook:
    dimension, shortest = x.shape[1], _CANCELLED if rule == "unit" else 0
    features = _features(x, w, rule)
    book, gains, shapes = first, norms(first), unit_rows(first)
    labels, passes, converged = nearest_codeword(x, book), 0, False
    while passes < iterations and not converged:
        totals, mass = _sums(labels, features, len(book))
        # Sums of x come last; under `unit` sums of directions stand before them, else the two are the same.
        directions, projected = totals[:, :dimension], totals[:, -dimension:]
        lengths = norms(directions)
        moved = lengths > shortest * mass
        shapes[moved] = directions[moved] / lengths[moved, None]
        gains[moved] = np.maximum(np.einsum("kd,kd->k", projected[moved], shapes[moved]) / mass[moved], 0)
        book, before = gains[:, None] * shapes, labels
        labels, passes = nearest_codeword(x, book), passes + 1
        converged = np.array_equal(labels, before)
    return _book(book, labels, passes, converged)


def _features(x: np.ndarray, w: np.ndarray | None, rule: str) -> np.ndarray:
    """Columns whose sums over a cluster make its codeword, the weight last."""
    columns = [unit_rows(x), x] if rule == "unit" else [x]
    features = np.concatenate([*columns, np.ones((len(x), 1), x.dtype)], axis=1)
    return features if w is None else features * w[:, None]


def _sums(labels: np.ndarray, features: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the features over the members of each cluster, and of their weights."""
    ones, ends = np.ones(len(labels), features.dtype), np.arange(len(labels) + 1)
    totals = sparse.csr_array((ones, labels, ends), shape=(len(labels), count)).T @ features
    return totals[:, :-1], totals[:, -1]


def _book(codewords: np.ndarray, labels: np.ndarray, iterations: int, converged: bool) -> Codebook:
    sizes = np.bincount(labels, minlength=len(codewords))
    return Codebook(codewords, labels, int(iterations), bool(converged), sizes)
