"""The matrix-vector products of one decoding step, from the shapes of published models.

Both S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv 2410.10714) compress the linear
layers inside the blocks of Llama 2 and 3; the head stays in FP16, and so does the cache of keys and values. Embeddings
are looked up, not multiplied. What the products cost is for `asic_study` and `roofline` to say.
"""

from dataclasses import dataclass

from icml26.errors import InputError, nearest
from icml26.s_quant.asic_config import Gemv
from icml26.s_quant.config import check_integer

__all__ = ["MODELS", "Shape", "cache_bytes", "decode_step", "shape"]


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama-like model: layers, width, width of keys and values, width of the gate, vocabulary."""

    layers: int
    hidden: int
    key_value: int
    intermediate: int
    vocabulary: int


MODELS = {
    "llama-2-7b": Shape(32, 4096, 4096, 11008, 32000),
    "llama-3-8b": Shape(32, 4096, 1024, 14336, 128256),
}


def shape(model: str | Shape) -> Shape:
    """The shape of a model by name.

    Parameters
    ----------
    model
        A name in `MODELS`, or a shape.

    Returns
    -------
    Shape
        Its sizes.

    Raises
    ------
    InputError
        If the name is not known.

    Examples
    --------
    >>> shape("llama-3-8b").key_value
    1024
    """
    if isinstance(model, Shape):
        return model
    if model not in MODELS:
        raise InputError(f"model {model!r} is none of {', '.join(MODELS)}{nearest(model, MODELS)}")
    return MODELS[model]


def decode_step(model: str | Shape, *, head: bool = True) -> tuple[Gemv, ...]:
    """The products with weights of one decoding step, one entry per distinct layer.

    Parameters
    ----------
    model
        A name in `MODELS`, or a shape.
    head
        Whether to count the output head, which no design compresses.

    Returns
    -------
    tuple of Gemv
        In the order of a block, each repeated as often as the model has layers, and the head.

    Raises
    ------
    InputError
        If the name is not known.

    Examples
    --------
    >>> sum(gemv.repeat * gemv.weights for gemv in decode_step("llama-2-7b", head=False))
    6476005376
    """
    sizes = shape(model)
    width, kv, gate = sizes.hidden, sizes.key_value, sizes.intermediate
    layers = {
        "query": (width, width),
        "key": (kv, width),
        "value": (kv, width),
        "output": (width, width),
        "gate": (gate, width),
        "up": (gate, width),
        "down": (width, gate),
    }
    inside = tuple(Gemv(*layer, name, sizes.layers) for name, layer in layers.items())
    return (*inside, Gemv(sizes.vocabulary, width, "head", compressed=False)) if head else inside


def cache_bytes(model: str | Shape, tokens: int) -> int:
    """Bytes of the FP16 keys and values that one sequence's step reads.

    Parameters
    ----------
    model
        A name in `MODELS`, or a shape.
    tokens
        Tokens so far.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    InputError
        If the name is not known, or the tokens are no count.

    Examples
    --------
    >>> cache_bytes("llama-2-7b", 4096) / 2**30
    2.0
    """
    check_integer("tokens", tokens, 0, 1 << 40)
    sizes = shape(model)
    return 2 * 2 * sizes.layers * sizes.key_value * tokens
