"""Linear probes of hidden states: the scikit-learn classifier and the paper's training by Adam."""

import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import icml26.kappa
from icml26.errors import InputError
from icml26.kappa.adam import AdamProbe, cross_entropy, loss_floor
from icml26.kappa.probes import LinearProbe, Probe

DRAW = np.random.default_rng(0)
HIDDEN = DRAW.normal(size=(90, 6)) * [1, 10, 0.1, 1, 3, 1] + [0, 5, 0, -2, 0, 0]
LABELS = (HIDDEN / HIDDEN.std(0) - HIDDEN.mean(0) / HIDDEN.std(0))[:, :3].argmax(1)


CHECKS = [
    (probe, check)
    for probe in (LinearProbe(), LinearProbe(standardise=False))
    for _, check in estimator_checks_generator(probe)
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("probe", "check"), CHECKS, ids=[f"{index}-{check.func.__name__}" for index, (_, check) in enumerate(CHECKS)]
)
def test_scikit_learns_checks_of_an_estimator_pass(probe, check):
    check(probe)


def test_the_scaler_is_folded_into_weights_and_bias():
    probe = LinearProbe(C=0.1).fit(HIDDEN, LABELS)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)).fit(HIDDEN, LABELS)
    raw = HIDDEN @ probe.weights + probe.bias
    np.testing.assert_allclose(np.exp(log_softmax(raw, axis=1)), pipeline.predict_proba(HIDDEN), atol=1e-6)
    np.testing.assert_allclose(probe.predict_proba(HIDDEN), pipeline.predict_proba(HIDDEN), atol=1e-6)


def test_columns_of_a_fit_sum_to_zero():
    for labels in (LABELS, LABELS > 0):
        probe = LinearProbe().fit(HIDDEN, labels)
        np.testing.assert_allclose(probe.weights.sum(1), 0, atol=1e-12)
        assert abs(probe.bias.sum()) < 1e-12


def test_a_fit_is_the_minimum_of_its_penalised_loss():
    features = (HIDDEN - HIDDEN.mean(0)) / HIDDEN.std(0)

    def loss(flat):
        weights, bias = flat[:18].reshape(6, 3), flat[18:]
        nll = -log_softmax(features @ weights + bias, axis=1)[np.arange(90), LABELS].sum()
        return 0.05 * nll + (weights**2).sum() / 2

    best = minimize(loss, np.zeros(21), method="L-BFGS-B", options={"ftol": 1e-13, "gtol": 1e-8})
    probe = LinearProbe(C=0.05).fit(HIDDEN, LABELS)
    standardised = probe.weights * HIDDEN.std(0)[:, None]
    np.testing.assert_allclose(standardised, best.x[:18].reshape(6, 3), atol=2e-3)


def test_two_classes_give_two_opposite_columns_and_one_decision():
    probe = LinearProbe(n_classes=2).fit(HIDDEN, (LABELS > 0).astype(int))
    np.testing.assert_allclose(probe.weights[:, 0], -probe.weights[:, 1])
    difference = HIDDEN @ (probe.weights[:, 1] - probe.weights[:, 0]) + probe.bias[1] - probe.bias[0]
    np.testing.assert_allclose(probe.decision_function(HIDDEN), difference)
    np.testing.assert_allclose(probe.predict_proba(HIDDEN)[:, 1], 1 / (1 + np.exp(-difference)))


@pytest.mark.parametrize("labels", [LABELS % 2, LABELS * 2, LABELS.astype(str), LABELS + 1])
def test_a_missing_option_is_refused(labels):
    with pytest.raises(InputError, match="each option"):
        LinearProbe(n_classes=3).fit(HIDDEN, labels)


@pytest.mark.parametrize("options", [{"C": 0}, {"C": True}, {"C": np.nan}, {"max_iter": 0}, {"n_classes": 1}])
def test_a_parameter_out_of_range_is_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        LinearProbe(**options).fit(HIDDEN, LABELS)


def test_nothing_is_known_before_the_fit():
    for use in (lambda p: p.weights, lambda p: p.bias, lambda p: p.predict(HIDDEN)):
        with pytest.raises(NotFittedError):
            use(LinearProbe())


def test_it_works_in_a_search_and_survives_pickling():
    found = GridSearchCV(LinearProbe(n_classes=3), {"C": [0.001, 0.1]}, cv=3).fit(HIDDEN, LABELS)
    assert found.best_params_ == {"C": 0.1}
    again = pickle.loads(pickle.dumps(found.best_estimator_))
    np.testing.assert_array_equal(again.predict(HIDDEN), found.predict(HIDDEN))


def test_centring_changes_no_probability():
    probe = Probe(DRAW.normal(size=(6, 4)) + 3, DRAW.normal(size=4) + 9)
    np.testing.assert_allclose(probe.centred().probabilities(HIDDEN), probe.probabilities(HIDDEN))
    np.testing.assert_allclose(probe.centred().weights.sum(1), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("weights", "bias", "told"),
    [
        (np.ones((3, 2)), np.ones(3), "shape"),
        (np.ones(3), np.ones(3), "shape"),
        (np.ones((0, 2)), np.ones(2), "shape"),
        ([[np.nan, 1.0]], [0.0, 0.0], "finite"),
        ([["a", "b"]], [0.0, 0.0], "numbers"),
    ],
)
def test_a_probe_refuses_what_is_no_probe(weights, bias, told):
    with pytest.raises(InputError, match=told):
        Probe(weights, bias)


def test_a_probe_cannot_be_changed_through_the_array_it_was_made_of():
    weights = np.ones((3, 2))
    probe = Probe(weights, np.zeros(2))
    weights[:] = 7
    assert probe.weights.max() == 1
    with pytest.raises(ValueError, match="read-only"):
        probe.weights[0, 0] = 7


def test_the_released_loss_approaches_its_floor_and_never_falls_below():
    for options in (2, 3, 4, 5):
        sure = torch.full((1, options), -200.0, dtype=torch.float64)
        sure[0, 0] = 200.0
        label = torch.zeros(1, dtype=torch.int64)
        assert cross_entropy(sure, label, released=True).item() == pytest.approx(loss_floor(options), abs=1e-12)
        drawn = torch.from_numpy(DRAW.normal(size=(200, options)) * 20)
        assert (cross_entropy(drawn, label.expand(200), released=True) >= loss_floor(options) - 1e-12).all()


def test_the_losses_are_torchs_own():
    logits, labels = torch.from_numpy(DRAW.normal(size=(20, 3))), torch.arange(20) % 3
    expected = torch.nn.functional.cross_entropy
    assert torch.allclose(cross_entropy(logits, labels), expected(logits, labels, reduction="none"))
    twice = expected(logits.softmax(-1), labels, reduction="none")
    assert torch.allclose(cross_entropy(logits, labels, released=True), twice)


def data(layers=2, prompts=48):
    draw = np.random.default_rng(1)
    hidden = draw.normal(size=(prompts, layers, 6))
    return hidden, hidden[:, 0, :3].argmax(1)


def by_hand(hidden, labels, held, target, config, layer):
    """One layer of `AdamProbe` with nn.Linear, from the same draws."""
    layers, width, k = hidden.shape[1], hidden.shape[2], 3
    draw = torch.Generator().manual_seed(config.seed)
    weights = (torch.rand((layers, width, k), generator=draw) * 2 - 1) / width**0.5
    bias = (torch.rand((layers, 1, k), generator=draw) * 2 - 1) / width**0.5
    linear = torch.nn.Linear(width, k)
    with torch.no_grad():
        linear.weight.copy_(weights[layer].T)
        linear.bias.copy_(bias[layer, 0])
    optimiser = torch.optim.Adam(linear.parameters(), lr=config.lr)
    x, y = torch.from_numpy(hidden[:, layer]).float(), torch.from_numpy(labels)
    best = -1, 0, None
    for epoch in range(1, config.epochs + 1):
        for rows in torch.randperm(len(x), generator=draw).split(config.batch):
            given = linear(x[rows])
            if config.loss == "released":
                given = given.softmax(-1)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(given, y[rows]).backward()
            optimiser.step()
        right = linear(torch.from_numpy(held[:, layer]).float()).argmax(1).numpy() == target
        if right.mean() > best[0]:
            best = right.mean(), epoch, linear.weight.detach().T.numpy().copy()
    return best


@pytest.mark.parametrize("loss", ["cross_entropy", "released"])
def test_all_layers_at_once_equal_each_alone_and_the_first_best_epoch_is_kept(loss):
    hidden, labels = data()
    parts = hidden[:32], labels[:32], hidden[32:], labels[32:]
    config = AdamProbe(loss=loss, lr=0.02, epochs=15, batch=10, seed=3)
    found = config.fit(*parts)
    for layer in range(2):
        accuracy, epoch, weights = by_hand(*parts, config, layer)
        assert found.accuracies[layer] == pytest.approx(accuracy)
        assert found.epochs[layer] == epoch
        np.testing.assert_allclose(found.probes[layer].weights, weights, atol=1e-5)


def test_adam_is_reproducible_and_leaves_the_global_generator_alone():
    hidden, labels = data()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = (AdamProbe(epochs=2).fit(hidden, labels, hidden, labels) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(first.probes[1].weights, second.probes[1].weights)


def test_adam_tells_how_far_it_is():
    hidden, labels = data()
    told = []
    AdamProbe(epochs=20).fit(hidden, labels, hidden, labels, progress=told.append)
    assert len(told) == 10


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labels": np.zeros(48, dtype=int)}, "labels"),
        ({"labels": np.zeros(3, dtype=int)}, "labels"),
        ({"labels": np.full(48, 0.5)}, "labels"),
        ({"hidden": np.ones((48, 6))}, "hidden"),
        ({"hidden": np.full((48, 2, 6), np.nan)}, "hidden"),
        ({"validation_hidden": np.ones((48, 1, 6))}, "validation_hidden"),
        ({"options": 4}, "labels"),
    ],
)
def test_adam_refuses_data_that_do_not_fit(change, told):
    hidden, labels = data()
    given = {"hidden": hidden, "labels": labels, "validation_hidden": hidden, "validation_labels": labels}
    with pytest.raises(InputError, match=told):
        AdamProbe(epochs=1).fit(**given | change)


@pytest.mark.parametrize("options", [{"loss": "mse"}, {"lr": 0}, {"epochs": 0}, {"batch": 1.5}, {"seed": -1}])
def test_adam_refuses_a_parameter_out_of_range(options):
    with pytest.raises(InputError, match=next(iter(options))):
        AdamProbe(**options)


def test_the_package_hands_out_its_main_names():
    assert icml26.kappa.LinearProbe is LinearProbe
    assert icml26.kappa.AdamProbe is AdamProbe
    assert icml26.kappa.Kappa(pairs={}).pairs == {}
    with pytest.raises(AttributeError):
        icml26.kappa.nothing  # noqa: B018
