"""DeepConf's votes: sums of mean, tail or lowest-window confidences, of all traces or of the most confident ones.

DeepConf is Fu et al., arXiv 2508.15260; CDG (Wang et al., ICML 2026, arXiv 2605.25244) compares with its mean and with
its tail of 2048 tokens over the top tenth of traces. Voters are those of `icml26.cdg.voting.electorate`, of any length.
As released, a trace of fewer tokens than a window is its own window, and one without tokens has confidence 0. Left out:
stopping traces early while they are drawn.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64

from icml26.cdg.question import Question, Trace
from icml26.cdg.segments import segment_sums
from icml26.cdg.traces import window_sizes
from icml26.cdg.voting import electorate, tally
from icml26.checks import real, whole

__all__ = ["bottom_window", "deepconf_mean", "deepconf_tail", "largest_sum", "minimum_window"]

Equal = Callable[[str, str], bool]


def deepconf_mean(question: Sequence[Trace], *, equal: Equal | None = None, keep_empty: bool = False) -> str | None:
    """Return the answer with the largest sum of mean confidences: DeepConf-Mean.

    It is CDG at alpha = 1 and beta = 0, except that traces of fewer than 10 tokens vote here.

    Parameters
    ----------
    question, equal, keep_empty
        As in `majority`. A trace without tokens has confidence 0.

    Returns
    -------
    str or None
        The winner; None where no trace with an answer has a positive mean.

    Raises
    ------
    InputError
        As `majority`.

    Examples
    --------
    >>> deepconf_mean([("7", [9.0]), ("8", [2.0]), ("8", [3.0])])
    '7'
    """
    question, rows = electorate(question, equal=equal, keep_empty=keep_empty)
    return largest_sum(question, rows, _tail_means(question, question.lengths))


def deepconf_tail(
    question: Sequence[Trace],
    tail: int = 2048,
    keep: float = 0.1,
    *,
    percent: int | None = None,
    equal: Equal | None = None,
    keep_empty: bool = False,
) -> str | None:
    """Return the answer with the largest sum of tail confidences among the most confident traces: DeepConf-Tail.

    Traces of at most `tail` tokens are their own tail, so that for short traces the default is DeepConf-Mean with a
    filter; use `percent` there.

    Parameters
    ----------
    question, equal, keep_empty
        As in `majority`.
    tail : int
        Last tokens that count.
    keep : float
        Share of traces that vote, above 0 and at most 1: those at or above ``numpy.percentile`` 100 (1 - keep) of the
        tails of traces with an answer, which interpolates; of 40 traces a tenth is 4, of 9 it is 1.
    percent : int, optional
        P of a tail of max(1, floor(n P / 100)) tokens, instead of `tail`.

    Returns
    -------
    str or None
        The winner; None where no trace with an answer has a positive tail.

    Raises
    ------
    InputError
        As `majority`, or if an option is out of range.

    Examples
    --------
    >>> question = [("7", [9.0, 1.0]), ("8", [1.0, 4.0]), ("7", [9.0, 1.0])]
    >>> deepconf_tail(question), deepconf_tail(question, percent=50)
    ('7', '8')
    """
    whole("tail", tail, 1)
    question, rows = electorate(question, equal=equal, keep_empty=keep_empty)
    sizes = np.minimum(tail, question.lengths) if percent is None else window_sizes(question.lengths, percent)
    return largest_sum(question, *_kept(rows, _tail_means(question, sizes), keep))


def bottom_window(
    question: Sequence[Trace],
    window: int = 2048,
    share: float = 0.1,
    keep: float = 1.0,
    *,
    equal: Equal | None = None,
    keep_empty: bool = False,
) -> str | None:
    """Return the answer with the largest sum of bottom-window confidences (arXiv 2508.15260, Section 3).

    A trace's bottom-window confidence is the mean of the lowest max(1, floor(share W)) of its W sliding-window means.

    Parameters
    ----------
    question, equal, keep_empty
        As in `majority`.
    window : int
        Tokens of a window; a trace of fewer counts by its mean.
    share : float
        Of windows, above 0 and at most 1.
    keep : float
        Share of traces that vote, as in `deepconf_tail`; 0.1 is the filtered version.

    Returns
    -------
    str or None
        The winner; None where no trace with an answer has a positive confidence.

    Raises
    ------
    InputError
        As `majority`, or if an option is out of range.

    Examples
    --------
    >>> bottom_window([("7", [9.0, 1.0, 9.0]), ("8", [5.0, 5.0, 5.0])], window=1)
    '8'
    """
    question, rows = electorate(question, equal=equal, keep_empty=keep_empty)
    return largest_sum(question, *_kept(rows, _bottom_means(question, window, share), keep))


def minimum_window(
    question: Sequence[Trace],
    window: int = 2048,
    keep: float = 1.0,
    *,
    equal: Equal | None = None,
    keep_empty: bool = False,
) -> str | None:
    """Return the answer with the largest sum of lowest window means: `bottom_window` of one window.

    Parameters
    ----------
    question, window, keep, equal, keep_empty
        As in `bottom_window`.

    Returns
    -------
    str or None
        The winner; None where no trace with an answer has a positive confidence.

    Raises
    ------
    InputError
        As `bottom_window`.

    Examples
    --------
    >>> minimum_window([("7", [9.0, 1.0, 9.0]), ("8", [5.0, 5.0, 5.0])], window=2)
    '7'
    """
    question, rows = electorate(question, equal=equal, keep_empty=keep_empty)
    return largest_sum(question, *_kept(rows, _bottom_means(question, window, None), keep))


def largest_sum(question: Question, rows: np.ndarray, weights: Float64[np.ndarray, " traces"]) -> str | None:
    """Return the answer with the largest sum of weights.

    Parameters
    ----------
    question : Question
        All traces.
    rows : int array, shape (voters,)
        Indices of the traces that vote.
    weights : array, shape (traces,)
        Weight of each trace.

    Returns
    -------
    str or None
        The winner; None where no weight is positive, as in the released code.

    Raises
    ------
    InputError
        If a weight is not finite.

    Examples
    --------
    >>> largest_sum(Question.of([("7", [1.0]), ("8", [1.0])]), np.array([0, 1]), np.array([1.0, 2.0]))
    '8'
    """
    if not (weights[rows] > 0).any():
        return None
    return tally([question.answers[row] for row in rows], weights[rows]).winner


def _kept(rows: np.ndarray, statistic: Float64[np.ndarray, " traces"], keep: float) -> tuple[np.ndarray, np.ndarray]:
    """The most confident of the voting traces, and the statistic of all traces."""
    keep = real("keep", keep, above=0, high=1)
    if len(rows):
        rows = rows[statistic[rows] >= np.percentile(statistic[rows], 100 * (1 - keep))]
    return rows, statistic


def _tail_means(question: Question, sizes: np.ndarray) -> Float64[np.ndarray, " traces"]:
    sums = segment_sums(question.confidences, question.stops - sizes, question.stops)
    return sums / np.maximum(sizes, 1)


def _bottom_means(question: Question, window: int, share: float | None) -> Float64[np.ndarray, " traces"]:
    """Mean of the lowest windows of each trace, of the single lowest without a share."""
    whole("window", window, 1)
    if share is not None:
        real("share", share, above=0, high=1)
    means = _tail_means(question, question.lengths)
    # A loop over traces: each has its own number of windows to select among.
    for index in np.flatnonzero(question.lengths >= window):
        sums = np.concatenate([[0.0], np.cumsum(question[index].confidences, dtype=float)])
        windows = (sums[window:] - sums[:-window]) / window
        count = 1 if share is None else max(1, int(len(windows) * share))
        means[index] = np.partition(windows, count - 1)[:count].mean()
    return means
