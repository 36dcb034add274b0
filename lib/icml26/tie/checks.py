"""What the arguments of the laws and their fits must be; each check returns the argument as it is used.

They serve the modules of TIE (Zheng et al., arXiv 2604.00499). Every check raises `InputError` with one line that names
the argument, its value and the remedy. Which checks apply to what is the business of the modules that read arguments.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from icml26.checks import is_integer, is_number
from icml26.errors import InputError

__all__ = [
    "checked_cap",
    "checked_lengths",
    "checked_location",
    "checked_positive",
    "checked_reals",
    "checked_scalar",
    "checked_share",
]

_FURTHEST = 1000  # of ln tokens: exp of it is beyond every float


def checked_reals(name: str, value: ArrayLike) -> Float[np.ndarray, "..."]:
    """Numbers, none of them NaN or infinite.

    Parameters
    ----------
    name : str
        What the argument is called.
    value : array-like of any shape
        The argument.

    Returns
    -------
    float array of the same shape

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> checked_reals("mu", [1, 2])
    array([1., 2.])
    """
    try:
        array = np.asarray(value)
        numbers = array.astype(float)
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{name}={value!r} must be numbers: {error}") from error
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} holds {array.dtype} values; give real numbers")
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} holds {numbers[~np.isfinite(numbers)].flat[0]}; give finite numbers")
    return numbers


def checked_positive(name: str, value: ArrayLike) -> Float[np.ndarray, "..."]:
    """Finite numbers above 0.

    Parameters
    ----------
    name, value
        As in `checked_reals`.

    Returns
    -------
    float array of the same shape

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> checked_positive("sigma", 0.5)
    array(0.5)
    """
    numbers = checked_reals(name, value)
    if not (numbers > 0).all():
        raise InputError(f"{name} holds {numbers[numbers <= 0].flat[0]:g}; give numbers above 0")
    return numbers


def checked_scalar(name: str, value: float) -> float:
    """One finite number above 0.

    Parameters
    ----------
    name, value
        As in `checked_reals`.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> checked_scalar("nu", 3.5)
    3.5
    """
    numbers = checked_positive(name, value)
    if numbers.ndim:
        raise InputError(f"{name}={value!r} must be one number for all prompts, above 0")
    return float(numbers)


def checked_location(name: str, value: ArrayLike) -> Float[np.ndarray, "..."]:
    """Finite numbers that can be logarithms of lengths, from -1000 to 1000.

    Parameters
    ----------
    name, value
        As in `checked_reals`.

    Returns
    -------
    float array of the same shape

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> checked_location("mu", [5.0])
    array([5.])
    """
    numbers = checked_reals(name, value)
    if (np.abs(numbers) > _FURTHEST).any():
        worst = numbers[np.abs(numbers) > _FURTHEST].flat[0]
        raise InputError(f"{name} holds {worst:g}; give logarithms of tokens, from {-_FURTHEST} to {_FURTHEST}")
    return numbers


def checked_cap(cap: float, *, whole: bool = False) -> float:
    """A largest length: one positive number.

    Parameters
    ----------
    cap : int or float
        Tokens.
    whole : bool
        Whether it has to be an integer.

    Returns
    -------
    int or float

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> checked_cap(2048, whole=True)
    2048
    """
    if not (is_integer(cap) if whole else is_number(cap)) or cap <= 0:
        kind = "a positive integer" if whole else "a positive number"
        raise InputError(f"cap={cap!r} must be {kind}: the largest length in tokens, such as 2048")
    return cap


def checked_share(name: str, value: float) -> float:
    """A probability from 0 to below 1.

    Parameters
    ----------
    name : str
        What the argument is called.
    value : float
        The argument.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> checked_share("alpha", 0.9)
    0.9
    """
    if not is_number(value) or not 0 <= value < 1:
        raise InputError(f"{name}={value!r} must lie from 0 to below 1: 0.9 stands for the worst 10 %")
    return float(value)


def checked_lengths(
    lengths: Int[ArrayLike, "prompts samples"], cap: int | None, least: int = 1, name: str = "lengths"
) -> Int[np.ndarray, "prompts samples"]:
    """Whole lengths from 1 to the cap, one row per prompt.

    Parameters
    ----------
    lengths : int array, shape (prompts, samples)
        Tokens.
    cap : int or None
        Largest length, None for no bound.
    least : int
        Fewest samples per prompt.
    name : str
        What the argument is called.

    Returns
    -------
    int array, shape (prompts, samples)

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> checked_lengths([[3, 8]], cap=8)
    array([[3, 8]])
    """
    try:
        array = np.asarray(lengths)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is no array: {error}; give integers, as many for every prompt") from error
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError(f"{name} is {array.dtype} of shape {array.shape}; give integers, one row per prompt")
    if array.shape[1] < least or not len(array):
        raise InputError(f"{name} has shape {array.shape}; give prompts with at least {least} samples each")
    if array.min() < 1:
        raise InputError(f"{name} holds {array.min()}; count the end token, so that each is at least 1")
    if cap is not None and array.max() > checked_cap(cap, whole=True):
        raise InputError(f"{name} holds {array.max()}, which is above cap={cap!r}; give the cap of the sampling")
    return array
