"""What a model's choice of a configuration costs, and how long a model takes: claims C8 and C9 of the NQS chapter.

Li and Maddison (ICML 2026, arXiv 2605.09154) choose model size and batch size by their law. Here the choice is among
the runs that were measured at one budget, so that the regret, the measured loss of the choice less that of the best
run, needs no further training. Planning over all configurations is left to `planning`, errors to `scoring`.
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np
import pandas as pd

from icml26 import stats
from icml26.errors import InputError
from icml26.nqs.measurements import need_columns
from icml26.nqs.rows import holdout_rows
from icml26.nqs.scoring import Predict, predictions

__all__ = ["batch_regret", "mean_regret", "median_seconds", "regret", "size_regret"]


def regret(frame: pd.DataFrame, predict: Predict, choice: str, *, budget: str = "C") -> pd.DataFrame:
    """Let a model choose among the runs of each budget, and tabulate what its choice costs.

    Parameters
    ----------
    frame : DataFrame
        Measured runs, with the columns ``N, B, K, loss``, `choice` and `budget`. Budgets of a single run are left out,
        since they leave no choice.
    predict : callable
        The model.
    choice : str
        Column that tells the runs of a budget apart, such as ``"N"``.
    budget : str
        Column that groups the runs.

    Returns
    -------
    DataFrame
        ``budget, runs, chosen, best, regret, spread``, largest budget first. The regret, in nats per token, is 0 where
        the model chooses the best run; of equal predictions the first run counts. The spread is the range of the
        predictions: where it is next to nothing the model has no preference, and its choice is rounding.

    Raises
    ------
    InputError
        If a column is missing, or no budget has two runs.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": [10, 20, 40], "B": 1, "K": 1, "loss": [1.2, 1.0, 1.1], "C": 59.0})
    >>> regret(runs, lambda X: 40 / X[:, 0], "N").round(6).values.tolist()
    [[59.0, 3.0, 40.0, 20.0, 0.1, 3.0]]
    """
    need_columns(frame, choice, budget)
    rows = []
    for label, runs in predictions(frame, {"model": predict}).groupby(budget, sort=False):
        if len(runs) > 1:
            chosen, best = (runs.loc[runs[column].idxmin()] for column in ("prediction", "loss"))
            spread = np.ptp(runs["prediction"])
            rows.append((label, len(runs), chosen[choice], best[choice], chosen["loss"] - best["loss"], spread))
    if not rows:
        raise InputError(f"no {budget} has two runs to choose from; give runs that share a budget")
    found = pd.DataFrame(rows, columns=["budget", "runs", "chosen", "best", "regret", "spread"])
    return found.sort_values("budget", ascending=False, ignore_index=True)


def size_regret(frame: pd.DataFrame, predict: Predict) -> pd.DataFrame:
    """Tabulate the regret of choosing the model size at each test budget of the isoflop plane.

    Parameters
    ----------
    frame : DataFrame
        All measurements, as `measurements.read` gives them.
    predict : callable
        The model.

    Returns
    -------
    DataFrame
        As `regret`; five budgets of the released data, in PFLOP.

    Raises
    ------
    InputError
        As `regret`.

    Examples
    --------
    >>> from icml26.nqs import measurements
    >>> size_regret(measurements.load(), model.predict)["regret"].max()  # doctest: +SKIP
    0.0023
    """
    return regret(holdout_rows(frame, "isoflop"), predict, "N")


def batch_regret(frame: pd.DataFrame, predict: Predict) -> pd.DataFrame:
    """Tabulate the regret of choosing the batch size at each test budget of the isotoken plane.

    Parameters
    ----------
    frame : DataFrame
        All measurements, as `measurements.read` gives them.
    predict : callable
        The model. Chinchilla's law has no preference here beyond the rounding of B K.

    Returns
    -------
    DataFrame
        As `regret`; three budgets of the released data, in PFLOP.

    Raises
    ------
    InputError
        As `regret`.

    Examples
    --------
    >>> from icml26.nqs import measurements
    >>> batch_regret(measurements.load(), model.predict)["regret"].max()  # doctest: +SKIP
    0.0064
    """
    return regret(holdout_rows(frame, "isotoken"), predict, "B")


def mean_regret(*tables: pd.DataFrame, seed: int, resamples: int = 2000) -> stats.Interval:
    """Bootstrap the mean regret over budgets.

    Parameters
    ----------
    *tables : DataFrame
        As `size_regret` and `batch_regret` give them; their budgets are pooled.
    seed, resamples : int
        Of the bootstrap.

    Returns
    -------
    Interval
        In nats per token; 95 %.

    Raises
    ------
    InputError
        With fewer than two budgets.

    Examples
    --------
    >>> mean_regret(pd.DataFrame({"regret": [0.0, 0.0]}), pd.DataFrame({"regret": [0.0]}), seed=0).interval
    (0.0, 0.0)
    """
    if not tables:
        raise InputError("tables are missing; give those of size_regret, batch_regret or both")
    pooled = np.concatenate([table["regret"].to_numpy(dtype=float) for table in tables])
    return stats.bootstrap_interval(np.mean, pooled, seed=seed, resamples=resamples)


def median_seconds(
    call: Callable[[], object],
    *,
    repeats: int,
    seed: int,
    resamples: int = 2000,
    clock: Callable[[], float] = perf_counter,
) -> stats.Interval:
    """Time a call repeatedly and bootstrap the median.

    Parameters
    ----------
    call : callable
        What to time, without arguments; it is not called beforehand.
    repeats : int
        How often, 2 or more.
    seed, resamples : int
        Of the bootstrap over calls.
    clock : callable
        Gives the time in seconds.

    Returns
    -------
    Interval
        In seconds; 95 %.

    Raises
    ------
    InputError
        If `repeats` is less than two.

    Examples
    --------
    >>> ticks = iter([0.0, 1.0, 10.0, 12.0, 20.0, 23.0])
    >>> median_seconds(lambda: None, repeats=3, seed=0, clock=lambda: next(ticks)).value
    2.0
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int | np.integer) or repeats < 2:
        raise InputError(f"repeats={repeats!r} must be an integer of at least 2, for an interval to mean anything")
    seconds = np.empty(repeats)
    for i in range(repeats):
        start = clock()
        call()
        seconds[i] = clock() - start
    return stats.bootstrap_interval(np.median, seconds, seed=seed, resamples=resamples)
