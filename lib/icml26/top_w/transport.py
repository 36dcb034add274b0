"""The Wasserstein distance between two distributions on the same few tokens, solved as a linear programme.

It is the first term of Top-W's objective (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346). Any non-negative
cost is allowed: the released decoder's 1 - cos breaks the triangle inequality, and what holds only for metrics, such as
W1(p, q_S) = (1 - mass of S) W1(p outside S, p inside S), is not used here. Hundreds of tokens are beyond this module.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from icml26.errors import InputError

__all__ = ["checked_cost", "checked_distribution", "wasserstein"]


def checked_distribution(name: str, value: Float[np.ndarray, " tokens"]) -> Float[np.ndarray, " tokens"]:
    """Return probabilities as float64.

    Parameters
    ----------
    name : str
        Of the argument.
    value : array-like, shape (tokens,)
        Numbers of at least 0 that sum to 1, up to 1e-6.

    Returns
    -------
    array, shape (tokens,)

    Raises
    ------
    InputError
        If they are something else.

    Examples
    --------
    >>> checked_distribution("p", [0.25, 0.75])
    array([0.25, 0.75])
    """
    array = np.asarray(value, float)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or array.min() < 0:
        raise InputError(f"{name}={value!r} must be a row of probabilities: finite and at least 0")
    if abs(array.sum() - 1) > 1e-6:
        raise InputError(f"{name} sums to {array.sum():.6g}; divide it by its sum")
    return array


def checked_cost(cost: Float[np.ndarray, "tokens tokens"], tokens: int) -> Float[np.ndarray, "tokens tokens"]:
    """Return the cost of moving mass between tokens as float64.

    Parameters
    ----------
    cost : array-like, shape (tokens, tokens)
        Finite, at least 0, with 0 on the diagonal.
    tokens : int
        How many tokens there are.

    Returns
    -------
    array, shape (tokens, tokens)

    Raises
    ------
    InputError
        If it is something else.

    Examples
    --------
    >>> checked_cost([[0, 1], [1, 0]], 2)
    array([[0., 1.],
           [1., 0.]])
    """
    array = np.asarray(cost, float)
    if array.shape != (tokens, tokens):
        raise InputError(f"cost has shape {array.shape}; give one row and one column a token, ({tokens}, {tokens})")
    if not np.isfinite(array).all() or array.min() < 0 or np.diagonal(array).any():
        raise InputError("cost holds a negative or infinite number, or its diagonal is not 0; give distances")
    return array


def wasserstein(
    p: Float[np.ndarray, " tokens"], q: Float[np.ndarray, " tokens"], cost: Float[np.ndarray, "tokens tokens"]
) -> float:
    """Return the least cost of turning one distribution into another.

    Parameters
    ----------
    p, q : array, shape (tokens,)
        Probabilities; each sums to 1.
    cost : array, shape (tokens, tokens)
        What one unit of mass costs from the row's token to the column's; 0 on the diagonal.

    Returns
    -------
    float
        In the cost's unit.

    Raises
    ------
    InputError
        If an argument is not that.

    Examples
    --------
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.0, 0.0])
    >>> round(wasserstein(p, q, np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])), 6)
    0.7
    """
    p, q = checked_distribution("p", p), checked_distribution("q", q)
    cost = checked_cost(cost, len(p))
    if len(q) != len(p):
        raise InputError(f"q has {len(q)} tokens and p {len(p)}; give both on the same tokens")
    sources, targets = np.flatnonzero(p), np.flatnonzero(q)
    leaving = np.kron(np.eye(len(sources)), np.ones((1, len(targets))))
    arriving = np.kron(np.ones((1, len(sources))), np.eye(len(targets)))
    marginals = np.concatenate([p[sources] / p.sum(), q[targets] / q.sum()])
    # Any one of the equations follows from the others, and rounding would make it contradict them.
    found = linprog(
        cost[np.ix_(sources, targets)].ravel(),
        A_eq=np.vstack([leaving, arriving])[:-1],
        b_eq=marginals[:-1],
        method="highs-ds",
    )
    if not found.success:
        raise ArithmeticError(f"the linear programme of the transport failed: {found.message}")
    return float(found.fun)
