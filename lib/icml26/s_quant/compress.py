"""Compress whole models on disk: every linear layer inside the blocks, tensor by tensor, to be resumed after a kill.

S-Quant is Wang et al., ICML 2026 (arXiv: none), SeedLM Shafipour et al. (arXiv 2410.10714). The folder that results is
an ordinary checkpoint: with `icml26.s_quant.hf` imported, ``from_pretrained`` loads it. Its layout and last parts are
in `assemble`; reading models is `checkpoint`'s business, encoding `workers`', and `audit` verifies a folder.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from icml26 import models
from icml26.errors import Icml26Error, InputError
from icml26.s_quant import store, workers
from icml26.s_quant.assemble import CHECKSUMS, FOLDER, FORMAT, LOCK, PLAN, VERSION, assemble, write_json
from icml26.s_quant.checkpoint import Checkpoint, read_checkpoint
from icml26.s_quant.config import SeedLMConfig, SQuantConfig
from icml26.s_quant.encoded import Encoded, SeedLMEncoded
from icml26.s_quant.workers import Task

__all__ = ["Event", "compress", "located", "read_plan"]


class Event(NamedTuple):
    """How far a run is.

    Attributes
    ----------
    stage : str
        ``"reading"`` the model to know it again, ``"encoding"``, or ``"writing"`` the rest.
    name : str
        The tensor or file in work.
    done, total : float
        Bytes read, or weights encoded.
    finished, tensors : int
        Encoded tensors in the folder, and how many there will be.
    """

    stage: str
    name: str
    done: float
    total: float
    finished: int
    tensors: int


@contextmanager
def located(model: str) -> Iterator[Path]:
    """The folder of a model, for the duration of a block.

    Parameters
    ----------
    model
        A folder, a name of `icml26.models`, or the id of a model in the hub's cache.

    Yields
    ------
    Path
        Its folder; a temporary one for the models that are built in memory.

    Raises
    ------
    InputError
        If there is no such model on this machine.
    """
    folder = models.check(model)
    if folder is not None:
        yield folder
        return
    load = models.load_lm if models.REGISTRY[model].kind == "lm" else models.load_encoder
    with TemporaryDirectory() as scratch, models._quiet():
        for part in load(model):
            part.save_pretrained(scratch)
        yield Path(scratch)


def compress(
    model: str,
    out: Path,
    config: SQuantConfig | SeedLMConfig,
    *,
    layers: Sequence[str] = (),
    jobs: int = 1,
    device: str = "cpu",
    progress: Callable[[Event], None] | None = None,
) -> int:
    """Encode a model's linear layers into a folder, or go on with one that an earlier run began.

    Parameters
    ----------
    model
        As for `located`.
    out
        The folder.
    config
        The codec's parameters.
    layers
        Patterns (``*`` for anything) of module names: only these are encoded. All if none is given.
    jobs
        Processes.
    device
        Where to search.
    progress
        Hears how far it is.

    Returns
    -------
    int
        How many tensors were encoded now; the others were there.

    Raises
    ------
    InputError
        If the model is not here or not fit, the folder holds something else, or was begun with other settings or
        another model.
    Icml26Error
        If writing fails, or another run works on the folder.

    Examples
    --------
    >>> from icml26.s_quant.presets import preset
    >>> with TemporaryDirectory() as folder:
    ...     compress("tiny-random-llama", Path(folder) / "out", preset("seedlm", register_bits=6))
    14
    """
    tell = progress or (lambda event: None)
    if jobs < 1:
        raise InputError(f"jobs={jobs} is too few; give at least 1")
    with located(model) as folder:
        source = read_checkpoint(folder)
        chosen = _chosen(source, layers)
        if out.exists() and not out.is_dir():
            raise InputError(f"{out} is a file: give a folder")
        if out.resolve() == folder.resolve():
            raise InputError(f"{out} is the model's own folder: give another --out")
        with _locked(out):
            _begin(source, out, _plan(model, source, config, chosen, tell))
            count = _encode(source, out, config, chosen, jobs, device, tell)
            tell(Event("writing", out.name, 0, 1, len(chosen), len(chosen)))
            assemble(source, out, config, chosen)
    return count


def _chosen(source: Checkpoint, layers: Sequence[str]) -> list[str]:
    for pattern in layers:
        if not any(fnmatchcase(name, pattern) for name in source.linears):
            example = next(iter(source.linears))
            raise InputError(f"no layer is called {pattern!r}: names look like {example}, and * stands for anything")
    return [name for name in source.linears if not layers or any(fnmatchcase(name, each) for each in layers)]


def _plan(
    model: str,
    source: Checkpoint,
    config: SQuantConfig | SeedLMConfig,
    chosen: list[str],
    tell: Callable[[Event], None],
) -> dict[str, Any]:
    total, done = sum((source.folder / name).stat().st_size for name in source.files), 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        tell(Event("reading", model, min(done, total), total, 0, len(chosen)))

    return {
        "format": FORMAT,
        "version": VERSION,
        "model": model,
        "codec": (SeedLMEncoded if isinstance(config, SeedLMConfig) else Encoded).codec,
        "parameters": json.loads(json.dumps(asdict(config))),
        "tensors": {name: list(source.linears[name][:2]) for name in chosen},
        "source": source.fingerprint(read),
    }


def read_plan(out: Path) -> dict[str, Any]:
    """The plan of a folder that `compress` began.

    Parameters
    ----------
    out
        The folder.

    Returns
    -------
    dict
        The plan.

    Raises
    ------
    InputError
        If the folder has none, or one of a newer version.
    """
    try:
        plan = json.loads((out / PLAN).read_text(encoding="utf-8"))
        known = plan["format"] == FORMAT
        version = plan["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{out} holds no compressed model: its {PLAN} is missing or damaged; give another") from error
    if not known or version != VERSION:
        raise InputError(f"{out / PLAN} has version {version}, this is {VERSION}: update icml26")
    return plan


def _begin(source: Checkpoint, out: Path, plan: dict[str, Any]) -> None:
    if not (out / PLAN).exists():
        found = next((path for path in out.iterdir() if path.name != LOCK), None)
        if found is not None:
            raise InputError(f"{out} holds other files ({found.name}): give an empty folder, or a new one")
        write_json(out / PLAN, plan)
        return
    old = read_plan(out)
    for name in {**old["source"], **plan["source"]}:
        if old["source"].get(name) != plan["source"].get(name):
            raise InputError(f"the model's {name} is not the one that {out} was begun with: give another --out")
    changes = {"codec": (old["codec"], plan["codec"])}
    changes |= {name: (old["parameters"].get(name), value) for name, value in plan["parameters"].items()}
    changes["layers"] = (len(old["tensors"]), len(plan["tensors"])) if old["tensors"] != plan["tensors"] else (0, 0)
    for name, (was, now) in changes.items():
        if was != now:
            raise InputError(f"{out} was begun with {name} {was}, not {now}: set it as it was, or give another --out")


def _is_finished(path: Path, name: str, plan: dict[str, Any]) -> bool:
    if not path.is_file():
        return False
    try:
        ((found, (header, _)),) = store.read(path).items()
    except (store.StoreError, ValueError):
        return False  # damaged: it is encoded again
    kept = json.loads(json.dumps(header.get("config")))
    return found == name and kept == plan["parameters"] and header.get("shape") == plan["tensors"][name]


def _encode(
    source: Checkpoint,
    out: Path,
    config: SQuantConfig | SeedLMConfig,
    chosen: list[str],
    jobs: int,
    device: str,
    tell: Callable[[Event], None],
) -> int:
    plan, folder = read_plan(out), out / FOLDER
    folder.mkdir(exist_ok=True)
    workers.clean(folder)
    weights = {name: source.linears[name][0] * source.linears[name][1] for name in chosen}
    tasks = [Task(name, folder / f"{name}.safetensors") for name in chosen]
    pending = [task for task in tasks if not _is_finished(task.target, task.name, plan)]
    shares = dict.fromkeys(chosen, 1.0) | {task.name: 0.0 for task in pending}

    def hear(name: str, share: float) -> None:
        shares[name] = share
        done = sum(weights[name] * share for name, share in shares.items())
        finished = sum(share == 1.0 for share in shares.values())
        tell(Event("encoding", name, done, sum(weights.values()), finished, len(chosen)))

    if pending:
        (out / CHECKSUMS).unlink(missing_ok=True)
        hear(pending[0].name, 0.0)
        workers.run(source, config, pending, jobs=jobs, device=device, tell=hear)
    return len(pending)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold a folder against another run; the system lets go when this process ends, however it does."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("w")
    except OSError as error:
        raise Icml26Error(f"{out} cannot be written: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Icml26Error(f"another run is working on {out}: wait for it or stop it") from None
        yield
