"""The file of encoded weights: every bit where the format says, and no damage unnoticed."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import safe_open

from icml26.errors import InputError
from icml26.s_quant import store
from icml26.s_quant.codec import SeedLMConfig, SQuantConfig, StoreError, decode, encode, load, save

SQUANT = SQuantConfig(block_size=4, seed_bits=6, group_size=2, k_max=3)
SEEDLM = SeedLMConfig(block_size=4, rank=2, register_bits=6)
CONFIGS = {
    "s-quant": SQUANT,
    "official widths": SQuantConfig(seed_bits=8, group_size=32, k_max=16),
    "fixed count": replace(SQUANT, k_min=3, coefficient_bits=5),
    "aware": replace(SQUANT, coefficient_bits=3, seed_choice="after", candidates=9, scale_factors=(0.5, 1.0)),
    "other register": replace(SQUANT, seed_bits=7, register="fibonacci", mask=0x60, layout="row-major"),
    "seedlm": SEEDLM,
    "seedlm, 36-bit words": SeedLMConfig(block_size=12, rank=4),
    "seedlm, prescaled": replace(SEEDLM, prescale=True, exponent_rule="search"),
}


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.02


def weights():
    weight = gaussian(3, 7)
    weight[1] = 0
    return weight


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.safetensors"
    save(path, {"a": encode(gaussian(9), SQUANT), "b": encode(gaussian(5), SEEDLM)})
    return path


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_saved_comes_back(name, tmp_path):
    encoded = encode(weights(), CONFIGS[name])
    save(tmp_path / "a", {"layer.0.weight": encoded, "": encoded})
    for found in load(tmp_path / "a").values():
        assert found.config == encoded.config
        assert found.shape == encoded.shape
        for field, value in vars(encoded).items():
            kept = getattr(found, field)
            assert type(kept) is type(value)
            if isinstance(value, np.ndarray):
                assert kept.dtype == value.dtype
                assert np.array_equal(kept, value)
            else:
                assert kept == value
        assert torch.equal(decode(found), decode(encoded))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [1, 21, 160])
def test_the_streams_take_the_bytes_that_are_counted(name, size):
    encoded = encode(gaussian(size), CONFIGS[name])
    assert sum(stream.size for stream in encoded.streams().values()) == encoded.payload_bytes()
    assert 0 <= 8 * encoded.payload_bytes() - encoded.bits_per_weight() * size < 8 * 3


def test_an_adaptive_file_has_the_bytes_of_the_released_format():
    encoded = encode(gaussian(1001), CONFIGS["official widths"])
    n, total = 63, int(encoded.counts.sum())
    assert encoded.payload_bytes() == n + -(-5 * n // 8) + total + 2 * 2


def test_every_number_lies_where_the_format_says():
    encoded = encode(gaussian(20, seed=1), SQUANT)
    streams = {name: int.from_bytes(data.tobytes(), "little") for name, data in encoded.streams().items()}
    for i in range(5):
        assert streams["seeds"] >> 6 * i & 63 == encoded.seeds[i]
        assert streams["counts"] >> 2 * i & 3 == encoded.counts[i]
    for i, code in enumerate(encoded.coefficients.tolist()):
        assert streams["coefficients"] >> 8 * i & 255 == code % 256
    for i, scale in enumerate(encoded.scales):
        assert streams["scales"] >> 16 * i & 0xFFFF == int(scale.view(np.uint16))


@given(st.integers(1, 64), st.integers(0, 40), st.booleans(), st.integers(0, 2**32 - 1))
def test_packing_is_undone_by_unpacking_and_is_one_long_number(bits, n, signed, seed):
    rng = np.random.default_rng(seed)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    values = rng.integers(low, high, n, dtype=np.int64 if signed else np.uint64, endpoint=True)
    stream = store.pack(values, bits)
    number = sum((int(v) & ((1 << bits) - 1)) << bits * i for i, v in enumerate(values))
    assert int.from_bytes(stream.tobytes(), "little") == number
    assert stream.size == -(-n * bits // 8)
    assert store.unpack(stream, bits, n).tolist() == [int(v) & ((1 << bits) - 1) for v in values]


@pytest.mark.parametrize(("value", "bits"), [(8, 3), (-5, 3), (256, 8)])
def test_a_number_too_wide_is_refused(value, bits):
    with pytest.raises(InputError, match=f"do not fit {bits} bits"):
        store.pack(np.array([value]), bits)


@pytest.fixture
def loads(monkeypatch):
    """Load from bytes, thousands of times."""

    def run(data):
        with monkeypatch.context() as patch:
            patch.setattr(store.Path, "read_bytes", lambda _: data)
            return load("memory")

    return run


def test_no_byte_can_change_unnoticed(small, loads):
    data = small.read_bytes()
    assert set(loads(data)) == {"a", "b"}
    for place, byte in enumerate(data):
        others = {byte ^ 1 << i for i in range(8)} | {byte ^ 0xFF, *b' \t\n"}0'}
        for other in others - {byte}:
            with pytest.raises(StoreError):
                loads(data[:place] + bytes([other]) + data[place + 1 :])


def test_no_byte_can_be_missing_added_or_moved_unnoticed(small, loads):
    data = small.read_bytes()
    for size in range(len(data)):
        for damaged in (
            data[:size],
            data[size + 1 :],
            data[:size] + data[size + 1 :],
            data[:size] + b" " + data[size:],
        ):
            with pytest.raises(StoreError):
                loads(damaged)
    for damaged in (data + b"\0", data + b" ", data + data):
        with pytest.raises(StoreError):
            loads(damaged)


def test_equal_tensors_give_equal_files(small, tmp_path):
    for name in ("one", "other"):
        save(tmp_path / name, {"a": encode(gaussian(9), SQUANT), "b": encode(gaussian(5), SEEDLM)})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes() == small.read_bytes()


def test_each_way_to_be_wrong_has_its_one_line(small, tmp_path):
    def message(path):
        with pytest.raises(StoreError) as caught:
            load(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "cannot be read" in message(tmp_path / "missing")
    assert "cannot be read" in message(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    assert "no file of encoded weights" in message(tmp_path / "empty")
    (tmp_path / "text").write_text("seeds: 1, 2, 3\n" * 40)
    assert "no file of encoded weights" in message(tmp_path / "text")
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "foreign")
    assert "no file of encoded weights" in message(tmp_path / "foreign")
    save_file({"a": np.zeros(3)}, tmp_path / "other", metadata={"format": "pt", "sha256": "0" * 64})
    assert "no file of encoded weights" in message(tmp_path / "other")
    data = bytearray(small.read_bytes())
    data[-1] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    assert "checksum" in message(tmp_path / "damaged")


def test_a_newer_version_says_so(small, monkeypatch):
    monkeypatch.setattr(store, "VERSION", 2)
    save(small, {"a": encode(gaussian(5), SEEDLM)})
    monkeypatch.undo()
    with pytest.raises(StoreError, match="version 2, this is 1: update"):
        load(small)


def rewrite(small, change, name="a"):
    """Save the entries again after a change, with a valid checksum."""
    entries = store.read(small)
    change(*entries[name])
    store.write(small, entries)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, streams: header["config"].update(block_size=5),
        lambda header, streams: header["config"].update(k_min=3),
        lambda header, streams: header["config"].update(threshold=7),
        lambda header, streams: header["config"].update(colour="red"),
        lambda header, streams: header.update(shape=[90]),
        lambda header, streams: header.update(shape="9"),
        lambda header, streams: header.update(shape=[-3, -3]),
        lambda header, streams: header.update(codec="zip"),
        lambda header, streams: header.pop("missed"),
        lambda header, streams: streams["seeds"].fill(0),
        lambda header, streams: streams["scales"].fill(0),
        lambda header, streams: streams["scales"].fill(255),
        lambda header, streams: streams["counts"].fill(0),
        lambda header, streams: streams["seeds"].__setitem__(-1, 255),
        lambda header, streams: streams.update(coefficients=streams["coefficients"][:-1]),
        lambda header, streams: streams.pop("counts"),
    ],
)
def test_a_file_with_a_good_checksum_is_still_checked_for_sense(small, change):
    rewrite(small, change)
    with pytest.raises(StoreError, match="'a' is not consistent"):
        load(small)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, streams: header["config"].update(rank=3),
        lambda header, streams: header["config"].update(prescale=True),
        lambda header, streams: header.update(shape=[0]),
        lambda header, streams: streams["words"].fill(0),
        lambda header, streams: streams.update(shift=np.ones(1, np.uint8)),
    ],
)
def test_so_is_seedlm_s(small, change):
    rewrite(small, change, "b")
    with pytest.raises(StoreError, match="'b' is not consistent"):
        load(small)


def test_any_safetensors_reader_opens_the_file(small):
    with safe_open(small, "np") as file:
        assert set(file.keys()) == {"a.seeds", "a.counts", "a.coefficients", "a.scales", "b.words", "b.shift"}
        assert json.loads(file.metadata()["icml26.s_quant"])["entries"]["b"][0]["codec"] == "seedlm"


def test_a_file_is_replaced_whole_or_not_at_all(small, monkeypatch):
    before = small.read_bytes()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        save(small, {"a": encode(gaussian(50), SQUANT)})
    assert small.read_bytes() == before
    assert [path.name for path in small.parent.iterdir()] == [small.name]


def test_names_that_look_like_the_format_s_own_are_kept(tmp_path):
    encoded = encode(gaussian(5), SEEDLM)
    names = ['"sha256":"' + "0" * 64, "__metadata__", "a.seeds", "ü\n/", "0" * 64]
    save(tmp_path / "a", dict.fromkeys(names, encoded))
    assert list(load(tmp_path / "a")) == names


def test_numpy_numbers_in_a_configuration_are_saved_like_pythons(tmp_path):
    one, eight = np.int64(1), np.uint8(8)
    configs = [
        SQuantConfig(eight, np.int32(8), one, np.float32(0.75), one, eight, mask=np.int64(0xB8)),
        SeedLMConfig(eight, np.int16(3), eight, prescale=np.bool_(True)),
    ]
    for config in configs:
        encoded = encode(torch.ones(3, 8), config)
        save(tmp_path / "a.safetensors", {"a": encoded})
        loaded = load(tmp_path / "a.safetensors")["a"]
        assert loaded.config == config
        assert torch.equal(decode(loaded), decode(encoded))


def test_a_group_size_beyond_the_data_costs_no_memory():
    weight = torch.ones(512).cumsum(0)
    huge, exact = (encode(weight, SQuantConfig(seed_bits=8, group_size=size)) for size in (1 << 31, 32))
    assert torch.equal(decode(huge), decode(exact))
    assert huge.payload_bytes() == exact.payload_bytes()
