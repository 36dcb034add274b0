"""Which settings of KAPPA and of its baselines are tried on validation items.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782), which has one, three or six layers and a strength
alpha. How it chose them is not known to us. Here single layers with good knowledge probes are tried at several
strengths, and runs of layers from the best one on at fewer, because large steps at many layers run away. The last block
is left out of both, since the final norm behind it rescales whatever is added. Contrastive activation addition (CAA,
Rimsky et al., arXiv 2312.06681) and DoLa (Chuang et al., arXiv 2309.03883) get as many settings. CAA's layers are
spread over the depth of the model, and a third of its settings act on all tokens after the instruction, the others on
the last token alone, where KAPPA acts. Of the grid of layers and multipliers that is a part, in which each multiplier,
sign and layer has about an equal share, the same for all tasks. Trying all of them is the business of
`icml26.kappa.selection`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["SelectionConfig", "Setting", "following", "settings"]


class Setting(NamedTuple):
    """One way to intervene.

    Attributes
    ----------
    method : str
        ``"KAPPA"``, ``"CAA"`` or ``"DoLa"``.
    layers : tuple of int
        Blocks, counted from 0; DoLa's early layers.
    strength : float
        Alpha; CAA's multiplier; DoLa's threshold relative to the most probable token.
    positions : str
        ``"last"``, the last token alone, or ``"after"``, all tokens after the instruction.
    """

    method: str
    layers: tuple[int, ...]
    strength: float
    positions: str = "last"


@dataclass(frozen=True)
class SelectionConfig:
    """What is tried.

    Parameters
    ----------
    C
        Penalties of the probes; of several, the one with the best knowledge probe on validation.
    candidates
        Layers tried alone, those of the best knowledge probes on validation; as many are tried for CAA.
    alphas
        Strengths of one layer.
    layer_counts
        Numbers of layers; of 1, the candidates are tried, of more, the best layer and those that follow it.
    several_alphas
        Strengths of several layers.
    multipliers
        CAA's, each with both signs; the list grows by doubling until there are as many settings as KAPPA has.

    Raises
    ------
    InputError
        If a list is empty or a number out of range.

    Examples
    --------
    >>> SelectionConfig().alphas
    (1.0, 2.0, 5.0, 10.0, 20.0)
    """

    C: tuple[float, ...] = (0.01,)
    candidates: int = 4
    alphas: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0)
    layer_counts: tuple[int, ...] = (1, 3, 6)
    several_alphas: tuple[float, ...] = (1.0, 2.0, 5.0)
    multipliers: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)

    def __post_init__(self) -> None:
        whole("candidates", self.candidates, 1)
        for name in ("C", "alphas", "layer_counts", "several_alphas", "multipliers"):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or isinstance(values, str):
                raise InputError(f"{name}={values!r} must be a tuple of numbers")
            if not values:
                raise InputError(f"{name} is empty: give at least one value")
            for value in values:
                real(name, value, above=0)
            object.__setattr__(self, name, tuple(sorted(set(values))))
        for number in self.layer_counts:
            whole("layer_counts", number, 1)


def following(layer: int, number: int, layers: int) -> tuple[int, ...]:
    """Return a layer and those after it, moved down where the last block would be among them.

    After the last block comes the final norm, which rescales whatever was added. A model with too few blocks has all of
    them but the last.

    Parameters
    ----------
    layer
        The first.
    number
        How many.
    layers
        Blocks of the model.

    Returns
    -------
    tuple of int
        In order.

    Examples
    --------
    >>> following(5, 3, 30), following(27, 3, 30), following(0, 6, 4)
    ((5, 6, 7), (26, 27, 28), (0, 1, 2))
    """
    first = max(0, min(layer, layers - 1 - number))
    return tuple(range(first, max(1, min(first + number, layers - 1))))


def settings(
    know_accuracy: Float[np.ndarray, " layers"], layer: int, config: SelectionConfig
) -> dict[str, list[Setting]]:
    """List what each method tries, equally many settings of each.

    Parameters
    ----------
    know_accuracy
        Of the knowledge probes on validation prompts.
    layer
        Of the best one.
    config
        What is tried.

    Returns
    -------
    dict of str to list of Setting
        Of KAPPA and CAA weaker interventions first, KAPPA's with fewer layers before those with more; of DoLa its own
        threshold first. A model of one block has no early layers, and no DoLa.

    Examples
    --------
    >>> [len(tries) for tries in settings(np.linspace(0.3, 0.8, 30), 29, SelectionConfig()).values()]
    [26, 26, 26]
    """
    layers = len(know_accuracy)
    inner = max(1, layers - 1)  # blocks but the last
    alone = sorted(np.argsort(-know_accuracy[:inner], kind="stable")[: config.candidates].tolist())
    kappa = []
    for number in config.layer_counts:
        if number == 1:
            kappa += [Setting("KAPPA", (one,), alpha) for alpha in config.alphas for one in alone]
        else:
            kappa += [Setting("KAPPA", following(layer, number, layers), alpha) for alpha in config.several_alphas]
    kappa = list(dict.fromkeys(kappa))  # a model with few blocks has the same layers for two numbers
    halves = tuple(range(0, layers // 2, 2)), tuple(range(layers // 2 + layers // 2 % 2, layers - 1, 2))
    buckets = [half for half in halves if half]
    thresholds = [0.1, *np.geomspace(1e-4, 0.5, max(1, len(kappa))).tolist()]  # DoLa's own first
    dola = (Setting("DoLa", bucket, threshold) for threshold in thresholds for bucket in buckets)
    return {"KAPPA": kappa, "CAA": _steered(inner, config, len(kappa)), "DoLa": list(islice(dola, len(kappa)))}


def _steered(inner: int, config: SelectionConfig, number: int) -> list[Setting]:
    """List CAA's settings along diagonals of the grid; with fewer layers than asked for, all of them are candidates."""
    spread = np.unique(np.linspace(0, inner, config.candidates + 2)[1:-1].astype(int)).tolist()
    multipliers = list(config.multipliers)
    after = -(-number // 3)
    while 2 * len(spread) * len(multipliers) < max(after, number - after):
        multipliers.append(2 * multipliers[-1])
    signed = [sign * multiplier for sign in (1, -1) for multiplier in multipliers]
    chosen = []
    for positions, part in (("after", after), ("last", number - after)):
        for place in range(part):
            turn, which = divmod(place, len(signed))
            layer = spread[(which + turn) % len(spread)]
            chosen.append(Setting("CAA", (layer,), signed[which], positions))
    return sorted(chosen, key=lambda one: (abs(one.strength), one.layers, -one.strength, one.positions))
