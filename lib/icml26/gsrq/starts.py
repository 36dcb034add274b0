"""First codewords: by clustering directions on the unit sphere, or picked among the vectors by k-means++.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4.2) starts from shapes found on the unit sphere and takes the
gains from the members. k-means++ and the clustering of directions are scikit-learn's. What follows the start is for
`clustering`.
"""

import warnings

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.vectors import as_vectors, as_weights, augmented, nearest, unit_rows

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
    labels = nearest(augmented(y), shapes, np.zeros(codewords))
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
    """Pick first codewords among the vectors by scikit-learn's greedy k-means++.

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
    from sklearn.cluster import kmeans_plusplus

    state = int(np.random.default_rng(seed).integers(1 << 32))
    # In float64 because scikit-learn converts float32 rows anew for each of the K choices.
    return kmeans_plusplus(x.astype(np.float64), count, sample_weight=weights, random_state=state)[1]


def _checked(
    vectors: ArrayLike, codewords: int, weights: ArrayLike | None
) -> tuple[Float[np.ndarray, "vectors dimension"], Float[np.ndarray, " vectors"] | None]:
    x = as_vectors("vectors", vectors)
    if len(x) < whole("codewords", codewords, 1):
        raise InputError(f"{len(x)} vectors are too few for codewords={codewords}: pass at least as many")
    return x, as_weights(weights, x)
