"""CDG voting as an estimator of scikit-learn: beta is fitted on calibration questions.

The paper (Wang et al., ICML 2026, arXiv 2605.25244) takes beta from [0.5 r, 1.5 r] with r the mean confidence of traces
over the gap between the mean gains of right and wrong ones. Its released sweep tunes beta on the test questions; here
`fit` sees calibration questions only, and which these are is the caller's to choose. Where the gap is not positive the
rule has no beta: it is set to 0, with a warning. Where the gap is positive but below its standard error, r can be of
any size and the band says nothing: a warning tells it. The vote itself is `icml26.cdg.voting`'s.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from icml26.cdg.traces import Question, Trace, summarise
from icml26.cdg.tuning import labels, outcomes, tune
from icml26.cdg.voting import cdg, electorate
from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["FACTORS", "CDGVoter"]

FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # of the ratio, tried by rule "grid"; ours


class CDGVoter(BaseEstimator):
    """Pick answers by confidence and its gain, with beta calibrated (arXiv 2605.25244, Section 3).

    X is a sequence of questions, each a sequence of `Trace`; y holds the right answers as texts.

    Parameters
    ----------
    alpha : float
        Exponent of an answer's number of votes.
    beta : float, optional
        Weight of the gain; fitted if None.
    percent : int
        Size of head and tail in percent of a trace.
    min_length : int
        Fewest tokens of a trace that votes.
    rule : {"band", "grid"}
        How beta is fitted: the middle r of the paper's band, or the best of r times `FACTORS` on the calibration
        questions, ties to the smaller. The band warns where the gap is below `gap_error_`; the grid may choose 0.
    guard : {"clip", "shift"}, optional
        As in `icml26.cdg.voting.vote`; ours.
    equal : callable, optional
        ``equal(first, other)`` merges equivalent answers before the vote.
    judge : callable, optional
        ``judge(winner, answer)`` decides what is right; by default stripped texts are compared.
    keep_empty : bool
        Whether an empty text is an answer.

    Attributes
    ----------
    beta_ : float
        Weight of the gain that predicts.
    gap_ : float
        Mean gain of right minus mean gain of wrong traces, pooled over the calibration questions, in nats; NaN without
        traces of both kinds.
    gap_error_ : float
        Standard error of the gap, with questions as clusters, in nats; NaN where there is no gap, or with fewer than
        two questions that have voters.
    mean_ : float
        Mean confidence of the calibration traces, in nats.
    ratio_ : float
        r, the ratio of `mean_` to `gap_`, without unit; NaN where the gap is not positive.
    tuned_ : Tuned or None
        Accuracy of each beta tried, by rule "grid".

    Examples
    --------
    >>> right, wrong = np.linspace(9, 10, 20), np.linspace(10, 9.5, 20)
    >>> questions = [[("7", right), ("8", wrong), ("8", wrong)]] * 2
    >>> voter = CDGVoter().fit(questions, ["7", "7"])
    >>> round(voter.gap_, 3), round(voter.beta_, 2), voter.predict(questions).tolist()
    (1.421, 6.8, ['7', '7'])
    """

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float | None = None,
        percent: int = 10,
        min_length: int = 10,
        rule: str = "band",
        guard: str | None = None,
        equal: Callable[[str, str], bool] | None = None,
        judge: Callable[[str, str], bool] | None = None,
        keep_empty: bool = False,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.percent = percent
        self.min_length = min_length
        self.rule = rule
        self.guard = guard
        self.equal = equal
        self.judge = judge
        self.keep_empty = keep_empty

    def fit(self, X: Sequence[Sequence[Trace]], y: Sequence[str]) -> Self:
        """Fit beta on calibration questions.

        Questions whose traces are all right or all wrong, or that have no voter, count with the traces they have.

        Parameters
        ----------
        X
            Questions.
        y
            Their right answers.

        Returns
        -------
        CDGVoter
            Itself.

        Raises
        ------
        InputError
            If questions and answers do not fit together, no trace votes, or an option is out of range.
        """
        if self.rule not in ("band", "grid"):
            raise InputError(f"rule={self.rule!r} must be 'band' or 'grid'")
        if self.beta is not None:
            real("beta", self.beta)
        if self.judge is not None and not callable(self.judge):
            raise InputError(f"judge={self.judge!r} must be callable as judge(winner, answer), or None")
        questions = _questions(X)
        outcomes(self._vote, questions, y, self.judge, beta=0.0)  # it checks every argument of the vote
        mean, gain, right, asked = self._statistics(questions, y)
        self.mean_ = float(mean.mean())
        both = right.any() and not right.all()
        self.gap_ = float(gain[right].mean() - gain[~right].mean()) if both else np.nan
        self.gap_error_ = _gap_error(gain, right, asked) if both else np.nan
        self.ratio_ = self.mean_ / self.gap_ if self.gap_ > 0 else np.nan
        self.tuned_ = None
        if self.beta is not None:
            self.beta_ = float(self.beta)
        elif np.isnan(self.ratio_):
            why = f"it is {self.gap_:.3g} nats" if both else "there are not both right and wrong traces"
            warnings.warn(
                f"no positive gap between the gains of right and wrong calibration traces ({why}); beta is set to 0",
                stacklevel=2,
            )
            self.beta_ = 0.0
        elif self.rule == "band":
            if not self.gap_ >= self.gap_error_:  # NaN, of a single question, fails it
                warnings.warn(
                    f"the ratio r = {self.ratio_:.3g} is not determined: on the calibration questions the gap is "
                    f"{self.gap_:.3g} nats with a standard error of {self.gap_error_:.3g}; give more questions, or "
                    'take rule="grid"',
                    stacklevel=2,
                )
            self.beta_ = self.ratio_
        else:
            betas = [factor * self.ratio_ for factor in FACTORS]
            self.tuned_ = tune(self._vote, {"beta": betas}, questions, y, self.judge)
            self.beta_ = self.tuned_.setting["beta"]
        return self

    def predict(self, X: Sequence[Sequence[Trace]]) -> np.ndarray:
        """Pick an answer of each question.

        Parameters
        ----------
        X
            Questions.

        Returns
        -------
        object array
            Texts, None where nobody votes.

        Raises
        ------
        InputError
            If a question is none or an option is out of range.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self, "beta_")
        winners = [self._vote(question, beta=self.beta_) for question in _questions(X)]
        found = np.empty(len(winners), dtype=object)
        found[:] = winners
        return found

    def score(self, X: Sequence[Sequence[Trace]], y: Sequence[str]) -> float:
        """Share of right answers among questions that have a trace with an answer, as released.

        Where all answered traces are too short to vote the question counts as wrong.

        Parameters
        ----------
        X
            Questions.
        y
            Their right answers.

        Returns
        -------
        float
            Between 0 and 1.

        Raises
        ------
        InputError
            As `predict`, or if no question has an answered trace.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self, "beta_")
        questions = _questions(X)
        right = outcomes(self._vote, questions, y, self.judge, beta=self.beta_)
        answered = [len(electorate(question, keep_empty=self.keep_empty)[1]) > 0 for question in questions]
        if not any(answered):
            raise InputError("no question has an answered trace; there is nothing to score")
        return float(right[answered].mean())

    def _vote(self, question: Sequence[Trace], beta: float) -> str | None:
        return cdg(
            question,
            self.alpha,
            beta,
            percent=self.percent,
            min_length=self.min_length,
            guard=self.guard,
            equal=self.equal,
            keep_empty=self.keep_empty,
        )

    def _statistics(self, questions: list[Question], y: Sequence[str]) -> tuple[np.ndarray, ...]:
        """Mean, gain, whether it is right, and number of the question, of every trace that votes."""
        found = []
        for index, (question, answer) in enumerate(zip(questions, y, strict=True)):
            _, rows = electorate(question, min_length=self.min_length, keep_empty=self.keep_empty)
            summary, right = summarise([question], self.percent), labels(question, answer, self.judge)
            found.append((summary.mean[rows], summary.gain[rows], right[rows], np.full(len(rows), index)))
        mean, gain, right, asked = (np.concatenate(column) for column in zip(*found, strict=True))
        if not len(mean):
            raise InputError(
                f"no calibration trace has an answer and at least {whole('min_length', self.min_length, 1)} tokens; "
                "give others, or a lower min_length"
            )
        return mean, gain, right, asked


def _questions(X: Sequence[Sequence[Trace]]) -> list[Question]:
    if isinstance(X, str) or not isinstance(X, Iterable):
        raise InputError(f"X is {type(X).__name__}; give a sequence of questions, each a sequence of Trace")
    return [Question.of(question) for question in X]


def _gap_error(gain: np.ndarray, right: np.ndarray, asked: np.ndarray) -> float:
    """Standard error of the difference of two pooled means, traces of a question being dependent.

    It is the linearised (sandwich) one: each question's part in the two means is one draw.
    """
    part = np.where(right, gain - gain[right].mean(), 0.0) / right.sum()
    part -= np.where(right, 0.0, gain - gain[~right].mean()) / (~right).sum()
    _, cluster = np.unique(asked, return_inverse=True)
    parts = np.bincount(cluster, part)
    n = len(parts)
    return float(np.sqrt(n / (n - 1) * (parts**2).sum())) if n > 1 else np.nan
