"""The accelerator as state machines that tick clock by clock: the definition that the closed form is tested against.

The model of S-Quant's (Wang et al., ICML 2026, arXiv: none) and SeedLM's (Shafipour et al., arXiv 2410.10714)
accelerators is the project's, see `asic`. The units know their own state and nothing of ceilings or maxima:

- the DRAM port is idle or fills a buffer, so many bits a clock; it takes the next tile when a buffer is empty;
- a buffer is empty, filling, full or draining;
- a decoder lane is idle or works on the first of its blocks (the serial lane accumulates, then emits);
- the array is idle or multiplies, so many products a clock; it takes the next full tile together with the lanes, and
  the buffer is empty when both have finished.

It is plain and slow on purpose, about a million ticks of a lane per second; `asic.simulate` gives the same schedule.
"""

from collections import deque
from fractions import Fraction
from math import ceil

import numpy as np
from jaxtyping import Integer

from icml26.s_quant.asic import SCHEDULE, Trace, check, draw_counts
from icml26.s_quant.asic_config import Config, Design, Gemv

__all__ = ["replay"]


class _Port:
    """The DRAM port: idle, or filling a buffer."""

    def __init__(self, bits_per_clock: int) -> None:
        self.bits_per_clock, self.missing = bits_per_clock, 0

    def take(self, bits: int) -> None:
        self.missing = bits

    def tick(self) -> None:
        self.missing = max(0, self.missing - self.bits_per_clock)

    @property
    def idle(self) -> bool:
        return self.missing == 0


class _Array:
    """The multipliers: idle, or working through a tile's products."""

    def __init__(self, multipliers: int) -> None:
        self.multipliers, self.products = multipliers, 0

    def take(self, products: int) -> None:
        self.products = products

    def tick(self) -> None:
        self.products = max(0, self.products - self.multipliers)

    @property
    def idle(self) -> bool:
        return self.products == 0


class _Lane:
    """One decoder lane: its blocks in order, each a run of phases with the clocks that remain of it."""

    def __init__(self) -> None:
        self.phases: deque[int] = deque()
        self.busy = 0  # clocks at work so far

    def take(self, k: int, block: int, initiation: str) -> None:
        if initiation == "serial":
            self.phases += [block] * k  # one product a clock, base after base
            self.phases.append(block)  # one weight a clock
        elif initiation == "overlapped":
            self.phases += [block] * max(k, 1)  # the previous block leaves meanwhile
        else:
            self.phases.append({"column-parallel": block, "leap-forward": 1}[initiation])

    def tick(self) -> None:
        if self.phases:
            self.busy += 1
            self.phases[0] -= 1
            if not self.phases[0]:
                self.phases.popleft()

    @property
    def idle(self) -> bool:
        return not self.phases


def replay(
    gemv: Gemv, config: Config, design: Design, *, counts: Integer[np.ndarray, " blocks"] | None = None, seed: int = 0
) -> Trace:
    """Run one product clock by clock.

    Parameters
    ----------
    gemv, config, design, counts, seed
        As in `asic.simulate`.

    Returns
    -------
    Trace
        The schedule, as it came about.

    Raises
    ------
    InputError
        If the machine cannot run it (`asic.check`).

    Examples
    --------
    >>> machine = Config(bytes_per_clock=8, multipliers=8, lanes=4, tile_weights=64).for_design(Design.seedlm())
    >>> replay(Gemv(4, 40), machine, Design.seedlm()).schedule[["load_start", "load_end", "compute_end"]].tolist()
    [(0, 4, 20), (4, 8, 36), (20, 22, 44)]
    """
    check(gemv, config, design, counts)
    pending = deque()
    if design.decoder:
        pending.extend((draw_counts(gemv, design, seed) if counts is None else np.asarray(counts)).tolist())
    port, array, lanes = _Port(8 * config.bytes_per_clock), _Array(config.multipliers), []
    if design.decoder:
        lanes = [_Lane() for _ in range(config.lanes)]
    buffers = ["empty", "empty"]
    sizes = [config.tile_weights] * (gemv.weights // config.tile_weights)
    if gemv.weights % config.tile_weights:
        sizes.append(gemv.weights % config.tile_weights)
    rows = [dict.fromkeys(SCHEDULE.names, 0) for _ in sizes]
    for row, size in zip(rows, sizes, strict=True):
        row["weights"], row["bits"] = size, ceil(Fraction(size) * design.bits) + design.tile_bits

    clock, loading, loaded, computed = 0, 0, 0, 0  # tiles that began to load, were loaded, were computed
    working = False
    while computed < len(sizes):
        if clock >= config.latency and port.idle and loading < len(sizes) and buffers[loading % 2] == "empty":
            buffers[loading % 2] = "filling"
            port.take(rows[loading]["bits"])
            rows[loading]["load_start"] = clock
            loading += 1
        if not working and computed < loaded:
            working, row = True, rows[computed]
            buffers[computed % 2] = "draining"
            row["compute_start"] = row["decode_end"] = clock
            array.take(row["weights"] * config.batch)
            if design.decoder:
                for block in range(-(-row["weights"] // design.decoder.block_size)):
                    lane = lanes[block % config.lanes]
                    lane.take(pending.popleft(), design.decoder.block_size, config.initiation)
            before = sum(lane.busy for lane in lanes)
            decoding = [lane for lane in lanes if not lane.idle]

        clock += 1
        if not port.idle:
            port.tick()
            if port.idle:
                rows[loaded]["load_end"] = clock
                buffers[loaded % 2] = "full"
                loaded += 1
        if working:
            if decoding:
                for lane in decoding:
                    lane.tick()
                decoding = [lane for lane in decoding if not lane.idle]
                row["decode_end"] = clock
            if not array.idle:
                array.tick()
                row["multiply_end"] = clock
            if not decoding and array.idle:
                row["compute_end"], row["lane_clocks"] = clock, sum(lane.busy for lane in lanes) - before
                buffers[computed % 2] = "empty"
                computed += 1
                working = False
    schedule = np.array([tuple(row.values()) for row in rows], dtype=SCHEDULE)
    return Trace(gemv, config, design, schedule)
