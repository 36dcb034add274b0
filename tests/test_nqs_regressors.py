"""The scikit-learn regressor of the noisy quadratic system, and the residual bootstrap of its intervals."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import icml26.nqs
from icml26.errors import InputError
from icml26.nqs import NQSRegressor, Theta
from icml26.nqs.fitting import Search, fit
from icml26.nqs.intervals import prediction_interval, resampled_fits
from icml26.nqs.law import RELEASED, adjusted_loss, loss

TRUTH = Theta(p=1.4, q=0.8, P=5.0, Q=0.7, e_irr=0.8, R=6.0, r=1.2)
X = np.array([[n, b, k] for n in (1e4, 1e5, 1e6) for b in (8.0, 32, 128) for k in (50, 500, 5000)])
Y = loss(TRUTH, *X.T).total * np.exp(0.01 * np.random.default_rng(0).standard_normal(len(X)))
QUICK = {"starts": 200, "search": Search(round=100, agree=2)}
HASTY = {"starts": 1, "search": Search(evaluations=8)}


@pytest.fixture(scope="module")
def fitted():
    return NQSRegressor(form="standard", **QUICK).fit(X, Y)


def runs(features):
    """Valid N, B and K from whatever the checks of scikit-learn feed."""
    mixed = features @ np.cos(np.outer(np.arange(1, features.shape[1] + 1), [1, 2, 3]))
    return np.floor(10 ** (np.array([6, 2, 3]) + np.array([2, 1.5, 2]) * np.tanh(mixed / 3)))


def losses(y):
    return 3 + np.tanh(y / 10)


def targets(y):
    return 10 * np.arctanh(np.clip(y - 3, -0.99, 0.99))


ANY_DATA = TransformedTargetRegressor(
    make_pipeline(FunctionTransformer(runs, validate=True), NQSRegressor(**HASTY)),
    func=losses,
    inverse_func=targets,
    check_inverse=False,  # losses of a poor fit may lie outside of the range that has an inverse
)


CHECKS = list(estimator_checks_generator(ANY_DATA))


# Names of scikit-learn's own parametrisation hold addresses of functions, which differ between processes.
@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=[f"{check.func.__name__}-{n}" for n, (_, check) in enumerate(CHECKS)]
)
def test_behind_a_map_to_valid_runs_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_bare_it_fails_no_check_of_scikit_learn_but_for_columns_that_are_no_runs():
    passed, messages = set(), []
    for estimator, check in estimator_checks_generator(NQSRegressor(**HASTY)):
        name = check.func.__name__
        if name == "check_array_api_input":  # needs SCIPY_ARRAY_API
            continue
        try:
            check(estimator)
            passed.add(name)
        except (InputError, AssertionError) as error:  # the latter from checks of what the former says
            messages.append(str(error))
    assert all("columns N, B and K" in message or "must be a whole number" in message for message in messages)
    assert {"check_estimator_cloneable", "check_parameters_default_constructible", "check_set_params"} <= passed
    assert "check_fit2d_1sample" in passed


def test_it_fits_the_constant_step_and_predicts_with_the_form_that_is_asked(fitted):
    assert fitted.objective_ == pytest.approx((np.log(Y / loss(fitted.theta_, *X.T).total) ** 2).sum() / 2, rel=1e-5)
    assert fitted.predict(X).tolist() == loss(fitted.theta_, *X.T).total.tolist()
    for norm, expected in ((None, 0.02**2), (0.01, 0.01)):
        adjusted = NQSRegressor.from_json(fitted.to_json(), norm=norm)
        assert (
            adjusted.predict(X).tolist() == adjusted_loss(fitted.theta_, *X.T, norm=expected * X[:, 0]).total.tolist()
        )


def test_it_finds_what_the_search_finds_and_says_what_that_saw(fitted):
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    assert fitted.theta_ == fit(X, Y, seed=seed, **QUICK).theta
    assert fitted.search_.hits >= 2
    assert fitted.score(X, Y) > 0.99


def test_a_copy_has_the_options_and_a_pickle_the_parameters(fitted, tmp_path):
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict(X).tolist() == fitted.predict(X).tolist()
    fitted.to_json(tmp_path / "theta.json")
    assert NQSRegressor.from_json(tmp_path / "theta.json", form="standard").theta_ == fitted.theta_


def test_cross_validation_can_choose_the_tie():
    search = GridSearchCV(NQSRegressor(form="standard", **HASTY), {"tie": [False, True]}, cv=2, error_score="raise")
    assert set(search.fit(X, Y).cv_results_["param_tie"]) == {False, True}


def test_intervals_hold_new_runs_about_as_often_as_they_say(fitted):
    new = np.array([[n, b, k] for n in (3e4, 3e5) for b in (16.0, 64) for k in (100, 1000)])
    rng = np.random.default_rng(1)
    measured = loss(TRUTH, *new.T).total * np.exp(0.01 * rng.standard_normal((200, len(new))))
    found = fitted.predict_interval(new, level=0.9, resamples=20)
    assert found.value.tolist() == fitted.predict(new).tolist()
    held = ((found.low <= measured) & (measured <= found.high)).mean()
    assert 0.8 < held < 0.97
    wide = fitted.predict_interval(new, level=0.99, resamples=20)
    assert (wide.low < found.low).all()
    assert (found.high < wide.high).all()


def test_intervals_widen_where_the_law_extrapolates(fitted):
    near, far = fitted.predict_interval(np.array([[1e5, 32, 500], [1e11, 1, 1e7]]), resamples=20)[1:]
    widths = np.log(np.array([near, far]))
    assert widths[1, 1] - widths[0, 1] > widths[1, 0] - widths[0, 0]


def test_resampled_fits_scatter_like_the_estimate_itself():
    rng = np.random.default_rng(0)
    y = np.exp(1 + 0.1 * rng.standard_normal(50))
    centre = np.exp(np.log(y).mean())
    found = np.log(
        resampled_fits(lambda drawn: np.exp(np.log(drawn).mean()), np.full(50, centre), y, parameters=1, resamples=2000)
    )
    assert found.std() == pytest.approx(np.log(y).std(ddof=1) / np.sqrt(50), rel=0.05)
    assert found.mean() == pytest.approx(np.log(centre), abs=3e-3)


def test_an_interval_is_the_quantiles_of_every_refit_times_every_residual():
    rng = np.random.default_rng(0)
    predictions, residuals = np.exp(rng.standard_normal((7, 3))), rng.standard_normal(11)
    found = prediction_interval(np.ones(3), predictions, residuals, level=0.8)
    for i in range(3):
        every = [predictions[j, i] * np.exp(residual) for j in range(7) for residual in residuals]
        assert (found.low[i], found.high[i]) == pytest.approx(tuple(np.exp(np.quantile(np.log(every), [0.1, 0.9]))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "regularized"}, "form='regularized' must be 'adjusted' or 'standard'"),
        ({"loss": "l1"}, "loss='l1'"),
        ({"tie": 1}, "tie=1 must be True or False"),
        ({"norm": 0.0}, "norm=0.0 must be above 0"),
        ({"norm": True}, "norm=True"),
        ({"norm": "x"}, "norm='x' must be above 0"),
        ({"norm": np.inf}, "norm=inf"),
        ({"search": {"round": 3}}, "search={'round': 3} must be"),
        ({"starts": 0}, "starts=0"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(options, message):
    with pytest.raises(InputError, match=message) as found:
        NQSRegressor(**options).fit(X, Y)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("options", [{"form": "regularized"}, {"norm": "x"}, {"norm": -1}])
def test_an_option_that_is_spoiled_after_the_fit_is_named(options):
    model = NQSRegressor.from_json(RELEASED.to_json()).set_params(**options)
    with pytest.raises(InputError, match=f"{next(iter(options))}="):
        model.predict(X)


def test_intervals_refit_what_was_fitted_whatever_the_options_have_become():
    model = NQSRegressor(**HASTY).fit(X, Y)
    before = model.predict_interval(X, resamples=2)
    model.set_params(tie=True, loss="huber", search=None)._resampled.clear()
    assert np.array_equal(before, model.predict_interval(X, resamples=2))


def test_an_interval_widens_centred_residuals_to_the_size_of_the_errors_and_holds_the_value():
    rng = np.random.default_rng(0)
    design, errors = rng.standard_normal((12, 4)), rng.standard_normal((4000, 12))
    design[:, 0] = 1
    residuals = errors - errors @ design @ np.linalg.pinv(design)
    found = [prediction_interval(np.ones(1), np.ones((1, 1)), r + 0.3, parameters=4, level=0.68) for r in residuals]
    half = np.mean([np.log(each.high / each.low)[0] / 2 for each in found])
    assert half == pytest.approx(0.94, abs=0.05)  # unwidened it is 0.77; of twelve errors themselves, 0.94
    assert all(each.low <= each.value <= each.high for each in found)


def test_questions_that_have_no_answer_are_errors(fitted):
    with pytest.raises(NotFittedError):
        NQSRegressor().predict(X)
    with pytest.raises(InputError, match="level=95"):
        fitted.predict_interval(X, level=95, resamples=20)
    with pytest.raises(InputError, match="resamples=1 "):
        fitted.predict_interval(X, resamples=1)
    with pytest.raises(InputError, match="seed='a' "):
        fitted.predict_interval(X, seed="a")
    with pytest.raises(InputError, match=r"y=.* must be a finite loss above 0, 1e-30"):
        NQSRegressor(**HASTY).fit(X, Y * 1e300)
    with pytest.raises(InputError, match="no runs to resample"):
        NQSRegressor.from_json(RELEASED.to_json()).predict_interval(X)
    with pytest.raises(InputError, match=r"K=1\.5"):
        fitted.predict([[100, 1, 1.5]])
    with pytest.raises(InputError, match="7 runs leave no residual"):
        NQSRegressor(**HASTY).fit(X[:7], Y[:7]).predict_interval(X)


def test_what_needs_scikit_learn_is_found_on_first_use_and_nothing_else():
    assert icml26.nqs.NQSRegressor is NQSRegressor
    with pytest.raises(AttributeError, match="no attribute 'NQM'"):
        _ = icml26.nqs.NQM
