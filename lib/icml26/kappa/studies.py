"""The test items: KAPPA at the settings chosen on validation, its baselines, its controls, its curves.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). `evaluate` runs one task's test prompts under all
interventions and keeps, for every prompt, whether the corrected answer is right, whether it agrees with the knowledge
probe of the state without intervention, and how far it is from the probe's and from the model's own. Nothing is chosen
here: that is done in `icml26.kappa.selection`; intervals are made in `icml26.kappa.estimates`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import softmax

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.kappa import controls, gap, geometry
from icml26.kappa.intervention import Kappa
from icml26.kappa.measured import Measured
from icml26.kappa.selection import Learned, answered
from icml26.kappa.settings import Setting
from icml26.kappa.transfer import transferred, with_fewer_items
from icml26.stats import seeds

__all__ = ["Evaluated", "Scores", "StudyConfig", "evaluate"]


@dataclass(frozen=True)
class StudyConfig:
    """What is run on test prompts.

    Parameters
    ----------
    alphas
        Of the curves, sorted, at the best single layer and at the most layers.
    betas
        Of the curve at the best single layer, sorted, at alpha = 1, in units of the median absolute centred knowledge
        logit.
    random_draws, shuffles
        Of the controls.
    shares
        Of the training items.
    subsets, least
        Of each share; the fewest items of one.
    released
        The weight w of the released form.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> StudyConfig().betas
    (0.0, 0.5, 1.0, 2.0, 4.0)
    """

    alphas: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0)
    betas: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    random_draws: int = 20
    shuffles: int = 10
    shares: tuple[float, ...] = (0.1, 0.25, 0.5)
    subsets: int = 5
    least: int = 5
    released: float = 30.0

    def __post_init__(self) -> None:
        for name, least in (("random_draws", 1), ("shuffles", 1), ("subsets", 1), ("least", 1)):
            whole(name, getattr(self, name), least)
        for name in ("alphas", "betas", "shares"):
            limits = {"above": 0, "high": 1} if name == "shares" else {"low": 0}
            values = tuple(sorted({real(name, value, **limits) for value in getattr(self, name)}))
            if len(values) < 2 and name != "shares":
                raise InputError(f"{name}={values} must hold two different values at least: neighbours on a curve")
            object.__setattr__(self, name, values)
        real("released", self.released, above=0)


class Scores(NamedTuple):
    """What an intervention did to each prompt; settings, draws or subsets come first.

    Attributes
    ----------
    right : bool array, settings x prompts
        Whether the corrected answer is right.
    agrees : bool array, settings x prompts
        Whether it is that of the knowledge probe on the state without intervention.
    divergence : array, settings x prompts
        KL(model || probe), nats.
    moved : array, settings x prompts
        KL(model with the intervention || model without) over the options, nats.
    picked : int array, settings x prompts
        The option answered.
    """

    right: Bool[np.ndarray, "*settings prompts"]
    agrees: Bool[np.ndarray, "*settings prompts"]
    divergence: Float[np.ndarray, "*settings prompts"]
    moved: Float[np.ndarray, "*settings prompts"]
    picked: Int[np.ndarray, "*settings prompts"]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A task's test prompts under all interventions.

    Attributes
    ----------
    name : str
        Of the task.
    options : int
        k.
    items : int array, prompts
        Which item each prompt asks.
    angle : float
        Mean principal angle of the probes at the knowledge probe's layer, degrees; NaN without a prediction probe.
    settings : dict of str to Setting
        Those chosen on validation: ``"KAPPA"``, ``"KAPPA, 1 layer"`` (and so on), ``"CAA"``, ``"DoLa"``, and the better
        of the last two as ``"baseline"``.
    scores : dict of str to Scores
        By name of the chosen settings, and ``"base"``, ``"uncorrected"`` (the letters' raw logits), ``"probe"`` (its
        answer instead of the model's), ``"reversed"``, ``"released"`` (best single layer, most layers), ``"alpha"``,
        ``"alpha, all layers"``, ``"beta"``, ``"random"``, ``"random, centred"`` (about the mean state), ``"shuffled"``,
        ``"KAPPA, uncorrected"`` (raw logits with KAPPA), ``"0.1 of the items"`` (and so on).
    transfer : dict of str to Scores
        By source; agreement is with the target's own probe.
    letter_share : array or None
        Share of the squared shift in the letters' span, per prompt.
    redrawn : dict of float to int
        By share of the items, subsets drawn again because an option was never picked in them.
    """

    name: str
    options: int
    items: Int[np.ndarray, " prompts"]
    angle: float
    settings: dict[str, Setting]
    scores: dict[str, Scores]
    transfer: dict[str, Scores] = field(default_factory=dict)
    letter_share: Float[np.ndarray, " prompts"] | None = None
    redrawn: dict[float, int] = field(default_factory=dict)


def evaluate(
    learned: Learned,
    test: Measured,
    config: StudyConfig | None = None,
    *,
    sources: Iterable[Learned] = (),
    rows: Float[np.ndarray, "width options"] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Evaluated:
    """Run a task's test prompts.

    Parameters
    ----------
    learned
        What was found on its other items.
    test
        Items that are not among those, with the means to intervene.
    config
        What is run.
    sources
        Other tasks, for transfer.
    rows
        The letters' directions, as `icml26.kappa.controls.letter_rows` returns them.
    seed
        Of the controls.
    progress
        Called with one line per run of the prompts.

    Returns
    -------
    Evaluated
        Base and probe alone if there is no prediction probe.

    Raises
    ------
    InputError
        If test items are among those of training or validation, or prompts do not fit.
    """
    config = config or StudyConfig()
    if np.intersect1d(test.items, np.append(learned.training.items, learned.validation.items)).size:
        raise InputError("test shares items with training or validation: split by item, all orders on the same side")
    if test.hidden.shape[1:] != learned.training.hidden.shape[1:] or test.options != learned.training.options:
        raise InputError("test and training differ in layers, width or options: measure them with one model")
    reference, base = learned.reference(test), gap.calibrate(test.logits, learned.mean)

    def scored(logits: Float[np.ndarray, "*settings prompts options"]) -> Scores:
        says = softmax(logits, axis=-1)
        return Scores(
            gap.hits(logits, test.labels),
            gap.matches(logits, reference),
            gap.divergence(says, softmax(reference, axis=-1)),
            gap.divergence(says, softmax(base, axis=-1)),
            logits.argmax(-1),
        )

    scores = {"base": scored(base), "uncorrected": scored(test.logits), "probe": scored(reference)}
    if learned.pred is None:
        return Evaluated(learned.name, test.options, test.items, float("nan"), {}, scores)
    chosen = _chosen(learned)
    one, most = chosen["KAPPA, 1 layer"], max((s for s in chosen.values() if s.method == "KAPPA"), key=_size)
    runs: dict[str, list[Setting]] = {name: [setting] for name, setting in chosen.items()}
    runs["alpha"] = [one._replace(strength=alpha) for alpha in config.alphas]
    runs["alpha, all layers"] = [most._replace(strength=alpha) for alpha in config.alphas]
    logits = answered(learned, test, [setting for tries in runs.values() for setting in tries], progress)
    first = 0
    for name, tries in runs.items():
        part = logits[first : first + len(tries)]
        scores[name], first = scored(part[0] if name in chosen else part), first + len(tries)
        if name == "KAPPA":
            scores["KAPPA, uncorrected"] = scored(part[0] + learned.mean)

    def run(kappas: list[Kappa], name: str) -> Scores:
        found = []
        for number, kappa in enumerate(kappas, 1):
            if progress:
                progress(f"{learned.name}: {name}, {number} of {len(kappas)}")
            found.append(test.answers(kappa))
        return scored(gap.calibrate(np.stack(found), learned.mean))

    kappa, draws = chosen["KAPPA"], seeds(seed, config.random_draws + 2 + len(config.shares))
    layer = one.layers[0]
    know = learned.know[layer].centred().logits(learned.training.hidden[:, layer])
    unit = float(np.median(np.abs(know)))
    scores["beta"] = run([Kappa(learned.pairs(one.layers), beta=beta * unit) for beta in config.betas], "beta")
    opposite = controls.reversed_pairs(learned, kappa.layers)
    scores["reversed"] = run([Kappa(opposite, alpha=kappa.strength)], "reversed")
    released = [Kappa(learned.pairs(s.layers), alpha=config.released, mode="released") for s in (one, most)]
    scores["released"] = run(released, "released form")
    for name, about_mean in (("random", False), ("random, centred", True)):
        random = [
            controls.random_pairs(learned, kappa.layers, seed=draw, about_mean=about_mean)
            for draw in draws[: config.random_draws]
        ]
        scores[name] = run([Kappa(pairs, alpha=kappa.strength) for pairs in random], f"{name} knowledge")
    shuffled = controls.shuffled_pairs(learned, kappa.layers, draws=config.shuffles, seed=draws[config.random_draws])
    scores["shuffled"] = run([Kappa(pairs, alpha=kappa.strength) for pairs in shuffled], "shuffled knowledge")
    redrawn = {}
    for share, draw in zip(config.shares, draws[config.random_draws + 2 :], strict=True):
        fewer = with_fewer_items(
            learned, test, kappa, share, subsets=config.subsets, least=config.least, seed=draw, progress=progress
        )
        scores[f"{share:g} of the items"], redrawn[share] = scored(fewer.logits), fewer.redrawn
    transfer = {name: scored(logits) for name, logits in transferred(learned, test, sources, progress=progress).items()}
    return Evaluated(
        name=learned.name,
        options=test.options,
        items=test.items,
        angle=geometry.mean_angle(learned.know[learned.layer].weights, learned.pred[learned.layer].weights),
        settings=chosen,
        scores=scores,
        transfer=transfer,
        letter_share=None if rows is None else controls.letter_share(learned, test, layer, one.strength, rows),
        redrawn=redrawn,
    )


def _chosen(learned: Learned) -> dict[str, Setting]:
    """Name the settings that are best on validation: KAPPA's, of all and of each number of layers, and baselines'."""
    sizes = sorted({len(tried.setting.layers) for tried in learned.tried if tried.setting.method == "KAPPA"})
    if not sizes or sizes[0] != 1:
        raise InputError(f"{learned.name} has no KAPPA settings of one layer: learn it with 1 among layer_counts")
    chosen = {"KAPPA": learned.best("KAPPA")}
    for size in sizes:
        chosen[f"KAPPA, {size} layer{'s' * (size > 1)}"] = learned.best("KAPPA", size)
    methods = [m for m in ("CAA", "DoLa") if any(tried.setting.method == m for tried in learned.tried)]
    chosen |= {method: learned.best(method) for method in methods}
    if methods:
        accuracy = {tried.setting: tried.accuracy for tried in learned.tried}
        chosen["baseline"] = max((chosen[method] for method in methods), key=accuracy.__getitem__)
    return chosen


def _size(setting: Setting) -> int:
    return len(setting.layers)
