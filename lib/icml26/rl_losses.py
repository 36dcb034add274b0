"""The pieces of policy-gradient learning: advantages of groups, log-probabilities of tokens, the clipped loss.

They are those of group relative policy optimisation (GRPO; Shao et al., arXiv 2402.03300, section 4.1): advantages are
rewards normalised within the continuations of one prompt, and the loss is the clipped surrogate of PPO (Schulman et
al., arXiv 1707.06347, eq. 7). All are functions without state; drawing continuations and updating weights are left to
`icml26.rl`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from numpy.typing import ArrayLike
from torch import Tensor, nn

from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["group_advantages", "policy_loss", "token_log_probs"]

# Rewards of a group whose range is below this share of their size are equal up to rounding; normalising would blow the
# rounding up.
_FLAT = 1e-6


def group_advantages(
    rewards: Float[ArrayLike, "*groups samples"], ddof: int = 0
) -> Float64[np.ndarray, "*groups samples"]:
    r"""Normalise rewards within their groups: :math:`A_i = (R_i - \bar R) / \mathrm{std}(R)`.

    Of :math:`G` rewards of 0 or 1, :math:`k` of them 1, the ones get :math:`\sqrt{(G-k)/k}` and the zeros
    :math:`-\sqrt{k/(G-k)}` (with ``ddof=0``).

    Parameters
    ----------
    rewards : array-like, groups x samples
        A group along the last axis.
    ddof : int
        The standard deviation divides by ``samples - ddof``: 0 as in the paper, 1 as in many trainers.

    Returns
    -------
    float64 array, groups x samples
        Sums to 0 in each group; exactly 0 in a group whose rewards are equal (up to a millionth of the largest).

    Raises
    ------
    InputError
        If the rewards are no finite numbers, there are none, or ``ddof`` is neither 0 nor 1.

    Examples
    --------
    >>> group_advantages([[1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]).round(2).tolist()
    [[2.0, -0.5, -0.5, -0.5, -0.5], [0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    whole("ddof", ddof, 0, 1)
    try:
        given = np.asarray(rewards, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("rewards must be an array of numbers, every group of the same size") from error
    if given.ndim == 0 or given.shape[-1] == 0:
        raise InputError(
            f"rewards has shape {given.shape}; give at least one reward a group, groups along the last axis"
        )
    if not np.isfinite(given).all():
        raise InputError("rewards holds NaN or infinity; give finite numbers")
    size = np.abs(given).max(-1, keepdims=True)
    unit = given / np.where(size > 0, size, 1)  # so that no square over- or underflows
    flat = np.ptp(unit, axis=-1, keepdims=True) <= _FLAT
    centred = unit - unit.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).sum(-1, keepdims=True) / max(given.shape[-1] - ddof, 1))
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, deviation))


def token_log_probs(
    model: Any,
    prompts: Sequence[Int64[Tensor, " prompt_tokens"]],
    tokens: Int64[Tensor, "rows new_tokens"],
    temperature: float = 1.0,
) -> Float32[Tensor, "rows new_tokens"]:
    """Log-probability of every token of given continuations, by one forward pass over prompts and continuations.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model.
    prompts : sequence of Tensor, each of shape (prompt_tokens,)
        One for each row.
    tokens : int64 tensor, rows x new_tokens
        Continuations; what stands after their ends changes nothing before.
    temperature : float
        Divides the logits.

    Returns
    -------
    float32 tensor, rows x new_tokens
        In nats, on the model's device, differentiable.

    Raises
    ------
    InputError
        If there is not one prompt of at least one token for each row, or there are no tokens.

    Examples
    --------
    >>> from icml26 import models
    >>> model, _ = models.load_lm("tiny-random-llama")
    >>> token_log_probs(model, [torch.tensor([3, 1]), torch.tensor([4])], torch.tensor([[5, 9], [2, 6]])).shape
    torch.Size([2, 2])
    """
    if tokens.ndim != 2 or 0 in tokens.shape or len(prompts) != len(tokens) or not all(map(len, prompts)):
        raise InputError(
            f"tokens has shape {tuple(tokens.shape)} and there are {len(prompts)} prompts; "
            "give rows of tokens, and for each row a prompt of at least one token"
        )
    real("temperature", temperature, above=0)
    pad = nn.utils.rnn.pad_sequence
    before = pad(list(prompts), batch_first=True, padding_side="left")
    known = pad([torch.ones_like(prompt) for prompt in prompts], batch_first=True, padding_side="left")
    mask = torch.cat([known, torch.ones_like(tokens)], 1)
    ids = torch.cat([before, tokens], 1)
    told = {} if bool(known.all()) else {"attention_mask": mask.to(model.device)}
    logits = model(
        input_ids=ids.to(model.device),
        position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(model.device),
        use_cache=False,
        logits_to_keep=tokens.shape[1] + 1,
        **told,
    ).logits[:, :-1]  # the logits at a position are of the token after it
    # Of ids, not of tokens: those of `sample` were made in inference mode, which autograd refuses.
    chosen = ids[:, -tokens.shape[1] :, None].to(model.device)
    return torch.log_softmax(logits.float() / temperature, -1).gather(-1, chosen)[..., 0]


def policy_loss(
    log_probs: Float[Tensor, "rows tokens"],
    old: Float[Tensor, "rows tokens"],
    advantages: Float[Tensor, " rows"],
    mask: Bool[Tensor, "rows tokens"],
    clip: float = 0.2,
) -> Float[Tensor, ""]:
    r"""Clipped surrogate, negated: a mean over the tokens of each continuation, then over continuations.

    With the ratio :math:`w = \pi(y_t)/\pi_{old}(y_t)` a token counts
    :math:`-\min(w A, \mathrm{clip}(w, 1-\epsilon, 1+\epsilon) A)` (arXiv 2402.03300, eq. 3 without the divergence).

    Parameters
    ----------
    log_probs, old : float tensor, rows x tokens
        Log-probabilities of the drawn tokens, of the policy that learns and of the one that drew them.
    advantages : float tensor, rows
        Of whole continuations.
    mask : bool tensor, rows x tokens
        Tokens that were drawn, the end token included; at least one in each row.
    clip : float
        Epsilon.

    Returns
    -------
    scalar tensor
        The loss, differentiable in ``log_probs``.

    Examples
    --------
    >>> new, old = torch.tensor([[-1.0, -2.0]], requires_grad=True), torch.tensor([[-1.0, -2.0]])
    >>> policy_loss(new, old, torch.tensor([3.0]), torch.tensor([[True, False]])).backward()
    >>> new.grad
    tensor([[-3.,  0.]])
    """
    # Padding may be far less likely than before, or more: out of the ratio before its exponential.
    ratio = torch.where(mask, log_probs - old.detach(), 0).exp()
    gain = advantages[:, None]
    terms = torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
    return -((terms * mask).sum(1) / mask.sum(1)).mean()
