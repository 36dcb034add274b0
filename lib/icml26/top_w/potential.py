"""The second of the two steps that Top-W's decoder alternates: a potential for a set, from distances to it.

The paper is Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346). The best set for a potential is `core.s_step`.
"""

import torch
from jaxtyping import Bool, Float

from icml26.checks import whole
from icml26.errors import InputError
from icml26.top_w.arrays import Array, as_given, as_tensor

__all__ = ["nearest_potential"]


def nearest_potential(
    distances: Float[Array, "*batch tokens tokens"],
    kept: Bool[Array, "*batch tokens"],
    *,
    sign: int = -1,
    neighbours: int = 1,
) -> Float[Array, "*batch tokens"]:
    """Return the potential of a set: minus each token's distance to its nearest member.

    The sign is the paper's. Minus the distance is the lowest 1-Lipschitz potential that is 0 on the set, so it is no
    tight dual certificate (with plus the distance, E_p f - E_q f is a lower bound of W1; with minus it is at most 0):
    it discourages what is far from the set.

    Parameters
    ----------
    distances : array or Tensor, shape (..., tokens, tokens)
        Symmetric.
    kept : bool array or Tensor, shape (..., tokens)
        The sets, none of them empty.
    sign : {-1, 1}
        1 turns the sign round.
    neighbours : int
        Mean of so many nearest members (of all, where there are fewer), a member being its own nearest at distance 0.
        The abstract names this variant, the released code has 1.

    Returns
    -------
    float64 array or Tensor, shape (..., tokens)

    Raises
    ------
    InputError
        If a set is empty or an argument out of range.

    Examples
    --------
    >>> nearest_potential(torch.tensor([[0, 1.0, 3], [1, 0, 2], [3, 2, 0]]), torch.tensor([True, True, False]))
    tensor([-0., -0., -2.], dtype=torch.float64)
    """
    if sign not in (-1, 1):
        raise InputError(f"sign={sign!r} must be -1, the paper's, or 1")
    neighbours = whole("neighbours", neighbours, 1)
    between, members = as_tensor(distances), as_tensor(kept)
    sizes = members.sum(-1)
    if (sizes == 0).any():
        raise InputError("kept has an empty set; keep at least one token a row")
    width = int(sizes.max()) if sizes.numel() else 1
    # Members come first, so that a small set costs little; by symmetry their rows serve as columns.
    first = members.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :width]
    rows = between.gather(-2, first.unsqueeze(-1).expand(*first.shape, between.shape[-1]))
    rows = rows.masked_fill(~members.gather(-1, first).unsqueeze(-1), torch.inf)
    if neighbours == 1:
        reach = rows.amin(-2)
    else:
        nearest = rows.topk(min(neighbours, width), dim=-2, largest=False).values
        present = nearest.isfinite()
        reach = nearest.masked_fill(~present, 0).sum(-2) / present.sum(-2)
    return as_given(distances, sign * reach.double())
