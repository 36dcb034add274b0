"""How far reconstructions are from vectors: squared error, angle and length.

The measures are those of GSRQ (Kim et al., ICML 2026, arXiv 2607.01065) and its released code; the squared error is per
element there, per vector in the paper's text, here per element. The ratio of energies, which the paper reads as
"centroid shrinkage" (its figure 2), is one minus the normalised error for training vectors and codewords that are mean
projections of their members. What is measured on training vectors says nothing about others: that choice is the
caller's. Everything is computed in float64.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.errors import InputError
from icml26.gsrq.vectors import as_vectors, exponent, norms, unit_rows

__all__ = ["Distortion", "cosines", "measure", "shrinkage"]


@dataclass(frozen=True)
class Distortion:
    """Averages over vectors x and their reconstructions.

    Parameters
    ----------
    mse
        Squared error per element.
    nmse
        Sum of the squared errors over the sum of the squares of x: 0 is exact, 1 as good as zeros.
    cosine
        Mean cosine of the angle between the two, of rows whose x is not zero; one whose reconstruction is zero counts
        as 0.
    gain_error
        Mean distance between the norms of the two.
    """

    mse: float
    nmse: float
    cosine: float
    gain_error: float


def measure(x: Float[ArrayLike, "vectors dimension"], decoded: Float[ArrayLike, "vectors dimension"]) -> Distortion:
    """Compare vectors with their reconstructions.

    Parameters
    ----------
    x
        The vectors, not all zero.
    decoded
        Their reconstructions.

    Returns
    -------
    Distortion
        The averages.

    Raises
    ------
    InputError
        If the shapes differ, a number is not finite, or x is zero throughout.

    Examples
    --------
    >>> measure([[3.0, 4.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 1.0]])
    Distortion(mse=4.0, nmse=0.6153846153846154, cosine=0.8, gain_error=1.0)
    """
    x, decoded = _pair(x, decoded)
    power = exponent(x, decoded)
    if power:
        x, decoded = np.ldexp(x, -power), np.ldexp(decoded, -power)
    lengths, others = norms(x), norms(decoded)
    left = (x - decoded).ravel()
    errors = left @ left
    with np.errstate(over="ignore"):  # infinite if a square is beyond float64
        mse = float(np.ldexp(errors / x.size, 2 * power))
    return Distortion(
        mse=mse,
        nmse=float(errors / np.square(lengths).sum()),
        cosine=float(np.nanmean(_cosines(x, decoded, lengths, others))),
        gain_error=float(np.ldexp(np.abs(lengths - others).mean(), power)),
    )


def cosines(
    x: Float[ArrayLike, "vectors dimension"], decoded: Float[ArrayLike, "vectors dimension"]
) -> Float[np.ndarray, " vectors"]:
    """Cosine of the angle between each vector and its reconstruction.

    Parameters
    ----------
    x
        The vectors, not all zero.
    decoded
        Their reconstructions.

    Returns
    -------
    float64 array
        NaN where the vector is zero, else 0 where the reconstruction is.

    Raises
    ------
    InputError
        If the shapes differ, a number is not finite, or x is zero throughout.

    Examples
    --------
    >>> cosines([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    array([0.6, 0. , nan])
    """
    x, decoded = _pair(x, decoded)
    return _cosines(x, decoded, norms(x), norms(decoded))


def shrinkage(x: Float[ArrayLike, "vectors dimension"], decoded: Float[ArrayLike, "vectors dimension"]) -> float:
    """The paper's shrinkage ratio rho = E|mu|^2 / E|x|^2 of codewords and vectors (section 3, figure 2).

    Parameters
    ----------
    x
        The vectors, not all zero.
    decoded
        The codeword of each.

    Returns
    -------
    float
        At most 1 for mean projections of the vectors themselves, where it equals one minus `Distortion.nmse`.

    Raises
    ------
    InputError
        If the shapes differ, a number is not finite, or x is zero throughout.

    Examples
    --------
    >>> shrinkage([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]])
    0.5
    """
    x, decoded = _pair(x, decoded)
    power = exponent(x, decoded)
    if power:
        x, decoded = np.ldexp(x, -power), np.ldexp(decoded, -power)
    x, decoded = x.ravel(), decoded.ravel()
    return float(decoded @ decoded / (x @ x))


def _pair(x: ArrayLike, decoded: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    x, decoded = (as_vectors(name, rows).astype(np.float64) for name, rows in (("x", x), ("decoded", decoded)))
    if x.shape != decoded.shape:
        raise InputError(f"x of shape {x.shape} and decoded of shape {decoded.shape} must agree")
    if not x.any():
        raise InputError("x is zero throughout: no ratio to its energy exists")
    return x, decoded


def _cosines(x: np.ndarray, decoded: np.ndarray, lengths: np.ndarray, others: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # rows for which this is not exact follow
        products = lengths * others
        found = np.einsum("nd,nd->n", x, decoded) / products
    odd = ~((products > 1e-200) & (products < 1e200))
    if odd.any():
        found[odd] = np.einsum("nd,nd->n", unit_rows(x[odd]), unit_rows(decoded[odd]))
    return np.where(lengths > 0, found, np.nan)
