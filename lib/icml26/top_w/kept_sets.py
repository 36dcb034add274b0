"""Do embeddings change what Top-W keeps? Kept sets with true, permuted and no geometry on a language model's own text.

For Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346), claims C8a, C9a and the control G1. `positions` reads
next-token logits off a model at places in prose, word problems and source code; `compare` runs the full alternation
there (no fast path) with the model's own embedding table, with the table's rows permuted, and without any distances.
A pool does not depend on the temperature, so that its distances are computed once for all temperatures and
configurations. `kept_sizes` only counts what is kept. Accuracies are in `icml26.top_w.accuracy`.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from icml26 import tasks
from icml26.checks import whole
from icml26.errors import InputError, MissingData
from icml26.top_w.decoder import TopWConfig, alternate, pool, select
from icml26.top_w.geometry import Geometry

__all__ = ["Positions", "compare", "kept_sizes", "positions", "sweep"]

_CODE = ("heapq", "statistics", "textwrap", "calendar", "fractions")  # modules of Python's own library


class Positions(NamedTuple):
    """What `positions` returns.

    Attributes
    ----------
    logits : Tensor, shape (positions, vocabulary)
        Raw next-token logits.
    source : list of str
        ``prose``, ``word problem`` or ``code``.
    text : int64 array, shape (positions,)
        Which text a position is in; positions of one text are not independent.
    """

    logits: Float32[Tensor, "positions vocabulary"]
    source: list[str]
    text: Int64[np.ndarray, " positions"]


def positions(
    model: Any,
    tokenizer: Any,
    n: int,
    *,
    tokens: int = 64,
    per_text: int = 4,
    batch: int = 8,
    seed: int = 0,
) -> Positions:
    """Read a model's next-token logits at places in real texts.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model in evaluation mode.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer.
    n : int
        Positions, spread evenly over the sources: the documentation of Python as prose, GSM8K's problems where that
        file is on the machine, modules of Python's library.
    tokens : int
        Of each text.
    per_text : int
        Positions in each text, drawn from its second half.
    batch : int
        Texts in one forward pass.
    seed : int
        Of texts and places.

    Returns
    -------
    Positions

    Raises
    ------
    InputError
        If a number is out of range, or there is too little text.

    Examples
    --------
    >>> from icml26 import models
    >>> found = positions(*models.load_lm("tiny-random-llama"), 6, tokens=16, per_text=2)
    >>> found.logits.shape, found.source[0]
    (torch.Size([6, 259]), 'prose')
    """
    whole("n", n, 1)
    whole("tokens", tokens, 2)
    whole("per_text", per_text, 1, tokens - tokens // 2)
    draw = np.random.default_rng(whole("seed", seed, 0))
    texts, names = [], []
    sources = _sources(tokenizer, tokens)
    needed = -(-n // per_text)
    for number, (name, segments) in enumerate(sources.items()):
        share = min(len(segments), needed // len(sources) + (number < needed % len(sources)))
        texts.append(segments[torch.from_numpy(np.sort(draw.permutation(len(segments))[:share]))])
        names += [name] * share
    ids = torch.cat(texts)
    if len(ids) < needed:
        raise InputError(f"n={n} needs {needed} texts and there are {len(ids)}; ask for less or raise per_text")
    places = np.stack([np.sort(draw.permutation(tokens - tokens // 2)[:per_text]) for _ in names])
    found = []
    with torch.inference_mode():
        for start in range(0, len(ids), whole("batch", batch, 1)):
            part = ids[start : start + batch].to(model.device)
            last = model(input_ids=part, logits_to_keep=tokens - tokens // 2, use_cache=False).logits
            rows = torch.arange(len(part))[:, None]
            found.append(last[rows, torch.from_numpy(places[start : start + batch])].float().cpu().flatten(0, 1))
    text = np.repeat(np.arange(len(names)), per_text)[:n]
    return Positions(torch.cat(found)[:n], [names[index] for index in text], text)


def _sources(tokenizer: Any, tokens: int) -> dict[str, Int64[Tensor, "texts tokens"]]:
    def cut(text: str) -> Int64[Tensor, "texts tokens"]:
        ids = tokenizer.encode(text, add_special_tokens=False, verbose=False)  # longer than any context
        return tasks.segments(torch.tensor(ids), tokens)

    code = "\n".join(inspect.getsource(importlib.import_module(name)) for name in _CODE)
    found = {"prose": cut(" ".join(tasks.sentences(tasks.english_text("held-out"))))}
    try:
        problems = tasks.gsm8k_problems("held-out")
    except MissingData:
        pass
    else:
        found["word problem"] = cut("\n\n".join(f"{p.question}\n{p.solution}" for p in problems))
    found["code"] = cut(code)
    return found


def compare(
    logits: Float[Tensor, "positions vocabulary"],
    embedding: Float[Tensor, "vocabulary width"],
    configs: Mapping[str, TopWConfig],
    temperatures: Sequence[float],
    *,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Run the full alternation with true, permuted and no geometry.

    Parameters
    ----------
    logits : Tensor, shape (positions, vocabulary)
        Raw logits.
    embedding : Tensor, shape (vocabulary, width)
        Input embeddings.
    configs : mapping of str to TopWConfig
        By the name that the table gives them; all with the same pool and metric.
    temperatures : sequence of float
        Positive.
    seed : int
        Of the permutation.
    progress : callable, optional
        Called with one line of text now and then.

    Returns
    -------
    DataFrame
        ``position, temperature, config``; ``pool_mass``; numbers of tokens ``kept`` (true geometry), ``kept_permuted``,
        ``kept_none``; ``jaccard_permuted``, ``jaccard_none`` of the true set with the other two; ``changed``, whether
        permuting changes the set; ``rounds`` with the true geometry, the confirming one included, and ``converged``.

    Raises
    ------
    InputError
        If there is no configuration, they differ in pool or metric, or logits and embedding do not fit.

    Examples
    --------
    >>> draw = torch.Generator().manual_seed(0)
    >>> logits, embedding = torch.randn(2, 50, generator=draw), torch.randn(50, 8, generator=draw)
    >>> compare(logits, embedding, {"released": TopWConfig()}, [1.0])["changed"].tolist()
    [False, False]
    """
    if len({(config.top_m, config.metric) for config in configs.values()}) != 1:
        raise InputError(f"configs={list(configs)} must be one or more that share top_m and metric")
    if logits.ndim != 2 or logits.shape[1] != len(embedding):
        raise InputError(f"logits of shape {tuple(logits.shape)} do not fit an embedding of {len(embedding)} rows")
    some = next(iter(configs.values()))
    order = torch.randperm(len(embedding), generator=torch.Generator().manual_seed(whole("seed", seed, 0)))
    geometries = [Geometry(embedding, some.metric, permutation) for permutation in (None, order)]
    rows = []
    for position, row in enumerate(logits):
        pools = [pool(row[None], temperature, some.top_m) for temperature in temperatures]
        between = [geometry.distances(pools[0].ids) for geometry in geometries]
        for temperature, (_, p) in zip(temperatures, pools, strict=True):
            for name, config in configs.items():
                true, permuted, none = (alternate(p, distances, config) for distances in (*between, None))
                rows.append(
                    {
                        "position": position,
                        "temperature": temperature,
                        "config": name,
                        "pool_mass": float(p.sum()),
                        "kept": int(true.kept.sum()),
                        "kept_permuted": int(permuted.kept.sum()),
                        "kept_none": int(none.kept.sum()),
                        "jaccard_permuted": _jaccard(true.kept, permuted.kept),
                        "jaccard_none": _jaccard(true.kept, none.kept),
                        "changed": not torch.equal(true.kept, permuted.kept),
                        "rounds": int(true.rounds),
                        "converged": bool(true.converged),
                    }
                )
        if progress is not None and (position + 1) % 10 == 0:
            progress(f"{position + 1} of {len(logits)} positions")
    return pd.DataFrame(rows)


def _jaccard(first: Bool[Tensor, "1 pool"], second: Bool[Tensor, "1 pool"]) -> float:
    return float((first & second).sum() / (first | second).sum())


def sweep(base: TopWConfig | None = None) -> dict[str, TopWConfig]:
    """Return configurations around the release's and far from it, by name, for `compare`.

    Parameters
    ----------
    base : TopWConfig, optional
        What is not varied; the release's by default.

    Returns
    -------
    dict of str to TopWConfig
        Three pairs of lam and beta, two weights of the distances, three warm starts.

    Examples
    --------
    >>> len(sweep()), next(iter(sweep()))
    (18, 'lam 2.2, beta 2.8, g 0.6, warm 0.999')
    """
    base = TopWConfig() if base is None else base
    return {
        f"lam {lam:g}, beta {beta:g}, g {g:g}, warm {warm:g}": replace(
            base, lam=lam, beta=beta, geom_scale=g, warm_p=warm
        )
        for lam, beta in ((2.2, 2.8), (1.0, 2.0), (0.3, 1.0))
        for g in (0.6, 1.0)
        for warm in (0.999, 0.3, 0.1)
    }


def kept_sizes(
    logits: Float[Tensor, "positions vocabulary"],
    geometry: Geometry | None,
    configs: Mapping[str, TopWConfig],
    temperatures: Sequence[float],
) -> pd.DataFrame:
    """Count the tokens that configurations keep (with the fast path, where they have it).

    Parameters
    ----------
    logits : Tensor, shape (positions, vocabulary)
        Raw logits.
    geometry : Geometry or None
        As `select` takes it.
    configs : mapping of str to TopWConfig
        By name.
    temperatures : sequence of float
        Positive.

    Returns
    -------
    DataFrame
        ``position, temperature, config, kept``.

    Raises
    ------
    InputError
        As `select`.

    Examples
    --------
    >>> kept_sizes(torch.zeros(1, 9), None, {"released": TopWConfig()}, [2.0])["kept"].tolist()
    [9]
    """
    parts = []
    for temperature in temperatures:
        for name, config in configs.items():
            kept = select(logits, geometry, config, temperature).kept.sum(-1).numpy()
            head = {"position": np.arange(len(logits)), "temperature": temperature, "config": name}
            parts.append(pd.DataFrame({**head, "kept": kept}))
    return pd.concat(parts, ignore_index=True)
