"""The votes that CDG is compared with, each from a question to its winner.

CDG (Wang et al., ICML 2026, arXiv 2605.25244) compares with majority (Wang et al., arXiv 2203.11171) and with DeepConf,
whose votes are `icml26.cdg.deepconf`'s and named here too; beside them are the Borda vote of Self-Certainty (Kang, Zhao
and Song, arXiv 2502.18581) and two ablations of CDG. All ask `icml26.cdg.voting.electorate` who votes: traces with an
answer, and for the ablations at least 10 tokens. As released, ties go to the answer seen first. Settings are compared
by `icml26.cdg.tuning`, whose functions are named here too.
"""

from collections.abc import Callable, Sequence

import numpy as np

from icml26.cdg.deepconf import bottom_window, deepconf_mean, deepconf_tail, largest_sum, minimum_window
from icml26.cdg.traces import Trace, summarise
from icml26.cdg.tuning import Tuned, pass_at_1, tune
from icml26.cdg.voting import electorate, tally, vote
from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = [
    "Tuned",
    "bottom_window",
    "deepconf_mean",
    "deepconf_tail",
    "gradient_vote",
    "majority",
    "minimum_window",
    "no_start",
    "pass_at_1",
    "self_certainty_borda",
    "tune",
]

Equal = Callable[[str, str], bool]


def majority(question: Sequence[Trace], *, equal: Equal | None = None, keep_empty: bool = False) -> str | None:
    """Return the most frequent answer.

    Parameters
    ----------
    question : sequence of Trace
        All traces of a question.
    equal, keep_empty
        As in `icml26.cdg.voting.electorate`.

    Returns
    -------
    str or None
        The winner; None where no trace has an answer.

    Raises
    ------
    InputError
        If the question is none or an option is out of range.

    Examples
    --------
    >>> majority([("7", [1.0]), ("8", [1.0]), ("8", [1.0])])
    '8'
    """
    question, rows = electorate(question, equal=equal, keep_empty=keep_empty)
    return largest_sum(question, rows, np.ones(len(question)))


def gradient_vote(question: Sequence[Trace], beta: float = 10.0, **options: object) -> str | None:
    """Return the answer with the largest sum of trace scores: CDG at alpha = 1.

    Parameters
    ----------
    question, beta
        As in `icml26.cdg.voting.vote`.
    **options
        Its other arguments but `alpha`.

    Returns
    -------
    str or None
        The winner; None where nobody votes.

    Raises
    ------
    InputError
        As `vote`.

    Examples
    --------
    >>> gradient_vote([("7", np.ones(12)), ("8", np.linspace(1, 2, 12))])
    '8'
    """
    return vote(question, 1.0, beta, **options).winner


def no_start(
    question: Sequence[Trace],
    alpha: float = 0.5,
    beta: float = 10.0,
    percent: int = 10,
    min_length: int = 10,
    *,
    equal: Equal | None = None,
    keep_empty: bool = False,
) -> str | None:
    """Return CDG's winner where the head is not subtracted: s = mean + beta * tail, the ablation "No Start".

    Parameters
    ----------
    question, alpha, beta, percent, min_length, equal, keep_empty
        As in `icml26.cdg.voting.vote`.

    Returns
    -------
    str or None
        The winner; None where nobody votes.

    Raises
    ------
    InputError
        As `vote`.

    Examples
    --------
    >>> no_start([("7", np.full(12, 9.0)), ("8", np.linspace(1, 2, 12))])
    '7'
    """
    beta = real("beta", beta)
    whole("min_length", min_length, 1)
    question, rows = electorate(question, min_length=min_length, equal=equal, keep_empty=keep_empty)
    summary = summarise([question], percent)
    scores = summary.mean[rows] + beta * summary.tail[rows]
    return tally([question.answers[row] for row in rows], scores, alpha).winner


def self_certainty_borda(
    question: Sequence[Trace], power: float = 0.5, *, equal: Equal | None = None, keep_empty: bool = False
) -> str | None:
    """Return the winner of Self-Certainty's Borda vote: weights (N - rank + 1)^power, rank 1 the most certain.

    Parameters
    ----------
    question, equal, keep_empty
        As in `majority`. N counts all traces: those without an answer have a rank and no vote.
    power : float
        At least 0; 0 is majority. The released default is 0.5.

    Returns
    -------
    str or None
        The winner; None where no trace has an answer.

    Raises
    ------
    InputError
        As `majority`, or if a trace has no self-certainty.

    Examples
    --------
    >>> self_certainty_borda([Trace("7", [1.0], 9.0), Trace("8", [1.0], 2.0), Trace("8", [1.0], 1.0)], power=2)
    '7'
    """
    power = real("power", power, low=0)
    question, rows = electorate(question, equal=equal, keep_empty=keep_empty)
    if np.isnan(question.certainties).any():
        raise InputError("a trace has no certainty; give Trace(answer, confidences, certainty) measured on full logits")
    rank = np.empty(len(question))
    rank[np.argsort(-question.certainties, kind="stable")] = np.arange(1, len(question) + 1)
    return largest_sum(question, rows, (len(question) - rank + 1) ** power)
