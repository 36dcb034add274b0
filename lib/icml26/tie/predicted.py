"""The queue ordered by trained predictors: who learns what from the same answers, and requests to serve with it.

TIE (Zheng et al., arXiv 2604.00499) is compared with point predictors that learn from the same prompts, features,
number of generations, network and tuning (`icml26.tie.predictors`). `learn` trains them all; a `PredictedCase` draws
requests from held-out prompts, whose true lengths are answers that no predictor has seen, and gives every policy what
its predictor says of the prompt. Simulating and comparing is `icml26.tie.serving_study`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from icml26 import serving, serving_arrivals
from icml26.errors import InputError
from icml26.serving import Policy, Server, Workload
from icml26.tie import predictors
from icml26.tie.answers import Answers
from icml26.tie.policies import FCFS, SEPT, TIE, WSEPT, Decay, FixedBeta, Median, OracleSJF, PointEstimate
from icml26.tie.predictors import DEFAULTS, PredictorConfig
from icml26.tie.scenarios import Case

__all__ = ["PredictedCase", "Predictions", "learn", "policies_of", "quality"]

Predictions = Mapping[str, Any]
POINTS = ("ssjf", "ssjf, one answer", "ltr", "mean")  # predictions that are one number a prompt


def learn(
    training: Answers,
    test: Answers,
    *,
    seed: int,
    nu: float = 3.5,
    config: PredictorConfig = DEFAULTS,
    features: Callable[[Answers], Float[np.ndarray, "prompts width"]] = lambda answers: answers.features,
) -> dict[str, Any]:
    """Train every predictor on the same answers, and let each predict for other prompts.

    Parameters
    ----------
    training, test : Answers
        Prompts with answers to learn from; prompts to predict for, whose answers are not looked at.
    seed : int
        Of all the predictors.
    nu : float
        Degrees of freedom of the log-t law.
    config : PredictorConfig
        Network, training and grid, the same for all.
    features : callable
        What a prompt's features are.

    Returns
    -------
    dict
        ``ssjf``, ``ssjf, one answer`` and ``mean`` (lengths), ``ltr`` (scores), ``tie`` (`LogTLaw`) and ``log-normal``
        (`LogNormalLaw`), an entry for each test prompt.

    Raises
    ------
    InputError
        If the answers differ in their cap, or as `icml26.tie.predictors`.
    """
    if training.cap != test.cap:
        raise InputError(f"training answers are capped at {training.cap} and test answers at {test.cap}; use one cap")
    seen, lengths, cap = features(training), training.lengths, training.cap
    fitted = {
        "ssjf": predictors.fit_ssjf(seen, lengths, config, seed=seed),
        "ssjf, one answer": predictors.fit_ssjf(seen, lengths, config, seed=seed, answers="first"),
        "ltr": predictors.fit_ltr(seen, lengths, config, seed=seed),
        "mean": predictors.fit_mean(seen, lengths, config, seed=seed),
        "tie": predictors.fit_tie(seen, lengths, cap, config, seed=seed, nu=nu),
        "log-normal": predictors.fit_tie(seen, lengths, cap, config, seed=seed, family="log-normal"),
    }
    return {name: found.predict(features(test)) for name, found in fitted.items()}


def quality(predictions: Predictions, test: Answers) -> dict[str, float]:
    """Kendall's tau of each prediction's order and the lengths of the test prompts' answers.

    Parameters
    ----------
    predictions : mapping
        Of `learn`.
    test : Answers
        The prompts that they are for.

    Returns
    -------
    dict of str to float
        By predictor; of a law, its expectation orders.
    """
    orders = {name: predictions[name] if name in POINTS else predictions[name].mean(test.cap) for name in predictions}
    return {name: predictors.kendall_tau(order, test.lengths) for name, order in orders.items()}


def policies_of(predictions: Predictions, output: np.ndarray, cap: int, alpha: float = 0.9) -> dict[str, Policy]:
    """The paper's policies, those that theory names, and the ablations of the law.

    Parameters
    ----------
    predictions : mapping
        Of `learn`, an entry for each request.
    output : ndarray of int, shape (requests,)
        True lengths, for the oracle alone.
    cap : int
        Most output tokens.
    alpha : float
        Level of TIE's tail.

    Returns
    -------
    dict of str to Policy
        ``fcfs``; ``ssjf``, ``ssjf, one answer``, ``ltr`` and ``mean`` (point predictions); ``median``, ``sept``,
        ``wsept``, ``beta_0.1``, ``beta_0.3``, ``tie`` and ``tie_decay`` (log-t); ``log-normal`` and ``log-normal,
        uncapped`` (TIE with that law); ``sept, log-normal``; ``oracle``.
    """
    law, normal = predictions["tie"], predictions["log-normal"]
    points = {name: PointEstimate(predictions[name]) for name in POINTS}
    return {
        "fcfs": FCFS(),
        **points,
        "median": Median(law),
        "sept": SEPT(law, cap),
        "wsept": WSEPT(law, cap),
        "beta_0.1": FixedBeta(law, cap, 0.1, alpha),
        "beta_0.3": FixedBeta(law, cap, 0.3, alpha),
        "tie": TIE(law, cap, alpha=alpha),
        "tie_decay": TIE(law, cap, alpha=alpha, decay=Decay()),
        "log-normal": TIE(normal, cap, alpha=alpha),
        "log-normal, uncapped": TIE(normal, None, alpha=alpha),
        "sept, log-normal": SEPT(normal, cap),
        "oracle": OracleSJF(output),
    }


@dataclass(frozen=True)
class PredictedCase:
    """A setting of the comparison with trained predictors; called with a seed it gives that seed's `Case`.

    Each seed draws the prompts anew, with replacement, from those there are, so that intervals over seeds hold for
    other prompts of the kind; then requests from the prompts, and one answer of each. Arrivals come from a stream of
    their own.

    Parameters
    ----------
    test : Answers
        Prompts to serve.
    rounds : sequence of Predictions
        Of `learn`, one for each training of the predictors; seeds take them in turn.
    load : float or None
        Arrivals as a multiple of what a full batch works off; None for all at once.
    requests : int
        How many.
    server : Server
        The engine.
    policies : callable
        ``policies(predictions, output, cap)`` gives the policies by name.

    Raises
    ------
    InputError
        If there are no predictions, the number of requests is no positive integer or the load not positive.
    """

    test: Answers
    rounds: Sequence[Predictions]
    load: float | None = 15.0
    requests: int = 2000
    server: Server = field(default_factory=Server)
    policies: Callable[[Predictions, np.ndarray, int], Mapping[str, Policy]] = policies_of

    def __post_init__(self) -> None:
        if not len(self.rounds):
            raise InputError("rounds is empty; give the predictions of one training at least")
        if isinstance(self.requests, bool) or not isinstance(self.requests, int) or self.requests < 1:
            raise InputError(f"requests={self.requests!r} must be a positive integer")
        if self.load is not None and not 0 < self.load < np.inf:
            raise InputError(f"load={self.load!r} must be a positive multiple of the capacity, or None for all at once")

    def __call__(self, seed: int) -> Case:
        """Draw a seed's prompts, requests and arrivals."""
        draw, arrive = np.random.SeedSequence(seed).spawn(2)
        generator = np.random.default_rng(draw)
        prompts, samples = self.test.lengths.shape
        source = generator.integers(prompts, size=prompts)[generator.integers(prompts, size=self.requests)]
        output = self.test.lengths[source, generator.integers(samples, size=self.requests)]
        arrival = serving_arrivals.at_once(self.requests)
        if self.load is not None:
            rate = self.load * self.capacity()
            arrival = serving_arrivals.poisson(rate, self.requests, np.random.default_rng(arrive))
        asked = {name: found[source] for name, found in self.rounds[seed % len(self.rounds)].items()}
        workload = Workload(arrival, self.test.prompt_tokens[source], output)
        return Case(workload, self.policies(asked, output, self.test.cap))

    def capacity(self) -> float:
        """Requests per second that a full batch works off: load 1, the same for all seeds."""
        prompt = np.repeat(self.test.prompt_tokens, self.test.lengths.shape[1])
        return serving.capacity(Workload(np.zeros(prompt.size), prompt, self.test.lengths.ravel()), self.server)
