"""Numbers from a trace of the serving simulator: latencies, waits, times to finish.

The per-token latency of a request is its latency over its output tokens (the normalised latency of Orca, Yu et al.,
OSDI 2022, and vLLM, Kwon et al., arXiv 2309.06180). Its mean favours short requests by design: read it beside the mean
latency and the longest wait. Nothing is excluded, neither a warm-up nor the tail in which the batch runs empty.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int64

from icml26.checks import is_integer
from icml26.errors import InputError
from icml26.serving_types import Trace, Workload

__all__ = ["Summary", "finished_by", "in_system", "summary", "time_at"]


class Summary(NamedTuple):
    """Metrics of a complete run; percentiles are over requests.

    Attributes
    ----------
    mean_ptla, p90_ptla, p99_ptla : float
        Per-token latency, seconds per output token.
    mean_latency, p99_latency : float
        From arrival to the last token, seconds.
    mean_ttft, p99_ttft : float
        From arrival to the first token, seconds.
    max_wait : float
        Longest time from arrival to the first admission, seconds.
    makespan : float
        From the first arrival to the last finish, seconds.
    preemptions : int
        Of all requests together.
    """

    mean_ptla: float
    p90_ptla: float
    p99_ptla: float
    mean_latency: float
    p99_latency: float
    mean_ttft: float
    p99_ttft: float
    max_wait: float
    makespan: float
    preemptions: int


def summary(trace: Trace, workload: Workload) -> Summary:
    """Summarise a complete run.

    Parameters
    ----------
    trace : Trace
        Of `icml26.serving.simulate`.
    workload : Workload
        What was simulated.

    Returns
    -------
    Summary
        ``_asdict()`` makes a table's row of it.

    Raises
    ------
    InputError
        If requests are unfinished, since leaving them out would favour a policy that starves them; or if the trace is
        of another workload.

    Examples
    --------
    >>> workload = Workload(arrival=[0.0, 1.0], prompt=[1, 1], output=[2, 4])
    >>> when = np.array([2.0, 5.0])
    >>> trace = Trace(when - 2, when - 1, when, workload.output, np.zeros(2, int), 5.0, 6, 5)
    >>> found = summary(trace, workload)
    >>> found.mean_ptla, found.mean_latency, found.makespan
    (1.0, 3.0, 5.0)
    """
    _check_own(trace, workload)
    unfinished = int(np.isnan(trace.finish).sum())
    if unfinished:
        raise InputError(f"trace has {unfinished} unfinished requests; simulate without until, or use finished_by")
    if (trace.generated != workload.output).any():
        at = int(np.argmax(trace.generated != workload.output))
        raise InputError(
            f"trace generated {trace.generated[at]} tokens for request {at}, whose output in workload is "
            f"{workload.output[at]}; give the run's own workload"
        )
    latency = trace.finish - workload.arrival
    ptla = latency / workload.output
    ttft = trace.first_token - workload.arrival
    return Summary(
        float(ptla.mean()),
        *np.quantile(ptla, [0.9, 0.99]).tolist(),
        float(latency.mean()),
        float(np.quantile(latency, 0.99)),
        float(ttft.mean()),
        float(np.quantile(ttft, 0.99)),
        float((trace.admitted - workload.arrival).max()),
        float(trace.finish.max() - workload.arrival[0]),
        int(trace.preemptions.sum()),
    )


def time_at(trace: Trace, k: int) -> float:
    """Return when the k-th request finished, whichever it was.

    Parameters
    ----------
    trace : Trace
        Of a run.
    k : int
        Finished requests, 1 or more.

    Returns
    -------
    float
        Seconds on the run's clock.

    Raises
    ------
    InputError
        If fewer requests finished.

    Examples
    --------
    >>> none = np.zeros(3)
    >>> time_at(Trace(none, none, np.array([9.0, 4.0, 7.0]), none, none, 9.0, 9, 9), 2)
    7.0
    """
    finish = np.sort(trace.finish[~np.isnan(trace.finish)])
    if not is_integer(k) or not 1 <= k <= finish.size:
        raise InputError(f"k={k!r} must be an integer from 1 to the {finish.size} finished requests")
    return float(finish[k - 1])


def finished_by(trace: Trace, times: Float[np.ndarray, "*times"] | float) -> Int64[np.ndarray, "*times"]:
    """Count the requests that finished until some times.

    Parameters
    ----------
    trace : Trace
        Of a run.
    times : array-like of float
        Seconds on the run's clock.

    Returns
    -------
    ndarray of int
        In the shape of `times`.

    Raises
    ------
    InputError
        If a time lies after the end of a run that was stopped.

    Examples
    --------
    >>> none = np.zeros(3)
    >>> finished_by(Trace(none, none, np.array([9.0, 4.0, 7.0]), none, none, 9.0, 9, 9), [3.0, 7.0, 60.0]).tolist()
    [0, 2, 3]
    """
    return np.searchsorted(np.sort(trace.finish), _known(trace, times), side="right")


def in_system(
    trace: Trace, workload: Workload, times: Float[np.ndarray, "*times"] | float
) -> Int64[np.ndarray, "*times"]:
    """Count the requests that had arrived and not finished at some times.

    Parameters
    ----------
    trace, workload
        A run and what was simulated.
    times : array-like of float
        Seconds on the run's clock.

    Returns
    -------
    ndarray of int
        In the shape of `times`.

    Raises
    ------
    InputError
        As `finished_by`.

    Examples
    --------
    >>> workload = Workload(arrival=[0.0, 1.0], prompt=[1, 1], output=[2, 4])
    >>> none = np.zeros(2)
    >>> in_system(Trace(none, none, np.array([2.0, 5.0]), none, none, 5.0, 6, 5), workload, [0.5, 1.5, 2.0]).tolist()
    [1, 2, 1]
    """
    _check_own(trace, workload)
    finished = finished_by(trace, times)
    return np.searchsorted(workload.arrival, times, side="right") - finished


def _check_own(trace: Trace, workload: Workload) -> None:
    if len(trace.finish) != len(workload):
        raise InputError(f"trace has {len(trace.finish)} requests and workload {len(workload)}; give the run's own")
    early = trace.finish < workload.arrival  # nan is not
    if early.any():
        at = int(np.argmax(early))
        raise InputError(
            f"trace has request {at} finish at {trace.finish[at]:g} s, before it arrives in workload, at "
            f"{workload.arrival[at]:g} s; give the run's own workload"
        )


def _known(trace: Trace, times: Float[np.ndarray, "*times"] | float) -> Float64[np.ndarray, "*times"]:
    try:
        times = np.asarray(times, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"times must be seconds on the run's clock: {error}") from error
    if np.isnan(times).any():
        raise InputError("times holds nan; give seconds on the run's clock")
    if np.isnan(trace.finish).any() and times.size and times.max() > trace.clock_end:
        raise InputError(f"times goes to {times.max():g} s, but the run stopped at {trace.clock_end:g} s; raise until")
    return times
