"""Made-up prompts for the studies of KAPPA: residual blocks that do nothing, so that every result is known beforehand.

What knows and what answers are planted here, which makes KAPPA work by construction. That suits tests of functions; no
claim about the method could be made on it.
"""

import numpy as np
import torch
from scipy.special import log_softmax

from icml26.kappa.baselines import Contrasted, Steering
from icml26.kappa.intervention import Kappa
from icml26.kappa.measured import Measured

LAYERS, WIDTH, OPTIONS, AWARE = 5, 16, 3, 2  # what is known and what will be said appear at block 2
BIAS = np.array([0.0, 1.0, 9.0])  # the model likes the last letter
EARLY_BIAS = np.array([12.0, 6.0, -3.0])  # and its early layers the first one


def world(seed=0):
    """Orthonormal directions: of what is known, of what is said, and others."""
    directions = np.linalg.qr(np.random.default_rng(seed).normal(size=(WIDTH, WIDTH))).Q
    return directions[:, :OPTIONS], directions[:, OPTIONS : 2 * OPTIONS]


def prompts(items, *, wrong=0.5, seed=0, noise=0.05, orders=OPTIONS, first=0):
    """Items asked in cyclic orders by a model that errs at random on a share of the prompts, though it knows better."""
    draw = np.random.default_rng([seed, items, first])
    know, say = world()
    number = np.repeat(np.arange(first, first + items), orders)
    labels = (np.repeat(draw.integers(OPTIONS, size=items), orders) + np.tile(np.arange(orders), items)) % OPTIONS
    errs = draw.random(len(labels)) < wrong
    said = (labels + errs * draw.integers(1, OPTIONS, size=len(labels))) % OPTIONS
    hidden = draw.normal(scale=noise, size=(len(labels), LAYERS, WIDTH))
    hidden[:, AWARE:] += (know.T[labels] + say.T[said])[:, None]
    return measured(hidden, labels, number)


def measured(hidden, labels, items):
    """Prompts whose answers are read off the last block, whatever was added below it."""
    _, say = world()

    def answers(intervention):
        last = torch.from_numpy(hidden[:, -1])
        added = torch.zeros_like(last)
        for layer in range(hidden.shape[1]):
            here = torch.from_numpy(hidden[:, layer]) + added
            if isinstance(intervention, Kappa) and layer in intervention.pairs:
                added = added + intervention.edit(here[:, None], layer)[:, 0] - here
            if isinstance(intervention, Steering) and layer in intervention.vectors:
                added = added + torch.from_numpy(intervention.multiplier * intervention.vectors[layer])
        return (last + added).numpy() @ say * 4 + BIAS

    def early(bucket, rows=slice(None)):
        final = log_softmax(answers(None)[rows], axis=1)
        furthest = log_softmax(hidden[rows, bucket[0]] @ say * 4 + EARLY_BIAS, axis=1)
        return Contrasted(final - furthest, final, final.max(1))

    vectors = np.tile(say[:, 0], (hidden.shape[1], 1))  # towards the first letter: no use where letters are balanced
    return Measured(hidden, answers(None), labels, items, answers, early, vectors)
