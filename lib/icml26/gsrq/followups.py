"""What is looked at where a claim does not hold: the step from gain-shape k-means to k-means, and crowded codebooks.

The paper is GSRQ (Kim et al., ICML 2026, arXiv 2607.01065). Its unit rule does not minimise the squared error, so
k-means that starts from a settled gain-shape codebook lowers the error of its training vectors: `polished` shows how
far the codewords move and what it changes on held-out tokens. Released results come from few vectors per codeword at
large D and K; `crowding` repeats the clustering of `tensors` with fewer and fewer training tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.arms import fit_arm, measured
from icml26.gsrq.clustering import assign, fit_codebook
from icml26.gsrq.projections import Place
from icml26.gsrq.tensors import TensorConfig, check, study

__all__ = ["crowding", "polished"]


def polished(
    states: Mapping[Place, Float[np.ndarray, "tokens channels"]],
    config: TensorConfig,
    *,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Let k-means start from settled gain-shape codebooks of the original tensors, first seed.

    Parameters
    ----------
    states, config
        As for `tensors.study`; the sizes of ``config.claimed`` are clustered.
    progress
        Called with a line of text before each layer, kind and D.

    Returns
    -------
    DataFrame
        A row for each ``layer, kind, dimension, position`` and ``arm`` ("GSKM" and "GSKM, then k-means") with
        ``train_`` and ``test_`` ``mse, nmse, cosine, gain_error``, ``iterations`` and ``moved`` (share of training
        vectors that have another codeword than under GSKM).

    Raises
    ------
    InputError
        As `tensors.study`.

    Examples
    --------
    >>> states = {(0, "value"): np.random.default_rng(0).normal(size=(80, 8)).astype(np.float32)}
    >>> frame = polished(states, TensorConfig(claimed=(8,), codewords=4, train=60))
    >>> frame["arm"].tolist(), bool((frame["moved"] < 0.5).all())
    (['GSKM', 'GSKM, then k-means'], True)
    """
    check(states, replace(config, dimensions=config.claimed))
    rows = []
    for (layer, kind), array in states.items():
        for dimension in config.claimed:
            if progress:
                progress(f"k-means from gain-shape codebooks: {kind}s of layer {layer}, {dimension} channels")
            for position in range(min(config.positions, array.shape[1] // dimension)):
                part = array[:, position * dimension : (position + 1) * dimension]
                train, test = part[: config.train], part[config.train :]
                first = fit_arm(train, config.codewords, "GSKM", iterations=config.iterations)
                then = fit_codebook(
                    train, config.codewords, rule="mean", start=first.codewords, iterations=config.iterations
                )
                for arm, book in (("GSKM", first), ("GSKM, then k-means", then)):
                    rows.append(
                        {"layer": layer, "kind": kind, "dimension": dimension, "position": position, "arm": arm}
                        | measured(train, book.codewords[book.labels], "train")
                        | measured(test, book.codewords[assign(test, book.codewords)], "test")
                        | {"iterations": book.iterations, "moved": float((book.labels != first.labels).mean())}
                    )
    return pd.DataFrame(rows)


def crowding(
    states: Mapping[Place, Float[np.ndarray, "tokens channels"]],
    config: TensorConfig,
    tokens: Sequence[int],
    *,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Repeat `tensors.study` with fewer training tokens and the same ones held out.

    Parameters
    ----------
    states, config
        As for `tensors.study`; the sizes of ``config.claimed`` are clustered.
    tokens
        Training tokens, each at most ``config.train``.
    progress
        Called with a line of text before each layer, kind and D.

    Returns
    -------
    DataFrame
        Of `tensors.study`, with a column ``tokens`` and without "key, centred".

    Raises
    ------
    InputError
        If a number of tokens is too large, or as `tensors.study`.

    Examples
    --------
    >>> states = {(0, "value"): np.random.default_rng(0).normal(size=(80, 8)).astype(np.float32)}
    >>> frame = crowding(states, TensorConfig(claimed=(8,), codewords=4, seeds=1, train=60), [30, 60])
    >>> frame["tokens"].unique().tolist()
    [30, 60]
    """
    if not len(tokens):
        raise InputError("tokens are missing: give numbers of training tokens, such as (512, 1024, 2048)")
    frames = []
    for count in tokens:
        count = whole("tokens", count, config.codewords, config.train)
        held = {place: np.concatenate([array[:count], array[config.train :]]) for place, array in states.items()}
        small = replace(config, dimensions=config.claimed, compared=config.claimed, train=count, parts=False)
        told = None if progress is None else (lambda line, count=count: progress(f"{count} tokens: {line}"))
        frames.append(study(held, small, progress=told).assign(tokens=count))
    frame = pd.concat(frames, ignore_index=True)
    return frame[frame["kind"] != "key, centred"].reset_index(drop=True)
