"""Weights of training vectors from gradients: the logarithm that tames them.

Section 4 of GSRQ (Kim et al., ICML 2026, arXiv 2607.01065) weights a key or value by how much the loss feels it:
w_i = log(1 + lambda |grad_i|) with lambda = tau / median_j |grad_j|, over the training vectors of one layer, kind and
position. The weights follow a token through all residual stages. Its raw baseline takes the norms themselves, which
need no function here; the gradients are collected by `activations`.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.checks import real
from icml26.errors import InputError
from icml26.gsrq.vectors import real_array

__all__ = ["log_weights"]


def log_weights(gradient_norms: Float[ArrayLike, "tokens *positions"], tau: float = 1.0) -> Float[np.ndarray, "..."]:
    """Weigh training vectors by the logarithm of their gradients.

    Parameters
    ----------
    gradient_norms
        Norm of the loss's gradient for each token, or for each token and sub-vector position; in any unit, because
        each position's median divides it.
    tau
        Sets where the logarithm bends: a vector at the median weighs log(1 + tau).

    Returns
    -------
    float64 array
        Of the same shape: 0 where the gradient is.

    Raises
    ------
    InputError
        If a norm is negative or not finite, a position has none above 0, or tau is not positive.

    Examples
    --------
    >>> log_weights([0.0, 1.0, 3.0]).round(3)
    array([0.   , 0.693, 1.386])
    """
    norms, tau = real_array("gradient_norms", gradient_norms).astype(np.float64), real("tau", tau, above=0)
    if norms.ndim not in (1, 2) or not norms.size:
        raise InputError(f"gradient_norms of shape {norms.shape} must be (tokens,) or (tokens, positions)")
    if not np.isfinite(norms).all() or (norms < 0).any():
        raise InputError("gradient_norms must be finite and not negative")
    largest = norms.max(axis=0)
    if not np.all(largest > 0):
        raise InputError("gradient_norms are zero throughout at a position: collect more tokens, or use no weights")
    # By the largest first, or a median of tiny norms vanishes. More than half of the gradients may be zero, so the
    # median needs its small addition.
    norms = norms / largest
    return np.log1p(tau * norms / (np.median(norms, axis=0) + 1e-12))
