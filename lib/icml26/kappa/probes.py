"""Linear probes: what a hidden state says about the right option, and about the option that the model will pick.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). At one layer, two independent softmax classifiers
read the same hidden state h, the output of a decoder block at the last token of the prompt: the knowledge probe has the
right option as its target y, the prediction probe the option that the model itself picks. Labels are positions of
options as shown, 0 to k - 1. A probe is ``softmax(W'h + b)``, and W'h + b are the coordinates of h that
`icml26.kappa.intervention` moves.

`LinearProbe` is L2-regularised logistic regression on standardised features, a convex problem without a seed, its
scaler folded into W and b so that they apply to h itself. The paper's own training is in `icml26.kappa.adam`. Splitting
by question, so that all orders of one are on the same side, is for the caller.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["LinearProbe", "Probe"]


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear softmax classifier of hidden states.

    Parameters
    ----------
    weights
        W, width x classes: one column per option.
    bias
        b, one per option.

    Raises
    ------
    InputError
        If shapes do not fit or a value is not finite.

    Examples
    --------
    >>> Probe(np.eye(2), np.zeros(2)).logits([[3.0, 4.0]])
    array([[3., 4.]])
    """

    weights: Float[np.ndarray, "width classes"]
    bias: Float[np.ndarray, " classes"]

    def __post_init__(self) -> None:
        for name in ("weights", "bias"):
            try:
                found = np.array(getattr(self, name), dtype=np.float64)
            except (TypeError, ValueError):
                raise InputError(f"{name} is not numbers: give an array") from None
            if not np.isfinite(found).all():
                raise InputError(f"{name} holds a value that is not finite: fit the probe anew")
            found.flags.writeable = False
            object.__setattr__(self, name, found)
        if self.weights.ndim != 2 or not self.weights.size or self.bias.shape != self.weights.shape[1:]:
            raise InputError(
                f"weights have shape {self.weights.shape}, bias {self.bias.shape}: give (width, classes) and (classes,)"
            )

    @property
    def width(self) -> int:
        """Numbers in a hidden state."""
        return self.weights.shape[0]

    @property
    def classes(self) -> int:
        """Options."""
        return self.weights.shape[1]

    def logits(self, hidden: Float[ArrayLike, "... width"]) -> Float[np.ndarray, "... classes"]:
        """Compute ``W'h + b``.

        Parameters
        ----------
        hidden
            Hidden states.

        Returns
        -------
        array
            One logit per option, float64.
        """
        return np.asarray(hidden, dtype=np.float64) @ self.weights + self.bias

    def probabilities(self, hidden: Float[ArrayLike, "... width"]) -> Float[np.ndarray, "... classes"]:
        """Compute ``softmax(W'h + b)``.

        Parameters
        ----------
        hidden
            Hidden states.

        Returns
        -------
        array
            One probability per option.
        """
        return softmax(self.logits(hidden), axis=-1)

    def centred(self) -> "Probe":
        """Remove what all columns have in common: the probabilities stay, and the columns then sum to zero.

        Returns
        -------
        Probe
            ``W C`` and ``C b`` with ``C = I - 11'/k``.
        """
        return Probe(self.weights - self.weights.mean(1, keepdims=True), self.bias - self.bias.mean())


class LinearProbe(ClassifierMixin, BaseEstimator):
    """Multinomial logistic regression on standardised features, as a linear map of the raw ones.

    Parameters
    ----------
    C : float
        Inverse strength of the L2 penalty on the weights of the standardised features.
    standardise : bool
        Whether to give each feature mean 0 and variance 1 first.
    n_classes : int, optional
        k. The labels must then be exactly 0 to k - 1, each of them at least once: a probe of an option that the model
        never picks is undefined. By default whatever labels there are become the classes.
    max_iter : int
        Of the solver.

    Attributes
    ----------
    classes_ : array
        Labels, in the order of the columns.
    probe_ : Probe
        Weights and bias for raw features; columns sum to zero.
    n_iter_ : int
        Iterations of the solver.
    n_features_in_ : int
        Width.

    Examples
    --------
    >>> hidden = np.random.default_rng(0).normal(size=(60, 5))
    >>> probe = LinearProbe(n_classes=3).fit(hidden, hidden[:, :3].argmax(1))
    >>> probe.weights.shape, probe.score(hidden, hidden[:, :3].argmax(1)) > 0.8
    ((5, 3), True)
    """

    def __init__(
        self, C: float = 0.01, *, standardise: bool = True, n_classes: int | None = None, max_iter: int = 1000
    ) -> None:
        self.C = C
        self.standardise = standardise
        self.n_classes = n_classes
        self.max_iter = max_iter

    def fit(self, X: Float[ArrayLike, "prompts width"], y: Shaped[ArrayLike, " prompts"]) -> Self:
        """Fit the probe.

        Parameters
        ----------
        X
            Hidden states.
        y
            Labels.

        Returns
        -------
        LinearProbe
            Itself.

        Raises
        ------
        InputError
            If a parameter is out of range, or the labels are not those that `n_classes` asks for.
        """
        real("C", self.C, above=0)
        whole("max_iter", self.max_iter, 1)
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if self.n_classes is not None:
            wanted = whole("n_classes", self.n_classes, 2)
            if self.classes_.tolist() != list(range(wanted)):
                raise InputError(
                    f"y has the classes {self.classes_.tolist()}, not 0 to {wanted - 1}: a probe needs each option as "
                    "a label at least once"
                )
        elif len(self.classes_) < 2:
            raise InputError(f"y has the one class {self.classes_.tolist()}: a classifier needs at least two")
        scaler = StandardScaler(with_mean=self.standardise, with_std=self.standardise).fit(X)
        found = LogisticRegression(C=self.C, max_iter=self.max_iter).fit(scaler.transform(X), y)
        weights, bias = found.coef_.T, found.intercept_
        if weights.shape[1] == 1:  # two classes: one logit difference
            weights, bias = np.hstack([-weights, weights]) / 2, np.hstack([-bias, bias]) / 2
        if self.standardise:
            weights = weights / scaler.scale_[:, None]
            bias = bias - scaler.mean_ @ weights
        self.probe_ = Probe(weights, bias).centred()
        self.n_iter_ = int(found.n_iter_.max())
        return self

    @property
    def weights(self) -> Float[np.ndarray, "width classes"]:
        """W for raw features."""
        check_is_fitted(self)
        return self.probe_.weights

    @property
    def bias(self) -> Float[np.ndarray, " classes"]:
        """Biases for raw features."""
        check_is_fitted(self)
        return self.probe_.bias

    def decision_function(self, X: Float[ArrayLike, "prompts width"]) -> Float[np.ndarray, "prompts *classes"]:
        """Compute logits, or for two classes their difference.

        Parameters
        ----------
        X
            Hidden states.

        Returns
        -------
        array
            In the order of `classes_`.
        """
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Float[ArrayLike, "prompts width"]) -> Float[np.ndarray, "prompts classes"]:
        """Compute the probe's distribution, p_K for a knowledge probe.

        Parameters
        ----------
        X
            Hidden states.

        Returns
        -------
        array
            In the order of `classes_`.
        """
        return softmax(self._logits(X), axis=1)

    def predict(self, X: Float[ArrayLike, "prompts width"]) -> Shaped[np.ndarray, " prompts"]:
        """Name the class with the highest logit.

        Parameters
        ----------
        X
            Hidden states.

        Returns
        -------
        array
            Labels.
        """
        best = self._logits(X).argmax(1)
        return self.classes_[best]

    def _logits(self, X: ArrayLike) -> Float[np.ndarray, "prompts classes"]:
        check_is_fitted(self)
        return self.probe_.logits(validate_data(self, X, dtype=np.float64, reset=False))
