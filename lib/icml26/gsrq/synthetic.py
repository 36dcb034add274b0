"""Clustering and residual chains on random vectors, on the vectors they were fitted to and on fresh ones.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065) compares gain-shape k-means with k-means on standard normal vectors in
figure 4, on the training vectors alone. Here every codebook is also measured on as many fresh vectors: independent
Gaussian coordinates have no structure to find, and no code of R bits per value sends fresh ones with a normalised error
below 2^(-2R) (`rate_bound`). A lower error in training is memory, and a held-out error above 1 is worse than sending
nothing. The second kind of data, low rank times a lognormal gain, is made for gain-shape codes: one half of a picture.

Chains subtract each stage's codewords before the next is fitted (section 4.5). Which clusterings are compared is in
`arms`; real keys and values are for `tensors`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Float32

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.gsrq.arms import ARMS, fit_arm, fit_arms, measured
from icml26.gsrq.clustering import Codebook, assign
from icml26.gsrq.distortion import shrinkage

__all__ = ["ChainConfig", "ClusteringConfig", "chains", "clustering", "gaussian", "low_rank", "rate_bound"]


@dataclass(frozen=True)
class ClusteringConfig:
    """Figure 4 at a laptop's size.

    Attributes
    ----------
    vectors : int
        N, training vectors, and as many fresh ones.
    dimensions, codewords : tuple of int
        D and K, every pair of them.
    seeds : int
        Draws of the vectors and starts for each pair.
    large : tuple of (int, int)
        Further pairs of D and K.
    large_seeds : int
        For these.
    best_of : int
        Starts of one more k-means arm at `best_of_dimension`, of which the best in training is kept; 1 for none.
    best_of_dimension : int
        Its D; with the codewords of `codewords`.
    arms : tuple of str
        Of `arms.ARMS`.
    iterations : int
        At most so many updates in every arm.
    """

    vectors: int = 4000
    dimensions: tuple[int, ...] = (4, 16, 64, 256)
    codewords: tuple[int, ...] = (64, 256)
    seeds: int = 2
    large: tuple[tuple[int, int], ...] = ((256, 1024),)
    large_seeds: int = 1
    best_of: int = 5
    best_of_dimension: int = 64
    arms: tuple[str, ...] = tuple(ARMS)
    iterations: int = 100

    def cells(self) -> Iterator[tuple[int, int, int]]:
        """Every (D, K, seed), in the order in which they run."""
        for dimension in self.dimensions:
            for words in self.codewords:
                yield from ((dimension, words, seed) for seed in range(self.seeds))
        for dimension, words in self.large:
            yield from ((dimension, words, seed) for seed in range(self.large_seeds))


@dataclass(frozen=True)
class ChainConfig:
    """Residual chains on two kinds of data.

    Attributes
    ----------
    vectors : int
        N, training vectors, and as many fresh ones.
    settings : tuple of (int, int, int, int)
        D, K, stages and seeds of each.
    data : tuple of str
        "gaussian" (`gaussian`) and "low rank" (`low_rank` with rank D/4 and log-sd 1).
    log_sd : float
        Standard deviation of the logarithm of the gain.
    arms, iterations
        As in `ClusteringConfig`.
    """

    vectors: int = 4000
    settings: tuple[tuple[int, int, int, int], ...] = ((64, 64, 8, 5), (128, 256, 4, 1))
    data: tuple[str, ...] = ("gaussian", "low rank")
    log_sd: float = 1.0
    arms: tuple[str, ...] = ("k-means++", "k-means, spherical start", "GSKM")
    iterations: int = 100


def gaussian(vectors: int, dimension: int, *, seed: int) -> Float32[np.ndarray, "vectors dimension"]:
    """Draw independent standard normal coordinates.

    Parameters
    ----------
    vectors, dimension
        N and D.
    seed
        Of the draw.

    Returns
    -------
    float32 array
        Vectors.

    Examples
    --------
    >>> gaussian(3, 2, seed=0).shape
    (3, 2)
    """
    shape = (whole("vectors", vectors, 1), whole("dimension", dimension, 1))
    return np.random.default_rng(whole("seed", seed, 0)).standard_normal(shape, dtype=np.float32)


def low_rank(
    vectors: int, dimension: int, *, rank: int, log_sd: float, seed: int
) -> Float32[np.ndarray, "vectors dimension"]:
    """Draw vectors of a random subspace, each times a lognormal gain of its own.

    Parameters
    ----------
    vectors, dimension
        N and D.
    rank
        Dimension of the subspace.
    log_sd
        Standard deviation of the logarithm of the gain.
    seed
        Of the subspace and the draw.

    Returns
    -------
    float32 array
        Of mean square 1 per coordinate before the gain.

    Examples
    --------
    >>> int(np.linalg.matrix_rank(low_rank(20, 8, rank=2, log_sd=1.0, seed=0)))
    2
    """
    vectors, dimension = whole("vectors", vectors, 1), whole("dimension", dimension, 1)
    rank, log_sd = whole("rank", rank, 1, dimension), real("log_sd", log_sd, low=0)
    rng = np.random.default_rng(whole("seed", seed, 0))
    basis = np.linalg.qr(rng.standard_normal((dimension, rank)))[0]
    inside = rng.standard_normal((vectors, rank)) @ basis.T * np.sqrt(dimension / rank)
    return (inside * np.exp(log_sd * rng.standard_normal((vectors, 1)))).astype(np.float32)


def rate_bound(bits: float) -> float:
    """Least normalised squared error of fresh independent Gaussian coordinates at a rate: Shannon's 2^(-2R).

    Parameters
    ----------
    bits
        R, bits per coordinate.

    Returns
    -------
    float
        Error over variance.

    Examples
    --------
    >>> rate_bound(1.0), round(rate_bound(0.375), 3)
    (0.25, 0.595)
    """
    return 2.0 ** (-2 * real("bits", bits, low=0))


def clustering(config: ClusteringConfig, *, progress: Callable[[str], None] | None = None) -> pd.DataFrame:
    """Fit each arm to Gaussian vectors and measure it on them and on fresh ones.

    Parameters
    ----------
    config
        Sizes.
    progress
        Called with a line of text before each cell.

    Returns
    -------
    DataFrame
        A row for each D, K, seed and arm: ``dimension, codewords, seed, arm, bits, bound`` (`rate_bound`),
        ``train_`` and ``test_`` ``mse, nmse, cosine, gain_error``, ``shrinkage`` (training), ``iterations, converged,
        smallest`` (vectors of the smallest cluster) and ``single`` (clusters of one vector or none).

    Raises
    ------
    InputError
        If a size is out of range or an arm unknown.

    Examples
    --------
    >>> small = ClusteringConfig(vectors=60, dimensions=(4,), codewords=(8,), seeds=1, large=(), best_of=1)
    >>> clustering(small)["arm"].tolist()
    ['k-means++', 'k-means, spherical start', 'GSKM', 'GSKM, sum rule']
    """
    whole("seeds", config.seeds, 1)
    rows = []
    for dimension, words, seed in config.cells():
        if progress:
            progress(f"Gaussian vectors: D={dimension}, K={words}, seed {seed}")
        both = gaussian(2 * config.vectors, dimension, seed=seed)
        train, test = both[: config.vectors], both[config.vectors :]
        books = fit_arms(train, words, config.arms, iterations=config.iterations, seed=seed)
        if config.best_of > 1 and dimension == config.best_of_dimension and words in config.codewords:
            books[f"k-means++, best of {config.best_of}"] = fit_arm(
                train, words, "k-means++", iterations=config.iterations, starts=config.best_of, seed=seed
            )
        bits = float(np.log2(words)) / dimension
        for arm, book in books.items():
            decoded = book.codewords[book.labels]
            rows.append(
                {"dimension": dimension, "codewords": words, "seed": seed, "arm": arm}
                | {"bits": bits, "bound": rate_bound(bits)}
                | measured(train, decoded, "train")
                | measured(test, book.codewords[assign(test, book.codewords)], "test")
                | {"shrinkage": float(shrinkage(train, decoded))}
                | _fit_columns(book)
            )
    return pd.DataFrame(rows)


def chains(config: ChainConfig, *, progress: Callable[[str], None] | None = None) -> pd.DataFrame:
    """Fit a residual chain with each arm and measure every prefix of it on its vectors and on fresh ones.

    Parameters
    ----------
    config
        Sizes.
    progress
        Called with a line of text before each chain.

    Returns
    -------
    DataFrame
        A row for each kind of data, D, K, seed, arm and number of stages: ``data, dimension, codewords, seed, arm,
        stage`` (from 1), ``bits`` of so many stages, ``train_`` and ``test_`` ``mse, nmse, cosine, gain_error`` of the
        sum of so many stages, and ``iterations, converged, smallest, single`` of the stage.

    Raises
    ------
    InputError
        If a size is out of range, or an arm or a kind of data unknown.

    Examples
    --------
    >>> small = ChainConfig(vectors=60, settings=((4, 8, 2, 1),), data=("low rank",), arms=("GSKM",))
    >>> chains(small)["stage"].tolist()
    [1, 2]
    """
    rows = []
    for dimension, words, stages, seeds in config.settings:
        for kind in config.data:
            for seed in range(seeds):
                both = _drawn(kind, config, dimension, seed)
                for arm in config.arms:
                    if progress:
                        progress(f"chain on {kind} vectors: D={dimension}, K={words}, seed {seed}, {arm}")
                    cell = {"data": kind, "dimension": dimension, "codewords": words, "seed": seed, "arm": arm}
                    rows += [cell | row for row in _chain(both, words, stages, arm, config, seed)]
    return pd.DataFrame(rows)


def _drawn(kind: str, config: ChainConfig, dimension: int, seed: int) -> np.ndarray:
    if kind == "gaussian":
        return gaussian(2 * config.vectors, dimension, seed=seed)
    if kind == "low rank":
        return low_rank(2 * config.vectors, dimension, rank=max(1, dimension // 4), log_sd=config.log_sd, seed=seed)
    raise InputError(f"data={kind!r} must be 'gaussian' or 'low rank'")


def _chain(
    both: Float[np.ndarray, "vectors D"], words: int, stages: int, arm: str, config: ChainConfig, seed: int
) -> Iterator[dict[str, float]]:
    train, test = both[: config.vectors], both[config.vectors :]
    left_train, left_test = train, test
    for stage in range(1, stages + 1):
        book = fit_arm(left_train, words, arm, iterations=config.iterations, seed=seed)
        left_train = left_train - book.codewords[book.labels]
        left_test = left_test - book.codewords[assign(left_test, book.codewords)]
        yield (
            {"stage": stage, "bits": stage * float(np.log2(words)) / both.shape[1]}
            | measured(train, train - left_train, "train")
            | measured(test, test - left_test, "test")
            | _fit_columns(book)
        )


def _fit_columns(book: Codebook) -> dict[str, float]:
    return {
        "iterations": int(book.iterations),
        "converged": bool(book.converged),
        "smallest": int(book.sizes.min()),
        "single": int((book.sizes <= 1).sum()),
    }
