"""How far from the best set Top-W's alternation ends: its exact objective against brute force on tiny vocabularies.

Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346) minimises F(S) = W1(p, q_S) + λ H(q_S) - β log Γ_S by a
heuristic. Here every set is looked at, with W1 by linear programming, on vocabularies of seven tokens with normal
logits and normal embedding rows. W1's ground cost is once g (1 - cos), which is what the decoder's potential stands
for, and once 1 - cos, as the objective is printed. Compared are Top-W, its rule without geometry, the usual samplers,
and the best that any prefix of the probability order could do. Real vocabularies are beyond such a comparison.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icml26.checks import whole
from icml26.top_w.core import objective
from icml26.top_w.decoder import TopWConfig, select
from icml26.top_w.geometry import Geometry
from icml26.top_w.optimum import brute_force
from icml26.top_w.samplers import Sampler, controls, grid

__all__ = ["CONFIGS", "optimality_gaps"]

# The release, and weights under which distances matter, from its wide warm start and from a narrow one.
CONFIGS: dict[str, TopWConfig] = {
    "released": TopWConfig(),
    "lam 0.3, beta 0.8, g 1, warm 0.999": TopWConfig(lam=0.3, beta=0.8, geom_scale=1.0),
    "lam 0.3, beta 0.8, g 1, warm 0.3": TopWConfig(lam=0.3, beta=0.8, geom_scale=1.0, warm_p=0.3),
    "lam 0.3, beta 0.8, g 1, warm 0.3, sign +1": TopWConfig(lam=0.3, beta=0.8, geom_scale=1.0, warm_p=0.3, sign=1),
    "lam 0, beta 0.3, g 1, warm 0.3": TopWConfig(lam=0.0, beta=0.3, geom_scale=1.0, warm_p=0.3),
}


def optimality_gaps(
    configs: Mapping[str, TopWConfig] | None = None,
    *,
    pools: int = 12,
    tokens: int = 7,
    width: int = 4,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Measure the excess of the exact objective over its minimum.

    Parameters
    ----------
    configs : mapping of str to TopWConfig, optional
        By name; `CONFIGS` by default.
    pools : int
        Vocabularies.
    tokens, width : int
        Of each: tokens, at most 16, and columns of the embedding.
    seed : int
        Of logits and embeddings.
    progress : callable, optional
        Called with one line of text after each vocabulary.

    Returns
    -------
    DataFrame
        ``pool, config, cost`` (``g W1`` or ``W1``), ``rule``, ``kept`` (tokens), ``excess`` (nats above the minimum),
        ``optimal`` (excess below 1e-9).

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> table = optimality_gaps(pools=1, tokens=4)
    >>> bool((table["excess"] >= -1e-9).all()), table.query("rule == 'best prefix'").shape[0]
    (True, 10)
    """
    whole("width", width, 1)
    draw = torch.Generator().manual_seed(whole("seed", seed, 0))
    usual = [*controls(tokens)[:1], *(settings[1] for settings in grid().values())]
    rows = []
    for number in range(whole("pools", pools, 1)):
        logits = torch.randn(1, tokens, generator=draw)
        embedding = torch.randn(tokens, width, generator=draw)
        for name, config in (CONFIGS if configs is None else configs).items():
            rows += [{"pool": number, "config": name, **row} for row in _one(logits, embedding, config, usual)]
        if progress is not None:
            progress(f"{number + 1} of {pools} vocabularies")
    return pd.DataFrame(rows)


def _one(
    logits: Float[Tensor, "1 tokens"],
    embedding: Float[Tensor, "tokens width"],
    config: TopWConfig,
    usual: list[Sampler],
) -> list[dict]:
    geometry = Geometry(embedding, config.metric)
    p = logits[0].double().softmax(-1).numpy()
    sets = {
        "Top-W": select(logits, geometry, config).kept[0].numpy(),
        "no geometry": select(logits, None, config).kept[0].numpy(),
        **{_label(sampler): _kept(sampler, logits) for sampler in usual},
    }
    order = np.argsort(-p, kind="stable")
    prefixes = [np.isin(np.arange(len(p)), order[:size]) for size in range(1, len(p) + 1)]
    between = geometry.distances(torch.arange(len(p))).double().numpy()
    rows = []
    for cost, scale in (("g W1", config.geom_scale), ("W1", 1.0)):
        # Rules often agree: each set's linear programme is solved once.
        known = {
            kept.tobytes(): objective(p, kept, scale * between, config.lam, config.beta)
            for kept in {kept.tobytes(): kept for kept in (*sets.values(), *prefixes)}.values()
        }
        _, best = brute_force(p, scale * between, config.lam, config.beta)
        best_prefix = min(prefixes, key=lambda kept: known[kept.tobytes()])
        for rule, kept in {**sets, "best prefix": best_prefix}.items():
            excess = known[kept.tobytes()] - best
            rows.append(
                {"cost": cost, "rule": rule, "kept": int(kept.sum()), "excess": excess, "optimal": excess < 1e-9}
            )
    return rows


def _label(sampler: Sampler) -> str:
    return f"{sampler.name} {sampler.setting}".strip()


def _kept(sampler: Sampler, logits: Float[Tensor, "1 tokens"]) -> Bool[np.ndarray, " tokens"]:
    scores = logits
    for processor in sampler.processors(1.0):
        scores = processor(None, scores)
    return scores[0].isfinite().numpy()
