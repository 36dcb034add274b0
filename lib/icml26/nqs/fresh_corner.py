"""What laws of loss make of a trained grid: fitted on its cheap corner, scored on its expensive one, seed by seed.

`corner` splits by compute, `held_out` fits and scores, `held_out_difference` compares two laws, the test of Li and
Maddison (ICML 2026, arXiv 2605.09154) on losses of the chapter's own. The grid is `fresh`'s, the laws `regressors`' and
`chinchilla`'s, the score `comparison`'s.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from icml26 import stats
from icml26.errors import InputError
from icml26.nqs.comparison import Predict, log_huber
from icml26.nqs.measurements import design

__all__ = ["Corners", "Fit", "best_batches", "corner", "held_out", "held_out_difference"]

Fit = Callable[[pd.DataFrame], Predict]
"""Fits a law to rows of a grid and returns the function from rows of N, B and K to losses."""


class Corners(NamedTuple):
    """Two parts of a grid.

    Attributes
    ----------
    cheap, expensive : DataFrame
        Rows to fit on, and rows to predict.
    """

    cheap: pd.DataFrame
    expensive: pd.DataFrame


def corner(frame: pd.DataFrame, *, share: float = 1 / 32, gap: float = 4.0) -> Corners:
    """Split a grid by compute into a cheap and an expensive corner, with the rows between them in neither.

    Parameters
    ----------
    frame : DataFrame
        As `run_grid` or `seed_mean` gives it.
    share : float
        The cheap corner takes the rows of at most this share of the greatest compute.
    gap : float
        The expensive one takes the rows of more than so many times the cheap corner's greatest compute.

    Returns
    -------
    Corners

    Raises
    ------
    InputError
        If an option is out of its range, or a corner is empty.

    Examples
    --------
    >>> cheap, expensive = corner(pd.DataFrame({"compute": [1.0, 2.0, 4.0, 8.0, 64.0]}))
    >>> cheap["compute"].tolist(), expensive["compute"].tolist()
    ([1.0, 2.0], [64.0])
    """
    if not 0 < share < 1 or not 1 <= gap < np.inf:
        raise InputError(f"share={share!r} and gap={gap!r}: use a share between 0 and 1, and a gap of 1 or more")
    if frame.empty:
        raise InputError("frame has no rows: give the rows of run_grid")
    cheap = frame[frame["compute"] <= share * frame["compute"].max()]
    expensive = frame[frame["compute"] > gap * cheap["compute"].max()]
    if cheap.empty or expensive.empty:
        raise InputError(f"share={share!r} and gap={gap!r} leave a corner empty: the grid spans too little compute")
    return Corners(cheap.reset_index(drop=True), expensive.reset_index(drop=True))


def best_batches(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the batch size of least loss among those of one size and as many tokens, as one seed saw them.

    The rows on which Chinchilla's law, which does not know the batch size, is at its best.

    Parameters
    ----------
    frame : DataFrame
        As `run_grid` gives it; rows of each seed are chosen apart.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> frame = pd.DataFrame({"N": 9, "B": [2, 8], "K": [8, 2], "seed": 0, "loss": [3.0, 2.0], "tokens": 16})
    >>> best_batches(frame)["B"].tolist()
    [8]
    """
    return frame.loc[np.sort(frame.groupby(["N", "tokens", "seed"])["loss"].idxmin())].reset_index(drop=True)


def held_out(
    corners: Corners,
    fits: Mapping[str, Fit],
    progress: Callable[[str, float], None] | None = None,
) -> pd.DataFrame:
    """Fit laws on each seed's cheap corner and score them on that seed's expensive one.

    Seeds are then whole repetitions of the experiment, fits included.

    Parameters
    ----------
    corners : Corners
        Of a grid with a column ``seed``.
    fits : dict of str to callable
        By the law's name: takes the cheap rows of a seed and returns a function from rows of N, B and K to losses.
    progress : callable, optional
        Called after each fit with the law's name and the share of fits done, up to 1.

    Returns
    -------
    DataFrame
        For each law, seed and expensive row: the row's columns, ``model, prediction, huber`` (of the log ratio, delta
        1e-3).

    Raises
    ------
    InputError
        If a seed is in one corner alone, or a law predicts something that is no positive loss.

    Examples
    --------
    >>> frame = pd.DataFrame({"N": 9, "B": 2, "K": [1, 2, 64], "seed": 0, "loss": 2.0, "compute": [1.0, 2.0, 64.0]})
    >>> mean = lambda rows: lambda X: np.full(len(X), rows["loss"].mean())
    >>> held_out(corner(frame), {"mean": mean})["huber"].tolist()
    [0.0]
    """
    seeds = sorted(set(corners.cheap["seed"]))
    if seeds != sorted(set(corners.expensive["seed"])):
        raise InputError("the corners hold different seeds: split one grid with corner")
    parts = []
    for seed in seeds:
        cheap, expensive = (part[part["seed"] == seed].reset_index(drop=True) for part in corners)
        for name, fit in fits.items():
            prediction = fit(cheap)(design(expensive))
            huber = log_huber(expensive["loss"], prediction)
            parts.append(expensive.assign(model=name, prediction=prediction, huber=huber))
            if progress:
                progress(name, len(parts) / (len(seeds) * len(fits)))
    if not parts:
        raise InputError("fits is empty: name at least one law")
    return pd.concat(parts, ignore_index=True)


def held_out_difference(
    scored: pd.DataFrame, first: str, second: str, *, seed: int, over: str = "seeds", resamples: int = 2000
) -> stats.Interval:
    """Bootstrap the difference of two laws' mean Huber errors on the expensive corner.

    Parameters
    ----------
    scored : DataFrame
        As `held_out` gives it.
    first, second : str
        Names of laws; a positive difference means that the first errs more.
    seed, resamples : int
        Of the resampling.
    over : {"seeds", "runs"}
        What is resampled, the other averaged: training seeds, or configurations. Three seeds have ten different
        resamples: the interval is then no more than the range of the seeds.

    Returns
    -------
    Interval

    Raises
    ------
    InputError
        If a law is unknown, `over` is neither, or there are fewer than two to resample.

    Examples
    --------
    >>> scored = pd.DataFrame({"N": 1, "B": 1, "K": 1, "seed": [0, 1, 0, 1], "model": [*"aabb"], "huber": [3, 4, 1, 2]})
    >>> held_out_difference(scored, "a", "b", seed=0)
    Interval(value=2.0, low=2.0, high=2.0)
    """
    groups = {"seeds": ["seed"], "runs": ["N", "B", "K"]}
    if over not in groups:
        raise InputError(f"over={over!r} must be 'seeds' or 'runs'")
    for name in (first, second):
        if name not in set(scored["model"]):
            raise InputError(f"scored has no model {name!r}, only {', '.join(sorted(set(scored['model'])))}")
    means = scored.pivot_table(index=groups[over], columns="model", values="huber", aggfunc="mean")
    return stats.paired_difference(means[first].to_numpy(), means[second].to_numpy(), seed=seed, resamples=resamples)
