"""The check of numbers that several modules of this package share; it refuses in one line.

It serves the modules of NQS (Li and Maddison, arXiv 2605.09154).
"""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from icml26.errors import InputError

__all__ = ["numeric"]


def numeric(name: str, values: ArrayLike, expected: str, *, ndim: int | None = None) -> Float64[np.ndarray, "..."]:
    """Return numbers as a float array.

    Parameters
    ----------
    name
        Of the argument.
    values
        Numbers; Booleans, text and ragged lists are none.
    expected
        What the argument must be, for the message.
    ndim
        Number of axes; any by default. With one axis there must be a value.

    Returns
    -------
    array

    Raises
    ------
    InputError
        If they are something else.

    Examples
    --------
    >>> numeric("N", [[1, 2], [3]], "numbers of parameters")
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: N=[[1, 2], [3]] must be numbers of parameters
    """
    try:
        array = np.asarray(float(values) if type(values) is int else values)  # NumPy has no integer beyond 64 bits
    except (ValueError, TypeError, OverflowError):  # ragged, of a type that has no array, beyond floating point
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iuf" or ndim not in (None, array.ndim) or (ndim == 1 and not array.size):
        raise InputError(f"{name}={values!r} must be {expected}")
    return array.astype(float)
