"""Small causal language models kept with their recipes.

`save_checkpoint` writes a model as fp16 together with its recipe, a mapping that holds all that decides the weights;
`load_checkpoint` builds the model from the recipe alone and verifies both. What a recipe holds beyond the model's
configuration, and following it, is left to those who train (`icml26.training`).
"""

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from icml26.errors import InputError
from icml26.paths import write_atomic

__all__ = ["Checkpoint", "CheckpointError", "build", "digest", "load_checkpoint", "save_checkpoint"]

FORMAT = "icml26.checkpoint"
VERSION = 1
MOST_BYTES = 2_000_000  # of a checkpoint, which goes into the repository


class CheckpointError(InputError):
    """A checkpoint is missing, damaged, of another kind, or not of the recipe that it names."""


class Checkpoint(NamedTuple):
    """What `load_checkpoint` returns.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        fp32 numbers of fp16 precision, in evaluation mode.
    recipe : dict
        As given to `save_checkpoint`.
    digest : str
        SHA-256 of the weights' names, shapes and bytes.
    """

    model: Any
    recipe: dict
    digest: str


def build(configuration: Mapping[str, Any], seed: int) -> Any:
    """Build a causal language model with random weights.

    Parameters
    ----------
    configuration : mapping
        ``model_type`` and the arguments of that type's `transformers` configuration.
    seed : int
        Of the weights; the global random state is left as it was.

    Returns
    -------
    transformers.PreTrainedModel
        fp32, in evaluation mode.

    Raises
    ------
    InputError
        If `transformers` has no causal language model of this type.

    Examples
    --------
    >>> shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    >>> build({"model_type": "llama", "vocab_size": 256, **shape}, seed=0).model.embed_tokens.weight.shape
    torch.Size([256, 8])
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = dict(configuration)
    try:
        config = AutoConfig.for_model(fields.pop("model_type", ""), **fields)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    except (ValueError, KeyError, TypeError, StrictDataclassError) as error:
        raise InputError(f"configuration {dict(configuration)} builds no causal language model: {error}") from error


def digest(recipe: Mapping[str, Any]) -> str:
    """Hash a recipe: SHA-256 of its canonical JSON (sorted keys, no spaces).

    Parameters
    ----------
    recipe : mapping
        What JSON can hold; tuples count as lists.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> digest({"a": 1, "b": (2, 3)}) == digest({"b": [2, 3], "a": 1})
    True
    """
    text = json.dumps(recipe, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def save_checkpoint(model: nn.Module, recipe: Mapping[str, Any], path: str | PathLike[str]) -> None:
    """Write a small model as fp16 with its recipe, atomically.

    Parameters
    ----------
    model : nn.Module
        A model that `build` makes of ``recipe["model"]``.
    recipe : mapping
        All that decides the weights, as JSON can hold it.
    path : path-like
        The safetensors file.

    Raises
    ------
    InputError
        If the file would exceed 2 MB, or a weight does not fit fp16.
    OSError
        If the file cannot be written; a file already there is then untouched.

    Examples
    --------
    See `load_checkpoint`.
    """
    from safetensors.torch import save

    tensors = _own(model)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise InputError(f"weight {name!r} does not fit fp16: its magnitude exceeds 65504, or it is not finite")
    # One metadata field: several would be written in random order.
    facts = {"version": VERSION, "recipe": recipe, "recipe_sha256": digest(recipe), "sha256": _digest(tensors)}
    content = save(tensors, metadata={FORMAT: json.dumps(facts, sort_keys=True)})
    if len(content) > MOST_BYTES:
        raise InputError(f"the checkpoint takes {len(content):,} bytes, more than {MOST_BYTES:,}: use a smaller model")
    write_atomic(path, content)


def load_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Read what `save_checkpoint` wrote, recipe and weights verified.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    Checkpoint
        Model, recipe and digest of the weights.

    Raises
    ------
    CheckpointError
        If the file is missing, truncated, damaged, of another kind or version, or its recipe does not fit.

    Examples
    --------
    >>> import tempfile
    >>> shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    >>> recipe = {"model": {"model_type": "llama", "vocab_size": 256, **shape}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(build(recipe["model"], seed=0), recipe, f"{folder}/a.safetensors")
    ...     load_checkpoint(f"{folder}/a.safetensors").recipe == recipe
    True
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        facts = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][FORMAT])
        version, recipe = facts["version"], facts["recipe"]
        sound = facts["recipe_sha256"] == digest(recipe) and facts["sha256"] == _digest(tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is no checkpoint of this package, or is truncated: copy it again") from error
    if version != VERSION:
        raise CheckpointError(f"{path} has format version {version}, this is {VERSION}: update icml26")
    if not sound:
        raise CheckpointError(f"{path} is damaged: recipe or weights do not fit their SHA-256; copy it again")
    try:
        model = build(recipe["model"], seed=0)
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except (InputError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path}: the weights are not of the recipe's model ({error})") from error
    if unexpected or set(missing) & set(_own(model)):
        raise CheckpointError(f"{path}: the weights are not of the recipe's model: {sorted(missing) + unexpected}")
    return Checkpoint(model, recipe, facts["sha256"])


def _own(model: nn.Module) -> dict[str, Tensor]:
    """A model's weights in fp16, tied ones once under the first of their names."""
    found, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            found[name] = tensor.to(torch.float16).contiguous()
    return found


def _digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()
