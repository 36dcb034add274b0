"""Whole models on disk: encoded tensor by tensor, resumed after any end, loaded by transformers, fully verified."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM

from icml26.errors import Icml26Error, InputError
from icml26.models_tiny import random_bert, random_llama
from icml26.s_quant import compress, hf, workers
from icml26.s_quant.audit import audit
from icml26.s_quant.checkpoint import read_checkpoint
from icml26.s_quant.codec import SeedLMConfig, SQuantConfig, decode, encode
from icml26.s_quant.layers import block_linears
from icml26.s_quant.linear import SeedLinear
from icml26.s_quant.presets import CODECS, preset

S6 = SeedLMConfig(8, 3, 6)
S8 = SQuantConfig(seed_bits=8)
LAYERS = 14


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """So small a work is only slowed down by threads that wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    random_llama().save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def made(llama, tmp_path_factory):
    """The model compressed in one go."""
    out = tmp_path_factory.mktemp("made") / "out"
    assert compress.compress(str(llama), out, S6) == LAYERS
    return out


@pytest.fixture
def out(made, tmp_path):
    return shutil.copytree(made, tmp_path / "out")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def finished(folder):
    return {path.name: path.stat() for path in (folder / "encoded").glob("[!.]*.safetensors")}


# what is written


@pytest.mark.parametrize("config", [S6, S8], ids=["seedlm", "s-quant"])
def test_transformers_loads_the_folder_with_the_codec_s_weights_and_all_else_untouched(llama, tmp_path, config):
    compress.compress(str(llama), tmp_path / "out", config)
    packed = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    dense = AutoModelForCausalLM.from_pretrained(llama)
    replaced = {name: module for name, module in packed.named_modules() if isinstance(module, SeedLinear)}
    assert set(replaced) == set(block_linears(dense))
    for name in list(replaced)[::5]:
        assert torch.equal(replaced[name].decode(), decode(encode(dense.get_submodule(name).weight.detach(), config)))
    others = {name: value for name, value in packed.state_dict().items() if value.dtype != torch.uint8}
    assert all(torch.equal(value, dense.state_dict()[name]) for name, value in others.items())
    assert packed.lm_head.weight is packed.model.embed_tokens.weight
    assert packed.config.quantization_config.settings == config
    assert packed.quantization_method == hf.METHOD
    ids = torch.arange(3, 9).view(1, -1)
    assert packed.generate(ids, max_new_tokens=2, do_sample=False).shape[1] <= 8
    assert (tmp_path / "out" / "tokenizer_config.json").read_text() == "{}"
    assert "import icml26.s_quant.hf" in (tmp_path / "out" / "README.md").read_text()


def test_the_base_model_loads_from_the_same_folder_though_its_names_have_no_prefix(made):
    base = AutoModel.from_pretrained(made)
    whole = AutoModelForCausalLM.from_pretrained(made)
    ids = torch.arange(3, 9).view(1, -1)
    assert isinstance(base.layers[0].mlp.up_proj, SeedLinear)
    assert torch.equal(base(ids).last_hidden_state, whole.model(ids).last_hidden_state)


def test_a_sharded_model_of_another_type_with_biases_and_a_choice_of_layers(tmp_path):
    dense = random_bert().to(torch.bfloat16)
    dense.save_pretrained(tmp_path / "model", max_shard_size="300KB")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["dtype"]  # older models do not have it
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    count = compress.compress(str(tmp_path / "model"), tmp_path / "out", S8, layers=["*.0.attention.*", "*.1.output.*"])
    packed = AutoModel.from_pretrained(tmp_path / "out", dtype="auto")
    replaced = {name: module for name, module in packed.named_modules() if isinstance(module, SeedLinear)}
    assert count == len(replaced) == 5
    module = packed.encoder.layer[1].output.dense
    assert torch.equal(module.decode(), decode(encode(dense.encoder.layer[1].output.dense.weight.detach(), S8)))
    assert torch.equal(module.bias, dense.encoder.layer[1].output.dense.bias)
    assert torch.equal(packed.encoder.layer[0].output.dense.weight, dense.encoder.layer[0].output.dense.weight)
    assert packed.dtype == torch.bfloat16


def test_the_rest_is_written_in_bounded_files(llama, tmp_path, monkeypatch):
    monkeypatch.setattr("icml26.s_quant.assemble._REST", 1)
    compress.compress(str(llama), tmp_path / "out", S6, layers=["*.0.self_attn.k_proj"])
    rest = sorted((tmp_path / "out").glob("rest-*"))
    assert all(len(load_file(path)) == 1 for path in rest)
    assert len(rest) == len(load_file(llama / "model.safetensors")) - 1
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").num_parameters()


@pytest.mark.parametrize("config", [S8, replace(S8, block_size=24, group_size=3), S6, replace(S6, prescale=True)])
def test_encoding_in_parts_is_encoding_the_whole(config):
    weight = torch.randn(37, 41, generator=torch.Generator().manual_seed(0)) * 0.02
    weight[3] = 0
    shares = []
    found, error = workers.encode_in_parts(weight, config, shares.append, part=200)
    whole = encode(weight, config)
    for name, value in vars(whole).items():
        kept = getattr(found, name)
        assert (kept == value).all() if hasattr(value, "dtype") else kept == value
    assert error == pytest.approx(((decode(whole) - weight).norm() / weight.norm()).item(), rel=1e-5)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert workers.encode_in_parts(torch.zeros(2, 8), config)[1] == 0


@pytest.mark.parametrize(("name", "bits"), CODECS)
def test_a_named_codec_has_about_the_bits_that_it_is_asked_for(name, bits):
    small = {"register_bits": 10} if name == "seedlm" else {"seed_bits": 10, "candidates": 8}
    config = preset(name, bits, **small)
    weight = torch.randn(64, 48, generator=torch.Generator().manual_seed(0)) * 0.02
    saved = 6 / config.block_size  # by seeds of 10 bits instead of 16
    assert preset(name, bits) == replace(config, **{key: getattr(preset(name, bits), key) for key in small})
    # an adaptive codec takes more basis vectors when there are fewer seeds to choose from
    low, high = (0, 1.5) if name == "squant" else (-0.3, 0.2)
    assert low <= encode(weight, config).bits_per_weight() + saved - bits <= high


# how it ends, and goes on


def start(llama, out):
    command = [sys.executable, "-m", "icml26.cli", "compress", str(llama), "--codec", "squant", "--out", str(out)]
    command += ["--set", "seed_bits=10", "--jobs", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment, process_group=0)


def wait_for(condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.005)


def is_gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_after_a_kill_no_finished_tensor_is_redone_and_the_end_is_as_if_in_one_go(llama, tmp_path):
    out = tmp_path / "out"
    run = start(llama, out)
    wait_for(lambda: finished(out))
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wait_for(lambda: is_gone(run.pid))  # the workers end with their parent
    kept = finished(out)
    assert 1 <= len(kept) < LAYERS
    assert not (out / "checksums.json").exists()
    (problem,) = audit(out).problems
    assert f"is not finished, {len(kept)} of {LAYERS} tensors are encoded: run the same" in problem

    (out / "encoded" / ".model.layers.0.mlp.up_proj.safetensors.1.ab.part").write_bytes(b"half a file")
    config = preset("squant", seed_bits=10)
    assert compress.compress(str(llama), out, config) == LAYERS - len(kept)
    for name, before in kept.items():
        after = finished(out)[name]
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert audit(out).problems == []
    compress.compress(str(llama), tmp_path / "one go", config)
    assert contents(out) == contents(tmp_path / "one go")


def test_an_interrupt_keeps_what_is_finished_and_says_so(llama, made, tmp_path, icml26, monkeypatch):
    real, calls = workers.encode_in_parts, []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    command = ("compress", str(llama), "--codec", "seedlm", "--set", "register_bits=6", "--jobs", "1")
    monkeypatch.setattr(workers, "encode_in_parts", interrupted)
    code, told, _ = icml26(*command, "--out", str(tmp_path / "out"))
    assert code == 130
    assert f"interrupted: 3 encoded tensors are kept in {tmp_path / 'out'}; the same command goes on" in told
    assert len(finished(tmp_path / "out")) == 3
    code, told, _ = icml26(*command, "--out", str(tmp_path / "out"))
    assert code == 0
    assert "11 tensors encoded, 3 kept from an earlier run" in told
    assert contents(tmp_path / "out") == contents(made)


def test_a_finished_folder_is_left_as_it_is(llama, made):
    before = contents(made)
    events = []
    assert compress.compress(str(llama), made, S6, progress=events.append) == 0
    assert contents(made) == before
    assert {event.stage for event in events} == {"reading", "writing"}


def test_only_a_damaged_tensor_is_encoded_again(llama, made, out):
    target = out / "encoded" / "model.layers.1.mlp.up_proj.safetensors"
    data = bytearray(target.read_bytes())
    data[-1] ^= 1
    target.write_bytes(data)
    events = []
    assert compress.compress(str(llama), out, S6, progress=events.append) == 1
    assert contents(out) == contents(made)
    encoding = [event for event in events if event.stage == "encoding"]
    assert {event.name for event in encoding} == {"model.layers.1.mlp.up_proj"}
    assert [encoding[0].finished, encoding[-1].finished, encoding[-1].tensors] == [LAYERS - 1, LAYERS, LAYERS]
    assert 0 < encoding[0].done < encoding[-1].done == encoding[-1].total


def test_other_settings_or_another_model_are_refused_and_nothing_is_touched(llama, made, out, tmp_path):
    def refused(message, *, model=llama, config=S6, **options):
        with pytest.raises(InputError, match=message):
            compress.compress(str(model), out, config, **options)

    refused("was begun with rank 3, not 2: set it as it was", config=replace(S6, rank=2))
    refused("was begun with codec seedlm, not s-quant", config=S8)
    refused("was begun with layers 14, not 2", layers=["*.k_proj"])
    other = shutil.copytree(llama, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    refused("the model's model.safetensors is not the one that .* was begun with: give another --out", model=other)
    assert contents(out) == contents(made)


def test_a_folder_with_something_else_in_it_is_refused(llama, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("dear reader")
    with pytest.raises(InputError, match=r"holds other files \(thesis.tex\)"):
        compress.compress(str(llama), tmp_path / "full", S6)
    with pytest.raises(InputError, match="is a file: give a folder"):
        compress.compress(str(llama), tmp_path / "full" / "thesis.tex", S6)
    with pytest.raises(InputError, match="is the model's own folder"):
        compress.compress(str(llama), llama, S6)
    with pytest.raises(InputError, match="jobs=0 is too few"):
        compress.compress(str(llama), tmp_path / "new", S6, jobs=0)
    with pytest.raises(InputError, match=r"no layer is called '\*\.kproj': names look like model\.layers\.0\."):
        compress.compress(str(llama), tmp_path / "new", S6, layers=["*.kproj"])


def test_two_runs_do_not_write_into_one_folder(llama, out):
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Icml26Error, match="another run is working on"):
            compress.compress(str(llama), out, S6)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_weight_that_cannot_be_encoded_is_named(llama, tmp_path, jobs):
    weights = load_file(llama / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][5, 7] = torch.nan
    model = shutil.copytree(llama, tmp_path / "model")
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"^model\.layers\.1\.mlp\.up_proj: weight is nan at flat index 647"):
        compress.compress(str(model), tmp_path / "out", S6, layers=["*.1.mlp.*"], jobs=jobs)


# verification


def test_what_is_stored_is_counted_and_the_error_is_that_of_the_original(llama, made):
    found = audit(made, read_checkpoint(llama))
    assert found.problems == []
    assert len(found.rows) == LAYERS
    weights = load_file(llama / "model.safetensors")
    row = next(row for row in found.rows if row.name == "model.layers.0.mlp.down_proj")
    weight = weights["model.layers.0.mlp.down_proj.weight"]
    encoded = encode(weight, S6)
    assert row.streams == {"words": encoded.payload_bytes()}
    assert row.bits == row.bits_without_counts == encoded.bits_per_weight() == 2.75
    assert row.error == pytest.approx(((decode(encoded) - weight).norm() / weight.norm()).item(), rel=1e-5)
    assert all(row.measured == pytest.approx(row.error, rel=1e-9) for row in found.rows)
    files = {name: len(data) for name, data in contents(made).items() if name not in ("checksums.json", ".lock")}
    assert sum(found.sizes.values()) == sum(files.values())
    kept = sum(
        value.nbytes for name, value in weights.items() if name not in {f"{row.name}.weight" for row in found.rows}
    )
    assert kept < found.sizes["rest"] < kept + 1000


def test_counts_are_told_apart(llama, tmp_path):
    compress.compress(str(llama), tmp_path / "out", S8, layers=["*.0.mlp.up_proj"])
    (row,) = audit(tmp_path / "out").rows
    assert row.bits - row.bits_without_counts == pytest.approx(4 / 16)
    assert set(row.streams) == {"seeds", "counts", "coefficients", "scales"}


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


TENSOR = "encoded/model.layers.0.mlp.up_proj.safetensors"
AGAIN = "run the same compress command again"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda out: flip(out / TENSOR), f"{TENSOR} is damaged (checksum): {AGAIN}"),
        (lambda out: (out / TENSOR).unlink(), f"{TENSOR} is missing: {AGAIN}"),
        (lambda out: flip(out / "rest-00001.safetensors"), "rest-00001.safetensors is damaged (checksum): copy the"),
        (lambda out: (out / "config.json").unlink(), "config.json is missing: copy the folder again"),
        (lambda out: (out / "config.json").write_text("{}"), "config.json is damaged (checksum): copy the folder"),
        (lambda out: (out / "encoded" / "x").touch(), "encoded/x does not belong to this model: remove it"),
        (lambda out: (out / "checksums.json").write_text("{}"), f"checksums.json is damaged: {AGAIN}"),
        (lambda out: (out / "checksums.json").unlink(), f"is not finished, 14 of 14 tensors are encoded: {AGAIN}"),
    ],
)
def test_every_kind_of_damage_is_one_line_and_exit_code_1(out, icml26, damage, said):
    damage(out)
    (problem,) = audit(out).problems
    assert said in problem
    code, _, err = icml26("compress", "--check", str(out))
    assert (code, err) == (1, f"icml26: {problem}\n")


def test_all_problems_are_told_at_once(out, icml26):
    (out / "config.json").unlink()
    flip(out / TENSOR)
    code, _, err = icml26("compress", "--check", str(out))
    assert code == 1
    assert len(err.splitlines()) == 2


def test_a_file_of_another_tensor_with_a_good_checksum_is_found(out):
    other = out / "encoded" / "model.layers.1.mlp.up_proj.safetensors"
    shutil.copy(other, out / TENSOR)
    assert "is damaged (checksum)" in audit(out).problems[0]


def test_errors_are_measured_against_the_right_model_only(made, tmp_path):
    random_llama(seed=1).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"was not made from .*: its model\.safetensors is another"):
        audit(made, read_checkpoint(tmp_path))


# the model's folder


def test_each_way_not_to_be_a_model_has_its_one_line(llama, made, tmp_path):
    def message(folder):
        with pytest.raises(InputError) as caught:
            read_checkpoint(folder)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "its config.json cannot be read" in message(tmp_path)
    assert "is quantised already (icml26-s-quant): give the original model" in message(made)
    folder = shutil.copytree(llama, tmp_path / "model")
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1])
    assert f"has {len(data) - 1} bytes, not {len(data)}: copy the model again" in message(folder)
    weights.write_bytes(b"weights")
    assert "is no safetensors file, or is damaged" in message(folder)
    weights.rename(folder / "pytorch_model.bin")
    assert "lacks model.safetensors: save the model as safetensors" in message(folder)
    weights.write_bytes(data)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "abacus"}))
    assert "transformers cannot build ['LlamaForCausalLM']" in message(folder)
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 0}))
    assert "no linear layer inside the blocks" in message(folder)


# the command


def test_the_command_says_what_it_does_and_shows_examples(icml26):
    code, out, _ = icml26("compress", "--help")
    assert code == 0
    assert out.partition("Examples")[2].count("icml26 compress") == 5
    assert "compress" in icml26("--help")[1]


def test_the_command_compresses_and_checks(tmp_path, icml26):
    folder = str(tmp_path / "out")
    command = ("compress", "tiny-random-llama", "--codec", "squant", "--out", folder, "--jobs", "1")
    command += ("--set", "seed_bits=6", "--set", "threshold=0.5", "--layers", "*.k_proj")
    code, out, err = icml26(*command)
    assert code == 0, err
    assert "2 tensors encoded: " in out
    assert "2 of 2 tensors encoded" in err
    code, out, err = icml26(*command)
    assert code == 0, err
    assert "0 tensors encoded, 2 kept from an earlier run: " in out
    code, out, err = icml26("compress", "tiny-random-llama", "--check", folder)
    assert code == 0, err
    assert out.count("k_proj") == 2
    for word in ("against the model", "without counts", "coefficients", "tensors left as they are", "is sound"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tiny-random-llama", "--codec", "squant"), "--out is missing: see `icml26 compress --help`"),
        (("--codec", "squant", "--out", "x"), "MODEL is missing"),
        (
            ("a", "--codec", "squont", "--out", "x"),
            "codec 'squont' is not known: use squant, squant-repaired, seedlm; did",
        ),
        (("a", "--codec", "squant", "--bits", "2", "--out", "x"), "bits=2 is not prepared for squant: use 3 or 4"),
        (("a", "--codec", "squant", "--out", "x", "--set", "seeds=8"), "squant has no parameter 'seeds'"),
        (("a", "--codec", "squant", "--out", "x", "--set", "seed_bits"), "--set seed_bits: write it as key=value"),
        (("a", "--codec", "squant", "--out", "x", "--set", "seed_bits=99"), "seed_bits 99 is out of range"),
        (("a", "--codec", "squant", "--out", "x", "--set", "mask=[1"), "--set mask=[1: the value cannot be read"),
        (("no-such-model", "--codec", "squant", "--out", "x"), "model 'no-such-model' is neither a known name"),
        (("--check", "x"), "x holds no compressed model: its compress.json is missing or damaged"),
        (("--check", "x", "--out", "y"), "--check verifies a folder: leave out --codec and --out"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch, icml26, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = icml26("compress", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"icml26: {said}")
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_list_of_commands_loads_no_command_and_the_package_no_transformers():
    code = """
import sys
from icml26 import cli
sys.argv = ["icml26", "--help"]
try:
    cli.main()
except SystemExit:
    print({"torch", "numpy", "icml26.s_quant"} & set(sys.modules))
import icml26.s_quant.linear
print("transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Encode a model's linear layers" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["set()", "False"]
