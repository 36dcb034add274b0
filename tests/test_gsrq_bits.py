"""Bytes of compressed caches: the paper's rates and the sizes that it leaves out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.gsrq import bits

MIB = 1 << 20


def llama(dimension, stages):
    """Llama-3-8B: 32 layers of 8 KV heads of 128."""
    return bits.residual(1024, dimension=dimension, stages=stages, codewords=256, layers=32)


@pytest.mark.parametrize(
    ("dimension", "stages", "rate", "mebibytes"),
    [(128, 32, 2, 1024), (128, 16, 1, 512), (128, 12, 0.75, 384), (256, 12, 0.375, 384)],
)
def test_the_rates_of_the_paper_and_the_codebooks_that_it_does_not_count(dimension, stages, rate, mebibytes):
    found = llama(dimension, stages)
    assert found.paper_bits == found.bits_per_value == rate
    assert found.codebook_bytes == mebibytes * MIB


def test_one_bit_codebooks_of_llama_weigh_as_much_as_65536_of_its_tokens():
    one, full = llama(128, 16), bits.full_precision(1024, layers=32)
    assert one.cache_bytes(1) == 8 << 10
    assert full.cache_bytes(1) == 128 << 10
    assert one.cache_bytes(65_536) == one.codebook_bytes == full.cache_bytes(4096)
    assert one.effective_bits(65_536) == 2
    saving = full.cache_bytes(8192) / (one.cache_bytes(8192) + one.codebook_bytes)
    assert saving == pytest.approx(1024 / (64 + 512))


@pytest.mark.parametrize(("stages", "rate"), [(16, 2), (8, 1), (6, 0.75), (3, 0.375)])
def test_six_bit_codes_of_the_small_model_pack_without_padding(stages, rate):
    found = bits.residual(192, dimension=48, stages=stages, codewords=64, layers=2)
    assert found.paper_bits == found.bits_per_value == rate
    assert found.codebook_bytes == 2 * 2 * 4 * stages * 64 * 48 * 2


@pytest.mark.parametrize(("channels", "code", "rate"), [(2, 4, 2), (4, 4, 1), (8, 6, 0.75), (16, 6, 0.375)])
def test_coupled_channels_share_the_bits_of_one_code(channels, code, rate):
    found = bits.coupled(192, coupled_channels=channels, bits=code, layers=3)
    assert found.paper_bits == found.bits_per_value == rate
    assert found.codebook_bytes == 2 * 3 * (192 // channels) * 2**code * channels * 2


def test_codes_that_do_not_fill_bytes_are_padded_token_by_token():
    found = bits.residual(12, dimension=4, stages=1, codewords=5)  # three codes of 3 bits: 9 bits, 2 bytes
    assert found.row_bytes == 2
    assert found.paper_bits == pytest.approx(np.log2(5) / 4)
    assert found.bits_per_value == 16 / 12


@pytest.mark.parametrize(("code", "paper", "ours"), [(2, 2.25, 3), (1, 1.25, 2)])
def test_two_float16_numbers_for_32_values_are_one_bit_each(code, paper, ours):
    found = bits.integers(192, bits=code)
    assert (found.paper_bits, found.bits_per_value) == (paper, ours)


def looped_integer_bytes(channels, code, group, window, tokens):
    """Keys and values of one layer, number by number."""
    total = 4 * channels * min(tokens, window)
    for _ in range(channels):  # the keys of a channel
        waiting = max(tokens - window, 0)
        while waiting >= group:
            waiting -= group
            total += -(-group * code // 8) + 4
        total += 2 * waiting
    for _ in range(max(tokens - window, 0)):  # the values of a token
        total += -(-channels * code // 8) + 4 * len(range(0, channels, group))
    return total


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70), st.integers(1, 8), st.integers(1, 40), st.integers(0, 50), st.integers(0, 200))
def test_integers_take_whole_groups_and_leave_the_rest_in_float16(channels, code, group, window, tokens):
    found = bits.integers(channels, bits=code, group=group, window=window, layers=3)
    assert found.cache_bytes(tokens) == 3 * looped_integer_bytes(channels, code, group, window, tokens)


def test_integers_cost_their_long_run_bits_when_groups_come_out_even():
    found = bits.integers(192, bits=2, layers=5)
    assert found.effective_bits(4096) == found.bits_per_value
    windowed = bits.integers(192, bits=2, window=128, layers=5)
    assert windowed.effective_bits(128) == 16
    assert windowed.effective_bits(1 << 20) == pytest.approx(3, abs=0.01)


def test_a_batch_shares_its_codebooks_but_not_its_windows():
    codes = llama(128, 16)
    assert codes.effective_bits(1024, 8) == codes.effective_bits(8192)
    windowed = bits.integers(1024, bits=2, window=128)
    assert windowed.cache_bytes(128, 8) == 8 * windowed.cache_bytes(128) > windowed.cache_bytes(1024)


def test_lengths_may_be_an_array():
    tokens = np.array([[1, 100], [1000, 10_000]])
    found = llama(128, 16)
    assert (found.cache_bytes(tokens) == found.cache_bytes(1) * tokens).all()
    assert found.effective_bits(tokens).shape == tokens.shape
    assert (np.diff(found.effective_bits(tokens).ravel()) < 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bits.residual(192, dimension=50, stages=1, codewords=64), "dimension=50 does not divide"),
        (lambda: bits.residual(192, dimension=48, stages=True, codewords=64), "stages=True must be an integer"),
        (lambda: bits.residual(192, dimension=48, stages=3, codewords=1), "codewords=1"),
        (lambda: bits.coupled(192, coupled_channels=4, bits=0), "bits=0"),
        (lambda: bits.integers(192, bits=9), "bits=9"),
        (lambda: bits.integers(192, bits=2, window=-1), "window=-1"),
        (lambda: bits.full_precision(0), "channels=0"),
        (lambda: bits.full_precision(4).cache_bytes(-1), "tokens=-1"),
        (lambda: bits.full_precision(4).cache_bytes(2.5), "tokens=2.5"),
        (lambda: bits.full_precision(4).cache_bytes(2, 0), "sequences=0"),
        (lambda: bits.full_precision(4).effective_bits([3, 0]), "at least 1"),
    ],
)
def test_wrong_numbers_are_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("tokens", [1 << 62, 10**19, 10**30])
def test_more_tokens_than_can_be_counted_are_refused_and_do_not_wrap(tokens):
    storage = bits.residual(192, dimension=48, stages=3, codewords=64, layers=2)
    for count in (storage.cache_bytes, storage.effective_bits):
        with pytest.raises(InputError, match="tokens="):
            count(tokens)
    assert int(storage.cache_bytes(1 << 40)) == 2 * 2 * 9 << 40
