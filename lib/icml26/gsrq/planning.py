"""What the studies of the chapter will run, and about how long it takes, counted before any of it runs.

Every fit and every pass of the model is counted from the configurations of `synthetic`, `tensors` and `codebooks`, and
multiplied by unit costs of one thread of a laptop-class core. The seconds are an estimate to decide on before anything
runs; GSRQ itself is Kim et al. (ICML 2026, arXiv 2607.01065).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from icml26.checks import whole
from icml26.gsrq.arms import ARMS, arm_of
from icml26.gsrq.codebooks import WEIGHTS, RateConfig
from icml26.gsrq.projections import KINDS, decoder_of
from icml26.gsrq.synthetic import ChainConfig, ClusteringConfig
from icml26.gsrq.tensors import SOURCES, TensorConfig

__all__ = ["fit_seconds", "model_seconds", "plan"]

# Seconds of one start with its passes: a constant, per vector and codeword, per vector, codeword and channel.
_CONSTANT, _PER_PAIR, _PER_PRODUCT = 0.012, 3e-8, 1.05e-9
_UPDATE = 0.35  # passes after a spherical start, in units of that start
_REAL = 1.1  # keys and values take more passes than Gaussian vectors
_FLOPS = 9e10  # per second, in a forward pass
_GRADIENTS = 2.0  # a forward and backward pass takes so much longer than its operations say


def fit_seconds(vectors: int, dimension: int, codewords: int, *, arms: tuple[str, ...] = ("GSKM",)) -> float:
    """Estimate the time of fitting arms to the same vectors.

    Parameters
    ----------
    vectors, dimension, codewords
        N, D and K.
    arms
        Of `arms.ARMS`; those that start on the sphere share the start.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> 0.03 < fit_seconds(4096, 48, 64) < 0.3
    True
    """
    pairs = whole("vectors", vectors, 1) * whole("codewords", codewords, 1)
    start = _CONSTANT + pairs * (_PER_PAIR + _PER_PRODUCT * whole("dimension", dimension, 1))
    starts = [arm_of(arm).start for arm in arms]
    spherical = starts.count("spherical")
    return start * (len(starts) - spherical + (spherical > 0) + _UPDATE * spherical)


def model_seconds(model: Any, tokens: int, *, first: int = 0, last: int | None = None, head: bool = False) -> float:
    """Estimate the time of a forward pass through some layers.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    tokens
        How many.
    first, last
        From and up to which layer, the last one not included; all by default.
    head
        Whether logits are computed.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> 0 < model_seconds(load_lm("tiny-random-llama")[0], 64) < 1
    True
    """
    chosen = decoder_of(model).layers[first:last]
    parameters = sum(parameter.numel() for layer in chosen for parameter in layer.parameters())
    return 2 * tokens * (parameters + head * model.get_output_embeddings().weight.numel()) / _FLOPS


def plan(
    model: Any,
    clustering: ClusteringConfig,
    chains: ChainConfig,
    tensors: TensorConfig,
    rates: RateConfig,
    *,
    length: int,
    calibration: int,
    validation: int,
    test: int,
    transfer: int,
    crowding: Sequence[int] = (),
    tensor_layers: int | None = None,
) -> pd.DataFrame:
    """Count everything that will run.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    clustering, chains, tensors, rates
        Sizes of the studies.
    length
        Tokens of a window.
    calibration, validation, test
        Windows of the first text.
    transfer
        Calibration windows of the second text, which has as many test windows; 0 for none.
    crowding
        Training tokens of `followups.crowding`, which runs beside `followups.polished`; neither by default.
    tensor_layers
        How many layers are clustered as vectors; as many as are coded by default.

    Returns
    -------
    DataFrame
        ``step, runs`` (fits, windows or settings) and ``seconds``.
    """
    for name, windows in (("calibration", calibration), ("validation", validation), ("test", test)):
        whole(name, windows, 1)
    first, last = min(rates.layers), max(rates.layers) + 1
    channels = decoder_of(model).layers[first].self_attn.k_proj.out_features
    places = len(KINDS) * len(rates.layers)
    clustered = places if tensor_layers is None else len(KINDS) * whole("tensor_layers", tensor_layers, 1)
    backward = rates.gradient_windows * length

    def row(step: str, costs: Iterator[tuple[float, float]] | list[tuple[float, float]]) -> dict[str, Any]:
        counted = list(costs)
        return {
            "step": step,
            "runs": int(sum(runs for runs, _ in counted)),
            "seconds": sum(runs * seconds for runs, seconds in counted),
        }

    setting = model_seconds(model, test * length, first=first, head=True)
    both = 2 * model_seconds(model, backward, first=first, head=True) * _GRADIENTS
    settings = _settings(rates)
    rows = [
        row("Gaussian vectors: fits", _clustering(clustering)),
        row("Residual chains: fits", _chains(chains)),
        row(
            "Keys and values: windows",
            [
                (calibration - rates.gradient_windows, model_seconds(model, length, last=last)),
                (1, model_seconds(model, backward, last=first) + both),
            ],
        ),
        row("Keys and values: fits", _tensors(tensors, channels, clustered)),
        row("Codebooks: fits", _codebooks(rates, channels, places, backward)),
        row("Losses: first layers", [(validation + test, model_seconds(model, length))]),
        row("Losses: validation settings", [(settings["validation"], setting * validation / test)]),
        row("Losses: test settings", [(settings["test"], setting)]),
    ]
    if transfer:
        book = _REAL * fit_seconds(min(rates.tokens, transfer * length), rates.dimension, rates.codewords)
        fits = min(rates.stages) * channels // rates.dimension * places
        rows.append(row("Second text: windows", [(transfer, model_seconds(model, length, last=last))]))
        rows.append(row("Second text: fits", [(fits, book)]))
        rows.append(row("Second text: first layers", [(test, model_seconds(model, length))]))
        rows.append(row("Second text: settings", [(5, setting)]))
    if crowding:
        rows.append(row("Follow-ups: fits", _followups(tensors, channels, clustered, crowding)))
    return pd.DataFrame(rows)


def _clustering(config: ClusteringConfig) -> Iterator[tuple[float, float]]:
    for dimension, words, _ in config.cells():
        yield len(config.arms), fit_seconds(config.vectors, dimension, words, arms=config.arms) / len(config.arms)
        if config.best_of > 1 and dimension == config.best_of_dimension and words in config.codewords:
            yield config.best_of, fit_seconds(config.vectors, dimension, words, arms=("k-means++",))


def _chains(config: ChainConfig) -> Iterator[tuple[float, float]]:
    for dimension, words, stages, seeds in config.settings:
        for arm in config.arms:
            runs = stages * seeds * len(config.data)
            yield runs, fit_seconds(config.vectors, dimension, words, arms=(arm,))


def _tensors(config: TensorConfig, channels: int, places: int) -> Iterator[tuple[float, float]]:
    for dimension, position, seed in config.cells(channels):
        arms = config.arms(dimension, position)
        yield (
            places * len(SOURCES) * len(arms),
            _REAL * fit_seconds(config.train, dimension, config.codewords, arms=arms) / len(arms),
        )
        if seed == 0:  # keys without their channels' means
            yield places / 2, _REAL * fit_seconds(config.train, dimension, config.codewords, arms=("k-means++",))


def _followups(
    config: TensorConfig, channels: int, places: int, tokens: Sequence[int]
) -> Iterator[tuple[float, float]]:
    for dimension in config.claimed:
        both = fit_seconds(config.train, dimension, config.codewords) * (1 + _UPDATE)
        yield places * min(config.positions, channels // dimension), _REAL * both
    for count in tokens:
        yield from _tensors(
            replace(config, dimensions=config.claimed, compared=config.claimed, train=count, parts=False),
            channels,
            places,
        )


def _codebooks(config: RateConfig, channels: int, places: int, weighted: int) -> Iterator[tuple[float, float]]:
    positions = channels // config.dimension
    for seed in range(config.arm_seeds):
        for arm in ARMS:
            stages = max(config.rates_of(arm, seed), default=0)
            yield (
                stages * positions * places,
                _REAL * fit_seconds(config.tokens, config.dimension, config.codewords, arms=(arm,)),
            )
    for coupled, width in config.coupled:
        yield channels // coupled * places, _REAL * fit_seconds(config.tokens, coupled, 1 << width, arms=("k-means++",))
    if weighted:
        runs = len(WEIGHTS) * config.seeds * min(config.stages) * positions * places
        yield runs, _REAL * fit_seconds(weighted, config.dimension, config.codewords)


def _settings(config: RateConfig) -> dict[str, int]:
    """Settings whose loss is measured on each kind of windows."""
    rates = {(arm, seed): len(config.rates_of(arm, seed)) for seed in range(config.arm_seeds) for arm in ARMS}
    others = len(config.coupled) + len(config.integers)
    alone = len(KINDS) * 2 * config.arm_seeds
    weights = len(WEIGHTS) * config.seeds if config.gradient_windows else 0
    chosen = sum(count for (arm, _), count in rates.items() if arm == "k-means++")
    return {"validation": chosen + others, "test": 1 + sum(rates.values()) + others + alone + weights}
