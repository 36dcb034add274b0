"""The 137 measured pre-training losses of the NQS paper.

Li and Maddison (ICML 2026, arXiv 2605.09154) trained Pythia-like models of N parameters with B sequences of 128 tokens
per step for K steps on OpenWebText2. Runs of the isoflop plane vary the size at fixed compute; runs of the isotoken
plane trade batch size for steps at fixed size and tokens. Training runs reach 59 PFLOP, test runs 60,500. Where the
file is kept is `icml26.data`'s business; sets of its rows are in `rows`, fitting in `regressors` and `chinchilla`.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Float64
from numpy.typing import ArrayLike

from icml26 import data
from icml26.errors import InputError

__all__ = ["PLANES", "SEQUENCE_LENGTH", "compute", "design", "load", "need_columns", "read", "tokens"]

SEQUENCE_LENGTH = 128  # tokens per sequence in the released runs
PLANES = ("isoflop", "isotoken")
COLUMNS = ("N", "B", "K", "C", "loss", "split", "type", "filtered")
PFLOP = 1e15
GFLOP_PER_PFLOP = 1e6
# One isotoken curve carries two nominal budgets, because K = 312.5 was rounded up in its last run.
SAME_BUDGET = {950.0: 940.0}


def load() -> pd.DataFrame:
    """Read the released measurements from this machine.

    Returns
    -------
    DataFrame
        As `read` gives it, 137 rows; the two nominal budgets that one isotoken curve carries are made one.

    Raises
    ------
    MissingData
        If the file is not on this machine; the message names both ways to have it.

    Examples
    --------
    >>> load().groupby("split").size().to_dict()  # doctest: +SKIP
    {'test': 64, 'train': 73}
    """
    frame = read(data.path("nqs"))
    return frame.assign(C=frame["C"].replace(SAME_BUDGET))


def read(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a file of measurements in the released format.

    Parameters
    ----------
    path : path
        CSV with the columns ``N, B, K, C, loss, split, type, filtered``; C in nominal GFLOPs; ``filtered`` may be
        empty, which means False.

    Returns
    -------
    DataFrame
        ``N, B, K`` (parameters, sequences, steps), ``C`` (nominal PFLOP: a label to group by, see `compute` for the
        number), ``loss`` (nats per token), ``split`` (train or test), ``plane`` (isoflop or isotoken), ``filtered``
        (batch too small for the law without its normalisation term).

    Raises
    ------
    InputError
        If the file cannot be read or has no rows, a column is missing or there twice, or a value is not what the
        column holds.

    Examples
    --------
    >>> import io
    >>> text = "N,B,K,C,loss,split,type,filtered\\r\\n1000,8,50,940000000,3.5,test,isotoken,\\r\\n"
    >>> read(io.StringIO(text)).to_dict("records")[0]["C"]
    940.0
    """
    name = Path(path).name if isinstance(path, str | os.PathLike) else "the file"
    try:
        raw = pd.read_csv(path, dtype={"filtered": str})
    except (OSError, ValueError) as error:  # the latter from the parser, the decoder and for what is no path
        raise InputError(f"{name} is not a table: {error}; give a CSV with the columns {', '.join(COLUMNS)}") from error
    if missing := [column for column in COLUMNS if column not in raw]:
        raise InputError(f"{name} lacks the columns {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
    if twice := [column for column in COLUMNS if f"{column}.1" in raw]:  # as pandas renames a second one
        raise InputError(f"{name} has the columns {', '.join(twice)} twice; remove one of each")
    if raw.empty:
        raise InputError(f"{name} has no rows below its header; give at least one run")
    numbers = raw[["N", "B", "K", "C", "loss"]].apply(pd.to_numeric, errors="coerce")
    for column in numbers:
        _refuse(name, raw, column, ~((numbers[column] > 0) & np.isfinite(numbers[column])), "a positive number")
    for column in ("N", "B", "K"):
        inexact = (numbers[column] % 1 != 0) | (numbers[column] > 2**53)
        _refuse(name, raw, column, inexact, "a whole number of at most 2^53")
    words = {"split": ("train", "test"), "type": PLANES}
    for column, known in words.items():
        _refuse(name, raw, column, ~raw[column].isin(known), " or ".join(known))
    filtered = raw["filtered"].str.strip().str.casefold().replace("", np.nan).fillna("false")
    _refuse(name, raw, "filtered", ~filtered.isin(("true", "false")), "True, False or empty")
    return pd.DataFrame(
        {
            **{column: numbers[column].astype("int64") for column in ("N", "B", "K")},
            "C": numbers["C"] / GFLOP_PER_PFLOP,
            "loss": numbers["loss"].astype(float),
            "split": raw["split"],
            "plane": raw["type"],
            "filtered": filtered == "true",
        }
    )


def tokens(
    B: Float[ArrayLike, "*runs"], K: Float[ArrayLike, "*runs"], sequence_length: int = SEQUENCE_LENGTH
) -> Float64[np.ndarray, "*runs"]:
    """Count the training tokens, D = B K times the sequence length.

    Parameters
    ----------
    B, K : array-like
        Batch size in sequences, steps.
    sequence_length : int
        Tokens per sequence.

    Returns
    -------
    float or ndarray

    Examples
    --------
    >>> float(tokens(10, 100))
    128000.0
    """
    return np.asarray(B, dtype=float) * np.asarray(K, dtype=float) * sequence_length


def compute(
    N: Float[ArrayLike, "*runs"],
    B: Float[ArrayLike, "*runs"],
    K: Float[ArrayLike, "*runs"],
    sequence_length: int = SEQUENCE_LENGTH,
) -> Float64[np.ndarray, "*runs"]:
    """Estimate the training compute, C = 6 N D.

    Parameters
    ----------
    N, B, K : array-like
        Parameters, batch size in sequences, steps.
    sequence_length : int
        Tokens per sequence.

    Returns
    -------
    float or ndarray
        In FLOPs. The released file's nominal C lies up to 15 % beside it.

    Examples
    --------
    >>> float(compute(1e7, 384, 320_000)) / 1e15
    943.7184
    """
    return 6 * np.asarray(N, dtype=float) * tokens(B, K, sequence_length)


def design(frame: pd.DataFrame) -> Float64[np.ndarray, "runs 3"]:
    """Return the matrix of N, B and K that the regressors take.

    Parameters
    ----------
    frame : DataFrame
        With the columns ``N, B, K``.

    Returns
    -------
    float64 array, shape (runs, 3)

    Raises
    ------
    InputError
        If a column is missing.

    Examples
    --------
    >>> design(pd.DataFrame({"K": [3], "N": [1], "B": [2]}))
    array([[1., 2., 3.]])
    """
    need_columns(frame, "N", "B", "K")
    return frame[["N", "B", "K"]].to_numpy(dtype=float)


def need_columns(frame: pd.DataFrame, *columns: str) -> None:
    """Refuse a frame that lacks columns.

    Parameters
    ----------
    frame : DataFrame
        Measured runs.
    *columns : str
        What it must have.

    Raises
    ------
    InputError
        If it is no frame, or lacks one.

    Examples
    --------
    >>> need_columns(pd.DataFrame({"N": [1]}), "N", "loss")
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: frame lacks the columns loss; give measured runs, as measurements.read does
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"frame is a {type(frame).__name__}; give a DataFrame of measured runs")
    if missing := [column for column in columns if column not in frame]:
        raise InputError(f"frame lacks the columns {', '.join(missing)}; give measured runs, as measurements.read does")


def _refuse(name: str, raw: pd.DataFrame, column: str, wrong: pd.Series, expected: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong.to_numpy()))
        raise InputError(f"{name}, row {at + 1}: {column} is {raw[column].iloc[at]}; it must be {expected}")
