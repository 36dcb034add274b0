"""Reinforcement learning of causal language models from a reward for whole continuations: GRPO.

Group relative policy optimisation (Shao et al., arXiv 2402.03300, section 4.1) draws a group of continuations of every
prompt, takes as advantage of each its reward normalised within the group, and gives that advantage to every token, the
end token included, in PPO's clipped surrogate. Here the loss is averaged over the tokens of a continuation, then over
continuations, and there is neither a penalty on the divergence from the first model nor a bonus for entropy. With one
update for each batch the policy has not moved since the batch was drawn: the gradient is then that of REINFORCE.

The equations are `icml26.rl_losses`', drawing is `icml26.generation`'s, prompts and rewards are the caller's, keeping
the result is `icml26.checkpoints`'.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from icml26.checks import is_number, real, whole
from icml26.errors import InputError
from icml26.generation import Continuations, sample
from icml26.rl_losses import group_advantages, policy_loss, token_log_probs

__all__ = ["GRPOConfig", "GRPOHistory", "group_advantages", "grpo", "policy_loss", "token_log_probs"]


@dataclass(frozen=True)
class GRPOConfig:
    """Parameters of `grpo`.

    Parameters
    ----------
    steps
        Batches of continuations drawn.
    max_new_tokens
        Most tokens of a continuation, the end token included.
    end
        Token that ends a continuation.
    questions
        Prompts in a batch.
    samples
        Continuations of each prompt: the size of a group.
    learning_rate
        Constant rate of Adam.
    temperature
        Divides the logits, when drawing and in the loss.
    updates
        Updates of the weights for each batch.
    clip
        Largest distance from 1 of the ratio of new to old probability that is still rewarded; plays no part in the
        first update of a batch.
    max_norm
        Greatest norm of the gradient.
    ddof
        The standard deviation of a group's rewards divides by ``samples - ddof``.

    Raises
    ------
    InputError
        If a value is out of its range.

    Examples
    --------
    >>> GRPOConfig(steps=100, max_new_tokens=64, end=0).samples
    8
    """

    steps: int
    max_new_tokens: int
    end: int
    questions: int = 16
    samples: int = 8
    learning_rate: float = 3e-4
    temperature: float = 1.0
    updates: int = 1
    clip: float = 0.2
    max_norm: float = 1.0
    ddof: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "max_new_tokens", "questions", "updates"):
            whole(name, getattr(self, name), 1)
        whole("end", self.end, 0)
        whole("samples", self.samples, 2)  # one alone has no group to be compared with
        whole("ddof", self.ddof, 0, 1)
        for name in ("learning_rate", "temperature", "max_norm"):
            real(name, getattr(self, name), above=0)
        real("clip", self.clip, above=0, below=1)


class GRPOHistory(NamedTuple):
    """What `grpo` returns: one number for each step.

    Attributes
    ----------
    reward : float64 array, steps
        Mean reward of the batch, before its updates.
    flat : float64 array, steps
        Share of groups whose rewards are all equal: they teach nothing.
    length : float64 array, steps
        Mean number of tokens of a continuation.
    norm : float64 array, steps
        Norm of the gradient before clipping, mean over the batch's updates; 0 where every group is flat.
    """

    reward: Float64[np.ndarray, " steps"]
    flat: Float64[np.ndarray, " steps"]
    length: Float64[np.ndarray, " steps"]
    norm: Float64[np.ndarray, " steps"]


def grpo(
    model: Any,
    prompts: Sequence[Int64[Tensor, " prompt_tokens"]],
    reward: Callable[[int, Int64[Tensor, " tokens"]], float],
    config: GRPOConfig,
    *,
    seed: int,
    progress: Callable[[int, float], None] | None = None,
) -> GRPOHistory:
    """Train a causal language model, in place, by GRPO.

    A batch in which every group is flat changes nothing. Equal seeds give equal weights, bit for bit, on one machine
    with one number of threads. The model stays in evaluation mode, so that it is the law that was drawn from.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model.
    prompts : sequence of Tensor, each of shape (prompt_tokens,)
        The training prompts; each step draws ``config.questions`` different ones.
    reward : callable
        ``reward(index, tokens)`` of a prompt's index and the tokens drawn, up to and with the end token if it was
        drawn; returns a finite number.
    config : GRPOConfig
        Parameters.
    seed : int
        Of the prompts' order and of the continuations.
    progress : callable, optional
        Called after each step with the number of steps done and the step's mean reward.

    Returns
    -------
    GRPOHistory
        Mean reward, share of flat groups, mean length and norm of the gradient of every step.

    Raises
    ------
    InputError
        If there are fewer prompts than a step takes, a reward is no finite number, or the gradient is not finite.

    Examples
    --------
    >>> from icml26 import models
    >>> model, _ = models.load_lm("tiny-random-llama")
    >>> config = GRPOConfig(steps=2, max_new_tokens=4, end=0, questions=1)
    >>> def distinct(index, tokens):
    ...     return len(set(tokens.tolist()))
    >>> grpo(model, [torch.tensor([3, 1])], distinct, config, seed=0).reward.shape
    (2,)
    """
    whole("seed", seed, 0)
    if len(prompts) < config.questions:
        raise InputError(f"prompts are {len(prompts)}, fewer than questions={config.questions} of a step; give more")
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    history = GRPOHistory(*(np.zeros(config.steps) for _ in GRPOHistory._fields))
    model.eval()
    for step in range(config.steps):
        chosen = torch.randperm(len(prompts), generator=generator)[: config.questions].tolist()
        asked = [prompts[index] for index in chosen]
        drawn = sample(
            model,
            asked,
            samples=config.samples,
            max_new_tokens=config.max_new_tokens,
            end=config.end,
            generator=generator,
            temperature=config.temperature,
        )
        rewards = _rewards(reward, chosen, drawn)
        advantages = group_advantages(rewards, config.ddof)
        history.reward[step] = rewards.mean()
        history.flat[step] = (advantages == 0).all(-1).mean()
        history.length[step] = drawn.lengths.double().mean()
        history.norm[step] = _update(model, optimiser, asked, drawn, advantages, config)
        if not np.isfinite(history.norm[step]):
            raise InputError(
                f"the gradient is not finite after step {step}: lower learning_rate={config.learning_rate}"
            )
        if progress is not None:
            progress(step + 1, float(history.reward[step]))
    return history


def _rewards(reward: Callable, chosen: list[int], drawn: Continuations) -> Float64[np.ndarray, "questions samples"]:
    rewards = np.empty(drawn.lengths.shape)
    for row, column in np.ndindex(rewards.shape):
        value = reward(chosen[row], drawn.tokens[row, column, : drawn.lengths[row, column]])
        if not isinstance(value, bool | np.bool_) and not is_number(value):
            raise InputError(f"reward returned {value!r} for prompt {chosen[row]}; it must return a finite number")
        rewards[row, column] = value
    return rewards


def _update(
    model: Any,
    optimiser: torch.optim.Optimizer,
    asked: Sequence[Tensor],
    drawn: Continuations,
    advantages: Float64[np.ndarray, "questions samples"],
    config: GRPOConfig,
) -> float:
    """Update the weights on one batch; returns the mean norm of the gradient."""
    rows = np.flatnonzero(advantages)  # the others have no gradient, but count in the mean
    if len(rows) == 0:
        return 0.0
    lengths = drawn.lengths.flatten()[rows]
    longest = int(lengths.max())
    tokens = drawn.tokens.flatten(0, 1)[rows, :longest]
    repeated = [asked[row // config.samples] for row in rows]
    mask = (torch.arange(longest) < lengths[:, None]).to(model.device)
    gain = torch.from_numpy(advantages.flatten()[rows]).to(model.device, torch.float32)
    old, norms = None, []
    for _ in range(config.updates):
        log_probs = token_log_probs(model, repeated, tokens, config.temperature)
        old = log_probs.detach() if old is None else old
        optimiser.zero_grad()
        loss = policy_loss(log_probs, old, gain, mask, config.clip) * (len(rows) / advantages.size)
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)))
        if not np.isfinite(norms[-1]):
            break
        optimiser.step()
    optimiser.zero_grad()
    return float(np.mean(norms))
