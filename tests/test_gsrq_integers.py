"""KIVI's rounding beside plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.gsrq.integers import kivi_keys, kivi_values

SEEDS = st.integers(0, 1000)


def rounded(numbers, bits):
    """One group, as the method's description has it."""
    low, high = min(numbers), max(numbers)
    minimum, step = float(np.float16(low)), float(np.float16((high - low) / (2**bits - 1)))
    read = []
    for number in numbers:
        code = 0 if step == 0 else min(max(round((number - minimum) / step), 0), 2**bits - 1)
        read.append(minimum + step * code)
    return read


def looped(numbers, bits, group, window, whole_groups):
    """Along the last axis of a matrix."""
    read = numbers.copy()
    for row in read:
        end = max(len(row) - window, 0)
        for start in range(0, end, group):
            stop = min(start + group, end)
            if stop - start == group or not whole_groups:
                row[start:stop] = rounded([float(number) for number in row[start:stop]], bits)
    return read


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(0, 40),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 16),
    st.integers(0, 9),
)
def test_keys_are_rounded_channel_by_channel_in_whole_groups_of_tokens(seed, tokens, channels, bits, group, window):
    keys = np.random.default_rng(seed).normal(2, 3, (tokens, channels))
    np.testing.assert_allclose(kivi_keys(keys, bits, group, window), looped(keys.T, bits, group, window, True).T)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(0, 9),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(1, 16),
    st.integers(0, 9),
)
def test_values_are_rounded_token_by_token_in_groups_of_channels(seed, tokens, channels, bits, group, window):
    values = np.random.default_rng(seed).normal(2, 3, (tokens, channels))
    old = max(tokens - window, 0)
    expected = np.concatenate([looped(values[:old], bits, group, 0, False), values[old:]])
    np.testing.assert_allclose(kivi_values(values, bits, group, window), expected)


def test_the_error_is_at_most_half_a_step_and_falls_with_every_bit():
    keys = np.random.default_rng(0).normal(size=(320, 8))
    spread = np.ptp(keys.reshape(10, 32, 8), axis=1)
    errors = []
    for bits in range(1, 9):
        error = np.abs(kivi_keys(keys, bits) - keys).reshape(10, 32, 8).max(1)
        assert (error <= spread / (2**bits - 1) / 2 + spread * 2**-10 + 2**-10).all()
        errors.append((error**2).mean())
    assert (np.diff(errors) < 0).all()


def test_keys_rounded_per_channel_keep_a_channel_that_is_large_throughout():
    keys = np.random.default_rng(0).normal(size=(64, 32))
    keys[:, 3] += 50
    per_channel = np.abs(kivi_keys(keys, 2) - keys).mean()
    per_token = np.abs(kivi_values(keys, 2) - keys).mean()
    assert per_channel < per_token / 3


def test_sequences_of_a_batch_do_not_share_groups():
    keys = np.random.default_rng(0).normal(size=(3, 2, 70, 8)).astype(np.float32)
    for function in (kivi_keys, kivi_values):
        batched = function(keys, 2, window=5)
        assert batched.dtype == np.float32
        np.testing.assert_array_equal(batched[2, 1], function(keys[2, 1], 2, window=5))


def test_one_token_is_left_alone_until_its_group_is_whole():
    keys = np.random.default_rng(0).normal(size=(33, 4))
    read = kivi_keys(keys, 1)
    assert (read[32] == keys[32]).all()
    assert (read[:32] != keys[:32]).mean() > 0.8


def test_rounding_twice_changes_nothing():
    values = np.random.default_rng(1).normal(size=(5, 64)).astype(np.float16)
    once = kivi_values(values, 2)
    np.testing.assert_allclose(kivi_values(once, 2), once, atol=4e-3)


def test_a_constant_group_comes_back_as_its_minimum():
    assert kivi_values(np.full((2, 32), 0.5), 2).tolist() == [[0.5] * 32] * 2


@pytest.mark.parametrize("function", [kivi_keys, kivi_values])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(4), 2), "axes"),
        ((np.ones((4, 0)), 2), "axes"),
        ((np.full((4, 4), np.nan), 2), "NaN"),
        ((np.array([["a", "b"]]), 2), "real numbers"),
        ((np.ones((4, 4)), 0), "bits=0"),
        ((np.ones((4, 4)), True), "bits=True"),
        ((np.ones((4, 4)), 2, 0), "group=0"),
        ((np.ones((4, 4)), 2, 4, -1), "window=-1"),
        ((np.outer([1, 2, 3, 4], [1e5, 2e5, 3e5, 4e5]), 2, 4), "float16"),
    ],
)
def test_wrong_input_is_refused_in_one_line(function, arguments, message):
    with pytest.raises(InputError, match=message):
        function(*arguments)
