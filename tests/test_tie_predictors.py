"""Predictors of lengths learn what their labels say, repeat themselves exactly, and differ in label and loss only."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from sklearn.metrics import r2_score

from icml26.errors import InputError
from icml26.tie import heads, predictors
from icml26.tie.laws import LogTLaw, fit_laws

CAP = 256
CONFIG = predictors.PredictorConfig(width=16, dropout=0.0, epochs=25, learning_rates=(0.01,), weight_decays=(0.01,))
SEEN = np.random.default_rng(0).normal(size=(120, 3))
LAW = LogTLaw(3.5 + 0.8 * SEEN[:, 0], np.exp(-1.2 + 0.4 * SEEN[:, 1]))
LENGTHS = LAW.sample(np.random.default_rng(1), CAP, 20)
TRAIN, TEST = slice(0, 90), slice(90, 120)
FITS = {
    "TIE": lambda features, lengths, **given: predictors.fit_tie(features, lengths, CAP, CONFIG, **given),
    "SSJF": lambda features, lengths, **given: predictors.fit_ssjf(features, lengths, CONFIG, answers="first", **given),
    "SSJF, all": lambda features, lengths, **given: predictors.fit_ssjf(features, lengths, CONFIG, **given),
    "mean": lambda features, lengths, **given: predictors.fit_mean(features, lengths, CONFIG, **given),
    "log mean": lambda features, lengths, **given: predictors.fit_mean(features, lengths, CONFIG, log=True, **given),
    "LTR": lambda features, lengths, **given: predictors.fit_ltr(features, lengths, CONFIG, **given),
}


def score(found):
    """What a policy would order by."""
    return found.mean(CAP) if isinstance(found, LogTLaw) else found


@pytest.fixture(scope="module")
def fitted():
    return {name: fit(SEEN[TRAIN], LENGTHS[TRAIN], seed=0) for name, fit in FITS.items()}


@pytest.mark.parametrize("name", FITS)
def test_unseen_prompts_are_ordered_by_their_lengths(fitted, name):
    found = predictors.kendall_tau(score(fitted[name].predict(SEEN[TEST])), LENGTHS[TEST])
    best = predictors.kendall_tau(LAW[TEST].mean(CAP), LENGTHS[TEST])
    assert found > 0.75 * best > 0.2


def test_ties_heads_predict_both_parameters_of_the_law(fitted):
    law, label = fitted["TIE"].predict(SEEN[TEST]), fit_laws(LENGTHS[TEST], CAP)
    assert r2_score(label.mu, law.mu) > 0.7
    assert r2_score(np.log1p(label.sigma), np.log1p(law.sigma)) > 0.2
    assert (law.sigma >= predictors.LEAST_SIGMA).all()


def test_point_predictors_answer_in_tokens(fitted):
    for name in ("mean", "log mean"):
        assert r2_score(LENGTHS[TEST].mean(1), fitted[name].predict(SEEN[TEST])) > 0.5
    # The least absolute error is at a median, which is below the mean of lengths like these.
    assert fitted["SSJF"].predict(SEEN[TRAIN]).mean() < LENGTHS[TRAIN].mean() * 1.1


@pytest.mark.parametrize("name", FITS)
def test_equal_seeds_give_equal_predictors_and_leave_the_global_state_alone(fitted, name):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    again = FITS[name](SEEN[TRAIN], LENGTHS[TRAIN], seed=0)
    assert torch.equal(torch.rand(2), expected)
    assert np.array_equal(score(again.predict(SEEN[TEST])), score(fitted[name].predict(SEEN[TEST])))


def test_ssjf_sees_one_generation_and_the_others_all_of_them(fitted):
    other = LENGTHS[TRAIN].copy()
    other[:, 1:] = other[::-1, 1:]
    for name, fit in FITS.items():
        same = np.array_equal(
            score(fit(SEEN[TRAIN], other, seed=0).predict(SEEN[TEST])), score(fitted[name].predict(SEEN[TEST]))
        )
        assert same == (name == "SSJF")


def test_the_scale_and_origin_of_features_do_not_matter(fitted):
    moved = predictors.fit_mean(1000 * SEEN[TRAIN] - 7, LENGTHS[TRAIN], CONFIG, seed=0).predict(1000 * SEEN[TEST] - 7)
    assert np.allclose(moved, fitted["mean"].predict(SEEN[TEST]), rtol=0.02)


def test_a_feature_that_never_varies_is_no_division_by_zero():
    features = np.column_stack([SEEN[TRAIN], np.full(90, 5.0)])
    assert np.isfinite(predictors.fit_mean(features, LENGTHS[TRAIN], CONFIG, seed=0).predict(features)).all()


def test_the_grid_is_decided_by_the_validation_prompts():
    config = replace(CONFIG, learning_rates=(1e-6, 0.01))
    assert predictors.fit_mean(SEEN[TRAIN], LENGTHS[TRAIN], config, seed=0).learning_rate == 0.01


def test_epochs_stop_where_noise_would_be_learnt():
    noise = np.random.default_rng(2).normal(size=(60, 40))
    config = replace(CONFIG, epochs=40, width=64)
    assert predictors.fit_mean(noise, LENGTHS[:60], config, seed=0).epochs < 30


def test_list_mle_is_the_plackett_luce_likelihood_of_the_order():
    generator = torch.Generator().manual_seed(0)
    scores, lengths = torch.randn(4, generator=generator, dtype=torch.float64), torch.tensor([[7], [2], [9], [4]])

    def likelihood(order):
        strengths = [math.exp(-float(scores[i])) for i in order]
        return math.prod(s / sum(strengths[i:]) for i, s in enumerate(strengths))

    found = float(predictors.list_mle(scores, lengths))
    assert found == pytest.approx(-math.log(likelihood([1, 3, 0, 2])) / 4)
    # All orders together are certain.
    everything = sum(
        math.exp(-4 * float(predictors.list_mle(scores, torch.tensor(order)[:, None].argsort(dim=0))))
        for order in itertools.permutations(range(4))
    )
    assert everything == pytest.approx(1)


def test_list_mle_averages_over_lists():
    scores, lengths = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([[1, 6], [2, 5], [3, 4]])
    apart = [float(predictors.list_mle(scores, lengths[:, [i]])) for i in range(2)]
    assert float(predictors.list_mle(scores, lengths)) == pytest.approx(np.mean(apart))


def test_kendalls_tau_is_averaged_over_generations_and_zero_without_an_order():
    scores = LAW.mean(CAP)
    each = [kendalltau(scores, LENGTHS[:, j]).statistic for j in range(20)]
    assert predictors.kendall_tau(scores, LENGTHS) == pytest.approx(np.mean(each))
    assert predictors.kendall_tau(np.ones(120), LENGTHS) == 0
    assert predictors.kendall_tau(-scores, LENGTHS) == pytest.approx(-np.mean(each))


def test_a_branch_sees_no_other_branchs_loss():
    network = heads._Branches(3, 2, CONFIG)
    network(torch.randn(5, 3))[:, 0].sum().backward()
    assert all(weight.grad is None or not weight.grad.any() for weight in network.branches[1].parameters())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: predictors.fit_mean(SEEN, LENGTHS[:5], CONFIG, seed=0),
            r"shape \(120, 3\); give one row for each of 5",
        ),
        (lambda: predictors.fit_mean(SEEN * np.nan, LENGTHS, CONFIG, seed=0), "features holds nan"),
        (lambda: predictors.fit_mean(SEEN[:4], LENGTHS[:4], CONFIG, seed=0), "give more prompts"),
        (lambda: predictors.fit_tie(SEEN, LENGTHS, 50, CONFIG, seed=0), "above cap=50"),
        (lambda: predictors.fit_tie(SEEN, LENGTHS[:, :1], CAP, CONFIG, seed=0), "at least 2 samples"),
        (lambda: predictors.fit_ssjf(SEEN, LENGTHS, CONFIG, seed=0, loss="huber"), "'l1' or 'mse'"),
        (lambda: predictors.kendall_tau([1.0], LENGTHS), "give one for each of 120"),
        (lambda: predictors.PredictorConfig(batch=1), "batch=1"),
        (lambda: predictors.PredictorConfig(epochs=True), "epochs=True"),
        (lambda: predictors.PredictorConfig(dropout=1.0), "dropout=1.0"),
        (lambda: predictors.PredictorConfig(learning_rates=()), "learning_rates"),
        (lambda: predictors.PredictorConfig(weight_decays=(-1.0,)), "weight_decays"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, told):
    with pytest.raises(InputError, match=told) as error:
        call()
    assert "\n" not in str(error.value)


def test_other_features_than_in_training_are_refused(fitted):
    with pytest.raises(InputError, match="rows of 3"):
        fitted["TIE"].predict(SEEN[:, :2])
