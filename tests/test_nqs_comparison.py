"""Scores, differences and regrets against plain loops, and the decision rules on the released measurements."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import linregress

from icml26 import data, stats
from icml26.errors import InputError
from icml26.nqs import comparison, measurements, rows, scoring, selection

released = pytest.mark.skipif(not data.available("nqs"), reason="the NQS measurements are not on this machine")
SEEDED = {"seed": 0, "resamples": 200}


def frame(seed=0, count=40):
    """Random runs in four budgets of four gaps, as `measurements.read` would give them."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "N": rng.integers(10**5, 10**8, count),
            "B": rng.integers(16, 4096, count),
            "K": rng.integers(100, 10**5, count),
            "C": np.tile([59.0, 236.0, 944.0, 3776.0], count // 4),
            "loss": rng.uniform(2, 5, count),
            "split": "test",
            "plane": np.where(np.arange(count) % 8 < 4, "isoflop", "isotoken"),
            "filtered": False,
        }
    )


def off_by(runs, errors):
    """A model that is off by known errors of log loss on these runs."""
    known = dict(zip(map(tuple, measurements.design(runs)), runs["loss"] * np.exp(errors), strict=True))
    return lambda X: np.array([known[tuple(row)] for row in X])


def test_the_huber_loss_is_that_of_its_definition_and_joins_smoothly():
    y, ratio = np.full(7, 3.0), np.array([-0.3, -1.0001e-3, -1e-3, 0, 4e-4, 1e-3, 2.0])
    expected = [x * x / 2 if abs(x) <= 1e-3 else 1e-3 * (abs(x) - 5e-4) for x in ratio]
    assert scoring.log_huber(y, y * np.exp(ratio)) == pytest.approx(expected, rel=1e-9, abs=1e-18)
    assert scoring.log_square(y, y * np.exp(ratio)) == pytest.approx(ratio**2, rel=1e-9, abs=1e-18)
    wide = scoring.log_huber(y, y * np.exp(ratio), delta=10)
    assert wide == pytest.approx(ratio**2 / 2, rel=1e-9, abs=1e-18), "a wide delta is least squares"


def test_scores_do_not_depend_on_the_unit_of_the_loss():
    runs, errors = frame(), np.random.default_rng(1).normal(0, 0.03, 40)
    bits = runs.assign(loss=runs["loss"] / np.log(2))
    for error in (scoring.log_huber, scoring.log_square):
        assert error(bits["loss"], off_by(bits, errors)(measurements.design(bits))) == pytest.approx(
            error(runs["loss"], off_by(runs, errors)(measurements.design(runs))), rel=1e-6
        )


def test_tables_hold_each_models_own_predictions_and_means():
    runs = frame()
    errors = {"good": np.full(40, 0.01), "bad": np.linspace(-0.3, 0.3, 40)}
    models = {name: off_by(runs, each) for name, each in errors.items()}
    table = scoring.predictions(runs, models)
    assert len(table) == 80
    for name, each in errors.items():
        part = table[table["model"] == name]
        assert np.log(part["prediction"] / part["loss"]).to_numpy() == pytest.approx(each, abs=1e-12)
    means = scoring.scores({"all": runs, "cheap": runs[runs["C"] < 100]}, models, **SEEDED)
    for row in means.itertuples():
        part = table[(table["model"] == row.model) & ((row.set == "all") | (table["C"] < 100))]
        assert row.huber == pytest.approx(part["huber"].mean())
        assert row.low <= row.huber <= row.high
        assert row.runs == len(part)
    gaps = scoring.by_gap(runs, models, **SEEDED)
    assert gaps["gap"].tolist() == [1, 1, 4, 4, 16, 16, 64, 64]
    expected = table.groupby(["C", "model"])["huber"].mean()
    for row in gaps.itertuples():
        assert row.huber == pytest.approx(expected[row.C, row.model])


def test_a_budget_of_one_run_has_a_mean_and_no_interval():
    runs = frame().iloc[[0, 1, 5]]
    table = scoring.by_gap(runs, {"model": off_by(runs, np.full(3, 0.1))}, **SEEDED)
    assert table["low"].isna().tolist() == [True, False]
    assert table["huber"].notna().all()


def test_differences_are_paired_antisymmetric_and_blind_to_errors_in_common():
    runs, rng = frame(), np.random.default_rng(2)
    common = rng.choice([-0.5, 0.5], 40) * rng.uniform(1, 2, 40)
    first, second = off_by(runs, common + 0.01 * np.sign(common)), off_by(runs, common)
    found, back = (comparison.difference(runs, *pair, **SEEDED) for pair in ((first, second), (second, first)))
    # In the linear range every run differs by delta times 0.01, however large the errors are.
    assert found == pytest.approx((1e-5, 1e-5, 1e-5))
    assert back == pytest.approx((-1e-5, -1e-5, -1e-5))
    assert comparison.wins(runs, first, second) == (40, 40)
    assert comparison.wins(runs, first, first) == (0, 40)


def test_clusters_are_resampled_whole():
    runs = frame().assign(run=np.repeat(np.arange(8), 5))
    errors = np.repeat(np.random.default_rng(3).normal(0, 0.1, 8), 5)
    pair = off_by(runs, errors), off_by(runs, np.zeros(40))
    single, whole = (comparison.difference(runs, *pair, cluster=name, **SEEDED) for name in (None, "run"))
    assert single.value == pytest.approx(whole.value)
    assert whole.high - whole.low > 1.5 * (single.high - single.low), "five copies of a run are not five runs"
    with pytest.raises(InputError, match="cluster='seed' is no column"):
        comparison.difference(runs, *pair, cluster="seed", **SEEDED)


def test_the_slope_of_the_gap_is_that_of_a_regression():
    runs, rng = frame(), np.random.default_rng(4)
    errors = rng.normal(0, 0.1, 40), rng.normal(0, 0.02, 40)
    found = comparison.gap_slope_difference(runs, *(off_by(runs, each) for each in errors), **SEEDED)
    x = np.log(runs["C"] / 59) / np.log(4)
    slopes = [linregress(x, scoring.log_huber(runs["loss"], runs["loss"] * np.exp(each))).slope for each in errors]
    assert found.value == pytest.approx(slopes[0] - slopes[1])
    with pytest.raises(InputError, match="all runs have the gap 4"):
        comparison.gap_slope_difference(runs[runs["C"] == 236], *(off_by(runs, each) for each in errors), seed=0)


def test_the_least_of_differences_excludes_zero_exactly_if_all_do():
    rng = np.random.default_rng(5)
    for _ in range(50):
        ends = np.sort(rng.normal(0.5, 1, (3, 3)))
        found = comparison.least(*(stats.Interval(middle, low, high) for low, middle, high in ends))
        assert (found.low > 0) == (ends[:, 0] > 0).all()
        assert (found.high < 0) == (ends[:, 2] < 0).any()
        assert found.low <= found.value <= found.high
    with pytest.raises(InputError, match="intervals are missing"):
        comparison.least()


def test_regret_is_what_a_loop_over_budgets_finds():
    runs, errors = frame(), np.random.default_rng(6).normal(0, 0.2, 40)
    model = off_by(runs, errors)
    predicted = model(measurements.design(runs))
    table = selection.regret(runs, model, "N").set_index("budget")
    for budget in sorted(set(runs["C"])):
        at = [i for i in range(40) if runs["C"].iloc[i] == budget]
        chosen, best = min(at, key=lambda i: predicted[i]), min(at, key=lambda i: runs["loss"].iloc[i])
        row = table.loc[budget]
        assert (row["chosen"], row["best"]) == (runs["N"].iloc[chosen], runs["N"].iloc[best])
        assert row["regret"] == runs["loss"].iloc[chosen] - runs["loss"].iloc[best]
        assert row["spread"] == pytest.approx(np.ptp(predicted[at]))
    assert table.index.tolist() == sorted(table.index, reverse=True)


def test_a_perfect_model_has_no_regret_and_any_monotone_distortion_of_it_has_none():
    runs = frame()
    perfect = off_by(runs, np.zeros(40))
    for model in (perfect, lambda X: 7 * perfect(X) ** 3):
        tables = selection.size_regret(runs, model), selection.batch_regret(runs, model)
        assert selection.mean_regret(*tables, seed=0).interval == (0, 0)
    worst = selection.size_regret(runs, lambda X: 1 / perfect(X))
    isoflop = runs[runs["plane"] == "isoflop"].groupby("C")["loss"]
    assert sorted(worst["regret"]) == pytest.approx(sorted(isoflop.max() - isoflop.min()))


def test_mean_regret_pools_budgets_of_all_tables():
    tables = [pd.DataFrame({"regret": each}) for each in ([0.0, 0.3, 0.0], [0.1])]
    assert selection.mean_regret(*tables, seed=0).value == pytest.approx(0.1)
    with pytest.raises(InputError, match="tables are missing"):
        selection.mean_regret(seed=0)


def test_seconds_are_those_between_the_clocks_ticks():
    now, waits = [0.0], iter([1.0, 5.0, 2.0, 9.0, 3.0])

    def call():
        now[0] += next(waits)

    found = selection.median_seconds(call, repeats=5, seed=0, clock=lambda: now[0])
    assert found.value == 3
    assert 1 <= found.low <= found.high <= 9
    with pytest.raises(InputError, match="repeats=1 must be"):
        selection.median_seconds(call, repeats=1, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: scoring.log_huber([1.0, -1.0], [1.0, 1.0]), "y has the value -1.0"),
        (lambda f: scoring.log_huber([1.0], [math.inf]), "prediction has the value inf"),
        (lambda f: scoring.log_huber([1.0, 1.0], [1.0]), r"shape \(2,\) and prediction \(1,\)"),
        (lambda f: scoring.log_huber([1.0], [1.0], delta=True), "delta=True must be"),
        (lambda f: scoring.predictions(f, {}), "models={} must map names"),
        (lambda f: scoring.predictions(f, {"model": 3}), "must map names to functions"),
        (lambda f: scoring.predictions(f, {"model": lambda X: 1.0}), r"gave shape \(\) for 40 runs"),
        (lambda f: scoring.predictions(f.drop(columns="loss"), {"m": lambda X: X[:, 0]}), "lacks the columns loss"),
        (lambda f: comparison.difference(f, None, lambda X: X[:, 0], seed=0), "predict=None must map"),
        (lambda f: selection.regret(f, lambda X: X[:, 0], "width"), "lacks the columns width"),
        (lambda f: selection.regret(f.head(4), lambda X: X[:, 0], "N"), "no C has two runs"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call(frame())
    assert "\n" not in str(error.value)


@released
def test_the_decision_rules_on_the_released_fit_give_the_known_numbers():
    from icml26.nqs import law
    from icml26.nqs.chinchilla import ChinchillaRegressor

    runs = measurements.load()
    train = rows.train_rows(runs, "isoflop")
    isoflop, isotoken = (rows.holdout_rows(runs, plane) for plane in measurements.PLANES)
    chinchilla = ChinchillaRegressor().fit(measurements.design(train), train["loss"]).predict
    adjusted, standard = (lambda X, form=form: form(law.RELEASED, *X.T).total for form in (law.adjusted_loss, law.loss))
    sets = {"train": train, "isoflop": isoflop, "isotoken": isotoken, "all": rows.train_rows(runs)}
    models = {"chinchilla": chinchilla, "adjusted": adjusted, "standard": standard}
    table = scoring.scores(sets, models, **SEEDED).pivot(index="set", columns="model", values="huber") * 1e5
    for name, expected in {
        "train": (0.579, 1.959, 1.764),
        "isoflop": (6.756, 2.146, 2.067),
        "isotoken": (11.40, 4.924, 4.753),
        "all": (11.17, 2.740, 2.003),
    }.items():
        assert table.loc[name, list(models)].tolist() == pytest.approx(expected, abs=0.015)
    assert comparison.difference(isoflop, chinchilla, standard, **SEEDED).value == pytest.approx(4.69e-5, abs=1e-7)
    assert comparison.difference(isotoken, chinchilla, standard, **SEEDED).value == pytest.approx(6.65e-5, abs=1e-7)
    assert comparison.wins(isoflop, chinchilla, standard) == (26, 30)
    assert comparison.wins(isotoken, chinchilla, standard) == (16, 34)
    small = comparison.small_batch_differences(runs, standard, adjusted, **SEEDED)
    assert small["value"].tolist() == pytest.approx([0.0093, 0.0021, 0.0254, 3.55e-5, -0.61e-5, 12.9e-5], rel=0.03)
    assert selection.size_regret(runs, adjusted)["regret"].tolist() == pytest.approx([0, 0.0023, 0, 0, 0], abs=1e-4)
    batch = selection.batch_regret(runs, adjusted)
    assert batch["chosen"].tolist() == [1536, 384, 192]
    assert batch["regret"].tolist() == pytest.approx([0.0059, 0.0060, 0.0064], abs=1e-4)
    assert selection.batch_regret(runs, chinchilla)["spread"].max() < 1e-3
