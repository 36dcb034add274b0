"""Chains of codebooks: greedy, nested, position by position, and as many bits as the formula says."""

import numpy as np
import pytest

from icml26.errors import InputError
from icml26.gsrq.clustering import fit_codebook
from icml26.gsrq.packing import pack, unpack
from icml26.gsrq.residual import ResidualQuantizer


def tokens(count=300, channels=12, seed=0):
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, 4)) @ rng.normal(size=(4, channels)) + 0.3 * rng.normal(size=(count, channels))
    return mixed * np.exp(0.5 * rng.normal(size=(count, 1)))


@pytest.fixture(scope="module")
def quantizer():
    return ResidualQuantizer(dimension=4, stages=4, codewords=8, seed=3).fit(tokens())


def test_encoding_is_greedy_and_decoding_adds_up(quantizer):
    fresh = tokens(50, seed=1)
    codes = quantizer.encode(fresh)
    assert codes.dtype == np.uint8
    assert codes.shape == (50, 3, 4)
    for row, sub in enumerate(fresh.reshape(50, 3, 4)):
        for position in range(3):
            left = sub[position].copy()
            for stage in range(4):
                book = quantizer.codebooks[position, stage]
                best = np.argmin([np.sum((left - word) ** 2) for word in book])
                assert codes[row, position, stage] == best
                left -= book[best]
            decoded = quantizer.decode(codes[row : row + 1])[0, 4 * position : 4 * position + 4]
            np.testing.assert_allclose(decoded, sub[position] - left, atol=1e-12)


def test_the_first_stages_of_a_code_are_the_code_of_a_lower_rate(quantizer):
    x = tokens()
    codes = quantizer.encode(x)
    shorter = ResidualQuantizer(dimension=4, stages=2, codewords=8, seed=3).fit(x)
    assert (shorter.codebooks == quantizer.codebooks[:, :2]).all()
    assert (quantizer.encode(x, stages=2) == codes[:, :, :2]).all()
    assert (shorter.decode(codes[:, :, :2]) == quantizer.decode(codes[:, :, :2])).all()


def test_each_stage_is_fitted_to_what_the_stages_before_left(quantizer):
    x = tokens()
    left = x[:, 4:8]
    for stage in range(4):
        book = fit_codebook(left, 8, seed=np.random.default_rng([3, 1, stage]))
        np.testing.assert_allclose(book.codewords, quantizer.codebooks[1, stage], atol=1e-12)
        assert (book.sizes == quantizer.sizes[1, stage]).all()
        assert book.iterations == quantizer.passes[1, stage]
        assert quantizer.energies[1, stage] == pytest.approx(np.sum(left**2))
        left = left - book.codewords[book.labels]
    assert quantizer.energies[1, 4] == pytest.approx(np.sum(left**2))
    assert quantizer.energies[:, 4].sum() == pytest.approx(np.sum((x - quantizer.decode(quantizer.encode(x))) ** 2))


def test_weights_follow_their_tokens_and_positions_through_all_stages():
    x, weights = tokens(), np.random.default_rng(0).integers(0, 2, (300, 3))
    options = {"dimension": 4, "stages": 3, "codewords": 4, "start": "k-means++", "rule": "mean", "iterations": 5}
    found = ResidualQuantizer(**options).fit(x, weights)
    left, w = x[:, 8:].copy(), weights[:, 2]
    for stage in range(3):
        generator = np.random.default_rng([0, 2, stage])
        book = fit_codebook(left, 4, rule="mean", start="k-means++", iterations=5, weights=w, seed=generator)
        np.testing.assert_allclose(found.codebooks[2, stage], book.codewords, atol=1e-12)
        left -= book.codewords[book.labels]
    assert not np.allclose(found.codebooks, ResidualQuantizer(**options).fit(x).codebooks)


@pytest.mark.parametrize(
    ("dimension", "stages", "codewords", "bits"),
    [
        (128, 32, 256, 2),
        (128, 16, 256, 1),
        (128, 12, 256, 0.75),
        (256, 12, 256, 0.375),
        (48, 16, 64, 2),
        (48, 3, 64, 0.375),
    ],
)
def test_bits_per_value_are_stages_times_bits_of_a_code_over_the_dimension(dimension, stages, codewords, bits):
    assert ResidualQuantizer(dimension, stages, codewords).bits_per_value == bits


def test_packed_codes_take_exactly_the_bits_that_are_counted(quantizer):
    codes = quantizer.encode(tokens())
    packed = pack(codes, 3)
    assert packed.nbytes * 8 == quantizer.bits_per_value * tokens().size
    assert (unpack(packed, 3, codes.shape) == codes).all()


def test_more_than_256_codewords_take_two_bytes():
    x = tokens(400, 4)
    found = ResidualQuantizer(dimension=4, stages=1, codewords=300, iterations=2).fit(x)
    codes = found.encode(x)
    assert codes.dtype == np.uint16
    assert codes.max() > 255


def test_a_chain_that_has_nothing_left_goes_on():
    x = np.repeat([[1.0, 2.0], [-3.0, 0.0], [0.0, 0.0]], 5, axis=0)
    found = ResidualQuantizer(dimension=2, stages=4, codewords=4).fit(x)
    np.testing.assert_allclose(found.decode(found.encode(x)), x, atol=1e-12)


def test_float32_stays_and_progress_is_told():
    told = []
    x = tokens().astype(np.float32)
    found = ResidualQuantizer(dimension=6, stages=2, codewords=4).fit(x, progress=told.append)
    assert found.codebooks.dtype == found.decode(found.encode(x)).dtype == np.float32
    assert told == ["position 1 of 2", "position 2 of 2"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dimension": 0}, "dimension=0"),
        ({"stages": 1.5}, "stages=1.5"),
        ({"codewords": 1}, "codewords=1"),
        ({"rule": "median"}, "rule='median'"),
        ({"start": "random"}, "start='random'"),
        ({"seed": -1}, "seed=-1"),
        ({"iterations": 0}, "iterations=0"),
        ({"starts": True}, "starts=True"),
    ],
)
def test_wrong_options_are_refused(options, told):
    with pytest.raises(InputError, match=told):
        ResidualQuantizer(**options)


def test_what_does_not_fit_the_codebooks_is_refused(quantizer):
    codes = quantizer.encode(tokens(5))
    with pytest.raises(InputError, match="call fit first"):
        ResidualQuantizer().encode(np.ones((2, 48)))
    with pytest.raises(InputError, match="no multiple of dimension=4"):
        quantizer.encode(np.ones((2, 6)))
    with pytest.raises(InputError, match="8 channels, in training there were 12"):
        quantizer.encode(np.ones((2, 8)))
    with pytest.raises(InputError, match="stages=5"):
        quantizer.encode(tokens(5), stages=5)
    with pytest.raises(InputError, match="codes of shape"):
        quantizer.decode(codes[:, :2])
    with pytest.raises(InputError, match="from 0 to 7"):
        quantizer.decode(codes + 8)
    with pytest.raises(InputError, match="from 0 to 7"):
        quantizer.decode(codes.astype(float))
    with pytest.raises(InputError, match="weights of shape"):
        ResidualQuantizer(4, 1, 4).fit(tokens(), np.ones((300, 2)))
