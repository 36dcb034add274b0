"""Weights in models, losses, similarities and the claim's statistic: exact cases, references, kept encodings."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from icml26 import models, stats
from icml26.errors import InputError, MissingModel
from icml26.s_quant import arms as catalogue
from icml26.s_quant import byte_lm, codec, comparison, endtoend, kept, store, study
from icml26.s_quant.calibrated import Calibration
from icml26.s_quant.comparison import Measured, deficit, loss_interval
from icml26.s_quant.config import SeedLMConfig, SQuantConfig

ARMS = catalogue.arms()
ENCODED = [arm.name for arm in ARMS.values() if arm.config]


@pytest.fixture(scope="module")
def model():
    return models.load_lm("tiny-random-llama")[0]


@pytest.fixture(scope="module")
def text():
    return torch.randint(256, (7, 24), generator=torch.Generator().manual_seed(0))


# --- weights in a model ----------------------------------------------------------------------------------------------


def test_the_model_computes_with_the_new_weights_and_then_again_with_the_very_same_old_ones(model, text):
    names = list(study.linear_weights(model))[:3]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    places = {name: model.get_submodule(name).weight.data_ptr() for name in names}
    expected = endtoend.token_losses(model, text)
    new = {name: model.get_submodule(name).weight.detach() * 2 for name in names}
    with endtoend.with_weights(model, new) as same:
        assert same is model
        assert all(torch.equal(model.get_submodule(name).weight, new[name]) for name in names)
        assert not np.allclose(endtoend.token_losses(model, text), expected)
    assert {name: model.get_submodule(name).weight.data_ptr() for name in names} == places
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert np.array_equal(endtoend.token_losses(model, text), expected)


def test_an_error_inside_restores_the_weights_too(model):
    layer = model.get_submodule(name := next(iter(study.linear_weights(model))))
    before = layer.weight.detach().clone()
    with pytest.raises(RuntimeError), endtoend.with_weights(model, {name: torch.zeros_like(before)}):
        raise RuntimeError
    assert torch.equal(layer.weight, before)


def test_weights_take_the_type_of_the_layer():
    layer = nn.Sequential(nn.Linear(2, 2)).half()
    with endtoend.with_weights(layer, {"0": torch.ones(2, 2, dtype=torch.float64)}):
        assert layer[0].weight.dtype == torch.float16


def test_a_wrong_name_or_shape_changes_nothing(model):
    name = next(iter(study.linear_weights(model)))
    good = {name: torch.zeros_like(model.get_submodule(name).weight)}
    for wrong, message in (({"model.norm": torch.ones(128)}, "no linear"), ({name: torch.ones(1, 1)}, "has shape")):
        with pytest.raises(InputError, match=message), endtoend.with_weights(model, good | wrong):
            pass
        assert model.get_submodule(name).weight.any()


# --- losses ----------------------------------------------------------------------------------------------------------


def test_losses_are_those_of_the_library_segment_by_segment_whatever_the_batch(model, text, monkeypatch):
    expected = [model(input_ids=row[None], labels=row[None]).loss.item() for row in text]
    for logits in (1 << 24, 2 * 24 * model.config.vocab_size, 1):
        monkeypatch.setattr(endtoend, "_LOGITS", logits)
        np.testing.assert_allclose(endtoend.token_losses(model, text), expected, rtol=1e-5)


def test_segments_without_a_token_to_predict_are_refused(model):
    for wrong in (torch.zeros(3, 1).long(), torch.zeros(8).long()):
        with pytest.raises(InputError, match="length 2 or more"):
            endtoend.token_losses(model, wrong)


# --- similarities ----------------------------------------------------------------------------------------------------


def unit(rows, width, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(rows, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_an_embedding_does_not_depend_on_the_other_sentences():
    encoder, tokenizer = models.load_encoder("tiny-random-bert")
    texts = ["one", "a rather longer sentence than the first", "two words", "x" * 2000]
    found = endtoend.embed(encoder, tokenizer, texts)
    for row, sentence in zip(found, texts, strict=True):
        np.testing.assert_allclose(row, endtoend.embed(encoder, tokenizer, [sentence])[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    with pytest.raises(InputError, match="empty"):
        endtoend.embed(encoder, tokenizer, ["a", ""])


def test_equal_embeddings_have_fidelity_one_and_rotated_ones_the_same_similarities():
    vectors = unit(20, 6)
    for interval in endtoend.similarity_fidelity(vectors, vectors, seed=0, resamples=50):
        np.testing.assert_allclose(interval, 1.0)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    found = endtoend.similarity_fidelity(vectors, vectors @ rotation, seed=0, resamples=50)
    assert found.cosine.high < 0.9
    np.testing.assert_allclose([found.pearson, found.spearman], 1.0)


def test_correlations_are_scipy_s_over_all_pairs():
    from scipy import stats as reference

    first, second = unit(15, 6), unit(15, 6) + 0.7 * unit(15, 6, 2)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    found = endtoend.similarity_fidelity(first, second, seed=0, resamples=50)
    pairs = [(first[i] @ first[j], second[i] @ second[j]) for i, j in itertools.combinations(range(15), 2)]
    assert found.pearson.value == pytest.approx(reference.pearsonr(*zip(*pairs, strict=True))[0])
    assert found.spearman.value == pytest.approx(reference.spearmanr(*zip(*pairs, strict=True))[0])
    assert found.cosine.value == pytest.approx((first * second).sum(1).mean())


@given(st.lists(st.integers(0, 9), min_size=10, max_size=10).filter(lambda drawn: len(set(drawn)) > 3))
def test_a_resample_counts_pairs_of_different_sentences_as_often_as_drawn(drawn):
    first, second = unit(10, 4) @ unit(10, 4).T, unit(10, 4, 3) @ unit(10, 4, 3).T
    statistic = endtoend._pair_correlation(first, second)
    pairs = [(i, j) for i, j in itertools.combinations(drawn, 2) if i != j]
    expected = np.corrcoef([first[p] for p in pairs], [second[p] for p in pairs])[0, 1]
    assert statistic(np.array([drawn, drawn], dtype=float), axis=-1)[1] == pytest.approx(expected)


def test_too_few_sentences_or_other_shapes_are_refused():
    for shapes in ((9, 9), (12, 11)):
        with pytest.raises(InputError, match="n 10 or more"):
            endtoend.similarity_fidelity(unit(shapes[0], 4), unit(shapes[1], 4), seed=0)


# --- the claim's statistic -------------------------------------------------------------------------------------------


def constant(bits, loss, shape=(3, 6)):
    return Measured(bits, np.full(shape, float(loss)))


def test_the_worst_rate_decides_and_baselines_of_too_many_bits_do_not_count():
    ours = {"4": constant(4.0, 2.0), "3": constant(2.9, 3.0)}
    others = {"a": constant(4.15, 1.5), "b": constant(3.05, 3.5), "c": constant(4.2, 0.0), "d": constant(3.1, 2.25)}
    found = deficit(ours, others, seed=0)
    assert found.pools == {"4": ["a", "b", "d"], "3": ["b"]}
    assert found.best == {"4": "a", "3": "b"}
    assert {rate: interval.interval for rate, interval in found.differences.items()} == {
        "4": (0.5, 0.5),
        "3": (-0.5, -0.5),
    }
    assert found.worst == (0.5, 0.5, 0.5)
    assert deficit({"3": ours["3"]}, others, seed=0).worst.value == -0.5
    assert deficit(ours, others, seed=0, slack=0.21).worst.value == 2.0


def test_what_all_codecs_share_cancels_in_pairs():
    noise = np.random.default_rng(0).normal(size=(3, 40)) * 5
    ours, other = Measured(4.0, noise + 0.25), Measured(4.0, noise)
    found = deficit({"4": ours}, {"a": other}, seed=0)
    np.testing.assert_allclose(found.worst, 0.25)
    np.testing.assert_allclose(loss_interval(ours, other, seed=0), 0.25)
    assert np.ptp(loss_interval(ours, seed=0).interval) > 1


def test_the_best_baseline_is_chosen_anew_in_each_resample():
    # Two segments give the resamples (0,0), (0,1), (1,0), (1,1): the best of both baselines is at 0, 1, 1, 0.
    ours = {"4": Measured(4.0, np.array([[1.0, 1.0]]))}
    others = {"a": Measured(4.0, np.array([[0.0, 2.0]])), "b": Measured(4.0, np.array([[2.0, 0.0]]))}
    assert deficit(ours, others, seed=0).worst == (0.0, 0.0, 1.0)
    assert deficit(ours, {"a": others["a"]}, seed=0).worst == (0.0, -1.0, 1.0)


def test_training_seeds_are_resampled_too():
    losses = np.array([[0.0] * 50, [3.0] * 50, [0.0] * 50])
    found = deficit({"4": Measured(4.0, losses)}, {"a": constant(4.0, 0.0, (3, 50))}, seed=0)
    assert found.worst == (1.0, 0.0, 3.0)
    single = deficit({"4": Measured(4.0, losses[1:2])}, {"a": constant(4.0, 0.0, (1, 50))}, seed=0)
    assert single.worst == (3.0, 3.0, 3.0)


def naive(ours, pools, seeds, segments):
    """The statistic of one resample, in words."""
    differences = []
    for own, pool in zip(ours, pools, strict=True):
        losses = [np.mean([[arm[s, t] for t in segments] for s in seeds]) for arm in (own, *pool)]
        differences.append(losses[0] - min(losses[1:]))
    return max(differences)


@given(st.integers(0, 2**32 - 1))
def test_the_vectorised_statistic_is_the_one_in_words(seed):
    rng = np.random.default_rng(seed)
    ours, others = rng.normal(size=(2, 3, 5)), rng.normal(size=(3, 3, 5))
    statistics = []

    def keep(statistic, *samples, **options):
        statistics.append(statistic)
        return stats.Interval(0, 0, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "bootstrap_interval", keep)
        deficit(
            {"4": Measured(4.0, ours[0]), "3": Measured(3.0, ours[1])},
            {"a": Measured(4.0, others[0]), "b": Measured(3.1, others[1]), "c": Measured(3.0, others[2])},
            seed=0,
        )
    seeds, segments = rng.integers(3, size=(4, 3)), rng.integers(5, size=(4, 5))
    found = statistics[0](seeds.astype(float), segments.astype(float), axis=-1)
    pools = [others, others[1:]]
    np.testing.assert_allclose(found, [naive(ours, pools, *drawn) for drawn in zip(seeds, segments, strict=True)])


def test_what_cannot_be_compared_is_named():
    cases = [
        (lambda: deficit({"4": constant(4.0, 1)}, {"a": constant(8, 1)}, seed=0), "no baseline takes at most 4.160"),
        (lambda: deficit({}, {"a": constant(8, 1)}, seed=0), "ours is empty"),
        (lambda: deficit({"4": constant(4.0, 1)}, {"a": constant(4, 1, (3, 5))}, seed=0), "equal, 2 segments"),
        (lambda: loss_interval(constant(4.0, 1, (3, 1)), seed=0), "2 segments or more"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message):
            call()


# --- codecs by name, and kept encodings ------------------------------------------------------------------------------


def test_variants_of_one_ladder_take_equal_bits_and_change_one_thing_at_a_time():
    bits = {}
    for arm in ARMS.values():
        if arm.kind == "variant":
            config = arm.config
            assert config.k_min == config.k_max
            taken = config.seed_bits + config.coefficient_bits * config.k_max + 16 / config.group_size
            bits.setdefault(taken / config.block_size, []).append(arm.name)
    assert set(bits) == {4.125, 3.75, 3.125}
    base = ARMS["fixed k"].config
    assert replace(base, k_min=2, k_max=12) == ARMS["S-Quant, R=0.9"].config
    changed = {
        "fixed k, row-major": {"layout"},
        "fixed k, aware": {"seed_choice", "scale_factors"},
        "fixed k, 4-bit coefficients": {"coefficient_bits", "k_min", "k_max"},
        "fixed k, blocks of 8": {"block_size", "group_size", "k_min", "k_max"},
    }
    for name, fields in changed.items():
        config = ARMS[name].config
        assert {field for field in vars(base) if getattr(config, field) != getattr(base, field)} == fields
        assert config.block_size * config.group_size == 128


def test_rounding_arms_take_the_bits_of_their_name_and_their_overhead():
    weights = {"a": torch.randn(8, 256), "b": torch.randn(4, 256)}
    inputs = torch.randn(300, 256).double()
    given = dict.fromkeys(weights, Calibration(inputs.T @ inputs, inputs.abs().mean(0), len(inputs)))
    for arm in ARMS.values():
        if arm.rounding:
            found = catalogue.rounded(arm, weights, given)
            assert arm.rate < found.bits <= arm.rate + comparison.SLACK
            assert {name: w.shape for name, w in found.weights.items()} == {n: w.shape for n, w in weights.items()}
    with pytest.raises(InputError, match="needs calibrations"):
        catalogue.rounded(ARMS["GPTQ 4 bits"], weights, {"a": given["a"]})
    with pytest.raises(InputError, match="does not round"):
        catalogue.rounded(ARMS["SeedLM 4 bits"], weights)


def test_bits_of_several_tensors_are_weighted_by_their_sizes():
    config = SeedLMConfig(register_bits=8)
    one, padded = codec.encode(torch.ones(16), config), codec.encode(torch.ones(9), config)
    found = catalogue.decoded({"a": one, "b": padded})
    assert found.bits == pytest.approx(4 * 24 / 25)
    assert torch.equal(found.weights["b"], codec.decode(padded))


def part(encoded, groups):
    """What an encoding says about some scale groups (SeedLM: runs of 8 blocks): seeds, codes and scales."""
    config = encoded.config
    size = config.group_size if isinstance(config, SQuantConfig) else 8
    blocks = np.concatenate([np.arange(g * size, (g + 1) * size) for g in groups])
    blocks = blocks[blocks < len(encoded.seeds)]
    if isinstance(config, SeedLMConfig):
        return blocks, [encoded.seeds[blocks], encoded.exponents[blocks], encoded.coefficients[blocks]]
    ends = np.cumsum(encoded.counts, dtype=int)
    codes = [encoded.coefficients[ends[b] - encoded.counts[b] : ends[b]] for b in blocks]
    return blocks, [encoded.seeds[blocks], encoded.counts[blocks], np.concatenate(codes), encoded.scales[groups]]


@pytest.mark.parametrize("arm", ENCODED)
def test_encoding_some_groups_anew_gives_the_kept_codes(arm):
    config = ARMS[arm].config
    rng = np.random.default_rng(ENCODED.index(arm))
    seed = int(rng.integers(3))
    kept_layers = kept.encodings(arm, seed)
    weights = study.linear_weights(byte_lm.load(seed).model)
    name = str(rng.choice(list(weights)))
    encoded, size = kept_layers[name], config.block_size
    n_groups = len(encoded.seeds) // (config.group_size if isinstance(config, SQuantConfig) else 8)
    groups = np.sort(rng.choice(n_groups, 4, replace=False))
    blocks, expected = part(encoded, groups)
    padded = torch.cat([weights[name].flatten(), torch.zeros(-weights[name].numel() % size)])
    anew = codec.encode(padded.view(-1, size)[torch.from_numpy(blocks)], config)
    _, found = part(anew, np.arange(4))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", byte_lm.SEEDS)
def test_every_codec_is_kept_for_every_layer_of_every_training_seed(seed):
    weights = study.linear_weights(byte_lm.load(seed).model)
    assert sum(weight.numel() for weight in weights.values()) == 49152
    for arm in ENCODED:
        found = kept.encodings(arm, seed)
        assert {name: one.shape for name, one in found.items()} == {n: tuple(w.shape) for n, w in weights.items()}
        assert all(one.config == ARMS[arm].config for one in found.values())
        replaced = catalogue.decoded(found)
        wrong = sum((replaced.weights[n] - w).square().sum() for n, w in weights.items())
        assert (wrong / sum(w.square().sum() for w in weights.values())).sqrt() < 0.5


@pytest.mark.parametrize("model", ["smollm2-135m", "minilm-l6"])
def test_the_kept_encodings_of_a_pretrained_model_are_of_its_named_layers(model):
    try:
        load = models.load_lm if model == "smollm2-135m" else models.load_encoder
        weights = study.linear_weights(load(model)[0])
    except MissingModel as error:
        pytest.skip(str(error))
    for arm in kept.PRINTED:
        found = kept.encodings(arm, model=model)
        assert len(found) == {"smollm2-135m": 10, "minilm-l6": 6}[model]
        name = list(found)[3]
        blocks, expected = part(found[name], np.array([5]))
        size = found[name].config.block_size
        anew = codec.encode(weights[name].flatten().view(-1, size)[torch.from_numpy(blocks)], ARMS[arm].config)
        for a, b in zip(part(anew, np.array([0]))[1], expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_smollm2_lies_on_a_grid_that_rounding_in_groups_of_32_would_hit():
    try:
        weights = study.linear_weights(models.load_lm("smollm2-135m")[0])
    except MissingModel as error:
        pytest.skip(str(error))
    name = next(iter(kept.encodings("SeedLM 4 bits", model="smollm2-135m")))
    assert models.distinct_levels(weights[name], 32).max() <= 16
    assert models.distinct_levels(weights[name].flatten()[: 128 * 800].view(-1, 128), 128).mean() > 32


def test_encodings_of_other_weights_another_configuration_or_another_file_are_refused(monkeypatch):
    kept.encodings("SeedLM 4 bits", 0)
    for name, message in (("SeedLM 5 bits", "did you mean 'SeedLM 4 bits'"), ("RTN 4 bits", "no stored encodings")):
        with pytest.raises(InputError, match=message):
            kept.encodings(name, 0)
    with pytest.raises(InputError, match="model='smollm' has no stored encodings"):
        kept.encodings("SeedLM 4 bits", model="smollm")
    with monkeypatch.context() as patch:
        patch.setattr(kept, "source", lambda *given: "0" * 64)
        with pytest.raises(InputError, match="other weights"):
            kept.encodings("SeedLM 4 bits", 0)
    changed = replace(ARMS["SeedLM 4 bits"], config=SeedLMConfig(exponent_rule="search"))
    monkeypatch.setattr(kept, "arms", lambda: ARMS | {"SeedLM 4 bits": changed})
    with pytest.raises(InputError, match="another configuration"):
        kept.encodings("SeedLM 4 bits", 0)


def test_writing_and_reading_keeps_every_code_and_only_codecs_with_seeds(tmp_path):
    arm = catalogue.Arm("small", "variant", 4, SQuantConfig(seed_bits=8))
    weights = {"layer": torch.randn(4, 32), "other": torch.randn(2, 16)}
    seen = []
    kept.write(tmp_path / "a", weights, [arm], "00", progress=lambda *call: seen.append(call))
    found = codec.load(tmp_path / "a")
    for name, weight in weights.items():
        assert torch.equal(codec.decode(found[f"small/{name}"]), codec.decode(codec.encode(weight, arm.config)))
    assert seen == [("small", 0.5), ("small", 1.0)]
    assert store.read(tmp_path / "a")["small/layer"][0]["recipe"] == kept.digest(kept.recipe(arm, "00"))
    with pytest.raises(InputError, match="no seeds to keep"):
        kept.write(tmp_path / "b", weights, [ARMS["RTN 4 bits"]], "00")


def test_checkpoints_and_encodings_are_part_of_the_package_and_small(project):
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(project))
    packed = {file.distribution_path: file.path for file in builder.recurse_included_files()}
    wanted = [f"checkpoints/byte_lm_{seed}" for seed in byte_lm.SEEDS]
    wanted += [f"encodings/{stem}" for stem in ("byte_lm_0", "byte_lm_1", "byte_lm_2", "smollm2_135m", "minilm_l6")]
    for name in wanted:
        path = packed[f"icml26/s_quant/{name}.safetensors"]
        assert (project / path).stat().st_size < 2_000_000
