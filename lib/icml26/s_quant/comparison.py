"""Is S-Quant's loss lower than that of every other codec at its bits? The statistic of the chapter's claim Q1.

At each rate, D is the loss under S-Quant (Wang et al., ICML 2026, arXiv: none) less the loss under the best of the
baselines that take at most 0.16 bits per weight more, which is what groups of 128 cost; the claim is about the larger D
of the rates. Losses of one training seed on one segment of text are compared in pairs, seeds and segments are resampled
together for all codecs, and the best baseline is chosen anew in each resample. Measuring losses is `endtoend`'s work.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from icml26 import stats
from icml26.errors import InputError
from icml26.s_quant.endtoend import counts

__all__ = ["SLACK", "Deficit", "Measured", "deficit", "loss_interval"]

SLACK = 0.16  # bits per weight by which a baseline may exceed S-Quant's


class Measured(NamedTuple):
    """A codec's logical bits and what it does to the model.

    Attributes
    ----------
    bits : float
        Bits per weight, all counted.
    losses : float64 array, training seeds x segments
        Mean loss of each segment under each seed's model, in nats per token.
    """

    bits: float
    losses: Float64[np.ndarray, "seeds segments"]


class Deficit(NamedTuple):
    """What S-Quant loses against the best of its pool.

    Attributes
    ----------
    worst : Interval
        The largest difference over the rates, in nats per token: below 0 if S-Quant is best at every rate.
    differences : dict of str to Interval
        The difference at each rate.
    best : dict of str to str
        The best baseline at each rate, on all seeds and segments.
    pools : dict of str to list of str
        The baselines compared with at each rate.
    """

    worst: stats.Interval
    differences: dict[str, stats.Interval]
    best: dict[str, str]
    pools: dict[str, list[str]]


def deficit(
    ours: Mapping[str, Measured],
    baselines: Mapping[str, Measured],
    *,
    seed: int,
    resamples: int = 2000,
    slack: float = SLACK,
) -> Deficit:
    """Compare S-Quant, at each of its rates, with the best baseline of at most so many bits.

    Parameters
    ----------
    ours
        S-Quant at each rate.
    baselines
        All baselines, of any bits.
    seed, resamples
        Of the bootstrap.
    slack
        Bits per weight by which a baseline may exceed S-Quant's.

    Returns
    -------
    Deficit
        Differences of losses with 95 % intervals.

    Raises
    ------
    InputError
        If a pool is empty, losses differ in shape, or there are fewer than two segments.

    Examples
    --------
    >>> ours = {"4 bits": Measured(4.0, np.full((3, 5), 2.0))}
    >>> rounding = {"at 4.1": Measured(4.1, np.full((3, 5), 1.5)), "at 8": Measured(8.0, np.full((3, 5), 1.0))}
    >>> found = deficit(ours, rounding, seed=0)
    >>> found.worst.interval, found.best
    ((0.5, 0.5), {'4 bits': 'at 4.1'})
    """
    arms = {**{("ours", name): one for name, one in ours.items()}, **{("", name): b for name, b in baselines.items()}}
    losses = _stacked(list(arms.values()))
    place = {key: i for i, key in enumerate(arms)}
    pools = {rate: [name for name, b in baselines.items() if b.bits <= one.bits + slack] for rate, one in ours.items()}
    if not ours or (empty := [rate for rate, pool in pools.items() if not pool]):
        raise InputError(
            "ours is empty: give S-Quant at one rate or more"
            if not ours
            else f"no baseline takes at most {ours[empty[0]].bits + slack:.3f} bits: run one for {empty[0]!r}"
        )
    rates = [(place["ours", rate], [place["", name] for name in pool]) for rate, pool in pools.items()]

    def largest(means: Float64[np.ndarray, "batch arms"], rates: Sequence = rates) -> Float64[np.ndarray, " batch"]:
        return np.max([means[..., own] - means[..., pool].min(-1) for own, pool in rates], axis=0)

    def interval(*rates: tuple) -> stats.Interval:
        return _bootstrap(losses, lambda means: largest(means, rates), seed, resamples)

    total = losses.mean((1, 2))
    return Deficit(
        worst=interval(*rates),
        differences={rate: interval(own) for rate, own in zip(pools, rates, strict=True)},
        best={
            rate: pool[int(np.argmin(total[rows]))]
            for (rate, pool), (_, rows) in zip(pools.items(), rates, strict=True)
        },
        pools=pools,
    )


def loss_interval(
    measured: Measured, reference: Measured | None = None, *, seed: int, resamples: int = 2000
) -> stats.Interval:
    """A codec's mean loss, or what it adds to a reference's, with an interval over training seeds and segments.

    Parameters
    ----------
    measured
        The codec.
    reference
        What to subtract, in pairs: for example the model's own weights.
    seed, resamples
        Of the bootstrap.

    Returns
    -------
    Interval
        In nats per token.

    Raises
    ------
    InputError
        If losses differ in shape, or there are fewer than two segments.

    Examples
    --------
    >>> one = Measured(4.0, np.arange(6.0).reshape(2, 3))
    >>> loss_interval(one, one._replace(losses=one.losses - 0.25), seed=0)
    Interval(value=0.25, low=0.25, high=0.25)
    """
    losses = _stacked([measured] if reference is None else [measured, reference])
    if reference is not None:
        losses = losses[:1] - losses[1:]
    return _bootstrap(losses, lambda means: means[..., 0], seed, resamples)


def _stacked(arms: Sequence[Measured]) -> Float64[np.ndarray, "arms seeds segments"]:
    shapes = {np.shape(arm.losses) for arm in arms}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 2 or shape[1] < 2:
        raise InputError(
            f"losses have shapes {sorted(shapes) or shape}: give seeds x segments, equal, 2 segments or more"
        )
    return np.array([arm.losses for arm in arms], dtype=float)


def _bootstrap(
    losses: Float64[np.ndarray, "arms seeds segments"],
    of_means: Callable[[Float64[np.ndarray, "batch arms"]], Float64[np.ndarray, " batch"]],
    seed: int,
    resamples: int,
) -> stats.Interval:
    """Resample training seeds and segments, each with replacement, alike for all arms."""
    arms, n_seeds, n_segments = losses.shape
    flat = losses.reshape(-1, n_segments)

    def statistic(*places: Float64[np.ndarray, "batch draws"], axis: int) -> Float64[np.ndarray, " batch"]:
        texts = counts(places[-1], n_segments)
        sums = (texts @ flat.T).reshape(*texts.shape[:-1], arms, n_seeds)
        seeds = counts(places[0], n_seeds) if len(places) > 1 else np.ones((*texts.shape[:-1], 1))
        return of_means((sums * seeds[..., None, :]).sum(-1) / (n_seeds * n_segments))

    samples = [np.arange(n) for n in (n_seeds, n_segments) if n > 1]
    return stats.bootstrap_interval(statistic, *samples, seed=seed, paired=False, resamples=resamples)
