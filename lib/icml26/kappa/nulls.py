"""What probes and angles look like where there is nothing to find.

These controls go with KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782) and are not the paper's. `random_labels`
is the control task of probes: answers drawn at random for each item. `flip_null` asks how far labels that differ at
random open the angle between probes, beside the paper's figure 10. `separation` compares the angle between knowledge
and prediction with that between two probes of either, all on disjoint items: in many dimensions two fits of the same
thing are far from parallel, the more so the noisier their labels. Controls of interventions are in
`icml26.kappa.controls`.
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
    """Angles between probes on disjoint halves of the training items, in degrees, means over halvings.

    Attributes
    ----------
    across : float
        Between knowledge on one half and prediction on the other, both ways round.
    within : float
        Between knowledge on one half and knowledge on the other.
    within_pred : float
        The same of prediction.
    value : float
        ``across - max(within, within_pred)``.
    error : float
        Its standard error, over items (jackknife) and halvings.
    """

    across: float
    within: float
    within_pred: float
    value: float
    error: float


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

    Errors are drawn for each prompt by itself; the model's own may come item by item.

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
        If a number is out of range, or flipped labels lack an option.
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


def separation(learned: Learned, *, halvings: int = 6, seed: int) -> Separation:
    """Compare knowledge with prediction and each with itself, always on disjoint halves of the training items.

    Two fits of one direction differ the more, the noisier the labels are. Of two noisy ones the cosine across is about
    the true one times the geometric mean of both cosines within (Spearman's attenuation), so where nothing but noise
    separates them, the angle across is no larger than the larger of the two within. Only what is beyond that counts.

    Parameters
    ----------
    learned
        Of a task with prediction probes; its layer and penalty are taken.
    halvings
        Random halvings, over which angles are averaged.
    seed
        Of the halvings.

    Returns
    -------
    Separation
        Angles, and their difference with its standard error: of the jackknife that leaves one item out of all halvings
        at a time, with the variance over halvings divided by their number.

    Raises
    ------
    InputError
        If there is no prediction probe, or halves have too few items to hold each option as an answer of the model,
        with any item left out.
    """
    learned.pairs([learned.layer])
    draw, k = np.random.default_rng(whole("seed", seed, 0)), learned.training.options
    whole("halvings", halvings, 2)
    items, item = np.unique(learned.training.items, return_inverse=True)
    rows = [np.flatnonzero(item == number) for number in range(len(items))]
    if len({len(found) for found in rows}) > 1:
        raise InputError("training items are asked in different numbers of orders: ask all in as many")
    rows, targets = np.stack(rows), np.stack([learned.training.labels, learned.predicted])
    # How many prompts of each item have each option, for both targets.
    counts = np.stack([[np.bincount(labels[own], minlength=k) for own in rows] for labels in targets])
    states = learned.training.hidden[:, learned.layer]
    drawn: list[list[np.ndarray]] = []
    for _ in range(halvings * _ATTEMPTS):
        halves = np.array_split(draw.permutation(len(items)), 2)
        if all((counts[:, half].sum(1, keepdims=True) > counts[:, half]).all() for half in halves):
            drawn.append(halves)
            if len(drawn) == halvings:
                break
    else:
        raise InputError(f"{learned.name} has too few training items for halves in which the model picks each option")
    angles = np.empty((halvings, 1 + len(items), 4))  # of all items, then of all but one
    for number, halves in enumerate(drawn):
        fits = [_leaving_out(half, rows, states, targets, k, learned.C) for half in halves]
        for left_out in range(1 + len(items)):
            one, two = (
                weights[1 + int(np.flatnonzero(half == left_out - 1)[0]) if left_out - 1 in half else 0]
                for half, weights in zip(halves, fits, strict=True)
            )
            pairs = (one[0], two[1]), (two[0], one[1]), (one[0], two[0]), (one[1], two[1])
            angles[number, left_out] = [geometry.mean_angle(*pair) for pair in pairs]
    across, within, within_pred = angles[..., :2].mean(-1), angles[..., 2], angles[..., 3]
    values = across.mean(0) - np.maximum(within.mean(0), within_pred.mean(0))
    jackknife = (len(items) - 1) * values[1:].var()
    by_halving = across[:, 0] - (within if within[:, 0].mean() >= within_pred[:, 0].mean() else within_pred)[:, 0]
    error = float(np.sqrt(jackknife + by_halving.var(ddof=1) / halvings))
    means = (float(part[:, 0].mean()) for part in (across, within, within_pred))
    return Separation(*means, float(values[0]), error)


def _leaving_out(
    half: Int[np.ndarray, " items"],
    rows: Int[np.ndarray, "all orders"],
    states: Float[np.ndarray, "prompts width"],
    targets: Int[np.ndarray, "2 prompts"],
    options: int,
    C: float,
) -> Float[np.ndarray, "sets 2 width options"]:
    """Weights of both probes on half of the items, then without the first of them, without the second, and so on."""
    whole_half = rows[half].reshape(1, -1)
    others = np.stack([rows[np.delete(half, place)].ravel() for place in range(len(half))])
    fits = [
        fit_probes(states[index], targets[:, index].swapaxes(0, 1), options=options, C=C).weights
        for index in (whole_half, others)
    ]
    return np.concatenate(fits)
