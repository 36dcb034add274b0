"""The tokens that Top-W chooses among: the most probable of each row, and the prefix of them that it starts from.

The paper is Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346). Logits of -inf are outside the pool, however
many they are. Equal logits count in the order of their ids. What is kept is decided in `decoder`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["Pool", "pool", "warm_start"]


class Pool(NamedTuple):
    """What `pool` returns.

    Attributes
    ----------
    ids : Tensor, shape (rows, pool)
        The tokens, most probable first.
    p : float64 Tensor, shape (rows, pool)
        Their probabilities in the whole vocabulary; 0 where a row has fewer tokens than the pool has places.
    """

    ids: Int64[Tensor, "rows pool"]
    p: Float64[Tensor, "rows pool"]


def pool(logits: Float[Tensor, "rows vocabulary"], temperature: float, top_m: int) -> Pool:
    """Take the most probable tokens of each row, with their probabilities at a temperature.

    Parameters
    ----------
    logits : Tensor, shape (rows, vocabulary)
        Raw logits of any floating dtype; -inf excludes a token.
    temperature : float
        Divides them.
    top_m : int
        How many tokens, if the vocabulary has so many.

    Returns
    -------
    Pool
        Which tokens they are does not depend on the temperature.

    Raises
    ------
    InputError
        If logits hold NaN or +inf or a row of -inf only.

    Examples
    --------
    >>> pool(torch.tensor([[0.0, 1.0, 1.0]]), temperature=1.0, top_m=2).ids
    tensor([[1, 2]])
    """
    temperature = real("temperature", temperature, above=0)
    vocabulary = logits.shape[1]
    size = min(whole("top_m", top_m, 1), vocabulary)
    z = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    values, ids = z.topk(min(size + 1, vocabulary), dim=-1)
    top = values[:, :1]
    # Kept sets do not depend on what probabilities are divided by, only the floor under log p does: float32 will do.
    shares = (z - top).float().div_(min(max(temperature, 1e-30), 1e30)).exp_()
    total = shares.sum(-1, keepdim=True, dtype=torch.float64)
    if not total.isfinite().all():
        row = int((~total.isfinite()).flatten().nonzero()[0])
        what = (
            "NaN" if logits[row].isnan().any() else "+inf" if (logits[row] == torch.inf).any() else "nothing but -inf"
        )
        raise InputError(f"logits hold {what} in row {row}; give finite logits, -inf only for excluded tokens")
    values, ids = _in_order_of_ids(z, values, ids, size)
    return Pool(ids, ((values.double() - top.double()) / temperature).exp_() / total)


def _in_order_of_ids(z: Tensor, values: Tensor, ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The first `size` places with equal logits by ids, which `topk` leaves open within the pool and at its edge."""
    equal = (values[:, 1:] == values[:, :-1]) & values[:, 1:].isfinite()
    edge = equal[:, size - 1] if values.shape[1] > size else None
    values, ids = values[:, :size], ids[:, :size]
    if not equal.any():
        return values, ids
    if edge is not None and edge.any():
        rows = edge.nonzero().squeeze(-1)
        last = values[rows, -1:]
        places = (values[rows] == last).sum(-1)
        row, token = (z[rows] == last).nonzero(as_tuple=True)  # row by row, and in each by id
        first = torch.searchsorted(row, torch.arange(len(rows), device=row.device))
        rank = torch.arange(len(row), device=row.device) - first[row]
        fits = rank < places[row]
        row, token, rank = row[fits], token[fits], rank[fits]
        ids = ids.clone()
        ids[rows[row], size - places[row] + rank] = token
    tied = equal.any(-1).nonzero().squeeze(-1)
    some_ids, by_id = ids[tied].sort(dim=-1)
    some_values, by_value = values[tied].gather(-1, by_id).sort(dim=-1, descending=True, stable=True)
    return values.index_copy(0, tied, some_values), ids.index_copy(0, tied, some_ids.gather(-1, by_value))


def warm_start(p: Float64[Tensor, "rows pool"], warm_p: float) -> Bool[Tensor, "rows pool"]:
    """Return the smallest prefix with a share of the mass.

    Parameters
    ----------
    p : Tensor, shape (rows, pool)
        Probabilities in decreasing order.
    warm_p : float
        The share of their sum, above 0 and at most 1.

    Returns
    -------
    bool Tensor, shape (rows, pool)

    Examples
    --------
    >>> warm_start(torch.tensor([[0.5, 0.25, 0.125]]), 0.8)
    tensor([[ True,  True, False]])
    """
    mass = p.cumsum(-1)
    before = torch.nn.functional.pad(mass[:, :-1], (1, 0))
    return before < warm_p * mass[:, -1:]
