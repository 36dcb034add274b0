"""Gain-shape k-means with scikit-learn's interface, to put where `KMeans` stands.

The method is that of GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4); the fit itself is in `clustering`, the
logarithm of the gradients in `weights`.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.gsrq.clustering import assign, fit_codebook, inertia
from icml26.gsrq.vectors import as_vectors, unit_rows
from icml26.gsrq.weights import log_weights

__all__ = ["GainShapeKMeans"]

WEIGHTINGS = ("raw", "log", "none")


class GainShapeKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Cluster vectors around codewords g_k s_k, a gain times a unit shape.

    Each pass assigns every x to its nearest codeword, the largest 2 g_k x.s_k - g_k^2, and moves the shapes to the mean
    directions of their members and the gains to the mean projections on them. Under the default rule long vectors
    count no more than short ones in the direction of a centre, and the squared error may rise from pass to pass.

    Parameters
    ----------
    n_clusters : int
        K, at most the number of samples.
    rule : {"unit", "sum", "mean"}
        Of the update: the paper's, the released code's, Lloyd's (`clustering.fit_codebook`).
    init : {"spherical", "k-means++"} or array, shape (n_clusters, n_features)
        First codewords: of a clustering on the unit sphere, picked among the samples, or given.
    weighting : {"raw", "log", "none"}
        What ``sample_weight`` is: the weights themselves, norms of gradients whose logarithms weigh
        (`weights.log_weights`), or ignored.
    tau : float
        Of the logarithm.
    max_iter : int
        The most passes.
    n_init : int
        Starts, of which the one with the least inertia is kept; 1 with an array.
    random_state : int, RandomState or None
        Of the starts.

    Attributes
    ----------
    cluster_centers_ : array, shape (n_clusters, n_features)
        The codewords.
    gains_ : array, shape (n_clusters,)
        Their norms.
    shapes_ : array, shape (n_clusters, n_features)
        Their directions; zero where the gain is.
    labels_ : integer array, shape (n_samples,)
        The nearest codeword of each sample, as ``predict`` gives it.
    inertia_ : float
        Weighted sum of the squared distances to the nearest codeword.
    n_iter_ : int
        Passes made.
    n_features_in_ : int
        Columns of the samples.

    Examples
    --------
    >>> X = [[1.0, 0.1], [4.0, 0.4], [0.1, 2.0], [0.2, 4.0]]
    >>> model = GainShapeKMeans(n_clusters=2, random_state=0).fit(X)
    >>> bool(model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3])
    True
    >>> model.transform(X).shape
    (4, 2)
    """

    def __init__(
        self,
        n_clusters: int = 256,
        *,
        rule: str = "unit",
        init: str | Float[ArrayLike, "n_clusters n_features"] = "spherical",
        weighting: str = "raw",
        tau: float = 1.0,
        max_iter: int = 100,
        n_init: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.rule = rule
        self.init = init
        self.weighting = weighting
        self.tau = tau
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state

    def fit(
        self,
        X: Float[ArrayLike, "n_samples n_features"],
        y: Any = None,
        sample_weight: Float[ArrayLike, " n_samples"] | None = None,
    ) -> "GainShapeKMeans":
        """Find codewords for samples.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            Samples.
        y : ignored
            Takes part in no computation.
        sample_weight : array-like, shape (n_samples,), optional
            Not negative; read as ``weighting`` says.

        Returns
        -------
        GainShapeKMeans
            This estimator, fitted.

        Raises
        ------
        InputError
            If a parameter is out of range, or there are fewer samples than clusters.
        """
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C")
        n_clusters = whole("n_clusters", self.n_clusters, 1)
        if len(X) < n_clusters:
            raise InputError(f"n_samples={len(X)} should be at least n_clusters={n_clusters}")
        n_init, max_iter = whole("n_init", self.n_init, 1), whole("max_iter", self.max_iter, 1)
        if isinstance(self.init, str):
            if self.init not in ("spherical", "k-means++"):
                raise InputError(f"init={self.init!r} must be spherical, k-means++ or an array of codewords")
        else:
            if as_vectors("init", self.init).shape != (n_clusters, X.shape[1]):
                raise InputError(f"init must be of shape {(n_clusters, X.shape[1])}: a vector for each cluster")
            if n_init > 1:
                raise InputError(f"n_init={n_init} would repeat the codewords given as init: leave out one of the two")
        if self.weighting == "log":
            real("tau", self.tau, above=0)
        weights = self._weights(X, sample_weight)
        book = fit_codebook(
            X,
            n_clusters,
            rule=self.rule,
            start=self.init,
            weights=weights,
            iterations=max_iter,
            starts=n_init,
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
        )
        self.cluster_centers_, self.labels_, self.n_iter_ = (
            book.codewords,
            book.labels.astype(np.int32),
            book.iterations,
        )
        self.gains_, self.shapes_ = book.gains, unit_rows(book.codewords)
        self.inertia_ = inertia(X, book.codewords, book.labels, weights)
        self._n_features_out = n_clusters
        return self

    def predict(self, X: Float[ArrayLike, "n_samples n_features"]) -> Int[np.ndarray, " n_samples"]:
        """Find the nearest codeword of each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            Samples.

        Returns
        -------
        int32 array, shape (n_samples,)
            Its index, the lowest of several that are equally near.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        return assign(self._samples(X), self.cluster_centers_).astype(np.int32)

    def transform(self, X: Float[ArrayLike, "n_samples n_features"]) -> Float[np.ndarray, "n_samples n_clusters"]:
        """Distances of samples to all codewords.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array, shape (n_samples, n_clusters)
            Euclidean distances.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        return euclidean_distances(self._samples(X), self.cluster_centers_)

    def score(
        self,
        X: Float[ArrayLike, "n_samples n_features"],
        y: Any = None,
        sample_weight: Float[ArrayLike, " n_samples"] | None = None,
    ) -> float:
        """Minus the sum of squared distances of samples to their nearest codewords.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            Samples.
        y : ignored
            Takes part in no computation.
        sample_weight : array-like, shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        float
            The higher the better.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        X = self._samples(X)
        return -inertia(X, self.cluster_centers_, assign(X, self.cluster_centers_), self._weights(X, sample_weight))

    def _samples(self, X: ArrayLike) -> Float[np.ndarray, "n_samples n_features"]:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")

    def _weights(self, X: np.ndarray, sample_weight: ArrayLike | None) -> Float[np.ndarray, " n_samples"] | None:
        if self.weighting not in WEIGHTINGS:
            raise InputError(f"weighting={self.weighting!r} must be one of {', '.join(WEIGHTINGS)}")
        if sample_weight is None or self.weighting == "none":
            return None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return weights if self.weighting == "raw" else log_weights(weights, self.tau)
