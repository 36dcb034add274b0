"""Reference implementations and shared tools of the executable book of nineteen ICML 2026 papers.

One module (or package) per paper, named as the paper's slug, and the few that all chapters share: `claims`, `stats`,
`plotting`, `models`, `data`, `batch`, `cli`. Importing `icml26` imports none of them: take what you need, for example
``from icml26.s_quant import codec``. Experiments and prose live in the book's notebooks, never here.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("icml26")
except PackageNotFoundError:  # the source folder is on the path without being installed
    __version__ = "0+source"

__all__ = ["__version__"]
