"""Top-W's objective, and the first of the two steps that its decoder alternates: the best set for a potential.

The paper is Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346). For next-token probabilities p and a kept set
S of mass Γ, q_S is p on S divided by Γ, and the objective to be minimised is

    F(S) = W1(p, q_S) + λ H(q_S) - β log Γ                                            (natural logarithms).

With W1 replaced by its dual at a fixed potential f, minimising is maximising

    G_f(S) = (1/Γ) Σ_S p_i φ_i + (β - λ) log Γ,     φ_i = f_i + λ log p_i,

which Theorem 3.4 solves: `prefix_rule` for β >= λ, `singleton_rule` for β <= λ, `s_step` chooses. Everything but
`objective` works on batches and on NumPy arrays as well as tensors, in float64; log p is floored at log 1e-12 as in the
released code, and a token without any probability is never kept. Potentials are made in `potential`; which tokens there
are and how far apart is for `decoder` and `geometry`.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icml26.checks import real
from icml26.errors import InputError
from icml26.top_w.arrays import Array, as_given, as_tensor

__all__ = [
    "entropy_mass",
    "gain",
    "objective",
    "prefix_rule",
    "rule",
    "s_step",
    "singleton_rule",
]

FLOOR = 1e-12


def objective(
    p: Float[np.ndarray, " tokens"],
    kept: Bool[np.ndarray, " tokens"],
    cost: Float[np.ndarray, "tokens tokens"],
    lam: float,
    beta: float,
) -> float:
    """Return the exact objective F of a kept set.

    Parameters
    ----------
    p : array, shape (tokens,)
        Probabilities that sum to 1.
    kept : bool array, shape (tokens,)
        The set.
    cost : array, shape (tokens, tokens)
        Distances between tokens; for the decoder with `geom_scale` g they are g (1 - cos).
    lam, beta : float
        Weights of the entropy and of the logarithm of the kept mass.

    Returns
    -------
    float
        In nats, as far as distances count as nats.

    Raises
    ------
    InputError
        If p is no distribution, the set has no mass, or shapes disagree.

    Examples
    --------
    >>> round(objective(np.array([0.75, 0.25]), np.array([True, False]), np.array([[0, 1], [1, 0]]), 2.2, 2.8), 6)
    1.05551
    """
    from icml26.top_w.transport import checked_distribution, wasserstein

    p = checked_distribution("p", p)
    spread = float(entropy_mass(p, kept, lam, beta))
    inside = np.where(kept, p, 0)
    return wasserstein(p, inside / inside.sum(), cost) + spread


def entropy_mass(
    p: Float[Array, "*batch tokens"], kept: Bool[Array, "*batch tokens"], lam: float, beta: float
) -> Float[Array, "*batch"]:
    """Return λ H(q_S) - β log Γ, the part of the objective that knows nothing of distances.

    Parameters
    ----------
    p : array or Tensor, shape (..., tokens)
        Probabilities; on a pool they need not sum to 1.
    kept : bool array or Tensor, shape (..., tokens)
        The sets.
    lam, beta : float
        Weights of the entropy and of the logarithm of the kept mass.

    Returns
    -------
    float64 array or Tensor, shape (...)

    Raises
    ------
    InputError
        If a number is not finite, or a set has no mass.

    Examples
    --------
    >>> both, first = entropy_mass(np.array([0.5, 0.5]), np.array([[True, True], [True, False]]), lam=2.0, beta=3.0)
    >>> round(float(both), 4), round(float(first), 4)
    (1.3863, 2.0794)
    """
    lam, beta = _weights(lam, beta)
    mass = _numbers("p", p)
    inside = torch.where(_mask(kept, mass), mass, 0)
    total = inside.sum(-1)
    entropy = total.log() - torch.special.xlogy(inside, inside).sum(-1) / total
    return as_given(p, lam * entropy - beta * total.log())


def gain(
    p: Float[Array, "*batch tokens"],
    kept: Bool[Array, "*batch tokens"],
    potential: Float[Array, "*batch tokens"],
    lam: float,
    beta: float,
) -> Float[Array, "*batch"]:
    """Return G_f, what the S-step maximises: minus the objective with the potential in place of W1, up to a constant.

    Parameters
    ----------
    p, kept, lam, beta
        As in `entropy_mass`.
    potential : array or Tensor, shape (..., tokens)
        f; for the decoder, its `geom_scale` times the nearest-set potential.

    Returns
    -------
    float64 array or Tensor, shape (...)

    Raises
    ------
    InputError
        As in `entropy_mass`.

    Examples
    --------
    >>> p, f = np.array([0.5, 0.5]), np.array([0.0, -1.0])
    >>> gain(p, np.array([[True, True], [True, False]]), f, lam=0.0, beta=1.0).round(4)
    array([-0.5   , -0.6931])
    """
    lam, beta = _weights(lam, beta)
    mass, f = _numbers("p", p), _numbers("potential", potential)
    inside = torch.where(_mask(kept, mass), mass, 0)
    total = inside.sum(-1)
    return as_given(p, (inside * _score(mass, f, lam)).sum(-1) / total + (beta - lam) * total.log())


def s_step(
    p: Float[Array, "*batch tokens"], potential: Float[Array, "*batch tokens"], lam: float, beta: float
) -> Bool[Array, "*batch tokens"]:
    """Return the set that maximises G_f (Theorem 3.4): a prefix for β >= λ, one token for β < λ.

    Parameters
    ----------
    p : array or Tensor, shape (..., tokens)
        Probabilities; on a pool they need not sum to 1.
    potential : array or Tensor, shape (..., tokens)
        f; for the decoder, its `geom_scale` times the nearest-set potential.
    lam, beta : float
        Weights of the entropy and of the logarithm of the kept mass, at least 0.

    Returns
    -------
    bool array or Tensor, shape (..., tokens)
        Never empty; of equally good sets the first in the order of tokens.

    Raises
    ------
    InputError
        If a number is not finite, or a row of p is negative somewhere or 0 everywhere.

    Examples
    --------
    >>> s_step(np.array([0.5, 0.2, 0.15, 0.1, 0.05]), np.zeros(5), lam=2.2, beta=2.8)
    array([ True, False, False, False, False])
    >>> s_step(np.array([0.6, 0.4]), np.array([-0.5, 0.0]), lam=2.0, beta=0.5)
    array([False,  True])
    """
    lam, beta = _weights(lam, beta)
    mass, f = _numbers("p", p), _numbers("potential", potential)
    if (mass < 0).any() or (mass.sum(-1) <= 0).any():
        raise InputError("p holds a negative number or a row of zeros; give probabilities")
    mass, f = torch.broadcast_tensors(mass, f)
    return as_given(p, rule(lam, beta)(mass, f, lam, beta))


def rule(lam: float, beta: float) -> Callable[[Tensor, Tensor, float, float], Tensor]:
    """Return the rule that Theorem 3.4 prescribes for these weights; where they are equal both are right.

    Parameters
    ----------
    lam, beta : float
        Weights of the entropy and of the logarithm of the kept mass.

    Returns
    -------
    callable
        `prefix_rule` or `singleton_rule`.

    Examples
    --------
    >>> rule(2.2, 2.8).__name__, rule(2.0, 0.5).__name__
    ('prefix_rule', 'singleton_rule')
    """
    return prefix_rule if beta >= lam else singleton_rule


def prefix_rule(
    p: Float[Tensor, "*batch tokens"], potential: Float[Tensor, "*batch tokens"], lam: float, beta: float
) -> Bool[Tensor, "*batch tokens"]:
    """Return the best prefix of the order of decreasing φ, the first of equals: optimal for β >= λ, and only then.

    Parameters
    ----------
    p, potential, lam, beta
        As in `s_step`, as float64 tensors of one shape, unchecked.

    Returns
    -------
    bool Tensor, shape (..., tokens)

    Examples
    --------
    >>> prefix_rule(torch.tensor([0.1, 0.45, 0.45]), torch.zeros(3), 0.5, 1.0)
    tensor([False,  True,  True])
    """
    score = torch.where(p > 0, _score(p, potential, lam), -torch.inf)
    score, order = score.sort(dim=-1, descending=True, stable=True)
    size = _best_size(p.gather(-1, order), score, beta - lam)
    chosen = torch.arange(p.shape[-1], device=p.device) < size
    return torch.zeros_like(chosen).scatter(-1, order, chosen)


def ordered_prefix_rule(p: Float[Tensor, "*batch tokens"], lam: float, beta: float) -> Bool[Tensor, "*batch tokens"]:
    """Return what `prefix_rule` returns for the potential 0 where p decreases along the tokens: no sorting is needed.

    Parameters
    ----------
    p, lam, beta
        As in `prefix_rule`.

    Returns
    -------
    bool Tensor, shape (..., tokens)

    Examples
    --------
    >>> ordered_prefix_rule(torch.tensor([0.45, 0.45, 0.1]), 0.5, 1.0)
    tensor([ True,  True, False])
    """
    score = torch.where(p > 0, _score(p, torch.zeros_like(p), lam), -torch.inf)
    return torch.arange(p.shape[-1], device=p.device) < _best_size(p, score, beta - lam)


def _best_size(p: Tensor, score: Tensor, slack: float) -> Tensor:
    """How long the best prefix is: the first maximum of J_k, as a last axis of length 1."""
    mass = p.cumsum(-1)
    mean = torch.where(p > 0, p * score, 0).cumsum(-1) / mass
    return (mean + slack * mass.log()).argmax(-1, keepdim=True) + 1


def singleton_rule(
    p: Float[Tensor, "*batch tokens"], potential: Float[Tensor, "*batch tokens"], lam: float, beta: float
) -> Bool[Tensor, "*batch tokens"]:
    """Return the one token that maximises f + β log p, the first of equals: optimal for β <= λ.

    Parameters
    ----------
    p, potential, lam, beta
        As in `s_step`, as float64 tensors of one shape, unchecked.

    Returns
    -------
    bool Tensor, shape (..., tokens)

    Examples
    --------
    >>> singleton_rule(torch.tensor([0.6, 0.4]), torch.tensor([-0.5, 0.0]), 2.0, 0.5)
    tensor([False,  True])
    """
    best = torch.where(p > 0, _score(p, potential, beta), -torch.inf).argmax(-1, keepdim=True)
    return torch.zeros_like(p, dtype=torch.bool).scatter(-1, best, True)


def _score(p: Tensor, potential: Tensor, weight: float) -> Tensor:
    return potential + weight * p.clamp_min(FLOOR).log()


def _weights(lam: float, beta: float) -> tuple[float, float]:
    return real("lam", lam, low=0), real("beta", beta, low=0)


def _numbers(name: str, value: Array) -> Tensor:
    numbers = as_tensor(value).double()
    if not numbers.ndim or not numbers.shape[-1] or not numbers.isfinite().all():
        raise InputError(f"{name} of shape {tuple(numbers.shape)} must hold finite numbers, tokens along its last axis")
    return numbers


def _mask(kept: Array, p: Tensor) -> Tensor:
    mask = as_tensor(kept)
    if mask.dtype != torch.bool or mask.ndim == 0 or mask.shape[-1] != p.shape[-1]:
        raise InputError(f"kept of {mask.dtype} and shape {tuple(mask.shape)} must be booleans, one a token of p")
    if (torch.where(mask, p, 0).sum(-1) <= 0).any():
        raise InputError("kept has a set without mass; keep at least one token of positive probability")
    return mask
