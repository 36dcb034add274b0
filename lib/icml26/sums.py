"""What is added up before an interval is made: clusters of dependent items, and errors relative to a norm.

Both functions work on the last axis, as the statistics of `icml26.stats` do, which makes the intervals.
"""

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike

from icml26.errors import InputError

__all__ = ["cluster_sums", "root_ratio_of_sums"]


def root_ratio_of_sums(
    errors: Float[np.ndarray, "*batch items"], norms: Float[np.ndarray, "*batch items"], axis: int = -1
) -> Float[np.ndarray, "*batch"]:
    """Relative Frobenius error from squared errors and squared norms: the root of the ratio of their sums.

    Parameters
    ----------
    errors : ndarray, shape (..., items)
        Squared error of each item (block, scale group).
    norms : ndarray, shape (..., items)
        Squared norm of what it stands for.
    axis : int
        The items' axis.

    Returns
    -------
    ndarray, shape (...)
        ``sqrt(sum(errors) / sum(norms))``, without unit.

    Examples
    --------
    >>> float(root_ratio_of_sums(np.array([1.0, 3.0]), np.array([6.0, 10.0])))
    0.5
    """
    return np.sqrt(np.sum(errors, axis=axis) / np.sum(norms, axis=axis))


def cluster_sums(
    values: Float[ArrayLike, "*curves items"], clusters: Shaped[ArrayLike, " items"]
) -> Float[np.ndarray, "*curves n_clusters"]:
    """Sum the items of each cluster, so that whole clusters can be resampled.

    Parameters
    ----------
    values : array-like, shape (..., items)
        Something that adds up, such as squared errors.
    clusters : array-like, shape (items,)
        Each item's cluster, such as ``index // blocks_per_group``.

    Returns
    -------
    ndarray, shape (..., n_clusters)
        In the order of the sorted cluster labels.

    Raises
    ------
    InputError
        If there is not one label for each item.

    Examples
    --------
    >>> cluster_sums([1.0, 2.0, 3.0, 4.0, 5.0], [0, 0, 1, 1, 2])
    array([3., 7., 5.])
    """
    values = np.asarray(values, dtype=float)
    labels, index = np.unique(np.asarray(clusters), return_inverse=True)
    if index.shape != values.shape[-1:]:
        raise InputError(f"clusters has shape {index.shape}; give one label for each of the {values.shape[-1:]} items")
    sums = np.zeros((*values.shape[:-1], len(labels)))
    np.add.at(sums, (..., index), values)
    return sums
