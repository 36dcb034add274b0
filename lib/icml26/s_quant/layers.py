"""Which layers of a model the codecs encode: the linear ones inside its blocks.

S-Quant (Wang et al., ICML 2026, arXiv: none) and SeedLM (Shafipour et al., arXiv 2410.10714) compress the projections
of attention and feed-forward parts and leave embeddings and the output layer alone. What replaces a layer is in
`linear`.
"""

from torch import Tensor, nn

__all__ = ["block_linears", "dense_weight", "is_transposed", "layer_shape"]


def is_transposed(module: nn.Module) -> bool:
    """Whether a linear layer keeps its weight as in x out: GPT-2's do.

    Parameters
    ----------
    module
        An `nn.Linear` or `Conv1D`.

    Returns
    -------
    bool
        True for `Conv1D`.

    Examples
    --------
    >>> is_transposed(nn.Linear(3, 2))
    False
    """
    return type(module).__name__ == "Conv1D"


def block_linears(model: nn.Module) -> dict[str, nn.Module]:
    """The dense layers inside a model's blocks: those that the codecs replace.

    A block is an entry of a list of modules, as transformers keeps its layers in. Embeddings, the output layer and
    whatever shares its weight with another module are left out.

    Parameters
    ----------
    model
        Any model.

    Returns
    -------
    dict of str to module
        `nn.Linear` and `Conv1D` modules by name.

    Examples
    --------
    >>> model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2)]), "head": nn.Linear(2, 2)})
    >>> list(block_linears(model))
    ['layers.0']
    """
    tied = getattr(model, "all_tied_weights_keys", {})
    shared = {name.rpartition(".")[0] for name in (*tied, *tied.values())}
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return {
        name: module
        for name, module in model.named_modules()
        if (type(module) is nn.Linear or is_transposed(module))
        and any(part.isdigit() for part in name.split("."))
        and module is not output
        and name not in shared
    }


def dense_weight(module: nn.Module, weight: Tensor) -> Tensor:
    """A weight as out x in, whichever way round the module keeps it.

    Parameters
    ----------
    module
        An `nn.Linear` or `Conv1D`.
    weight : tensor of the module's weight's shape
        Its values.

    Returns
    -------
    tensor, out x in
        The weight or its transpose.

    Examples
    --------
    >>> module = nn.Linear(3, 2)
    >>> dense_weight(module, module.weight).shape
    torch.Size([2, 3])
    """
    return weight.T.contiguous() if is_transposed(module) else weight


def layer_shape(module: nn.Module) -> tuple[int, int]:
    """Rows and columns of a dense layer's weight as out x in.

    Parameters
    ----------
    module
        An `nn.Linear` or `Conv1D`.

    Returns
    -------
    int, int
        out_features, in_features.

    Examples
    --------
    >>> layer_shape(nn.Linear(3, 2))
    (2, 3)
    """
    rows, columns = module.weight.shape
    return (columns, rows) if is_transposed(module) else (rows, columns)
