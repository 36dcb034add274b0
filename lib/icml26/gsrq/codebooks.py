"""Codebooks for a language model's keys and values: which tokens they are fitted to, and which are compared.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4.5) fits one residual chain to each layer, keys or values, and
position of a sub-vector, on calibration text. Chains are greedy and nested, so one chain of R stages gives every lower
rate. Beside chains of gain-shape k-means (GSKM) stand chains of k-means and coupled quantisation (CQ), fitted to the
same tokens, which count equally: CQ without its Fisher weights, hence "uniform". GSKM with weights from gradients, and
without, is fitted to the tokens that have gradients.

Reading the tokens is for `calibration`, fitting itself is in `residual` and `coupled`, weights in `weights`; losses are
for `rates`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64
from torch import Tensor

from icml26.checks import whole
from icml26.errors import InputError
from icml26.gsrq.activations import gradient_norms
from icml26.gsrq.arms import ARMS, arm_of
from icml26.gsrq.calibration import Calibration, Progress, calibrate
from icml26.gsrq.coupled import CoupledQuantizer
from icml26.gsrq.projections import KINDS, Place, Replacement
from icml26.gsrq.residual import ResidualQuantizer
from icml26.gsrq.weights import log_weights

__all__ = [
    "WEIGHTS",
    "Made",
    "RateConfig",
    "coupled_name",
    "fit",
    "fit_residual",
    "replacements",
]

WEIGHTS = ("none", "log", "raw")
"""How vectors count: equally, by the logarithm of their gradient's norm (the paper's), by the norm itself."""


@dataclass(frozen=True)
class RateConfig:
    """Sizes of the comparison.

    Attributes
    ----------
    layers : tuple of int
        Quantised layers, counted from 0.
    dimension, codewords : int
        D and K.
    stages : tuple of int
        Stages R of each rate, descending; the first is the length of the chains.
    control_stages : tuple of int
        Those of them at which k-means from the spherical start is measured.
    seeds : int
        Of the codebooks with weights and their counterparts without.
    arm_seeds : int
        Of k-means++ and GSKM at the lowest rate; at higher rates they have the first. With one, intervals over blocks
        of text leave out how much another start would change.
    tokens : int
        First so many calibration tokens that codebooks without weights are fitted to.
    coupled : tuple of (int, int)
        Channels and bits of each CQ.
    integers : tuple of int
        Bits of each KIVI, in groups of `group`.
    group : int
        Numbers that share a scale.
    gradient_windows : int
        Calibration windows whose gradients are taken, and to which weighted codebooks and their unweighted
        counterparts are fitted.
    tau : float
        Of the log weights.
    iterations : int
        At most so many updates in every fit.
    block : int
        Tokens of a block, over which losses are averaged and which are resampled.
    layers_at_once : int
        Layers whose keys and values are held in memory at a time.
    """

    layers: tuple[int, ...] = (15, 25)
    dimension: int = 48
    codewords: int = 64
    stages: tuple[int, ...] = (16, 8, 6, 3)
    control_stages: tuple[int, ...] = (3,)
    seeds: int = 3
    arm_seeds: int = 1
    tokens: int = 4096
    coupled: tuple[tuple[int, int], ...] = ((2, 4), (4, 4), (8, 6), (16, 6))
    integers: tuple[int, ...] = (2, 1)
    group: int = 32
    gradient_windows: int = 4
    tau: float = 1.0
    iterations: int = 100
    block: int = 64
    layers_at_once: int = 2

    def rates_of(self, arm: str, seed: int = 0) -> tuple[int, ...]:
        """Stages at which an arm is measured with a seed, descending; none if it is not fitted with it."""
        if arm == "k-means, spherical start":
            return self.control_stages if seed == 0 else ()
        if arm not in ("k-means++", "GSKM"):
            return ()
        return self.stages if seed == 0 else (min(self.stages),) * (seed < self.arm_seeds)


class Made(NamedTuple):
    """Which codebooks: a key of the dictionary that `fit` returns.

    Attributes
    ----------
    method : str
        One of `arms.ARMS`, or a `coupled_name`.
    seed : int
        Of the starts.
    weights : str
        "none", "log" or "raw"; "" for those fitted to all tokens without weights.
    """

    method: str
    seed: int = 0
    weights: str = ""


def coupled_name(channels: int, width: int) -> str:
    """Name of coupled quantisation without weights in tables.

    Parameters
    ----------
    channels
        c, channels that share a code.
    width
        b, bits of a code.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> coupled_name(2, 4)
    'CQ-2c4b, uniform'
    """
    return f"CQ-{channels}c{width}b, uniform"


def fit(
    model: Any,
    tokens: Int64[Tensor, "windows length"],
    config: RateConfig,
    *,
    calibration: Calibration | None = None,
    progress: Progress = None,
) -> dict[Made, dict[Place, Any]]:
    """Fit all codebooks of the comparison.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    tokens
        Calibration windows.
    config
        Sizes.
    calibration
        What `calibrate` has read of these windows: its layers are not read again.
    progress
        Called with a line of text before each fit.

    Returns
    -------
    dict
        For every `Made`, quantisers by layer and kind. Chains have as many stages as the highest rate that
        they are measured at (`RateConfig.rates_of`).

    Raises
    ------
    InputError
        If a size is out of range or does not fit the model.
    """
    if not config.layers or not config.stages:
        raise InputError("layers and stages must name at least one each")
    made: dict[Made, dict[Place, Any]] = {}
    known = () if calibration is None else {layer for layer, _ in calibration.states}
    unknown = [layer for layer in config.layers if layer not in known]
    step = whole("layers_at_once", config.layers_at_once, 1)
    groups = [tuple(unknown[start : start + step]) for start in range(0, len(unknown), step)]
    if calibration is not None:
        groups.insert(0, tuple(layer for layer in config.layers if layer in known))
    for number, layers in enumerate(groups):
        held = calibration if number == 0 else None
        if held is None:
            held = calibrate(model, tokens, layers, gradient_windows=config.gradient_windows, progress=progress)
        for place in held.states:
            if place[0] in layers:
                for key, quantizer in _fitted(held, place, config, progress):
                    made.setdefault(key, {})[place] = quantizer
    return made


def fit_residual(
    states: Mapping[Place, Float32[np.ndarray, "tokens channels"]],
    config: RateConfig,
    *,
    arm: str = "GSKM",
    stages: int | None = None,
    seed: int = 0,
) -> dict[Place, ResidualQuantizer]:
    """Fit one chain to the first tokens (`RateConfig.tokens`) of each tensor, without weights.

    Parameters
    ----------
    states
        By layer and kind.
    config
        Sizes.
    arm
        One of `arms.ARMS`.
    stages
        R; that of the highest rate by default.
    seed
        Of the starts.

    Returns
    -------
    dict
        Fitted quantisers.

    Raises
    ------
    InputError
        As `residual.ResidualQuantizer`.
    """
    stages = max(config.stages) if stages is None else stages
    first = slice(whole("tokens", config.tokens, 1))
    return {place: _chain(config, arm, stages, seed).fit(array[first]) for place, array in states.items()}


def replacements(
    quantizers: Mapping[Place, Any], *, stages: int | None = None, kinds: Sequence[str] = KINDS
) -> dict[Place, Replacement]:
    """Turn quantisers into functions that replace keys and values by their reconstructions.

    Parameters
    ----------
    quantizers
        Fitted, by layer and kind.
    stages
        Only the first so many stages of each chain; all by default.
    kinds
        ("key",), ("value",) or both.

    Returns
    -------
    dict
        For `Evaluator.losses` and `activations.replaced`.

    Raises
    ------
    InputError
        If a kind is unknown, or there are fewer stages.

    Examples
    --------
    >>> states = {(0, "key"): np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)}
    >>> quantizers = fit_residual(states, RateConfig(dimension=2, codewords=4, stages=(2, 1)))
    >>> replacements(quantizers, stages=1)[0, "key"](states[0, "key"]).shape
    (40, 4)
    """

    if isinstance(kinds, str) or not kinds or not set(kinds) <= set(KINDS):
        raise InputError(f"kinds={kinds!r} must be a tuple of 'key', 'value' or both")
    for place, quantizer in quantizers.items():
        if stages is not None and not 1 <= whole("stages", stages) <= quantizer.stages:
            raise InputError(f"stages={stages} must be from 1 to the {quantizer.stages} of the quantiser of {place}")

    def function(quantizer: Any) -> Replacement:
        if stages is None:
            return lambda rows: quantizer.decode(quantizer.encode(rows))
        return lambda rows: quantizer.decode(quantizer.encode(rows, stages=stages))

    return {place: function(quantizer) for place, quantizer in quantizers.items() if place[1] in kinds}


def _fitted(
    calibration: Calibration, place: Place, config: RateConfig, progress: Progress
) -> Iterator[tuple[Made, Any]]:
    def say(key: Made) -> None:
        if progress:
            weights = f", weights {key.weights}" if key.weights else ""
            progress(f"codebooks of layer {place[0]}, {place[1]}s: {key.method}, seed {key.seed}{weights}")

    states = calibration.states[place][: whole("tokens", config.tokens, 1)]
    for seed in range(whole("arm_seeds", config.arm_seeds, 1)):
        for arm in ARMS:
            if stages := config.rates_of(arm, seed):
                say(key := Made(arm, seed))
                yield key, _chain(config, arm, max(stages), seed).fit(states)
    for channels, width in config.coupled:
        say(key := Made(coupled_name(channels, width)))
        yield key, CoupledQuantizer(channels, width, iterations=config.iterations).fit(states)
    if place in calibration.gradients:
        norms = gradient_norms(calibration.gradients[place], config.dimension)
        weights = {"none": None, "log": log_weights(norms, config.tau), "raw": norms}
        for seed in range(whole("seeds", config.seeds, 1)):
            for name in WEIGHTS:
                say(key := Made("GSKM", seed, name))
                chain = _chain(config, "GSKM", min(config.stages), seed)
                yield key, chain.fit(calibration.states[place][: len(norms)], weights[name])


def _chain(config: RateConfig, arm: str, stages: int, seed: int) -> ResidualQuantizer:
    rule, start = arm_of(arm)
    return ResidualQuantizer(
        config.dimension, stages, config.codewords, rule=rule, start=start, iterations=config.iterations, seed=seed
    )
