"""The best kept set of a few tokens by looking at all of them, with the exact Wasserstein distance.

Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346) minimises F(S) = W1(p, q_S) + λ H(q_S) - β log Γ_S by
alternation; what it misses is measured against `brute_force`. Most of the sets need no linear programme: the mass
outside S has to travel at least to its nearest member, for any cost, so that F(S) is at least

    Σ_{i outside S} p_i min_{j in S} d(i, j) + λ H(q_S) - β log Γ_S,

and a set whose bound exceeds the best value so far is out.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float

from icml26.checks import whole
from icml26.top_w.core import entropy_mass
from icml26.top_w.potential import nearest_potential
from icml26.top_w.transport import checked_cost, checked_distribution, wasserstein

__all__ = ["brute_force", "lower_bound", "subsets"]

_MOST = 16  # tokens; there are 2^16 sets of them


def subsets(tokens: int) -> Bool[np.ndarray, "sets tokens"]:
    """Return all sets of tokens but the empty one.

    Parameters
    ----------
    tokens : int
        How many tokens, 1 to 16.

    Returns
    -------
    bool array, shape (2**tokens - 1, tokens)

    Raises
    ------
    InputError
        If `tokens` is out of range.

    Examples
    --------
    >>> subsets(2).astype(int)
    array([[1, 0],
           [0, 1],
           [1, 1]])
    """
    tokens = whole("tokens", tokens, 1, _MOST)
    return (np.arange(1, 1 << tokens)[:, None] >> np.arange(tokens) & 1).astype(bool)


def lower_bound(
    p: Float[np.ndarray, " tokens"], kept: Bool[np.ndarray, "*sets tokens"], cost: Float[np.ndarray, "tokens tokens"]
) -> Float[np.ndarray, "*sets"]:
    """Return what W1(p, q_S) is at least: all mass outside the set goes to its nearest member.

    Parameters
    ----------
    p : array, shape (tokens,)
        Probabilities.
    kept : bool array, shape (..., tokens)
        Sets.
    cost : array, shape (tokens, tokens)
        Distances; nothing but being at least 0 and 0 on the diagonal is asked of them.

    Returns
    -------
    array, shape (...)
        In the cost's unit.

    Raises
    ------
    InputError
        If an argument is not that.

    Examples
    --------
    >>> p, cost = np.array([0.5, 0.3, 0.2]), np.array([[0, 1.0, 2], [1, 0, 1], [2, 1, 0]])
    >>> lower_bound(p, np.array([[True, False, False], [True, False, True]]), cost).round(4)
    array([0.7, 0.3])
    """
    p = checked_distribution("p", p)
    into = torch.tensor(checked_cost(cost, len(p)).T.copy())
    sets = torch.tensor(np.asarray(kept))
    return nearest_potential(into.expand(*sets.shape, len(p)), sets, sign=1).numpy() @ p


def brute_force(
    p: Float[np.ndarray, " tokens"], cost: Float[np.ndarray, "tokens tokens"], lam: float, beta: float
) -> tuple[Bool[np.ndarray, " tokens"], float]:
    """Return the set that minimises the exact objective, and its value.

    Parameters
    ----------
    p : array, shape (tokens,)
        Probabilities that sum to 1, of at most 16 tokens.
    cost : array, shape (tokens, tokens)
        Distances between tokens; for the decoder with `geom_scale` g they are g (1 - cos).
    lam, beta : float
        Weights of the entropy and of the logarithm of the kept mass, at least 0.

    Returns
    -------
    mask : bool array, shape (tokens,)
        The best set.
    value : float
        F of it.

    Raises
    ------
    InputError
        If an argument is not that.

    Examples
    --------
    >>> mask, value = brute_force(np.array([0.75, 0.25]), np.array([[0, 1.0], [1, 0]]), lam=0.3, beta=0.8)
    >>> mask, round(value, 4)
    (array([ True,  True]), 0.1687)
    """
    p = checked_distribution("p", p)
    cost = checked_cost(cost, len(p))
    sets = subsets(len(p))
    sets = sets[sets @ p > 0]
    spread = entropy_mass(p, sets, lam, beta)
    bounds = spread + lower_bound(p, sets, cost)
    best, value = sets[0], np.inf
    for at in np.argsort(bounds, kind="stable"):
        if bounds[at] >= value:
            break
        inside = np.where(sets[at], p, 0)
        found = wasserstein(p, inside / inside.sum(), cost) + spread[at]
        if found < value:
            best, value = sets[at], float(found)
    return best.copy(), value
