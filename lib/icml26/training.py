"""One small training loop for causal language models.

`train` fits a `transformers` causal language model to a stream of tokens (random windows) or to texts of one length
(random rows): AdamW, warm-up and cosine decay, gradient clipping, one seed. Building the model and keeping it with its
recipe is `icml26.checkpoints`', choosing text and numbers the recipe's, measuring losses the chapters'.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64
from torch import Tensor, nn

from icml26.checkpoints import Checkpoint, CheckpointError, build, digest, load_checkpoint, save_checkpoint
from icml26.checks import whole
from icml26.errors import InputError

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "TrainingConfig",
    "build",
    "digest",
    "learning_rate",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]


@dataclass(frozen=True)
class TrainingConfig:
    """Parameters of the loop.

    Parameters
    ----------
    steps
        Updates of the weights.
    batch_size
        Windows, or rows, per update.
    window
        Predicted tokens per window; rows are taken whole.
    learning_rate
        Peak rate of AdamW.
    warmup
        Steps over which the rate rises linearly to its peak.
    final_share
        The last rate over the peak rate, at the end of the cosine.
    weight_decay
        Of matrices; vectors (norms, biases) do not decay.
    betas
        AdamW's moments.
    clip
        Greatest norm of the gradient.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> TrainingConfig(steps=100).warmup
    10
    """

    steps: int
    batch_size: int = 16
    window: int = 128
    learning_rate: float = 3e-3
    warmup: int = 10
    final_share: float = 0.1
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "window"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")
        if self.warmup < 0 or not 0 <= self.final_share <= 1 or self.weight_decay < 0:
            raise InputError(
                f"warmup={self.warmup}, final_share={self.final_share}, weight_decay={self.weight_decay}: "
                "use 0 or more, a share from 0 to 1, 0 or more"
            )
        if not (self.learning_rate > 0 and self.clip > 0):
            raise InputError(f"learning_rate={self.learning_rate} and clip={self.clip} must be positive")


def learning_rate(step: int, config: TrainingConfig) -> float:
    """Return the rate of one step: linear warm-up, then half a cosine down to ``final_share`` of the peak.

    Parameters
    ----------
    step : int
        From 0.
    config : TrainingConfig
        The loop's parameters.

    Returns
    -------
    float
        The rate.

    Examples
    --------
    >>> config = TrainingConfig(steps=6, learning_rate=1.0, warmup=2, final_share=0.0)
    >>> [round(learning_rate(step, config), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.25, 0.0]
    """
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup - 1)
    share = config.final_share + (1 - config.final_share) * (1 + math.cos(math.pi * min(1.0, done))) / 2
    return config.learning_rate * share


def train(
    model: nn.Module,
    tokens: Int64[Tensor, " tokens"] | Int[Tensor, "rows length"],
    config: TrainingConfig,
    *,
    seed: int,
    skip: int = 0,
    stop: int | None = None,
    until: Callable[[int], bool] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Float32[np.ndarray, " steps"]:
    """Train a causal language model, in place, on random windows of a token stream or on random rows of a table.

    Equal seeds give equal weights, bit for bit, on one machine with one number of threads.

    Parameters
    ----------
    model : transformers causal language model
        Called as ``model(input_ids=...)``, it returns ``.logits``; left in evaluation mode.
    tokens : int64 tensor, tokens; or integer tensor, rows x length
        The training text, more than ``config.window`` tokens; or texts of one length, of which whole rows are drawn.
    config : TrainingConfig
        The loop's parameters.
    seed : int
        Of the windows and of dropout; the global random state is left as it was.
    skip : int
        First tokens of each row that carry no loss, such as a prompt's.
    stop : int, optional
        Stop after so many steps of the schedule.
    until : callable, optional
        Called after each step with the number of steps done, the model in evaluation mode; if true, training stops.
    progress : callable, optional
        Called after each step with the number of steps done and the step's loss.

    Returns
    -------
    float32 array, steps
        Mean loss of each step's windows, in nats per predicted token.

    Raises
    ------
    InputError
        If there are too few tokens, ``skip`` leaves none to predict, or the loss is no longer finite.

    Examples
    --------
    >>> model = build({"model_type": "llama", "vocab_size": 2, "hidden_size": 8, "intermediate_size": 8,
    ...     "num_hidden_layers": 1, "num_attention_heads": 1}, seed=0)
    >>> losses = train(model, torch.arange(64) % 2, TrainingConfig(steps=40, window=8, learning_rate=0.02), seed=0)
    >>> bool(losses[-1] < 0.5 * losses[0])
    True
    """
    _check(tokens, config, skip)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=config.learning_rate,
        betas=config.betas,
    )
    draw = torch.Generator().manual_seed(seed)
    losses = np.empty(config.steps if stop is None else min(stop, config.steps), dtype=np.float32)
    first = max(0, skip - 1)  # the logits at a token predict the next one
    model.train()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for step in range(len(losses)):
                windows = _drawn(tokens, config, draw)
                logits = model(input_ids=windows[:, :-1]).logits[:, first:]
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1 + first :].flatten())
                losses[step] = loss.item()
                if not np.isfinite(losses[step]):
                    raise InputError(
                        f"the loss is not finite after step {step}: lower learning_rate={config.learning_rate}"
                    )
                for group in optimiser.param_groups:
                    group["lr"] = learning_rate(step, config)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), config.clip)
                optimiser.step()
                if progress:
                    progress(step + 1, float(losses[step]))
                if until:
                    model.eval()
                    if until(step + 1):
                        return losses[: step + 1]
                    model.train()
    finally:
        model.eval()
    return losses


def _drawn(tokens: Tensor, config: TrainingConfig, draw: torch.Generator) -> Int64[Tensor, "batch length"]:
    if tokens.ndim == 2:
        return tokens[torch.randint(len(tokens), (config.batch_size,), generator=draw)].long()
    starts = torch.randint(len(tokens) - config.window, (config.batch_size, 1), generator=draw)
    return tokens[starts + torch.arange(config.window + 1)]


def _check(tokens: Tensor, config: TrainingConfig, skip: int) -> None:
    if tokens.ndim == 1:
        if len(tokens) <= config.window:
            raise InputError(f"tokens are {len(tokens)}: more than window={config.window} are needed")
        if skip:
            raise InputError(f"skip={skip} needs rows: a stream of tokens has no prompts to leave out")
    elif tokens.ndim != 2 or not len(tokens) or tokens.shape[1] < 2 or tokens.dtype.is_floating_point:
        raise InputError(
            f"tokens have shape {tuple(tokens.shape)} and type {tokens.dtype}: give a stream of token ids, or rows of "
            "them with a length of at least 2"
        )
    else:
        whole("skip", skip, 0, tokens.shape[1] - 1)
