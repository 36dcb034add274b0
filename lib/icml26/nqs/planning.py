"""Choosing model size, batch size and number of steps under joint limits: the use that the NQS law is made for.

Li and Maddison (ICML 2026, arXiv 2605.09154) minimise the predicted loss over N parameters, B sequences per step and K
steps. Limits are compute 6 N D for D tokens, tokens, serial time (counted in steps, since a batch is parallel), and
memory (a cap on N and one on B). In logarithms all of them are planes, so a pattern search whose directions run along
those planes finds the optimum of a smooth law (Kolda, Lewis and Torczon 2003). Any regressor's `predict` may be used.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Float64
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError
from icml26.nqs.checks import numeric
from icml26.nqs.measurements import SEQUENCE_LENGTH
from icml26.nqs.scoring import Predict

__all__ = ["Plan", "frontier", "plan"]

_GRID = np.stack(np.meshgrid(*(np.linspace(0, 1, n) for n in (11, 11, 4)), indexing="ij"), -1).reshape(-1, 3)
_STENCIL = np.stack(np.meshgrid(*[(-1.0, 0.0, 1.0)] * 3, indexing="ij"), -1).reshape(-1, 3)
_RESOLUTION = 0.005  # of the search, in logarithms
_MOST = 1e60  # of a limit; far beyond, a law leaves floating point
_INDIFFERENT = 1e-7  # relative loss below which plans are equally good


class Plan(NamedTuple):
    """A configuration to train.

    Attributes
    ----------
    N, B, K : int
        Parameters, sequences per step, steps.
    loss : float
        Predicted loss, in the unit that the model was fitted to.
    tokens : int
        Training tokens.
    compute : float
        Training compute in FLOPs.
    binding : tuple of str
        The limits that are used up, to 1 % or to the last whole step, sequence or parameter.
    """

    N: int
    B: int
    K: int
    loss: float
    tokens: int
    compute: float
    binding: tuple[str, ...]


def plan(
    predict: Predict,
    *,
    compute: float | None = None,
    tokens: float | None = None,
    steps: float | None = None,
    max_parameters: float | None = None,
    max_batch: float | None = None,
    smallest: tuple[int, int, int] = (1, 1, 1),
    sequence_length: int = SEQUENCE_LENGTH,
) -> Plan:
    """Find the configuration of least predicted loss within limits.

    Parameters
    ----------
    predict : callable
        Maps rows of N, B and K to losses.
    compute : float, optional
        Limit of 6 N D, in FLOPs. No limit need be a whole number.
    tokens : float, optional
        Limit of D = B K times the sequence length.
    steps : float, optional
        Limit of K, the serial time.
    max_parameters, max_batch : float, optional
        Limits of N and of B (sequences), which memory sets.
    smallest : (int, int, int)
        Least N, B and K considered: those of the fitted runs, say, where the law should not extrapolate downwards.
    sequence_length : int
        Tokens per sequence.

    Returns
    -------
    Plan
        Whole numbers within all limits. Of losses that differ by less than a ten-millionth the one of fewest steps is
        taken: a law that ignores the batch size ends with the largest batch.

    Raises
    ------
    InputError
        If the limits exclude even `smallest`, leave a size unbounded, or an argument is no positive number.

    Examples
    --------
    >>> law = lambda X: 1.7 + 400 / X[:, 0] ** 0.35 + 900 / (128 * X[:, 1] * X[:, 2]) ** 0.35 + X[:, 1] / 1e4
    >>> best = plan(law, compute=1e20, steps=50_000)
    >>> best.binding, best.K, 6 * best.N * best.tokens <= 1e20
    (('compute', 'steps'), 50000, True)
    >>> plan(law, compute=700)
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: compute=700 excludes even smallest=(1, 1, 1), which takes 768; raise it
    """
    budget = None if compute is None else _positive("compute", compute, 0)
    limits = {"tokens": tokens, "steps": steps, "max_parameters": max_parameters, "max_batch": max_batch}
    return _plans(predict, budget, limits, smallest, sequence_length)[0]


def frontier(
    predict: Predict,
    *,
    compute: Float[ArrayLike, " budgets"],
    tokens: float | None = None,
    steps: float | None = None,
    max_parameters: float | None = None,
    max_batch: float | None = None,
    smallest: tuple[int, int, int] = (1, 1, 1),
    sequence_length: int = SEQUENCE_LENGTH,
) -> pd.DataFrame:
    """Find the best configuration at each of several computes, in one search.

    Parameters
    ----------
    predict, tokens, steps, max_parameters, max_batch, smallest, sequence_length
        As in `plan`.
    compute : array-like
        Limits of compute, in FLOPs.

    Returns
    -------
    DataFrame
        ``budget`` (the limit), then the fields of `Plan`; a row for each budget.

    Raises
    ------
    InputError
        As `plan`.

    Examples
    --------
    >>> law = lambda X: 1.7 + 400 / X[:, 0] ** 0.35 + 900 / (128 * X[:, 1] * X[:, 2]) ** 0.35 + X[:, 1] / 1e4
    >>> path = frontier(law, compute=[1e16, 1e20], max_parameters=1e8)
    >>> path["binding"].tolist()
    [('compute',), ('compute', 'max_parameters')]
    """
    budgets = _positive("compute", compute, 1)
    limits = {"tokens": tokens, "steps": steps, "max_parameters": max_parameters, "max_batch": max_batch}
    found = pd.DataFrame(_plans(predict, budgets, limits, smallest, sequence_length), columns=Plan._fields)
    found.insert(0, "budget", budgets)
    return found


class _Limits(NamedTuple):
    """Limits of each budget as columns, infinite where not given, and the least N, B and K."""

    compute: Float64[np.ndarray, "budgets 1"]  # as N B K
    tokens: Float64[np.ndarray, "budgets 1"]  # as B K
    steps: Float64[np.ndarray, "budgets 1"]
    max_parameters: Float64[np.ndarray, "budgets 1"]
    max_batch: Float64[np.ndarray, "budgets 1"]
    smallest: tuple[int, int, int]

    def most_N(self) -> np.ndarray:
        most = np.minimum(self.max_parameters, self.compute / (self.smallest[1] * self.smallest[2]))
        return np.maximum(np.floor(most), self.smallest[0])

    def most_B(self, N: np.ndarray, K: np.ndarray | int) -> np.ndarray:
        return self._most(self.max_batch, N, K, self.smallest[1])

    def most_K(self, N: np.ndarray, B: np.ndarray | int) -> np.ndarray:
        return self._most(self.steps, N, B, self.smallest[2])

    def _most(self, cap: np.ndarray, N: np.ndarray, other: np.ndarray | int, least: int) -> np.ndarray:
        most = np.floor(np.minimum(cap, np.minimum(self.tokens, self.compute / N) / other))
        most -= (most * other * N > self.compute) | (most * other > self.tokens)
        return np.maximum(most, least)  # division may round down to just below a whole number


def _plans(
    predict: Predict,
    budgets: Float64[np.ndarray, " budgets"] | None,
    limits: Mapping[str, float | None],
    smallest: tuple[int, int, int],
    sequence_length: int,
) -> list[Plan]:
    if not callable(predict):
        raise InputError(f"predict={predict!r} must map rows of N, B and K to losses, such as fitted.predict")
    whole("sequence_length", sequence_length, 1)
    smallest = smallest.tolist() if isinstance(smallest, np.ndarray) else smallest
    if not isinstance(smallest, tuple | list) or len(smallest) != 3:
        raise InputError(f"smallest={smallest!r} must give the least N, B and K")
    for least in smallest:
        whole("smallest", least, 1)
    given = {} if budgets is None else {"compute": budgets}
    given |= {name: _positive(name, limit, 0) for name, limit in limits.items() if limit is not None}
    if not {"compute", "max_parameters"} & given.keys():
        raise InputError("the limits leave the model size unbounded; give compute or max_parameters")
    if not {"compute", "tokens"} & given.keys() and not {"steps", "max_batch"} <= given.keys():
        raise InputError("the limits leave the tokens unbounded; give compute, tokens, or both steps and max_batch")
    for name, use in _uses(*map(int, smallest), sequence_length).items():
        if name in given and (least := given[name].min()) < use:
            raise InputError(f"{name}={least:g} excludes even smallest={tuple(smallest)}, which takes {use}; raise it")
    count = max(limit.size for limit in given.values())
    columns = {name: np.broadcast_to(given.get(name, np.inf), count)[:, None] for name in ("compute", *limits)}
    units = {"compute": 6 * sequence_length, "tokens": sequence_length}
    scaled = {name: _whole_units(column, units.get(name, 1)) for name, column in columns.items()}
    best = _search(predict, _Limits(**scaled, smallest=tuple(smallest)))
    plans = []
    for i, (N, B, K, loss) in enumerate(best.tolist()):
        own = {name: float(columns[name][i, 0]) for name in given}
        N, B, K = int(N), int(B), int(K)
        while any(_uses(N, B, K, sequence_length)[name] > limit for name, limit in own.items()):
            K -= 1  # beyond 2^53 a product may exceed the limit that it met after rounding
        uses = _uses(N, B, K, sequence_length)
        more = {**_uses(N, B, K + 1, sequence_length), "max_parameters": N + 1, "max_batch": B + 1}
        binding = tuple(name for name, limit in own.items() if uses[name] >= 0.99 * limit or more[name] > limit)
        plans.append(Plan(N, B, K, loss, uses["tokens"], float(uses["compute"]), binding))
    return plans


def _search(predict: Predict, limits: _Limits) -> Float64[np.ndarray, "budgets 4"]:
    """N, B, K and loss of the best configuration of each budget: a grid, then a pattern search in logarithms."""
    least = np.log(limits.smallest)
    # The grid spans what each size may be, given those before it.
    N = _between(limits.smallest[0], limits.most_N(), _GRID[:, 0])
    B = _between(limits.smallest[1], limits.most_B(N, limits.smallest[2]), _GRID[:, 1])
    K = _between(limits.smallest[2], limits.most_K(N, B), _GRID[:, 2])
    best = _better(_evaluated(predict, N, B, K))
    lowest = best[:, 3]
    at = np.log(best[:, :3])
    span = np.log(limits.most_N()[:, 0]) - least[0]
    step = np.maximum(span, np.log(limits.most_K(*np.exp(least[:2]))[:, 0]) - least[2]) / 10
    while (step > _RESOLUTION).any():
        found = _evaluated(predict, *_whole_sizes(limits, at[:, None] + step[:, None, None] * _STENCIL))
        lowest = np.minimum(lowest, found[..., 3].min(1))
        found = _better(np.concatenate([best[:, None], found], axis=1), lowest)
        moved = (found[:, :3] != best[:, :3]).any(1)
        best, at = found, np.log(found[:, :3])
        step = np.where(moved, step, step / 2)
    return best


def _whole_sizes(
    limits: _Limits, logs: Float64[np.ndarray, "budgets candidates 3"]
) -> tuple[Float64[np.ndarray, "budgets candidates"], ...]:
    """Whole N, B and K within the limits; where B K is at a limit, the larger of both, being finer, makes it up."""
    n, b, k = np.moveaxis(np.exp(logs), -1, 0)
    least_N, least_B, least_K = limits.smallest
    N = np.clip(np.round(n), least_N, limits.most_N())
    B = np.clip(np.round(b), least_B, limits.most_B(N, least_K))
    K = np.clip(np.round(k), least_K, limits.most_K(N, least_B))
    most_B, most_K = limits.most_B(N, K), limits.most_K(N, B)
    at_limit_B, at_limit_K = b >= limits.most_B(n, k) * (1 - 1e-9), k >= limits.most_K(n, b) * (1 - 1e-9)
    made_up_B = np.where(at_limit_B, most_B, np.minimum(B, most_B))
    made_up_K = np.where(at_limit_K, most_K, np.minimum(K, most_K))
    return N, np.where(b > k, made_up_B, B), np.where(b > k, K, made_up_K)


def _between(low: float, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    return np.clip(np.round(low * (high / low) ** share), low, high)


def _evaluated(
    predict: Predict, N: np.ndarray, B: np.ndarray, K: np.ndarray
) -> Float64[np.ndarray, "budgets candidates 4"]:
    sizes = np.stack(np.broadcast_arrays(N, B, K), -1)
    rows, back = np.unique(sizes.reshape(-1, 3), axis=0, return_inverse=True)
    losses = numeric("predict(X)", predict(rows), "one loss for each row of X")
    if losses.shape != (len(rows),) or not np.isfinite(losses).all():
        raise InputError(f"predict gave shape {losses.shape} or no finite losses for {len(rows)} rows of N, B and K")
    return np.concatenate([sizes, losses[back].reshape(*sizes.shape[:2], 1)], -1)


def _better(candidates: Float64[np.ndarray, "budgets candidates 4"], lowest: np.ndarray | None = None) -> np.ndarray:
    """Of each budget's candidates that are as good as the best known, the one of fewest steps, then of least loss."""
    losses = candidates[..., 3]
    lowest = losses.min(1) if lowest is None else lowest
    good = losses <= (lowest + _INDIFFERENT * np.abs(lowest))[:, None]
    order = np.lexsort((losses, candidates[..., 2], ~good), axis=-1)
    return candidates[np.arange(len(candidates)), order[:, 0]]


def _uses(N: int, B: int, K: int, sequence_length: int) -> dict[str, int]:
    tokens = B * K * sequence_length
    return {"compute": 6 * N * tokens, "tokens": tokens, "steps": K, "max_parameters": N, "max_batch": B}


def _whole_units(limits: np.ndarray, unit: int) -> np.ndarray:
    return np.array([[limit if np.isinf(limit) else float(int(limit) // unit)] for (limit,) in limits.tolist()])


def _positive(name: str, limit: object, ndim: int) -> Float64[np.ndarray, " limits"]:
    expected = f"a positive number of at most {_MOST:g}, or None for no limit"
    expected = f"a list of one or more limits, each {expected.split(',')[0]}" if ndim else expected
    array = np.atleast_1d(numeric(name, limit, expected, ndim=ndim))
    if not ((array > 0) & (array <= _MOST)).all():
        raise InputError(f"{name}={limit!r} must be {expected}")
    return array
