"""Loss against bits: a language model with keys and values of some layers quantised, all methods on the same text.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, tables 1, 6 and 11) compares residual chains of gain-shape k-means (GSKM)
with those of k-means, coupled quantisation (CQ) and others by perplexity: at each rate, with weights from gradients and
without, for keys alone and values alone. `compare`, `compare_weights`, `compare_kinds` and `transfer` measure
losses; `rate_units` and `claim_units` return what the claims are decided on. A loss is that of a model of which the
chosen layers are quantised, every token of them, and the others are not.

Codebooks come from `codebooks`, bits are counted by `bits`, losses measured by `language`; intervals are made by
`icml26.stats`, which resamples the blocks.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float64

from icml26.errors import InputError
from icml26.gsrq import bits
from icml26.gsrq.arms import ARMS
from icml26.gsrq.calibration import Progress
from icml26.gsrq.codebooks import WEIGHTS, Made, RateConfig, coupled_name, replacements
from icml26.gsrq.integers import kivi_keys, kivi_values
from icml26.gsrq.language import Evaluator, block_means
from icml26.gsrq.projections import KINDS, Place, Replacement

__all__ = [
    "FULL",
    "RateUnits",
    "claim_units",
    "compare",
    "compare_kinds",
    "compare_weights",
    "rate_units",
    "transfer",
]

FULL = "full precision"
"""The model as it is."""

_GSKM, _KMEANS, _CONTROL = "GSKM", "k-means++", "k-means, spherical start"


class RateUnits(NamedTuple):
    """Claim C5 at one rate.

    Attributes
    ----------
    rate : float
        Bits per value of GSKM, without codebooks.
    baseline : str
        The method with the lowest loss on the validation windows of those that take no more bits.
    differences : float64 array, blocks
        Test loss of GSKM less that of the baseline, in nats per token.
    """

    rate: float
    baseline: str
    differences: Float64[np.ndarray, " blocks"]


def compare(
    made: Mapping[Made, Mapping[Place, Any]],
    evaluators: Mapping[str, Evaluator],
    config: RateConfig,
    *,
    progress: Progress = None,
) -> pd.DataFrame:
    """Measure every method at every rate, keys and values quantised.

    Parameters
    ----------
    made
        Of `fit`.
    evaluators
        "validation" and "test"; on the former only what a baseline is chosen among is measured.
    config
        Sizes.
    progress
        Called with a line of text before each setting.

    Returns
    -------
    DataFrame
        A row for each setting and block: ``split, method`` ("full precision", an arm, "CQ-2c4b, uniform", "KIVI-2"),
        ``rate`` (bits per value with scales and minima, without codebooks; for KIVI those of a window, in which keys of
        a group that is not full stay in float16), ``paper_bits``, ``stages`` (0 where there are none),
        ``seed, kinds`` ("both"), ``weights`` (""), ``fitted_on, block, loss`` (nats per token).

    Raises
    ------
    InputError
        If codebooks were made with another configuration.
    """
    rows = []
    for split, evaluator in evaluators.items():
        measure = _Meter(evaluator, config, progress, split=split)
        if split == "test":
            rows += measure({}, FULL)
        for key, quantizers in made.items():
            if key.weights or (split != "test" and key.method in (_GSKM, _CONTROL)):
                continue
            if key.method not in ARMS:
                rows += measure(replacements(quantizers), key.method)
                continue
            for stages in config.rates_of(key.method, key.seed):
                rows += measure(replacements(quantizers, stages=stages), key.method, stages=stages, seed=key.seed)
        for width in config.integers:
            rows += measure(_integers(config, width), f"KIVI-{width}")
    return pd.DataFrame(rows)


def compare_kinds(
    made: Mapping[Made, Mapping[Place, Any]], evaluator: Evaluator, config: RateConfig, *, progress: Progress = None
) -> pd.DataFrame:
    """Measure k-means++ and GSKM at the lowest rate with keys alone and with values alone quantised.

    Parameters
    ----------
    made, config, progress
        As in `compare`.
    evaluator
        Of the test windows.

    Returns
    -------
    DataFrame
        As `compare`; ``kinds`` is "key" or "value".
    """
    lowest, rows, measure = min(config.stages), [], _Meter(evaluator, config, progress)
    for key, quantizers in made.items():
        if key.method in (_KMEANS, _GSKM) and not key.weights:
            for kind in KINDS:
                functions = replacements(quantizers, stages=lowest, kinds=(kind,))
                rows += measure(functions, key.method, stages=lowest, seed=key.seed, kinds=kind)
    return pd.DataFrame(rows)


def compare_weights(
    made: Mapping[Made, Mapping[Place, Any]], evaluator: Evaluator, config: RateConfig, *, progress: Progress = None
) -> pd.DataFrame:
    """Measure GSKM without weights, with log weights and with raw weights at the lowest rate, fitted to equal tokens.

    Parameters
    ----------
    made, config, progress
        As in `compare`.
    evaluator
        Of the test windows.

    Returns
    -------
    DataFrame
        As `compare`; ``weights`` is "none", "log" or "raw".
    """
    lowest, rows, measure = min(config.stages), [], _Meter(evaluator, config, progress)
    for key, quantizers in made.items():
        if key.weights:
            functions = replacements(quantizers, stages=lowest)
            rows += measure(functions, key.method, stages=lowest, seed=key.seed, weights=key.weights)
    return pd.DataFrame(rows)


def transfer(
    fitted: Mapping[str, Mapping[Place, Any]],
    evaluators: Mapping[str, Evaluator],
    config: RateConfig,
    *,
    progress: Progress = None,
) -> pd.DataFrame:
    """Measure GSKM codebooks fitted to one text on the test windows of each text.

    Parameters
    ----------
    fitted
        Chains by the name of the text that they were fitted to (`codebooks.fit_residual`, equally many tokens each).
    evaluators
        By the name of the text.
    config
        Sizes; the lowest rate is measured.
    progress
        Called with a line of text before each setting.

    Returns
    -------
    DataFrame
        As `compare`, with ``fitted_on`` and ``text`` the names of the texts; "full precision" is fitted on "".
    """
    lowest, rows = min(config.stages), []
    for text, evaluator in evaluators.items():
        measure = _Meter(evaluator, config, progress, text=text)
        rows += measure({}, FULL)
        for name, quantizers in fitted.items():
            rows += measure(replacements(quantizers, stages=lowest), _GSKM, stages=lowest, fitted_on=name)
    return pd.DataFrame(rows)


def rate_units(frame: pd.DataFrame) -> list[RateUnits]:
    """Set GSKM against the best other method at each rate.

    No method here has weights, neither GSKM (whose chains are GSRQ's without the weights from gradients) nor CQ.

    Parameters
    ----------
    frame
        Of `compare`. Candidates are CQ, KIVI and k-means++ of no more bits than GSKM, scales and minima counted; the
        control arm is none. The choice is made on the validation windows, and the mean of the seeds is compared.

    Returns
    -------
    list of RateUnits
        By rate, highest first.

    Raises
    ------
    InputError
        If the table lacks the validation windows or GSKM, or a rate has no candidate.
    """
    _has(frame, "method", _GSKM)
    losses = frame.groupby(["split", "method", "rate", "block"], sort=False)["loss"].mean()
    if "validation" not in frame["split"].unique():
        raise InputError("the table has no split 'validation' to choose baselines on: give compare both evaluators")
    others = losses["validation"].groupby(level=["method", "rate"], sort=False).mean()
    found = []
    for rate in sorted(losses["test", _GSKM].index.unique("rate"), reverse=True):
        candidates = others[others.index.get_level_values("rate") <= rate + 1e-9]
        if candidates.empty:
            raise InputError(f"no other method takes at most {rate:g} bits: add a smaller CQ to the comparison")
        method, own = candidates.idxmin()
        difference = losses["test", _GSKM, rate] - losses["test", method, own]
        found.append(RateUnits(float(rate), str(method), difference.to_numpy(dtype=np.float64)))
    return found


def claim_units(
    rates: pd.DataFrame, kinds: pd.DataFrame, weights: pd.DataFrame
) -> dict[str, Float64[np.ndarray, " blocks"]]:
    """What claims C6, C6b and C8 are decided on, and the loss beside C9: one value per block, seeds averaged.

    Parameters
    ----------
    rates
        Of `compare`.
    kinds
        Of `compare_kinds`.
    weights
        Of `compare_weights`.

    Returns
    -------
    dict
        C6 and C6b: loss with log and with raw weights less that without. C8: loss of k-means++ less that of GSKM with
        values alone quantised, minus the same with keys alone. C9: loss of GSKM less that of k-means from the same
        start, first seed, mean over the rates of the latter. All in nats per token.

    Raises
    ------
    InputError
        If a table lacks what a claim needs.
    """
    _has(weights, "weights", *WEIGHTS)
    _has(kinds, "kinds", *KINDS)
    _has(kinds, "method", _GSKM, _KMEANS)
    _has(rates, "method", _GSKM, _CONTROL)
    by_weights = weights.groupby(["weights", "block"])["loss"].mean()
    by_kind = kinds.groupby(["kinds", "method", "block"])["loss"].mean()
    test = rates[(rates["split"] == "test") & (rates["seed"] == 0)]
    test = test[test["rate"].isin(test.loc[test["method"] == _CONTROL, "rate"])]
    by_method = test.groupby(["method", "block"])["loss"].mean()
    gain = {kind: by_kind[kind, _KMEANS] - by_kind[kind, _GSKM] for kind in KINDS}
    units = {
        "C6": by_weights["log"] - by_weights["none"],
        "C6b": by_weights["raw"] - by_weights["none"],
        "C8": gain["value"] - gain["key"],
        "C9": by_method[_GSKM] - by_method[_CONTROL],
    }
    return {claim: values.to_numpy(dtype=np.float64) for claim, values in units.items()}


class _Meter:
    """Rows of the table for one setting after the other."""

    def __init__(self, evaluator: Evaluator, config: RateConfig, progress: Progress, **fixed: str) -> None:
        self.evaluator, self.config, self.progress = evaluator, config, progress
        self.fixed = {"split": "test", "text": ""} | fixed

    def __call__(
        self,
        functions: Mapping[Place, Replacement],
        method: str,
        *,
        stages: int = 0,
        seed: int = 0,
        kinds: str = "both",
        weights: str = "",
        fitted_on: str = "",
    ) -> list[dict[str, Any]]:
        storage = self._storage(method, stages)
        rate = storage.bits_per_value
        if isinstance(storage, bits.IntegerStorage):
            held = int(storage.cache_bytes(self.evaluator.length))
            rate = 8 * held / (2 * storage.channels * self.evaluator.length)
        setting = self.fixed | {
            "method": method,
            "rate": rate,
            "paper_bits": storage.paper_bits,
            "stages": stages,
            "seed": seed,
            "kinds": kinds,
            "weights": weights,
            "fitted_on": fitted_on,
        }
        if self.progress:
            beside = "" if kinds == "both" else f", {kinds}s alone"
            weighted = f", weights {weights}" if weights else ""
            self.progress(f"{setting['split']} loss: {method}, {rate:g} bits{beside}{weighted}")
        blocks = block_means(self.evaluator.losses(functions), self.config.block)
        return [setting | {"block": number, "loss": float(loss)} for number, loss in enumerate(blocks)]

    def _storage(self, method: str, stages: int) -> bits.Storage:
        channels, config = self.evaluator.channels, self.config
        if method in ARMS:
            return bits.residual(channels, dimension=config.dimension, stages=stages, codewords=config.codewords)
        for coupled, width in config.coupled:
            if method == coupled_name(coupled, width):
                return bits.coupled(channels, coupled_channels=coupled, bits=width)
        for width in config.integers:
            if method == f"KIVI-{width}":
                return bits.integers(channels, bits=width, group=config.group)
        if method != FULL:
            raise InputError(
                f"method={method!r} is not in the configuration: pass that which the codebooks were made with"
            )
        return bits.full_precision(channels)


def _has(frame: pd.DataFrame, column: str, *wanted: str) -> None:
    missing = [name for name in wanted if column not in frame.columns or name not in frame[column].unique()]
    if missing:
        raise InputError(f"the table has no {column} {missing[0]!r}: measure it first")


def _integers(config: RateConfig, width: int) -> dict[Place, Replacement]:
    rounded = {"key": kivi_keys, "value": kivi_values}

    def function(kind: str) -> Replacement:
        return lambda rows: rounded[kind](rows, width, group=config.group)

    return {(layer, kind): function(kind) for layer in config.layers for kind in KINDS}
