"""NQS: pre-training loss from model size, batch size and number of steps, through a noisy quadratic system.

The paper is Li and Maddison, Predicting Large Model Test Losses with a Noisy Quadratic System (ICML 2026, arXiv
2605.09154). `theta` holds the seven fitted numbers, `law` the expected loss that they imply, `quadrature` the nodes
that make it cheap. `fitting` is the least-squares fit, on top of `model` and `problem`; `regressors` puts a
scikit-learn regressor around it and `intervals` its prediction intervals; `search` says where the fit starts.

Beside them: `chinchilla` is the law that the paper compares with, `measurements` loads the paper's runs, `comparison`
scores predictions, `planning` chooses configurations under limits, `fresh`, `fresh_lm` and `fresh_corner` train the
chapter's own small models and split them by cost.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from icml26.nqs.theta import Theta

if TYPE_CHECKING:
    from icml26.nqs.chinchilla import ChinchillaRegressor
    from icml26.nqs.planning import plan
    from icml26.nqs.regressors import NQSRegressor

__all__ = ["ChinchillaRegressor", "NQSRegressor", "Theta", "plan"]

# scikit-learn takes a second to import, so what needs it is imported on first use.
_LAZY = {"ChinchillaRegressor": "chinchilla", "NQSRegressor": "regressors", "plan": "planning"}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"icml26.nqs.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
