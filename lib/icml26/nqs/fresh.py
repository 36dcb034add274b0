"""Fresh evidence: a grid of small language models trained on real text.

`run_grid` trains models of several sizes N with several batch sizes B for several numbers of steps K on one pass over
text and measures the held-out loss: the design of Li and Maddison (ICML 2026, arXiv 2605.09154) at a laptop's scale,
one constant recipe, and no formula has made the losses. The models are `fresh_lm`'s; what laws of loss make of the grid
is `fresh_corner`'s business.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor

from icml26 import stats, tasks
from icml26.checks import whole
from icml26.errors import InputError
from icml26.nqs import fresh_lm
from icml26.nqs.checks import numeric
from icml26.nqs.measurements import compute

__all__ = ["QUICK", "GridConfig", "run_grid", "seed_mean"]


@dataclass(frozen=True)
class GridConfig:
    """The grid and its one recipe.

    The rate was chosen on the cheapest corner alone. The smallest model with the smallest batch comes to 2.77, 2.52,
    2.35, 2.27, 2.29 and 2.42 nats per byte after 1,024 steps at 1, 2, 4, 8, 16 and 32 times 1e-3; half the best serves
    all sizes, because the best rate of Adam falls with the width.

    Parameters
    ----------
    widths
        Of the models; with two layers, N is ``64 width + 24 width^2``.
    batches
        Sequences per step, B.
    steps
        Checkpoints of each run, K, rising.
    max_sequences
        Runs end at the last checkpoint with B K no greater: the text that one pass may use.
    seeds
        Each with weights and an order of the text of its own, which all its runs share.
    sequence_length
        Predicted bytes per sequence.
    vocabulary
        Symbols: the commonest bytes of the text, and one for all others.
    learning_rate, warmup
        Adam's constant rate, and the steps over which it is reached.
    held_out
        Sequences to measure on, at most.

    Raises
    ------
    InputError
        If a value is out of its range, or no run fits into `max_sequences`.

    Examples
    --------
    >>> len(GridConfig().runs()), GridConfig().runs()[-1]
    (16, (48, 128, (64, 128)))
    """

    widths: tuple[int, ...] = (8, 16, 32, 48)
    batches: tuple[int, ...] = (2, 8, 32, 128)
    steps: tuple[int, ...] = (64, 128, 256, 512, 1024)
    max_sequences: int = 1 << 14
    seeds: tuple[int, ...] = (0, 1, 2)
    sequence_length: int = 24
    vocabulary: int = 64
    learning_rate: float = 4e-3
    warmup: int = 16
    held_out: int = 512

    def __post_init__(self) -> None:
        for name in ("widths", "batches", "steps"):
            _check_integers(name, getattr(self, name), 1)
        if wrong := [width for width in self.widths if width % fresh_lm.HEAD_WIDTH]:
            raise InputError(f"widths={wrong[0]} must be a multiple of {fresh_lm.HEAD_WIDTH}, the width of a head")
        for name in ("max_sequences", "sequence_length", "vocabulary", "warmup", "held_out"):
            whole(name, getattr(self, name), 1)
        _check_integers("seeds", self.seeds, 0)
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds={self.seeds!r} must be different integers, one or more")
        if not 2 <= self.vocabulary <= 257:
            raise InputError(f"vocabulary={self.vocabulary} must be 2 to 257: common bytes and one for the others")
        rate = "a positive number, such as 4e-3"
        if not 0 < numeric("learning_rate", self.learning_rate, rate, ndim=0) < np.inf:
            raise InputError(f"learning_rate={self.learning_rate!r} must be {rate}")
        if not self.runs():
            raise InputError(f"max_sequences={self.max_sequences} is below the smallest batch times steps: raise it")

    def runs(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """List the runs of each seed.

        Returns
        -------
        list of tuple
            Width, batch and checkpoints.
        """
        found = []
        for width in self.widths:
            for batch in self.batches:
                checkpoints = tuple(steps for steps in self.steps if batch * steps <= self.max_sequences)
                if checkpoints:
                    found.append((width, batch, checkpoints))
        return found


def run_grid(
    config: GridConfig,
    train_text: str,
    held_out_text: str,
    progress: Callable[[str, float], None] | None = None,
) -> pd.DataFrame:
    """Train every model of the grid and measure its held-out loss at every checkpoint.

    Equal arguments give equal losses, bit for bit, on one machine with one number of threads.

    Parameters
    ----------
    config : GridConfig
        The grid.
    train_text, held_out_text : str
        Texts, such as the two of `icml26.tasks.english_text`; no part of the first is seen twice in a run.
    progress : callable, optional
        Called after each checkpoint with the run's name and the share of all compute that is done, up to 1.

    Returns
    -------
    DataFrame
        A row for each seed and configuration: ``N, B, K, seed, loss`` (nats per byte), ``tokens`` (bytes seen),
        ``compute`` (FLOPs, 6 N per byte).

    Raises
    ------
    InputError
        If a text is too short, or the training diverges.

    Examples
    --------
    >>> tiny = GridConfig(widths=(8,), batches=(2, 4), steps=(8, 16), max_sequences=32, seeds=(0,))
    >>> run_grid(tiny, "to be or not to be " * 99, "not to be " * 20)[["N", "B", "K"]].values.tolist()
    [[2048, 2, 8], [2048, 2, 16], [2048, 4, 8]]
    """
    if not isinstance(config, GridConfig):
        raise InputError(f"config={config!r} must be a GridConfig")
    length = config.sequence_length + 1
    for name, text in (("train_text", train_text), ("held_out_text", held_out_text)):
        if not isinstance(text, str) or len(text.encode()) < length:
            raise InputError(f"{name}={text!r} must be text of {length} bytes or more: a sequence and the byte before")
    symbols = _alphabet(tasks.byte_tokens(train_text), config.vocabulary)
    train, held = (
        tasks.segments(symbols[tasks.byte_tokens(text)], length, limit)
        for text, limit in ((train_text, None), (held_out_text, config.held_out))
    )
    runs = config.runs()
    needed = max(batch * checkpoints[-1] for _, batch, checkpoints in runs)
    if len(train) < needed:
        raise InputError(
            f"train_text gives {len(train)} sequences of {length} bytes and one pass needs {needed}: "
            "use a longer text, or lower max_sequences"
        )
    streams = []
    for seed in config.seeds:
        order = torch.Generator().manual_seed(stats.seeds(seed, 1)[0])  # apart from the one of the weights
        streams.append(train[torch.randperm(len(train), generator=order)[:needed]])
    total = sum(width**2 * batch * checkpoints[-1] for width, batch, checkpoints in runs)
    done, rows = 0, []
    for width, batch, checkpoints in runs:
        size = fresh_lm.parameters(width, config.vocabulary)
        states = fresh_lm.trajectory(
            fresh_lm.initial_weights(width, config.vocabulary, config.seeds), streams, held, batch=batch,
            checkpoints=checkpoints, learning_rate=config.learning_rate, warmup=config.warmup,
        )  # fmt: skip
        for steps, losses in states:
            rows += [(size, batch, steps, seed, loss) for seed, loss in zip(config.seeds, losses, strict=True)]
            if progress:
                progress(f"N={size:,} B={batch} K={steps}", (done + width**2 * batch * steps) / total)
        done += width**2 * batch * checkpoints[-1]
    frame = pd.DataFrame(rows, columns=["N", "B", "K", "seed", "loss"])
    frame["tokens"] = frame["B"] * frame["K"] * config.sequence_length
    frame["compute"] = compute(frame["N"], frame["B"], frame["K"], config.sequence_length)
    return frame


def seed_mean(frame: pd.DataFrame) -> pd.DataFrame:
    """Average the losses of each configuration over seeds.

    Parameters
    ----------
    frame : DataFrame
        As `run_grid` gives it.

    Returns
    -------
    DataFrame
        ``N, B, K, loss, spread`` (standard deviation over seeds, nats per byte; NaN for one seed), ``tokens, compute``.

    Examples
    --------
    >>> frame = pd.DataFrame({"N": 1, "B": 2, "K": 3, "seed": [0, 1], "loss": [2.0, 4.0], "tokens": 6, "compute": 36.0})
    >>> seed_mean(frame)["loss"].tolist()
    [3.0]
    """
    groups = frame.groupby(["N", "B", "K"], as_index=False)
    return groups.agg(
        loss=("loss", "mean"), spread=("loss", "std"), tokens=("tokens", "first"), compute=("compute", "first")
    )


def _alphabet(tokens: Int64[Tensor, " bytes"], vocabulary: int) -> Int64[Tensor, "256"]:
    """Number the commonest bytes from 0; all others share the last symbol."""
    counts = torch.bincount(tokens, minlength=256)
    symbols = torch.full((256,), vocabulary - 1)
    common = torch.argsort(counts, descending=True, stable=True)[: vocabulary - 1]
    symbols[common] = torch.arange(len(common))
    return symbols


def _check_integers(name: str, values: tuple[int, ...], least: int) -> None:
    if not isinstance(values, tuple | list) or not values:
        raise InputError(f"{name}={values!r} must be a tuple of integers, one or more")
    for value in values:
        whole(name, value, least)
    if list(values) != sorted(set(values)) and name != "seeds":
        raise InputError(f"{name}={values!r} must be rising integers, one or more")


QUICK = GridConfig(
    widths=(8, 16, 24), batches=(2, 8, 32), steps=(32, 64, 128), max_sequences=2048, seeds=(0, 1), held_out=128
)
"""A grid of seconds, to see that everything runs; its losses decide nothing."""
