"""The network and the training that all predictors of output lengths share, so that they are compared fairly.

Each output has a branch of its own as in TIE's predictor (Zheng et al., arXiv 2604.00499, Section 3), with one hidden
layer: Linear, LayerNorm, GELU, dropout, Linear. Learning rate, weight decay and epochs are chosen on validation
prompts by the predictor's own loss; the network is then trained on all prompts. What labels and losses are is
`icml26.tie.predictors`' business.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from icml26.checks import is_number, whole
from icml26.errors import InputError
from icml26.tie.checks import checked_reals

__all__ = ["DEFAULTS", "Fitted", "Loss", "PredictorConfig", "fit", "standard"]

Loss = Callable[[Float[Tensor, "rows outputs"], Int64[Tensor, " rows"], float], Float[Tensor, ""]]


@dataclass(frozen=True)
class PredictorConfig:
    """Network and training, the same for every predictor.

    Parameters
    ----------
    width
        Of the hidden layer.
    dropout
        Share of hidden values dropped in training.
    epochs
        Most passes over the prompts; how many are used is chosen on the validation prompts.
    batch
        Prompts per update, and in a list of LTR.
    learning_rates, weight_decays
        The grid.
    validation
        Share of the prompts that choose from the grid; the chosen predictor is then trained on all.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> PredictorConfig().batch
    32
    """

    width: int = 64
    dropout: float = 0.2
    epochs: int = 40
    batch: int = 32
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    weight_decays: tuple[float, ...] = (0.01, 1.0)
    validation: float = 0.25

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("epochs", 1), ("batch", 2)):
            whole(name, getattr(self, name), least)
        shares = self.dropout, self.validation
        if not (all(map(is_number, shares)) and 0 <= self.dropout < 1 and 0 < self.validation < 1):
            raise InputError(f"dropout={self.dropout!r} and validation={self.validation!r} must be shares below 1")
        for name, kind in (("learning_rates", "positive"), ("weight_decays", "0 or more")):
            grid = getattr(self, name)
            if not isinstance(grid, tuple | list) or not grid or not all(map(is_number, grid)):
                raise InputError(f"{name}={grid!r} must be a tuple of numbers that are {kind}, and one at least")
            if min(grid) < 0 or (kind == "positive" and min(grid) == 0):
                raise InputError(f"{name}={grid!r} must be {kind}, and one at least")


DEFAULTS = PredictorConfig()


class Fitted(NamedTuple):
    """A trained predictor.

    Attributes
    ----------
    predict : callable
        From features, shape (prompts, width), to a `LogTLaw` (TIE), lengths, or scores that are larger for longer.
    learning_rate, weight_decay : float
        Chosen from the grid.
    epochs : int
        Chosen on the validation prompts.
    """

    predict: Callable[[Float[np.ndarray, "prompts width"]], Any]
    learning_rate: float
    weight_decay: float
    epochs: int


def fit(
    features: Float[np.ndarray, "prompts width"],
    outputs: int,
    loss: Loss,
    decode: Callable[[Float[np.ndarray, "prompts outputs"]], Any],
    config: PredictorConfig,
    seed: int,
) -> Fitted:
    """Choose from the grid on validation prompts, then train on all prompts.

    Parameters
    ----------
    features : float array, shape (prompts, width)
        Of the prompts; z-scored here.
    outputs : int
        Branches of the network.
    loss : callable
        From outputs, the rows they are for, and the share of training done, from 0 to 1.
    decode : callable
        From outputs to what `Fitted.predict` returns.
    config : PredictorConfig
        Network and training.
    seed : int
        Of weights, batches, dropout and validation prompts; the global random state is left as it was.

    Returns
    -------
    Fitted

    Raises
    ------
    InputError
        If either part would have fewer than two prompts, or the seed is negative.

    Examples
    --------
    >>> seen = np.random.default_rng(0).normal(size=(64, 1))
    >>> def loss(outputs, rows, done):
    ...     return (outputs[:, 0] - torch.tensor(seen[rows, 0])).square().mean()
    >>> found = fit(seen, 1, loss, lambda outputs: outputs[:, 0], PredictorConfig(learning_rates=(0.01,)), seed=0)
    >>> bool(np.abs(found.predict(seen) - seen[:, 0]).mean() < 0.3)
    True
    """
    seed = whole("seed", seed, 0)
    held = round(config.validation * len(features))
    if not 2 <= held <= len(features) - 2:
        raise InputError(
            f"validation={config.validation} of {len(features)} prompts is {held}: give more prompts, so that two or "
            "more train and two or more choose"
        )
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(features)))
    rows, chosen = order[held:], order[:held]
    trials = []
    for rate, decay in itertools.product(config.learning_rates, config.weight_decays):
        # Features are z-scored with the prompts trained on, as they are for the last network.
        inputs = _inputs(features, features[rows])
        losses = []

        def measure(network: nn.Module) -> None:
            with torch.no_grad():
                losses.append(float(loss(network(inputs[chosen]), chosen, 1.0)))  # noqa: B023

        _train(inputs, rows, outputs, loss, config, rate, decay, config.epochs, seed, measure)
        best = int(np.argmin(losses))
        trials.append((losses[best], rate, decay, best + 1))
    _, rate, decay, epochs = min(trials)
    network = _train(_inputs(features, features), order, outputs, loss, config, rate, decay, epochs, seed)

    def predict(new: Float[np.ndarray, "prompts width"]) -> Any:
        new = checked_reals("features", new)
        if new.ndim != 2 or new.shape[1] != features.shape[1]:
            raise InputError(f"features have shape {new.shape}; give rows of {features.shape[1]} as in training")
        with torch.no_grad():
            return decode(network(_inputs(new, features)).double().numpy())

    return Fitted(predict, rate, decay, epochs)


def standard(values: Float[np.ndarray, "rows ..."]) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Mean and standard deviation over the rows, for z-scores; 1 in place of a deviation of 0.

    Parameters
    ----------
    values : float array, shape (rows, ...)

    Returns
    -------
    tuple of float array
        Centre and scale.

    Examples
    --------
    >>> [end.tolist() for end in standard(np.array([[1.0, 5.0], [3.0, 5.0]]))]
    [[2.0, 5.0], [1.0, 1.0]]
    """
    scale = values.std(0)
    return values.mean(0), np.where(scale > 0, scale, 1.0)


class _Branches(nn.Module):
    def __init__(self, inputs: int, outputs: int, config: PredictorConfig) -> None:
        super().__init__()
        self.branches = nn.ModuleList(self._branch(inputs, config) for _ in range(outputs))

    @staticmethod
    def _branch(inputs: int, config: PredictorConfig) -> nn.Module:
        head = nn.Linear(config.width, 1)
        nn.init.xavier_uniform_(head.weight, gain=0.5)
        nn.init.zeros_(head.bias)
        hidden = nn.Linear(inputs, config.width), nn.LayerNorm(config.width), nn.GELU(), nn.Dropout(config.dropout)
        return nn.Sequential(*hidden, head)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([branch(inputs) for branch in self.branches], 1)


def _train(inputs, rows, outputs, loss, config, rate, decay, epochs, seed, measure=None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _Branches(inputs.shape[1], outputs, config)
        optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=decay)
        for epoch in range(epochs):
            network.train()
            # Equal shares rather than a rest that may be a single prompt, which is no list.
            for batch in rows[torch.randperm(len(rows))].tensor_split(-(-len(rows) // config.batch)):
                optimiser.zero_grad()
                loss(network(inputs[batch]), batch, epoch / max(1, config.epochs - 1)).backward()
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimiser.step()
            network.eval()
            if measure:
                measure(network)
    return network


def _inputs(features, reference) -> Tensor:
    centre, scale = standard(reference)
    return torch.tensor((features - centre) / scale, dtype=torch.float32)
