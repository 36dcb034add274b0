"""Checks of single numbers that users pass: an integer or a real number, in a range; each refuses in one line.

Truth values are no numbers here, though Python counts them as integers; NumPy's numbers are as good as Python's. What a
range means and what arrays must hold is for the module that reads the argument.
"""

import math
import operator

import numpy as np

from icml26.errors import InputError

__all__ = ["is_integer", "is_number", "real", "whole"]


def is_integer(value: object) -> bool:
    """Whether a value is an integer, Python's or NumPy's, and no truth value.

    Parameters
    ----------
    value
        Anything.

    Returns
    -------
    bool
        True iff it is.

    Examples
    --------
    >>> is_integer(np.uint8(3)), is_integer(True), is_integer(3.0)
    (True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a finite real number, Python's or NumPy's, that floating point can hold, and no truth value.

    Parameters
    ----------
    value
        Anything.

    Returns
    -------
    bool
        True iff it is.

    Examples
    --------
    >>> is_number(np.float32(0.5)), is_number(2), is_number("2"), is_number(float("nan")), is_number(10**400)
    (True, True, False, False, False)
    """
    try:
        return (is_integer(value) or isinstance(value, float | np.floating)) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def whole(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return an integer that lies in a range.

    Parameters
    ----------
    name
        Of the argument.
    value
        The argument.
    least, most
        The smallest and the largest that are allowed; no bound by default.

    Returns
    -------
    int
        The argument, as Python's integer.

    Raises
    ------
    InputError
        If it is something else.

    Examples
    --------
    >>> whole("samples", np.int64(20), 1)
    20
    >>> whole("seed", -1, 0)
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: seed=-1 must be an integer of at least 0
    """
    bounds = _bounds(low=least, high=most)
    if not is_integer(value) or not _inside(value, bounds):
        raise InputError(f"{name}={value!r} must be an integer{_named(bounds)}")
    return int(value)


def real(
    name: str,
    value: object,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Return a finite number that lies in a range.

    Parameters
    ----------
    name
        Of the argument.
    value
        The argument.
    low, high
        The smallest and the largest that are allowed; no bound by default.
    above, below
        Bounds that are themselves not allowed.

    Returns
    -------
    float
        The argument, as Python's float.

    Raises
    ------
    InputError
        If it is something else.

    Examples
    --------
    >>> real("temperature", 1, above=0)
    1.0
    >>> real("level", 95, above=0, below=1)
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: level=95 must be a finite number above 0 and below 1
    """
    bounds = _bounds(low=low, above=above, high=high, below=below)
    if not is_number(value) or not _inside(value, bounds):
        raise InputError(f"{name}={value!r} must be a finite number{_named(bounds)}")
    return float(value)


# How a value must compare with each bound, and how messages call it.
_KINDS = {
    "low": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "high": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


def _bounds(**bounds: float | None) -> dict[str, float]:
    return {kind: bound for kind, bound in bounds.items() if bound is not None}


def _inside(value: float, bounds: dict[str, float]) -> bool:
    return all(_KINDS[kind][0](value, bound) for kind, bound in bounds.items())


def _named(bounds: dict[str, float]) -> str:
    named = " and ".join(f"{_KINDS[kind][1]} {bound}" for kind, bound in bounds.items())
    return f" of {named}" if named.startswith("at") else f" {named}".rstrip()
