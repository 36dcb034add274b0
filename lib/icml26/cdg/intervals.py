"""Intervals over questions that know what is independent.

The votes and gaps of CDG (Wang et al., arXiv 2605.25244) are averages over questions with many traces each. Traces of a
question are not independent, and conditions may share their questions, as a model before and after reinforcement
learning does. `stratified_mean` therefore resamples questions, one draw for all conditions that share them, and
averages conditions; `pooled_gap` does so for the pooled gap that the paper's weight beta is made of. Gaps themselves
are left to `icml26.cdg.gaps`.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from icml26 import stats
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["pooled_gap", "stratified_mean"]


def stratified_mean(
    strata: Sequence[Float[ArrayLike, " questions"]],
    weights: Sequence[Float[ArrayLike, " questions"]] | None = None,
    *,
    groups: Sequence[Hashable] | None = None,
    seed: int,
    resamples: int = 2000,
) -> stats.Interval:
    """Mean over conditions of the mean over each one's questions, which are resampled.

    Parameters
    ----------
    strata : sequence of array-like
        For each condition a value a question, NaN where it has none; at least two that are not.
    weights : sequence of array-like, optional
        Positive weights of the questions within their condition; equal by default. Conditions count alike.
    groups : sequence, optional
        A label for each condition; those of one label have the same questions in the same order, which are resampled
        together. By default every condition has its own.
    seed : int
        Seed of the resampling.
    resamples : int
        Number of resamples.

    Returns
    -------
    Interval
        95 % percentile interval. A resample that leaves a condition without a value averages the others.

    Raises
    ------
    InputError
        If there is no condition, one has fewer than two values, or weights or groups do not fit.

    Examples
    --------
    >>> stratified_mean([[1.0, 1.0], [3.0, 3.0]], seed=0)
    Interval(value=2.0, low=2.0, high=2.0)
    >>> stratified_mean([[0.0, 1.0], [1.0, 0.0]], groups=["same", "same"], seed=0).interval
    (0.5, 0.5)
    """
    values = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not values:
        raise InputError("strata is empty; give the values of at least one condition")
    shares = [np.ones_like(value) for value in values] if weights is None else [np.asarray(w, float) for w in weights]
    if [value.shape for value in values] != [share.shape for share in shares]:
        raise InputError("weights must have the shapes of strata, a weight for each question")
    given = [~np.isnan(value) for value in values]
    if any(has.sum() < 2 for has in given):
        raise InputError("each of strata must have at least two values that are not NaN; leave smaller conditions out")
    if not all((share[has] > 0).all() for share, has in zip(shares, given, strict=True)):
        raise InputError("weights must be positive; give NaN for the value of a question of no weight")
    labels = list(range(len(values))) if groups is None else list(groups)
    if len(labels) != len(values):
        raise InputError(f"groups must have {len(values)} labels, one for each condition")
    blocks = []
    for label in dict.fromkeys(labels):
        members = [place for place, other in enumerate(labels) if other == label]
        if len({len(values[place]) for place in members}) > 1:
            raise InputError(
                f"the conditions of group {label!r} must have the same number of questions; fill up with NaN"
            )
        has = np.stack([given[place] for place in members])
        asked = has.any(0)
        share = np.where(has, np.stack([shares[place] for place in members]), 0.0)[:, asked]
        blocks.append((np.where(has, np.stack([values[place] for place in members]), 0.0)[:, asked] * share, share))

    def statistic(*drawn: np.ndarray, axis: int) -> np.ndarray:
        sums, counts = [], []
        for (product, share), index in zip(blocks, drawn, strict=True):
            chosen = index.astype(int)
            sums += [row[chosen].sum(axis) for row in product]
            counts += [row[chosen].sum(axis) for row in share]
        with np.errstate(invalid="ignore"):
            return np.nanmean(np.divide(sums, counts), axis=0)

    places = [np.arange(share.shape[1]) for _, share in blocks]
    return stats.bootstrap_interval(statistic, *places, seed=seed, paired=False, resamples=resamples)


def pooled_gap(
    values: Float[ArrayLike, "questions traces"],
    correct: Bool[ArrayLike, "questions traces"],
    voting: Bool[ArrayLike, "questions traces"],
    *,
    seed: int,
    resamples: int = 2000,
) -> stats.Interval:
    """Mean over all correct traces less that over all wrong ones, with an interval over questions.

    Parameters
    ----------
    values : array-like, questions x traces
        Such as the gain.
    correct, voting : array-like of bool, questions x traces
        Whether the trace's answer is right, and whether the trace counts.
    seed : int
        Seed of the resampling.
    resamples : int
        Number of resamples.

    Returns
    -------
    Interval
        95 % percentile interval over the resamples of questions that have both kinds of trace; NaN without both kinds.

    Raises
    ------
    InputError
        If the shapes differ or a number is out of range.

    Examples
    --------
    >>> pooled_gap([[1.0, 0.0], [3.0, 2.0]], [[True, False]] * 2, np.ones((2, 2), dtype=bool), seed=0)
    Interval(value=1.0, low=1.0, high=1.0)
    """
    values, correct, voting = np.asarray(values, dtype=float), np.asarray(correct), np.asarray(voting)
    if not values.shape == correct.shape == voting.shape or values.ndim != 2:
        raise InputError("values, correct and voting must be tables of one shape, a row for each question")
    kinds = np.stack([voting & correct, voting & ~correct])
    counts, sums = kinds.sum(2), np.where(kinds, values, 0.0).sum(2)
    drawn = np.random.default_rng(whole("seed", seed, 0)).integers(
        len(values), size=(whole("resamples", resamples, 2), len(values))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        value = sums.sum(1) / counts.sum(1)
        again = sums[:, drawn].sum(2) / counts[:, drawn].sum(2)
    spread = (again[0] - again[1])[np.isfinite(again).all(0)]
    if not np.isfinite(value).all() or not len(spread):
        return stats.Interval(float("nan"), float("nan"), float("nan"))
    return stats.Interval(float(value[0] - value[1]), *map(float, np.percentile(spread, [2.5, 97.5])))
