"""CDG: vote among sampled answers by how sure the model was, and by whether it became surer along the way.

The paper is CDG (Wang et al., ICML 2026, arXiv 2605.25244). `question` and `traces` hold traces and their statistics
(`segments` sums them), `confidence` computes token confidence from logits, `observer` and `vllm_outputs` collect it
from ``generate`` and vLLM (`observed` is what the first returns). `voting` is the vote and `decision` what decides it,
`voter` the estimator that calibrates beta, `baselines` and `deepconf` what it is compared with, `tuning` how settings
are chosen.

Beside them are the chapter's experiments: `conditions`, `own_models` and `smollm2` say where traces come from, `gaps`
compares right and wrong ones, `ballots` and `accuracy` compare votes, `phase` draws synthetic confidences.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from icml26.cdg.traces import Question, Trace
from icml26.cdg.voting import Vote, vote

if TYPE_CHECKING:
    from icml26.cdg.observer import ConfidenceObserver
    from icml26.cdg.voter import CDGVoter

__all__ = ["CDGVoter", "ConfidenceObserver", "Question", "Trace", "Vote", "vote"]

# scikit-learn and transformers take seconds to import, so what needs them is imported on first use.
_LAZY = {"CDGVoter": "voter", "ConfidenceObserver": "observer"}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"icml26.cdg.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
