"""Rows of numbers: checks, norms, directions, and the codeword that is nearest.

The arithmetic under `clustering`, `residual` and `distortion`, where the method of GSRQ (Kim et al., ICML 2026, arXiv
2607.01065) is told. The nearest codeword mu_k = g_k s_k of x is that of the largest x.mu_k - g_k^2 / 2 (section 4.2,
step 1): the half of the paper's score, so that one matrix product gives it, with a column of ones beside x. Distances
do not change when all is moved by the mean codeword, and so much of what keys have in common does not cancel digits.
Magnitudes may be as large or small as the type allows: squares are taken of numbers that a power of two, which is
exact, has brought near one.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from icml26.errors import InputError

__all__ = ["as_vectors", "as_weights", "exponent", "nearest_codeword", "norms", "real_array", "unit_rows"]

_SAFE = 32  # powers of two either way whose squares' sums are far from the ends even of float32
_SCORES = 1 << 19  # of vectors against codewords, held at a time: they stay in the processor's cache


def real_array(name: str, values: ArrayLike) -> np.ndarray:
    """Read an argument as an array of real numbers.

    Parameters
    ----------
    name
        Of the argument.
    values
        The argument.

    Returns
    -------
    array
        It, of its own type.

    Raises
    ------
    InputError
        If it is no array of truth values, integers or floating numbers: complex, text, ragged, masked, or with
        gradients.

    Examples
    --------
    >>> real_array("x", [[1, 2]]).dtype.kind
    'i'
    """
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array: leave the masked entries out and pass its data")
    try:
        found = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} must be an array of real numbers: {line}") from error
    if found.dtype.kind not in "fiub":
        raise InputError(f"{name} of type {found.dtype} must be an array of real numbers")
    return found


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
    found = real_array(name, vectors)
    if found.ndim != 2 or not found.size:
        raise InputError(f"{name} of shape {found.shape} must be a matrix with at least one row and one column")
    if not np.isfinite(found).all():
        raise InputError(f"{name} must hold no NaN or infinite numbers: leave such rows out")
    return np.ascontiguousarray(found, found.dtype if found.dtype == np.float32 else np.float64)


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
    found = real_array("weights", weights).astype(np.float64)
    if found.shape != (len(vectors),):
        raise InputError(f"weights of shape {found.shape} must be one number for each of the {len(vectors)} vectors")
    if not np.isfinite(found).all() or (found < 0).any() or not found.any():
        raise InputError("weights must be finite, not negative and not all zero")
    # By the largest first: the mean itself may overflow or vanish.
    found = found / found.max()
    return (found / found.mean()).astype(vectors.dtype)


def exponent(*arrays: Float[np.ndarray, "..."]) -> int:
    """Power of two that brings the largest magnitude of some arrays to between a half and one.

    Parameters
    ----------
    *arrays
        Finite numbers.

    Returns
    -------
    int
        e of the largest magnitude m 2^e, so that ``np.ldexp(x, -e)`` is at most 1; 0 if it is already far from where
        squares over- or underflow, or if all numbers are zero.

    Examples
    --------
    >>> exponent(np.array([3.0])), exponent(np.array([2.0**-200, 0.0]))
    (0, -199)
    """
    power = int(np.frexp(max(max(abs(float(x.max())), abs(float(x.min()))) for x in arrays))[1])
    return power if abs(power) > _SAFE else 0


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
    scaled, powers = _scaled_rows(x)
    return np.ldexp(np.sqrt(np.einsum("nd,nd->n", scaled, scaled)), powers)


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
    scaled, _ = _scaled_rows(x)
    lengths = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))
    return scaled / np.where(lengths > 0, lengths, 1)[:, None]


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
    power = exponent(book)
    if power:
        x, book = np.ldexp(x, -power), np.ldexp(book, -power)
    centre = book.mean(axis=0)
    moved = book - centre
    halves = -0.5 * np.einsum("kd,kd->k", moved, moved)
    words = np.concatenate([moved, halves[:, None]], axis=1).T
    found = np.empty(len(x), np.intp)
    step = min(len(x), max(1, _SCORES // len(book)))
    scores, rows = np.empty((step, len(book)), x.dtype), np.ones((step, x.shape[1] + 1), x.dtype)
    for i in range(0, len(x), step):
        part = x[i : i + step]
        np.subtract(part, centre, out=rows[: len(part), :-1])
        np.argmax(np.matmul(rows[: len(part)], words, out=scores[: len(part)]), axis=1, out=found[i : i + step])
    return found


def _scaled_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray | int]:
    """Rows, each by a power of two, and that power: one for all where no row's squares come near the ends."""
    largest = np.maximum(x.max(axis=1), -x.min(axis=1))
    powers = np.where(largest > 0, np.frexp(largest)[1], 0)
    if not powers.size or np.abs(powers).max() <= _SAFE:
        return x, 0
    return np.ldexp(x, -powers[:, None]), powers
