"""GSRQ: keys and values in less than one bit, by residual chains of gain-shape codebooks.

The paper is GSRQ (Kim et al., ICML 2026, arXiv 2607.01065). `clustering` makes one codebook, from `starts` and with
`weights`; `estimator` puts scikit-learn's interface around it, `released` is the variant of the paper's released code.
`residual` chains codebooks, `file` and `packing` store them and their codes, `distortion` measures what is lost;
`vectors` is the arithmetic underneath. `coder` and `cache` keep a model's keys and values as packed codes; `bits`
counts what every method stores, `integers` and `coupled` are the methods that it is compared with.

The names below are loaded when they are first used, because scikit-learn takes a second to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icml26.gsrq.cache import CodedCache
    from icml26.gsrq.clustering import fit_codebook
    from icml26.gsrq.estimator import GainShapeKMeans
    from icml26.gsrq.residual import ResidualQuantizer

__all__ = ["CodedCache", "GainShapeKMeans", "ResidualQuantizer", "fit_codebook"]

_HOMES = {
    "CodedCache": "cache",
    "GainShapeKMeans": "estimator",
    "ResidualQuantizer": "residual",
    "fit_codebook": "clustering",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
