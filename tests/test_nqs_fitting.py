"""Fits of the noisy quadratic system: derivatives, starts, ties, profiles, and the paper's runs."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from scipy.special import zeta

from icml26 import data
from icml26.errors import InputError
from icml26.nqs import Theta, measurements
from icml26.nqs.fitting import NORMS, Search, choose_norm, fit, profile, refit
from icml26.nqs.law import RELEASED, STEP, adjusted_loss, loss
from icml26.nqs.model import Model
from icml26.nqs.problem import NAMES, Problem, variable

TRUTH = Theta(p=1.4, q=0.8, P=5.0, Q=0.7, e_irr=0.8, R=6.0, r=1.2)
X = np.array([[n, b, k] for n in (1e4, 1e5, 1e6) for b in (8.0, 32, 128) for k in (50, 500, 5000)])
EXACT = loss(TRUTH, *X.T).total
NOISY = EXACT * np.exp(0.01 * np.random.default_rng(0).standard_normal(len(X)))
QUICK = {"starts": 200, "search": Search(round=100, agree=2)}
needs_runs = pytest.mark.skipif(not data.available("nqs"), reason="needs the released runs: icml26 data get nqs")


def torch_loss(variables, N, B, K):
    """The constant-step loss of one run as a differentiable sum over all directions, with the tail end-corrected."""
    p, q, P, Q, e_irr, R, r = variables
    n = torch.arange(1, N + 1, dtype=torch.float64)
    a = 1 - STEP * Q / n**q
    geometric = (1 - a ** (2 * K)) / (1 - a**2)
    bias = (P / 2 * n**-p * a ** (2 * K)).sum()
    variance = (Q / n**q * R / n**r * STEP**2 / B * geometric).sum() / 2
    tail = N ** (1 - p) / (p - 1) - N**-p / 2 + p / 12 * N ** (-p - 1)
    return e_irr + P / 2 * tail + bias + variance


def runs():
    frame = measurements.load()
    frame = frame[(frame.split == "train") & ~frame.filtered.astype(bool)]
    return frame[["N", "B", "K"]].to_numpy(float), frame.loss.to_numpy()


def test_the_jacobian_is_the_automatic_derivative_of_the_sum():
    some = np.array([[2000, 4, 1], [2000, 64, 300], [5000, 8, 20_000]])
    theta = torch.tensor(list(asdict(TRUTH).values()), dtype=torch.float64)
    problem = Problem(some, np.array([2.0, 3.0, 4.0]), "squared", False, dict.fromkeys("pqPR", 0.0), 1e-3)
    problem.free, problem.spread, problem.fixed = list(range(7)), np.eye(7), np.zeros(7)
    found = problem.jacobian(np.array([variable(name, value) for name, value in asdict(TRUTH).items()]))
    chain = np.array([value if name in "PQR" else 1.0 for name, value in asdict(TRUTH).items()])
    for run, row in zip(some.tolist(), found, strict=True):
        expected = torch.autograd.functional.jacobian(lambda v, run=run: torch_loss(v, *run).log(), theta)
        np.testing.assert_allclose(row, expected.numpy() * chain, rtol=1e-6, atol=1e-9)


def test_the_automatic_derivative_is_that_of_the_law_by_differences():
    theta = torch.tensor(list(asdict(TRUTH).values()), dtype=torch.float64)
    gradient = torch.autograd.functional.jacobian(lambda v: torch_loss(v, 3000, 8, 400), theta)
    for name, slope in zip(NAMES, gradient.tolist(), strict=True):
        value = getattr(TRUTH, name)
        up, down = (loss(replace(TRUTH, **{name: value + h}), 3000, 8, 400).total for h in (1e-5, -1e-5))
        assert (up - down) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("N", [1, 30, 99, 100, 163, 165, 3000])
def test_the_derivatives_are_right_for_every_number_of_parameters(N):
    model = Model(np.array([[N, 4.0, 7.0]]))
    at = np.array([1.3, 0.9, np.log(0.8), 1.1])
    parts = model.parts(*at, slopes=True)
    for place, column in ((0, 0), (1, 1), (2, 2)):
        shift = 1e-5 * np.eye(4)[place]
        up, down = model.parts(*(at + shift)).risk, model.parts(*(at - shift)).risk
        assert (up - down) / 2e-5 == pytest.approx(parts.risk_slopes[:, column], rel=1e-6, abs=1e-9)
    for place, column in ((3, 0), (1, 1), (2, 2)):
        shift = 1e-5 * np.eye(4)[place]
        up, down = model.parts(*(at + shift)).noise, model.parts(*(at - shift)).noise
        assert (up - down) / 2e-5 == pytest.approx(parts.noise_slopes[:, column], rel=1e-6, abs=1e-9)
    assert parts.risk[0] > zeta(1.3, N + 1) / 2


def test_the_model_of_a_fit_is_the_law():
    far = np.array([[1, 1, 1], [1e4, 8, 0], [1e9, 512, 1e5], [1e4, 2, 1e6]])
    for theta in (TRUTH, RELEASED):
        parts = Model(far).parts(theta.p, theta.q, np.log(theta.Q), theta.r)
        np.testing.assert_allclose(
            theta.e_irr + theta.P * parts.risk + theta.R * parts.noise, loss(theta, *far.T).total, rtol=1e-7
        )


def test_the_linear_parameters_of_exact_losses_are_recovered_and_none_is_negative():
    model = Model(X)
    parts = model.parts(TRUTH.p, TRUTH.q, np.log(TRUTH.Q), TRUTH.r)
    np.testing.assert_allclose(model.linear(parts, EXACT), [TRUTH.e_irr, TRUTH.P, TRUTH.R], rtol=1e-6)
    e_irr, P, R = model.linear(parts, TRUTH.P * parts.risk)
    assert min(e_irr, P, R) >= 0
    assert e_irr == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_parameters_of_exact_losses_are_recovered_from_starts_that_do_not_know_them(seed):
    found = fit(X, EXACT, seed=seed, **QUICK)
    assert found.objective < 1e-7
    assert found.hits >= 1
    for name in "pq":
        assert getattr(found.theta, name) == pytest.approx(getattr(TRUTH, name), rel=1e-2)
    new = np.array([[1e7, 256, 2e4], [1e6, 512, 100]])
    np.testing.assert_allclose(loss(found.theta, *new.T).total, loss(TRUTH, *new.T).total, rtol=5e-3)


def test_no_parameters_fit_noisy_losses_better_than_the_fit():
    found = fit(X, NOISY, seed=0, **QUICK)
    truth = (np.log(NOISY / EXACT) ** 2).sum() / 2
    assert found.objective < truth
    assert found.objective == pytest.approx((np.log(NOISY / loss(found.theta, *X.T).total) ** 2).sum() / 2, rel=1e-5)
    assert found.objective == found.objectives.min()
    assert len(found.thetas) == len(found.objectives)


def test_the_search_stops_when_enough_starts_agree_or_all_are_used():
    lines = []
    early = fit(X, NOISY, seed=0, search=Search(round=40, agree=2), progress=lines.append)
    assert early.hits >= 2
    assert early.starts == 40 * len(lines) < 2000
    assert len(early.objectives) == 5 * len(lines)
    all_used = fit(X, NOISY, seed=0, starts=50, search=Search(round=40, slices=2, agree=99))
    assert (all_used.starts, len(all_used.objectives)) == (50, 4)


def test_equal_seeds_give_equal_fits():
    options = {"seed": 3, "starts": 20, "search": Search(round=20, slices=1, agree=1)}
    assert fit(X, NOISY, **options).theta == fit(X, NOISY, **options).theta


def test_a_tie_holds_both_exponents_equal_and_costs_at_least_as_much():
    free, tied = (fit(X, NOISY, seed=0, tie=tie, **QUICK) for tie in (False, True))
    assert tied.theta.r == tied.theta.q
    assert tied.objective >= free.objective * (1 - 1e-6)
    problem = Problem(X, NOISY, "squared", True, {}, 1e-3)
    at = np.array([variable(name, getattr(tied.theta, name)) for name in NAMES])[problem.free]
    steps = 1e-6 * np.eye(6)
    slopes = np.stack([(problem.errors(at + h) - problem.errors(at - h)) / 2e-6 for h in steps], axis=1)
    np.testing.assert_allclose(problem.jacobian(at), slopes, rtol=1e-5, atol=1e-7)


def test_the_huber_loss_ignores_a_run_that_failed():
    spoiled = EXACT.copy()
    spoiled[4] *= 3
    robust, squared = (fit(X, spoiled, loss=kind, seed=0, **QUICK) for kind in ("huber", "squared"))
    kept = np.arange(len(X)) != 4
    errors = [np.abs(np.log(loss(f.theta, *X[kept].T).total / EXACT[kept])).max() for f in (robust, squared)]
    assert errors[0] < 1e-3 < errors[1]
    error = np.abs(np.log(loss(robust.theta, *X.T).total / spoiled))
    huber = np.where(error <= 1e-3, error**2 / 2, 1e-3 * (error - 5e-4)).sum()
    assert robust.objective == pytest.approx(huber, rel=1e-4)


def test_a_profile_is_least_at_the_fit_and_holds_its_parameter():
    found = fit(X, NOISY, seed=0, **QUICK)
    values = found.theta.p + np.array([0.05, -0.05, 0.0])
    objectives, thetas = profile(X, NOISY, "p", values, theta=found.theta)
    assert [theta.p for theta in thetas] == pytest.approx(values)
    assert objectives.argmin() == 2
    assert objectives[2] == pytest.approx(found.objective, rel=1e-4)
    assert (objectives[:2] > found.objective).all()


def test_a_parameter_held_fixed_stays_and_the_others_move():
    start = replace(TRUTH, Q=0.6)
    found, objective = refit(X, NOISY, start, fixed=("Q", "e_irr"))
    assert (round(found.Q, 12), found.e_irr) == (0.6, TRUTH.e_irr)
    assert objective < (np.log(loss(start, *X.T).total / NOISY) ** 2).sum() / 2


def test_the_initial_norm_is_chosen_by_the_error_of_the_adjusted_form():
    norm = NORMS[24]
    best, errors = choose_norm(TRUTH, X, adjusted_loss(TRUTH, *X.T, norm=norm * X[:, 0]).total)
    assert best == norm
    assert errors[24] < 1e-20 < np.delete(errors, 24).min()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": X[:, :2]}, r"X has shape \(27, 2\)"),
        ({"X": X.astype(str)}, "X has shape"),
        ({"y": EXACT[:5]}, r"y has shape \(5,\)"),
        ({"X": [[1, 2], [3]]}, "X or y is ragged"),
        ({"y": -EXACT}, "y=-"),
        ({"y": EXACT * 1e300}, "y=.*e.300 must be a finite loss above 0, 1e-30 to 1e"),
        ({"y": EXACT * 1e-300}, "y=.*e-300 must be"),
        ({"seed": -1}, "seed=-1 must be"),
        ({"seed": "a"}, "seed='a' must be"),
        ({"search": {"round": 3}}, "search={'round': 3} must be"),
        ({"search": {}}, "search={} must be"),
        ({"y": np.where(np.arange(27) == 3, np.nan, EXACT)}, "y=nan must be a finite loss above 0"),
        ({"X": X[:5], "y": EXACT[:5]}, "5 runs; give at least as many as there are free parameters, 7"),
        ({"X": X + np.array([0.5, 0, 0])}, "N=10000.5 in X must be a whole number"),
        ({"X": X * [1, 0, 1]}, "B=0.0 in X must be above 0"),
        ({"X": X * [1, 1, 0]}, "K=0.0 in X must be a whole number of at least 1"),
        ({"starts": 0}, "starts=0"),
        ({"loss": "absolute"}, "loss='absolute' must be 'squared' or 'huber'"),
    ],
)
def test_an_argument_that_makes_no_sense_is_named(arguments, message):
    with pytest.raises(InputError, match=message) as found:
        fit(**({"X": X, "y": EXACT} | arguments))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("round", "slices", "agree", "evaluations") for value in (0, 1.5)),
        *(("delta", value) for value in (0, np.nan, 1e300, "small")),
        *(("p", value) for value in ((0.9, 2), (1.1,), 1.5, (1.1, "2"), ((1.1,), 2))),
        *(("q", (2.0, 1.0)), ("q", (0, 1)), ("Q", (0.5, 1.01)), ("r", (0, np.inf))),
    ],
)
def test_a_search_that_cannot_be_made_is_refused_at_once(name, value):
    with pytest.raises(InputError, match=f"^{name}="):
        Search(**{name: value})


def test_candidates_that_are_no_list_of_numbers_are_named():
    for wrong in (1.1, [], ["a"]):
        with pytest.raises(InputError, match=r"values=.* must be a list of one or more"):
            profile(X, EXACT, "p", wrong, theta=TRUTH)
        with pytest.raises(InputError, match=r"values=.* must be a list of one or more"):
            choose_norm(TRUTH, X, EXACT, wrong)
    with pytest.raises(InputError, match="theta=None must be"):
        refit(X, EXACT, None)


def test_a_profile_of_an_unknown_or_tied_parameter_is_an_error():
    with pytest.raises(InputError, match="name='s' must be one of p, q"):
        profile(X, EXACT, "s", [1.0], theta=TRUTH)
    with pytest.raises(InputError, match="fixed names 's'"):
        refit(X, EXACT, TRUTH, fixed=("s",))
    with pytest.raises(InputError, match="r cannot be held fixed"):
        refit(X, EXACT, TRUTH, fixed=("r",), tie=True)
    with pytest.raises(InputError, match=r"p=0\.9 must be above 1"):
        profile(X, EXACT, "p", [0.9], theta=TRUTH)


@needs_runs
def test_every_seed_reaches_a_better_optimum_of_the_released_runs_than_the_released_fit():
    X, y = runs()
    assert len(y) == 64
    assert (np.log(loss(RELEASED, *X.T).total / y) ** 2).sum() / 2 == pytest.approx(0.022080, rel=5e-3)
    for seed in range(2):
        found = fit(X, y, seed=seed)
        assert found.objective == pytest.approx(0.021985, abs=2e-6)
        assert found.theta.p == pytest.approx(1.1085, abs=2e-4)
        assert found.theta.q == pytest.approx(0.5899, abs=2e-4)
