"""Encodings that are kept with the code, because a search of all seeds takes longer than a chapter may.

`write` encodes a model's layers with several of the codecs that `arms` names into one file; `encodings` reads one of
them back. Each tensor's header holds a hash of configuration, weights and format: encodings of another configuration or
of other weights are an error. Anybody can encode a group of blocks anew, for groups do not depend on each other. The
codecs are those of S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv 2410.10714).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files
from os import PathLike

from torch import Tensor

from icml26 import models
from icml26.checkpoints import digest
from icml26.errors import InputError, nearest
from icml26.models_registry import REGISTRY
from icml26.s_quant import byte_lm, codec, store, study
from icml26.s_quant.arms import Arm, arms

__all__ = ["MODELS", "encodings", "recipe", "remake", "source", "write"]

MODELS = {
    "byte-lm": r".*",
    "smollm2-135m": r"model\.layers\.\d\.self_attn\.v_proj",  # of the first ten blocks
    "minilm-l6": r"encoder\.layer\.\d\.attention\.self\.value",  # of all six
}  # and which of their layers are kept
PRINTED = (
    "S-Quant, R=0.9",
    "S-Quant, R=0.8",
    "SeedLM 4 bits",
    "SeedLM 3 bits",
)  # all that is kept of pretrained models
Encoding = codec.Encoded | codec.SeedLMEncoded


def recipe(arm: Arm, source: str) -> dict:
    """Return all that decides a stored encoding.

    Parameters
    ----------
    arm
        A codec with seeds.
    source
        SHA-256 of the file or the weights that were encoded.

    Returns
    -------
    dict
        As JSON can hold it.

    Examples
    --------
    >>> recipe(arms()["SeedLM 4 bits"], "00")["config"]["rank"]
    3
    """
    name = (codec.Encoded if isinstance(arm.config, codec.SQuantConfig) else codec.SeedLMEncoded).codec
    return {"codec": name, "config": asdict(arm.config), "format": store.VERSION, "weights": source}


@lru_cache
def source(model: str = "byte-lm", seed: int = 0) -> str:
    """Identify the weights that stored encodings are of.

    Parameters
    ----------
    model
        ``"byte-lm"``, or the name of a registered model that has stored encodings.
    seed
        Training seed of the byte-level model.

    Returns
    -------
    str
        SHA-256 of the checkpoint's weights, or of the registered file.

    Raises
    ------
    InputError
        If no encodings of the model are kept.

    Examples
    --------
    >>> len(source("byte-lm", 1))
    64
    """
    if model not in MODELS:
        raise InputError(f"model={model!r} has no stored encodings: {', '.join(MODELS)} have{nearest(model, MODELS)}")
    return byte_lm.load(seed).digest if model == "byte-lm" else REGISTRY[model].sha256


def write(
    path: str | PathLike[str],
    weights: Mapping[str, Tensor],
    chosen: Iterable[Arm],
    source: str,
    *,
    progress: Callable[[str, float], None] | None = None,
) -> None:
    """Encode layers with several codecs and keep all encodings in one file, which `codec.load` reads as well.

    Parameters
    ----------
    path
        The file; tensors are named ``arm/layer``.
    weights : mapping of str to tensor
        Weight by layer name.
    chosen
        Codecs with seeds.
    source
        SHA-256 of the file or the weights that these are from.
    progress
        Called with the arm's name and the share of its layers done.

    Raises
    ------
    InputError
        If an arm has no seeds, or a weight cannot be encoded.

    Examples
    --------
    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arm = Arm("small", "variant", 4, codec.SeedLMConfig(4, 2, 8))
    ...     write(f"{folder}/a", {"layer": torch.zeros(2, 4)}, [arm], source="00")
    ...     list(codec.load(f"{folder}/a"))
    ['small/layer']
    """
    entries = {}
    for arm in chosen:
        if arm.config is None:
            raise InputError(f"{arm.name!r} has no seeds to keep: it is rounded anew each time")
        mark = digest(recipe(arm, source))
        for i, (name, weight) in enumerate(weights.items()):
            one = codec.encode(weight, arm.config)
            entries[f"{arm.name}/{name}"] = ({"codec": one.codec, **one.header(), "recipe": mark}, one.streams())
            if progress:
                progress(arm.name, (i + 1) / len(weights))
    store.write(path, entries)


def remake(
    path: str | PathLike[str],
    model: str = "byte-lm",
    seed: int = 0,
    *,
    progress: Callable[[str, float], None] | None = None,
) -> None:
    """Make one of the kept files anew, byte for byte: two minutes on one idle thread.

    Parameters
    ----------
    path
        Where to write it.
    model, seed
        As in `encodings`.
    progress
        Called with the arm's name and the share of its layers done.

    Raises
    ------
    InputError
        If no encodings of the model are kept, or the model is not on this machine.

    Examples
    --------
    >>> remake("new.safetensors", "byte-lm", 1)  # doctest: +SKIP
    """
    mark = source(model, seed)
    if model == "byte-lm":
        loaded = byte_lm.load(seed).model
    else:
        loaded, _ = (models.load_lm if REGISTRY[model].kind == "lm" else models.load_encoder)(model)
    weights = {n: w for n, w in study.linear_weights(loaded).items() if re.fullmatch(MODELS[model], n)}
    chosen = [a for a in arms().values() if a.config and (model == "byte-lm" or a.name in PRINTED)]
    write(path, weights, chosen, mark, progress=progress)


def encodings(arm: str, seed: int = 0, *, model: str = "byte-lm") -> dict[str, Encoding]:
    """Read stored encodings.

    Parameters
    ----------
    arm
        Name of a codec with seeds.
    seed
        Training seed of the byte-level model.
    model
        Which model's weights.

    Returns
    -------
    dict
        Encoded weight by layer name.

    Raises
    ------
    InputError
        If there are none, or they are of another configuration, other weights or another format than the code's.

    Examples
    --------
    >>> sum(one.size for one in encodings("S-Quant, R=0.9", seed=2).values())
    49152
    """
    known = arms()
    expected = source(model, seed)
    stored = _read(f"{model.replace('-', '_')}_{seed}" if model == "byte-lm" else model.replace("-", "_"))
    if arm not in stored or arm not in known:
        raise InputError(f"arm={arm!r} has no stored encodings of {model}{nearest(arm, stored)}")
    marks, found = stored[arm]
    if marks != {digest(recipe(known[arm], expected))}:
        raise InputError(
            f"the stored encodings of {arm!r} are of another configuration or other weights: write them anew"
        )
    return found


@lru_cache(maxsize=4)
def _read(stem: str) -> dict[str, tuple[set[str], dict[str, Encoding]]]:
    path = str(files(__package__) / "encodings" / f"{stem}.safetensors")
    headers = store.read(path)
    found: dict[str, tuple[set[str], dict]] = {}
    for name, one in codec.load(path).items():
        arm, _, layer = name.partition("/")
        marks, layers = found.setdefault(arm, (set(), {}))
        marks.add(headers[name][0].get("recipe", ""))
        layers[layer] = one
    return found
