"""The comparison of methods by a model's loss: what is fitted, measured, and set against what."""

import numpy as np
import pandas as pd
import pytest
import torch

from icml26 import models
from icml26.errors import InputError
from icml26.gsrq import bits, rates
from icml26.gsrq.activations import gradient_norms, replaced
from icml26.gsrq.calibration import calibrate
from icml26.gsrq.codebooks import Made, RateConfig, fit, fit_residual, replacements
from icml26.gsrq.coupled import CoupledQuantizer
from icml26.gsrq.integers import kivi_keys, kivi_values
from icml26.gsrq.language import Evaluator, block_means
from icml26.gsrq.planning import fit_seconds, plan
from icml26.gsrq.residual import ResidualQuantizer
from icml26.gsrq.synthetic import ChainConfig, ClusteringConfig
from icml26.gsrq.tensors import TensorConfig
from icml26.gsrq.weights import log_weights

CONFIG = RateConfig(
    layers=(0, 1),
    dimension=16,
    codewords=8,
    stages=(3, 1),
    control_stages=(3,),
    seeds=2,
    arm_seeds=2,
    tokens=60,
    coupled=((4, 2), (16, 3)),
    integers=(1,),
    group=8,
    gradient_windows=1,
    tau=3.0,
    block=8,
)


def tokens(seed, count):
    return torch.randint(3, 250, (count, 24), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def model():
    return models.load_lm("tiny-random-llama")[0]


@pytest.fixture(scope="module")
def made(model):
    calibration = calibrate(model, tokens(0, 3), CONFIG.layers, gradient_windows=CONFIG.gradient_windows)
    return fit(model, tokens(0, 3), CONFIG, calibration=calibration)


@pytest.fixture(scope="module")
def evaluators(model):
    return {split: Evaluator(model, tokens(number, 2), 0) for number, split in enumerate(("validation", "test"), 1)}


@pytest.fixture(scope="module")
def frame(made, evaluators):
    return rates.compare(made, evaluators, CONFIG)


def test_every_codebook_is_fitted_to_the_tokens_that_it_should_be(model, made):
    states = calibrate(model, tokens(0, 3), (0, 1), gradient_windows=1).states
    weighted = {Made("GSKM", seed, weights) for seed in (0, 1) for weights in ("none", "log", "raw")}
    arms = {Made(arm, seed) for arm in ("k-means++", "GSKM") for seed in (0, 1)}
    others = {Made("k-means, spherical start"), Made("CQ-4c2b, uniform"), Made("CQ-16c3b, uniform")}
    assert set(made) == weighted | arms | others
    for key, rows in (
        (Made("GSKM"), 60),
        (Made("GSKM", 1), 60),
        (Made("GSKM", 0, "none"), 24),
        (Made("CQ-4c2b, uniform"), 60),
    ):
        sizes = made[key][1, "value"].sizes
        assert (sizes.sum(axis=-1) == rows).all()
    alone = fit_residual(states, CONFIG)[0, "key"]
    np.testing.assert_array_equal(alone.codebooks, made[Made("GSKM")][0, "key"].codebooks)
    assert [made[key][0, "key"].stages for key in (Made("GSKM"), Made("GSKM", 1))] == [3, 1]
    assert not np.array_equal(*(made[Made("GSKM", 0, w)][0, "key"].codebooks for w in ("none", "raw")))


def test_codebooks_are_those_of_the_rule_start_and_weights_that_their_names_say(model, made):
    held = calibrate(model, tokens(0, 3), (0, 1), gradient_windows=1)
    place = (1, "value")
    states, norms = held.states[place], gradient_norms(held.gradients[place], 16)
    chains = {
        Made("GSKM"): ("unit", "spherical", 3, states[:60], None),
        Made("k-means++"): ("mean", "k-means++", 3, states[:60], None),
        Made("k-means, spherical start"): ("mean", "spherical", 3, states[:60], None),
        Made("GSKM", 0, "none"): ("unit", "spherical", 1, states[:24], None),
        Made("GSKM", 0, "log"): ("unit", "spherical", 1, states[:24], log_weights(norms, tau=3.0)),
        Made("GSKM", 0, "raw"): ("unit", "spherical", 1, states[:24], norms),
    }
    for key, (rule, start, stages, rows, weights) in chains.items():
        expected = ResidualQuantizer(16, stages, 8, rule=rule, start=start).fit(rows, weights)
        np.testing.assert_array_equal(made[key][place].codebooks, expected.codebooks, str(key))
    expected = CoupledQuantizer(4, 2, iterations=CONFIG.iterations).fit(states[:60])
    assert expected.passes.max() > 1
    np.testing.assert_array_equal(made[Made("CQ-4c2b, uniform")][place].codebooks, expected.codebooks)


def test_integers_round_keys_over_tokens_and_values_over_channels(evaluators, frame):
    functions = {
        (layer, kind): lambda rows, kind=kind: {"key": kivi_keys, "value": kivi_values}[kind](rows, 1, group=8)
        for layer in (0, 1)
        for kind in ("key", "value")
    }
    found = frame.query("split == 'test' and method == 'KIVI-1'")["loss"]
    np.testing.assert_allclose(found, block_means(evaluators["test"].losses(functions), 8))


def test_integers_whose_groups_do_not_fill_a_window_take_the_bits_that_they_keep(model):
    config = RateConfig(**{**CONFIG.__dict__, "group": 32})
    short = {"test": Evaluator(model, tokens(2, 1), 0)}  # windows of 24: no key is rounded
    frame = rates.compare({}, short, config)
    values = 1 + 32 / 32
    assert set(frame.loc[frame["method"] == "KIVI-1", "rate"]) == {(16 + values) / 2}


def test_codebooks_of_another_configuration_are_refused(made, evaluators):
    other = RateConfig(**{**CONFIG.__dict__, "coupled": ((8, 3),)})
    with pytest.raises(InputError, match="CQ-4c2b, uniform"):
        rates.compare(made, evaluators, other)
    with pytest.raises(InputError, match="kinds='key'"):
        replacements(made[Made("GSKM")], kinds="key")
    with pytest.raises(InputError, match="stages=9"):
        replacements(made[Made("GSKM")], stages=9)


def test_layers_read_in_groups_give_the_same_codebooks(model, made):
    config = RateConfig(**{**CONFIG.__dict__, "layers_at_once": 1, "seeds": 1, "arm_seeds": 1})
    grouped = fit(model, tokens(0, 3), config)
    for place in made[Made("GSKM")]:
        np.testing.assert_array_equal(grouped[Made("GSKM")][place].codebooks, made[Made("GSKM")][place].codebooks)


def test_losses_of_the_table_are_those_of_a_teacher_forced_pass(model, made, frame):
    quantizers, window = made[Made("k-means++")], tokens(2, 2)
    with torch.no_grad(), replaced(model, replacements(quantizers, stages=1)):
        logits = model(window).logits
    losses = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), window[:, 1:], reduction="none").numpy()
    expected = np.concatenate([[row[:7].mean(), row[7:15].mean(), row[15:].mean()] for row in losses])
    chosen = frame.query("split == 'test' and method == 'k-means++' and stages == 1 and seed == 0")
    np.testing.assert_allclose(chosen["loss"], expected, rtol=1e-5)


def test_the_table_has_each_setting_once_with_the_bits_that_it_takes(frame):
    test = frame[frame["split"] == "test"]
    settings = test.groupby(["method", "rate", "seed"]).size()
    assert (settings == 6).all()
    assert len(settings) == 1 + 2 * (2 + 1) + 1 + 2 + 1
    assert set(test.loc[test["method"] == "KIVI-1", "rate"]) == {1 + 32 / 8}
    expected = {bits.residual(64, dimension=16, stages=stages, codewords=8).bits_per_value for stages in (3, 1)}
    assert set(test.loc[test["method"] == "GSKM", "rate"]) == expected
    assert set(frame.loc[frame["split"] == "validation", "method"]) == {
        "k-means++",
        "CQ-4c2b, uniform",
        "CQ-16c3b, uniform",
        "KIVI-1",
    }


def table(losses):
    """Rows of two blocks for {(split, method, rate): losses}."""
    return pd.DataFrame(
        [
            {"split": split, "method": method, "rate": rate, "seed": seed, "block": block, "loss": loss}
            for (split, method, rate), seeds in losses.items()
            for seed, blocks in enumerate(seeds)
            for block, loss in enumerate(blocks)
        ]
    )


def test_the_baseline_is_chosen_on_validation_windows_among_those_of_no_more_bits():
    frame = table(
        {
            ("test", "GSKM", 1.0): [[1.0, 2.0], [2.0, 3.0]],
            ("test", "GSKM", 0.5): [[4.0, 4.0]],
            ("test", "k-means++", 1.0): [[0.0, 0.0]],  # better in the test, not chosen
            ("test", "k-means++", 0.5): [[5.0, 7.0]],
            ("test", "CQ-4c4b", 1.0): [[2.0, 2.0]],
            ("test", "KIVI-1", 2.0): [[0.0, 0.0]],
            ("validation", "k-means++", 1.0): [[3.0, 3.0]],
            ("validation", "k-means++", 0.5): [[6.0, 6.0]],
            ("validation", "CQ-4c4b", 1.0): [[2.0, 2.0]],
            ("validation", "KIVI-1", 2.0): [[0.0, 0.0]],  # takes too many bits
        }
    )
    first, second = rates.rate_units(frame)
    assert (first.rate, first.baseline, second.rate, second.baseline) == (1.0, "CQ-4c4b", 0.5, "k-means++")
    np.testing.assert_allclose(first.differences, [1.5 - 2, 2.5 - 2])
    np.testing.assert_allclose(second.differences, [-1.0, -3.0])
    with pytest.raises(InputError, match="validation"):
        rates.rate_units(frame[frame["split"] == "test"])
    with pytest.raises(InputError, match=r"at most 0\.5 bits"):
        rates.rate_units(frame.query("not (method == 'k-means++' and rate == 0.5 and split == 'validation')"))


def test_claims_average_seeds_and_keep_blocks_apart():
    both = table(
        {
            ("test", "GSKM", 1.0): [[1.0, 2.0]],
            ("test", "GSKM", 2.0): [[9.0, 9.0]],  # the control has no such rate
            ("test", "k-means, spherical start", 1.0): [[1.5, 1.0]],
        }
    )
    weights = pd.concat(
        table({("test", "GSKM", 1.0): seeds}).assign(weights=name)
        for name, seeds in (("none", [[1, 1], [3, 1]]), ("log", [[1, 1], [1, 1]]), ("raw", [[4, 0], [4, 2]]))
    )
    kinds = pd.concat(
        table({("test", "k-means++", 1.0): [worse], ("test", "GSKM", 1.0): [better]}).assign(kinds=kind)
        for kind, worse, better in (("key", [2, 2], [1, 2]), ("value", [7, 5], [3, 4]))
    )
    units = rates.claim_units(both, kinds, weights)
    np.testing.assert_allclose(units["C6"], [-1.0, 0.0])
    np.testing.assert_allclose(units["C6b"], [2.0, 0.0])
    np.testing.assert_allclose(units["C8"], [3.0, 1.0])
    np.testing.assert_allclose(units["C9"], [-0.5, 1.0])


def test_quantising_one_kind_alone_and_weights_are_measured_for_each_seed(made, evaluators):
    kinds = rates.compare_kinds(made, evaluators["test"], CONFIG)
    assert kinds.groupby(["kinds", "method", "seed"]).size().tolist() == [6] * 8
    weights = rates.compare_weights(made, evaluators["test"], CONFIG)
    assert weights.groupby(["weights", "seed"]).size().tolist() == [6] * 6
    functions = replacements(made[Made("GSKM")], stages=1, kinds=("value",))
    expected = evaluators["test"].losses(functions).mean()
    found = kinds.query("kinds == 'value' and method == 'GSKM' and seed == 0")["loss"] @ np.tile([7, 8, 8], 2) / 46
    assert found == pytest.approx(expected)


def test_each_texts_codebooks_are_measured_on_each_text(made, evaluators):
    fitted = {"a": made[Made("GSKM", 0, "none")], "b": made[Made("GSKM", 1, "none")]}
    frame = rates.transfer(fitted, {"a": evaluators["validation"], "b": evaluators["test"]}, CONFIG)
    assert frame.groupby(["text", "fitted_on"]).size().tolist() == [6] * 6
    own = evaluators["test"].losses(replacements(fitted["b"], stages=1)).mean()
    found = frame.query("text == 'b' and fitted_on == 'b'")["loss"] @ np.tile([7, 8, 8], 2) / 46
    assert found == pytest.approx(own)


def test_progress_tells_one_line_for_each_fit_and_setting(made, evaluators):
    lines = []
    frame = rates.compare_weights(made, evaluators["test"], CONFIG, progress=lines.append)
    assert len(lines) == len(frame) / 6
    assert lines[0] == "test loss: GSKM, 0.25 bits, weights none"


def test_the_plan_counts_the_settings_and_fits_that_run(model, made, evaluators, frame):
    sizes = (ClusteringConfig(), ChainConfig(), TensorConfig(dimensions=(8, 64), compared=(8,), claimed=(8,)))
    found = plan(model, *sizes, CONFIG, length=24, calibration=3, validation=2, test=2, transfer=0)
    runs = found.set_index("step")["runs"]
    fits = sum(chain.passes.size for quantizers in made.values() for chain in quantizers.values())
    assert runs["Codebooks: fits"] == fits
    kinds, weights = (f(made, evaluators["test"], CONFIG) for f in (rates.compare_kinds, rates.compare_weights))
    assert runs["Losses: test settings"] == ((frame["split"] == "test").sum() + len(kinds) + len(weights)) / 6
    assert runs["Losses: validation settings"] == (frame["split"] == "validation").sum() / 6
    assert (found["seconds"] > 0).all()
    assert fit_seconds(4000, 64, 256) > 2 * fit_seconds(1000, 64, 256)
