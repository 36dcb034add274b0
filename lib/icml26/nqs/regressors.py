"""The noisy quadratic system as a scikit-learn regressor from (N, B, K) to the loss.

The paper is Li and Maddison (ICML 2026, arXiv 2605.09154). As there, the constant-step form is fitted and by default
the adjusted one predicts. The law is `icml26.nqs.law`'s, the search `icml26.nqs.fitting`'s, the residual bootstrap of
the intervals `icml26.nqs.intervals`'.
"""

import os
from collections.abc import Callable
from numbers import Real
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from icml26.checks import whole
from icml26.errors import InputError
from icml26.nqs.fitting import Search, fit, refit
from icml26.nqs.intervals import prediction_interval, resampled_fits
from icml26.nqs.law import INITIAL_VARIANCE, Theta, adjusted_loss, loss
from icml26.stats import Interval

__all__ = ["NQSRegressor"]


class NQSRegressor(RegressorMixin, BaseEstimator):
    """Predict the loss of a training run from parameters N, sequences per step B and steps K.

    It minimises ``sum_i rho(ln y_i - ln L(N_i, B_i, K_i))`` over the seven parameters of `icml26.nqs.Theta`, with L the
    constant-step form and rho half the square or the Huber loss. X has the columns N, B and K in that order; N and K
    are whole numbers of at least 1, B is above 0.

    Parameters
    ----------
    form : {"adjusted", "standard"}
        What predicts: the step that shrinks as the weights grow, or the constant step.
    loss : {"squared", "huber"}
        Of the errors of ln loss, in the fit.
    tie : bool
        Whether r = q, as in the older noisy quadratic model.
    starts : int
        Most starts of the search.
    norm : float, optional
        Initial squared norm per parameter, s / N, of the adjusted form; by default 0.02 squared.
    random_state : int, RandomState or None
        Seed of the starts.
    search : icml26.nqs.fitting.Search, optional
        Where starts come from and when to stop.

    Attributes
    ----------
    theta_ : Theta
        The parameters.
    objective_ : float
        Their objective.
    search_ : icml26.nqs.fitting.Fit
        What the search saw.
    n_features_in_ : int
        3.

    Examples
    --------
    >>> from icml26.nqs.law import RELEASED
    >>> X = np.array([[n, b, k] for n in (1e6, 1e7, 1e8) for b in (32, 512) for k in (100, 3000)])
    >>> y = loss(RELEASED, *X.T).total
    >>> model = NQSRegressor(form="standard").fit(X, y)
    >>> bool(np.allclose(model.predict(X), y, rtol=1e-3))
    True
    """

    def __init__(
        self,
        form: str = "adjusted",
        loss: str = "squared",
        tie: bool = False,
        starts: int = 2000,
        norm: float | None = None,
        random_state: Any = 0,
        search: Search | None = None,
    ) -> None:
        self.form = form
        self.loss = loss
        self.tie = tie
        self.starts = starts
        self.norm = norm
        self.random_state = random_state
        self.search = search

    def fit(
        self, X: Float[ArrayLike, "runs 3"], y: Float[ArrayLike, " runs"], progress: Callable[[str], None] | None = None
    ) -> Self:
        """Fit the parameters.

        Parameters
        ----------
        X
            Columns N, B and K, at least 7 runs (6 if tied).
        y
            Losses in nats per token, above 0.
        progress
            Called with one line for each round of starts.

        Returns
        -------
        NQSRegressor
            Itself.

        Raises
        ------
        InputError
            If the runs or an option are out of range.
        """
        self._check_options()
        X, y = validate_data(self, X, y, dtype=float, y_numeric=True, ensure_min_samples=7 - self.tie)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.search_ = fit(
            X, y, starts=self.starts, seed=seed, loss=self.loss, tie=self.tie, search=self.search, progress=progress
        )
        self.theta_, self.objective_ = self.search_.theta, self.search_.objective
        self._runs, self._resampled = (X, y), {}
        # Intervals refit what was fitted, whatever the options have become since.
        delta = (self.search or Search()).delta
        self._refit = {"loss": self.loss, "tie": self.tie, "delta": delta, "tolerance": 1e-6}
        return self

    def predict(self, X: Float[ArrayLike, "runs 3"]) -> Float[np.ndarray, " runs"]:
        """Predict losses.

        Parameters
        ----------
        X
            Columns N, B and K.

        Returns
        -------
        array
            Losses in nats per token.

        Raises
        ------
        InputError
            If X or an option that was set since the fit is out of range.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self, "theta_")
        self._check_options()
        return self._predict(self.theta_, validate_data(self, X, dtype=float, reset=False))

    def predict_interval(
        self,
        X: Float[ArrayLike, "runs 3"],
        level: float = 0.95,
        *,
        resamples: int = 100,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> Interval:
        """Predict losses with intervals for single new runs, by the residual bootstrap of ``icml26.nqs.intervals``.

        Refits start from the fitted parameters; they are kept, so that a second call takes no time.

        Parameters
        ----------
        X
            Columns N, B and K.
        level
            Share of new runs that the interval is to hold.
        resamples
            Refits.
        seed
            Of the resampling.
        progress
            Called with one line for every tenth of the refits.

        Returns
        -------
        Interval
            ``value``, ``low`` and ``high``, in nats per token.

        Raises
        ------
        InputError
            If an argument is out of range, or the parameters came from a file, without runs.
        """
        value = self.predict(X)
        if self._runs is None:
            raise InputError(
                "the parameters were read from a file and have no runs to resample; call fit for intervals"
            )
        X = np.asarray(X, dtype=float)
        runs, y = self._runs
        parameters = 7 - self._refit["tie"]
        whole("seed", seed, 0)
        whole("resamples", resamples, 2)
        if (resamples, seed) not in self._resampled:
            self._resampled[resamples, seed] = resampled_fits(
                lambda drawn: refit(runs, drawn, self.theta_, **self._refit)[0],
                loss(self.theta_, *runs.T).total,
                y,
                parameters=parameters,
                resamples=resamples,
                seed=seed,
                progress=progress,
            )
        predictions = np.stack([self._predict(theta, X) for theta in self._resampled[resamples, seed]])
        residuals = np.log(y / self._predict(self.theta_, runs))
        return prediction_interval(value, predictions, residuals, parameters=parameters, level=level)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write the parameters as JSON with the official package's keys, as `Theta.to_json` does."""
        check_is_fitted(self, "theta_")
        return self.theta_.to_json(path)

    @classmethod
    def from_json(cls, source: str | os.PathLike[str], **options: Any) -> Self:
        """Make a regressor that predicts with parameters from a JSON file or text.

        Parameters
        ----------
        source
            As in `Theta.from_json`.
        **options
            Of the constructor.

        Returns
        -------
        NQSRegressor
            Fitted, but without an objective and without intervals.

        Raises
        ------
        InputError
            If the source or an option is wrong.

        Examples
        --------
        >>> from icml26.nqs.law import RELEASED
        >>> NQSRegressor.from_json(RELEASED.to_json()).predict([[1e9, 512, 20_000]]).round(3).tolist()
        [2.079]
        """
        model = cls(**options)
        model._check_options()
        model.theta_, model.n_features_in_, model._runs = Theta.from_json(source), 3, None
        return model

    def _predict(self, theta: Theta, X: np.ndarray) -> np.ndarray:
        if self.form == "standard":
            return loss(theta, *X.T).total
        return adjusted_loss(theta, *X.T, norm=(INITIAL_VARIANCE if self.norm is None else self.norm) * X[:, 0]).total

    def _check_options(self) -> None:
        if self.form not in ("adjusted", "standard"):
            raise InputError(f"form={self.form!r} must be 'adjusted' or 'standard'")
        if not isinstance(self.tie, bool | np.bool_):
            raise InputError(f"tie={self.tie!r} must be True or False")
        number = isinstance(self.norm, Real) and not isinstance(self.norm, bool)
        if self.norm is not None and not (number and 0 < self.norm < np.inf):
            raise InputError(f"norm={self.norm!r} must be above 0, or None for {INITIAL_VARIANCE:g} per parameter")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True  # the checks' targets have nothing to do with N, B and K
        return tags
