"""The paper's training of probes: Adam, all layers at once, the best epoch on validation data kept.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782); numbers are its released code's. That code applies
cross-entropy to probabilities, ``-log softmax(softmax(logits))_y``, which never reaches zero: `loss_floor`.
``loss="released"`` does the same, by default the loss is cross-entropy of the logits. A convex fit without an epoch to
choose is `icml26.kappa.probes.LinearProbe`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.kappa.probes import Probe

__all__ = ["AdamFit", "AdamProbe", "cross_entropy", "loss_floor"]


def loss_floor(options: int) -> float:
    """Return the infimum of the released code's loss, which applies cross-entropy to probabilities.

    Parameters
    ----------
    options
        k, at least 2.

    Returns
    -------
    float
        ``log(1 + (k - 1) / e)`` nats.

    Raises
    ------
    InputError
        If it is no such number.

    Examples
    --------
    >>> [round(loss_floor(options), 4) for options in (2, 3, 4)]
    [0.3133, 0.5514, 0.7437]
    """
    return math.log1p((whole("options", options, 2) - 1) / math.e)


def cross_entropy(
    logits: Float[Tensor, "... options"], labels: Int[Tensor, "..."], *, released: bool = False
) -> Float[Tensor, "..."]:
    """Compute a probe's training loss for each prompt.

    Parameters
    ----------
    logits
        Of the probe.
    labels
        Index of the target.
    released
        Take the softmax twice, ``-log softmax(softmax(logits))_y``, as the released code does: the loss never gets
        below `loss_floor`, and its gradient vanishes where the probe is sure.

    Returns
    -------
    Tensor
        Nats.

    Examples
    --------
    >>> cross_entropy(torch.tensor([[-99.0, 99.0]]), torch.tensor([1]), released=True)
    tensor([0.3133])
    """
    if released:
        logits = logits.softmax(-1)
    return -logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)


class AdamFit(NamedTuple):
    """What `AdamProbe.fit` returns.

    Attributes
    ----------
    probes : tuple of Probe
        One per layer.
    epochs : int array, layers
        Epochs after which they were taken.
    accuracies : float array, layers
        Validation accuracy there.
    """

    probes: tuple[Probe, ...]
    epochs: Int[np.ndarray, " layers"]
    accuracies: Float[np.ndarray, " layers"]


@dataclass(frozen=True)
class AdamProbe:
    """How the paper trains probes: on raw float32 features, without weight decay, from `nn.Linear`'s initial weights.

    Parameters
    ----------
    loss
        ``"cross_entropy"``, or ``"released"`` for the released code's double softmax.
    lr
        Learning rate.
    epochs
        Passes over the data.
    batch
        Prompts per step.
    seed
        Of the initial weights and the order of the prompts.

    Raises
    ------
    InputError
        If a number is out of range, or the loss is unknown.

    Examples
    --------
    >>> hidden = np.random.default_rng(0).normal(size=(60, 2, 5))
    >>> labels = hidden[:, 0, :3].argmax(1)  # the first layer tells, the second does not
    >>> fit = AdamProbe(lr=0.02, epochs=30).fit(hidden[:40], labels[:40], hidden[40:], labels[40:])
    >>> len(fit.probes), bool(fit.accuracies[0] > fit.accuracies[1])
    (2, True)
    """

    loss: str = "cross_entropy"
    lr: float = 2e-4
    epochs: int = 1000
    batch: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in ("cross_entropy", "released"):
            raise InputError(f"loss={self.loss!r} must be 'cross_entropy' or 'released'")
        real("lr", self.lr, above=0)
        for name, least in (("epochs", 1), ("batch", 1), ("seed", 0)):
            whole(name, getattr(self, name), least)

    def fit(
        self,
        hidden: Float[ArrayLike, "prompts layers width"],
        labels: Int[ArrayLike, " prompts"],
        validation_hidden: Float[ArrayLike, "validation layers width"],
        validation_labels: Int[ArrayLike, " validation"],
        *,
        options: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> AdamFit:
        """Train one probe per layer, all at once; Adam keeps them independent of one another.

        Parameters
        ----------
        hidden, labels
            Training data.
        validation_hidden, validation_labels
            Decide which epoch is kept: the first with the highest accuracy.
        options
            k; by default one more than the largest label.
        progress
            Called with one line for every tenth of the epochs.

        Returns
        -------
        AdamFit
            Probes, epochs and accuracies.

        Raises
        ------
        InputError
            If shapes do not fit, values are not finite, or an option is no training label.
        """
        x, y = _data("hidden", hidden, "labels", labels)
        held, target = _data("validation_hidden", validation_hidden, "validation_labels", validation_labels)
        k = max(2, int(y.max()) + 1) if options is None else whole("options", options, 2)
        if np.unique(y).tolist() != list(range(k)) or target.max() >= k:
            raise InputError(f"labels are {np.unique(y).tolist()}, not all of 0 to {k - 1}: a probe needs each option")
        if held.shape[1:] != x.shape[1:]:
            raise InputError(f"validation_hidden has shape {held.shape}, hidden {x.shape}: give the same layers")
        # Layers first, for one batched product per step.
        x, held = (torch.from_numpy(a.transpose(1, 0, 2).copy()) for a in (x, held))
        y, target = torch.from_numpy(y), torch.from_numpy(target)
        draw = torch.Generator().manual_seed(self.seed)
        layers, prompts, width = x.shape
        bound = 1 / math.sqrt(width)  # nn.Linear's default
        weights = (torch.rand((layers, width, k), generator=draw) * 2 - 1).mul_(bound).requires_grad_()
        bias = (torch.rand((layers, 1, k), generator=draw) * 2 - 1).mul_(bound).requires_grad_()
        best_weights, best_bias = weights.detach().clone(), bias.detach().clone()
        best, epochs = torch.full((layers,), -1.0), torch.zeros(layers, dtype=torch.int64)
        optimiser = torch.optim.Adam([weights, bias], lr=self.lr)
        for epoch in range(1, self.epochs + 1):
            for rows in torch.randperm(prompts, generator=draw).split(self.batch):
                logits = torch.baddbmm(bias, x[:, rows], weights)
                losses = cross_entropy(logits, y[rows].expand(layers, -1), released=self.loss == "released")
                optimiser.zero_grad()
                losses.mean(1).sum().backward()
                optimiser.step()
            with torch.no_grad():
                accuracy = (torch.baddbmm(bias, held, weights).argmax(-1) == target).float().mean(1)
                better = accuracy > best
                best[better], epochs[better] = accuracy[better], epoch
                best_weights[better], best_bias[better] = weights[better], bias[better]
            if progress and epoch % max(1, self.epochs // 10) == 0:
                progress(f"epoch {epoch} of {self.epochs}: best validation accuracy {best.max():.3f}")
        probes = tuple(Probe(w.numpy(), b[0].numpy()) for w, b in zip(best_weights, best_bias, strict=True))
        return AdamFit(probes, epochs.numpy(), best.numpy().astype(np.float64))


def _data(
    name: str, hidden: ArrayLike, label_name: str, labels: ArrayLike
) -> tuple[Float[np.ndarray, "prompts layers width"], Int[np.ndarray, " prompts"]]:
    hidden, labels = np.asarray(hidden, dtype=np.float32), np.asarray(labels)
    if hidden.ndim != 3 or not hidden.size or not np.isfinite(hidden).all():
        raise InputError(f"{name} has shape {hidden.shape}: give finite numbers of shape (prompts, layers, width)")
    if labels.shape != hidden.shape[:1] or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise InputError(f"{label_name} must be {len(hidden)} options from 0 on, one for each row of {name}")
    return hidden, labels.astype(np.int64)
