"""What is decided before test items are seen: probes, the letters' correction, layers, strengths.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). Its released code picks the layer of the knowledge
probe on test results; here `learn` fits probes on training items and decides all else on validation items, for KAPPA in
one, three and six layers and, with as many settings, for the two baselines. Ties go to the earlier setting, which for
KAPPA and CAA is the weaker intervention at the lower layer, for DoLa its own threshold.

The model's own answers are corrected for its liking of some letters: the mean logits of the training prompts, without
any intervention, are subtracted. They stay fixed under KAPPA and CAA, whose answers are logits of the model, too.
DoLa's scores are not: they are differences of log-probabilities, which like other letters. So they are corrected by
their own mean over prompts of some training items, one for each bucket of early layers. Where an option is never the
corrected answer in training, there is no prediction probe and nothing to intervene with. Hidden states come from
`icml26.kappa.collect`, CAA and DoLa from `icml26.kappa.baselines`; test items are for `icml26.kappa.studies`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from icml26.errors import InputError
from icml26.kappa import gap
from icml26.kappa.baselines import Steering, dola_scores
from icml26.kappa.intervention import Kappa
from icml26.kappa.measured import Measured
from icml26.kappa.probes import Probe
from icml26.kappa.refits import fit_probes
from icml26.kappa.settings import SelectionConfig, Setting, settings

__all__ = ["Learned", "Tried", "answered", "learn"]

_CONTRASTED = 16  # items that DoLa's correction is averaged over, at most: the whole vocabulary at many layers is dear


class Tried(NamedTuple):
    """A setting and how it did on validation prompts.

    Attributes
    ----------
    setting : Setting
        Which.
    accuracy, agreement : float
        ACC and AGR, 0 to 1.
    """

    setting: Setting
    accuracy: float
    agreement: float


@dataclass(frozen=True, eq=False)
class Learned:
    """What `learn` found on the training and validation items of a task.

    Attributes
    ----------
    name : str
        Of the task.
    training, validation : Measured
        Their hidden states and answers, without the means to intervene.
    mean : array, options
        Mean logits of the training prompts, subtracted from all answers but DoLa's.
    predicted : array, training prompts
        The model's corrected answers.
    C : float
        The penalty taken.
    know : tuple of Probe
        Knowledge probe of every layer.
    pred : tuple of Probe or None
        Prediction probe of every layer; None if an option is never the corrected answer.
    layer : int
        Of the knowledge probe that AGR refers to, the best on validation.
    know_accuracy, pred_accuracy : array, layers
        Of the probes, on validation prompts; prediction probes have the model's corrected answers as labels.
    tried : tuple of Tried
        All settings of all methods.
    contrasts : dict of tuple of int to array
        For each of DoLa's buckets the mean of its contrast over training prompts (of 16 items, if there are more),
        subtracted from DoLa's scores.
    """

    name: str
    training: Measured
    validation: Measured
    mean: Float[np.ndarray, " options"]
    predicted: Int[np.ndarray, " prompts"]
    C: float
    know: tuple[Probe, ...]
    pred: tuple[Probe, ...] | None
    layer: int
    know_accuracy: Float[np.ndarray, " layers"]
    pred_accuracy: Float[np.ndarray, " layers"] | None
    tried: tuple[Tried, ...] = ()
    contrasts: Mapping[tuple[int, ...], Float[np.ndarray, " options"]] = field(default_factory=dict)

    def pairs(self, layers: Iterable[int]) -> dict[int, tuple[Probe, Probe]]:
        """Return the probes of some layers, as `Kappa` takes them.

        Parameters
        ----------
        layers
            Blocks.

        Returns
        -------
        dict
            Knowledge and prediction probe by block.

        Raises
        ------
        InputError
            If the task has no prediction probes.
        """
        if self.pred is None:
            raise InputError(f"{self.name} has no prediction probes: the model never picks some option")
        return {layer: (self.know[layer], self.pred[layer]) for layer in layers}

    def best(self, method: str, layers: int | None = None) -> Setting:
        """Return a method's best setting on validation.

        Parameters
        ----------
        method
            Its name.
        layers
            Only settings with so many layers.

        Returns
        -------
        Setting
            The earliest of the most accurate ones.

        Raises
        ------
        InputError
            If none was tried.
        """
        found = [t for t in self.tried if t.setting.method == method and layers in (None, len(t.setting.layers))]
        if not found:
            raise InputError(f"{self.name} has no setting of {method!r} with layers={layers}: none was tried")
        return max(found, key=lambda tried: tried.accuracy).setting

    def reference(self, prompts: Measured) -> Float[np.ndarray, "prompts options"]:
        """Return the logits of the knowledge probe that AGR refers to, on states without intervention.

        Parameters
        ----------
        prompts
            Of any item.

        Returns
        -------
        array
            Logits.
        """
        return self.know[self.layer].logits(prompts.hidden[:, self.layer])


def answered(
    learned: Learned,
    prompts: Measured,
    tries: Sequence[Setting],
    progress: Callable[[str], None] | None = None,
) -> Float[np.ndarray, "settings prompts options"]:
    """Answer prompts under some settings.

    Parameters
    ----------
    learned
        Probes, steering vectors and the letters' correction.
    prompts
        With the means to intervene.
    tries
        Settings.
    progress
        Called with one line per setting.

    Returns
    -------
    array
        Corrected logits.

    Raises
    ------
    InputError
        If the prompts cannot be intervened with, or probes are missing.
    """
    found: dict[Setting, Float[np.ndarray, "prompts options"]] = {}
    for setting in tries:
        if setting in found:
            continue
        if progress:
            progress(
                f"{learned.name}: {setting.method}, layers {_named(setting.layers)}, strength {setting.strength:g}"
            )
        if setting.method == "DoLa":
            if prompts.early is None or setting.layers not in learned.contrasts:
                raise InputError("DoLa needs early of the prompts, and of the training prompts for its correction")
            alike = [other for other in dict.fromkeys(tries) if other[:2] == setting[:2]]
            scores = dola_scores(
                prompts.early(setting.layers),
                [other.strength for other in alike],
                difference=learned.contrasts[setting.layers],
                final=learned.mean,
            )
            found.update(zip(alike, scores, strict=True))
            continue
        if prompts.answers is None:
            raise InputError("prompts have no answers: measure them with the means to intervene")
        if setting.method == "CAA":
            if learned.training.vectors is None:
                raise InputError(f"{learned.name} has no vectors for CAA: measure its training prompts with contrast")
            vectors = {layer: learned.training.vectors[layer] for layer in setting.layers}
            intervention = Steering(vectors, multiplier=setting.strength, positions=setting.positions)
        else:
            intervention = Kappa(learned.pairs(setting.layers), alpha=setting.strength, positions=setting.positions)
        found[setting] = gap.calibrate(prompts.answers(intervention), learned.mean)
    return np.stack([found[setting] for setting in tries])


def learn(
    name: str,
    training: Measured,
    validation: Measured,
    config: SelectionConfig | None = None,
    *,
    progress: Callable[[str], None] | None = None,
) -> Learned:
    """Fit probes on training items, and choose layers and strengths on validation items.

    Parameters
    ----------
    name
        Of the task.
    training, validation
        Different items; those of validation with the means to intervene. Without ``training.vectors`` CAA is left out,
        without ``early`` of both DoLa, and without ``validation.answers`` all methods.
    config
        What is tried.
    progress
        Called with one line of text at each step.

    Returns
    -------
    Learned
        Without settings if there is no prediction probe.

    Raises
    ------
    InputError
        If the two do not fit together or share items, or an option is never right in training.
    """
    config = config or SelectionConfig()
    if validation.hidden.shape[1:] != training.hidden.shape[1:] or validation.options != training.options:
        raise InputError("training and validation differ in layers, width or options: measure them with one model")
    if np.intersect1d(training.items, validation.items).size:
        raise InputError("training and validation share items: split by item, all orders of one on the same side")
    k, mean = training.options, training.logits.mean(0)
    predicted = (training.logits - mean).argmax(1)
    whole_set = np.unique(predicted).size == k
    targets = np.stack([training.labels, predicted] if whole_set else [training.labels])
    best = None
    for C in config.C:
        if progress:
            progress(f"{name}: probes at {training.layers} layers, C={C:g}")
        fits = fit_probes(training.hidden.swapaxes(0, 1), targets[None], options=k, C=C)
        know = fits.probes(0)
        accuracy = _accuracies(know, validation, validation.labels)
        if best is None or accuracy.max() > best[2].max():
            best = C, fits, accuracy
    C, fits, accuracy = best
    know, pred = fits.probes(0), fits.probes(1) if whole_set else None
    own = (validation.logits - mean).argmax(1)
    learned = Learned(
        name=name,
        training=replace(training, answers=None, early=None),
        validation=replace(validation, answers=None, early=None),
        mean=mean,
        predicted=predicted,
        C=C,
        know=know,
        pred=pred,
        layer=int(accuracy.argmax()),
        know_accuracy=accuracy,
        pred_accuracy=None if pred is None else _accuracies(pred, validation, own),
    )
    if pred is None or validation.answers is None:
        return learned
    tries = settings(accuracy, learned.layer, config)
    if training.vectors is None:
        del tries["CAA"]
    if validation.early is None or training.early is None:
        del tries["DoLa"]
    buckets = dict.fromkeys(setting.layers for setting in tries.get("DoLa", ()))
    some = np.isin(training.items, np.unique(training.items)[:_CONTRASTED])
    contrasts = {bucket: training.early(bucket, some).difference.mean(0) for bucket in buckets}
    learned = replace(learned, contrasts=contrasts)
    every = [setting for method in tries.values() for setting in method]
    logits = answered(learned, validation, every, progress)
    right = gap.accuracy(logits, validation.labels)
    agree = gap.agreement(logits, learned.reference(validation))
    return replace(learned, tried=tuple(map(Tried, every, right.tolist(), agree.tolist())))


def _accuracies(
    probes: Sequence[Probe], prompts: Measured, labels: Int[np.ndarray, " prompts"]
) -> Float[np.ndarray, " layers"]:
    logits = np.stack([probe.logits(prompts.hidden[:, layer]) for layer, probe in enumerate(probes)])
    return gap.accuracy(logits, labels)


def _named(layers: Sequence[int]) -> str:
    return str(layers[0]) if len(layers) == 1 else f"{layers[0]}-{layers[-1]}"
