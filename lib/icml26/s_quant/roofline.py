"""Rates instead of clocks: where a speed-up by compression comes from, and where it stops.

S-Quant (Wang et al., ICML 2026, arXiv: none) claims 4 times the speed of uncompressed weights, as SeedLM (Shafipour et
al., arXiv 2410.10714) does for large products. Three bounds are here, each closed and vectorised: the roofline of port,
array and lanes in clocks per weight; a budget of multipliers shared by reconstruction and product; and Amdahl's law
over the bytes that stay uncompressed. `asic` counts clocks with tiles and buffers and never needs fewer than the
roofline; `overhead` has the fixed cost per product.
"""

import numpy as np
from jaxtyping import Float, Float64
from numpy.typing import ArrayLike

from icml26.errors import InputError
from icml26.s_quant.asic_config import Config, Design
from icml26.s_quant.workloads import Shape, cache_bytes, decode_step

__all__ = [
    "budget_for",
    "clocks_per_weight",
    "compute_bound_batch",
    "port_rate",
    "roofline_speedup",
    "shared_budget_rate",
    "streamed_speedup",
]


def port_rate(design: Design, bytes_per_clock: int = 64) -> float:
    """Weights per clock that the DRAM port delivers, 8 beta / q.

    Parameters
    ----------
    design
        How weights are stored.
    bytes_per_clock
        beta.

    Returns
    -------
    float
        Weights per clock.

    Examples
    --------
    >>> port_rate(Design.fp16()), port_rate(Design.seedlm())
    (32.0, 128.0)
    """
    return float(8 * bytes_per_clock / design.bits)


def clocks_per_weight(
    config: Config, design: Design, *, batch: ArrayLike | None = None, lanes: ArrayLike | None = None
) -> Float64[np.ndarray, "..."]:
    """The slowest of port, array and lanes: max(q/(8 beta), batch/n_mac, II/(B n_dec)).

    Parameters
    ----------
    config, design
        The machine, with lanes built for the design, and how weights are stored.
    batch, lanes
        Instead of the machine's; arrays broadcast.

    Returns
    -------
    float64 array
        Clocks per weight; II is the mean over the design's histogram.

    Examples
    --------
    >>> clocks_per_weight(Config(multipliers=128), Design.fp16(), batch=[1, 4, 8])
    array([0.03125, 0.03125, 0.0625 ])
    """
    config = config.for_design(design)
    array = np.asarray(config.batch if batch is None else batch, dtype=float) / config.multipliers
    lanes = np.asarray(config.lanes if lanes is None else lanes, dtype=float)
    decode = 0.0
    if design.decoder:
        clocks = sum(n * config.interval(k) for k, n in enumerate(design.histogram)) / sum(design.histogram)
        decode = clocks / design.decoder.block_size
    return np.maximum(np.maximum(1 / port_rate(design, config.bytes_per_clock), array), decode / lanes)


def roofline_speedup(
    config: Config,
    design: Design,
    reference: Design | None = None,
    *,
    batch: ArrayLike | None = None,
    lanes: ArrayLike | None = None,
) -> Float64[np.ndarray, "..."]:
    """Speed-up of a design over a reference at equal bandwidth and an equal array.

    Parameters
    ----------
    config, design, batch, lanes
        As in `clocks_per_weight`.
    reference
        FP16 unless given.

    Returns
    -------
    float64 array
        16/q where both are bound by memory, 1 where both are bound by the array.

    Examples
    --------
    >>> roofline_speedup(Config(multipliers=128), Design.seedlm(), batch=[1, 2, 4, 8])
    array([4., 2., 1., 1.])
    """
    before = clocks_per_weight(config, reference or Design.fp16(), batch=batch, lanes=lanes)
    return before / clocks_per_weight(config, design, batch=batch, lanes=lanes)


def compute_bound_batch(config: Config, design: Design) -> float:
    """The batch from which the array is slower than the port, q n_mac / (8 beta).

    Parameters
    ----------
    config, design
        The machine, and how weights are stored.

    Returns
    -------
    float
        Input vectors.

    Examples
    --------
    >>> [compute_bound_batch(Config(multipliers=2048), design) for design in (Design.fp16(), Design.seedlm())]
    [64.0, 16.0]
    """
    return config.multipliers / port_rate(design, config.bytes_per_clock)


def shared_budget_rate(
    design: Design, budget: ArrayLike, *, bytes_per_clock: int = 64, batch: int = 1
) -> Float64[np.ndarray, "..."]:
    """Weights per clock if one budget of multipliers serves reconstruction and product: min(8 beta/q, A/(batch + k)).

    Each weight takes one product per input vector and, if it is rebuilt, one per basis vector of its block. Widths are
    ignored: an S x 8 bit product counts as one of FP16.

    Parameters
    ----------
    design
        How weights are stored.
    budget
        A, multipliers in all.
    bytes_per_clock
        beta.
    batch
        Input vectors.

    Returns
    -------
    float64 array
        Weights per clock; a speed-up is the ratio of two.

    Examples
    --------
    >>> shared_budget_rate(Design.seedlm(), [128, 512, 1024])
    array([ 32., 128., 128.])
    """
    products = batch + float(design.mean_bases)
    return np.minimum(port_rate(design, bytes_per_clock), np.asarray(budget, dtype=float) / products)


def budget_for(design: Design, rate: float, batch: int = 1) -> float:
    """The least shared budget of multipliers that passes so many weights per clock, (batch + k) rate.

    Parameters
    ----------
    design
        How weights are stored.
    rate
        Weights per clock: `port_rate` of the design for its full speed, of the reference to break even.
    batch
        Input vectors.

    Returns
    -------
    float
        Multipliers.

    Examples
    --------
    >>> budget_for(Design.seedlm(), port_rate(Design.fp16())), budget_for(Design.seedlm(), port_rate(Design.seedlm()))
    (128.0, 512.0)
    """
    return (batch + float(design.mean_bases)) * rate


def streamed_speedup(
    model: str | Shape, bits: Float[ArrayLike, "..."], *, tokens: int = 0, head_bits: float = 16
) -> Float64[np.ndarray, "..."]:
    """Speed-up of a memory-bound decoding step by Amdahl's law over its bytes: weights, head, cached keys and values.

    Parameters
    ----------
    model
        A name in `workloads.MODELS`, or a shape.
    bits
        Stored bits per weight of the layers inside the blocks; 16 before.
    tokens
        Tokens in the FP16 cache of keys and values.
    head_bits
        Bits per weight of the output head, 16 before.

    Returns
    -------
    float64 array
        Bytes before over bytes after.

    Raises
    ------
    InputError
        If the model is not known, or bits are not positive.

    Examples
    --------
    >>> float(streamed_speedup("llama-3-8b", 3.8).round(2)), float(streamed_speedup("llama-2-7b", 3.8).round(2))
    (3.44, 3.96)
    """
    bits = np.asarray(bits, dtype=float)
    if not np.all(bits > 0) or not head_bits > 0:
        raise InputError(f"bits {bits} and head_bits {head_bits} per weight must be above 0")
    inside = sum(gemv.repeat * gemv.weights for gemv in decode_step(model, head=False))
    head = decode_step(model)[-1].weights
    cache = 8 * cache_bytes(model, tokens)
    return (16 * (inside + head) + cache) / (bits * inside + head_bits * head + cache)
