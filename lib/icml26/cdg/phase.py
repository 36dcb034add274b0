"""What CDG's rule does with a gap of a given size: exact accuracies, and a generator of synthetic confidences.

CDG (Wang et al., arXiv 2605.25244) votes by ``R(a) = |T_a|^alpha x mean score``, score = mean confidence + beta x gain.
Here a question has one right and one wrong answer; the traces' mean confidences and gains are normal, those of right
traces shifted by ``mean_gap`` and ``gain_gap``; and the share of right traces differs from question to question by a
Beta law, so that some questions are answered wrongly as a rule. Both scores are then normal, and the accuracy of a vote
is a sum over the counts (`vote_accuracy`), without simulation. `draw` makes whole traces of the same law for the real
code to vote on. The gaps are inputs: nothing here says whether a language model has one.
"""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from icml26.cdg.question import Trace
from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["Synthetic", "draw", "majority_accuracy", "vote_accuracy"]


@dataclass(frozen=True)
class Synthetic:
    """The law of synthetic traces; confidences in nats.

    Parameters
    ----------
    traces
        Of each question.
    pass_rate
        Mean share of right traces.
    concentration
        Sum of the Beta law's parameters: small where most questions are either easy or hopeless.
    mean, gain
        Mean confidence and gain of wrong traces, on average.
    mean_gap, gain_gap
        By how much those of right traces are larger: the inputs of this study.
    mean_spread, gain_spread
        Standard deviations over the traces of one kind.
    shared
        Share of the gain's variance that all traces of an answer have in common, from 0 to 1: more votes do not average
        it away.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> Synthetic(pass_rate=0.6).shape_parameters
    (1.2, 0.8)
    """

    traces: int = 32
    pass_rate: float = 0.5
    concentration: float = 2.0
    mean: float = 10.0
    gain: float = 0.0
    mean_gap: float = 0.0
    gain_gap: float = 0.0
    mean_spread: float = 0.3
    gain_spread: float = 0.5
    shared: float = 0.0

    def __post_init__(self) -> None:
        whole("traces", self.traces, 1)
        real("pass_rate", self.pass_rate, above=0, below=1)
        real("concentration", self.concentration, above=0)
        real("mean", self.mean, above=0)
        for name in ("gain", "mean_gap", "gain_gap"):
            real(name, getattr(self, name))
        for name in ("mean_spread", "gain_spread"):
            real(name, getattr(self, name), low=0)
        real("shared", self.shared, low=0, high=1)

    @property
    def shape_parameters(self) -> tuple[float, float]:
        """The Beta law's two parameters."""
        return self.pass_rate * self.concentration, (1 - self.pass_rate) * self.concentration


def vote_accuracy(law: Synthetic, *, beta: float, alpha: float = 0.5) -> float:
    """Accuracy of the vote by ``|T|^alpha x mean score``, exactly.

    ``alpha=1, beta=0`` is DeepConf-Mean, ``alpha=1`` the sum of the scores.

    Parameters
    ----------
    law : Synthetic
        Of the traces.
    beta, alpha : float
        Weight of the gain, power of the count.

    Returns
    -------
    float
        Probability that the right answer wins, over questions and traces.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> law = Synthetic(gain_gap=1.0)
    >>> vote_accuracy(law, beta=10) > vote_accuracy(law, beta=0)
    True
    """
    real("beta", beta)
    real("alpha", alpha, low=0)
    right, weight, both = _counts(law.traces, *law.shape_parameters)
    n, m = right[both], law.traces - right[both]
    wrong_score = law.mean + beta * law.gain
    right_score = wrong_score + law.mean_gap + beta * law.gain_gap
    lead = n**alpha * right_score - m**alpha * wrong_score
    of_gain = (beta * law.gain_spread) ** 2
    own = law.mean_spread**2 + (1 - law.shared) * of_gain
    variance = own * (n ** (2 * alpha - 1) + m ** (2 * alpha - 1)) + law.shared * of_gain * (
        n ** (2 * alpha) + m ** (2 * alpha)
    )
    spread = np.sqrt(variance)
    wins = stats.norm.cdf(lead / spread) if spread.all() else (np.sign(lead) + 1) / 2
    return float(weight[-1] + (weight[both] * wins).sum())


def majority_accuracy(law: Synthetic) -> float:
    """Accuracy of the majority, a tie counting one half.

    Parameters
    ----------
    law : Synthetic
        Of the traces.

    Returns
    -------
    float
        Probability that the right answer has more votes.

    Examples
    --------
    >>> round(majority_accuracy(Synthetic(pass_rate=0.5)), 6)
    0.5
    """
    right, weight, _ = _counts(law.traces, *law.shape_parameters)
    return float((weight * (np.sign(2 * right - law.traces) + 1) / 2).sum())


@functools.lru_cache(maxsize=256)
def _counts(
    traces: int, a: float, b: float
) -> tuple[Float[np.ndarray, " counts"], Float[np.ndarray, " counts"], Bool[np.ndarray, " counts"]]:
    """Numbers of right traces, their probabilities, and which leave a vote to either side."""
    right = np.arange(traces + 1.0)
    return right, stats.betabinom.pmf(right, traces, a, b), (right > 0) & (right < traces)


def draw(
    law: Synthetic, questions: int, *, seed: int | np.random.Generator, tokens: int = 100, percent: int = 10
) -> tuple[list[list[Trace]], list[str]]:
    """Make traces of a law, each a straight line of confidences with the mean and the gain drawn for it.

    Parameters
    ----------
    law : Synthetic
        What to draw from.
    questions : int
        How many.
    seed : int or numpy.random.Generator
        Of the draws.
    tokens : int
        Length of every trace.
    percent : int
        Window of the gain, in percent.

    Returns
    -------
    list of questions, each a list of Trace
        Right traces answer "right", wrong ones "wrong".
    list of str
        The right answers.

    Raises
    ------
    InputError
        If a number is out of range, or a confidence comes out negative: the law's gain or spread is then too large for
        its mean.

    Examples
    --------
    >>> made, truths = draw(Synthetic(traces=4), 3, seed=0)
    >>> len(made), len(made[0]), truths[0]
    (3, 4, 'right')
    """
    whole("questions", questions, 1)
    whole("tokens", tokens, 10)
    window = max(1, tokens * whole("percent", percent, 1, 50) // 100)
    rng = np.random.default_rng(seed)
    shape = (questions, law.traces)
    right = rng.random(shape) < rng.beta(*law.shape_parameters, questions)[:, None]
    mean = law.mean + law.mean_gap * right + law.mean_spread * rng.standard_normal(shape)
    common = np.where(right, *rng.standard_normal((2, questions, 1)))
    noise = np.sqrt(law.shared) * common + np.sqrt(1 - law.shared) * rng.standard_normal(shape)
    gain = law.gain + law.gain_gap * right + law.gain_spread * noise
    ramp = (np.arange(tokens) - (tokens - 1) / 2) / (tokens - window)  # of mean 0 and gain 1
    confidences = mean[..., None] + gain[..., None] * ramp
    if confidences.min() < 0:
        raise InputError(f"mean={law.mean} is too small for the law's gains and spreads: a confidence is negative")
    answers = np.where(right, "right", "wrong")
    made = [
        [Trace(str(answer), values) for answer, values in zip(*question, strict=True)]
        for question in zip(answers, confidences, strict=True)
    ]
    return made, ["right"] * questions
