"""Tuning on problems apart, and the statistics that decide Top-W's claims about accuracy and diversity.

Tables are those of `icml26.top_w.accuracy.run_cells`, over the same problems for every sampler; with a column ``model``
as well, a problem's value is its mean over models. Settings are always chosen on one table (``calibration``) and
measured on another (``cells``). Intervals are paired bootstraps over problems.

Claims of Top-W (Gholami Davoodi et al., arXiv 2602.10346): C1 `advantage`, C2, C3 and C9b `difference`, C5
`diversity_advantage`. Fixed before any run: the best rival at each temperature is the one that is best on the
calibration problems, so that no maximum is taken over what is measured; equal values go to the first in the table.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from icml26.checks import real
from icml26.errors import InputError
from icml26.stats import Interval, bootstrap_interval, paired_difference

__all__ = [
    "advantage",
    "best_rivals",
    "best_settings",
    "difference",
    "diversity_advantage",
    "most_diverse",
    "summary",
    "tuned",
]

_CELL = ["sampler", "setting", "temperature"]
ADMITTED = 0.95  # share of greedy accuracy from which on a temperature's diversity counts (C5)


def summary(cells: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Return means over problems for each sampler, setting and temperature.

    Parameters
    ----------
    cells : DataFrame
        As `run_cells` returns it.
    seed : int
        Of the bootstrap.

    Returns
    -------
    DataFrame
        ``sampler, setting, temperature``, the means ``accuracy, distinct, kept, single``, and the ends ``low, high`` of
        the accuracy's interval, in the order of `cells`.

    Raises
    ------
    InputError
        If columns are missing or cells hold different problems.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": "greedy", "setting": "", "temperature": 1.0, "problem": [0, 1],
    ...                       "accuracy": [1.0, 1.0], "distinct": 1.0, "kept": 1.0, "single": 1.0})
    >>> summary(table)[["sampler", "accuracy", "low", "high"]].to_numpy().tolist()
    [['greedy', 1.0, 1.0, 1.0]]
    """
    values = _by_problem(cells, "accuracy")
    found = bootstrap_interval(np.mean, values.to_numpy(), seed=seed)
    means = cells.groupby(_CELL, sort=False)[["accuracy", "distinct", "kept", "single"]].mean()
    ends = pd.DataFrame({"low": found.low, "high": found.high}, index=values.index)
    return means.join(ends).reset_index()


def best_settings(calibration: pd.DataFrame) -> pd.DataFrame:
    """Choose each sampler's setting at each temperature: the most accurate on the calibration problems.

    Parameters
    ----------
    calibration : DataFrame
        As `run_cells` returns it.

    Returns
    -------
    DataFrame
        ``sampler, setting, temperature, accuracy``, one row a sampler and temperature.

    Raises
    ------
    InputError
        As in `summary`.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": "top-k", "setting": ["10", "50"], "temperature": 1.0, "problem": 0,
    ...                       "accuracy": [0.2, 0.3]})
    >>> best_settings(table)["setting"].tolist()
    ['50']
    """
    means = _by_problem(calibration, "accuracy").mean(axis=1).rename("accuracy").reset_index()
    best = means.groupby(["sampler", "temperature"], sort=False)["accuracy"].idxmax()
    return means.loc[best].reset_index(drop=True)


def tuned(cells: pd.DataFrame, settings: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table that belong to chosen settings.

    Parameters
    ----------
    cells : DataFrame
        As `run_cells` returns it.
    settings : DataFrame
        As `best_settings` returns it.

    Returns
    -------
    DataFrame
        In the order of `cells`.

    Raises
    ------
    InputError
        If a chosen cell is not in the table.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": "top-k", "setting": ["10", "50"], "temperature": 1.0, "problem": 0,
    ...                       "accuracy": [0.2, 0.3]})
    >>> tuned(table, best_settings(table))["accuracy"].tolist()
    [0.3]
    """
    kept = cells.merge(settings[_CELL], on=_CELL, how="inner")
    missing = len(settings) - len(kept[_CELL].drop_duplicates())
    if missing:
        raise InputError(f"cells lack {missing} of the {len(settings)} chosen settings; measure these as well")
    return kept


def best_rivals(calibration: pd.DataFrame, rivals: Sequence[str]) -> pd.DataFrame:
    """Choose the rival and its setting at each temperature: the most accurate on the calibration problems.

    Parameters
    ----------
    calibration : DataFrame
        As `run_cells` returns it.
    rivals : sequence of str
        Samplers to choose from.

    Returns
    -------
    DataFrame
        ``sampler, setting, temperature, accuracy``, one row a temperature.

    Raises
    ------
    InputError
        If a rival is not in the table.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": ["top-k", "top-p"], "setting": ["10", "0.9"], "temperature": 1.0, "problem": 0,
    ...                       "accuracy": [0.2, 0.3]})
    >>> best_rivals(table, ["top-k", "top-p"])["sampler"].tolist()
    ['top-p']
    """
    settings = best_settings(calibration)
    _check_known(rivals, settings)
    settings = settings[settings["sampler"].isin(rivals)]
    return settings.loc[settings.groupby("temperature", sort=False)["accuracy"].idxmax()].reset_index(drop=True)


def advantage(
    cells: pd.DataFrame,
    calibration: pd.DataFrame,
    *,
    rivals: Sequence[str],
    method: str = "Top-W",
    column: str = "accuracy",
    seed: int = 0,
) -> Interval:
    """Mean over temperatures of the method's accuracy minus that of the best tuned rival at each (claim C1).

    Parameters
    ----------
    cells, calibration : DataFrame
        As `run_cells` returns them; to be measured, and to choose settings and rivals on.
    rivals : sequence of str
        Samplers that the best is chosen from at each temperature.
    method : str
        The sampler that is compared; where it has several settings, it is tuned alike.
    column : {"accuracy", "distinct"}
        What is compared; the choice is by accuracy in any case.
    seed : int
        Of the bootstrap.

    Returns
    -------
    Interval
        Over problems.

    Raises
    ------
    InputError
        If a sampler or a chosen setting is not in the tables, or cells hold different problems.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": ["Top-W", "Top-W", "top-p", "top-p"], "setting": "", "temperature": 1.0,
    ...                       "problem": [0, 1, 0, 1], "accuracy": [0.5, 0.75, 0.25, 0.5]})
    >>> advantage(table, table, rivals=["top-p"])
    Interval(value=0.25, low=0.25, high=0.25)
    """
    sides = []
    for samplers in ([method], rivals):
        chosen = tuned(cells, best_rivals(calibration, samplers))
        sides.append(_by_problem(chosen, column).groupby(level="temperature").first())
    first, second = sides
    if not first.index.equals(second.index):
        raise InputError(f"{method} and its rivals are measured at different temperatures; measure the same ones")
    return paired_difference(first.mean().to_numpy(), second.mean().to_numpy(), seed=seed)


def difference(
    cells: pd.DataFrame,
    first: tuple[str, str],
    second: tuple[str, str],
    *,
    temperature: float,
    column: str = "accuracy",
    seed: int = 0,
) -> Interval:
    """Difference between two samplers at one temperature (claims C2, C3, C9b).

    Parameters
    ----------
    cells : DataFrame
        As `run_cells` returns it.
    first, second : tuple of str
        Sampler and setting.
    temperature : float
        One of the table's.
    column : {"accuracy", "distinct", "kept", "single"}
        What is compared.
    seed : int
        Of the bootstrap.

    Returns
    -------
    Interval
        First minus second, over problems.

    Raises
    ------
    InputError
        If a cell is not in the table.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": ["Top-W", "Top-W", "top-p", "top-p"], "setting": "", "temperature": 2.0,
    ...                       "problem": [0, 1, 0, 1], "accuracy": [0.5, 0.75, 0.25, 0.5]})
    >>> difference(table, ("Top-W", ""), ("top-p", ""), temperature=2.0).value
    0.25
    """
    values = _by_problem(cells, column)
    rows = [_row(values, *cell, temperature) for cell in (first, second)]
    return paired_difference(*rows, seed=seed)


def diversity_advantage(
    cells: pd.DataFrame,
    calibration: pd.DataFrame,
    *,
    rivals: Sequence[str],
    method: str = "Top-W",
    admitted: float = ADMITTED,
    unmatched: Literal["none", "most accurate"] = "none",
    seed: int = 0,
) -> Interval:
    """Distinct right solutions of the method minus those of the best tuned rival, at matched accuracy (claim C5).

    A sampler's score is its largest mean number of distinct right solutions over the temperatures at which its accuracy
    is at least `admitted` times that of greedy choice. The score is formed anew in every resample; each rival's
    setting, and which rival is best, are those of the largest score on the calibration problems. Differences are
    rounded to 12 digits, so that a tie is a tie.

    Parameters
    ----------
    cells, calibration, rivals, method, seed
        As in `advantage`; both tables need the sampler ``greedy``.
    admitted : float
        Share of the greedy accuracy.
    unmatched : {"none", "most accurate"}
        Score of a sampler that reaches this share at no temperature: 0, as it offers nothing at matched accuracy, or
        the distinct solutions of its most accurate temperature.

    Returns
    -------
    Interval
        Over problems.

    Raises
    ------
    InputError
        As in `advantage`.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": np.repeat(["greedy", "Top-W", "top-p"], 2), "setting": "", "temperature": 1.0,
    ...                       "problem": [0, 1] * 3, "accuracy": 1.0, "distinct": [1.0, 1, 1, 1, 3, 4]})
    >>> diversity_advantage(table, table, rivals=["top-p"]).value
    -2.5
    """
    real("admitted", admitted, above=0, high=1)
    _check_known([method, "greedy", *rivals], calibration)
    measured = _curves(cells)
    chosen = [most_diverse(calibration, names, admitted=admitted, unmatched=unmatched) for names in ([method], rivals)]
    for cell in (*chosen, ("greedy", "")):
        if cell not in measured:
            raise InputError(f"cells lack {cell}, which the calibration problems chose; measure it as well")
    arrays = [part for cell in chosen for curves in measured[cell] for part in curves]
    bounds = np.cumsum([0, *(len(curves) for cell in chosen for curves in measured[cell])])

    def statistic(greedy: Float[np.ndarray, "*batch problems"], *curves: np.ndarray, axis: int) -> np.ndarray:
        parts = [np.stack(curves[low:high]) for low, high in pairwise(bounds)]
        ours, theirs = (_score(*parts[i : i + 2], greedy[None], admitted, unmatched, axis) for i in (0, 2))
        return np.round(ours - theirs, 12)

    return bootstrap_interval(statistic, measured["greedy", ""][0][0], *arrays, seed=seed)


def most_diverse(
    calibration: pd.DataFrame,
    names: Sequence[str],
    *,
    admitted: float = ADMITTED,
    unmatched: Literal["none", "most accurate"] = "none",
) -> tuple[str, str]:
    """Choose, of some samplers, the one and its setting with the largest score of `diversity_advantage`.

    Parameters
    ----------
    calibration : DataFrame
        As `run_cells` returns it, with the sampler ``greedy``.
    names : sequence of str
        Samplers to choose from.
    admitted : float
        Share of the greedy accuracy from which on distinct solutions count.
    unmatched : {"none", "most accurate"}
        As in `diversity_advantage`.

    Returns
    -------
    (str, str)
        Sampler and setting; the first in the table where scores are equal.

    Raises
    ------
    InputError
        If a sampler is not in the table or `unmatched` is neither word.

    Examples
    --------
    >>> table = pd.DataFrame({"sampler": np.repeat(["greedy", "top-k", "top-p"], 2), "setting": "", "temperature": 1.0,
    ...                       "problem": [0, 1] * 3, "accuracy": 1.0, "distinct": [1.0, 1, 1, 1, 3, 4]})
    >>> most_diverse(table, ["top-k", "top-p"])
    ('top-p', '')
    """
    if unmatched not in ("none", "most accurate"):
        raise InputError(f"unmatched={unmatched!r} must be 'none' or 'most accurate'")
    _check_known(["greedy", *names], calibration)
    apart = _curves(calibration)
    greedy = apart["greedy", ""][0]
    known = [cell for cell in apart if cell[0] in names]
    return max(known, key=lambda cell: float(_score(*apart[cell], greedy, admitted, unmatched)))


def _score(
    accuracy: Float[np.ndarray, "temperatures *batch problems"],
    distinct: Float[np.ndarray, "temperatures *batch problems"],
    greedy: Float[np.ndarray, "any *batch problems"],
    admitted: float,
    unmatched: str,
    axis: int = -1,
) -> Float[np.ndarray, "*batch"]:
    means, spread = accuracy.mean(axis), distinct.mean(axis)
    enough = means >= admitted * greedy[:1].mean(axis) - 1e-12  # rounding must not exclude greedy choice at 1
    within = np.where(enough, spread, 0.0).max(0)
    if unmatched == "none":
        return within
    return np.where(enough.any(0), within, np.take_along_axis(spread, means.argmax(0)[None], 0)[0])


def _curves(cells: pd.DataFrame) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """For each sampler and setting, accuracy and distinct solutions as (temperatures, problems)."""
    parts = [_by_problem(cells, column) for column in ("accuracy", "distinct")]
    keys = parts[0].index.droplevel("temperature")
    return {key: tuple(part[keys == key].to_numpy() for part in parts) for key in keys.unique()}


def _by_problem(cells: pd.DataFrame, column: str) -> pd.DataFrame:
    """One row a cell in the table's order, one column a problem; the mean over models where there are several."""
    missing = {*_CELL, "problem", column} - set(cells.columns)
    if missing:
        raise InputError(f"cells lack the columns {sorted(missing)}; give a table as run_cells returns it")
    wide = cells.pivot_table(index=_CELL, columns="problem", values=column, aggfunc="mean")
    wide = wide.reindex(pd.MultiIndex.from_frame(cells[_CELL].drop_duplicates()))
    if wide.isna().any(axis=None):
        raise InputError("cells hold different problems for different samplers; measure all on the same")
    return wide


def _row(values: pd.DataFrame, sampler: str, setting: str, temperature: float) -> Float[np.ndarray, " problems"]:
    if (sampler, setting, temperature) not in values.index:
        raise InputError(f"cells lack {sampler!r} with setting {setting!r} at temperature {temperature!r}")
    return values.loc[(sampler, setting, temperature)].to_numpy()


def _check_known(samplers: Sequence[str], table: pd.DataFrame) -> None:
    unknown = [name for name in samplers if name not in set(table["sampler"])]
    if unknown or not samplers:
        raise InputError(f"samplers {unknown or samplers} are not in the table; it has {sorted(set(table['sampler']))}")
