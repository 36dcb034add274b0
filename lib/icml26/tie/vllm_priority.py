"""Send the orders of `icml26.tie.policies` to vLLM, as the integer priorities of its own scheduler.

vLLM (0.11 and newer) started with ``scheduling_policy="priority"`` keeps its waiting queue as a heap on (priority,
arrival time), lowest first, and takes one integer a request: ``LLM.generate(prompts, sampling_params, priority=[...])``
offline, the extra field ``"priority"`` of the OpenAI-compatible server online. Running requests stay until memory for
keys and values runs out; then the one with the highest (priority, arrival time) goes back to the queue. Without that
policy any priority but 0 is an error.

A priority cannot be changed once sent, so TIE's beta (Zheng et al., arXiv 2604.00499, Eq. 12) stays as it was at
arrival, as in the official code. Its discount for waiting needs no change: scores shrink alike, so the order by
``score * factor**(waited / period)`` is that by ``log(score) + arrival * log(1 / factor) / period`` at all times.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from icml26.checks import is_integer, is_number
from icml26.errors import InputError
from icml26.serving import Policy, QueueState, Request
from icml26.tie.policies import TIE

__all__ = ["VLLMPriority"]

# The server's field is a signed integer of 64 bits.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class VLLMPriority:
    """Turn prompts, or laws of their output lengths, into priorities.

    Parameters
    ----------
    order : callable
        ``order(law)`` gives the policy that scores the requests of a call, such as ``lambda law: TIE(law, 2048)``.
    predict : callable or None
        ``predict(prompts)`` gives the law of the prompts' output lengths, one entry a prompt. Without it the calls
        take laws in place of prompts.
    batch : int
        The engine's ``max_num_seqs``.
    resolution : float
        Integers for one unit of score, a token for TIE. Scores closer than its inverse may tie; vLLM then serves the
        earlier arrival. A discounted score counts in logarithms, where the resolution is multiplied by 2048 so that
        a token still counts at that length.

    Raises
    ------
    InputError
        If `order` or `predict` cannot be called, the batch is not a positive integer, or the resolution not a positive
        number.

    Examples
    --------
    >>> from icml26.tie.policies import PointEstimate
    >>> priority = VLLMPriority(PointEstimate, predict=lambda prompts: [10.0 * len(text) for text in prompts])
    >>> priority(["tell me everything", "yes?", "why?"])
    [2880, 640, 640]
    >>> priority.extra_body("yes?", waiting=12)
    {'priority': 640}
    """

    order: Callable[[Any], Any] = lambda law: TIE(law, 2048)
    predict: Callable[[Sequence], Any] | None = None
    batch: int = 32
    resolution: float = 16.0

    def __post_init__(self) -> None:
        if not callable(self.order) or not (self.predict is None or callable(self.predict)):
            name = "predict" if callable(self.order) else "order"
            raise InputError(
                f"{name} is of type {type(getattr(self, name)).__name__}; give a function such as "
                + ("lambda law: TIE(law, 2048)" if name == "order" else "one from prompts to their law, or None")
            )
        if not is_integer(self.batch) or self.batch < 1:
            raise InputError(f"batch={self.batch!r} must be a positive integer, the engine's max_num_seqs")
        if not is_number(self.resolution) or self.resolution <= 0:
            raise InputError(f"resolution={self.resolution!r} must be a positive number, such as 16")

    def __call__(self, requests: Any, *, waiting: int = 0, arrival: float = 0.0) -> list[int]:
        """Priorities of requests that are sent together.

        Parameters
        ----------
        requests
            Prompts, in a list; or laws where there is no `predict`.
        waiting
            Requests that wait in the engine already.
        arrival
            Seconds since an origin that all calls share, such as ``time.monotonic()``; only a policy with a discount
            for waiting looks at it.

        Returns
        -------
        list of int
            For ``priority=`` of ``LLM.generate``; lower goes first, in the order of the policy's scores.

        Raises
        ------
        InputError
            If a prompt stands alone instead of in a list, `waiting` is negative, `predict` does not give one law a
            prompt, the order would renew its scores, or a score fits no integer.
        """
        if isinstance(requests, str | dict):
            raise InputError("requests is one prompt; give a list of prompts, or use extra_body for a single one")
        if not is_integer(waiting) or waiting < 0:
            raise InputError(f"waiting={waiting!r} must be a number of requests, 0 or more")
        if not is_number(arrival):
            raise InputError(f"arrival={arrival!r} must be a finite number of seconds")
        if not _entries("requests", requests):
            return []
        law = requests if self.predict is None else self.predict(requests)
        count = _entries("law of the requests", law)
        if self.predict is not None and count != len(requests):
            raise InputError(f"predict gave {count} laws for {len(requests)} prompts; give one for each")
        policy = self.order(law)
        if isinstance(policy, type) or not isinstance(policy, Policy):
            raise InputError(f"order gave {policy!r}; let it return a policy, as lambda law: TIE(law, 2048) does")
        if getattr(policy, "refresh", False):
            raise InputError("the order renews its scores, but a priority once sent stays; give refresh_every=None")
        queue = QueueState(clock=arrival, waiting=int(waiting) + count, running=self.batch, batch=self.batch)
        return [
            self._integer(policy, policy.score(Request(index, arrival, 0, 0, 0), queue), arrival)
            for index in range(count)
        ]

    def extra_body(self, prompt: Any, *, waiting: int = 0, arrival: float = 0.0) -> dict[str, int]:
        """Extra field for one request of the OpenAI-compatible server, ``client.completions.create(extra_body=...)``.

        Parameters
        ----------
        prompt
            The prompt, or a law with one entry where there is no `predict`.
        waiting, arrival
            As for a call.

        Returns
        -------
        dict
            ``{"priority": n}``.

        Raises
        ------
        InputError
            As a call, or if the law has more entries than one.
        """
        if self.predict is not None and isinstance(prompt, list | tuple) and any(isinstance(p, str) for p in prompt):
            raise InputError(f"prompt is a list of {len(prompt)}; send one request at a time")
        found = self(prompt if self.predict is None else [prompt], waiting=waiting, arrival=arrival)
        if len(found) != 1:
            raise InputError(f"prompt gave {len(found)} priorities; send one request at a time")
        return {"priority": found[0]}

    def _integer(self, policy: Any, score: float, arrival: float) -> int:
        decay = getattr(policy, "decay", None)
        if decay is not None:
            if score <= 0:
                raise InputError(
                    f"a discount for waiting needs positive scores, not {score!r}; drop the policy's decay"
                )
            score = 2048 * (math.log(score) - arrival / decay.period * math.log(decay.factor))
        scaled = score * self.resolution
        if not abs(scaled) <= _LARGEST:
            raise InputError(f"score {score!r} fits no 64-bit integer at resolution={self.resolution!r}; lower it")
        return round(scaled)


def _entries(name: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError as error:
        raise InputError(f"{name} is of type {type(values).__name__}; give as many entries as requests") from error
