"""Files and packed codes: back as they went, and no damage passes for data."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.gsrq import file
from icml26.gsrq.coupled import CoupledQuantizer
from icml26.gsrq.packing import pack, unpack
from icml26.gsrq.residual import ResidualQuantizer


@pytest.fixture(scope="module")
def quantizer():
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    return ResidualQuantizer(2, 2, 4, rule="sum", start="k-means++", iterations=7, starts=2, seed=5).fit(x)


def test_a_quantiser_comes_back_as_it_was(quantizer, tmp_path):
    file.save(tmp_path / "a.gsrq", quantizer)
    found = file.load(tmp_path / "a.gsrq")
    for name in ("codebooks", "sizes", "passes", "converged", "energies"):
        before, after = getattr(quantizer, name), getattr(found, name)
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    for name in ("dimension", "stages", "codewords", "rule", "start", "iterations", "starts", "seed"):
        assert getattr(found, name) == getattr(quantizer, name)
    x = np.random.default_rng(1).normal(size=(20, 4))
    assert (found.encode(x) == quantizer.encode(x)).all()


def test_equal_quantisers_make_equal_files(quantizer, tmp_path):
    for name in ("a", "b"):
        file.save(tmp_path / name, quantizer)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_no_flipped_byte_goes_unnoticed(quantizer, tmp_path):
    path = tmp_path / "a"
    file.save(path, quantizer)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    # All of the length, the start of the header and the digest, and a sample of the rest.
    for i in {*range(160), *rng.choice(len(whole), 300, replace=False)}:
        damaged = bytearray(whole)
        damaged[i] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            file.load(path)


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: d[:50], lambda d: b"", lambda d: b"x" * 99]
)
def test_a_file_of_another_length_or_kind_is_refused(quantizer, tmp_path, change):
    file.save(tmp_path / "a", quantizer)
    (tmp_path / "a").write_bytes(change((tmp_path / "a").read_bytes()))
    with pytest.raises(InputError, match="damaged"):
        file.load(tmp_path / "a")


def test_a_newer_version_a_missing_file_and_an_unfitted_quantiser_are_told(quantizer, tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(file, "VERSION", 2)
        file.save(tmp_path / "a", quantizer)
    with pytest.raises(InputError, match="format version 2, this is 1: update"):
        file.load(tmp_path / "a")
    with pytest.raises(InputError, match="cannot be read"):
        file.load(tmp_path / "none")
    with pytest.raises(InputError, match="call fit first"):
        file.save(tmp_path / "b", ResidualQuantizer())
    assert not (tmp_path / "b").exists()


def test_arrays_that_contradict_the_options_are_refused_by_file_and_quantiser(quantizer, tmp_path, monkeypatch):
    x = np.ones((3, 4))
    for name, wrong in (
        ("codebooks", np.full_like(quantizer.codebooks, np.nan)),
        ("codebooks", quantizer.codebooks.astype(np.float16)),
        ("sizes", quantizer.sizes[:1]),
        ("energies", quantizer.energies[:, :2]),
        ("converged", quantizer.converged.astype(np.int64)),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(quantizer, name, wrong)
            file.save(tmp_path / "a", quantizer)
        with pytest.raises(InputError, match="not written by"):
            file.load(tmp_path / "a")
    with monkeypatch.context() as changed:
        changed.setattr(quantizer, "stages", 3)
        for call in (lambda: quantizer.encode(x), lambda: file.save(tmp_path / "b", quantizer)):
            with pytest.raises(InputError, match="codebooks of shape"):
                call()


def test_a_coupled_quantiser_comes_back_as_one(tmp_path):
    tokens = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    file.save(tmp_path / "a", CoupledQuantizer(2, 3, iterations=5, seed=2).fit(tokens))
    found = file.load(tmp_path / "a")
    assert isinstance(found, CoupledQuantizer)
    assert (found.channels, found.bits, found.iterations, found.seed) == (2, 3, 5, 2)


def test_what_is_no_quantiser_or_path_is_told(tmp_path):
    with pytest.raises(InputError, match="must be a ResidualQuantizer"):
        file.save(tmp_path / "a", None)
    with pytest.raises(InputError, match="must name a file"):
        file.load(None)


def test_the_checksum_is_that_of_the_file_with_its_digits_blanked(quantizer, tmp_path):
    file.save(tmp_path / "a", quantizer)
    data = (tmp_path / "a").read_bytes()
    start = data.index(b'sha256\\": \\"') + len(b'sha256\\": \\"')
    blank = data[:start] + b"0" * 64 + data[start + 64 :]
    assert hashlib.sha256(blank).hexdigest().encode() == data[start : start + 64]


@settings(max_examples=40)
@given(bits=st.integers(1, 16), count=st.integers(0, 40), seed=st.integers(0, 1000))
def test_packed_codes_are_the_digits_of_one_long_number(bits, count, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, count)
    packed = pack(codes, bits)
    number = sum(int(code) << bits * i for i, code in enumerate(codes))
    assert packed.tobytes() == number.to_bytes(-(-count * bits // 8), "little")
    found = unpack(packed, bits, (count,))
    assert (found == codes).all()
    assert found.dtype == (np.uint8 if bits <= 8 else np.uint16)


def test_codes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="do not fit 3 bits"):
        pack([8], 3)
    with pytest.raises(InputError, match="do not fit 3 bits"):
        pack([-1], 3)
    with pytest.raises(InputError, match="must be integers"):
        pack([1.0], 3)
    with pytest.raises(InputError, match="bits=17"):
        pack([1], 17)
    with pytest.raises(InputError, match="must be 2 bytes"):
        unpack(np.zeros(3, np.uint8), 3, (4,))
    with pytest.raises(InputError, match="not zero"):
        unpack(np.full(2, 255, np.uint8), 3, (4,))
