"""Orders of the waiting queue compared on the same requests: does the tail term help, and where?

TIE (Zheng et al., arXiv 2604.00499) is measured against first-come-first-served, expectations, medians and an oracle
in a simulated server (`icml26.serving`). Each seed draws arrivals, prompts, lengths and predictions once, and every
policy serves them: differences between seeds are larger than those between policies, so only ratios within a seed are
averaged (`log_ratio`). Settings are `icml26.tie.scenarios`' business. A run far above capacity serves a finite crowd;
its numbers depend on the number of requests and are no steady state.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from icml26 import serving
from icml26.errors import InputError, nearest
from icml26.serving import Server
from icml26.stats import Interval, t_interval
from icml26.tie.scenarios import Case, Scenario

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["benefits", "compare", "growth_difference", "log_ratio", "run"]


def compare(
    case: Callable[[int], Case],
    server: Server,
    seeds: Iterable[int],
    *,
    share: float = 0.6,
    progress: Callable[[str], None] | None = None,
) -> "pd.DataFrame":
    """Serve each seed's requests under each policy.

    Parameters
    ----------
    case : callable
        ``case(seed)`` makes a seed's workload, once, and the policies; a `Scenario` is one.
    server : Server
        The engine.
    seeds : iterable of int
        One repetition each.
    share : float
        Of the requests that ``time_at_share`` waits for: the time from the first arrival until so many have finished.
    progress : callable or None
        Called with a line after each seed.

    Returns
    -------
    DataFrame
        A row for each seed and policy: ``seed``, ``policy``, the fields of `icml26.serving.Summary`, in seconds, and
        ``time_at_share``.

    Raises
    ------
    InputError
        If there are no seeds, a share is not above 0 and at most 1, or as `icml26.serving.simulate`.

    Examples
    --------
    >>> scenario = Scenario(requests=60)
    >>> table = compare(scenario, scenario.server, seeds=[0, 1])
    >>> table.groupby("seed").size().tolist(), log_ratio(table, "mean_ptla", "fcfs", "oracle").value > 0
    ([10, 10], True)
    """
    import pandas as pd  # loaded for those who want a table

    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(f"share={share!r} must be above 0 and at most 1, such as 0.6")
    rows = []
    for seed in seeds:
        workload, policies = case(seed)
        finished = max(1, round(share * len(workload)))
        for name, policy in policies.items():
            trace = serving.simulate(workload, server, policy)
            wait = serving.time_at(trace, finished) - float(workload.arrival[0])
            rows.append(
                {"seed": seed, "policy": name, **serving.summary(trace, workload)._asdict(), "time_at_share": wait}
            )
        if progress is not None:
            progress(f"seed {seed}: {len(policies)} policies")
    if not rows:
        raise InputError("seeds is empty; give one seed for each repetition")
    return pd.DataFrame(rows)


def run(
    scenarios: Mapping[str, Scenario],
    seeds: Iterable[int],
    *,
    share: float = 0.6,
    progress: Callable[[str], None] | None = None,
) -> "pd.DataFrame":
    """Compare the policies in several settings, with the same seeds in each.

    Parameters
    ----------
    scenarios : mapping of str to Scenario
        Settings by name, such as `regimes` gives.
    seeds, share, progress
        As in `compare`.

    Returns
    -------
    DataFrame
        The tables of `compare` one below the other, with a first column ``regime``.

    Raises
    ------
    InputError
        If there are no scenarios, or as `compare`.

    Examples
    --------
    >>> table = run({"busy": Scenario(requests=40), "idle": Scenario(requests=40, rate=0.1)}, seeds=[0])
    >>> table.groupby("regime").mean_ptla.max().round(2).to_dict()["idle"]
    0.01
    """
    import pandas as pd

    if not scenarios:
        raise InputError("scenarios is empty; give at least one, such as regimes()")
    seeds = list(seeds)
    tables = []
    for name, scenario in scenarios.items():
        table = compare(scenario, scenario.server, seeds, share=share)
        table.insert(0, "regime", name)
        tables.append(table)
        if progress is not None:
            progress(name)
    return pd.concat(tables, ignore_index=True)


def log_ratio(table: "pd.DataFrame", metric: str, a: str, b: str, *, level: float = 0.95) -> Interval:
    """Mean over seeds of ``log(metric of a / metric of b)``, with Student's t-interval.

    Parameters
    ----------
    table : DataFrame
        Of one setting.
    metric : str
        A column of positive numbers.
    a, b : str
        Two policies.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        Above 0 where `a` has the larger metric; ``exp`` makes ratios of its ends.

    Raises
    ------
    InputError
        If the table lacks the metric or a policy, has several rows for a seed, fewer than two seeds, or a metric that
        is not positive.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"seed": [0, 0, 1, 1], "policy": ["x", "y", "x", "y"], "time": [2.0, 1.0, 6.0, 3.0]})
    >>> round(log_ratio(table, "time", "x", "y").value, 3)
    0.693
    """
    found = _log_metric(table, metric, (a, b))
    return t_interval(found[a] - found[b], level=level)


def growth_difference(
    low: "pd.DataFrame", high: "pd.DataFrame", metric: str, a: str, b: str, *, level: float = 0.95
) -> Interval:
    """How much more a metric grows under `a` than under `b` from one setting to another, in logarithms, over seeds.

    Parameters
    ----------
    low, high : DataFrame
        Of two settings with the same seeds, such as two rates.
    metric, a, b, level
        As in `log_ratio`.

    Returns
    -------
    Interval
        Of ``log(a in high / a in low) - log(b in high / b in low)``.

    Raises
    ------
    InputError
        If the seeds differ, or as `log_ratio`.

    Examples
    --------
    >>> import pandas as pd
    >>> low = pd.DataFrame({"seed": [0, 0, 1, 1], "policy": ["x", "y", "x", "y"], "time": [1.0, 1.0, 1.0, 1.0]})
    >>> round(growth_difference(low, low.assign(time=[4.0, 2.0, 4.0, 2.0]), "time", "x", "y").value, 3)
    0.693
    """
    before, after = (_log_metric(table, metric, (a, b)) for table in (low, high))
    if not before.index.equals(after.index):
        raise InputError(f"low has the seeds {list(before.index)} and high {list(after.index)}; run both with the same")
    grown = after - before
    return t_interval(grown[a] - grown[b], level=level)


def benefits(
    table: "pd.DataFrame",
    *,
    policies: Iterable[str] = ("tie",),
    baseline: str = "sept",
    metrics: Iterable[str] = ("mean_ptla",),
    level: float = 0.95,
) -> "pd.DataFrame":
    """`log_ratio` of a baseline to some policies in every setting of a table.

    Parameters
    ----------
    table : DataFrame
        Of `run`.
    policies : iterable of str
        Compared one by one.
    baseline : str
        What they are compared with.
    metrics : iterable of str
        Columns of the table.
    level : float
        Confidence level.

    Returns
    -------
    DataFrame
        Columns ``regime``, ``policy``, ``metric``, ``log_ratio``, ``low``, ``high``, and ``verdict``: "better" where
        the interval lies above 0 (the policy has the smaller metric), "worse" below, else "open", as where a metric is
        not positive and has no ratio (NaN).

    Raises
    ------
    InputError
        As `log_ratio`.

    Examples
    --------
    >>> table = run({"busy": Scenario(requests=300)}, seeds=[0, 1, 2])
    >>> benefits(table, policies=["oracle"], baseline="fcfs").verdict.tolist()
    ['better']
    """
    import pandas as pd

    rows = []
    for regime, part in table.groupby("regime", sort=False):
        for policy in policies:
            for metric in metrics:
                # A wait of zero, where every request finds room at once, has no ratio.
                some = metric not in part or bool((part[part.policy.isin([baseline, policy])][metric] > 0).all())
                value, low, high = log_ratio(part, metric, baseline, policy, level=level) if some else [np.nan] * 3
                verdict = "better" if low > 0 else "worse" if high < 0 else "open"
                rows.append((regime, policy, metric, value, low, high, verdict))
    return pd.DataFrame(rows, columns=["regime", "policy", "metric", "log_ratio", "low", "high", "verdict"])


def _log_metric(table: "pd.DataFrame", metric: str, policies: tuple[str, ...]) -> "pd.DataFrame":
    if metric not in table:
        raise InputError(f"metric {metric!r} is no column of the table{nearest(metric, table.columns)}")
    for policy in policies:
        if policy not in set(table.policy):
            raise InputError(f"policy {policy!r} is not in the table{nearest(policy, set(table.policy))}")
    part = table[table.policy.isin(policies)]
    if part.duplicated(["seed", "policy"]).any():
        raise InputError(
            "the table has several rows for a seed and policy; give one setting, table[table.regime == ...]"
        )
    found = part.pivot(index="seed", columns="policy", values=metric)
    if not (found > 0).to_numpy().all():
        raise InputError(
            f"metric {metric!r} is missing or not positive for some seeds; a log ratio needs positive numbers"
        )
    return np.log(found)
