"""KAPPA: a language model answers multiple-choice questions with what its hidden state knows.

The paper is Park, Pyun and Jo, KAPPA: Bridging the Knowledge-Prediction Gap in LLMs on Multiple-Choice Questions (ICML
2026, arXiv 2509.23782). `probes` fits two linear classifiers on hidden states, one for the right option and one for the
option that the model picks (`adam` as the paper does); `gap` measures how far their answers are apart, `geometry` how
far their subspaces are. `intervention` moves a hidden state so that the prediction coordinates become the knowledge
coordinates, and `hooks` puts that into a running model. `world` has tiny trained transformers whose knowledge and
habits are known, of the made-up world of `entities`.

The names below are loaded when they are first used, because some need torch or scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icml26.kappa.adam import AdamProbe
    from icml26.kappa.intervention import Kappa, shift
    from icml26.kappa.probes import LinearProbe, Probe

__all__ = ["AdamProbe", "Kappa", "LinearProbe", "Probe", "shift"]

_HOMES = {
    "AdamProbe": "adam",
    "Kappa": "intervention",
    "LinearProbe": "probes",
    "Probe": "probes",
    "shift": "intervention",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
