"""Angles between the subspaces that two probes read, and the similarity of what they read there.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782), appendix B. A softmax probe does not change when
one vector is added to all its columns, so columns are centred first, ``W_c = W (I - 11'/k)``: k classes span at most
k - 1 directions. Angles are taken in the coordinates in which hidden states run through the model; a probe that was
fitted on standardised features has to be folded back (`icml26.kappa.probes` does that).

In many dimensions any two subspaces are nearly orthogonal: `random_angles` says how nearly.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import subspace_angles

from icml26.checks import whole
from icml26.errors import InputError

__all__ = [
    "basis",
    "cka",
    "mean_angle",
    "principal_angles",
    "random_angles",
    "random_cka",
    "share_inside",
]


def basis(weights: Float[ArrayLike, "width classes"]) -> Float[np.ndarray, "width rank"]:
    """Return an orthonormal basis of the centred columns.

    Parameters
    ----------
    weights
        W, one column per class.

    Returns
    -------
    array, width x rank
        Rank is k - 1 unless columns are collinear; singular values up to ``eps * max(shape) * s_max`` count as none,
        s_max that of the weights before centring.

    Raises
    ------
    InputError
        If weights are not a finite matrix of at least 2 columns, or all columns are equal.

    Examples
    --------
    >>> basis(np.eye(5)[:, :3]).shape
    (5, 2)
    """
    centred = _centred("weights", weights)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    # Centring leaves rounding errors of the size of what was common, which may be much more than what is left.
    scale = np.linalg.norm(_matrix("weights", weights), 2)
    rank = int((values > np.finfo(float).eps * max(centred.shape) * scale).sum())
    if not rank:
        raise InputError("weights have equal columns: a probe that prefers no class spans no subspace")
    return left[:, :rank]


def principal_angles(
    first: Float[ArrayLike, "width classes"], second: Float[ArrayLike, "width classes"]
) -> Float[np.ndarray, " rank"]:
    """Compute the principal angles between the subspaces of two probes.

    Parameters
    ----------
    first, second
        Weights of the probes, one column per class.

    Returns
    -------
    array
        Degrees, largest first; as many as the smaller rank, k - 1 in general.

    Raises
    ------
    InputError
        As of `basis`, or if the widths differ.

    Examples
    --------
    >>> principal_angles([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]).round(6)
    array([45.])
    """
    one, other = basis(first), basis(second)
    if len(one) != len(other):
        raise InputError(f"first has width {len(one)}, second {len(other)}: give probes of one layer")
    return np.degrees(subspace_angles(one, other))


def mean_angle(first: Float[ArrayLike, "width classes"], second: Float[ArrayLike, "width classes"]) -> float:
    """Return the mean of `principal_angles`, in degrees.

    Parameters
    ----------
    first, second
        Weights of the probes, one column per class.

    Returns
    -------
    float
        From 0 (the same subspace) to 90 (orthogonal ones).

    Raises
    ------
    InputError
        As of `principal_angles`.

    Examples
    --------
    >>> round(mean_angle(np.eye(6)[:, :3], np.eye(6)[:, 3:]), 6)
    90.0
    """
    return float(principal_angles(first, second).mean())


def cka(
    hidden: Float[ArrayLike, "prompts width"],
    first: Float[ArrayLike, "width rank"],
    second: Float[ArrayLike, "width rank"],
) -> float:
    """Compute the linear CKA of hidden states projected on two bases.

    Parameters
    ----------
    hidden
        Activations X.
    first, second
        Bases Q, such as `basis` returns; the features are ``X Q``.

    Returns
    -------
    float
        ``|A'B|_F^2 / (|A'A|_F |B'B|_F)`` of the features with centred columns: 0 to 1, 1 if they are equal up to
        rotation and scale.

    Raises
    ------
    InputError
        If shapes do not fit, a value is not finite, or features are constant.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> round(cka(draw.normal(size=(9, 4)), np.eye(4)[:, :2], np.eye(4)[:, 1::-1]), 6)
    1.0
    """
    hidden = _matrix("hidden", hidden)
    features = []
    for name, given in (("first", first), ("second", second)):
        vectors = _matrix(name, given)
        if len(vectors) != hidden.shape[1]:
            raise InputError(f"{name} has width {len(vectors)}, hidden {hidden.shape[1]}: give vectors of that layer")
        found = hidden @ vectors
        features.append(found - found.mean(0))
        if np.linalg.norm(features[-1]) <= 1e-12 * np.linalg.norm(found):
            raise InputError(f"hidden is constant on {name}: CKA is undefined, give prompts that differ")
    one, other = features
    return float(np.linalg.norm(one.T @ other) ** 2 / (np.linalg.norm(one.T @ one) * np.linalg.norm(other.T @ other)))


def random_angles(width: int, classes: int, draws: int = 100, *, seed: int) -> Float[np.ndarray, " draws"]:
    """Draw the mean angle of pairs of random probes.

    Parameters
    ----------
    width
        d.
    classes
        k.
    draws
        Pairs of centred Gaussian matrices; the paper's code takes 100.
    seed
        Of the draws.

    Returns
    -------
    array
        Degrees.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> bool(86 < random_angles(576, 4, 10, seed=0).mean() < 87.5)
    True
    """
    whole("classes", classes, 2)
    draw = np.random.default_rng(whole("seed", seed, 0))
    pairs = draw.normal(size=(whole("draws", draws, 1), 2, whole("width", width, classes), classes))
    return np.array([mean_angle(*pair) for pair in pairs])


def random_cka(
    hidden: Float[ArrayLike, "prompts width"], rank: int, draws: int = 32, *, seed: int = 1729
) -> Float[np.ndarray, " draws"]:
    """Draw the CKA of hidden states on pairs of random orthonormal bases.

    Parameters
    ----------
    hidden
        Activations X.
    rank
        Of each basis, k - 1.
    draws
        Pairs; the paper's code takes 32.
    seed
        Of the draws; the paper's code takes 1729.

    Returns
    -------
    array
        From 0 to 1.

    Raises
    ------
    InputError
        If a number is out of range, or as of `cka`.

    Examples
    --------
    >>> random_cka(np.random.default_rng(0).normal(size=(50, 8)), 2, 4).shape
    (4,)
    """
    hidden = _matrix("hidden", hidden)
    whole("rank", rank, 1, hidden.shape[1])
    draw = np.random.default_rng(whole("seed", seed, 0))
    shape = (whole("draws", draws, 1), 2, hidden.shape[1], rank)
    bases = np.linalg.qr(draw.normal(size=shape)).Q
    return np.array([cka(hidden, *pair) for pair in bases])


def share_inside(
    vectors: Float[ArrayLike, "prompts width"], weights: Float[ArrayLike, "width classes"]
) -> Float[np.ndarray, " prompts"]:
    """Return the share of each vector's squared norm inside the span of centred columns.

    With KAPPA's shifts as vectors, and as columns the unembedding rows of the options' symbols times the final norm's
    gain, it says how far an intervention acts on the letters' logits directly.

    Parameters
    ----------
    vectors
        Such as shifts.
    weights
        One column per class.

    Returns
    -------
    array
        From 0 (orthogonal) to 1 (inside).

    Raises
    ------
    InputError
        As of `basis`, if widths differ, or a vector is zero.

    Examples
    --------
    >>> share_inside([[1.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]])
    array([0.5, 1. ])
    """
    vectors, inside = _matrix("vectors", vectors), basis(weights)
    if vectors.shape[1] != len(inside):
        raise InputError(f"vectors have width {vectors.shape[1]}, weights {len(inside)}: give those of one layer")
    squares = (vectors**2).sum(1)
    if not (squares > 0).all():
        raise InputError("vectors hold a zero vector, which has no direction: leave it out")
    return ((vectors @ inside) ** 2).sum(1) / squares


def _centred(name: str, weights: ArrayLike) -> Float[np.ndarray, "width classes"]:
    found = _matrix(name, weights)
    if found.shape[1] < 2:
        raise InputError(f"{name} has shape {found.shape}: give one column for each of at least 2 classes")
    return found - found.mean(1, keepdims=True)


def _matrix(name: str, values: ArrayLike) -> Float[np.ndarray, "rows columns"]:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is not numbers: give a matrix") from None
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise InputError(f"{name} has shape {found.shape}: give a matrix of finite numbers")
    return found
