"""Probes for a KAPPA that knows nothing, or the opposite; and how far a shift acts on the letters themselves.

They go with KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). Where a model is wrong more often than chance,
erasing its preference alone raises accuracy, so a gain has to be compared with that of random and of shuffled
knowledge. Running the model with these probes is the business of `icml26.kappa.studies`; controls of probes and angles
are in `icml26.kappa.nulls`.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from icml26.checks import whole
from icml26.errors import InputError
from icml26.kappa import geometry
from icml26.kappa.intervention import shift
from icml26.kappa.measured import Measured
from icml26.kappa.probes import Probe
from icml26.kappa.refits import fit_probes
from icml26.kappa.selection import Learned

__all__ = ["direct_effect", "letter_rows", "letter_share", "random_pairs", "reversed_pairs", "shuffled_pairs"]

Pairs = dict[int, tuple[Probe, Probe]]

_NORMS = ("norm", "final_norm", "final_layernorm", "ln_f")  # what families of models call the last one


def random_pairs(learned: Learned, layers: Iterable[int], *, seed: int, about_mean: bool = False) -> Pairs:
    """Replace knowledge probes by random subspaces: centred Gaussian weights of the same norm.

    Hidden states are far from the origin, so without a bias such a probe names one option whatever is asked, and the
    shift is long. About the mean state it names all of them, and the shift is about as long as KAPPA's own.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    layers
        Blocks.
    seed
        Of the draw.
    about_mean
        Whether the bias makes the logits of the mean training state zero; otherwise there is no bias.

    Returns
    -------
    dict
        Probes for `Kappa`.

    Raises
    ------
    InputError
        If there is no prediction probe.
    """
    draw = np.random.default_rng(whole("seed", seed, 0))
    found = {}
    for layer, (know, pred) in learned.pairs(layers).items():
        weights = draw.normal(size=know.weights.shape)
        weights -= weights.mean(1, keepdims=True)
        weights *= np.linalg.norm(know.centred().weights) / np.linalg.norm(weights)
        mean = learned.training.hidden[:, layer].mean(0, dtype=np.float64)
        found[layer] = Probe(weights, -mean @ weights if about_mean else np.zeros(know.classes)), pred
    return found


def shuffled_pairs(learned: Learned, layers: Iterable[int], *, draws: int = 10, seed: int) -> list[Pairs]:
    """Replace knowledge probes by those of answers that are shuffled over the training items.

    What is shuffled is by how many places an item's label is moved, the same for all its orders: under rotations,
    exchanging the labels of two items whose right options come first would change nothing.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    layers
        Blocks.
    draws
        Shuffles.
    seed
        Of the shuffles.

    Returns
    -------
    list of dict
        Probes for `Kappa`, of each shuffle.

    Raises
    ------
    InputError
        If there is no prediction probe.
    """
    draw, pairs = np.random.default_rng(whole("seed", seed, 0)), learned.pairs(layers)
    training, k = learned.training, learned.training.options
    items, item = np.unique(training.items, return_inverse=True)
    shifts = np.tile(np.arange(len(items)) % k, (whole("draws", draws, 1), 1))
    labels = (training.labels + draw.permuted(shifts, axis=1)[:, item]) % k
    hidden = learned.training.hidden[:, list(pairs)].swapaxes(0, 1)
    fits = fit_probes(hidden, labels[None], options=k, C=learned.C)
    return [
        {layer: (fits.probe(place, one), pred) for place, (layer, (_, pred)) in enumerate(pairs.items())}
        for one in range(draws)
    ]


def reversed_pairs(learned: Learned, layers: Iterable[int]) -> Pairs:
    """Turn knowledge probes round, so that KAPPA steers away from what they know.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    layers
        Blocks.

    Returns
    -------
    dict
        Probes for `Kappa`.

    Raises
    ------
    InputError
        If there is no prediction probe.
    """
    return {layer: (Probe(-know.weights, -know.bias), pred) for layer, (know, pred) in learned.pairs(layers).items()}


def letter_rows(model: Any, symbols: Iterable[int]) -> Float[np.ndarray, "width options"]:
    """Return the directions before the final norm along which the letters' logits grow.

    Parameters
    ----------
    model
        A causal language model of `transformers` with an RMS norm at the end.
    symbols
        Token ids of the letters.

    Returns
    -------
    array
        Rows of the unembedding times the norm's gain, one column per letter.

    Raises
    ------
    InputError
        If the model has no RMS norm at the end.
    """
    import torch

    from icml26.kappa.hooks import blocks

    with torch.no_grad():
        rows = model.get_output_embeddings().weight[list(symbols)].float()
        decoder = blocks(model)[0]
        norm = next((getattr(decoder, name) for name in _NORMS if hasattr(decoder, name)), torch.nn.Identity())
        # The root mean square of ones is 1, so the norm returns its gain, however it is parametrised.
        ones = torch.ones_like(rows[:1])
        gain, twice = norm(ones).float(), norm(2 * ones).float()
        if not gain.any() or not torch.allclose(gain, twice, rtol=1e-2):
            raise InputError(f"model is a {type(model).__name__} without an RMS norm at the end: letters have no rows")
    return (rows * gain).T.double().cpu().numpy()


def letter_share(
    learned: Learned,
    test: Measured,
    layer: int,
    alpha: float,
    rows: Float[np.ndarray, "width options"],
) -> Float[np.ndarray, " prompts"]:
    """Return how much of a shift's squared norm lies in the span of the letters' centred directions.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    test
        Prompts to be shifted.
    layer
        Block of the shift.
    alpha
        Its strength.
    rows
        As `letter_rows` returns them.

    Returns
    -------
    array
        From 0 to 1, one per prompt.

    Raises
    ------
    InputError
        If there is no prediction probe, or widths differ.
    """
    know, pred = learned.pairs([layer])[layer]
    return geometry.share_inside(shift(test.hidden[:, layer], know, pred, alpha=alpha), rows)


def direct_effect(
    learned: Learned,
    test: Measured,
    layer: int,
    alpha: float,
    rows: Float[np.ndarray, "width options"],
) -> Float[np.ndarray, "prompts options"]:
    """Return how far a shift moves the letters' logits on the residual stream alone, no later block reacting to it.

    To first order, with the final norm's scale as it is without the shift.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    test
        Prompts to be shifted.
    layer
        Block of the shift.
    alpha
        Its strength.
    rows
        As `letter_rows` returns them.

    Returns
    -------
    array
        Change of the logits, centred over the letters.

    Raises
    ------
    InputError
        If there is no prediction probe, or widths differ.
    """
    know, pred = learned.pairs([layer])[layer]
    step = shift(test.hidden[:, layer], know, pred, alpha=alpha)
    if step.shape[1] != rows.shape[0]:
        raise InputError(f"rows have width {rows.shape[0]}, states {step.shape[1]}: take both from one model")
    last = test.hidden[:, -1].astype(np.float64)
    moved = step @ rows / np.sqrt((last**2).mean(1, keepdims=True))
    return moved - moved.mean(1, keepdims=True)
