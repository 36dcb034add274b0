"""Sums over stretches of one long array, in float64 whatever it holds, in little memory.

Traces of a question of CDG (Wang et al., ICML 2026, arXiv 2605.25244; `icml26.cdg.question`) lie end to end in such an
array, and its means over trace, head and tail (Section 3) are such sums. ``numpy.add.reduceat`` does the work; told
to sum in float64 it would copy the whole array, so stretches are taken in blocks.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Float64, Int64

__all__ = ["blocks", "segment_sums"]

_BLOCK = 1 << 17  # elements summed at a time: 1 MB in float64


def segment_sums(
    flat: Float[np.ndarray, " tokens"], starts: Int64[np.ndarray, " n"], stops: Int64[np.ndarray, " n"]
) -> Float64[np.ndarray, " n"]:
    """Sum disjoint stretches of an array, in float64.

    Parameters
    ----------
    flat : array
        Numbers.
    starts, stops : int arrays
        First index of each stretch and the one behind its last, in ascending order.

    Returns
    -------
    array
        A sum for each stretch; 0 for an empty one.

    Examples
    --------
    >>> segment_sums(np.arange(6.0), np.array([0, 2, 4]), np.array([2, 2, 6]))
    array([1., 0., 9.])
    """
    sums = np.zeros(len(starts))
    filled = np.flatnonzero(stops > starts)
    edges = np.stack([starts[filled], stops[filled]], 1)
    for rows in blocks(*edges.T):
        first, last = edges[rows][0, 0], edges[rows][-1, 1]
        # Every second sum is of what lies between stretches.
        part = flat[first:last].astype(float, copy=False)
        sums[filled[rows]] = np.add.reduceat(part, (edges[rows] - first).ravel()[:-1])[::2]
    return sums


def blocks(starts: Int64[np.ndarray, " n"], stops: Int64[np.ndarray, " n"]) -> Iterator[slice]:
    """Group consecutive stretches so that a copy of what they span stays small.

    Parameters
    ----------
    starts, stops : int arrays
        First index of each stretch and the one behind its last, in ascending order.

    Yields
    ------
    slice
        Of stretches that span at most 131,072 elements, or of a single longer one.

    Examples
    --------
    >>> list(blocks(np.array([0, 100_000, 200_000]), np.array([100_000, 200_000, 220_000])))
    [slice(0, 1, None), slice(1, 3, None)]
    """
    first = 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(stops, starts[first] + _BLOCK, side="right")))
        yield slice(first, last)
        first = last
