"""KIVI's rounding of keys and values to a few bits: minimum and maximum of a group make an integer grid.

The method is KIVI (Liu et al., arXiv 2402.02750), a baseline of GSRQ (Kim et al., ICML 2026, arXiv 2607.01065). Keys
are grouped along the tokens of one channel, because a few channels of them are large throughout; values along the
channels of one token. A group of numbers x has the float16 minimum m and step ``s = (max - min) / (2^b - 1)``, the
integer ``q = round((x - m) / s)`` within 0 to 2^b - 1, and comes back as ``m + s q``. The newest tokens may stay as
they are. What all this takes is counted by `bits.integers`; a cache for `transformers` with such a window is that
library's own ``QuantizedCache``.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.vectors import real_array

__all__ = ["kivi_keys", "kivi_values"]


def kivi_keys(
    keys: Float[ArrayLike, "*batch tokens channels"], bits: int, group: int = 32, window: int = 0
) -> Float[np.ndarray, "*batch tokens channels"]:
    """Round keys to integers per channel, in groups of tokens.

    Parameters
    ----------
    keys
        Before the rotary embedding, oldest token first; leading axes are sequences of their own.
    bits
        b, of one integer, 1 to 8.
    group
        Tokens of a channel that share a scale. Only whole groups are rounded: what is left over of the newest tokens
        stays as it is.
    window
        Newest tokens that stay in any case.

    Returns
    -------
    array
        What is read back, in the type of the keys (float32 if they are no floating numbers).

    Raises
    ------
    InputError
        If the keys are not finite, too large for float16 or have no two axes, or a number is out of range.

    Examples
    --------
    >>> keys = np.array([[0.0, 1.0], [1.0, 5.0], [3.0, 2.0], [9.0, 9.0]])
    >>> kivi_keys(keys, bits=1, group=3).tolist()
    [[0.0, 1.0], [0.0, 5.0], [3.0, 1.0], [9.0, 9.0]]
    """
    keys = _checked("keys", keys)
    bits, group, window = whole("bits", bits, 1, 8), whole("group", group, 1), whole("window", window, 0)
    old = max(keys.shape[-2] - window, 0) // group * group
    grouped = keys[..., :old, :].reshape(*keys.shape[:-2], old // group, group, keys.shape[-1])
    read = _rounded("keys", grouped, bits, axis=-2).reshape(*keys.shape[:-2], old, keys.shape[-1])
    return np.concatenate([read, keys[..., old:, :]], axis=-2)


def kivi_values(
    values: Float[ArrayLike, "*batch tokens channels"], bits: int, group: int = 32, window: int = 0
) -> Float[np.ndarray, "*batch tokens channels"]:
    """Round values to integers per token, in groups of channels.

    Parameters
    ----------
    values
        Oldest token first; leading axes are sequences of their own.
    bits
        b, of one integer, 1 to 8.
    group
        Channels of a token that share a scale; the last group may be shorter.
    window
        Newest tokens that stay as they are.

    Returns
    -------
    array
        What is read back, in the type of the values (float32 if they are no floating numbers).

    Raises
    ------
    InputError
        If the values are not finite, too large for float16 or have no two axes, or a number is out of range.

    Examples
    --------
    >>> kivi_values(np.array([[0.0, 0.2, 0.9, 1.0, 7.0]]), bits=1, group=4).tolist()
    [[0.0, 0.0, 1.0, 1.0, 7.0]]
    """
    values = _checked("values", values)
    bits, group, window = whole("bits", bits, 1, 8), whole("group", group, 1), whole("window", window, 0)
    old, channels = max(values.shape[-2] - window, 0), values.shape[-1]
    # Repeating the last channel fills up its group without moving the group's minimum or maximum.
    padded = np.pad(values[..., :old, :], [(0, 0)] * (values.ndim - 1) + [(0, -channels % group)], mode="edge")
    grouped = padded.reshape(*values.shape[:-2], old, -(-channels // group), group)
    read = _rounded("values", grouped, bits, axis=-1).reshape(padded.shape)[..., :channels]
    return np.concatenate([read, values[..., old:, :]], axis=-2)


def _rounded(name: str, grouped: np.ndarray, bits: int, axis: int) -> np.ndarray:
    top = (1 << bits) - 1
    wide = grouped.astype(np.float64)
    low, high = wide.min(axis, keepdims=True), wide.max(axis, keepdims=True)
    with np.errstate(over="ignore"):  # refused below
        minimum, step = (part.astype(np.float16).astype(np.float64) for part in (low, (high - low) / top))
    if not (np.isfinite(minimum).all() and np.isfinite(step).all()):
        raise InputError(f"{name} have a group whose minimum or range exceeds float16: scale them down")
    # A group without range needs no step; its codes are 0.
    codes = ((wide - minimum) / np.where(step, step, np.inf)).round().clip(0, top)
    return (minimum + step * codes).astype(grouped.dtype)


def _checked(name: str, array: ArrayLike) -> np.ndarray:
    array = real_array(name, array)
    if array.ndim < 2 or not array.shape[-1]:
        raise InputError(f"{name} of shape {array.shape} must have at least the axes (tokens, channels)")
    if not np.issubdtype(array.dtype, np.floating):
        if array.dtype.kind not in "iu":
            raise InputError(f"{name} of type {array.dtype} must be real numbers")
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise InputError(f"{name} hold NaN or infinite numbers: remove them first")
    return array
