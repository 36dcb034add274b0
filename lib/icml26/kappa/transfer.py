"""KAPPA with less data, and with another task's probes.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782), which reports that a tenth of the probes' training
data is enough, and that probes of one benchmark help on another. `with_fewer_items` trains probes on part of the items,
`transferred` takes those of other tasks. Layers, strength and the letters' correction are not chosen anew: with fewer
items they are those of all items, and in transfer layers and strength are the source's and the correction the target's.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.kappa import gap
from icml26.kappa.intervention import Kappa
from icml26.kappa.measured import Measured
from icml26.kappa.refits import fit_probes
from icml26.kappa.selection import Learned
from icml26.kappa.settings import Setting

__all__ = ["Fewer", "transferred", "with_fewer_items"]

_ATTEMPTS = 100


class Fewer(NamedTuple):
    """KAPPA with probes of some of the training items.

    Attributes
    ----------
    items : int
        In each subset.
    logits : array, subsets x prompts x options
        Corrected answers.
    redrawn : int
        Subsets that were drawn again, because the model never picks some option in them.
    """

    items: int
    logits: Float[np.ndarray, "subsets prompts options"]
    redrawn: int


def with_fewer_items(
    learned: Learned,
    test: Measured,
    setting: Setting,
    share: float,
    *,
    subsets: int = 5,
    least: int = 5,
    seed: int,
    progress: Callable[[str], None] | None = None,
) -> Fewer:
    """Train both probes on a share of the training items, and answer with KAPPA.

    Parameters
    ----------
    learned
        Of a task with prediction probes.
    test
        Other items, with the means to intervene.
    setting
        Layers and strength.
    share
        Of the training items, all orders of each.
    subsets
        Random subsets.
    least
        Fewest items of a subset, whatever their share.
    seed
        Of the subsets.
    progress
        Called with one line per subset.

    Returns
    -------
    Fewer
        Answers with the probes of each subset.

    Raises
    ------
    InputError
        If a number is out of range, or subsets nearly always lack an option among the model's answers.
    """
    learned.pairs(setting.layers)
    draw = np.random.default_rng(whole("seed", seed, 0))
    training, k = learned.training, test.options
    items = np.unique(training.items)
    size = min(len(items), max(whole("least", least, 1), round(real("share", share, above=0, high=1) * len(items))))
    targets = np.stack([training.labels, learned.predicted])
    logits, redrawn = [], 0
    while len(logits) < whole("subsets", subsets, 1):
        rows = np.flatnonzero(np.isin(training.items, draw.choice(items, size, replace=False)))
        if any(np.unique(labels).size < k for labels in targets[:, rows]):
            redrawn += 1
            if redrawn > _ATTEMPTS:
                raise InputError(f"share={share} leaves {size} items, too few for the model to pick each option")
            continue
        hidden = training.hidden[np.ix_(rows, setting.layers)].swapaxes(0, 1)
        fits = fit_probes(hidden, targets[None, :, rows], options=k, C=learned.C)
        pairs = {layer: (fits.probe(i, 0), fits.probe(i, 1)) for i, layer in enumerate(setting.layers)}
        if progress:
            progress(f"{learned.name}: probes of {size} items, subset {len(logits) + 1} of {subsets}")
        logits.append(test.answers(Kappa(pairs, alpha=setting.strength)))
    return Fewer(size, gap.calibrate(np.stack(logits), learned.mean), redrawn)


def transferred(
    target: Learned,
    test: Measured,
    sources: Iterable[Learned],
    *,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Float[np.ndarray, "prompts options"]]:
    """Answer one task's prompts with KAPPA from the probes of others.

    Parameters
    ----------
    target
        The task of the prompts, whose correction for letters is taken.
    test
        Its test prompts, with the means to intervene.
    sources
        Other tasks; those with another number of options or without prediction probes, and the target, are passed over.
    progress
        Called with one line per source.

    Returns
    -------
    dict
        Corrected answers by the source's name.
    """
    found = {}
    for source in sources:
        if source.name == target.name or source.pred is None or source.training.options != test.options:
            continue
        setting = source.best("KAPPA")
        if progress:
            progress(f"{target.name}: probes of {source.name}")
        logits = test.answers(Kappa(source.pairs(setting.layers), alpha=setting.strength))
        found[source.name] = gap.calibrate(logits, target.mean)
    return found
