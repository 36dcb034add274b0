"""What the figures and tables of KAPPA show: layers, margins, flips, and whether repeated steps run away.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782), figures 8 and 9 for the layers. These are pure
functions of what `icml26.kappa.selection` and `icml26.kappa.studies` found; nothing here runs a model or makes an
interval.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from icml26.errors import InputError
from icml26.kappa import gap, geometry
from icml26.kappa.intervention import shift, spectral_radius
from icml26.kappa.measured import Measured
from icml26.kappa.selection import Learned
from icml26.kappa.studies import Evaluated

__all__ = ["LayerCurves", "Margins", "flips", "layer_curves", "margins", "radii"]


class LayerCurves(NamedTuple):
    """Test accuracy and geometry of the probes, layer by layer.

    Attributes
    ----------
    know, pred : array, layers
        Accuracy on test prompts; prediction probes against the model's corrected answers.
    agreement : array, layers
        Of the knowledge probe and the model.
    angle : array, layers
        Mean principal angle, degrees.
    cka : array, layers
        Of test states read by the two probes.

    Without prediction probes `pred`, `angle` and `cka` are NaN.
    """

    know: Float[np.ndarray, " layers"]
    pred: Float[np.ndarray, " layers"]
    agreement: Float[np.ndarray, " layers"]
    angle: Float[np.ndarray, " layers"]
    cka: Float[np.ndarray, " layers"]


class Margins(NamedTuple):
    """Logit of the right option less the largest of the others, before and after a step at one layer.

    Attributes
    ----------
    know, pred : array, prompts
        Of the knowledge and the prediction probe before it.
    know_after, pred_after : array, prompts
        After it; the knowledge logits move too.
    """

    know: Float[np.ndarray, " prompts"]
    pred: Float[np.ndarray, " prompts"]
    know_after: Float[np.ndarray, " prompts"]
    pred_after: Float[np.ndarray, " prompts"]


def layer_curves(learned: Learned, test: Measured) -> LayerCurves:
    """Follow both probes through the layers.

    Parameters
    ----------
    learned
        Probes of every layer.
    test
        Other items.

    Returns
    -------
    LayerCurves
        One value per layer.

    Raises
    ------
    InputError
        If widths or options differ.
    """
    hidden, own = test.hidden, test.logits - learned.mean
    know = np.stack([probe.logits(hidden[:, layer]) for layer, probe in enumerate(learned.know)])
    pred = angle = cka = np.full(test.layers, np.nan)
    if learned.pred is not None:
        logits = np.stack([probe.logits(hidden[:, layer]) for layer, probe in enumerate(learned.pred)])
        pred = gap.accuracy(logits, own.argmax(1))
        pairs = [(a.weights, b.weights) for a, b in zip(learned.know, learned.pred, strict=True)]
        angle = np.array([geometry.mean_angle(*pair) for pair in pairs])
        bases = [tuple(map(geometry.basis, pair)) for pair in pairs]
        cka = np.array([geometry.cka(hidden[:, layer], *pair) for layer, pair in enumerate(bases)])
    return LayerCurves(gap.accuracy(know, test.labels), pred, gap.agreement(know, own), angle, cka)


def margins(learned: Learned, prompts: Measured, layer: int, alpha: float = 1.0) -> Margins:
    """Measure how far the right option is ahead for both probes, before and after KAPPA's exact step.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    prompts
        Of any item.
    layer
        Of the step.
    alpha
        Its strength.

    Returns
    -------
    Margins
        In logits of the probes; above zero where the right option is ahead.

    Raises
    ------
    InputError
        If there is no prediction probe.
    """
    know, pred = learned.pairs([layer])[layer]
    before = prompts.hidden[:, layer].astype(np.float64)
    after = before + shift(before, know, pred, alpha=alpha)
    right = prompts.labels[:, None] == np.arange(prompts.options)

    def ahead(logits: Float[np.ndarray, "prompts options"]) -> Float[np.ndarray, " prompts"]:
        return logits[right] - np.where(right, -np.inf, logits).max(1)

    return Margins(*(ahead(probe.logits(states)) for states in (before, after) for probe in (know, pred)))


def flips(evaluated: Evaluated, name: str = "KAPPA") -> Int[np.ndarray, "probe before after"]:
    """Count prompts by whether the probe, the model and the model under an intervention are right.

    Parameters
    ----------
    evaluated
        A task's test prompts.
    name
        Of the intervention among its scores, or of a source among its transfers; settings and draws are added up.

    Returns
    -------
    int array, 2 x 2 x 2
        ``[probe right, right before, right after]``, 0 for no and 1 for yes.

    Raises
    ------
    InputError
        If there is no such intervention.
    """
    scores = evaluated.scores.get(name) or evaluated.transfer.get(name)
    if scores is None:
        raise InputError(f"name={name!r} must be one of {', '.join([*evaluated.scores, *evaluated.transfer])}")
    probe, before = evaluated.scores["probe"].right, evaluated.scores["base"].right
    shape = scores.right.shape
    kinds = 4 * np.broadcast_to(probe, shape) + 2 * np.broadcast_to(before, shape) + scores.right
    return np.bincount(kinds.ravel(), minlength=8).reshape(2, 2, 2)


def radii(learned: Learned, layers: Iterable[int], alpha: float = 1.0) -> Float[np.ndarray, " layers"]:
    """Return the spectral radius of alpha M at each layer: where it is above 1, repeated steps run away.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    layers
        Blocks.
    alpha
        Strength.

    Returns
    -------
    array
        One per layer.

    Raises
    ------
    InputError
        If there is no prediction probe.
    """
    return np.array([spectral_radius(*pair, alpha=alpha) for pair in learned.pairs(layers).values()])
