"""Models by name: stand-ins, local folders and real weights are what they claim to be; all else is one clear line."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tiny_gguf
from hypothesis import given
from hypothesis import strategies as st

from icml26 import models, models_tiny
from icml26.errors import InputError, MissingModel

LIB = str(Path(models.__file__).parents[1])


def message(call, *args, kind=MissingModel) -> str:
    """The error's text, which must be one line."""
    with pytest.raises(kind) as error:
        call(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_importing_models_loads_neither_torch_nor_transformers():
    code = "import sys, icml26.models as m; m.status(); print({'torch', 'transformers'} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": LIB}
    )
    assert run.stdout.strip() == "set()", run.stderr


@pytest.mark.parametrize(
    ("load", "name", "architecture"),
    [
        (models.load_lm, "tiny-random-llama", "LlamaForCausalLM"),
        (models.load_encoder, "tiny-random-bert", "BertModel"),
    ],
)
def test_a_random_stand_in_is_the_same_each_time_and_leaves_the_global_random_state(load, name, architecture):
    import torch

    state = torch.random.get_rng_state()
    (first, _), (second, _) = load(name), load(name)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert type(first).__name__ == architecture
    assert not first.training
    for one, other in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    other_seed = getattr(models_tiny, "random_llama" if load is models.load_lm else "random_bert")(seed=1)
    assert not torch.equal(next(first.parameters()), next(other_seed.parameters()))


BYTES = models_tiny.byte_tokenizer()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_byte_tokenizer_gives_one_token_per_byte_and_any_text_back(text):
    ids = BYTES(text)["input_ids"]
    assert len(ids) == len(text.encode())
    assert BYTES.decode(ids) == text


def test_a_stand_in_generates():
    model, tokenizer = models.load_lm("tiny-random-llama")
    batch = tokenizer(["a", "longer"], return_tensors="pt", padding=True)
    assert model.generate(**batch, max_new_tokens=3, min_new_tokens=3, do_sample=False).shape == (2, 9)


def test_an_encoder_is_no_language_model_and_the_message_names_the_right_call():
    assert "load_encoder('minilm-l6')" in message(models.load_lm, "minilm-l6", kind=InputError)
    assert "load_lm('smollm2-135m')" in message(models.load_encoder, "smollm2-135m", kind=InputError)


def test_an_unknown_name_is_an_error_with_the_nearest_one():
    for call in (models.load_lm, models.get, models.check):
        assert "did you mean 'smollm2-135m'?" in message(call, "smolm2-135m", kind=InputError)


def test_a_hub_model_that_is_not_here_is_one_line_and_loading_asks_no_server(monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *args, **kwargs: pytest.fail("loading must not look for a server"))
    assert "icml26 models get nobody/nothing" in message(models.load_lm, "nobody/nothing")


def test_getting_a_hub_model_offline_is_one_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "offline" in message(models.get, "nobody/nothing")


def test_a_local_folder_loads_and_a_damaged_one_is_one_line(tmp_path):
    import torch

    model, tokenizer = models.load_lm("tiny-random-llama")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, tokens = models.load_lm(str(tmp_path))
    assert tokens("é")["input_ids"] == tokenizer("é")["input_ids"]
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert str(tmp_path) in message(models.load_lm, str(tmp_path))


@pytest.mark.parametrize("name", ["smollm2-135m", "minilm-l6", "owner/name"])
def test_registered_models_with_files_and_hub_ids_are_real(name):
    assert models.is_real(name) is True


def test_random_models_and_local_folders_are_not_real_and_an_unknown_name_is_neither(tmp_path, monkeypatch):
    assert not any(models.is_real(name) for name in models.REGISTRY if name.startswith("tiny-"))
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert models.is_real(str(folder)) is False
    monkeypatch.chdir(tmp_path)
    assert models.is_real("owner/name") is False  # loading takes the folder, so it is what counts
    assert "did you mean 'smollm2-135m'?" in message(models.is_real, "smolm2-135m", kind=InputError)


def test_stored_four_bit_weights_show_their_grid_and_others_do_not():
    weight = tiny_gguf.weights(seed=0)["blk.0.ffn_up"]
    assert models.distinct_levels(tiny_gguf.stored(weight), group=32).max() <= 16
    assert models.distinct_levels(weight, group=32).min() == 32


def test_distinct_levels_counts_each_group_of_a_row_on_its_own():
    weight = np.array([[1, 1, 2, 3, 3, 3, 3, 3], [0, 1, 0, 1, 4, 5, 6, 7]])
    assert models.distinct_levels(weight, group=4).tolist() == [[3, 1], [2, 4]]
    assert models.distinct_levels(weight, group=2).shape == (2, 4)


@pytest.mark.parametrize(
    ("weight", "group"),
    [(np.zeros((2, 6)), 4), (np.zeros((2, 6)), 0), (np.array([[1.0, np.nan]]), 2), (np.zeros(()), 1)],
)
def test_distinct_levels_refuses_broken_groups_and_values_that_are_not_finite(weight, group):
    message(models.distinct_levels, weight, group, kind=InputError)


def real(name: str, load):
    try:
        return load(name)
    except MissingModel as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def smollm2():
    return real("smollm2-135m", models.load_lm)


@pytest.fixture(scope="module")
def minilm():
    return real("minilm-l6", models.load_encoder)


def linear_weights(model):
    import torch

    return {
        name: module.weight
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name
    }


@pytest.mark.models
def test_smollm2_has_its_shape_in_full_precision(smollm2):
    import torch

    model, tokenizer = smollm2
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (30, 576, 9)
    assert (config.num_key_value_heads, config.vocab_size, len(tokenizer)) == (3, 49152, 49152)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert not model.training


@pytest.mark.models
def test_smollm2_speaks_english(smollm2):
    model, tokenizer = smollm2
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    assert tokenizer.decode(model(**prompt).logits[0, -1].argmax()) == " Paris"


@pytest.mark.models
def test_smollm2_tokenizer_gives_any_text_back(smollm2):
    _, tokenizer = smollm2
    text = "  Naïve café — 12345 + 6\n\tdef f(x): return x**2  # 漢字 🙂"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.models
def test_every_linear_weight_of_smollm2_lies_on_a_four_bit_grid_and_none_of_minilm_does(smollm2, minilm):
    for name, weight in linear_weights(smollm2[0]).items():
        assert models.distinct_levels(weight, group=32).max() <= 16, name
    for name, weight in linear_weights(minilm[0]).items():
        assert np.median(models.distinct_levels(weight, group=32)) == 32, name


@pytest.mark.models
def test_the_embedding_of_smollm2_was_stored_finer_than_four_bits(smollm2):
    assert np.median(models.distinct_levels(smollm2[0].model.embed_tokens.weight[:1000], group=32)) > 16


@pytest.mark.models
def test_minilm_puts_a_paraphrase_nearer_than_another_subject(minilm):
    import torch

    model, tokenizer = minilm
    batch = tokenizer(
        ["A man is eating food.", "Someone has a meal.", "The stock market fell sharply."],
        padding=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    sentence = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    near, far = (sentence[1:] @ sentence[0]).tolist()
    assert near > 0.5
    assert far < 0.2


@pytest.mark.models
@pytest.mark.parametrize(("name", "load"), [("smollm2-135m", models.load_lm), ("minilm-l6", models.load_encoder)])
def test_loading_a_real_model_prints_and_warns_nothing(name, load, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        real(name, load)
    assert capfd.readouterr() == ("", "")


@pytest.mark.models
@pytest.mark.parametrize("name", [info.name for info in models.REGISTRY.values() if info.files])
def test_a_prepared_real_model_is_byte_for_byte_what_was_prepared(name):
    if not models.status()[list(models.REGISTRY).index(name)].ready:
        pytest.skip(f"{name} is not prepared; run `icml26 models get {name}`")
    assert models.check(name).is_dir()


def test_the_registry_is_complete():
    for info in models.REGISTRY.values():
        assert info.licence
        assert info.description
        if info.files:
            assert re.fullmatch(r"[0-9a-f]{64}", info.sha256), info.name
            assert re.fullmatch(r"[\w.-]+==[\w.]+", info.package), info.name
            assert info.size
            assert info.download
