"""Top-W: keep the tokens that are worth their entropy, with a say for the distances between embeddings.

The paper is Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346). `warper` is the way in: a logits processor
for `transformers`. It masks what `decoder` does not select; `decoder` alternates the S-step of `core` and the
`potential` on the `pool` of most probable tokens, with distances from `geometry`. `transport` and `optimum` compute for
a handful of tokens what the decoder only approaches: the exact Wasserstein distance and the best of all sets.
`arrays` lets NumPy and torch in.

The names below are loaded when they are first used, because some need torch or transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icml26.top_w.core import objective, s_step
    from icml26.top_w.decoder import Selection, TopWConfig, select
    from icml26.top_w.geometry import Geometry
    from icml26.top_w.optimum import brute_force
    from icml26.top_w.transport import wasserstein
    from icml26.top_w.warper import TopWLogitsWarper

__all__ = [
    "Geometry",
    "Selection",
    "TopWConfig",
    "TopWLogitsWarper",
    "brute_force",
    "objective",
    "s_step",
    "select",
    "wasserstein",
]

_HOMES = {
    "Geometry": "geometry",
    "Selection": "decoder",
    "TopWConfig": "decoder",
    "TopWLogitsWarper": "warper",
    "brute_force": "optimum",
    "objective": "core",
    "s_step": "core",
    "select": "decoder",
    "wasserstein": "transport",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
