"""Sets of the NQS paper's measured runs that its claims are about.

Li and Maddison (ICML 2026, arXiv 2605.09154) fit 64 training runs and predict 64 test runs, most of them of more
compute; nine runs of small batch are in neither. Every function takes the frame that `measurements.read` gives and
returns rows of it.
"""

import numpy as np
import pandas as pd

from icml26.errors import InputError
from icml26.nqs.measurements import PLANES, need_columns

__all__ = ["LARGEST_TRAINING_BUDGET", "compute_gap", "holdout_rows", "small_batch", "split_at", "train_rows"]

LARGEST_TRAINING_BUDGET = 59.0  # PFLOP, of the released runs


def train_rows(frame: pd.DataFrame, plane: str | None = None, *, filtered: bool = False) -> pd.DataFrame:
    """Select the training rows.

    Parameters
    ----------
    frame : DataFrame
        As `read` gives it.
    plane : {"isoflop", "isotoken"}, optional
        Only these.
    filtered : bool
        False for the rows that the paper fits, True for the small batches that it leaves out.

    Returns
    -------
    DataFrame

    Raises
    ------
    InputError
        If the plane is unknown or a column is missing.

    Examples
    --------
    >>> len(train_rows(measurements.load())), len(train_rows(measurements.load(), filtered=True))  # doctest: +SKIP
    (64, 9)
    """
    rows = _plane(frame, plane)
    return rows[(rows["split"] == "train") & (rows["filtered"] == filtered)]


def holdout_rows(frame: pd.DataFrame, plane: str | None = None) -> pd.DataFrame:
    """Select the test rows.

    Parameters
    ----------
    frame : DataFrame
        As `read` gives it.
    plane : {"isoflop", "isotoken"}, optional
        Only these.

    Returns
    -------
    DataFrame

    Raises
    ------
    InputError
        If the plane is unknown or a column is missing.

    Examples
    --------
    >>> [len(holdout_rows(measurements.load(), plane)) for plane in PLANES]  # doctest: +SKIP
    [30, 34]
    """
    rows = _plane(frame, plane)
    return rows[rows["split"] == "test"]


def split_at(frame: pd.DataFrame, budget: float = 944.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split anew at a smaller gap: all isoflop rows up to a budget train, those above it test.

    With the default the largest test budget is 64 times the largest of training. The isotoken rows of the training
    split train as well; those of the test split are in neither set.

    Parameters
    ----------
    frame : DataFrame
        As `read` gives it.
    budget : float
        Largest nominal training budget, in PFLOP.

    Returns
    -------
    train, test : DataFrame

    Raises
    ------
    InputError
        If either set would be empty of isoflop rows.

    Examples
    --------
    >>> [len(rows) for rows in split_at(measurements.load())]  # doctest: +SKIP
    [77, 17]
    """
    isoflop = _plane(frame, "isoflop")
    isoflop = isoflop[~isoflop["filtered"]]
    below, above = isoflop[isoflop["C"] <= budget], isoflop[isoflop["C"] > budget]
    if below.empty or above.empty:
        budgets = sorted(set(isoflop["C"]))
        raise InputError(f"budget={budget!r} leaves no isoflop rows on one side; the budgets are {budgets} PFLOP")
    return pd.concat([below, train_rows(frame, "isotoken")]).sort_index(), above


def small_batch(frame: pd.DataFrame, max_batch: int = 192) -> dict[str, pd.DataFrame]:
    """Select the runs whose batch is small: those kept out of the fit, and the test rows on the isotoken plane.

    Parameters
    ----------
    frame : DataFrame
        As `read` gives it.
    max_batch : int
        Largest batch of a test row, in sequences.

    Returns
    -------
    dict of str to DataFrame
        ``both``, ``filtered`` and ``isotoken``.

    Raises
    ------
    InputError
        If a column is missing.

    Examples
    --------
    >>> {name: len(rows) for name, rows in small_batch(measurements.load()).items()}  # doctest: +SKIP
    {'both': 13, 'filtered': 9, 'isotoken': 4}
    """
    filtered, test = train_rows(frame, filtered=True), holdout_rows(frame, "isotoken")
    test = test[test["B"] <= max_batch]
    return {"both": pd.concat([filtered, test]), "filtered": filtered, "isotoken": test}


def compute_gap(frame: pd.DataFrame, reference: float = LARGEST_TRAINING_BUDGET) -> pd.Series:
    """Divide each row's nominal compute by the largest of the training runs.

    Parameters
    ----------
    frame : DataFrame
        With the column ``C``.
    reference : float
        Largest training budget, in the unit of ``C``.

    Returns
    -------
    Series
        Without unit; 4, 16, 64, 256 and 1025 on the released isoflop test rows.

    Raises
    ------
    InputError
        If the reference is not positive or the column is missing.

    Examples
    --------
    >>> compute_gap(pd.DataFrame({"C": [59.0, 236.0]})).tolist()
    [1.0, 4.0]
    """
    need_columns(frame, "C")
    if isinstance(reference, bool) or not isinstance(reference, int | float | np.number) or not reference > 0:
        raise InputError(f"reference={reference!r} must be a positive budget, in the unit of the column C")
    return frame["C"] / reference


def _plane(frame: pd.DataFrame, plane: str | None) -> pd.DataFrame:
    need_columns(frame, "split", "plane", "filtered", "C")
    if plane is None:
        return frame
    if plane not in PLANES:
        raise InputError(f"plane={plane!r} is unknown; give {' or '.join(map(repr, PLANES))}")
    return frame[frame["plane"] == plane]
