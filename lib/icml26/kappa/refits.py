"""Many linear probes at once: all layers, both targets, resampled items, shuffled labels.

A probe of KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782) costs little, but its controls need thousands of them.
`fit_probes` solves the problem of `icml26.kappa.probes.LinearProbe`, L2-regularised softmax regression on standardised
features, for many data sets and label sets together. With fewer prompts than features a probe's weights lie in the span
of the prompts, so their Gram matrix makes the problem small; there the Hessian is never above C/2 times the Gram matrix
(Böhning, Multinomial logistic regression algorithm, Annals of the Institute of Statistical Mathematics 44, 1992), which
gives Newton-like steps with one matrix inverted once. They converge fast where the penalty is strong, as it has to be
here.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import softmax

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.kappa.probes import Probe

__all__ = ["Refits", "fit_probes"]

_WORKSPACE = 1 << 25  # hidden states standardised at a time: 256 MB
_STEPS = 5000


class Refits(NamedTuple):
    """Probes in raw coordinates, their columns summing to zero.

    Attributes
    ----------
    weights : array, sets x targets x width x options
        W of each.
    bias : array, sets x targets x options
        b of each.
    """

    weights: Float[np.ndarray, "sets targets width options"]
    bias: Float[np.ndarray, "sets targets options"]

    def probe(self, data: int, target: int) -> Probe:
        """Return one of them.

        Parameters
        ----------
        data, target
            Which.

        Returns
        -------
        Probe
            As everything else takes it.
        """
        return Probe(self.weights[data, target], self.bias[data, target])

    def probes(self, target: int) -> tuple[Probe, ...]:
        """Return one target's probe of every data set, such as of every layer.

        Parameters
        ----------
        target
            Which.

        Returns
        -------
        tuple of Probe
            In the order of the data sets.
        """
        return tuple(self.probe(data, target) for data in range(len(self.weights)))


def fit_probes(
    hidden: Float[ArrayLike, "sets prompts width"],
    labels: Int[ArrayLike, "sets targets prompts"],
    *,
    options: int,
    C: float = 0.01,
    tolerance: float = 1e-6,
) -> Refits:
    """Fit a probe for every set of hidden states and every label set that comes with it.

    Parameters
    ----------
    hidden
        Hidden states, such as of one layer per set.
    labels
        Targets, 0 to k - 1; one label set for all data sets may be given with a first axis of 1.
    options
        k.
    C
        As of `LinearProbe`.
    tolerance
        Largest step, in logits on the training prompts, after which a fit has converged.

    Returns
    -------
    Refits
        The minimisers, as `LinearProbe` finds them.

    Raises
    ------
    InputError
        If shapes do not fit, a value is not finite, an option is missing in a label set, or C is too large for the
        steps to converge.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> hidden, labels = draw.normal(size=(2, 30, 50)), draw.permutation(np.arange(30) % 3)
    >>> fit_probes(hidden, labels[None, None], options=3).weights.shape
    (2, 1, 50, 3)
    """
    hidden, labels = np.asarray(hidden), np.asarray(labels)
    k = whole("options", options, 2)
    real("C", C, above=0)
    if hidden.ndim != 3 or not hidden.size or not np.isfinite(hidden).all():
        raise InputError(f"hidden has shape {hidden.shape}: give finite numbers of shape (sets, prompts, width)")
    if labels.ndim != 3 or labels.dtype.kind not in "iu" or labels.shape[2] != hidden.shape[1]:
        raise InputError(f"labels have shape {labels.shape}: give integers of shape (sets, targets, {hidden.shape[1]})")
    if labels.shape[0] not in (1, len(hidden)):
        raise InputError(f"labels are for {len(labels)} sets, hidden has {len(hidden)}: give as many, or 1 for all")
    onehot = labels[..., None] == np.arange(k)
    if not onehot.any(2).all() or not onehot.any(3).all():
        raise InputError(f"labels must be 0 to {k - 1}, each at least once in every label set: drop sets without")
    at_once = max(1, _WORKSPACE // (hidden.shape[1] * hidden.shape[2]))
    found = []
    for first in range(0, len(hidden), at_once):
        part = slice(first, first + at_once)
        target = onehot if len(onehot) == 1 else onehot[part]
        found.append(_fitted(hidden[part].astype(np.float64), target, C, tolerance))
    return Refits(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def _fitted(
    hidden: Float[np.ndarray, "sets prompts width"],
    onehot: Float[np.ndarray, "sets targets prompts options"],
    C: float,
    tolerance: float,
) -> tuple[Float[np.ndarray, "sets targets width options"], Float[np.ndarray, "sets targets options"]]:
    mean, scale = hidden.mean(1, keepdims=True), hidden.std(1, keepdims=True)
    scale[scale <= 10 * np.finfo(float).eps * np.abs(mean)] = 1.0  # a constant feature stays zero
    hidden = (hidden - mean) / scale
    sets, prompts, width = hidden.shape
    targets, k = onehot.shape[1], onehot.shape[3]
    back = None
    if (
        prompts < width
    ):  # coordinates in the span of the prompts; their Gram matrix is quicker to decompose than they are
        columns = np.ascontiguousarray(hidden.swapaxes(1, 2))  # products of transposed views are many times slower
        values, vectors = np.linalg.eigh(hidden @ columns)
        roots = np.sqrt(np.where(values > 1e-12 * values[:, -1:], values, 0.0))[:, None]
        back = columns @ np.divide(vectors, roots, where=roots > 0, out=np.zeros_like(vectors))
        hidden = vectors * roots
    design = np.concatenate([hidden, np.ones((sets, prompts, 1))], axis=2)
    # scikit-learn fits one logit difference of two classes, and penalises that.
    ridge = np.append(np.full(design.shape[2] - 1, 2.0 if k == 2 else 1.0), 0.0)
    inverse = np.linalg.inv(C / 2 * design.swapaxes(1, 2) @ design + np.diag(ridge))
    wanted = np.broadcast_to(onehot, (sets, *onehot.shape[1:])).transpose(0, 2, 1, 3).reshape(sets, prompts, -1)
    found = ahead = np.zeros((sets, design.shape[2], targets * k))
    age = np.zeros((sets, 1, targets, 1))
    for _ in range(_STEPS):
        logits = (design @ ahead).reshape(sets, prompts, targets, k)
        error = softmax(logits, axis=-1).reshape(wanted.shape) - wanted
        gradient = C * (design.swapaxes(1, 2) @ error) + ridge[:, None] * ahead
        step = inverse @ gradient
        last, found = found, ahead - step
        if np.abs(design @ step).max() <= tolerance:
            break
        # Nesterov's momentum, which starts anew for a probe where it points uphill (O'Donoghue and Candès, 2015).
        moved = found - last
        uphill = (gradient * moved).reshape(sets, -1, targets, k).sum((1, 3), keepdims=True) > 0
        age = np.where(uphill, 0, age + 1)
        momentum = np.repeat((age - 1).clip(0) / (age + 2), k, axis=3).reshape(sets, 1, -1)
        ahead = found + momentum * moved
    else:
        raise InputError(f"C={C} is too large for these hidden states: use a smaller one, or LinearProbe")
    weights = found[:, :-1] if back is None else back @ found[:, :-1]
    weights = weights / scale.swapaxes(1, 2)
    bias = found[:, -1] - (mean @ weights)[:, 0]
    weights, bias = weights.reshape(sets, width, targets, k).swapaxes(1, 2), bias.reshape(sets, targets, k)
    return weights - weights.mean(-1, keepdims=True), bias - bias.mean(-1, keepdims=True)
