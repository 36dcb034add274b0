"""The nineteen papers, as `book/papers.yml` lists them, and the names by which they are called.

Whether a paper has a chapter, and all about chapters, is `icml26.chapters`' business.
"""

from typing import Any

import yaml

from icml26 import paths
from icml26.errors import InputError, nearest

__all__ = ["PARTS", "papers", "resolve", "slugs"]

PARTS = (
    "Decoding and serving",
    "Compression",
    "Training",
    "Rewards and reinforcement learning",
    "Understanding",
    "Beyond text generation",
)


def papers() -> list[dict[str, Any]]:
    """Return the nineteen papers as ``book/papers.yml`` lists them: number, slug, short, title, authors, part, ..."""
    listing: list[dict[str, Any]] = yaml.safe_load((paths.root() / "book" / "papers.yml").read_text(encoding="utf-8"))
    return listing


def slugs() -> tuple[str, ...]:
    """Return the slugs of all papers, written as a chapter or not; also as ``icml26.chapters.SLUGS``.

    Examples
    --------
    >>> "15_s_quant" in slugs()
    True
    """
    return tuple(paper["slug"] for paper in papers())


def resolve(name: str) -> str:
    """Find the slug that a user means: a number, a module's name or the slug itself.

    Parameters
    ----------
    name : str
        For example ``15``, ``s_quant`` or ``15_s_quant``.

    Returns
    -------
    str
        The slug; its chapter need not be written yet.

    Raises
    ------
    InputError
        If no paper is called so; the nearest name is named.

    Examples
    --------
    >>> resolve("15"), resolve("s_quant")
    ('15_s_quant', '15_s_quant')
    """
    known = slugs()
    for slug in known:
        number, _, module = slug.partition("_")
        if name in (slug, module, number, number.lstrip("0")):
            return slug
    hint = nearest(name, [*known, *(slug.partition("_")[2] for slug in known)])
    raise InputError(f"no paper is called {name!r}{hint or '; `icml26 list` shows all names'}")
