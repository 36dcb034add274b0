"""The estimator keeps scikit-learn's contract and is the clustering underneath."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from icml26.errors import InputError
from icml26.gsrq import GainShapeKMeans
from icml26.gsrq.clustering import fit_codebook
from icml26.gsrq.weights import log_weights

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "random starts depend on the order of rows, as in KMeans",
}


def samples(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(200, 4)) * np.exp(rng.normal(size=(200, 1)))


@parametrize_with_checks(
    [
        GainShapeKMeans(n_clusters=2),
        GainShapeKMeans(n_clusters=3, rule="sum", weighting="log"),
        GainShapeKMeans(n_clusters=3, rule="mean", init="k-means++", n_init=2),
    ],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("rule", ["unit", "sum", "mean"])
def test_from_a_fixed_start_sample_weights_count_like_repeated_samples(rule):
    X, repeats = samples(), np.random.default_rng(1).integers(0, 4, 200)
    first = X[repeats > 0][:5]
    weighted = GainShapeKMeans(5, rule=rule, init=first).fit(X, sample_weight=repeats)
    repeated = GainShapeKMeans(5, rule=rule, init=first).fit(np.repeat(X, repeats, axis=0))
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, atol=1e-10)
    assert (weighted.predict(X) == repeated.predict(X)).all()


def test_the_attributes_belong_together():
    X = samples()
    model = GainShapeKMeans(7, random_state=0).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, model.gains_[:, None] * model.shapes_)
    np.testing.assert_allclose(np.linalg.norm(model.shapes_, axis=1), 1)
    distances = np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2)
    np.testing.assert_allclose(model.transform(X), distances)
    assert (model.labels_ == distances.argmin(1)).all()
    assert (model.predict(X) == model.labels_).all()
    assert model.inertia_ == pytest.approx((distances.min(1) ** 2).sum())
    assert model.score(X) == -model.inertia_
    assert list(model.get_feature_names_out()) == [f"gainshapekmeans{k}" for k in range(7)]


def test_weighting_says_what_sample_weights_are():
    X, first = samples(), samples()[:6]
    norms = np.random.default_rng(1).exponential(size=200)

    def centres(weighting, **options):
        return (
            GainShapeKMeans(6, init=first, weighting=weighting, **options).fit(X, sample_weight=norms).cluster_centers_
        )

    def book(weights):
        return fit_codebook(X, 6, start=first, weights=weights).codewords

    assert (centres("raw") == book(norms)).all()
    assert (centres("none") == book(None)).all()
    assert (centres("log", tau=3.0) == book(log_weights(norms, 3.0))).all()
    assert not np.allclose(book(norms), book(None))


def test_the_score_is_minus_the_weighted_squared_error():
    X, weights = samples(), np.random.default_rng(1).exponential(size=200)
    model = GainShapeKMeans(4, random_state=0).fit(X)
    errors = ((X - model.cluster_centers_[model.predict(X)]) ** 2).sum(1)
    assert model.score(X, sample_weight=weights) == pytest.approx(-(errors @ weights))
    assert model.score(X) == pytest.approx(-errors.sum())


def test_it_works_in_a_pipeline_and_in_float32():
    X = samples().astype(np.float32)
    model = make_pipeline(StandardScaler(), GainShapeKMeans(4, random_state=0)).fit(X)
    assert model.predict(X).shape == (200,)
    assert model[-1].cluster_centers_.dtype == np.float32


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"n_clusters": 201}, "n_samples=200"),
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"rule": "median"}, "rule='median'"),
        ({"init": "random"}, "init="),
        ({"weighting": "squared"}, "weighting='squared'"),
        ({"weighting": "log", "tau": 0}, "tau=0"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"n_init": 0}, "n_init=0"),
        ({"init": np.ones((3, 4)), "n_init": 2}, "n_init=2"),
        ({"init": np.ones((2, 5))}, "init must be of shape"),
    ],
)
def test_wrong_options_are_refused(options, told):
    with pytest.raises(InputError, match=told):
        GainShapeKMeans(**{"n_clusters": 3} | options).fit(samples(), sample_weight=np.ones(200))
