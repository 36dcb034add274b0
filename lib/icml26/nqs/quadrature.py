"""Points and weights that turn a sum over 1e12 directions of a noisy quadratic system into some 160 terms.

``sum_{n<=N} g(n)`` for a smooth g: the first 100 terms as they are, the rest by Euler-Maclaurin in x = ln n with
Gauss-Legendre for the integral, after the official package of Li and Maddison (ICML 2026, arXiv 2605.09154). Its first
order and single panel of 20 nodes are `paper`; `fine` adds the derivative term and more panels, because the
official rule loses digits where the curvature falls quickly (q above 1) or the run is short.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["HEAD", "Nodes", "fine", "paper"]

HEAD = 100
"""Terms that are summed one by one."""

_ORDER = 20
_X, _W = np.polynomial.legendre.leggauss(_ORDER)


class Nodes(NamedTuple):
    """Where to evaluate the terms of a sum, for each upper limit, and with which weights."""

    n: Float[np.ndarray, "limits nodes"]
    weight: Float[np.ndarray, "limits nodes"]


def paper(limits: Float[np.ndarray, " limits"]) -> Nodes:
    """The official rule of the adjusted form: one panel of 20 nodes and no correction at its ends.

    The official package sums the first 5 % of the terms and at most 100; the first 100 whatever the limit are the same
    points from 2,000 terms on, and better ones below.

    Parameters
    ----------
    limits
        N, the number of terms of each sum.

    Returns
    -------
    Nodes
        120 points for each limit.

    Examples
    --------
    >>> nodes = paper(np.array([50.0]))
    >>> float((nodes.weight / nodes.n**2).sum()) - sum(n**-2.0 for n in range(1, 51)) < 1e-12
    True
    """
    head = np.broadcast_to(np.arange(1.0, HEAD + 1), (limits.size, HEAD))
    first = np.minimum(limits, HEAD)
    n, weight = _panels(first, limits, 1)
    return Nodes(np.hstack([head, n]), np.hstack([(head <= limits[:, None]).astype(float), weight]))


def fine(limits: Float[np.ndarray, " limits"], panels: int = 8) -> Nodes:
    """Second-order Euler-Maclaurin over several panels; sums of few terms as they are.

    ``sum_{M+1}^N g = int_M^N g + (g(N) - g(M))/2 + (g'(N) - g'(M))/12``, the derivatives as central differences, which
    only change the weights of the terms beside M and N.

    Parameters
    ----------
    limits
        N, the number of terms of each sum.
    panels
        Panels of 20 nodes between ln M and ln N.

    Returns
    -------
    Nodes
        104 points and those of the panels for each limit.

    Examples
    --------
    >>> nodes = fine(np.array([1e5]))
    >>> abs(float((nodes.weight / nodes.n**2).sum()) - sum(n**-2.0 for n in range(1, 100_001))) < 1e-10
    True
    """
    last = limits[:, None]
    head = np.arange(1.0, HEAD + 2)  # the last of them only corrects the derivative at M = HEAD
    head_weight = np.ones(head.size)
    head_weight[-3:] = 1 + 1 / 24, 1 - 1 / 2, -1 / 24
    inner = _panels(np.full(limits.size, float(HEAD)), limits, panels)
    ones = np.ones((limits.size, 1))
    n = np.hstack([ones * head, last - 1, last, last + 1, inner.n])
    weight = np.hstack([ones * head_weight, ones * [-1 / 24, 1 / 2, 1 / 24], inner.weight])
    every = np.arange(1.0, n.shape[1] + 1)
    few = limits <= every.size
    n[few], weight[few] = every, every <= last[few]
    return Nodes(n, weight)


def _panels(first: np.ndarray, last: np.ndarray, panels: int) -> Nodes:
    """Gauss-Legendre for the integral over n from `first` to `last`, equal panels in ln n."""
    width = np.log(last / first)[:, None] / panels
    places = (np.arange(panels)[:, None] + (1 + _X) / 2).ravel()
    n = first[:, None] * np.exp(places * width)
    return Nodes(n, np.tile(_W / 2, panels) * width * n)
