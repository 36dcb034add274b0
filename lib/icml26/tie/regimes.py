"""The chapter's settings: each thing the paper holds fixed, arrivals, families of laws, and a search for the tail.

TIE (Zheng et al., arXiv 2604.00499) is claimed to gain by its tail term, by its law, at all loads. `regimes` changes
one thing at a time, `rate_sweep` and `load_sweep` the arrivals. `label_case` sets laws of two families, and the
predictions of one number, beside each other on the same generations. `tail_search` looks for a world in which the tail
term shortens the latency per token. Settings are `icml26.tie.scenarios`'; `icml26.tie.serving_study` runs them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from icml26.errors import InputError
from icml26.serving import Policy, Server
from icml26.tie.policies import SEPT, TIE, WSEPT, FixedBeta, Median, OracleSJF, PointEstimate
from icml26.tie.populations import EmpiricalPopulation, LogTPopulation, Predictor
from icml26.tie.scenarios import Case, Scenario

__all__ = ["label_case", "load_sweep", "rate_sweep", "regimes", "tail_search"]


_OVERLOAD = Scenario()


def regimes(base: Scenario = _OVERLOAD) -> dict[str, Scenario]:
    """The settings in which the policies are compared, each one change away from an overload.

    Parameters
    ----------
    base : Scenario
        The overload, with a `LogTPopulation` where ``correlation`` and spread are varied.

    Returns
    -------
    dict of str to Scenario
        ``overload``; ``stable`` (80 % of capacity); ``bursts`` (twice the capacity, coefficient of variation 4);
        ``offline`` (all at once); ``context costs`` (of an 8 B model, for context and prompts); ``KV-limited`` (memory
        for 8,000 tokens) and ``costly preemption`` (and ten times the cost of reading a prompt again);
        ``predictor 0.82/0.76`` and ``predictor 0.5/0.3`` (coefficients of determination of mu and log(1 + sigma));
        ``sigma halved`` and ``sigma doubled`` (as the scheduler sees it); ``correlation +0.6`` and
        ``correlation -0.6`` (of mu and log sigma); ``large sigma``.

    Examples
    --------
    >>> sorted(regimes())[:3]
    ['KV-limited', 'bursts', 'context costs']
    """
    population, small = base.population, 8_000
    costs = Server(batch=base.server.batch)
    found = {
        "overload": base,
        "stable": replace(base, rate=0.8 * base.capacity()),
        "bursts": replace(base, rate=2 * base.capacity(), burst=4.0),
        "offline": replace(base, rate=None),
        "context costs": replace(base, server=costs),
        "KV-limited": replace(base, server=replace(costs, kv_tokens=small)),
        "costly preemption": replace(base, server=replace(costs, kv_tokens=small, per_prompt_token=8e-4)),
        "predictor 0.82/0.76": replace(base, predictor=Predictor(0.82, 0.76)),
        "predictor 0.5/0.3": replace(base, predictor=Predictor(0.5, 0.3)),
        "sigma halved": replace(base, predictor=Predictor(sigma_factor=0.5)),
        "sigma doubled": replace(base, predictor=Predictor(sigma_factor=2.0)),
    }
    if isinstance(population, LogTPopulation):
        found |= {
            "correlation +0.6": replace(base, population=replace(population, correlation=0.6)),
            "correlation -0.6": replace(base, population=replace(population, correlation=-0.6)),
            "large sigma": replace(
                base, population=replace(population, log_sigma_mean=population.log_sigma_mean + 0.5)
            ),
        }
    return found


def rate_sweep(base: Scenario = _OVERLOAD, rates: Iterable[float] = (30.0, 50.0, 70.0, 100.0)) -> dict[float, Scenario]:
    """The same requests at several rates of arrival.

    Parameters
    ----------
    base : Scenario
        What does not change.
    rates : iterable of float
        Requests per second.

    Returns
    -------
    dict of float to Scenario
        By rate.

    Examples
    --------
    >>> [scenario.rate for scenario in rate_sweep().values()]
    [30.0, 50.0, 70.0, 100.0]
    """
    return {rate: replace(base, rate=rate) for rate in rates}


def load_sweep(
    base: Scenario = _OVERLOAD, loads: Iterable[float] = (0.5, 0.8, 1.0, 1.5, 3.0, 6.0, 15.0)
) -> dict[float, Scenario]:
    """The same requests at several multiples of the rate that a full batch works off.

    Parameters
    ----------
    base : Scenario
        What does not change.
    loads : iterable of float
        Multiples of the capacity.

    Returns
    -------
    dict of float to Scenario
        By load.

    Examples
    --------
    >>> sweep = load_sweep(loads=[1.0, 2.0])
    >>> round(sweep[2.0].rate / sweep[1.0].rate, 3)
    2.0
    """
    capacity = base.capacity()
    return {load: replace(base, rate=load * capacity) for load in loads}


def label_case(scenario: Scenario) -> Callable[[int], Case]:
    """What the same generations of a prompt are worth as laws of two families, and as one number.

    Every policy knows `labels` other generations of each request's prompt, "one generation" only the first of them, as
    SSJF's labels do. No predictor stands between.

    Parameters
    ----------
    scenario : Scenario
        With an `EmpiricalPopulation`; its predictor and policies are not used.

    Returns
    -------
    callable
        For `icml26.tie.serving_study.compare`, with the policies ``one generation``, ``mean of generations``, ``median
        of generations``; ``sept log-t``, ``sept log-normal``, ``tie log-t``, ``tie log-normal``; ``tie log-normal
        uncensored`` (the paper's ablation); ``wsept log-t`` and ``oracle``.

    Raises
    ------
    InputError
        If the population is none with repeated generations.

    Examples
    --------
    >>> lengths = LogTPopulation(cap=256).generations(20, 30, np.random.default_rng(0))
    >>> case = label_case(Scenario(EmpiricalPopulation(lengths, cap=256), requests=50))(seed=1)
    >>> len(case.policies)
    10
    """
    population = scenario.population
    if not isinstance(population, EmpiricalPopulation):
        kind = type(population).__name__
        raise InputError(f"the scenario's population is a {kind}; give an EmpiricalPopulation, with generations to fit")
    fitted = {family: population.refitted(family).law for family in ("log-t", "log-normal")}
    cap = population.cap

    def case(seed: int) -> Case:
        drawn = scenario.draw(seed)
        log_t, log_normal = (law[drawn.source] for law in fitted.values())
        labels = population.lengths[drawn.source, : population.labels]
        policies = {
            "one generation": PointEstimate(labels[:, 0]),
            "mean of generations": PointEstimate(labels.mean(axis=1)),
            "median of generations": PointEstimate(np.median(labels, axis=1)),
            "sept log-t": SEPT(log_t, cap),
            "sept log-normal": SEPT(log_normal, cap),
            "tie log-t": TIE(log_t, cap),
            "tie log-normal": TIE(log_normal, cap),
            "tie log-normal uncensored": TIE(log_normal, None),
            "wsept log-t": WSEPT(log_t, cap),
            "oracle": OracleSJF(drawn.output),
        }
        return Case(scenario.workload(seed, drawn), policies)

    return case


def tail_search(base: Scenario = _OVERLOAD) -> dict[str, Scenario]:
    """Worlds in which sigma tells something of the length that the prediction of mu lacks.

    Long answers are made to have wide laws (correlation of mu and log sigma), mu is predicted poorly and sigma well, by
    branches that do not know of each other. The mean then says too little of sigma, and a tail term may mend it. The
    control gives the same two predictions to a joint regression first.

    Parameters
    ----------
    base : Scenario
        The overload, with a `LogTPopulation`.

    Returns
    -------
    dict of str to Scenario
        For each predictor (the paper's 0.82/0.76; 0.5/0.9; 0.2/0.9) and correlation (0, 0.6, 0.9), separate branches
        and a joint regression. Policies: ``median``, ``sept``, ``wsept``, ``beta_0.1``, ``beta_0.5``, ``tie``.

    Raises
    ------
    InputError
        If the population has no correlation to set.

    Examples
    --------
    >>> len(tail_search()), "0.5/0.9, correlation 0.6, joint" in tail_search()
    (18, True)
    """
    if not isinstance(base.population, LogTPopulation):
        raise InputError(f"base has a {type(base.population).__name__}; the search varies a LogTPopulation")
    return {
        f"{r2_mu}/{r2_sigma}, correlation {correlation}, {'joint' if joint else 'separate'}": replace(
            base,
            population=replace(base.population, correlation=correlation),
            predictor=Predictor(r2_mu, r2_sigma, joint=joint),
            policies=_tail_policies,
        )
        for r2_mu, r2_sigma in ((0.82, 0.76), (0.5, 0.9), (0.2, 0.9))
        for correlation in (0.0, 0.6, 0.9)
        for joint in (False, True)
    }


def _tail_policies(law: Any, output: np.ndarray, cap: int) -> dict[str, Policy]:
    return {
        "median": Median(law),
        "sept": SEPT(law, cap),
        "wsept": WSEPT(law, cap),
        "beta_0.1": FixedBeta(law, cap, 0.1),
        "beta_0.5": FixedBeta(law, cap, 0.5),
        "tie": TIE(law, cap),
    }
