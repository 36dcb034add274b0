"""NumPy arrays and tensors alike: what comes in as the one goes out as the one.

It serves the modules of Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346), which compute in torch.
"""

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["Array", "as_given", "as_tensor"]

Array = TypeVar("Array", np.ndarray, Tensor)


def as_tensor(value: Array) -> Tensor:
    """Return a tensor as it is, and a copy of anything else as one.

    Parameters
    ----------
    value : array-like or Tensor
        Numbers or truth values.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> as_tensor(np.array([0.5, 1.0])[::-1])
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    return value if isinstance(value, Tensor) else torch.tensor(np.array(value, order="C"))


def as_given(given: Array, result: Tensor) -> Array:
    """Return a result in the form of what was given.

    Parameters
    ----------
    given : array-like or Tensor
        An argument.
    result : Tensor
        What was computed from it.

    Returns
    -------
    array or Tensor

    Examples
    --------
    >>> as_given([1.0], torch.ones(2))
    array([1., 1.], dtype=float32)
    """
    return result if isinstance(given, Tensor) else result.numpy()
