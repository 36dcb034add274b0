"""KAPPA's step: copy the knowledge coordinates of a hidden state onto its prediction coordinates.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782). With probes (W_K, b_K) of the right option and
(W_P, b_P) of the model's choice, the shortest step after which the prediction logits are a target t is

    h' = h + W_P (W_P' W_P)^+ (t - W_P'h - b_P),    t = alpha (W_K'h + b_K) + beta sign(W_K'h + b_K).

alpha = 1, beta = 0 is plain alignment. "Off" is no step at all: alpha = 0 would set the prediction logits to zero. A
softmax does not see what all columns share, so by default both probes are centred first; without it the Gram matrix of
a centred fit is singular and the constraint cannot be met. Centring makes the step independent of what is shared and,
for beta = 0, never longer.

``mode="released"`` is what the released code does instead: both matrices are divided by their Frobenius norms, biases
are not, and the transpose takes the place of the pseudo-inverse; its weight w (30 in the released configurations) is
our alpha. Algebra is in float32, or float64 if the hidden state is. Fitting the probes is `icml26.kappa.probes`'
business, hooking a model `icml26.kappa.hooks`'.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from icml26.checks import is_integer, real, whole
from icml26.errors import InputError
from icml26.kappa import hooks
from icml26.kappa.probes import Probe

__all__ = ["MODES", "Kappa", "condition", "shift", "spectral_radius"]

MODES = ("exact", "released")
CUT = 1e-6  # singular values of W_P below this share of the largest count as none


def shift(
    hidden: "Float[np.ndarray, '... width'] | Float[Tensor, '... width']",
    know: Probe,
    pred: Probe,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    mode: str = "exact",
    centred: bool = True,
    multiplier: float = 1.0,
) -> "Float[np.ndarray, '... width'] | Float[Tensor, '... width']":
    """Compute the step ``h' - h``.

    Parameters
    ----------
    hidden
        Hidden states h, NumPy's or torch's; those of half precision are computed in float32.
    know, pred
        Probes of the right option and of the model's choice, at the same layer.
    alpha
        Strength of the knowledge logits in the target; w of the released form.
    beta
        Strength of their sign. It depends on what a softmax does not see: exact mode takes it of centred logits.
    mode
        ``"exact"`` for the closed form, ``"released"`` for what the released code computes.
    centred
        Whether exact mode centres both probes; released mode never does.
    multiplier
        Scales the step.

    Returns
    -------
    array or Tensor, like hidden
        To be added to h; float64 of NumPy's, float32 or float64 of torch's.

    Raises
    ------
    InputError
        If an option is out of range, or widths or numbers of options differ.

    Examples
    --------
    >>> know, pred = Probe(np.eye(4)[:, :2], np.zeros(2)), Probe(np.eye(4)[:, 2:], np.zeros(2))
    >>> h = np.array([3.0, 1.0, 0.0, 0.0])
    >>> h + shift(h, know, pred)
    array([ 3.,  1.,  1., -1.])
    >>> h + shift(h, know, pred, centred=False)
    array([3., 1., 3., 1.])
    """
    step = _Step(know, pred, alpha, beta, mode, centred, multiplier)
    if isinstance(hidden, Tensor):
        return step(hidden if hidden.dtype == torch.float64 else hidden.float())
    if np.iscomplexobj(hidden):
        raise InputError("hidden is complex: give an array of real hidden states")
    try:
        hidden = torch.from_numpy(np.array(hidden, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError("hidden is not numbers: give an array of hidden states") from None
    return step(hidden).numpy()


def condition(pred: Probe, *, centred: bool = True) -> float:
    """Return how unequal the directions are along which the prediction logits can be set.

    Parameters
    ----------
    pred
        Probe of the model's choice.
    centred
        Whether it is centred first, which leaves k - 1 directions.

    Returns
    -------
    float
        Largest over smallest singular value of W_P; infinite where the exact step cuts a direction, below 1e-6.

    Examples
    --------
    >>> round(condition(Probe(np.diag([3.0, 1.0]), np.zeros(2)), centred=False), 6)
    3.0
    """
    weights = (pred.centred() if centred else pred).weights
    values = np.linalg.svd(weights, compute_uv=False)[: max(1, pred.classes - centred)]
    if len(values) < pred.classes - centred or values[-1] <= CUT * values[0]:
        return float("inf")
    return float(values[0] / values[-1])


def spectral_radius(know: Probe, pred: Probe, *, alpha: float = 1.0, centred: bool = True) -> float:
    """Tell whether repeated exact steps settle (below 1) or run away (above).

    A step moves the knowledge logits too, unless the subspaces are orthogonal: what is left to do after it is
    ``alpha M`` times what there was, with ``M = W_K' W_P (W_P' W_P)^+``.

    Parameters
    ----------
    know, pred
        Probes of one layer.
    alpha
        Strength.
    centred
        As of `shift`.

    Returns
    -------
    float
        Largest absolute eigenvalue of ``alpha M``.

    Raises
    ------
    InputError
        As of `shift`.

    Examples
    --------
    >>> probe = Probe(np.eye(4)[:, :2], np.zeros(2))
    >>> round(spectral_radius(probe, probe, alpha=5.0), 6)
    5.0
    """
    step = _Step(know, pred, alpha, 0.0, "exact", centred, 1.0)
    return float(np.abs(np.linalg.eigvals(alpha * step.know.T @ step.back)).max())


@dataclass(frozen=True, eq=False)
class Kappa:
    """KAPPA at some blocks of a model.

    Parameters
    ----------
    pairs
        For block l, counted from 0, its knowledge and prediction probes. None at all leaves a model as it is.
    alpha, beta, mode, centred, multiplier
        As of `shift`.
    positions
        Where the last token's shift is added: ``"last"``, there alone; ``"after"``, at every token from `start` on.

    Raises
    ------
    InputError
        As of `shift`.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> model, tokenizer = load_lm("tiny-random-llama")
    >>> draw = np.random.default_rng(0)
    >>> know, pred = (Probe(draw.normal(size=(128, 3)), np.zeros(3)) for _ in range(2))
    >>> ids = tokenizer("The answer is (", return_tensors="pt")
    >>> with Kappa({0: (know, pred)}, alpha=5.0).applied(model):
    ...     model.generate(**ids, max_new_tokens=2, do_sample=False).shape
    torch.Size([1, 17])
    """

    pairs: Mapping[int, tuple[Probe, Probe]]
    alpha: float = 1.0
    beta: float = 0.0
    mode: str = "exact"
    centred: bool = True
    multiplier: float = 1.0
    positions: str = "last"
    _steps: dict[int, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.positions not in ("last", "after"):
            raise InputError(f"positions={self.positions!r} must be 'last' or 'after'")
        pairs = self.pairs.items() if isinstance(self.pairs, Mapping) else [(None, None)]
        if not all(
            is_integer(layer) and layer >= 0 and isinstance(pair, tuple) and len(pair) == 2 for layer, pair in pairs
        ):
            raise InputError("pairs must map blocks, counted from 0, to (knowledge probe, prediction probe)")
        options = (self.alpha, self.beta, self.mode, self.centred, self.multiplier)
        object.__setattr__(self, "pairs", dict(sorted(self.pairs.items())))
        object.__setattr__(self, "_steps", {layer: _Step(*pair, *options) for layer, pair in self.pairs.items()})

    def edit(
        self, hidden: Float[Tensor, "... length width"], layer: int, *, start: int | None = None
    ) -> Float[Tensor, "... length width"]:
        """Shift one block's output, for libraries with hooks of their own (``blocks.l.hook_resid_post``).

        Parameters
        ----------
        hidden
            Output of the block, the prompt's last token at the end.
        layer
            The block.
        start
            With ``positions="after"``: the first position that is shifted, from 0.

        Returns
        -------
        Tensor
            A new one of the same type; the one given is left as it is.

        Raises
        ------
        InputError
            If there are no probes for the block, a start does not fit, or hidden is no Tensor.
        """
        if not is_integer(layer) or layer not in self._steps:
            raise InputError(f"layer={layer!r} has no probes: there are those of {list(self._steps)}")
        if not isinstance(hidden, Tensor) or hidden.ndim < 2 or not hidden.shape[-2]:
            raise InputError("hidden must be a Tensor (..., length, width), the output of a block")
        if (self.positions == "after") != (start is not None):
            raise InputError(
                f"positions={self.positions!r} with start={start!r}: 'after' needs a start, 'last' takes none"
            )
        length = hidden.shape[-2]
        first = length - 1 if start is None else whole("start", start, 0, length - 1)
        last = hidden[..., -1:, :]
        step = self._steps[layer](last if last.dtype == torch.float64 else last.float())
        chosen = (torch.arange(length, device=hidden.device) >= first)[:, None]
        return hooks.added(hidden, step, chosen)

    def applied(
        self,
        model: nn.Module,
        *,
        start: int | Int[Tensor, " batch"] | None = None,
        attention_mask: Int[Tensor, "batch length"] | None = None,
        generated: bool = False,
        prompt_length: int | None = None,
    ) -> AbstractContextManager[None]:
        """Intervene in a model's forward passes while the context lasts.

        Parameters
        ----------
        model
            A causal language model of `transformers`.
        start, attention_mask, generated, prompt_length
            As of `icml26.kappa.hooks.shifted`.

        Returns
        -------
        context manager
            To be put around ``model(...)`` or ``model.generate(...)``.

        Raises
        ------
        InputError
            If the model has no such block or another width, or as of `icml26.kappa.hooks.shifted`.
        """
        return hooks.shifted(
            model,
            self._steps,
            positions=self.positions,
            start=start,
            attention_mask=attention_mask,
            generated=generated,
            prompt_length=prompt_length,
        )


class _Step:
    """The step at one layer: an affine map of h and, with beta, of the signs of the knowledge logits."""

    def __init__(
        self, know: Probe, pred: Probe, alpha: float, beta: float, mode: str, centred: bool, multiplier: float
    ) -> None:
        for name, probe in (("know", know), ("pred", pred)):
            if not isinstance(probe, Probe):
                raise InputError(f"{name} is a {type(probe).__name__}: give a Probe, such as LinearProbe's probe_")
        if know.weights.shape != pred.weights.shape:
            raise InputError(
                f"know has shape {know.weights.shape}, pred {pred.weights.shape}: give two probes of one layer"
            )
        if mode not in MODES:
            raise InputError(f"mode={mode!r} must be one of {', '.join(MODES)}")
        if not isinstance(centred, bool | np.bool_):
            raise InputError(f"centred={centred!r} must be True or False")
        self.alpha, self.beta = real("alpha", alpha), real("beta", beta)
        self.exact = mode == "exact"
        if self.exact and centred:
            know, pred = know.centred(), pred.centred()
        norms = [1.0 if self.exact else np.linalg.norm(probe.weights) for probe in (know, pred)]
        if not all(norms):
            raise InputError("a probe's weights are all zero: released mode cannot normalise them")
        self.know, self.pred = know.weights / norms[0], pred.weights / norms[1]
        self.know_bias, self.pred_bias = know.bias, pred.bias
        back = np.linalg.pinv(self.pred.T, rcond=CUT) if self.exact else self.pred
        self.back = real("multiplier", multiplier) * back
        self._strength = f"alpha={alpha:g}, beta={beta:g}, multiplier={multiplier:g}"
        self._placed: dict[tuple, tuple[Tensor, ...]] = {}

    def __call__(self, hidden: Float[Tensor, "... width"]) -> Float[Tensor, "... width"]:
        if not hidden.ndim or hidden.is_complex() or hidden.shape[-1] != len(self.know):
            width = hidden.shape[-1] if hidden.ndim else 0
            raise InputError(f"hidden has width {width}, the probes {len(self.know)}: give real states of one model")
        key = hidden.device, hidden.dtype
        if key not in self._placed:
            arrays = self.know, self.know_bias, self.pred, self.pred_bias, self.back.T
            self._placed[key] = tuple(torch.as_tensor(np.array(array)).to(*key) for array in arrays)
        know, know_bias, pred, pred_bias, back = self._placed[key]
        logits = hidden @ know + know_bias
        target = self.alpha * logits
        if self.beta:
            # The released code counts zero as positive; the exact form lets it be neither.
            target = target + self.beta * (logits.sign() if self.exact else torch.where(logits < 0, -1.0, 1.0))
        step = (target - hidden @ pred - pred_bias) @ back
        if not step.isfinite().all():
            if not hidden.isfinite().all():
                raise InputError("hidden states hold values that are not finite: the step is not defined there")
            raise InputError(f"the step is beyond {hidden.dtype} with {self._strength}: use smaller ones")
        return step
