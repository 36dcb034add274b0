"""Chinchilla's law: it recovers itself, ends at optima that other searches find, and keeps scikit-learn's contract."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from icml26 import data
from icml26.errors import InputError
from icml26.nqs import measurements, rows, scoring
from icml26.nqs.chinchilla import ChinchillaRegressor

LOSSES = ("huber", "projection")


def runs(seed=0, noise=0.0, count=40):
    rng = np.random.default_rng(seed)
    X = np.stack([10 ** rng.uniform(5, 9, count), 2 ** rng.uniform(3, 12, count), 10 ** rng.uniform(2, 5, count)], 1)
    y = 1.8 + 480 / X[:, 0] ** 0.35 + 2000 / (128 * X[:, 1] * X[:, 2]) ** 0.36
    return X, y * np.exp(noise * rng.standard_normal(count))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_to_losses_of_the_law_recovers_its_five_numbers(loss):
    model = ChinchillaRegressor(loss=loss).fit(*runs())
    found = [model.E_, model.A_, model.B_, model.alpha_, model.beta_]
    assert found == pytest.approx([1.8, 480, 2000, 0.35, 0.36], rel=1e-3)
    assert model.objective_ < 1e-9


def test_the_objective_is_the_sum_of_huber_losses_and_no_start_of_lbfgs_beats_it():
    X, y = runs(noise=0.02)
    model = ChinchillaRegressor().fit(X, y)
    assert model.objective_ == pytest.approx(scoring.log_huber(y, model.predict(X)).sum())
    logs, tokens = np.log(X[:, 0]), np.log(128 * X[:, 1] * X[:, 2])

    def objective(x):  # as Hoffmann et al. write it
        terms = x[0] - x[3] * logs, x[1] - x[4] * tokens, x[2]
        size = np.abs(np.logaddexp(np.logaddexp(terms[0], terms[1]), terms[2]) - np.log(y))
        return 1e6 * np.where(size <= 1e-3, size**2 / 2, 1e-3 * (size - 5e-4)).sum()

    starts = [(a, b, 0.5, 0.5, 0.5) for a in (5, 10) for b in (5, 10)]
    others = [minimize(objective, start, method="L-BFGS-B").fun / 1e6 for start in starts]
    assert model.objective_ <= min(others) * (1 + 1e-6)
    assert min(others) == pytest.approx(model.objective_, rel=0.02)


def test_projection_is_stationary_in_all_five_numbers():
    X, y = runs(noise=0.02)
    model = ChinchillaRegressor(loss="projection").fit(X, y)

    def objective(E, A, B, alpha, beta):
        return 0.5 * (((E + A / X[:, 0] ** alpha + B / (128 * X[:, 1] * X[:, 2]) ** beta) / y - 1) ** 2).sum()

    best = [model.E_, model.A_, model.B_, model.alpha_, model.beta_]
    assert objective(*best) == pytest.approx(model.objective_)
    for i in range(5):
        for factor in (0.999, 1.001):
            assert objective(*(value * (factor if i == j else 1) for j, value in enumerate(best))) > model.objective_


def test_trading_batch_for_steps_changes_nothing():
    X, y = runs(noise=0.02)
    model = ChinchillaRegressor().fit(X, y)
    traded = model.predict(X * [1, 8, 1 / 8])
    assert traded == pytest.approx(model.predict(X), rel=1e-12)


def test_the_sequence_length_rescales_only_the_coefficient_of_tokens():
    X, y = runs(noise=0.02)
    short, long = (ChinchillaRegressor(sequence_length=length).fit(X, y) for length in (128, 2048))
    assert long.predict(X) == pytest.approx(short.predict(X), rel=1e-6)
    assert math.isclose(long.B_, 16**short.beta_ * short.B_, rel_tol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_intervals_hold_most_new_runs_and_grow_with_the_level(loss):
    model = ChinchillaRegressor(loss=loss).fit(*runs(noise=0.02))
    X, y = runs(seed=1, noise=0.02, count=200)
    told = []
    wide = model.predict_interval(X, 0.95, resamples=20, progress=told.append)
    narrow = model.predict_interval(X, 0.5, resamples=20)
    assert np.mean((wide.low <= y) & (y <= wide.high)) > 0.8
    assert (wide.low < narrow.low).all()
    assert (narrow.high < wide.high).all()
    assert wide.value == pytest.approx(model.predict(X))
    assert told[-1] == "20 of 20 refits"


def test_options_set_after_the_fit_change_neither_predictions_nor_intervals():
    X, y = runs(noise=0.02)
    model = ChinchillaRegressor().fit(X, y)
    before = model.predict_interval(X, resamples=3)
    model.set_params(sequence_length=2048, loss="projection", delta=1.0)._resampled.clear()
    after = model.predict_interval(X, resamples=3)
    assert np.array_equal(before, after)


class AnyColumns(ChinchillaRegressor):
    """All of the regressor but its rule that there are three positive columns, which few of the checks' data keep."""

    def _logs(self, X):
        if (X < 0).any():
            raise InputError("Negative values in data")
        return np.log1p(X[:, [0, -1]])


@parametrize_with_checks([AnyColumns()])
def test_scikit_learns_checks_pass_where_columns_are_free(estimator, check):
    check(estimator)


def test_scikit_learns_checks_fail_only_by_the_rule_for_columns():
    for result in check_estimator(ChinchillaRegressor(), on_fail=None, on_skip=None):
        if result["status"] == "failed":
            assert "n_features = " in str(result["exception"]) or "must be positive" in str(result["exception"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: ChinchillaRegressor(loss="mse").fit(X, y), "loss='mse'.*'huber' or 'projection'"),
        (lambda X, y: ChinchillaRegressor(delta=0).fit(X, y), "delta=0 must be a positive"),
        (lambda X, y: ChinchillaRegressor(delta=1e300).fit(X, y), "delta=.* must be a positive"),
        (lambda X, y: ChinchillaRegressor(delta=math.nan).fit(X, y), "delta=nan must be a positive"),
        (lambda X, y: ChinchillaRegressor(sequence_length=True).fit(X, y), "sequence_length=True"),
        (lambda X, y: ChinchillaRegressor().fit(X[:, :2], y), "n_features = 2; give three columns"),
        (lambda X, y: ChinchillaRegressor().fit(-X, y), "N, B and K must be positive"),
        (lambda X, y: ChinchillaRegressor().fit(X, y - 100), "losses must be positive"),
        (lambda X, y: ChinchillaRegressor().fit(X, y * 1e300), "losses must be positive, 1e-30 to 1e"),
        (lambda X, y: ChinchillaRegressor().fit(X, y * 1e-300), "losses must be positive"),
        (lambda X, y: ChinchillaRegressor().fit(X, y).set_params(loss="mse").predict(X), "loss='mse'"),
        (lambda X, y: ChinchillaRegressor().fit(X, y).predict_interval(X, seed=-1), "seed=-1"),
        (lambda X, y: ChinchillaRegressor().fit(X, y).predict(0 * X), "X has the value 0.0"),
        (lambda X, y: ChinchillaRegressor().fit(X, y).predict_interval(X, 2.0, resamples=2), "level=2.0"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call(*runs(noise=0.02, count=10))
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not data.available("nqs"), reason="the NQS measurements are not on this machine")
def test_the_released_isoflop_rows_give_the_known_fit():
    train = rows.train_rows(measurements.load(), "isoflop")
    model = ChinchillaRegressor().fit(measurements.design(train), train["loss"])
    assert math.isclose(model.A_, 164.3, rel_tol=1e-3)
    assert math.isclose(model.B_, 1044, rel_tol=1e-3)
    assert [model.E_, model.alpha_, model.beta_] == pytest.approx([2.138, 0.3647, 0.4075], abs=5e-4)
    assert model.objective_ == pytest.approx(1.6782e-4, rel=1e-4)
