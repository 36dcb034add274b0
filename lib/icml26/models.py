"""Real models by name, from packages that carry their weights, and small random stand-ins.

``load_lm("smollm2-135m")`` and ``load_encoder("minilm-l6")`` return a model and its tokenizer. Loading never downloads
or converts: `get` does, once, before anything timed. A name outside the registry is a local folder, or a hub id whose
files `get` has brought into the hub's own cache. Which models there are is in `icml26.models_registry`; finding,
verifying and converting packaged files in `icml26.models_store`; the random models in `icml26.models_tiny`. Importing
this module imports neither torch nor transformers.
"""

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from icml26 import models_store as store
from icml26.errors import InputError, MissingModel, nearest
from icml26.models_registry import REGISTRY, ModelInfo

__all__ = [
    "REGISTRY",
    "ModelInfo",
    "Status",
    "check",
    "distinct_levels",
    "get",
    "is_real",
    "load_encoder",
    "load_lm",
    "status",
]

IN_MEMORY = "built in memory"


class Status(NamedTuple):
    """One row of `status`: a registered model on this machine.

    Attributes
    ----------
    name, kind, licence, description, note : str
        As in the registry.
    size : int or None
        Bytes on disk; None if the model is not ready or lives in memory.
    ready : bool
        Whether loading will find it.
    where : str
        Its folder, or what is missing and the command that brings it.
    """

    name: str
    kind: str
    size: int | None
    licence: str
    ready: bool
    where: str
    description: str
    note: str


def load_lm(name: str) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer from this machine.

    Parameters
    ----------
    name : str
        A name of `REGISTRY`, a local folder, or a hub id ``owner/name``.

    Returns
    -------
    model : transformers.PreTrainedModel
        In evaluation mode on the CPU; fp32 for registered models, else in the precision it was stored in.
    tokenizer : transformers.PreTrainedTokenizerBase

    Raises
    ------
    MissingModel
        If its files are not on this machine or are damaged; the message names the command that helps.
    InputError
        If the name is unknown, or names an encoder.

    Examples
    --------
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> model(**tokenizer("two words", return_tensors="pt")).logits.shape
    torch.Size([1, 9, 259])
    """
    return _load(name, "lm")


def load_encoder(name: str) -> tuple[Any, Any]:
    """Load an encoder and its tokenizer from this machine.

    Parameters
    ----------
    name : str
        A name of `REGISTRY`, a local folder, or a hub id ``owner/name``.

    Returns
    -------
    model : transformers.PreTrainedModel
        In evaluation mode on the CPU; fp32 for registered models, else in the precision it was stored in.
    tokenizer : transformers.PreTrainedTokenizerBase

    Raises
    ------
    MissingModel
        If its files are not on this machine or are damaged; the message names the command that helps.
    InputError
        If the name is unknown, or names a language model.

    Examples
    --------
    >>> model, tokenizer = load_encoder("tiny-random-bert")
    >>> model(**tokenizer("two words", return_tensors="pt")).last_hidden_state.shape
    torch.Size([1, 9, 128])
    """
    return _load(name, "encoder")


def _load(name: str, kind: Literal["lm", "encoder"]) -> tuple[Any, Any]:
    info = REGISTRY.get(name)
    if info and info.kind != kind:
        right = "load_lm" if info.kind == "lm" else "load_encoder"
        raise InputError(
            f"{name} is {'a language model' if info.kind == 'lm' else 'an encoder'}; use {right}({name!r})"
        )
    if info and not info.files:
        from icml26 import models_tiny as tiny

        return (tiny.random_llama() if kind == "lm" else tiny.random_bert()), tiny.byte_tokenizer()
    folder = _folder(name)
    with _quiet():
        from safetensors import SafetensorError
        from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

        auto = AutoModelForCausalLM if kind == "lm" else AutoModel
        try:
            model = auto.from_pretrained(folder, dtype="auto", local_files_only=True)
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise MissingModel(f"{name} could not be loaded from {folder}: {reason}") from error
    return model.eval(), tokenizer


def _folder(name: str) -> Path:
    """Return the folder that holds a model's weights, or raise; nothing is downloaded or converted."""
    info = REGISTRY.get(name)
    if info is None:
        return _elsewhere(name)
    if not info.converts:
        return store.verify(info)[0].parent
    problem = store.entry_problem(info, full=False)
    if problem:
        raise MissingModel(_remedy(info, problem))
    return store.cached(info)


def _remedy(info: ModelInfo, problem: str) -> str:
    try:
        store.package_files(info)
    except MissingModel as error:
        return f"{info.name} {problem}: {str(error).removeprefix(f'{info.name}: ')}"
    return f"{info.name} {problem}; run `{info.get}`"


def _local(name: str) -> Path | None:
    """Return the local folder that a name outside the registry means, or None for a hub id; raise if it is neither."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder.resolve()
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(
            f"model {name!r} is neither a known name ({', '.join(REGISTRY)}), nor a folder with a config.json, "
            f"nor a hub id (owner/name){nearest(name, REGISTRY)}"
        )
    return None


def _elsewhere(name: str, *, download: bool = False) -> Path:
    folder = _local(name)
    if folder is not None:
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    with _quiet():
        try:
            return Path(snapshot_download(name, allow_patterns=wanted, local_files_only=not download))
        except (LocalEntryNotFoundError, OfflineModeIsEnabled):
            hint = "this machine is offline" if download else f"run `icml26 models get {name}`"
            raise MissingModel(
                f"hub model {name} is not on this machine: {hint}, or pass a local folder that holds it"
            ) from None
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise MissingModel(f"hub model {name} could not be downloaded: {reason}") from error


def is_real(name: str) -> bool:
    """Tell whether a name stands for published, trained weights, so that what is measured on it is real data.

    Parameters
    ----------
    name : str
        As for `load_lm`; its files need not be on this machine.

    Returns
    -------
    bool
        True for registered models with files and for hub ids; False for random models built in memory and for local
        folders, of whose weights nothing is known.

    Raises
    ------
    InputError
        If the name is neither known, nor a local folder with a model, nor of the form of a hub id.

    Examples
    --------
    >>> is_real("smollm2-135m"), is_real("tiny-random-llama")
    (True, False)
    """
    info = REGISTRY.get(name)
    return bool(info.files) if info else _local(name) is None


def get(name: str, progress: Callable[[str], None] | None = None) -> Path | None:
    """Prepare a model on this machine, so that loading finds it.

    Packaged files are verified; a GGUF file is converted once, into the cache folder; a hub id is downloaded. A model
    that is ready and sound is left alone.

    Parameters
    ----------
    name : str
        As for `load_lm`.
    progress : callable, optional
        Called with one line of text at each step.

    Returns
    -------
    Path or None
        The folder with the weights; None for a model built in memory.

    Raises
    ------
    MissingModel
        If a package or a file is absent or damaged; the message names the pip command.
    Icml26Error
        If the cache cannot be written, for example because the disk is full.
    InputError
        If the name is unknown.

    Examples
    --------
    >>> get("tiny-random-llama") is None
    True
    """
    say = progress or (lambda line: None)
    info = REGISTRY.get(name)
    if info is None:
        say(f"{name}: looking for it in the hub's cache and on the hub")
        return _elsewhere(name, download=True)
    if not info.files:
        return None
    stale = info.converts and store.entry_problem(info, full=True)
    folder = store.convert(info, say) if stale else _folder(name)
    say(f"{name}: ready in {folder}")
    return folder


def check(name: str) -> Path | None:
    """Verify a model's files on this machine byte by byte.

    Parameters
    ----------
    name : str
        A name of `REGISTRY`, a local folder or a hub id; of the last two only presence is checked.

    Returns
    -------
    Path or None
        The folder with the weights; None for a model built in memory.

    Raises
    ------
    MissingModel
        If a file is absent, truncated or altered; the message names the command that repairs it.

    Examples
    --------
    >>> check("tiny-random-bert") is None
    True
    """
    info = REGISTRY.get(name)
    if info and not info.files:
        return None
    if info and info.converts:
        problem = store.entry_problem(info, full=True)
        if problem:
            raise MissingModel(_remedy(info, problem))
    return _folder(name)


def status() -> list[Status]:
    """List the registered models: size, licence, and where each is or what is missing. Quick: nothing is hashed.

    Returns
    -------
    list of Status

    Examples
    --------
    >>> [row.where for row in status() if row.name == "tiny-random-llama"]
    ['built in memory']
    """
    rows = []
    for info in REGISTRY.values():
        size, where, ready = None, IN_MEMORY, True
        if info.files:
            try:
                if info.converts:
                    folder = _folder(info.name)
                    size = sum(file.stat().st_size for file in folder.iterdir())
                else:
                    folder, size = store.package_files(info)[0].parent, info.size
                where = str(folder)
            except MissingModel as error:
                where, ready = str(error), False
        rows.append(Status(info.name, info.kind, size, info.licence, ready, where, info.description, info.note))
    return rows


def distinct_levels(weight: Shaped[Any, "*rows columns"], group: int) -> Int[np.ndarray, "*rows groups"]:
    """Count the distinct values in each group of consecutive weights, to see whether they lie on a coarse grid.

    Parameters
    ----------
    weight : array or tensor, shape (..., columns)
        Finite numbers.
    group : int
        Consecutive weights of a row per group; divides the number of columns.

    Returns
    -------
    ndarray of int, shape (..., columns // group)
        Between 1 and `group`; at most 2^b where the weights were stored in b-bit groups of this size.

    Raises
    ------
    InputError
        If the columns are not whole groups, or a weight is not finite.

    Examples
    --------
    >>> distinct_levels(np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 2.0, 3.0, 3.0]]), group=4)
    array([[2],
           [3]])
    """
    if hasattr(weight, "detach"):
        weight = weight.detach().cpu().float().numpy()
    weight = np.asarray(weight)
    if group < 1 or weight.ndim == 0 or weight.shape[-1] % group:
        raise InputError(f"group={group} does not divide the last axis of a weight of shape {weight.shape}")
    if not np.isfinite(weight).all():
        raise InputError(f"weight of shape {weight.shape} holds values that are not finite; pass finite weights")
    ordered = np.sort(weight.reshape(*weight.shape[:-1], -1, group), axis=-1)
    return 1 + np.count_nonzero(np.diff(ordered, axis=-1), axis=-1)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and advice out of a chapter's output."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm, where a notebook has no widgets
        from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
