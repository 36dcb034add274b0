"""First codewords: by clustering directions on the unit sphere, or picked among the vectors by k-means++.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4.2) starts from shapes found on the unit sphere and takes the
gains from the members. The clustering of directions is scikit-learn's. The greedy k-means++ (Arthur and Vassilvitskii
2007) is the same as scikit-learn's, which takes four times as long on float32: it converts every row to float64 for
each of the K choices. What follows the start is for `clustering`.
"""

import warnings

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.vectors import as_vectors, as_weights, exponent, unit_rows

__all__ = ["kmeans", "plus_plus_start", "spherical_start"]


def spherical_start(
    vectors: Float[ArrayLike, "vectors dimension"],
    codewords: int,
    *,
    weights: Float[ArrayLike, " vectors"] | None = None,
    seed: int | np.random.Generator = 0,
    iterations: int = 20,
) -> Float[np.ndarray, "codewords dimension"]:
    """Make first codewords by clustering on the unit sphere (section 4.2, initialisation).

    The shapes are the normalised centres that scikit-learn's `KMeans` finds for the vectors divided by their norms,
    from k-means++. Each vector then goes to the shape of the largest cosine, and the gains are the mean projections.

    Parameters
    ----------
    vectors
        N training vectors.
    codewords
        K, at most N.
    weights
        How much each vector counts, at least 0.
    seed
        Of k-means++.
    iterations
        The most passes of `KMeans`.

    Returns
    -------
    array
        K codewords, g_k s_k; zero for a shape that no vector has as its nearest.

    Raises
    ------
    InputError
        If an argument is out of range, not finite, or of another shape.

    Examples
    --------
    >>> spherical_start([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]], 2).sum(axis=0)
    array([2., 1.])
    """
    x, w = _checked(vectors, codewords, weights)
    y = unit_rows(x)
    first = y[_plus_plus(y, codewords, w, seed)]
    shapes = unit_rows(kmeans(y, first, w, whole("iterations", iterations, 1), 1e-4).cluster_centers_)
    labels = _most_aligned(y, shapes.astype(y.dtype, copy=False))
    projections = np.einsum("nd,nd->n", x, shapes[labels])
    w = np.ones(len(x)) if w is None else w
    mass = np.bincount(labels, w, codewords)
    gains = np.bincount(labels, w * projections, codewords) / np.where(mass > 0, mass, 1)
    return (np.maximum(gains, 0)[:, None] * shapes).astype(x.dtype)


def plus_plus_start(
    vectors: Float[ArrayLike, "vectors dimension"],
    codewords: int,
    *,
    weights: Float[ArrayLike, " vectors"] | None = None,
    seed: int | np.random.Generator = 0,
) -> Float[np.ndarray, "codewords dimension"]:
    """Pick first codewords among the vectors by greedy k-means++.

    The first is drawn by weight. Each further one is the best of 2 + log K draws by weight times squared distance to
    the nearest one picked: that which leaves the least weighted sum of such distances.

    Parameters
    ----------
    vectors
        N training vectors.
    codewords
        K, at most N.
    weights
        How much each vector counts, at least 0.
    seed
        Of the choice.

    Returns
    -------
    array
        K of the vectors.

    Raises
    ------
    InputError
        If an argument is out of range, not finite, or of another shape.

    Examples
    --------
    >>> sorted(plus_plus_start([[0.0], [0.0], [5.0]], 2).tolist())
    [[0.0], [5.0]]
    """
    x, w = _checked(vectors, codewords, weights)
    return x[_plus_plus(x, codewords, w, seed)]


def kmeans(
    x: Float[np.ndarray, "vectors dimension"],
    first: Float[np.ndarray, "codewords dimension"],
    weights: Float[np.ndarray, " vectors"] | None,
    iterations: int,
    tolerance: float = 0.0,
):
    """Run scikit-learn's `KMeans` from given centres on arguments that were checked.

    Parameters
    ----------
    x
        Vectors.
    first
        Centres to start from.
    weights
        Of the vectors, or None.
    iterations
        The most passes.
    tolerance
        Stop once the centres move by less, relative to the variance of x; with 0, when no label changes.

    Returns
    -------
    sklearn.cluster.KMeans
        Fitted. There is no warning if fewer vectors differ than there are centres.

    Examples
    --------
    >>> kmeans(np.array([[0.0], [1.0], [5.0]]), np.array([[0.0], [5.0]]), None, 10).cluster_centers_.tolist()
    [[0.5], [5.0]]
    """
    from sklearn.cluster import KMeans  # a second to import
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(len(first), init=first, n_init=1, max_iter=iterations, tol=tolerance).fit(
            x, sample_weight=weights
        )


def _plus_plus(x: np.ndarray, count: int, weights: np.ndarray | None, seed: int | np.random.Generator) -> np.ndarray:
    rng, trials = _generator(seed), 2 + int(np.log(count))
    power = exponent(x)
    if power:  # it takes longer than all the rest of a pass
        x = np.ldexp(x, -power)
    # Moved to their mean, or what all vectors have in common cancels the digits of their distances.
    x = x - x.mean(axis=0)
    squares, mass = np.einsum("nd,nd->n", x, x), np.ones(len(x), x.dtype) if weights is None else weights
    picked, left = np.empty(count, np.intp), None
    for number in range(count):
        chances = np.cumsum(mass if left is None else mass * left, dtype=np.float64)
        draws = rng.random(trials if number else 1) * chances[-1]
        draws = np.minimum(np.searchsorted(chances, draws, side="right"), len(x) - 1)
        distances = x[draws] @ x.T
        distances *= -2
        distances += squares
        distances += squares[draws, None]
        np.maximum(distances, 0, out=distances)
        if left is not None:
            np.minimum(distances, left, out=distances)
        best = int((distances @ mass).argmin())
        picked[number], left = draws[best], distances[best]
        left[draws[best]] = 0
    return picked


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(whole("seed", seed, 0))


def _most_aligned(y: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Index of the shape of the largest inner product."""
    step = max(1, (1 << 19) // len(shapes))
    return np.concatenate([(y[i : i + step] @ shapes.T).argmax(axis=1) for i in range(0, len(y), step)])


def _checked(
    vectors: ArrayLike, codewords: int, weights: ArrayLike | None
) -> tuple[Float[np.ndarray, "vectors dimension"], Float[np.ndarray, " vectors"] | None]:
    x = as_vectors("vectors", vectors)
    if len(x) < whole("codewords", codewords, 1):
        raise InputError(f"{len(x)} vectors are too few for codewords={codewords}: pass at least as many")
    return x, as_weights(weights, x)
