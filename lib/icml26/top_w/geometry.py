"""Distances between tokens: rows of the embedding matrix, whitened by the vocabulary's mean and variance.

The paper is Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346). It speaks of a Mahalanobis metric; the
released code divides each column by its standard deviation over the vocabulary and takes 1 - cos. Mean and scale are
computed once, and the matrix itself stays where and what it is: only the rows that are asked for are whitened. Which
tokens those are is for `decoder`.
"""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icml26.errors import InputError, nearest

__all__ = ["Geometry", "Metric", "checked_metric"]

Metric = Literal["cosine", "chord", "euclidean"]

_VARIANCE_FLOOR = 1e-6
_ELEMENTS = 1 << 22  # of the matrix, in float64 at a time while its moments are summed


def checked_metric(metric: Metric) -> Metric:
    """Return the name of a metric.

    Parameters
    ----------
    metric : {"cosine", "chord", "euclidean"}
        The argument.

    Returns
    -------
    str
        The argument.

    Raises
    ------
    InputError
        If it is another.

    Examples
    --------
    >>> checked_metric("chord")
    'chord'
    """
    if metric not in get_args(Metric):
        known = ", ".join(get_args(Metric))
        raise InputError(f"metric={metric!r} must be one of {known}{nearest(str(metric), get_args(Metric))}")
    return metric


class Geometry:
    """Where the tokens of a vocabulary are.

    Parameters
    ----------
    embedding : Tensor or nn.Embedding, shape (vocabulary, width)
        Input embeddings, such as ``model.get_input_embeddings()``; any floating dtype, kept as a view. Mean and
        variance (divided by the number of rows) are over all its rows: cut padding off with
        ``embedding.weight[:vocabulary]``.
    metric : {"cosine", "chord", "euclidean"}
        Between whitened rows u and v: ``cosine`` is 1 - cos, as released, which breaks the triangle inequality;
        ``chord`` is sqrt(2 - 2 cos), which keeps it; ``euclidean`` is \\|u - v\\| / sqrt(2 width), so that unrelated
        tokens are about 1 apart, as they are by the cosine.
    permutation : Tensor, shape (vocabulary,), optional
        Token i takes the row ``permutation[i]``: a control that keeps all rows and destroys what they mean.

    Raises
    ------
    InputError
        If the matrix is not finite, or an argument is not as above.

    Examples
    --------
    >>> Geometry(torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]])).distances(torch.tensor([0, 1, 2]))
    tensor([[0., 1., 2.],
            [1., 0., 1.],
            [2., 1., 0.]])
    """

    def __init__(
        self,
        embedding: Float[Tensor, "vocabulary width"] | torch.nn.Embedding,
        metric: Metric = "cosine",
        permutation: Int[Tensor, " vocabulary"] | None = None,
    ) -> None:
        table: Any = embedding.weight if isinstance(embedding, torch.nn.Module) else embedding
        if not isinstance(table, Tensor) or table.ndim != 2 or not table.numel() or not table.is_floating_point():
            kind = f"of shape {tuple(table.shape)}" if isinstance(table, Tensor) else type(table).__name__
            raise InputError(f"embedding ({kind}) must be a matrix of floating numbers, one row a token")
        self.metric = checked_metric(metric)
        self.embedding = table.detach()
        self.permutation = None if permutation is None else _checked_permutation(permutation, self.embedding)
        self.mean, self.scale = _moments(self.embedding)

    def __len__(self) -> int:
        return len(self.embedding)

    def __repr__(self) -> str:
        permuted = "" if self.permutation is None else ", permuted"
        return f"Geometry({len(self)} x {self.embedding.shape[1]}, metric={self.metric!r}{permuted})"

    def rows(self, ids: Int[Tensor, "*batch tokens"]) -> Float[Tensor, "*batch tokens width"]:
        """Return the whitened rows of some tokens.

        Parameters
        ----------
        ids : Tensor, shape (..., tokens)
            Token ids.

        Returns
        -------
        float32 Tensor, shape (..., tokens, width)
            On the device of `ids`.

        Examples
        --------
        >>> Geometry(torch.tensor([[1.0], [3.0]])).rows(torch.tensor([1, 0]))
        tensor([[ 1.],
                [-1.]])
        """
        at = ids.to(self.embedding.device)
        at = at if self.permutation is None else self.permutation[at]
        rows = self.embedding[at].to(ids.device).float()
        return rows.sub_(self.mean.to(ids.device)).mul_(self.scale.to(ids.device))

    def distances(self, ids: Int[Tensor, "*batch tokens"]) -> Float[Tensor, "*batch tokens tokens"]:
        """Return the distances between some tokens.

        Parameters
        ----------
        ids : Tensor, shape (..., tokens)
            Token ids.

        Returns
        -------
        float32 Tensor, shape (..., tokens, tokens)
            On the device of `ids`; at least 0, and exactly 0 on the diagonal.

        Examples
        --------
        >>> Geometry(torch.eye(4), metric="chord").distances(torch.tensor([2, 0])).round(decimals=4)
        tensor([[0.0000, 1.6330],
                [1.6330, 0.0000]])
        """
        rows = self.rows(ids)
        if self.metric == "euclidean":
            squares = rows.square().sum(-1)
            between = (rows @ rows.mT).mul_(-2).add_(squares.unsqueeze(-1)).add_(squares.unsqueeze(-2))
            between = between.clamp_min_(0).div_(2 * rows.shape[-1]).sqrt_()
        else:
            rows = torch.nn.functional.normalize(rows, dim=-1)
            between = (rows @ rows.mT).clamp_(-1, 1).neg_().add_(1)
            between = between if self.metric == "cosine" else between.mul_(2).sqrt_()
        between.diagonal(dim1=-2, dim2=-1).zero_()
        return between


def _moments(table: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and reciprocal standard deviation of each column, summed in float64, a few rows at a time."""
    blocks = table.split(max(1, _ELEMENTS // table.shape[1]))
    mean = sum(block.double().sum(0) for block in blocks) / len(table)
    variance = sum((block.double() - mean).square_().sum(0) for block in blocks) / len(table)
    if not variance.isfinite().all():
        raise InputError("embedding holds NaN or infinite numbers; give the weights of a working model")
    return mean.float(), variance.clamp_min(_VARIANCE_FLOOR).rsqrt().float()


def _checked_permutation(permutation: Tensor, table: Tensor) -> Tensor:
    order, size = torch.as_tensor(permutation, device=table.device), len(table)
    whole = not (order.is_floating_point() or order.is_complex() or order.dtype == torch.bool)
    if not whole or order.shape != (size,) or not torch.equal(order.long().sort().values.cpu(), torch.arange(size)):
        raise InputError(f"permutation of shape {tuple(order.shape)} must hold each of 0 ... {size - 1} once")
    return order.long()
