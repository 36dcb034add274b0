"""Clocks of an accelerator that streams encoded weights: the closed form, its schedule, and what to compare.

A product's weights come in n tiles; tile i takes load_i clocks of the DRAM port, then comp_i clocks of the decoder
lanes and the multiplier array, which work at the same time. With two buffers, tile i + 1 loads while tile i computes,

    load_i = ceil(bits_i / (8 beta)),   comp_i = max(dec_i, ceil(w_i batch / n_mac)),
    dec_i = max over lanes of the sum of II(k_j), block j of a tile in lane j mod n_dec,
    T = L + load_0 + sum over i < n - 1 of max(load_{i+1}, comp_i) + comp_{n-1}.

The model is this project's own: S-Quant (Wang et al., ICML 2026, arXiv: none) reports 4 times the speed on an
accelerator whose simulator is not public, SeedLM (Shafipour et al., arXiv 2410.10714) three products on an FPGA. Only
integers enter a ceiling. `asic_events` finds the same schedule by ticking state machines clock by clock, `roofline` has
rates instead of clocks, `asic_study` speed-ups and their intervals; parameters are in `asic_config`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64, Integer

from icml26.errors import InputError
from icml26.s_quant.asic_config import Config, Decoder, Design, Gemv

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SCHEDULE",
    "Config",
    "Decoder",
    "Design",
    "Gemv",
    "Trace",
    "closed_form",
    "draw_counts",
    "needed_sram",
    "simulate",
]

SCHEDULE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "weights",
            "bits",
            "load_start",
            "load_end",
            "compute_start",
            "decode_end",
            "multiply_end",
            "compute_end",
            "lane_clocks",
        )
    ]
)
ACTIVATION_BYTES = 2  # FP16 inputs


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened when, tile by tile.

    Parameters
    ----------
    gemv, config, design
        What ran on what.
    schedule : structured array of type `SCHEDULE`, n tiles
        Weights and stored bits of each tile, the clocks at which its phases start and end (an end is the first clock
        after), and the clocks that all lanes together were busy with it.
    """

    gemv: Gemv
    config: Config
    design: Design
    schedule: np.ndarray

    @property
    def clocks(self) -> int:
        """T, clocks from the request to the last product."""
        return int(self.schedule["compute_end"][-1])

    def table(self) -> "pd.DataFrame":
        """The schedule, one row per tile; its ``to_csv`` is what a testbench is held to."""
        import pandas as pd  # loaded for those who want a table

        return pd.DataFrame(self.schedule).rename_axis("tile")

    def summary(self) -> dict[str, float]:
        """Clocks, seconds, and the share of the whole time that each unit works.

        Returns
        -------
        dict of str to float
            ``clocks``; ``seconds``; ``weights_per_clock``; ``port_utilisation``, ``array_utilisation`` and
            ``lane_utilisation`` (0 without decoder), shares of capacity over all clocks; ``lane_balance``, the lanes'
            share of capacity while a tile decodes, lost when lanes wait for the one with the most bases (1 without
            decoder); ``memory_bound``, the share of tiles whose successor's load takes longer than they compute.
        """
        s, config, clocks = self.schedule, self.config, self.clocks
        decoding = int((s["decode_end"] - s["compute_start"]).sum()) * config.lanes
        lane_clocks = int(s["lane_clocks"].sum())
        load = s["load_end"] - s["load_start"]
        compute = s["compute_end"] - s["compute_start"]
        return {
            "clocks": clocks,
            "seconds": clocks / config.clock_hz,
            "weights_per_clock": self.gemv.weights / clocks,
            "port_utilisation": int(load.sum()) / clocks,
            "array_utilisation": self.gemv.weights * config.batch / (config.multipliers * clocks),
            "lane_utilisation": lane_clocks / (config.lanes * clocks),
            "lane_balance": lane_clocks / decoding if decoding else 1.0,
            "memory_bound": float((load[1:] > compute[:-1]).mean()) if len(s) > 1 else 0.0,
        }


def closed_form(
    load: Int64[np.ndarray, "*batch n"], compute: Int64[np.ndarray, "*batch n"], latency: int = 0
) -> Int64[np.ndarray, "*batch"]:
    """Clocks of a double-buffered product.

    Parameters
    ----------
    load, compute : int array, ... x n tiles
        Clocks of each tile; leading axes broadcast.
    latency
        L, once.

    Returns
    -------
    int array
        T.

    Examples
    --------
    >>> closed_form(np.array([4, 4, 1]), np.array([3, 5, 2])).item()
    15
    """
    load, compute = np.broadcast_arrays(load, compute)
    return latency + load[..., 0] + np.maximum(load[..., 1:], compute[..., :-1]).sum(-1) + compute[..., -1]


def needed_sram(gemv: Gemv, config: Config, design: Design) -> int:
    """Bytes on the chip: two tiles of stored weights, and the FP16 input vectors.

    Parameters
    ----------
    gemv, config, design
        What runs on what.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> needed_sram(Gemv(4096, 4096), Config(), Design.fp16())
    270336
    """
    tile = -(-design.stored_bits(min(config.tile_weights, gemv.weights)) // 8)
    return 2 * tile + config.batch * gemv.columns * ACTIVATION_BYTES


def check(gemv: Gemv, config: Config, design: Design, counts: Integer[np.ndarray, " blocks"] | None = None) -> None:
    """Raise InputError unless the machine can run this product.

    Parameters
    ----------
    gemv, config, design
        What runs on what.
    counts : integer array, blocks
        Bases of each block, if they are given.

    Raises
    ------
    InputError
        If the lanes decode something else, blocks do not fill rows and tiles, the on-chip memory is too small, or the
        counts do not fit the product.

    Examples
    --------
    >>> check(Gemv(4096, 4096), Config(), Design.fp16())
    """
    if design.decoder and design.decoder != config.decoder:
        raise InputError(f"config's lanes are not built for design {design.name!r}: use config.for_design(design)")
    if design.decoder:
        block = design.decoder.block_size
        for name, size in (("columns", gemv.columns), ("tile_weights", config.tile_weights)):
            if size % block:
                raise InputError(f"{name} {size} is no multiple of the block of {block} weights: pad, or change it")
    needed = needed_sram(gemv, config, design)
    if needed > config.sram_bytes:
        what = f"two tiles of design {design.name!r} and {config.batch} input vectors of {gemv.columns}"
        remedy = f"use {needed} or more, or a smaller tile or batch"
        raise InputError(f"sram_bytes {config.sram_bytes} cannot hold {what}: {remedy}")
    if counts is not None:
        blocks, limit = (gemv.weights // block, design.decoder.k_max) if design.decoder else (0, 0)
        given = np.asarray(counts)
        fits = blocks and given.shape == (blocks,) and given.dtype.kind in "iu"
        if not fits or not 1 <= given.min() <= given.max() <= limit:
            raise InputError(f"counts of shape {given.shape} do not fit: give {blocks} integers from 1 to {limit}")


def draw_counts(gemv: Gemv, design: Design, seed: int) -> Integer[np.ndarray, " blocks"]:
    """Draw the number of bases of each block of a product from the design's measured histogram.

    Parameters
    ----------
    gemv, design
        The product, and how its weights are stored; with a decoder.
    seed
        Of the draw.

    Returns
    -------
    uint8 array, blocks
        k of each block, row by row.

    Examples
    --------
    >>> draw_counts(Gemv(1, 32), Design.seedlm(), seed=0)
    array([3, 3, 3, 3], dtype=uint8)
    """
    blocks = gemv.weights // design.decoder.block_size
    used = np.flatnonzero(design.histogram).astype(np.uint8)
    if used.size == 1:
        return np.full(blocks, used[0])
    share = np.array(design.histogram, dtype=float)[used]
    return np.random.default_rng(seed).choice(used, blocks, p=share / share.sum())


def _tiles(values: np.ndarray, size: int) -> np.ndarray:
    """Cut a row of values into rows of `size`, the last one filled up with zeros."""
    padded = np.zeros(-(-values.size // size) * size, values.dtype)
    padded[: values.size] = values
    return padded.reshape(-1, size)


def simulate(
    gemv: Gemv, config: Config, design: Design, *, counts: Integer[np.ndarray, " blocks"] | None = None, seed: int = 0
) -> Trace:
    """Run one product by the closed form.

    A tile's bits are the design's mean rate; its decoding takes what its own blocks take.

    Parameters
    ----------
    gemv, config, design
        What runs on what.
    counts : integer array, blocks
        Bases of each block, row by row; default: drawn from the design's histogram.
    seed
        Of the draw.

    Returns
    -------
    Trace
        The schedule.

    Raises
    ------
    InputError
        If the machine cannot run it (`check`).

    Examples
    --------
    >>> machine = Config(multipliers=1024)
    >>> [simulate(Gemv(512, 512), machine, d).clocks for d in (Design.fp16(), Design.rounded())]
    [8256, 2176]
    """
    check(gemv, config, design, counts)
    tiles = -(-gemv.weights // config.tile_weights)
    last = gemv.weights - (tiles - 1) * config.tile_weights
    s = np.zeros(tiles, SCHEDULE)

    def fill(function) -> Int64[np.ndarray, " tiles"]:  # only the last tile differs
        full = np.full(tiles, function(min(config.tile_weights, gemv.weights)), dtype=np.int64)
        full[-1] = function(last)
        return full

    s["weights"] = fill(lambda weights: weights)
    s["bits"] = fill(design.stored_bits)
    load = fill(lambda weights: -(-design.stored_bits(weights) // (8 * config.bytes_per_clock)))
    decode = np.zeros(tiles, dtype=np.int64)
    if design.decoder:
        counts = draw_counts(gemv, design, seed) if counts is None else np.asarray(counts)
        interval = np.array([config.interval(k) for k in range(config.decoder.k_max + 1)])
        clocks = _tiles(interval[counts], config.tile_weights // config.decoder.block_size)
        s["lane_clocks"] = clocks.sum(1)
        rounds = np.pad(clocks, ((0, 0), (0, -clocks.shape[1] % config.lanes))).reshape(tiles, -1, config.lanes)
        decode = rounds.sum(1).max(1)
    multiply = fill(lambda weights: -(-weights * config.batch // config.multipliers))
    compute = np.maximum(decode, multiply)
    s["compute_start"] = config.latency + load[0]
    s["compute_start"][1:] += np.maximum(load[1:], compute[:-1]).cumsum()
    s["load_start"][0] = config.latency
    s["load_start"][1:] = s["compute_start"][:-1]
    for name, start, clocks in (
        ("load_end", "load_start", load),
        ("decode_end", "compute_start", decode),
        ("multiply_end", "compute_start", multiply),
        ("compute_end", "compute_start", compute),
    ):
        s[name] = s[start] + clocks
    return Trace(gemv, config, design, s)
