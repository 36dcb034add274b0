"""Speed-ups of the accelerator model: over sweeps of the machine, at equal area, and with their intervals.

The claim of S-Quant (Wang et al., ICML 2026, arXiv: none) is the clocks of FP16 over the clocks of its own weights at
batch 1. The measured sample enters through the stored bits, resampled by scale group, and through the numbers of bases,
which decide how many lanes are enough (`enough_lanes`) and what those lanes cost (`equal_area`). One product is
`asic`'s business, rates and closed-form bounds are in `roofline`, shapes of whole models in `workloads`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Integer

from icml26 import stats
from icml26.errors import InputError
from icml26.s_quant.asic import Trace, simulate
from icml26.s_quant.asic_config import Config, Design, Gemv
from icml26.s_quant.config import SQuantConfig, check_integer

__all__ = ["enough_lanes", "equal_area", "speedup", "speedup_interval", "step_clocks", "sweep"]


def step_clocks(gemvs: Iterable[Gemv], config: Config, design: Design, *, seed: int = 0) -> int:
    """Clocks of several products one after the other, such as a decode step; lanes are built for the design.

    Layers of one shape share their draw of bases; what no design compresses runs in FP16.

    Parameters
    ----------
    gemvs
        The products.
    config, design
        The machine, and how weights are stored.
    seed
        Of the draws, one after the other.

    Returns
    -------
    int
        Clocks.

    Raises
    ------
    InputError
        As `simulate`.

    Examples
    --------
    >>> step_clocks([Gemv(512, 512, repeat=2), Gemv(64, 64, compressed=False)], Config(), Design.seedlm())
    4752
    """
    total = 0
    for number, gemv in enumerate(gemvs):
        used = design if gemv.compressed else Design.fp16()
        total += gemv.repeat * simulate(gemv, config.for_design(used), used, seed=seed + number).clocks
    return total


def speedup(gemvs: Sequence[Gemv], config: Config, design: Design, reference: Design | None = None) -> float:
    """Clocks of a reference over clocks of a design, on machines that differ in nothing but the lanes' decoder.

    Parameters
    ----------
    gemvs
        The products, one after the other.
    config
        The machine.
    design, reference
        How weights are stored; the reference is FP16 unless given.

    Returns
    -------
    float
        Above 1 where the design is faster.

    Examples
    --------
    >>> round(speedup([Gemv(4096, 4096)], Config(), Design.seedlm()), 3)
    3.994
    """
    return step_clocks(gemvs, config, reference or Design.fp16()) / step_clocks(gemvs, config, design)


def sweep(
    field: str, values: Sequence, gemvs: Sequence[Gemv], config: Config, design: Design, reference: Design | None = None
) -> Float64[np.ndarray, " values"]:
    """Speed-up while one parameter of the machine changes, for both designs alike.

    Parameters
    ----------
    field
        A field of `Config`, such as ``"batch"``, ``"lanes"``, ``"multipliers"``, ``"bytes_per_clock"``.
    values
        What it takes.
    gemvs, config, design, reference
        As in `speedup`.

    Returns
    -------
    float64 array, one entry per value
        Speed-ups.

    Raises
    ------
    InputError
        If `Config` has no such field, or as `simulate`.

    Examples
    --------
    >>> sweep("batch", [1, 4, 16], [Gemv(1024, 1024)], Config(), Design.seedlm()).round(2)
    array([3.91, 2.  , 1.02])
    """
    if field not in Config.__dataclass_fields__:
        raise InputError(f"field {field!r} is none of the machine's: use {', '.join(Config.__dataclass_fields__)}")
    return np.array([speedup(gemvs, replace(config, **{field: value}), design, reference) for value in values])


def enough_lanes(config: Config, design: Design) -> int:
    """The least number of lanes with which decoding never outlasts a full tile's load, however many bases it draws.

    Parameters
    ----------
    config, design
        The machine, and how weights are stored; with a decoder.

    Returns
    -------
    int
        Lanes.

    Raises
    ------
    InputError
        If a lane spends longer on one block than the port on a tile.

    Examples
    --------
    >>> [enough_lanes(Config(initiation=how), Design.seedlm()) for how in ("column-parallel", "leap-forward")]
    [128, 16]
    """
    config = config.for_design(design)
    load = -(-design.stored_bits(config.tile_weights) // (8 * config.bytes_per_clock))
    interval = config.interval(max(k for k, n in enumerate(design.histogram) if n))
    if interval > load:
        raise InputError(
            f"tile_weights {config.tile_weights} load in {load} clocks, a block takes {interval}: use more"
        )
    return -(-config.tile_weights // config.decoder.block_size // (load // interval))


def equal_area(config: Config, design: Design, budget: int) -> Config:
    """The machine with so many multipliers in all, divided between the array and one-multiplier lanes.

    Parameters
    ----------
    config, design
        The machine, and how weights are stored.
    budget
        A, multipliers in all, 2 or more. Widths are ignored: a reconstruction multiplier counts as one of the array.

    Returns
    -------
    Config
        The lanes get the share mean k / (batch + mean k), the products per weight that are reconstruction; without a
        decoder the array gets all.

    Raises
    ------
    InputError
        If the budget is below 2.

    Examples
    --------
    >>> machine = equal_area(Config(), Design.seedlm(), 128)
    >>> machine.multipliers, machine.lanes, machine.lane_multipliers
    (32, 96, 1)
    """
    check_integer("budget", budget, 2, 1 << 20)
    if design.decoder is None:
        return replace(config, multipliers=budget)
    share = design.mean_bases / (config.batch + design.mean_bases)
    lanes = min(max(1, round(budget * share)), budget - 1)
    return replace(config.for_design(design), initiation="overlapped", lanes=lanes, multipliers=budget - lanes)


def speedup_interval(
    gemvs: Sequence[Gemv],
    config: Config,
    codec: SQuantConfig,
    counts: Integer[np.ndarray, " n"],
    *,
    seed: int,
    resamples: int = 2000,
    count_bits: int | None = None,
    reference: Design | None = None,
) -> stats.Interval:
    """Speed-up of S-Quant with the bits and bases of a sample, and its bootstrap interval over scale groups.

    With enough lanes the bases matter through the bits alone, so each resample of the groups gives exact stored bits
    and with them new loads of every tile; how long tiles compute is drawn once, from the whole sample.

    Parameters
    ----------
    gemvs
        The products, one after the other.
    config
        The machine, with enough lanes.
    codec
        S-Quant's parameters.
    counts : integer array, n blocks
        k of each block of whole scale groups, such as ``Encoded.counts``.
    seed, resamples
        Of the bootstrap; the seed also draws the bases of the simulated products.
    count_bits
        As in `Design.s_quant`.
    reference
        FP16 unless given.

    Returns
    -------
    Interval
        Speed-up; the value is `speedup`'s.

    Raises
    ------
    InputError
        If the lanes are not enough, the last group is short, or as `simulate`.

    Examples
    --------
    >>> counts = np.repeat([4, 6], 64)
    >>> found = speedup_interval([Gemv(1024, 1024)], Config(), SQuantConfig(), counts, seed=0)
    >>> found.low < round(found.value, 2) == 4.02 < found.high
    True
    """
    counts = np.asarray(counts)
    if counts.size % codec.group_size:
        raise InputError(f"counts hold {counts.size} blocks, no multiple of the scale group's {codec.group_size}: cut")
    design = Design.s_quant(codec, counts, count_bits)
    config = config.for_design(design)
    if config.lanes < (enough := enough_lanes(config, design)):
        raise InputError(f"lanes {config.lanes} would bound the speed beside the memory: use {enough} or more")
    before = step_clocks(gemvs, config, reference or Design.fp16())
    weights = codec.group_size * codec.block_size
    vectors = counts.reshape(-1, codec.group_size).sum(1, dtype=np.int64)
    fixed = int(design.bits * counts.size * codec.block_size) - codec.coefficient_bits * int(vectors.sum())
    bits = fixed // vectors.size + codec.coefficient_bits * vectors
    fixed_clocks, runs = 0, []
    for number, gemv in enumerate(gemvs):
        if gemv.compressed:
            runs.append((gemv.repeat, simulate(gemv, config, design, seed=seed + number)))
        else:
            fixed_clocks += step_clocks([gemv], config, design)

    def ratio(bits: Float64[np.ndarray, "*batch groups"], axis: int) -> Float64[np.ndarray, "*batch"]:
        stored = bits.sum(axis).astype(np.int64)  # whole numbers far below 2^53
        clocks = np.full(stored.shape, fixed_clocks)
        for repeat, run in runs:
            clocks += repeat * _clocks(run, stored, bits.shape[axis] * weights, design.tile_bits)
        return before / clocks

    return stats.bootstrap_interval(ratio, bits, seed=seed, resamples=resamples)


def _clocks(run: Trace, stored: np.ndarray, weights: int, tile_bits: int) -> np.ndarray:
    """T at other stored bits per weight, stored / weights each, with the computing times of a run."""
    tiles, width = run.schedule, 8 * run.config.bytes_per_clock

    def load(size: int) -> np.ndarray:
        return -(-(-(-size * stored // weights) + tile_bits) // width)

    compute = tiles["compute_end"] - tiles["compute_start"]
    first, last = (load(int(tiles["weights"][i])) for i in (0, -1))
    distinct, repeats = np.unique(compute[:-2], return_counts=True)
    clocks = run.config.latency + first + np.maximum(first[..., None], distinct) @ repeats + compute[-1]
    return clocks + np.maximum(last, compute[-2]) if len(tiles) > 1 else clocks
