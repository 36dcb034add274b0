"""Clustering of a model's keys, values and first residuals: shrinking means, directions and errors, held out.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065) plots the shrinkage ratio of k-means, ``rho = E|mu|^2 / E|x|^2``, against
the dimension of sub-vectors in figure 2, and compares gain-shape k-means with k-means in figure 5. At the fixed point
of k-means ``rho = 1 - NMSE`` exactly, so the table has both. Keys carry a large constant offset, which no other
claim is about: "key, centred" is the same without each channel's mean. Residuals are what one stage of k-means leaves,
for all arms alike, as in the released code. All differences are measured on tokens that no codebook has seen.

Reading the tensors is for `activations`, the arms for `arms`, intervals for `icml26.stats`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Float64

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.arms import fit_arms, measured, paired
from icml26.gsrq.clustering import assign
from icml26.gsrq.distortion import shrinkage
from icml26.gsrq.projections import Place

__all__ = ["SOURCES", "UNIT", "TensorConfig", "check", "claim_units", "claimed_rows", "shrinkage_fall", "study"]

SOURCES = ("original", "residual")
UNIT = ("layer",)
"""What an interval is over: keys, values and positions of a layer come from the same tokens and are averaged."""

_KMEANS, _CONTROL, _GSKM = "k-means++", "k-means, spherical start", "GSKM"


@dataclass(frozen=True)
class TensorConfig:
    """Figures 2 and 5 at a laptop's size.

    Attributes
    ----------
    dimensions : tuple of int
        D, channels of a sub-vector, ascending.
    compared : tuple of int
        Those of them that get every arm and every seed; the others get k-means++ and GSKM with the first seed.
    claimed : tuple of int
        Those of the compared ones over which directions and errors are averaged for the claims.
    codewords : int
        K.
    positions : int
        First so many sub-vectors of a token; fewer where there are not as many.
    parts : bool
        Whether k-means++ is also run, with the first seed, at all further positions of the smallest D that lie in one
        of those of the largest D: shrinkage at the two sizes is then that of the same channels.
    seeds : int
        Starts.
    train : int
        First so many tokens are fitted to, the others held out.
    iterations : int
        At most so many updates in every arm.
    """

    dimensions: tuple[int, ...] = (8, 16, 32, 48, 64, 96, 192)
    compared: tuple[int, ...] = (8, 48, 192)
    claimed: tuple[int, ...] = (48, 192)
    codewords: int = 64
    positions: int = 2
    parts: bool = True
    seeds: int = 2
    train: int = 4096
    iterations: int = 100

    def cells(self, channels: int) -> Iterator[tuple[int, int, int]]:
        """Every (D, position, seed) of one layer and kind with so many channels."""
        for dimension in self.dimensions:
            for position in range(min(self.positions, channels // dimension)):
                seeds = self.seeds if dimension in self.compared else 1
                yield from ((dimension, position, seed) for seed in range(seeds))
        if self.parts:
            small, large = min(self.dimensions), max(self.dimensions)
            held = min(self.positions, channels // large) * large // small
            yield from ((small, position, 0) for position in range(self.positions, held))

    def arms(self, dimension: int, position: int = 0) -> tuple[str, ...]:
        """The arms at a size of sub-vectors and a position."""
        if position >= self.positions:
            return (_KMEANS,)
        return (_KMEANS, _CONTROL, _GSKM) if dimension in self.compared else (_KMEANS, _GSKM)


def study(
    states: Mapping[Place, Float[np.ndarray, "tokens channels"]],
    config: TensorConfig,
    *,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Cluster sub-vectors of keys and values with every arm, and what one stage of k-means leaves of them.

    Parameters
    ----------
    states
        ``{(layer, "key" or "value"): array}``, as `activations.collect` returns them.
    config
        Sizes.
    progress
        Called with a line of text before each layer, kind and D.

    Returns
    -------
    DataFrame
        A row for each ``layer, kind`` ("key", "value" or "key, centred"), ``dimension, position, seed, source``
        ("original" or "residual") and ``arm``; with ``train_`` and ``test_`` ``mse, nmse, cosine, gain_error``,
        ``shrinkage`` (rho, training), ``iterations, converged`` and ``smallest`` (vectors of the smallest cluster).

    Raises
    ------
    InputError
        If there are no tokens to hold out, or a D does not divide the channels.

    Examples
    --------
    >>> states = {(0, "value"): np.random.default_rng(0).normal(size=(80, 8)).astype(np.float32)}
    >>> small = TensorConfig(dimensions=(2, 8), compared=(8,), claimed=(8,), codewords=4, seeds=1, train=60)
    >>> frame = study(states, small)
    >>> len(frame), bool(np.allclose(frame["shrinkage"] + frame["train_nmse"], 1, atol=0.01))
    (18, True)
    """
    check(states, config)
    rows = []
    for (layer, kind), array in states.items():
        for dimension, position, seed in config.cells(array.shape[1]):
            if progress and position == seed == 0:
                progress(f"{kind}s of layer {layer}: sub-vectors of {dimension} channels")
            part = array[:, position * dimension : (position + 1) * dimension]
            cell = {"layer": layer, "kind": kind, "dimension": dimension, "position": position, "seed": seed}
            for source in SOURCES:
                found, left = _fitted(part, config.arms(dimension, position), config, seed)
                rows += [cell | {"source": source} | row for row in found]
                part = left
            if kind == "key" and seed == 0:
                centred = array[:, position * dimension : (position + 1) * dimension]
                found, _ = _fitted(centred - centred[: config.train].mean(axis=0), (_KMEANS,), config, seed)
                rows += [cell | {"kind": "key, centred", "source": "original"} | row for row in found]
    return pd.DataFrame(rows)


def shrinkage_fall(frame: pd.DataFrame, kind: str = "value", source: str = "original") -> pd.Series:
    """Claim C1: rho of k-means at the smallest D less that at the largest, for the same channels.

    Each sub-vector of the largest D stands against the mean of those of the smallest that are parts of it.

    Parameters
    ----------
    frame
        Of `study`.
    kind, source
        Rows to look at.

    Returns
    -------
    Series
        One value per layer: seeds are averaged, then parts, then positions.

    Raises
    ------
    InputError
        If there are no such rows, or only one D.

    Examples
    --------
    >>> rows = [(0, "value", "original", "k-means++", D, 0, 0, rho) for D, rho in ((8, 0.7), (192, 0.45))]
    >>> names = ["layer", "kind", "source", "arm", "dimension", "position", "seed", "shrinkage"]
    >>> round(float(shrinkage_fall(pd.DataFrame(rows, columns=names)).iloc[0]), 3)
    0.25
    """
    chosen = frame[(frame["kind"] == kind) & (frame["source"] == source) & (frame["arm"] == _KMEANS)]
    small, large = chosen["dimension"].min(), chosen["dimension"].max()
    if not len(chosen) or small == large:
        raise InputError(f"the table has no two sizes of {source} {kind}s clustered by {_KMEANS}: add dimensions")
    rho = chosen.groupby(["dimension", "layer", "position"])["shrinkage"].mean()
    parts = rho[small].reset_index()
    parts["position"] = parts["position"] * small // large
    low = parts.groupby(["layer", "position"])["shrinkage"].mean()
    return (low - rho[large]).dropna().groupby("layer").mean()


def claimed_rows(frame: pd.DataFrame, config: TensorConfig) -> pd.DataFrame:
    """Rows of a table on which arms are compared for the claims.

    Parameters
    ----------
    frame
        Of `study`.
    config
        Its sizes.

    Returns
    -------
    DataFrame
        Those of the sizes in ``config.claimed``, without "key, centred" and without further positions.
    """
    compared = (frame["kind"] != "key, centred") & (frame["position"] < config.positions)
    return frame[compared & frame["dimension"].isin(config.claimed)]


def claim_units(frame: pd.DataFrame, config: TensorConfig) -> dict[str, Float64[np.ndarray, " layers"]]:
    """What claims C1, C2, C2b, C3 and C9 are decided on: one value per unit that is resampled.

    Parameters
    ----------
    frame
        Of `study`.
    config
        Its sizes.

    Returns
    -------
    dict
        One value per layer. C1: `shrinkage_fall` of values. The others average within each layer, positions and seeds
        first, then keys and values, sizes (`TensorConfig.claimed`) and sources with equal weight (`arms.paired`): C2,
        held-out cosine of GSKM less that of k-means++; C2b, held-out squared error of GSKM over that of k-means++; C3,
        held-out NMSE of GSKM less that of k-means++, on residuals of the largest D alone; C9, held-out cosine of GSKM
        less that of k-means from the same start.

    Raises
    ------
    InputError
        If the table lacks rows that a claim needs.
    """
    rows = claimed_rows(frame, config)
    deep = rows[(rows["source"] == "residual") & (rows["dimension"] == max(config.claimed))]
    units = {
        "C1": shrinkage_fall(frame),
        "C2": paired(rows, "test_cosine", _GSKM, _KMEANS, unit=UNIT),
        "C2b": paired(rows, "test_mse", _GSKM, _KMEANS, unit=UNIT, how=lambda first, second: first / second),
        "C3": paired(deep, "test_nmse", _GSKM, _KMEANS, unit=UNIT),
        "C9": paired(rows, "test_cosine", _GSKM, _CONTROL, unit=UNIT),
    }
    return {claim: values.to_numpy(dtype=np.float64) for claim, values in units.items()}


def check(states: Mapping[Place, Float[np.ndarray, "tokens channels"]], config: TensorConfig) -> None:
    """Refuse sizes that do not fit the tensors.

    Parameters
    ----------
    states
        As for `study`.
    config
        Sizes.

    Raises
    ------
    InputError
        If there are no tokens to hold out, or a D does not divide the channels.
    """
    train = whole("train", config.train, 1)
    if not states:
        raise InputError("states are missing: collect the keys and values of at least one layer")
    for place, array in states.items():
        if len(array) <= train:
            raise InputError(f"train={train} leaves none of the {len(array)} tokens of {place} to hold out: lower it")
        for dimension in config.dimensions:
            if array.shape[1] % whole("dimension", dimension, 1):
                raise InputError(f"dimension={dimension} does not divide the {array.shape[1]} channels of {place}")


def _fitted(
    part: Float[np.ndarray, "tokens D"], arms: tuple[str, ...], config: TensorConfig, seed: int
) -> tuple[list[dict], Float[np.ndarray, "tokens D"]]:
    """A row for each arm, and what k-means++ leaves of all tokens."""
    train, test = np.ascontiguousarray(part[: config.train]), np.ascontiguousarray(part[config.train :])
    rows, left = [], part
    for arm, book in fit_arms(train, config.codewords, arms, iterations=config.iterations, seed=seed).items():
        decoded, fresh = book.codewords[book.labels], book.codewords[assign(test, book.codewords)]
        if arm == _KMEANS:
            left = part - np.concatenate([decoded, fresh])
        rows.append(
            {"arm": arm, "shrinkage": float(shrinkage(train, decoded))}
            | measured(train, decoded, "train")
            | measured(test, fresh, "test")
            | {"iterations": int(book.iterations), "converged": bool(book.converged), "smallest": int(book.sizes.min())}
        )
    return rows, left
