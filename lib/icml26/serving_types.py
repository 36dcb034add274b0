"""What the serving simulator takes and gives: requests, the server's cost model, the queue's policy, the trace.

The cost of an iteration is linear in what it processes (`Server`), as measured for transformer decoding, where reading
weights and cached keys and values dominates (Pope et al., arXiv 2211.05102). The simulation is `icml26.serving`'s,
which also offers these names; policies are the papers'.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from icml26.checks import is_integer, is_number
from icml26.errors import InputError

__all__ = ["Policy", "QueueState", "Request", "Server", "Trace", "Workload", "capacity"]

_MOST = 2**53  # tokens that floats still count exactly
_LONGEST = 1e9  # seconds of one step of an engine; sums of them stay finite


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests in the order of their arrival; made once per seed, so that policies are compared on the same requests.

    Parameters
    ----------
    arrival : array-like of float, shape (requests,)
        Seconds, from 0 on, ascending.
    prompt : array-like of int, shape (requests,)
        Prompt tokens, 0 or more.
    output : array-like of int, shape (requests,)
        Tokens that the request will generate, 1 or more; the scheduler never sees them.

    Raises
    ------
    InputError
        If a value is out of its range or the lengths differ.

    Examples
    --------
    >>> workload = Workload(arrival=[0.0, 0.5], prompt=[100, 30], output=[7, 250])
    >>> len(workload), int(workload.output.sum())
    (2, 257)
    """

    arrival: Float64[np.ndarray, " requests"]
    prompt: Int64[np.ndarray, " requests"]
    output: Int64[np.ndarray, " requests"]

    def __post_init__(self) -> None:
        arrival = _vector("arrival", self.arrival)
        if arrival.size == 0:
            raise InputError("arrival is empty; give at least one request")
        if not np.isfinite(arrival).all() or arrival[0] < 0 or (np.diff(arrival) < 0).any():
            raise InputError("arrival must be finite seconds from 0 on in ascending order; sort the requests by it")
        whole = {"prompt": _tokens("prompt", self.prompt, 0), "output": _tokens("output", self.output, 1)}
        for name, values in whole.items():
            if values.size != arrival.size:
                raise InputError(f"{name} has {values.size} entries; give one for each of the {arrival.size} arrivals")
        for name, values in {"arrival": arrival, **whole}.items():
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    def __len__(self) -> int:
        return self.arrival.size


@dataclass(frozen=True)
class Server:
    """One engine with continuous batching; an iteration lasts

    ``base + per_request * running + per_cached_token * sum(prompt + generated) + per_prompt_token * admitted`` seconds,

    where the sum is over all running requests, ``generated`` counts the tokens before the iteration, and ``admitted``
    are the tokens that the requests admitted in this iteration bring (their prompts, and after a preemption what they
    had generated). The defaults are arithmetic for an 8 B model in bfloat16 on an 80 GB A100 at 2 TB/s: 16 GB of
    weights, 128 KiB of keys and values per token.

    Parameters
    ----------
    batch : int
        Most requests that run together.
    base : float
        Seconds per iteration.
    per_request : float
        Seconds per iteration and running request.
    per_cached_token : float
        Seconds per iteration and token in the KV memory.
    per_prompt_token : float
        Seconds per token of an admitted request.
    kv_tokens : int or None
        Tokens that the KV memory holds, counted singly; None for no limit.
    block : int
        Tokens that must remain free beside an admitted request's own.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> Server(batch=2, kv_tokens=None).base
    0.012
    """

    batch: int = 32
    base: float = 0.012
    per_request: float = 3e-4
    per_cached_token: float = 6.6e-8
    per_prompt_token: float = 8e-5
    kv_tokens: int | None = 400_000
    block: int = 16

    def __post_init__(self) -> None:
        for name, least in {"batch": 1, "kv_tokens": 1, "block": 0}.items():
            value = getattr(self, name)
            if not (name == "kv_tokens" and value is None) and (not is_integer(value) or not least <= value <= _MOST):
                raise InputError(f"{name}={value!r} must be an integer of at least {least} and at most {_MOST}")
        for name in ("base", "per_request", "per_cached_token", "per_prompt_token"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value <= _LONGEST:
                raise InputError(
                    f"{name}={value!r} must be a finite number of seconds, 0 or more and at most {_LONGEST:g}"
                )
        if self.base + self.per_request <= 0:
            raise InputError("base and per_request are both 0; an iteration must take time")


class Request(NamedTuple):
    """What a policy may know of a request; its true output length is not among it.

    Attributes
    ----------
    index : int
        Position in the workload, for looking up predictions.
    arrival : float
        Seconds.
    prompt, generated : int
        Tokens of the prompt; tokens generated so far (more than 0 after a preemption).
    preemptions : int
        How often it has been preempted.
    """

    index: int
    arrival: float
    prompt: int
    generated: int
    preemptions: int


class QueueState(NamedTuple):
    """The server when a request is scored.

    Attributes
    ----------
    clock : float
        Seconds.
    waiting, running : int
        Requests that wait, the scored one included; requests that run.
    batch : int
        Most requests that run together.
    """

    clock: float
    waiting: int
    running: int
    batch: int


@runtime_checkable
class Policy(Protocol):
    """Orders the waiting queue: the lowest score is admitted first, ties by arrival and index.

    A request is scored once when it enters the waiting queue: at its arrival, and again after a preemption. Scores must
    depend on the arguments only. Three attributes are optional. ``rebuild_every``: seconds between rebuilds of the
    queue, at its multiples. ``aged(score, waited)``: the score that holds from a rebuild on, ``waited`` seconds after
    the request's arrival, computed from the score made at its entry. ``refresh``: true to score all waiting requests
    anew at each rebuild, with the queue's state of then, before they are aged.
    """

    def score(self, request: Request, queue_state: QueueState) -> float:
        """Return the score of a request that enters the waiting queue."""
        ...


class Trace(NamedTuple):
    """What happened to each request, in the workload's order; nan for what had not happened when the run stopped.

    Attributes
    ----------
    admitted, first_token, finish : ndarray of float, shape (requests,)
        Seconds at which the request was first admitted, had its first token, had its last.
    generated : ndarray of int, shape (requests,)
        Tokens generated.
    preemptions : ndarray of int, shape (requests,)
        Times it lost its place and its KV memory.
    clock_end : float
        Seconds at which the run ended.
    iterations : int
        Iterations of the engine.
    kv_peak : int
        Most tokens held by the KV memory.
    """

    admitted: Float64[np.ndarray, " requests"]
    first_token: Float64[np.ndarray, " requests"]
    finish: Float64[np.ndarray, " requests"]
    generated: Int64[np.ndarray, " requests"]
    preemptions: Int64[np.ndarray, " requests"]
    clock_end: float
    iterations: int
    kv_peak: int


def capacity(workload: Workload, server: Server) -> float:
    """Return the rate at which a full batch works off requests like these.

    Arrivals at this rate are a load of 1. No schedule without preemption finishes the requests in less than
    ``len(workload) / capacity`` seconds; limits of the KV memory are not counted.

    Parameters
    ----------
    workload : Workload
        Its prompts and outputs count, arrivals do not.
    server : Server
        The engine.

    Returns
    -------
    float
        Requests per second.

    Examples
    --------
    >>> server = Server(batch=2, base=0.01, per_request=0.0, per_cached_token=0.0, per_prompt_token=0.0)
    >>> capacity(Workload(arrival=[0.0, 0.0], prompt=[5, 5], output=[100, 100]), server)
    2.0
    """
    prompt, output = workload.prompt.astype(float), workload.output.astype(float)
    seconds = (
        (server.base / server.batch + server.per_request) * output.sum()
        + server.per_cached_token * (output * prompt + output * (output - 1) / 2).sum()
        + server.per_prompt_token * prompt.sum()
    )
    return float(len(workload) / seconds)


def check_run(workload: Workload, server: Server, policy: Policy, until: float | None) -> None:
    if not isinstance(workload, Workload) or not isinstance(server, Server):
        raise InputError(
            f"workload and server are {type(workload).__name__} and {type(server).__name__}; give a Workload, a Server"
        )
    if isinstance(policy, type):
        raise InputError(f"policy {policy.__name__} is a class; give an instance, {policy.__name__}(...)")
    if not isinstance(policy, Policy):
        raise InputError(f"policy {policy!r} has no method score(request, queue_state); give an object that has")
    every = getattr(policy, "rebuild_every", None)
    if every is not None and (not is_number(every) or every <= 0):
        raise InputError(f"rebuild_every={every!r} of the policy must be a positive number of seconds or None")
    if every is None and getattr(policy, "refresh", False):
        raise InputError("the policy has refresh without rebuild_every; set the seconds between rebuilds")
    if until is not None and (not is_number(until) or until < 0):
        raise InputError(f"until={until!r} must be a finite number of seconds, 0 or more, or None")
    if server.kv_tokens is not None:
        needed = workload.prompt + workload.output + server.block
        worst = int(np.argmax(needed))
        if needed[worst] > server.kv_tokens:
            raise InputError(
                f"request {worst} needs {needed[worst]} tokens of KV memory (prompt {workload.prompt[worst]}, output "
                f"{workload.output[worst]}, block {server.block}) and kv_tokens is {server.kv_tokens}; raise kv_tokens"
            )


def _array(name: str, values: ArrayLike) -> np.ndarray:
    try:
        return np.array(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is no array: {error}; give one number for each request") from error


def _vector(name: str, values: ArrayLike) -> np.ndarray:
    array = _array(name, values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise InputError(f"{name} has shape {array.shape} and type {array.dtype}; give one number for each request")
    return array.astype(float)


def _tokens(name: str, values: ArrayLike, least: int) -> np.ndarray:
    array = _array(name, values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name} has shape {array.shape} and type {array.dtype}; give one whole number of tokens each")
    if (array < least).any():
        at = int(np.argmax(array < least))
        raise InputError(f"{name}[{at}]={array[at]} must be at least {least} token{'s' * (least != 1)}")
    if (array > _MOST).any():
        at = int(np.argmax(array > _MOST))
        raise InputError(f"{name}[{at}]={array[at]} must be at most {_MOST} tokens")
    return array.astype(np.int64)
