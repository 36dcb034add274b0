"""Fit the seven parameters of a noisy quadratic system to measured losses.

The paper is Li and Maddison (ICML 2026, arXiv 2605.09154): the sum over runs of half the squared error of ln loss, or
of its Huber loss, over the constant-step form. Its package takes 2,000 random starts of Adam with a GPU. Here a start
is cheap to judge: at given p, q, Q and r the best e_irr, P and R follow from non-negative least squares on relative
errors (variable projection), which ranks many starts; the best are polished by `scipy.optimize.least_squares` with the
analytic Jacobian until several of them agree on the least objective.

`profile` refits with one parameter held fixed, `choose_norm` picks the eighth parameter, that of the adjusted form.
Prediction is `icml26.nqs.law`'s and `icml26.nqs.regressors`'.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.stats import qmc

from icml26.checks import whole
from icml26.errors import InputError
from icml26.nqs.checks import numeric
from icml26.nqs.law import INITIAL_VARIANCE, Theta, adjusted_loss
from icml26.nqs.problem import NAMES, Problem, checked_runs, to_theta, variable
from icml26.nqs.search import Search

__all__ = ["NORMS", "Fit", "Search", "choose_norm", "fit", "profile", "refit"]

NORMS = INITIAL_VARIANCE * np.geomspace(0.01, 100, 41)
"""Candidates of the initial squared norm per parameter."""


class Fit(NamedTuple):
    """The best parameters and what the search saw."""

    theta: Theta
    objective: float
    """Sum over runs of half squares, or of Huber losses, of the errors of ln loss."""
    objectives: Float[np.ndarray, " polished"]
    """Of every polished start, in the order of polishing."""
    thetas: tuple[Theta, ...]
    """Where each of them ended."""
    starts: int
    """Starts drawn and ranked."""

    @property
    def hits(self) -> int:
        """Polished starts within a thousandth of the least objective."""
        return _hits(self.objectives)


def fit(
    X: Float[ArrayLike, "runs 3"],
    y: Float[ArrayLike, " runs"],
    *,
    starts: int = 2000,
    seed: int = 0,
    loss: str = "squared",
    tie: bool = False,
    search: Search | None = None,
    progress: Callable[[str], None] | None = None,
) -> Fit:
    """Fit the constant-step form by many starts.

    Parameters
    ----------
    X
        Columns N (parameters), B (sequences per step) and K (steps), at least as many runs as free parameters.
    y
        Measured losses in nats per token, above 0.
    starts
        Most starts to draw; the search stops before when enough of the polished ones agree.
    seed
        Of the draws.
    loss
        ``"squared"`` or ``"huber"``, of the errors of ln loss.
    tie
        Whether r = q, as in the older noisy quadratic model.
    search
        Where starts come from and when to stop; `Search()` by default.
    progress
        Called with one line for each round of starts.

    Returns
    -------
    Fit
        ``hits`` says how many polished starts agree; one alone is a reason to draw more.

    Raises
    ------
    InputError
        If the runs or an option are out of range.

    Examples
    --------
    >>> from icml26.nqs.law import RELEASED, loss
    >>> X = np.array([[n, b, k] for n in (1e6, 1e7, 1e8) for b in (32, 512) for k in (100, 3000)])
    >>> fit(X, loss(RELEASED, *X.T).total).objective < 1e-7
    True
    """
    search = Search() if search is None else search
    if not isinstance(search, Search):
        raise InputError(f"search={search!r} must be an icml26.nqs.fitting.Search, or None")
    whole("seed", seed, 0)
    whole("starts", starts, 1)
    X, y = checked_runs(X, y)
    problem = Problem(X, y, loss, tie, {}, search.delta)
    rng = np.random.default_rng(seed)
    box = np.array([search.p, search.q, search.Q, search.r])
    polished, drawn = [], 0
    pools: list[list[tuple[float, np.ndarray]]] = [[] for _ in range(search.slices)]
    while drawn < starts:
        size = min(search.round, starts - drawn)
        places = qmc.LatinHypercube(4, rng=rng).random(size)
        drawn += size
        for place in places:
            pools[int(place[1] * search.slices)].append(problem.start(*box[:, 0] + place * (box[:, 1] - box[:, 0])))
        for pool in filter(None, pools):
            pool.sort(key=lambda start: start[0])
            polished.append(problem.polish(pool.pop(0)[1], evaluations=search.evaluations))
        costs = np.array([cost for cost, _ in polished])
        if progress is not None:
            progress(f"{drawn} starts, {costs.size} polished: objective {costs.min():.6f}, reached by {_hits(costs)}")
        if _hits(costs) >= search.agree:
            break
    thetas = tuple(to_theta(values) for _, values in polished)
    best = int(costs.argmin())
    return Fit(thetas[best], float(costs[best]), costs, thetas, drawn)


def refit(
    X: Float[ArrayLike, "runs 3"],
    y: Float[ArrayLike, " runs"],
    theta: Theta,
    *,
    fixed: tuple[str, ...] = (),
    loss: str = "squared",
    tie: bool = False,
    delta: float = 1e-3,
    tolerance: float = 1e-9,
) -> tuple[Theta, float]:
    """Fit from one start, with some parameters held where they are: for resampled losses and for profiles.

    Parameters
    ----------
    X, y, loss, tie
        As in `fit`.
    theta
        The start.
    fixed
        Names of parameters that keep their value.
    delta
        As in `Search`.
    tolerance
        Relative change of the objective at which to stop.

    Returns
    -------
    Theta
        The nearest optimum.
    float
        Its objective.

    Raises
    ------
    InputError
        As in `fit`, or if a fixed name is unknown or tied.

    Examples
    --------
    >>> from icml26.nqs.law import RELEASED, loss
    >>> X = np.array([[n, b, k] for n in (1e6, 1e7, 1e8) for b in (32, 512) for k in (100, 3000)])
    >>> found, objective = refit(X, loss(RELEASED, *X.T).total, replace(RELEASED, p=1.3, e_irr=0.5))
    >>> objective < 1e-7
    True
    """
    if not isinstance(theta, Theta):
        raise InputError(f"theta={theta!r} must be an icml26.nqs.Theta: the start")
    X, y = checked_runs(X, y)
    problem = Problem(X, y, loss, tie, {name: variable(name, getattr(theta, name, None)) for name in fixed}, delta)
    start = np.array([variable(name, getattr(theta, name)) for name in NAMES])
    objective, values = problem.polish(start, tolerance)
    return to_theta(values), objective


def profile(
    X: Float[ArrayLike, "runs 3"],
    y: Float[ArrayLike, " runs"],
    name: str,
    values: Float[ArrayLike, " values"],
    *,
    theta: Theta,
    loss: str = "squared",
    tie: bool = False,
    progress: Callable[[str], None] | None = None,
) -> tuple[Float[np.ndarray, " values"], tuple[Theta, ...]]:
    """Refit the other parameters with one held at each of several values: the profile of the objective.

    Every value starts from the best fit and from its neighbours' fits, which follows a curved valley; the better ends
    are kept. With Gaussian errors of ln loss twice a difference of objectives, over the variance of the errors, is
    chi-square with one degree of freedom.

    Parameters
    ----------
    X, y, loss, tie
        As in `fit`.
    name
        Parameter held fixed.
    values
        Where to hold it.
    theta
        The best fit.
    progress
        Called with one line for each value.

    Returns
    -------
    array
        Least objective at each value.
    tuple of Theta
        The parameters there.

    Raises
    ------
    InputError
        As in `refit`, or if a value is out of the parameter's range.

    Examples
    --------
    >>> from icml26.nqs.law import RELEASED, loss
    >>> X = np.array([[n, b, k] for n in (1e6, 1e7, 1e8) for b in (32, 512) for k in (100, 3000)])
    >>> objectives, _ = profile(X, loss(RELEASED, *X.T).total, "p", [1.1, RELEASED.p, 1.2], theta=RELEASED)
    >>> int(objectives.argmin())
    1
    """
    if name not in NAMES:
        raise InputError(f"name={name!r} must be one of {', '.join(NAMES)}")
    places = numeric("values", values, f"a list of one or more values of {name}", ndim=1)
    order = places.argsort()
    found: dict[int, tuple[float, Theta]] = {}
    for sweep in (order, order[::-1]):
        neighbour = theta
        for i in sweep:
            for start in (neighbour, theta) if i not in found else (neighbour,):
                held = replace(start, **{name: float(places[i])})
                end, objective = refit(X, y, held, fixed=(name,), loss=loss, tie=tie)
                if i not in found or objective < found[i][0]:
                    found[i] = objective, end
            neighbour = found[i][1]
            if progress is not None:
                progress(f"{name} = {places[i]:.4g}: objective {found[i][0]:.6f}")
    return np.array([found[i][0] for i in range(places.size)]), tuple(found[i][1] for i in range(places.size))


def choose_norm(
    theta: Theta,
    X: Float[ArrayLike, "runs 3"],
    y: Float[ArrayLike, " runs"],
    values: Float[ArrayLike, " values"] = NORMS,
) -> tuple[float, Float[np.ndarray, " values"]]:
    """Choose the initial squared norm of the adjusted form, after the other parameters, on small-batch runs.

    Parameters
    ----------
    theta
        The other parameters, fitted on runs of large batches.
    X, y
        Runs of small batches.
    values
        Candidates of s / N, the squared norm per parameter.

    Returns
    -------
    float
        The candidate with the least mean squared error of ln loss.
    array
        That error at each candidate.

    Raises
    ------
    InputError
        If the runs or the candidates are out of range.

    Examples
    --------
    >>> from icml26.nqs.law import RELEASED
    >>> X = np.array([[1e7, 8.0, 30_000], [1e8, 8.0, 30_000]])
    >>> y = adjusted_loss(RELEASED, *X.T, norm=1e-3 * X[:, 0]).total
    >>> choose_norm(RELEASED, X, y, [1e-4, 1e-3, 1e-2])[0]
    0.001
    """
    X, y = checked_runs(X, y)
    candidates = numeric("values", values, "a list of one or more squared norms per parameter", ndim=1)
    predicted = adjusted_loss(theta, *X.T, norm=candidates[:, None] * X[:, 0]).total
    errors = np.square(np.log(predicted / y)).mean(axis=1)
    return float(candidates[errors.argmin()]), errors


def _hits(objectives: np.ndarray) -> int:
    # Below 1e-7 in all, errors of ln loss are some 1e-4 and optima of losses without noise cannot be told apart.
    return int((objectives <= objectives.min() * (1 + 1e-3) + 1e-7).sum())
