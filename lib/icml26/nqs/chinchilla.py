"""Chinchilla's law of the loss as a scikit-learn regressor: the baseline of the NQS chapter.

Hoffmann et al. (2022, arXiv 2203.15556), approach 3: loss = E + A / N^alpha + B / D^beta for N parameters and D tokens.
It is fitted to log losses with the Huber loss, summed over runs (Besiroglu et al. 2024, arXiv 2404.10102), or by
variable projection (arXiv 2603.22339), where E, A and B are solved for at each alpha and beta. Published constants
belong to other data and are not here. Scoring is left to `comparison`.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Float64
from scipy.optimize import least_squares, minimize, nnls
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from icml26.checks import whole
from icml26.errors import InputError
from icml26.nqs.intervals import prediction_interval, resampled_fits
from icml26.nqs.measurements import SEQUENCE_LENGTH
from icml26.nqs.problem import LOSS_RANGE
from icml26.stats import Interval

__all__ = ["ChinchillaRegressor"]

LOSSES = ("huber", "projection")
EXPONENTS = np.linspace(0.05, 1.55, 11)  # starts of alpha and beta; three times as many end nowhere else
STEEPEST = 5.0


class ChinchillaRegressor(RegressorMixin, BaseEstimator):
    """Predict losses from parameters and tokens alone: E + A / N^alpha + B / D^beta.

    It takes the same three columns N, B and K as the NQS regressor and uses batch size and steps only through
    D = B K times the sequence length, so it is constant where they are traded for each other.

    Parameters
    ----------
    sequence_length : int
        Tokens per sequence.
    loss : {"huber", "projection"}
        ``huber``: the least sum of Huber losses of log residuals. ``projection``: the least sum of squared relative
        errors, by variable projection.
    delta : float
        Where Huber's loss turns from quadratic to linear, in log loss.

    Attributes
    ----------
    E_, A_, B_ : float
        Irreducible loss and the two coefficients, not negative.
    alpha_, beta_ : float
        Exponents of parameters and of tokens.
    objective_ : float
        What was minimised, summed over the runs: Huber losses, or halves of squared relative errors.
    n_features_in_ : int
        3.

    Examples
    --------
    >>> X = [[n, b, k] for n in (1e6, 1e7, 1e8) for b in (8, 64) for k in (100, 1000, 10000)]
    >>> truth = lambda X: np.array([1.8 + 400 / n**0.35 + 2000 / (128 * b * k) ** 0.37 for n, b, k in X])
    >>> model = ChinchillaRegressor().fit(X, truth(X))
    >>> bool(abs(model.predict([[1e9, 256, 1e5]]) - truth([[1e9, 256, 1e5]])) < 0.01)
    True
    """

    def __init__(self, sequence_length: int = SEQUENCE_LENGTH, loss: str = "huber", delta: float = 1e-3) -> None:
        self.sequence_length = sequence_length
        self.loss = loss
        self.delta = delta

    def fit(self, X: Float[np.ndarray, "runs 3"], y: Float[np.ndarray, " runs"]) -> "ChinchillaRegressor":
        """Fit the five numbers to measured losses.

        Parameters
        ----------
        X : array-like, shape (runs, 3)
            Columns N (parameters), B (batch size in sequences) and K (steps), all positive.
        y : array-like, shape (runs,)
            Losses, positive.

        Returns
        -------
        ChinchillaRegressor
            This regressor, fitted.

        Raises
        ------
        InputError
            If X has not three columns, a value is not positive, or an option is not one of those known.
        """
        self._check_options()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        y = np.asarray(y, dtype=float)
        wrong = ~((y >= LOSS_RANGE[0]) & (y <= LOSS_RANGE[1]))
        if wrong.any():
            raise InputError(
                f"y has the value {y[wrong][0]}: losses must be positive, {LOSS_RANGE[0]:g} to {LOSS_RANGE[1]:g} nats"
            )
        # Predictions and intervals are those of what was fitted, whatever the options have become since.
        self._options = self.sequence_length, self.loss, self.delta
        logs = self._logs(X)
        law, self.objective_ = self._fitted(logs, y)
        self.E_, self.A_, self.B_, self.alpha_, self.beta_ = map(float, law)
        self._runs, self._resampled = (logs, y), {}
        return self

    def predict(self, X: Float[np.ndarray, "runs 3"]) -> Float64[np.ndarray, " runs"]:
        """Predict losses.

        Parameters
        ----------
        X : array-like, shape (runs, 3)
            Columns N, B and K, all positive.

        Returns
        -------
        float64 array, shape (runs,)
            In the unit of the losses fitted.

        Raises
        ------
        InputError
            If a value is not positive, or an option that was set since the fit is out of range.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        self._check_options()
        return _losses(self._law, self._logs(validate_data(self, X, dtype=np.float64, reset=False)))

    def predict_interval(
        self,
        X: Float[np.ndarray, "runs 3"],
        level: float = 0.95,
        *,
        resamples: int = 100,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> Interval:
        """Predict losses with intervals for single new runs, by the residual bootstrap of ``icml26.nqs.intervals``.

        Refits start from the fitted numbers; they are kept, so that a second call takes no time.

        Parameters
        ----------
        X : array-like, shape (runs, 3)
            Columns N, B and K, all positive.
        level : float
            Share of new runs that the interval is to hold.
        resamples, seed : int
            Refits, and the seed of the resampling.
        progress : callable, optional
            Called with one line for every tenth of the refits.

        Returns
        -------
        Interval
            ``value``, ``low`` and ``high``, in the unit of the losses fitted.

        Raises
        ------
        InputError
            If an argument is out of range, or there were no more runs than the law has numbers.
        """
        value = self.predict(X)
        logs, y = self._runs
        fitted = _losses(self._law, logs)
        whole("seed", seed, 0)
        whole("resamples", resamples, 2)
        if (resamples, seed) not in self._resampled:
            self._resampled[resamples, seed] = resampled_fits(
                lambda drawn: self._fitted(logs, drawn, self._law)[0],
                fitted,
                y,
                parameters=len(self._law),
                resamples=resamples,
                seed=seed,
                progress=progress,
            )
        new = self._logs(np.asarray(X, dtype=float))
        predictions = np.stack([_losses(law, new) for law in self._resampled[resamples, seed]])
        return prediction_interval(value, predictions, np.log(y / fitted), parameters=len(self._law), level=level)

    @property
    def _law(self) -> Float64[np.ndarray, " 5"]:
        return np.array([self.E_, self.A_, self.B_, self.alpha_, self.beta_])

    def _fitted(
        self,
        logs: Float64[np.ndarray, "runs 2"],
        y: Float64[np.ndarray, " runs"],
        start: Float64[np.ndarray, " 5"] | None = None,
    ) -> tuple[Float64[np.ndarray, " 5"], float]:
        """E, A, B, alpha, beta and the objective: from a known law nearby, or from a grid of exponents."""
        _, loss, delta = self._options
        # Centred predictors keep A and B of the size of the losses, whatever the exponents.
        centre = logs.mean(0)
        if start is None or loss == "projection":
            exponents, coefficients, objective = _project(logs - centre, y, None if start is None else start[3:])
        else:
            exponents, coefficients = start[3:], start[:3] * np.exp([0, *-start[3:] * centre])
        if loss == "huber":
            exponents, coefficients, objective = _polish(logs - centre, y, exponents, coefficients, delta)
        return np.concatenate([coefficients * np.exp([0, *exponents * centre]), exponents]), float(objective)

    def _check_options(self) -> None:
        length, delta = self.sequence_length, self.delta
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
            raise InputError(f"sequence_length={length!r} must be a positive integer: the tokens per sequence")
        if self.loss not in LOSSES:
            raise InputError(f"loss={self.loss!r} is unknown; give {' or '.join(map(repr, LOSSES))}")
        if isinstance(delta, bool) or not isinstance(delta, int | float | np.number) or not 1e-12 <= delta <= 1e12:
            raise InputError(f"delta={delta!r} must be a positive number, 1e-12 to 1e12, such as 1e-3")

    def _logs(self, X: Float64[np.ndarray, "runs 3"]) -> Float64[np.ndarray, "runs 2"]:
        """Logarithms of parameters and tokens."""
        if X.shape[1] != 3:
            raise InputError(f"X has n_features = {X.shape[1]}; give three columns: N, B and K")
        if not (X > 0).all():
            raise InputError(f"X has the value {X[~(X > 0)][0]}: N, B and K must be positive")
        n, b, k = np.log(X).T
        return np.stack([n, b + k + np.log(self._options[0])], axis=1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True  # the checks' targets have nothing to do with N, B and K
        return tags


def _losses(law: Float64[np.ndarray, " 5"], logs: Float64[np.ndarray, "runs 2"]) -> Float64[np.ndarray, " runs"]:
    return law[0] + np.exp(-logs * law[3:]) @ law[1:3]


def _project(
    logs: Float64[np.ndarray, "runs 2"], y: Float64[np.ndarray, " runs"], start: Float64[np.ndarray, " 2"] | None
) -> tuple[Float64[np.ndarray, " 2"], Float64[np.ndarray, " 3"], float]:
    """Minimise the sum of halves of squared relative errors; E, A and B are solved for at each pair of exponents."""

    def solve(exponents: np.ndarray) -> tuple[np.ndarray, float]:
        terms = np.exp(-logs * exponents) / y[:, None]
        coefficients, norm = nnls(np.column_stack([1 / y, terms]), np.ones_like(y))
        return coefficients, 0.5 * norm**2

    if start is None:
        grid = np.stack(np.meshgrid(EXPONENTS, EXPONENTS), axis=-1).reshape(-1, 2)
        start = min(grid, key=lambda exponents: solve(exponents)[1])
    found = minimize(
        lambda exponents: solve(exponents)[1],
        start,
        method="Nelder-Mead",
        bounds=[(0, STEEPEST)] * 2,
        options={"xatol": 1e-7, "fatol": 1e-14},
    )
    return found.x, *solve(found.x)


def _polish(
    logs: Float64[np.ndarray, "runs 2"],
    y: Float64[np.ndarray, " runs"],
    exponents: Float64[np.ndarray, " 2"],
    coefficients: Float64[np.ndarray, " 3"],
    delta: float,
) -> tuple[Float64[np.ndarray, " 2"], Float64[np.ndarray, " 3"], float]:
    """Minimise the sum of Huber losses of log residuals from there."""

    def law(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        terms = np.exp(x[3:] - logs * x[:2])
        return terms, np.exp(x[2]) + terms.sum(1)

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.log(law(x)[1] / y)

    def jacobian(x: np.ndarray) -> np.ndarray:
        terms, losses = law(x)
        return np.column_stack([-logs * terms, np.full(len(y), np.exp(x[2])), terms]) / losses[:, None]

    # A coefficient that the projection put to zero starts small, since its logarithm is what varies.
    start = np.concatenate([exponents, np.log(np.maximum(coefficients, 1e-4 * y.min()))])
    found = least_squares(
        residuals,
        start,
        jacobian,
        bounds=([0, 0, *(start[2:] - 30)], [STEEPEST, STEEPEST, *(start[2:] + 30)]),
        x_scale="jac",
        loss="huber",
        f_scale=delta,
        ftol=1e-11,
        xtol=1e-11,
        gtol=1e-14,
        max_nfev=400,
    )
    return found.x[:2], np.exp(found.x[2:]), found.cost
