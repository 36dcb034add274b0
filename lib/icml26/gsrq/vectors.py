"""Rows of numbers: checks, norms, directions, and the codeword that is nearest.

The arithmetic under `clustering`, `residual` and `distortion`, where the method of GSRQ (Kim et al., ICML 2026, arXiv
2607.01065) is told. The nearest codeword mu_k = g_k s_k of x is that of the largest x.mu_k - g_k^2 / 2 (section 4.2,
step 1): the half of the paper's score, so that one matrix product gives it, with a column of ones beside x.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from icml26.errors import InputError

__all__ = ["as_vectors", "as_weights", "augmented", "nearest", "nearest_codeword", "norms", "unit_rows"]

_SCORES = 1 << 19  # of vectors against codewords, held at a time: they stay in the processor's cache


def as_vectors(name: str, vectors: Float[ArrayLike, "vectors dimension"]) -> Float[np.ndarray, "vectors dimension"]:
    """Check that an argument is a finite matrix with rows and columns.

    Parameters
    ----------
    name
        Of the argument.
    vectors
        The argument.

    Returns
    -------
    array
        It in float32, if it was, else in float64.

    Raises
    ------
    InputError
        If it is something else.

    Examples
    --------
    >>> as_vectors("x", [[1, 2]])
    array([[1., 2.]])
    """
    try:
        found = np.asarray(vectors)
        found = np.ascontiguousarray(found, found.dtype if found.dtype == np.float32 else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a matrix of real numbers: {error}") from error
    if found.ndim != 2 or not found.size:
        raise InputError(f"{name} of shape {found.shape} must be a matrix with at least one row and one column")
    if not np.isfinite(found).all():
        raise InputError(f"{name} must hold no NaN or infinite numbers: leave such rows out")
    return found


def as_weights(
    weights: Float[ArrayLike, " vectors"] | None, vectors: Float[np.ndarray, "vectors dimension"]
) -> Float[np.ndarray, " vectors"] | None:
    """Check weights of vectors and scale them to a mean of one.

    Parameters
    ----------
    weights
        Of each vector, at least 0 and not all 0; None for none.
    vectors
        What they belong to.

    Returns
    -------
    array or None
        In the type of the vectors.

    Raises
    ------
    InputError
        If they are something else.

    Examples
    --------
    >>> as_weights([1, 3], np.zeros((2, 5)))
    array([0.5, 1.5])
    """
    if weights is None:
        return None
    found = np.asarray(weights, dtype=np.float64)
    if found.shape != (len(vectors),):
        raise InputError(f"weights of shape {found.shape} must be one number for each of the {len(vectors)} vectors")
    if not np.isfinite(found).all() or (found < 0).any() or not found.any():
        raise InputError("weights must be finite, not negative and not all zero")
    # By the largest first: the mean itself may overflow or vanish.
    found = found / found.max()
    return (found / found.mean()).astype(vectors.dtype)


def norms(x: Float[np.ndarray, "vectors dimension"]) -> Float[np.ndarray, " vectors"]:
    """Euclidean norms of rows.

    Parameters
    ----------
    x
        A matrix.

    Returns
    -------
    array
        One norm for each row.

    Examples
    --------
    >>> norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 0.])
    """
    return np.sqrt(np.einsum("nd,nd->n", x, x))


def unit_rows(x: Float[np.ndarray, "vectors dimension"]) -> Float[np.ndarray, "vectors dimension"]:
    """Directions of rows, x / |x|; zero rows stay zero.

    Parameters
    ----------
    x
        A matrix.

    Returns
    -------
    array
        Rows of norm 1, or 0. No epsilon is added to the norm, so that scaling x changes nothing.

    Examples
    --------
    >>> unit_rows(np.array([[3e-30, 4e-30], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = norms(x)
    return x / np.where(lengths > 0, lengths, 1)[:, None]


def augmented(x: Float[np.ndarray, "vectors dimension"]) -> Float[np.ndarray, "vectors dimension+1"]:
    """Put a column of ones beside vectors, for `nearest`.

    Parameters
    ----------
    x
        A matrix.

    Returns
    -------
    array
        One column more.

    Examples
    --------
    >>> augmented(np.array([[2.0]]))
    array([[2., 1.]])
    """
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def nearest(
    rows: Float[np.ndarray, "vectors dimension+1"],
    book: Float[np.ndarray, "codewords dimension"],
    squares: Float[np.ndarray, " codewords"] | None = None,
) -> Int[np.ndarray, " vectors"]:
    """Index of the largest x.mu_k - g_k^2 / 2.

    Parameters
    ----------
    rows
        `augmented` vectors x.
    book
        Codewords mu_k in the same type.
    squares
        g_k^2; the codewords' own by default. With zeros it is the largest inner product.

    Returns
    -------
    integer array
        For each vector; the lowest of several that are equal.

    Examples
    --------
    >>> nearest(augmented(np.array([[0.1, 2.0], [3.0, 0.0]])), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([1, 0])
    """
    squares = np.einsum("kd,kd->k", book, book) if squares is None else squares
    words = np.concatenate([book, (-0.5 * squares).astype(book.dtype)[:, None]], axis=1).T
    found = np.empty(len(rows), np.intp)
    step = max(1, _SCORES // len(book))
    scores = np.empty((min(step, len(rows)), len(book)), rows.dtype)
    for i in range(0, len(rows), step):
        part = rows[i : i + step]
        np.argmax(np.matmul(part, words, out=scores[: len(part)]), axis=1, out=found[i : i + step])
    return found


def nearest_codeword(
    x: Float[np.ndarray, "vectors dimension"], book: Float[np.ndarray, "codewords dimension"]
) -> Int[np.ndarray, " vectors"]:
    """Index of the nearest codeword of each vector, for two matrices that were checked.

    Parameters
    ----------
    x
        Vectors.
    book
        Codewords in the same type.

    Returns
    -------
    integer array
        For each vector; the lowest of several that are equally near.

    Examples
    --------
    >>> nearest_codeword(np.array([[0.4], [0.6]]), np.array([[0.0], [1.0]]))
    array([0, 1])
    """
    return nearest(augmented(x), book)
