"""Encode many tensors of a model, each into a file of its own, in one process or several.

The unit that is never lost is a finished tensor: its file appears whole or not at all. Memory is bounded: a tensor is
encoded in parts of about a million weights, which changes nothing, because S-Quant (Wang et al., ICML 2026, arXiv:
none) and SeedLM (Shafipour et al., arXiv 2410.10714) treat groups of blocks one by one. What is encoded, and into which
folder, is decided by `compress`.
"""

import contextlib
import math
import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icml26.errors import Icml26Error, InputError
from icml26.s_quant import codec, store
from icml26.s_quant.checkpoint import Checkpoint
from icml26.s_quant.config import SeedLMConfig, SQuantConfig
from icml26.s_quant.encoded import Encoded, SeedLMEncoded

__all__ = ["Task", "clean", "encode_in_parts", "run"]

PART = 1 << 20  # weights encoded at a time
_PATIENCE = 0.2  # seconds between two looks at whether the workers live
Tell = Callable[
    [str, float], None
]  # the tensor's name and the share of it that is done; 1 means that its file is there


@dataclass(frozen=True)
class Task:
    """One tensor to encode.

    Parameters
    ----------
    name
        Its module's name in the files.
    target
        The file to write.
    """

    name: str
    target: Path


def encode_in_parts(
    weight: Tensor,
    config: SQuantConfig | SeedLMConfig,
    progress: Callable[[float], None] | None = None,
    part: int = PART,
) -> tuple[Encoded | SeedLMEncoded, float]:
    """Encode a tensor of any size in little memory.

    Parameters
    ----------
    weight : tensor, out x in
        Finite weights.
    config
        The codec's parameters.
    progress
        Called with the share done.
    part
        Weights at a time, rounded up to whole groups of blocks.

    Returns
    -------
    Encoded or SeedLMEncoded
        What `codec.encode` returns.
    float
        The relative error, ``|decoded - weight| / |weight|``; 0 for a tensor of zeros.

    Raises
    ------
    InputError
        As `codec.encode`.

    Examples
    --------
    >>> found, error = encode_in_parts(torch.ones(2, 8), SQuantConfig(seed_bits=8))
    >>> found.shape, error < 0.4
    ((2, 8), True)
    """
    report = progress or (lambda share: None)
    unit = config.block_size * getattr(config, "group_size", 1)
    step = math.ceil(part / unit) * unit
    if isinstance(config, SeedLMConfig) and config.prescale:
        step = weight.numel()  # one power of two serves the whole tensor
    flat, found, wrong, total = weight.reshape(-1), [], 0.0, 0.0
    for start in range(0, len(flat), step):
        piece = flat[start : start + step]
        share = len(piece) / len(flat)
        done = start / len(flat)
        one = codec.encode(piece, config, progress=lambda inner, done=done, share=share: report(done + share * inner))
        exact = piece.double()
        wrong += (codec.decode(one, piece.device).double() - exact).square().sum().item()
        total += exact.square().sum().item()
        found.append(one)
    return _joined(found, tuple(weight.shape)), math.sqrt(wrong / total) if total else 0.0


def _joined(parts: list[Any], shape: tuple[int, ...]) -> Any:
    fields = vars(parts[0])
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name, value in fields.items()
        if isinstance(value, np.ndarray)
    }
    counters = {
        name: sum(getattr(part, name) for part in parts) for name in ("missed", "below_floor") if name in fields
    }
    return replace(parts[0], shape=shape, **arrays, **counters)


def run(
    source: Checkpoint,
    config: SQuantConfig | SeedLMConfig,
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    device: str = "cpu",
    tell: Tell | None = None,
) -> None:
    """Encode tensors and write their files; after an interrupt the finished ones remain.

    Parameters
    ----------
    source
        Where the tensors are.
    config
        The codec's parameters.
    tasks
        What to encode.
    jobs
        Processes. With more than one the caller's main module is imported again in each, as always with "spawn".
    device
        Where to search.
    tell
        Hears of the progress.

    Raises
    ------
    InputError
        If a tensor cannot be encoded.
    Icml26Error
        If a process ends unexpectedly, or a file cannot be written.
    """
    tell = tell or (lambda name, share: None)
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            _finish(source, config, task, device, lambda share, name=task.name: tell(name, min(share, 0.999)))
            tell(task.name, 1.0)
        return
    context = multiprocessing.get_context("spawn")
    todo, events = context.Queue(), context.Queue()
    jobs = min(jobs, len(tasks))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    arguments = (source, config, device, threads, todo, events)
    workers = [context.Process(target=_serve, args=arguments, daemon=True) for _ in range(jobs)]
    try:
        for worker in workers:
            worker.start()
        for task in sorted(tasks, key=lambda task: -math.prod(source.linears[task.name][:2])):
            todo.put(task)
        waiting = len(tasks)
        while waiting:
            try:
                name, share, error = events.get(timeout=_PATIENCE)
            except queue.Empty:
                dead = next((worker for worker in workers if worker.exitcode is not None), None)
                if dead is not None:
                    raise Icml26Error(
                        f"a process ended with code {dead.exitcode}, perhaps for want of memory: run again, it goes on "
                        f"where it stopped, with fewer jobs than {jobs}"
                    ) from None
                continue
            if error is not None:
                raise error
            waiting -= share == 1.0
            tell(name, share)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        for pipe in (todo, events):
            pipe.close()
            pipe.cancel_join_thread()


def _serve(
    source: Checkpoint, config: SQuantConfig | SeedLMConfig, device: str, threads: int, todo: Any, events: Any
) -> None:
    """A worker's life. It ends with its parent, even one that was killed, and leaves Ctrl-C to it."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()
    torch.set_num_threads(threads)
    while True:
        task = todo.get()
        told = 0.0

        def tell(share: float, name: str = task.name) -> None:
            nonlocal told
            if share - told >= 0.01 and share < 1:
                told = share
                events.put((name, share, None))

        try:
            _finish(source, config, task, device, tell)
            events.put((task.name, 1.0, None))
        except Icml26Error as error:
            events.put((task.name, 0.0, error))
        except Exception as error:  # whatever it is, the parent says it in one line
            events.put((task.name, 0.0, Icml26Error(f"{task.name}: {type(error).__name__}: {error}")))


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _finish(
    source: Checkpoint,
    config: SQuantConfig | SeedLMConfig,
    task: Task,
    device: str,
    progress: Callable[[float], None],
) -> None:
    try:
        weight = source.read_linear(task.name).to(device)
        encoded, error = encode_in_parts(weight, config, progress)
    except InputError as problem:
        raise InputError(f"{task.name}: {problem}") from problem
    header = {"codec": encoded.codec, **encoded.header(), "relative_error": error}
    try:
        store.write(task.target, {task.name: (header, encoded.streams())})
    except OSError as problem:
        raise Icml26Error(f"{task.target} cannot be written: {problem.strerror or problem}") from problem


def clean(folder: Path) -> None:
    """Remove the unfinished files that a killed process left.

    Parameters
    ----------
    folder
        Where the tensors' files are.
    """
    for path in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            path.unlink()
