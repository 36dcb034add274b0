"""What the arguments of the laws and their fits must be; each check returns the argument as it is used."""

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from icml26.errors import InputError

__all__ = ["checked_cap", "checked_count", "checked_lengths", "checked_positive", "checked_reals", "checked_share"]


def checked_reals(name: str, value: ArrayLike) -> Float[np.ndarray, "..."]:
    """Numbers, none of them NaN or infinite, as a float array of any shape."""
    try:
        array = np.asarray(value)
        numbers = array.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}={value!r} must be numbers: {error}") from error
    if array.dtype == bool or array.dtype.kind == "c":
        raise InputError(f"{name} holds {array.dtype} values; give real numbers")
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} holds {numbers[~np.isfinite(numbers)].flat[0]}; give finite numbers")
    return numbers


def checked_positive(name: str, value: ArrayLike) -> Float[np.ndarray, "..."]:
    """Finite numbers above 0."""
    numbers = checked_reals(name, value)
    if not (numbers > 0).all():
        raise InputError(f"{name} holds {numbers[numbers <= 0].flat[0]:g}; give numbers above 0")
    return numbers


def checked_cap(cap: float, *, whole: bool = False) -> float:
    """A largest length: one positive number of tokens."""
    kinds = int | np.integer if whole else int | float | np.integer | np.floating
    if isinstance(cap, bool | np.bool_) or not isinstance(cap, kinds) or not 0 < cap < np.inf:
        kind = "a positive integer" if whole else "a positive number"
        raise InputError(f"cap={cap!r} must be {kind}: the largest length in tokens, such as 2048")
    return cap


def checked_share(name: str, value: float) -> float:
    """A probability from 0 to below 1."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number) or not 0 <= value < 1:
        raise InputError(f"{name}={value!r} must lie from 0 to below 1: 0.9 stands for the worst 10 %")
    return float(value)


def checked_count(name: str, value: int, least: int) -> int:
    """An integer of at least so many."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}={value!r} must be an integer of at least {least}")
    return int(value)


def checked_lengths(lengths: ArrayLike, cap: int | None, least: int = 1) -> Int[np.ndarray, "prompts samples"]:
    """Whole lengths of at least 1 and at most the cap, one row per prompt, at least so many in each."""
    array = np.asarray(lengths)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError(f"lengths is {array.dtype} of shape {array.shape}; give integers, one row per prompt")
    if array.shape[1] < least or not len(array):
        raise InputError(f"lengths has shape {array.shape}; give prompts with at least {least} samples each")
    if array.min() < 1:
        raise InputError(f"lengths holds {array.min()}; count the end token, so that each is at least 1")
    if cap is not None and array.max() > checked_cap(cap, whole=True):
        raise InputError(f"lengths holds {array.max()}, which is above cap={cap!r}; give the cap of the sampling")
    return array
