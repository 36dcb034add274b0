"""Accuracies of votes: settings chosen on calibration questions, winners compared on the others.

CDG (Wang et al., arXiv 2605.25244) takes beta from [0.5 r, 1.5 r], where r is the mean confidence over the gap of gains
on calibration questions. `grids` gives seven settings to each rule that has any, nine to DeepConf-Tail and one to CDG's
rules where r does not exist; `choose` picks the best on calibration questions, and `compare` marks each rule's winners
on the questions that are left. Whether a condition can decide anything is for majority's accuracy on the calibration
questions to say (`Comparison.eligible`). Intervals are left to `icml26.cdg.intervals`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from icml26.cdg.ballots import MEAN, PERCENTS, Ballots, Rule, answer_scores, ballots, elect, right
from icml26.cdg.conditions import Condition
from icml26.cdg.gaps import question_gaps
from icml26.checks import whole
from icml26.errors import InputError

__all__ = [
    "FACTORS",
    "Comparison",
    "Scale",
    "at_budget",
    "choose",
    "compare",
    "grids",
    "negative_share",
    "same_winners",
    "scale",
    "subsamples",
]

FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # of the ratio r, tried for beta; as in `icml26.cdg.voter`
# Where majority is right on fewer or more of the calibration questions, no vote has room to be better.
ELIGIBLE = (0.10, 0.97)


class Scale(NamedTuple):
    """What calibration says about beta (arXiv 2605.25244).

    Attributes
    ----------
    gap : float
        Mean gain of correct traces less that of wrong ones, in nats.
    ratio : float
        r: mean confidence over the gap; NaN where the gap is not positive, and no beta but 0 makes sense.
    """

    gap: float
    ratio: float


def scale(votes: Ballots, percent: int = 10, *, within: bool = False) -> Scale:
    """Compute the ratio r that the band [0.5 r, 1.5 r] of beta is made of, of the traces that vote.

    Parameters
    ----------
    votes : Ballots
        Of calibration questions.
    percent : int
        Window of the gain.
    within : bool
        Whether traces are compared within questions, which is ours; the paper pools them.

    Returns
    -------
    Scale

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> found = scale(ballots(from_smollm2(20, 8)))
    >>> bool(found.gap > 0) == bool(found.ratio > 0)
    True
    """
    gain, correct, voting = votes.gain(percent), votes.correct, votes.voting
    if within:
        kinds = [question_gaps(gain[voting], correct[voting], np.nonzero(voting)[0]), np.zeros(1)]
    else:
        kinds = [gain[voting & correct], gain[voting & ~correct]]
    gap = float(kinds[0].mean() - kinds[1].mean()) if all(map(len, kinds)) else float("nan")
    return Scale(gap, float(votes.mean[voting].mean() / gap) if gap > 0 else float("nan"))


def grids(ratio: float, *, alpha: float = 0.5, percent: int = 10) -> dict[str, list[Rule]]:
    """Settings of each rule to choose from on calibration questions: seven each, nine of DeepConf-Tail.

    CDG and the rules made of it have one setting, beta = 0, where r does not exist: fewer than their rivals.

    Parameters
    ----------
    ratio : float
        r of `scale`; NaN leaves beta = 0 only, where beta multiplies a gain.
    alpha : float
        CDG's power of the count.
    percent : int
        CDG's window.

    Returns
    -------
    dict of str to list of Rule
        In order of preference where accuracies are equal.

    Examples
    --------
    >>> [len(rules) for rules in grids(8.0).values()]
    [1, 1, 9, 7, 7, 1, 7, 7, 7, 7]
    >>> len(grids(float("nan"))["CDG"])
    1
    """
    betas = [0.0] if np.isnan(ratio) else [factor * ratio for factor in FACTORS]
    return {
        "majority": [Rule("majority", alpha=1.0)],
        "DeepConf-Mean": [MEAN],
        "DeepConf-Tail": [
            Rule("tail", percent=percent, keep=keep, alpha=1.0) for keep in (0.1, 0.5, 1.0) for percent in (10, 20, 50)
        ],
        "Self-Certainty": [Rule("borda", power=power, alpha=1.0) for power in (0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)],
        "CDG": [Rule("cdg", beta, alpha, percent) for beta in betas],
        "CDG, beta = 0": [Rule("cdg", 0.0, alpha, percent)],
        "CDG, alpha = 1": [Rule("cdg", beta, 1.0, percent) for beta in betas],
        # Both terms are confidences here, so that weights of order one need no calibration.
        "no start": [Rule("no start", beta, alpha, percent) for beta in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)],
        "thinking part": [Rule("thinking", beta, alpha, percent) for beta in betas],
        "write-up part": [Rule("write-up", beta, alpha, percent) for beta in betas],
    }


def choose(votes: Ballots, rules: Sequence[Rule]) -> Rule:
    """Choose the rule with the most right winners, the first of equals.

    Parameters
    ----------
    votes : Ballots
        Of calibration questions.
    rules : sequence of Rule
        At least one.

    Returns
    -------
    Rule

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> choose(ballots(from_smollm2(3, 8)), [Rule("cdg"), Rule("cdg", beta=0.0)]).beta
    0.0
    """
    if not len(rules):
        raise InputError("rules is empty; give at least one")
    return max(rules, key=lambda rule: right(votes, elect(votes, rule)).sum())


def subsamples(
    questions: int, traces: int, size: int, draws: int, *, seed: int
) -> list[Int64[np.ndarray, "questions size"]]:
    """Draw traces without replacement, for every question on its own.

    Parameters
    ----------
    questions, traces : int
        How many there are.
    size : int
        Traces to draw, at most all.
    draws : int
        Subsamples; one alone if all traces are drawn, because all others would be the same.
    seed : int
        Of the draws.

    Returns
    -------
    list of int arrays

    Examples
    --------
    >>> [sample.shape for sample in subsamples(3, 8, 4, 2, seed=0)]
    [(3, 4), (3, 4)]
    """
    whole("size", size, 1, traces)
    rng = np.random.default_rng(seed)
    return [
        rng.permuted(np.tile(np.arange(traces), (questions, 1)), axis=1)[:, :size]
        for _ in range(1 if size == traces else draws)
    ]


class Comparison(NamedTuple):
    """What `compare` returns.

    Attributes
    ----------
    name : str
        Of the condition.
    calibration, test : Ballots
        Both parts of the questions.
    scale : Scale
        Of the calibration questions.
    chosen : dict of str to Rule
        The setting of each rule that is best on the calibration questions.
    right : dict of str to bool array
        Whether its winner is right on each of the other questions.
    """

    name: str
    calibration: Ballots
    test: Ballots
    scale: Scale
    chosen: dict[str, Rule]
    right: dict[str, Bool[np.ndarray, " questions"]]

    @property
    def eligible(self) -> bool:
        """Whether majority leaves a vote room, judged by the calibration questions."""
        accuracy = right(self.calibration, elect(self.calibration, self.chosen["majority"])).mean()
        return bool(ELIGIBLE[0] <= accuracy <= ELIGIBLE[1])

    def difference(self, a: str, b: str) -> Float[np.ndarray, " questions"]:
        """Accuracy of one rule less that of another on each question, in points."""
        return 100.0 * (self.right[a].astype(float) - self.right[b])


def compare(condition: Condition, *, alpha: float = 0.5, percent: int = 10) -> Comparison:
    """Choose every rule's setting on the calibration questions, and hold the votes on the others.

    Parameters
    ----------
    condition : Condition
        The traces.
    alpha : float
        CDG's power of the count.
    percent : int
        CDG's window.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> found = compare(from_smollm2(12, 8))
    >>> found.difference("CDG", "majority").shape
    (8,)
    """
    votes = ballots(condition, sorted({*PERCENTS, percent}))
    calibration, test = votes.take(slice(condition.calibration)), votes.take(slice(condition.calibration, None))
    found = scale(calibration, percent)
    chosen = {
        name: choose(calibration, rules) for name, rules in grids(found.ratio, alpha=alpha, percent=percent).items()
    }
    marks = {name: right(test, elect(test, rule)) for name, rule in chosen.items()}
    return Comparison(condition.name, calibration, test, found, chosen, marks)


def at_budget(
    votes: Ballots, rule: Rule, samples: Sequence[Int64[np.ndarray, "questions size"]]
) -> Float[np.ndarray, " questions"]:
    """Accuracy on each question with fewer traces, averaged over subsamples.

    Parameters
    ----------
    votes : Ballots
        The questions.
    rule : Rule
        How to vote.
    samples : sequence of int arrays
        Of `subsamples`.

    Returns
    -------
    float array, questions

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> votes = ballots(from_smollm2(3, 8))
    >>> at_budget(votes, MEAN, subsamples(3, 8, 4, 2, seed=0)).shape
    (3,)
    """
    return np.mean([right(votes, elect(votes, rule, sample)) for sample in samples], axis=0)


def negative_share(votes: Ballots, rule: Rule) -> float:
    """Share of answers with a negative score, for which more votes are worse.

    Parameters
    ----------
    votes : Ballots
        The questions.
    rule : Rule
        How to vote.

    Returns
    -------
    float
        NaN if there is no answer.

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> negative_share(ballots(from_smollm2(3, 8)), MEAN)
    0.0
    """
    scores = answer_scores(votes, rule)
    scores = scores[np.isfinite(scores)]
    return float((scores < 0).mean()) if len(scores) else float("nan")


def same_winners(a: Ballots, b: Ballots, rule: Rule) -> Bool[np.ndarray, " questions"]:
    """Tell where a vote has the same winner on other confidences of the same answers, such as shortened traces (C6).

    Parameters
    ----------
    a, b : Ballots
        Of the same questions and answers.
    rule : Rule
        How to vote.

    Returns
    -------
    bool array, questions

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> condition = from_smollm2(3, 8)
    >>> same_winners(ballots(condition), ballots(condition), MEAN).tolist()
    [True, True, True]
    """
    return elect(a, rule) == elect(b, rule)
