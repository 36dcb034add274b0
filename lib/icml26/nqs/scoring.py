"""Scores of loss predictions on measured runs, by model, set of runs and compute gap.

The score is that of Li and Maddison (ICML 2026, arXiv 2605.09154): the mean Huber loss, delta 1e-3, of log losses.
Models enter as functions from rows of N, B and K to losses, so that fitted regressors, ablations and plain formulas
compare alike; their fits stay fixed while runs are resampled (`icml26.stats`). Differences between two models are left
to `comparison`, choices of configurations and times to `selection`.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float, Float64
from numpy.typing import ArrayLike

from icml26 import stats
from icml26.errors import InputError
from icml26.nqs.measurements import design, need_columns
from icml26.nqs.rows import LARGEST_TRAINING_BUDGET, compute_gap

__all__ = ["DELTA", "Predict", "by_gap", "log_huber", "log_square", "predicted_losses", "predictions", "scores"]

DELTA = 1e-3  # where the Huber loss turns linear, in log loss

Predict = Callable[[Float64[np.ndarray, "runs 3"]], Float64[np.ndarray, " runs"]]
"""Maps rows of N, B and K to losses, such as the `predict` method of a fitted regressor."""


def log_huber(
    y: Float[ArrayLike, "*runs"], prediction: Float[ArrayLike, "*runs"], delta: float = DELTA
) -> Float64[np.ndarray, "*runs"]:
    """Return each run's Huber loss of the log ratio of prediction and measurement.

    Parameters
    ----------
    y, prediction : array-like
        Losses, positive.
    delta : float
        Where it turns from x^2/2 to delta (|x| - delta/2).

    Returns
    -------
    float64 array
        Without unit; the paper shows means in units of 1e-5.

    Raises
    ------
    InputError
        If a loss is not a positive number, shapes differ, or delta is not positive.

    Examples
    --------
    >>> log_huber([1.0, 1.0], [np.exp(0.0005), np.exp(0.0105)]).round(9).tolist()
    [1.25e-07, 1e-05]
    """
    if isinstance(delta, bool) or not isinstance(delta, int | float | np.number) or not 0 < delta < np.inf:
        raise InputError(f"delta={delta!r} must be a positive number, such as 1e-3")
    size = np.abs(_log_ratio(y, prediction))
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def log_square(y: Float[ArrayLike, "*runs"], prediction: Float[ArrayLike, "*runs"]) -> Float64[np.ndarray, "*runs"]:
    """Return each run's squared log ratio of prediction and measurement.

    Parameters
    ----------
    y, prediction : array-like
        Losses, positive.

    Returns
    -------
    float64 array
        Without unit.

    Raises
    ------
    InputError
        As `log_huber`.

    Examples
    --------
    >>> log_square([1.0], [np.exp(0.5)]).round(12).tolist()
    [0.25]
    """
    return _log_ratio(y, prediction) ** 2


def predicted_losses(frame: pd.DataFrame, predict: Predict) -> Float64[np.ndarray, " runs"]:
    """Return a model's predictions for measured runs, checked.

    Parameters
    ----------
    frame : DataFrame
        Measured runs, with the columns ``N, B, K, loss``.
    predict : callable
        The model.

    Returns
    -------
    float64 array, shape (runs,)
        In nats per token.

    Raises
    ------
    InputError
        If a column is missing, or the model does not give one loss for each run.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": [10, 20], "B": 1, "K": 1, "loss": [2.0, 1.0]})
    >>> predicted_losses(runs, lambda X: 20 / X[:, 0]).tolist()
    [2.0, 1.0]
    """
    if not callable(predict):
        raise InputError(f"predict={predict!r} must map rows of N, B and K to losses, such as fitted.predict")
    X = design(frame)
    need_columns(frame, "loss")
    predicted = np.asarray(predict(X), dtype=float)
    if predicted.shape != (len(frame),):
        raise InputError(f"a model gave shape {predicted.shape} for {len(frame)} runs; it must give one loss for each")
    return predicted


def predictions(frame: pd.DataFrame, models: Mapping[str, Predict]) -> pd.DataFrame:
    """Tabulate what each model predicts for each run.

    Parameters
    ----------
    frame : DataFrame
        Measured runs, with the columns ``N, B, K, loss``.
    models : dict of str to callable
        The models.

    Returns
    -------
    DataFrame
        A row for each model and run: the run's columns, ``model``, ``prediction`` (nats per token) and ``huber``.

    Raises
    ------
    InputError
        If a column is missing, or a model does not give one positive loss for each row.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": [10, 20], "B": 1, "K": 1, "loss": [2.0, 1.0]})
    >>> predictions(runs, {"inverse": lambda X: 20 / X[:, 0]})["prediction"].tolist()
    [2.0, 1.0]
    """
    tables = []
    for name, predict in _models(models).items():
        predicted = predicted_losses(frame, predict)
        huber = log_huber(frame["loss"], predicted)
        tables.append(frame.assign(model=name, prediction=predicted, huber=huber))
    return pd.concat(tables, ignore_index=True)


def scores(
    sets: Mapping[str, pd.DataFrame], models: Mapping[str, Predict], *, seed: int, resamples: int = 2000
) -> pd.DataFrame:
    """Tabulate the mean Huber loss of each model on each set of runs.

    Parameters
    ----------
    sets : dict of str to DataFrame
        Measured runs, two or more in each.
    models : dict of str to callable
        The models.
    seed, resamples : int
        Of the bootstrap over runs.

    Returns
    -------
    DataFrame
        ``set, model, runs, huber, low, high, squared``: mean Huber loss with its 95 % interval and the mean squared log
        ratio, without unit.

    Raises
    ------
    InputError
        As `predictions`, or if a set has fewer than two runs.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": [10, 20], "B": 1, "K": 1, "loss": [2.0, 1.0]})
    >>> scores({"both": runs}, {"inverse": lambda X: 20 / X[:, 0]}, seed=0)["huber"].tolist()
    [0.0]
    """
    rows = []
    for name, frame in sets.items():
        for model, predict in _models(models).items():
            predicted = predicted_losses(frame, predict)
            found = stats.bootstrap_interval(
                np.mean, log_huber(frame["loss"], predicted), seed=seed, resamples=resamples
            )
            squared = float(log_square(frame["loss"], predicted).mean())
            rows.append((name, model, len(frame), *found, squared))
    return pd.DataFrame(rows, columns=["set", "model", "runs", "huber", "low", "high", "squared"])


def by_gap(
    frame: pd.DataFrame,
    models: Mapping[str, Predict],
    *,
    seed: int,
    reference: float = LARGEST_TRAINING_BUDGET,
    resamples: int = 2000,
) -> pd.DataFrame:
    """Tabulate each model's mean Huber loss at each nominal compute.

    Parameters
    ----------
    frame : DataFrame
        Measured runs, with the columns ``N, B, K, C, loss``.
    models : dict of str to callable
        The models.
    seed, resamples : int
        Of the bootstrap over the runs of a budget.
    reference : float
        Largest training budget, in the unit of ``C``.

    Returns
    -------
    DataFrame
        ``C, gap, model, runs, huber, low, high``; the 95 % interval is NaN for a budget with a single run.

    Raises
    ------
    InputError
        As `predictions`.

    Examples
    --------
    >>> runs = pd.DataFrame({"N": [10, 20, 20], "B": 1, "K": 1, "loss": [2.0, 1.0, 1.0], "C": [59.0, 236.0, 236.0]})
    >>> by_gap(runs, {"inverse": lambda X: 20 / X[:, 0]}, seed=0)[["gap", "runs", "huber"]].values.tolist()
    [[1.0, 1.0, 0.0], [4.0, 2.0, 0.0]]
    """
    table = predictions(frame.assign(gap=compute_gap(frame, reference)), models)
    rows = []
    for key, runs in table.groupby(["C", "gap", "model"], sort=False):
        huber = runs["huber"]
        found = huber.mean(), np.nan, np.nan
        if len(huber) > 1:
            found = stats.bootstrap_interval(np.mean, huber, seed=seed, resamples=resamples)
        rows.append((*key, len(huber), *found))
    found = pd.DataFrame(rows, columns=["C", "gap", "model", "runs", "huber", "low", "high"])
    return found.sort_values("gap", kind="stable", ignore_index=True)


def _log_ratio(y: ArrayLike, prediction: ArrayLike) -> np.ndarray:
    logs = []
    for name, values in (("y", y), ("prediction", prediction)):
        values = np.asarray(values, dtype=float)
        if (wrong := ~((values > 0) & np.isfinite(values))).any():
            raise InputError(f"{name} has the value {values[wrong][0]}: losses must be positive numbers, in nats")
        logs.append(np.log(values))
    if logs[0].shape != logs[1].shape:
        raise InputError(
            f"y has shape {logs[0].shape} and prediction {logs[1].shape}; give one prediction for each run"
        )
    return logs[1] - logs[0]


def _models(models: Mapping[str, Predict]) -> Mapping[str, Predict]:
    if not isinstance(models, Mapping) or not models or not all(callable(model) for model in models.values()):
        raise InputError(f"models={models!r} must map names to functions of N, B and K, such as fitted.predict")
    return models
