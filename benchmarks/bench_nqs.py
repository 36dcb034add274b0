"""The noisy quadratic system: its loss in constant time beside the plain sum, and its fit from ranked starts.

Losses are compared by runs per second at a million parameters; the fit by starts per second of the same search, with
derivatives by differences and by formula. Every result is checked in the same test.
"""

import numpy as np
import pytest

from icml26.nqs.fitting import Search, fit
from icml26.nqs.law import RELEASED, adjusted_loss, exact_loss, loss
from icml26.nqs.problem import Problem

N, B, K = 1e6, np.array([8.0, 64.0, 512.0, 4096.0]), np.array([20_000.0, 2_500.0, 312.0, 39.0])
EVALUATION = "Losses of runs with a million parameters"
X = np.array([[n, b, k] for n in (1e5, 1e6, 1e7) for b in (8.0, 64, 512) for k in (50, 500, 5000)])
Y = loss(RELEASED, *X.T).total * np.exp(0.01 * np.random.default_rng(0).standard_normal(len(X)))
DERIVATIVES = "Jacobians of a fit to 27 runs"
SEARCH = "Starts of a fit to 27 runs"


@pytest.fixture(scope="module")
def expected():
    return exact_loss(RELEASED, N, B, K).total


def test_sum(measure, expected):
    found = measure(
        EVALUATION, "`law.exact_loss`, one run", 1, "run", exact_loss, RELEASED, N, B[0], K[0], baseline=True
    )
    assert found.total == expected[0]


def test_fast(measure, expected):
    found = measure(EVALUATION, "`law.loss`, four runs", 4, "run", loss, RELEASED, N, B, K)
    np.testing.assert_allclose(found.total, expected, rtol=1e-8)


def test_fast_many(measure, expected):
    many = (np.tile(column, 250) for column in (B, K))
    found = measure(EVALUATION, "`law.loss`, a thousand runs", 1000, "run", loss, RELEASED, N, *many)
    np.testing.assert_allclose(found.total[:4], expected, rtol=1e-8)


def test_adjusted(measure):
    found = measure(EVALUATION, "`law.adjusted_loss`, four runs", 4, "run", adjusted_loss, RELEASED, N, B, K)
    assert (found.variance < loss(RELEASED, N, B, K).variance).all()


def problem():
    made = Problem(X, Y, "squared", False, {}, 1e-3)
    return made, made.start(1.4, 0.9, 0.7, 1.5)[1]


def by_differences(made, at):
    return np.stack([(made.errors(at + h) - made.errors(at - h)) / 2e-6 for h in 1e-6 * np.eye(7)], axis=1)


def test_differences(measure):
    made, at = problem()
    found = measure(DERIVATIVES, "central differences", 1, "Jacobian", by_differences, made, at, baseline=True)
    np.testing.assert_allclose(found, made.jacobian(at), rtol=1e-4, atol=1e-6)


def test_formula(measure):
    made, at = problem()
    found = measure(DERIVATIVES, "`problem.Problem.jacobian`", 1, "Jacobian", made.jacobian, at)
    np.testing.assert_allclose(found, by_differences(made, at), rtol=1e-4, atol=1e-6)


def polished(made, starts):
    return [made.polish(made.start(*start)[1])[0] for start in starts]


def test_every_start_polished(measure):
    made, _ = problem()
    starts = np.random.default_rng(0).uniform([1.05, 0.6, 0.05, 0.6], [2.5, 2.5, 1.0, 2.5], (10, 4))
    costs = measure(SEARCH, "every start polished, 10 starts", 10, "start", polished, made, starts, baseline=True)
    assert min(costs) < 0.01


def test_ranked(measure):
    def run():
        return fit(X, Y, starts=200, seed=0, search=Search(round=200, agree=1))

    found = measure(SEARCH, "`fitting.fit`, the best of 200 starts in five slices polished", 200, "start", run)
    assert found.objective < (np.log(Y / loss(RELEASED, *X.T).total) ** 2).sum() / 2
