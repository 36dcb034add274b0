"""Which tokens Top-W keeps: alternation of S-step and potential on the pool of the most probable tokens.

The paper is Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346), as its released code implements it, for a
batch of any size. `alternate` starts from the smallest prefix of the pool that holds `warm_p` of its mass, and repeats
f = -distance to S, S = `core.s_step` for g f, until S stays; `select` does so for the `pool` of each row of logits.
Selection is in float64, and distances are in float32 for as many rows at once as a bounded memory allows.

A fact saves nearly all distances. Let S0 be the best set for f = 0. If S0 lies within the warm start, the alternation
ends in S0 whatever the distances are: f is 0 on the current set and at most 0 elsewhere, so S0 keeps its gain and no
other set's rises. `select` then returns S0 at once (`fast_path`); where the fact does not apply (a warm start without a
token of S0, `sign` = 1, more than one neighbour) it alternates.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.top_w.core import ordered_prefix_rule, prefix_rule, rule
from icml26.top_w.geometry import Geometry, Metric, checked_metric
from icml26.top_w.pool import pool, warm_start
from icml26.top_w.potential import nearest_potential

__all__ = ["Selection", "TopWConfig", "alternate", "select"]

_LOGITS = 1 << 22  # logits looked at together
_DISTANCES = 1 << 23  # distances held together, 32 MB; a single row has top_m squared of them


@dataclass(frozen=True)
class TopWConfig:
    """What the decoder can be told; the defaults are the release's.

    Parameters
    ----------
    lam : float
        λ, the weight of the kept distribution's entropy: larger keeps fewer tokens.
    beta : float
        β, the weight of the logarithm of the kept mass: larger keeps more tokens.
    geom_scale : float
        g, the weight of the distances; 0 ignores the geometry.
    top_m : int
        Tokens in the pool. A row that alternates needs `top_m` squared distances.
    warm_p : float
        Share of the pool's mass in the warm start, above 0 and at most 1.
    max_rounds : int
        Most rounds of the alternation, the one that confirms a set included.
    metric : {"cosine", "chord", "euclidean"}
        As in `Geometry`.
    sign : {-1, 1}
        Of the distances in the potential; the paper's is -1.
    neighbours : int
        How many nearest members of the set a distance is averaged over.
    fast_path : bool
        Whether rows whose result cannot depend on distances are spared them.

    Raises
    ------
    InputError
        If a value is out of range.

    Examples
    --------
    >>> TopWConfig(lam=0.3, beta=1, geom_scale=1, warm_p=0.3).top_m
    1200
    """

    lam: float = 2.2
    beta: float = 2.8
    geom_scale: float = 0.6
    top_m: int = 1200
    warm_p: float = 0.999
    max_rounds: int = 9
    metric: Metric = "cosine"
    sign: int = -1
    neighbours: int = 1
    fast_path: bool = True

    def __post_init__(self) -> None:
        for name in ("lam", "beta", "geom_scale"):
            real(name, getattr(self, name), low=0)
        for name in ("top_m", "max_rounds", "neighbours"):
            whole(name, getattr(self, name), 1)
        real("warm_p", self.warm_p, above=0, high=1)
        checked_metric(self.metric)
        if isinstance(self.sign, bool) or self.sign not in (-1, 1):
            raise InputError(f"sign={self.sign!r} must be -1, the paper's, or 1")
        if not isinstance(self.fast_path, bool):
            raise InputError(f"fast_path={self.fast_path!r} must be True or False")


class Selection(NamedTuple):
    """What `select` and `alternate` return.

    Attributes
    ----------
    kept : bool Tensor, shape (rows, vocabulary) or (rows, pool)
        The kept tokens, at least one a row.
    rounds : Tensor, shape (rows,)
        Rounds of the alternation up to the one that confirmed its set; at most `max_rounds`.
    converged : bool Tensor, shape (rows,)
        Whether a set was confirmed, that is, came out of a round as it went in.
    """

    kept: Bool[Tensor, "rows tokens"]
    rounds: Int64[Tensor, " rows"]
    converged: Bool[Tensor, " rows"]


def select(
    logits: Float[Tensor, "rows vocabulary"],
    geometry: Geometry | None,
    config: TopWConfig | None = None,
    temperature: float = 1.0,
) -> Selection:
    """Choose the kept tokens of every row of logits.

    Parameters
    ----------
    logits : Tensor, shape (rows, vocabulary)
        Raw logits of any floating dtype, before any division by the temperature; -inf excludes a token.
    geometry : Geometry or None
        Of as many tokens as the logits have; None for the rule that knows only entropy and mass.
    config : TopWConfig, optional
        The release's by default.
    temperature : float
        At which the kept tokens will be sampled.

    Returns
    -------
    Selection
        With one column a token of the vocabulary, on the logits' device.

    Raises
    ------
    InputError
        If logits hold NaN or +inf or a row of -inf only, or if logits, geometry and configuration do not fit together.

    Examples
    --------
    >>> logits = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05], [0.2, 0.2, 0.2, 0.2, 0.2]]).log()
    >>> select(logits, None).kept.sum(-1)
    tensor([1, 5])
    """
    config = TopWConfig() if config is None else config
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.shape[1] or not logits.is_floating_point():
        kind = f"{logits.dtype} of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(f"logits ({kind}) must be a floating tensor of shape (rows, vocabulary)")
    if not isinstance(geometry, Geometry | None) or not isinstance(config, TopWConfig):
        raise InputError(f"geometry={geometry!r} and config={config!r} must be a Geometry or None and a TopWConfig")
    if geometry is not None:
        _check_fit(logits, geometry, config)
    rows, vocabulary = logits.shape
    kept = torch.zeros_like(logits, dtype=torch.bool)
    rounds = torch.zeros(rows, dtype=torch.int64, device=logits.device)
    converged = torch.zeros(rows, dtype=torch.bool, device=logits.device)
    step = max(1, _LOGITS // vocabulary)
    for start in range(0, rows, step):  # a pass over the vocabulary makes copies of it
        part = slice(start, start + step)
        ids, p = pool(logits[part], temperature, config.top_m)
        chosen = _on_pool(ids, p, geometry, config)
        kept[part].scatter_(-1, ids, chosen.kept)
        rounds[part], converged[part] = chosen.rounds, chosen.converged
    return Selection(kept, rounds, converged)


def _check_fit(logits: Tensor, geometry: Geometry, config: TopWConfig) -> None:
    if len(geometry) != logits.shape[1]:
        raise InputError(
            f"logits have {logits.shape[1]} tokens and the embedding {len(geometry)} rows; "
            "where one of them is padded, cut it to the other's tokens"
        )
    if geometry.metric != config.metric:
        raise InputError(f"metric={config.metric!r} of the configuration is not the geometry's {geometry.metric!r}")


def _on_pool(ids: Tensor, p: Tensor, geometry: Geometry | None, config: TopWConfig) -> Selection:
    if geometry is None or config.geom_scale == 0:
        return alternate(p, None, config)
    chosen = alternate(p, None, config)
    rows = torch.arange(len(p), device=p.device)
    if config.fast_path and config.sign == -1 and config.neighbours == 1:
        rows = rows[(chosen.kept & ~warm_start(p, config.warm_p)).any(-1)]
    if not len(rows):
        return chosen
    for part in rows.split(max(1, _DISTANCES // p.shape[1] ** 2)):
        found = alternate(p[part], geometry.distances(ids[part]), config)
        for whole_batch, these in zip(chosen, found, strict=True):
            whole_batch[part] = these
    return chosen


def alternate(
    p: Float64[Tensor, "rows pool"], distances: Float[Tensor, "rows pool pool"] | None, config: TopWConfig
) -> Selection:
    """Alternate S-step and potential on pools until the set stays.

    Parameters
    ----------
    p : Tensor, shape (rows, pool)
        Probabilities in decreasing order, as `pool` has them.
    distances : Tensor, shape (rows, pool, pool), or None
        Between the pool's tokens; None for the potential 0, which ends in the same set as `geom_scale` = 0.
    config : TopWConfig
        Its `metric`, `top_m` and `fast_path` are not used here.

    Returns
    -------
    Selection
        With one column a place of the pool.

    Examples
    --------
    >>> alternate(torch.tensor([[0.6, 0.4]], dtype=torch.float64), None, TopWConfig(lam=0.3, beta=1.0))
    Selection(kept=tensor([[True, True]]), rounds=tensor([1]), converged=tensor([True]))
    """
    best = rule(config.lam, config.beta)
    kept = warm_start(p, config.warm_p)
    converged = torch.zeros(len(p), dtype=torch.bool, device=p.device)
    rounds = torch.zeros(len(p), dtype=torch.int64, device=p.device)
    if distances is None:  # one round decides, another confirms
        last = kept
        if best is prefix_rule:  # the pool is in order already
            kept = ordered_prefix_rule(p, config.lam, config.beta)
        else:
            kept = best(p, torch.zeros_like(p), config.lam, config.beta)
        converged = (kept == last).all(-1)
        rounds = torch.where(converged, 1, min(2, config.max_rounds))
        return Selection(kept, rounds, converged | (config.max_rounds > 1))
    for number in range(1, config.max_rounds + 1):
        reach = nearest_potential(distances, kept, sign=config.sign, neighbours=config.neighbours)
        last, kept = kept, best(p, config.geom_scale * reach, config.lam, config.beta)
        rounds = torch.where(converged, rounds, number)
        converged = converged | (kept == last).all(-1)
        if converged.all():
            break
    return Selection(kept, rounds, converged)
