"""What probes and angles look like where there is nothing to find.

These controls go with KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782) and are not the paper's. `random_labels`
is the control task of probes: answers drawn at random for each item. `flip_null` asks how far labels that differ at
random open the angle between probes, beside the paper's figure 10. `separation` compares the angle between knowledge
and prediction with that between two knowledge probes, all on disjoint items: in many dimensions two fits of the same
thing are far from parallel. Controls of interventions are in `icml26.kappa.controls`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from icml26.checks import whole
from icml26.errors import InputError
from icml26.kappa import gap, geometry
from icml26.kappa.measured import Measured
from icml26.kappa.refits import fit_probes
from icml26.kappa.selection import Learned

__all__ = ["FlipNull", "Separation", "flip_null", "random_labels", "separation"]

_ATTEMPTS = 100


class FlipNull(NamedTuple):
    """Angles and gaps of models that answer right except at random.

    Attributes
    ----------
    angles : array, draws
        Mean principal angle between the knowledge probe and one trained on flipped labels, in degrees.
    gaps : array, draws
        1 - AGR of flipped test labels and the knowledge probe.
    """

    angles: Float[np.ndarray, " draws"]
    gaps: Float[np.ndarray, " draws"]


class Separation(NamedTuple):
    """Angles between probes on disjoint halves of the training items, in degrees.

    Attributes
    ----------
    across : float
        Between knowledge on one half and prediction on the other.
    within : float
        Between knowledge on one half and knowledge on the other.
    differences : array, resamples
        ``across - within`` with the items of each half resampled.
    """

    across: float
    within: float
    differences: Float[np.ndarray, " resamples"]


def random_labels(learned: Learned, test: Measured, *, draws: int = 20, seed: int) -> Bool[np.ndarray, "draws prompts"]:
    """Train knowledge probes on answers that are drawn at random for each item.

    All orders of an item are shifted alike: letters stay balanced, and under cyclic orders the label is one option.

    Parameters
    ----------
    learned
        Of the task; its layer and penalty are taken.
    test
        Other items.
    draws
        Sets of random answers.
    seed
        Of the draws.

    Returns
    -------
    bool array
        Where such a probe hits the right option of a test prompt.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    draw, k = np.random.default_rng(whole("seed", seed, 0)), test.options
    training, (_, item) = learned.training, np.unique(learned.training.items, return_inverse=True)
    moved = draw.integers(k, size=(whole("draws", draws, 1), item.max() + 1))[:, item]
    labels = (training.labels + moved) % k
    hidden, asked = training.hidden[:, learned.layer], test.hidden[:, learned.layer].astype(np.float64)
    fits = fit_probes(hidden[None], labels[None], options=k, C=learned.C)
    return gap.hits(asked @ fits.weights[0] + fits.bias[0][:, None], test.labels)


def flip_null(learned: Learned, test: Measured, *, draws: int = 20, seed: int) -> FlipNull:
    """Replace the model by one that errs at random, as often as it does, and measure angle and gap again.

    Parameters
    ----------
    learned
        Of the task.
    test
        Other items.
    draws
        Random models.
    seed
        Of the draws.

    Returns
    -------
    FlipNull
        To be shown beside angle and gap of the model itself.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    draw, k = np.random.default_rng(whole("seed", seed, 0)), test.options
    whole("draws", draws, 1)
    layer, training = learned.layer, learned.training
    answered = (test.logits - learned.mean).argmax(1)
    rates = (learned.predicted != training.labels).mean(), (answered != test.labels).mean()

    def flipped(labels: Int[np.ndarray, " prompts"], rate: float) -> Int[np.ndarray, "draws prompts"]:
        shape = draws, len(labels)
        return (labels + (draw.random(shape) < rate) * draw.integers(1, k, size=shape)) % k

    fits = fit_probes(training.hidden[None, :, layer], flipped(training.labels, rates[0])[None], options=k, C=learned.C)
    angles = [geometry.mean_angle(learned.know[layer].weights, weights) for weights in fits.weights[0]]
    says = learned.reference(test).argmax(1)
    return FlipNull(np.array(angles), (flipped(test.labels, rates[1]) != says).mean(1))


def separation(learned: Learned, *, resamples: int = 200, seed: int) -> Separation:
    """Compare knowledge with prediction and with itself, always on disjoint halves of the training items.

    Items drawn twice leave fewer different ones, which opens both angles: resampled differences lie nearer to zero than
    the difference itself, so an interval of them that excludes zero is on the safe side.

    Parameters
    ----------
    learned
        Of a task with prediction probes; its layer and penalty are taken.
    resamples
        Of the items within each half, all orders of an item together.
    seed
        Of the halves and the resampling.

    Returns
    -------
    Separation
        Angles, and resampled differences for an interval.

    Raises
    ------
    InputError
        If there is no prediction probe, or a half has too few items to hold each option as an answer of the model.
    """
    learned.pairs([learned.layer])
    draw, k = np.random.default_rng(whole("seed", seed, 0)), learned.training.options
    whole("resamples", resamples, 1)
    items, item = np.unique(learned.training.items, return_inverse=True)
    rows = [np.flatnonzero(item == number) for number in range(len(items))]
    if len({len(found) for found in rows}) > 1:
        raise InputError("training items are asked in different numbers of orders: ask all in as many")
    targets = np.stack([learned.training.labels, learned.predicted])
    for _ in range(_ATTEMPTS):
        halves = np.array_split(draw.permutation(len(items)), 2)
        if all(_complete(targets[:, np.concatenate([rows[i] for i in half])], k) for half in halves):
            break
    else:
        raise InputError(f"{learned.name} has too few training items for halves in which the model picks each option")
    weights = []
    for half in halves:
        drawn = [half]
        while len(drawn) <= resamples:
            chosen = draw.choice(half, len(half))
            if _complete(targets[:, np.concatenate([rows[i] for i in chosen])], k):
                drawn.append(chosen)
        index = np.stack(rows)[np.stack(drawn)].reshape(len(drawn), -1)
        hidden = learned.training.hidden[:, learned.layer][index]
        weights.append(fit_probes(hidden, targets[:, index].swapaxes(0, 1), options=k, C=learned.C).weights)
    first, second = weights
    across = [geometry.mean_angle(a, b) for a, b in zip(first[:, 0], second[:, 1], strict=True)]
    within = [geometry.mean_angle(a, b) for a, b in zip(first[:, 0], second[:, 0], strict=True)]
    return Separation(across[0], within[0], np.subtract(across, within)[1:])


def _complete(targets: Int[np.ndarray, "targets prompts"], options: int) -> bool:
    return all(np.unique(labels).size == options for labels in targets)
