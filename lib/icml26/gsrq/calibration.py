"""The tokens that codebooks are fitted to: keys, values and gradients of some layers, read in one go.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065, section 4.5) takes them from the unquantised model on calibration text.
Gradients cost four times as much as the rest, and are taken for a part of the windows. The passes themselves are in
`activations`, what is fitted is in `codebooks`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from icml26.checks import whole
from icml26.gsrq.activations import collect, collect_gradients
from icml26.gsrq.projections import Place

__all__ = ["Calibration", "Progress", "calibrate"]

Progress = Callable[[str], None] | None
"""Called with a line of text at each step."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Keys and values that codebooks are fitted to.

    Attributes
    ----------
    states : dict of float32 array, tokens x channels
        By layer and kind.
    gradients : dict of float32 array, first tokens x channels
        Of the loss with respect to the first so many of these tokens; empty if none were asked for.
    """

    states: dict[Place, Float32[np.ndarray, "tokens channels"]]
    gradients: dict[Place, Float32[np.ndarray, "first channels"]]


def calibrate(
    model: Any,
    tokens: Int64[Tensor, "windows length"],
    layers: Iterable[int],
    *,
    gradient_windows: int = 0,
    progress: Progress = None,
) -> Calibration:
    """Read keys and values of calibration windows, and gradients of some of the windows.

    Parameters
    ----------
    model
        A causal language model of `transformers`.
    tokens
        Calibration windows, such as ``corpus.calibration``.
    layers
        Counted from 0.
    gradient_windows
        So many windows, spread evenly over the others, whose gradients are taken; their tokens come first.
    progress
        Called with a line of text after each window.

    Returns
    -------
    Calibration
        Keys, values and gradients.

    Raises
    ------
    InputError
        If there are fewer windows, or as `activations.collect`.

    Examples
    --------
    >>> from icml26.models import load_lm
    >>> tokens = torch.arange(32).reshape(4, 8)
    >>> found = calibrate(load_lm("tiny-random-llama")[0], tokens, [1], gradient_windows=2)
    >>> found.states[1, "key"].shape, found.gradients[1, "key"].shape
    ((32, 64), (16, 64))
    """
    layers, count = tuple(layers), whole("gradient_windows", gradient_windows, 0, len(tokens))
    if not count:
        return Calibration(collect(model, tokens, layers, progress=progress), {})
    chosen = torch.arange(count) * len(tokens) // count
    rest = torch.tensor([i for i in range(len(tokens)) if i not in chosen.tolist()], dtype=torch.int64)
    states, gradients = collect_gradients(model, tokens[chosen], layers, progress=progress)
    if len(rest):
        others = collect(model, tokens[rest], layers, progress=progress)
        states = {place: np.concatenate([array, others[place]]) for place, array in states.items()}
    return Calibration(states, gradients)
