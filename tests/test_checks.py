"""Numbers pass as Python's own, and everything else is refused in one line that names argument, value and remedy."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml26.checks import is_integer, is_number, real, whole
from icml26.errors import InputError

NOT_NUMBERS = [True, np.True_, "3", None, [3], np.array([3, 4]), 3j, Fraction(1, 2)]


@given(st.integers(-128, 127), st.sampled_from([int, np.int8, np.int64, np.intp]))
def test_integers_of_any_kind_become_pythons(value, kind):
    found = whole("n", kind(value))
    assert type(found) is int
    assert found == value
    assert is_integer(kind(value))
    assert is_number(kind(value))
    assert type(real("x", kind(value))) is float


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 3.0, np.float32(3)])
def test_what_is_no_integer_is_refused(value):
    assert not is_integer(value)
    with pytest.raises(InputError, match=r"^n=.* must be an integer of at least 0$"):
        whole("n", value, 0)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, np.nan, -np.inf, np.float32(np.inf), 10**400, -(10**400)])
def test_what_is_no_finite_number_is_refused(value):
    assert not is_number(value)
    with pytest.raises(InputError, match=r"^x=.* must be a finite number$"):
        real("x", value)


@given(st.integers(-5, 5), st.integers(-3, 3), st.integers(-3, 3))
def test_bounds_of_integers_are_allowed_themselves(value, least, most):
    if least <= value <= most:
        assert whole("n", value, least, most) == value
    else:
        with pytest.raises(InputError, match=rf"^n={value} must be an integer of at least {least} and at most {most}$"):
            whole("n", value, least, most)


@given(st.sampled_from([0.0, 0.25, 1.0, 2]), st.sampled_from([float, np.float16, np.float64]))
def test_bounds_of_numbers_are_allowed_or_not_as_they_are_called(value, kind):
    for options, inside in (
        ({"low": 0.25}, value >= 0.25),
        ({"above": 0.25}, value > 0.25),
        ({"high": 1}, value <= 1),
        ({"below": 1}, value < 1),
        ({"above": 0, "high": 1}, 0 < value <= 1),
    ):
        if inside:
            found = real("x", kind(value), **options)
            assert type(found) is float
            assert found == value
        else:
            with pytest.raises(InputError, match=r"^x=.* must be a finite number "):
                real("x", kind(value), **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: whole("n", 0, least=1), "n=0 must be an integer of at least 1"),
        (lambda: whole("n", 9, most=8), "n=9 must be an integer of at most 8"),
        (lambda: real("x", -1, low=0), "x=-1 must be a finite number of at least 0"),
        (lambda: real("x", 2.5, high=2), "x=2.5 must be a finite number of at most 2"),
        (lambda: real("x", 0, above=0), "x=0 must be a finite number above 0"),
        (lambda: real("x", 1, below=1), "x=1 must be a finite number below 1"),
        (lambda: real("x", 1.5, low=0, high=1), "x=1.5 must be a finite number of at least 0 and at most 1"),
        (lambda: real("x", 1.5, above=0, below=1), "x=1.5 must be a finite number above 0 and below 1"),
    ],
)
def test_a_message_reads_as_a_sentence(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
