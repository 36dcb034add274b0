"""When requests come: Poisson, bursty, all at once, or as a recorded trace did.

`poisson` and `gamma` draw independent gaps (a renewal process, so the load is stationary: gaps are never sorted). The
recorded traces are the Azure LLM inference traces of November 2023 (Patel et al., Splitwise, ISCA 2024, CC-BY 4.0),
which `icml26.data` finds. Serving the requests is `icml26.serving`'s.
"""

import csv
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from icml26 import data
from icml26.checks import is_integer, is_number
from icml26.errors import InputError

__all__ = ["RequestTrace", "at_once", "azure_trace", "gamma", "poisson", "replay"]

AZURE = ("azure-conv", "azure-code")  # names in the data registry


class RequestTrace(NamedTuple):
    """Recorded requests in the order of arrival, as ``Workload(*trace)`` takes them.

    Attributes
    ----------
    arrival : ndarray of float, shape (requests,)
        Seconds after the first.
    prompt, output : ndarray of int, shape (requests,)
        Tokens.
    """

    arrival: Float64[np.ndarray, " requests"]
    prompt: Int64[np.ndarray, " requests"]
    output: Int64[np.ndarray, " requests"]


def poisson(rate: float, n: int, seed: int | np.random.Generator) -> Float64[np.ndarray, " n"]:
    """Draw the first arrivals of a Poisson process.

    Parameters
    ----------
    rate : float
        Requests per second.
    n : int
        Requests.
    seed : int or numpy.random.Generator
        Of the draws.

    Returns
    -------
    ndarray, shape (n,)
        Seconds, ascending.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> arrival = poisson(100.0, 5000, seed=0)
    >>> bool(45 < arrival[-1] < 55)
    True
    """
    return gamma(rate, 1.0, n, seed)


def gamma(rate: float, cv: float, n: int, seed: int | np.random.Generator) -> Float64[np.ndarray, " n"]:
    """Draw arrivals with gamma-distributed gaps: bursts for a coefficient of variation above 1, Poisson at 1.

    Parameters
    ----------
    rate : float
        Requests per second.
    cv : float
        Standard deviation of the gaps over their mean.
    n : int
        Requests.
    seed : int or numpy.random.Generator
        Of the draws.

    Returns
    -------
    ndarray, shape (n,)
        Seconds, ascending.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> gaps = np.diff(gamma(2.0, 3.0, 20_000, seed=0))
    >>> round(float(gaps.mean()), 1), round(float(gaps.std() / gaps.mean()))
    (0.5, 3)
    """
    for name, value, most in (("rate", rate, 1e9), ("cv", cv, 1e3)):  # beyond, gaps underflow or overflow
        if not is_number(value) or not 1 / most <= value <= most:
            raise InputError(f"{name}={value!r} must be a positive finite number, from {1 / most:g} to {most:g}")
    if not is_integer(n) or n < 1:
        raise InputError(f"n={n!r} must be an integer of at least 1")
    if not isinstance(seed, np.random.Generator) and not (is_integer(seed) and seed >= 0):
        raise InputError(f"seed={seed!r} must be an integer of at least 0 or a numpy Generator")
    shape = 1 / cv**2
    return np.random.default_rng(seed).gamma(shape, 1 / (rate * shape), n).cumsum()


def at_once(n: int) -> Float64[np.ndarray, " n"]:
    """Return arrivals at time 0: a job that waits as a whole, such as data generation offline.

    Parameters
    ----------
    n : int
        Requests.

    Returns
    -------
    ndarray, shape (n,)
        Zeros.

    Raises
    ------
    InputError
        If `n` is no positive integer.

    Examples
    --------
    >>> at_once(3)
    array([0., 0., 0.])
    """
    if not is_integer(n) or n < 1:
        raise InputError(f"n={n!r} must be an integer of at least 1")
    return np.zeros(n)


def replay(times: ArrayLike, scale: float = 1.0) -> Float64[np.ndarray, " n"]:
    """Replay recorded arrivals from 0 on, slower or faster.

    Parameters
    ----------
    times : array-like, shape (n,)
        Seconds, ascending.
    scale : float
        Factor on every gap; 0.5 doubles the rate.

    Returns
    -------
    ndarray, shape (n,)
        Seconds, ascending.

    Raises
    ------
    InputError
        If the times do not ascend or the scale is not positive.

    Examples
    --------
    >>> replay([60.0, 61.0, 64.0], scale=0.5)
    array([0. , 0.5, 2. ])
    """
    if not is_number(scale) or scale <= 0:
        raise InputError(f"scale={scale!r} must be a positive finite number")
    try:
        times = np.asarray(times, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"times must be seconds: {error}") from error
    if times.ndim != 1 or times.size == 0 or not np.isfinite(times).all() or (np.diff(times) < 0).any():
        raise InputError(f"times of shape {times.shape} must be one row of finite seconds in ascending order")
    return (times - times[0]) * scale


def azure_trace(name: str) -> RequestTrace:
    """Read a recorded trace: ``azure-conv`` (chat) or ``azure-code`` (code completion, very bursty).

    Parameters
    ----------
    name : str
        Which one.

    Returns
    -------
    RequestTrace
        19,366 or 8,819 requests over about an hour.

    Raises
    ------
    MissingData
        If the file is not on this machine; the message names both ways to have it.
    InputError
        If the name is not one of the two.

    Examples
    --------
    >>> azure_trace("azure-chat")
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: name='azure-chat' must be 'azure-conv' or 'azure-code'
    """
    if name not in AZURE:
        raise InputError(f"name={name!r} must be {' or '.join(map(repr, AZURE))}")
    with data.path(name).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # The clock counts in steps of 100 ns, which only the nanosecond type holds.
    clock = np.array([row["TIMESTAMP"] for row in rows], dtype="datetime64[ns]")
    return RequestTrace(
        (clock - clock[0]) / np.timedelta64(1, "s"),
        *(np.array([int(row[column]) for row in rows]) for column in ("ContextTokens", "GeneratedTokens")),
    )
