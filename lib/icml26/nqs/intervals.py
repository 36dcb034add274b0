"""Prediction intervals of fitted loss laws by the residual bootstrap on ln loss.

The paper (NQS, Li and Maddison, arXiv 2605.09154) gives no uncertainty, as far as we know. Errors of a law are taken as
multiplicative and exchangeable between runs: losses are drawn anew as fitted values times exp(a residual), the law is
refitted to each draw (`resampled_fits`), and every prediction of every refit is again multiplied by every residual
(`prediction_interval`). Residuals of ln loss are centred and widened by ``sqrt(runs / (runs - parameters))``, because a
fit makes them smaller than the errors. So an interval holds the uncertainty of the parameters and the scatter of single
runs, but not that the law itself may bend outside the runs. How a law is fitted and what it predicts is for its
regressor.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from icml26.checks import whole
from icml26.errors import InputError
from icml26.stats import Interval

__all__ = ["prediction_interval", "resampled_fits"]

Fitted = TypeVar("Fitted")
_WORKSPACE = 1 << 22


def resampled_fits(
    refit: Callable[[Float[np.ndarray, " runs"]], Fitted],
    fitted: Float[np.ndarray, " runs"],
    y: Float[np.ndarray, " runs"],
    *,
    parameters: int,
    resamples: int = 100,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[Fitted]:
    """Refit a law to losses that are drawn anew around its fit.

    Parameters
    ----------
    refit
        From losses to a fitted law, or to its parameters.
    fitted
        The law's values at the runs.
    y
        Measured losses, above 0.
    parameters
        How many numbers were fitted.
    resamples
        How many draws.
    seed
        Of the draws.
    progress
        Called with one line for every tenth of the refits.

    Returns
    -------
    list
        What ``refit`` returns for each draw.

    Raises
    ------
    InputError
        If there are no more runs than parameters, or fewer than two resamples.

    Examples
    --------
    >>> y = np.array([2.0, 2.1, 1.9, 2.0])
    >>> means = resampled_fits(np.mean, np.full(4, y.mean()), y, parameters=1, resamples=50)
    >>> bool(1.9 < min(means) < max(means) < 2.1)
    True
    """
    whole("resamples", resamples, 2)
    whole("seed", seed, 0)
    residuals = _errors(np.log(y / fitted), parameters)
    rng = np.random.default_rng(seed)
    found = []
    for i in range(resamples):
        found.append(refit(fitted * np.exp(rng.choice(residuals, y.size))))
        if progress is not None and (i + 1) % -(-resamples // 10) == 0:
            progress(f"{i + 1} of {resamples} refits")
    return found


def prediction_interval(
    value: Float[np.ndarray, " runs"],
    predictions: Float[np.ndarray, "resamples runs"],
    residuals: Float[np.ndarray, " residuals"],
    *,
    parameters: int | None = None,
    level: float = 0.95,
) -> Interval:
    """Quantiles of the predictions of all refits times all residuals.

    Parameters
    ----------
    value
        The fitted law's predictions.
    predictions
        Those of each refit.
    residuals
        Errors of ln loss of the predicting law at the runs it was fitted to.
    parameters
        How many numbers were fitted, to centre and widen the residuals as `resampled_fits` does; by default they are
        taken as they are.
    level
        Share of new runs that the interval is to hold.

    Returns
    -------
    Interval
        ``value``, ``low`` and ``high`` for each prediction. The value is what was given; residuals that are not centred
        move both ends, even beyond it.

    Raises
    ------
    InputError
        If the level is not between 0 and 1, or there are no more residuals than parameters.

    Examples
    --------
    >>> found = prediction_interval(np.ones(1), np.ones((10, 1)), np.log([0.9, 1.0, 1.1]), level=0.99)
    >>> bool(abs(found.low[0] - 0.9) < 0.01 and abs(found.high[0] - 1.1) < 0.01)
    True
    """
    if not isinstance(level, float | np.floating) or not 0 < level < 1:
        raise InputError(f"level={level!r} must lie between 0 and 1, such as 0.95")
    if parameters is not None:
        residuals = _errors(residuals, parameters)
    ends = (1 - level) / 2, (1 + level) / 2
    size = max(1, _WORKSPACE // (len(predictions) * len(residuals)))
    quantiles = [
        np.quantile(np.log(batch)[:, None] + residuals[:, None], ends, axis=(0, 1))
        for batch in np.split(predictions, range(size, predictions.shape[1], size), axis=1)
    ]
    low, high = np.exp(np.hstack(quantiles))
    return Interval(value, low, high)


def _errors(residuals: Float[np.ndarray, " runs"], parameters: int) -> Float[np.ndarray, " runs"]:
    """Residuals of a fit, centred, and widened to the size of the errors."""
    runs = residuals.size
    if runs <= parameters:
        raise InputError(f"{runs} runs leave no residual to resample after {parameters} parameters; give more runs")
    return (residuals - residuals.mean()) * np.sqrt(runs / (runs - parameters))
