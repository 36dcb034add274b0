"""Arithmetic over GF(2) for shift registers: primitive polynomials and powers of linear maps.

A polynomial is a Python integer whose bit i is the coefficient of x^i. A linear map on K-bit states is its K
columns: column i is the image of the state 2^i, an integer of K bits. S-Quant (Wang et al., ICML 2026, arXiv:
none) and SeedLM (arXiv 2410.10714) take their registers' polynomials as given; that these are primitive, hence
that every seed is a different basis, is what this module proves. The registers themselves are in `lfsr`.
"""

from functools import cache

import numpy as np
from jaxtyping import UInt32

from icml26.errors import InputError


def _prime_factors(number: int) -> list[int]:
    factors, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            factors.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return [*factors, number] if number > 1 else factors


def _product(a: int, b: int, modulus: int) -> int:
    degree, product = modulus.bit_length() - 1, 0
    while b:
        if b & 1:
            product ^= a
        b >>= 1
        a <<= 1
        if a >> degree:
            a ^= modulus
    return product


def _power_of_x(exponent: int, modulus: int) -> int:
    power, square = 1, 2
    while exponent:
        if exponent & 1:
            power = _product(power, square, modulus)
        square = _product(square, square, modulus)
        exponent >>= 1
    return power


def is_integer(value: object) -> bool:
    """Whether a value is an integer, Python's or NumPy's, and no truth value.

    Parameters
    ----------
    value
        Anything.

    Returns
    -------
    bool
        True iff it is.

    Examples
    --------
    >>> is_integer(np.uint8(3)), is_integer(True), is_integer(3.0)
    (True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_primitive(polynomial: int) -> bool:
    """Whether a polynomial over GF(2) is primitive, so that its register visits all 2^K - 1 states.

    A polynomial c of degree K is primitive iff x^(2^K - 1) = 1 modulo c and x^((2^K - 1)/q) is not 1 for any
    prime q that divides 2^K - 1.

    Parameters
    ----------
    polynomial
        Bit i is the coefficient of x^i; the degree must be 2 to 32.

    Returns
    -------
    bool
        True iff the polynomial is primitive.

    Raises
    ------
    InputError
        If it is no positive integer, or the degree is outside 2 to 32.

    Examples
    --------
    >>> is_primitive(0x1100B)  # SeedLM's x^16 + x^12 + x^3 + x + 1
    True
    >>> is_primitive(0x1F)  # x^4 + x^3 + x^2 + x + 1 divides x^5 - 1
    False
    """
    if not is_integer(polynomial) or polynomial < 1:
        raise InputError(f"polynomial {polynomial!r} is no positive integer: set bit i for the term x^i")
    return _is_primitive(int(polynomial))


@cache
def _is_primitive(polynomial: int) -> bool:
    degree = polynomial.bit_length() - 1
    if not 2 <= degree <= 32:
        raise InputError(f"polynomial {polynomial:#x} has degree {degree}: give one of degree 2 to 32")
    order = (1 << degree) - 1
    if not polynomial & 1 or _power_of_x(order, polynomial) != 1:
        return False
    return all(_power_of_x(order // prime, polynomial) != 1 for prime in _prime_factors(order))


def apply(columns: tuple[int, ...], vectors: UInt32[np.ndarray, "..."]) -> UInt32[np.ndarray, "..."]:
    """Apply one linear map over GF(2) to many vectors at once.

    Parameters
    ----------
    columns
        K integers: the images of the unit vectors 2^0, ..., 2^(K-1).
    vectors : uint32 array of any shape
        The bits of each entry are one vector.

    Returns
    -------
    uint32 array of the shape of `vectors`
        The exclusive or of the columns that each vector's bits select.

    Examples
    --------
    >>> apply((2, 1), np.array([0, 1, 2, 3], dtype=np.uint32))  # swaps two bits
    array([0, 2, 1, 3], dtype=uint32)
    """
    images = np.zeros_like(vectors)
    for bit, column in enumerate(columns):
        images ^= (vectors >> np.uint32(bit) & np.uint32(1)) * np.uint32(column)
    return images


def power(columns: tuple[int, ...], exponent: int) -> tuple[int, ...]:
    """Raise a linear map over GF(2) to a non-negative power by repeated squaring.

    Parameters
    ----------
    columns
        The map, as for `apply`.
    exponent
        How often the map is applied.

    Returns
    -------
    tuple of K int
        The columns of the power.

    Raises
    ------
    InputError
        If the exponent is negative.

    Examples
    --------
    >>> power((2, 1), 2)  # two swaps are the identity
    (1, 2)
    """
    if not is_integer(exponent) or exponent < 0:
        raise InputError(f"exponent {exponent!r} is negative or no integer: reduce it modulo the map's order first")
    square = np.array(columns, dtype=np.uint32)
    result = np.uint32(1) << np.arange(len(columns), dtype=np.uint32)
    while exponent:
        if exponent & 1:
            result = apply(tuple(square.tolist()), result)
        square = apply(tuple(square.tolist()), square)
        exponent >>= 1
    return tuple(result.tolist())
