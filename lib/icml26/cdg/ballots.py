"""Many votes on the same traces, for all questions of a condition at once.

CDG (Wang et al., arXiv 2605.25244) and the rules that it is compared with all give each trace a weight and each answer
``|T_a|^alpha`` times the mean weight of its traces. `Rule` says which weight and which alpha; `elect` holds the vote
for all questions of a `Ballots`, on all traces or on a subsample. The winners are those of `icml26.cdg.voting` and
`icml26.cdg.baselines`, which take a question at a time and are the reference; a test holds both together. Choosing
settings and comparing accuracies is left to `icml26.cdg.accuracy`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int64

from icml26.cdg.conditions import Condition
from icml26.cdg.traces import summarise

__all__ = ["MEAN", "Ballots", "Rule", "answer_scores", "ballots", "elect", "right"]

PERCENTS = (5, 10, 15, 20, 25, 30, 50)
_LEAST_TOKENS = 10

Method = Literal["majority", "cdg", "tail", "no start", "borda", "thinking", "write-up"]


@dataclass(frozen=True)
class Rule:
    """A vote and its setting; what a method does not read is ignored.

    Parameters
    ----------
    method
        "majority"; "cdg": mean + beta x gain; "no start": mean + beta x tail; "tail": DeepConf's vote of the traces
        with the most confident tails; "borda": ranks of self-certainty; "thinking", "write-up": CDG with a part of the
        gain. DeepConf-Mean is "tail" with percent 100 and keep 1.
    beta
        Weight of the gain, or of the tail.
    alpha
        Power of the count; 1 for all but CDG and its kin.
    percent
        Head and tail, as a share of the trace.
    keep
        Share of traces that vote by their tail.
    power
        Of the Borda weights.
    guard
        What to do about negative scores, as in `icml26.cdg.voting.vote`.

    Examples
    --------
    >>> Rule("cdg", beta=10.0).alpha
    0.5
    """

    method: Method
    beta: float = 0.0
    alpha: float = 0.5
    percent: int = 10
    keep: float = 1.0
    power: float = 0.5
    guard: str | None = None


MEAN = Rule("tail", percent=100, keep=1.0, alpha=1.0)


class Ballots(NamedTuple):
    """What votes need of a condition, a row a question and a column a trace.

    Attributes
    ----------
    code : int array
        Number of the answer among the question's different ones; -1 where there is none.
    right : bool array, questions x answers
        Which answers are right.
    long : bool array
        Whether the trace has the ten tokens that CDG asks for.
    mean, certainty : float arrays
        Mean confidence in nats, self-certainty.
    head, tail : dict of int to float array
        Mean confidence of the first and last so many percent.
    thinking : dict of int to float array
        Gain of the trace without its write-up.
    """

    code: Int64[np.ndarray, "questions traces"]
    right: Bool[np.ndarray, "questions answers"]
    long: Bool[np.ndarray, "questions traces"]
    mean: Float64[np.ndarray, "questions traces"]
    certainty: Float64[np.ndarray, "questions traces"]
    head: dict[int, Float64[np.ndarray, "questions traces"]]
    tail: dict[int, Float64[np.ndarray, "questions traces"]]
    thinking: dict[int, Float64[np.ndarray, "questions traces"]]

    @property
    def voting(self) -> Bool[np.ndarray, "questions traces"]:
        """The traces that vote in CDG: those with an answer and enough tokens."""
        return self.long & (self.code >= 0)

    @property
    def correct(self) -> Bool[np.ndarray, "questions traces"]:
        """The traces with the right answer."""
        return (self.code >= 0) & np.take_along_axis(self.right, np.maximum(self.code, 0), 1)

    def gain(self, percent: int) -> Float64[np.ndarray, "questions traces"]:
        """Tail less head."""
        return self.tail[percent] - self.head[percent]

    def take(self, rows: slice | np.ndarray) -> "Ballots":
        """Return some of the questions."""
        parts = [
            {key: value[rows] for key, value in part.items()} if isinstance(part, dict) else part[rows] for part in self
        ]
        return Ballots(*parts)


def ballots(condition: Condition, percents: Sequence[int] = PERCENTS) -> Ballots:
    """Summarise a condition's traces for voting.

    Parameters
    ----------
    condition : Condition
        Its questions come in its order, those of calibration first.
    percents : sequence of int
        Windows to prepare; 100 is always there.

    Returns
    -------
    Ballots

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> ballots(from_smollm2(3, 8)).code.shape
    (3, 8)
    """
    shape = condition.correct.shape
    code = np.full(shape, -1)
    correct = np.zeros((shape[0], 1 + max(len(set(q.answers)) for q in condition.questions)), dtype=bool)
    for row, question in enumerate(condition.questions):
        numbers: dict[str, int] = {}
        for place, answer in enumerate(question.answers):
            if answer:  # the voting script drops empty strings too
                code[row, place] = numbers.setdefault(answer, len(numbers))
        correct[row, code[row][condition.correct[row]]] = True
    thinking = condition.thinking().questions
    head, tail, thought = {}, {}, {}
    for percent in (*percents, 100):
        whole_trace = summarise(condition.questions, percent)
        head[percent], tail[percent] = whole_trace.head.reshape(shape), whole_trace.tail.reshape(shape)
        thought[percent] = np.nan_to_num(summarise(thinking, percent).gain.reshape(shape))
    return Ballots(
        code,
        correct,
        whole_trace.n.reshape(shape) >= _LEAST_TOKENS,
        whole_trace.mean.reshape(shape),
        whole_trace.certainty.reshape(shape),
        head,
        tail,
        thought,
    )


def elect(
    votes: Ballots, rule: Rule, chosen: Int[np.ndarray, "questions drawn"] | None = None
) -> Int64[np.ndarray, " questions"]:
    """Hold the vote on every question.

    Parameters
    ----------
    votes : Ballots
        The questions.
    rule : Rule
        How to vote.
    chosen : int array, optional
        For each question the traces that vote, in the order in which they are seen; all by default.

    Returns
    -------
    int array
        Number of the winner; -1 where no trace votes. Of equal scores the answer seen first wins.

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> elect(ballots(from_smollm2(3, 8)), Rule("cdg", beta=2.0)).shape
    (3,)
    """
    scores, first = _scores(votes, rule, chosen)
    best = scores.max(1, keepdims=True)
    winner = np.where(scores == best, first, np.inf).argmin(1)
    return np.where(np.isfinite(best[:, 0]), winner, -1)


def answer_scores(votes: Ballots, rule: Rule) -> Float[np.ndarray, "questions answers"]:
    """Compute the score of every answer.

    Parameters
    ----------
    votes : Ballots
        The questions.
    rule : Rule
        How to vote.

    Returns
    -------
    float array
        -inf where there is no vote for an answer.

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> votes = ballots(from_smollm2(3, 8))
    >>> bool((answer_scores(votes, Rule("majority", alpha=1.0)).max(1) <= 8).all())
    True
    """
    return _scores(votes, rule, None)[0]


def right(votes: Ballots, winners: Int[np.ndarray, " questions"]) -> Bool[np.ndarray, " questions"]:
    """Tell which winners are right.

    Parameters
    ----------
    votes : Ballots
        The questions.
    winners : int array
        Of `elect`.

    Returns
    -------
    bool array
        False where there is no winner.

    Examples
    --------
    >>> from icml26.cdg.conditions import from_smollm2
    >>> votes = ballots(from_smollm2(3, 8))
    >>> right(votes, elect(votes, MEAN)).dtype
    dtype('bool')
    """
    return (winners >= 0) & votes.right[np.arange(len(winners)), winners]


def _scores(votes: Ballots, rule: Rule, chosen: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the answers, and the place at which each is first seen."""
    questions, traces = votes.code.shape
    if chosen is None:
        chosen = np.broadcast_to(np.arange(traces), votes.code.shape)

    def seen(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, chosen, 1)

    code = seen(votes.code)
    voting = code >= 0
    if rule.method == "majority":
        weight = np.ones(code.shape)
    elif rule.method == "borda":
        # Rank 1 is the most certain of all traces; those without an answer keep their rank but give no vote.
        rank = np.argsort(np.argsort(-seen(votes.certainty), axis=1, kind="stable"), axis=1)
        weight = (code.shape[1] - rank).astype(float) ** rule.power
    elif rule.method == "tail":
        weight = seen(votes.tail[rule.percent])
        if rule.keep < 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a question may have no answer at all
                level = np.nanpercentile(np.where(voting, weight, np.nan), 100 * (1 - rule.keep), axis=1, keepdims=True)
            voting = voting & (weight >= level)
    else:
        voting = voting & seen(votes.long)
        gain = {
            "cdg": lambda: votes.gain(rule.percent),
            "no start": lambda: votes.tail[rule.percent],
            "thinking": lambda: votes.thinking[rule.percent],
            "write-up": lambda: votes.gain(rule.percent) - votes.thinking[rule.percent],
        }[rule.method]
        weight = seen(votes.mean) + rule.beta * seen(gain())
    if rule.guard == "clip":
        weight = np.maximum(weight, 0)
    elif rule.guard == "shift":
        weight = weight - np.minimum(np.min(weight, 1, where=voting, initial=0, keepdims=True), 0)
    answers = votes.right.shape[1]
    cells = (np.arange(questions)[:, None] * answers + code)[voting]
    counts = np.bincount(cells, minlength=questions * answers).reshape(questions, answers)
    sums = np.bincount(cells, weights=weight[voting], minlength=questions * answers).reshape(questions, answers)
    with np.errstate(divide="ignore", invalid="ignore"):
        # At alpha = 1 the sums themselves, so that ties of sums remain ties.
        totals = sums if rule.alpha == 1 else counts.astype(float) ** rule.alpha * (sums / counts)
        scores = np.where(counts > 0, totals, -np.inf)
    places = np.broadcast_to(np.arange(code.shape[1]), code.shape)[voting]
    first = np.full(questions * answers, np.inf)
    np.minimum.at(first, cells, places)
    return scores, first.reshape(questions, answers)
