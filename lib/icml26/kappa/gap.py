"""How far a model's answers are from those of a probe on its hidden states: ACC, AGR and KLD.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). ACC is the share of right answers, AGR the share of
prompts on which model and probe pick the same option, and KLD the mean of KL(model || probe); the gap is 1 - AGR. What
enters are scores of the k options only: logits or probabilities, the first of equal ones wins. `hits`, `matches` and
`divergence` return one value per prompt, because the orders of one question are not independent and have to be summed
before resampling.

The released code stores a probe's probabilities and takes their softmax again before it computes KLD; ``released=True``
does the same. Where probes come from is `icml26.kappa.probes`' business.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.special import rel_entr, softmax

from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["accuracy", "agreement", "calibrate", "divergence", "exclusion_baseline", "hits", "matches"]

_LEAST = 1e-12  # what the released code clips probabilities to


def hits(
    scores: Float[ArrayLike, "*settings prompts options"], labels: Int[ArrayLike, " prompts"]
) -> Bool[np.ndarray, "*settings prompts"]:
    """Tell on which prompts the highest score is the right option's.

    Parameters
    ----------
    scores
        Logits or probabilities of the k options.
    labels
        Index of the right option as shown, 0 to k - 1.

    Returns
    -------
    bool array
        True where it is.

    Raises
    ------
    InputError
        If scores are not finite, or labels are not indices of options, one per prompt.

    Examples
    --------
    >>> hits([[0.1, 0.9], [0.5, 0.5]], [1, 1])
    array([ True, False])
    """
    scores = _scores("scores", scores)
    labels = np.asarray(labels)
    if labels.shape != scores.shape[-2:-1] or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels have shape {labels.shape} and type {labels.dtype}: give one integer for each of the "
            f"{scores.shape[-2]} prompts"
        )
    if labels.size and not (labels.min() >= 0 and labels.max() < scores.shape[-1]):
        raise InputError(f"labels run from {labels.min()} to {labels.max()}: use 0 to {scores.shape[-1] - 1}")
    return scores.argmax(-1) == labels


def matches(
    scores: Float[ArrayLike, "*settings prompts options"], reference: Float[ArrayLike, "prompts options"]
) -> Bool[np.ndarray, "*settings prompts"]:
    """Tell on which prompts two sets of scores have the same winner.

    Parameters
    ----------
    scores
        Logits or probabilities, such as the model's.
    reference
        Others of the same prompts, such as a probe's.

    Returns
    -------
    bool array
        True where they agree.

    Raises
    ------
    InputError
        If shapes differ or a score is not finite.

    Examples
    --------
    >>> matches([[0.1, 0.9], [0.6, 0.4]], [[1.0, 2.0], [1.0, 2.0]])
    array([ True, False])
    """
    scores, reference = _scores("scores", scores), _scores("reference", reference)
    if reference.shape != scores.shape[-2:]:
        raise InputError(f"reference has shape {reference.shape}, scores {scores.shape}: the last two axes must agree")
    return scores.argmax(-1) == reference.argmax(-1)


def accuracy(
    scores: Float[ArrayLike, "*settings prompts options"], labels: Int[ArrayLike, " prompts"]
) -> float | Float[np.ndarray, "*settings"]:
    """Return ACC, the share of right answers.

    Parameters
    ----------
    scores, labels
        As of `hits`.

    Returns
    -------
    float, or array over leading axes
        From 0 to 1.

    Raises
    ------
    InputError
        As of `hits`.

    Examples
    --------
    >>> accuracy([[0.1, 0.9], [0.5, 0.5]], [1, 1])
    0.5
    """
    return _mean(hits(scores, labels))


def agreement(
    scores: Float[ArrayLike, "*settings prompts options"], reference: Float[ArrayLike, "prompts options"]
) -> float | Float[np.ndarray, "*settings"]:
    """Return AGR, the share of prompts with the same winner; the gap is 1 - AGR.

    Parameters
    ----------
    scores, reference
        As of `matches`.

    Returns
    -------
    float, or array over leading axes
        From 0 to 1.

    Raises
    ------
    InputError
        As of `matches`.

    Examples
    --------
    >>> agreement([[0.1, 0.9], [0.6, 0.4]], [[1.0, 2.0], [1.0, 2.0]])
    0.5
    """
    return _mean(matches(scores, reference))


def divergence(
    model: Float[ArrayLike, "*settings prompts options"],
    probe: Float[ArrayLike, "prompts options"],
    *,
    released: bool = False,
) -> Float[np.ndarray, "*settings prompts"]:
    """Compute KL(model || probe) of each prompt; KLD is its mean.

    Parameters
    ----------
    model, probe
        Probabilities of the k options.
    released
        Take the softmax of the probe's probabilities first, as the released code does. No option then exceeds
        e / (e + k - 1).

    Returns
    -------
    array
        Nats.

    Raises
    ------
    InputError
        If shapes differ, or rows are no probabilities.

    Examples
    --------
    >>> divergence([[0.5, 0.5]], [[0.25, 0.75]]).round(4)
    array([0.1438])
    >>> divergence([[0.0, 1.0]], [[0.0, 1.0]], released=True).round(4)  # the floor
    array([0.3133])
    """
    model, probe = _probabilities("model", model), _probabilities("probe", probe)
    if probe.shape != model.shape[-2:]:
        raise InputError(f"probe has shape {probe.shape}, model {model.shape}: the last two axes must agree")
    if released:
        probe = softmax(probe, axis=-1)
    return rel_entr(_clipped(model), _clipped(probe)).sum(-1)


def exclusion_baseline(accuracy: float, options: int) -> float:
    """Return what a probe reaches that knows nothing but the model's answer.

    "The predicted option" is right as often as the model, "one of the others" in (1 - ACC) / (k - 1) of all cases.

    Parameters
    ----------
    accuracy
        Of the model, 0 to 1.
    options
        k, at least 2.

    Returns
    -------
    float
        The larger of the two.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> exclusion_baseline(0.0, 3)
    0.5
    """
    right = real("accuracy", accuracy, low=0, high=1)
    return max(right, (1 - right) / (whole("options", options, 2) - 1))


def calibrate(
    logits: Float[ArrayLike, "*settings prompts options"], mean: Float[ArrayLike, " options"]
) -> Float[np.ndarray, "*settings prompts options"]:
    """Remove a model's liking for some letters: subtract the mean logits of the training prompts.

    Parameters
    ----------
    logits
        Of the options' symbols, of any prompts, with or without an intervention.
    mean
        ``logits.mean(0)`` of the training prompts without one.

    Returns
    -------
    array
        Calibrated logits; their softmax enters AGR and KLD.

    Raises
    ------
    InputError
        If a value is not finite, or there is not one mean for each option.

    Examples
    --------
    >>> calibrate([[1.0, 5.0], [2.0, 4.0]], [1.5, 4.5]).argmax(-1)
    array([1, 0])
    """
    logits, mean = _scores("logits", logits), np.asarray(mean, dtype=np.float64)
    if mean.shape != logits.shape[-1:] or not np.isfinite(mean).all():
        raise InputError(f"mean has shape {mean.shape}: give {logits.shape[-1]} finite numbers, one for each option")
    return logits - mean


def _mean(values: Bool[np.ndarray, "*settings prompts"]) -> float | Float[np.ndarray, "*settings"]:
    if not values.shape[-1]:
        raise InputError("scores hold no prompts: give at least one")
    found = values.mean(-1)
    return float(found) if found.ndim == 0 else found


def _clipped(probabilities: Float[np.ndarray, "... options"]) -> Float[np.ndarray, "... options"]:
    clipped = np.clip(probabilities, _LEAST, 1)
    return clipped / clipped.sum(-1, keepdims=True)


def _scores(name: str, values: ArrayLike) -> Float[np.ndarray, "... prompts options"]:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} are not numbers: give an array of shape (prompts, options)") from None
    if found.ndim < 2 or found.shape[-1] < 2:
        raise InputError(f"{name} have shape {found.shape}: give (..., prompts, options) with at least 2 options")
    if not np.isfinite(found).all():
        raise InputError(f"{name} hold a value that is not finite: drop those prompts")
    return found


def _probabilities(name: str, values: ArrayLike) -> Float[np.ndarray, "... prompts options"]:
    found = _scores(name, values)
    if (found < 0).any() or not np.allclose(found.sum(-1), 1, atol=1e-4):
        raise InputError(f"{name} holds a row that is no distribution: take the softmax of the logits first")
    return found
