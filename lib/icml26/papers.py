"""The nineteen papers, as `book/papers.yml` lists them, and the names by which they are called.

As the lowest module that reads a YAML file of the project, it also holds the strict reading that they all share.
Whether a paper has a chapter, and all about chapters, is `icml26.chapters`' business.
"""

from typing import Any

import yaml

from icml26 import paths
from icml26.errors import InputError, nearest

__all__ = ["PARTS", "papers", "resolve", "slugs", "strict_yaml"]

PARTS = (
    "Decoding and serving",
    "Compression",
    "Training",
    "Rewards and reinforcement learning",
    "Understanding",
    "Beyond text generation",
)


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses what YAML 1.1 would silently read as something else than was meant."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise _refusal(f"key {key_node.value!r} appears twice; keep one", key_node)
            seen.append(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        # The length comes first: Python itself refuses to read integers of thousands of digits.
        if ":" in node.value or len(node.value) > 40 or abs(super().construct_yaml_int(node)) > 2**63:
            raise _refusal(f"{node.value[:40]!r} is no usable number; a text needs quotes", node)
        return super().construct_yaml_int(node)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        if ":" in node.value:
            raise _refusal(f"{node.value!r} is no usable number; a text needs quotes", node)
        return super().construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _refusal(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def strict_yaml(text: str, where: str) -> Any:
    """Read YAML, and refuse what has two readings: keys that appear twice, numbers such as ``1:30``, huge integers.

    Parameters
    ----------
    text : str
        The content of a file.
    where : str
        Its name, for the error.

    Returns
    -------
    object
        What the text says, as plain Python.

    Raises
    ------
    InputError
        If it is not YAML or is refused; the message names file and line.

    Examples
    --------
    >>> strict_yaml("{a: 1, b: [x]}", "a.yml")
    {'a': 1, 'b': ['x']}
    >>> strict_yaml("{a: 1, a: 2}", "a.yml")
    Traceback (most recent call last):
    icml26.errors.InputError: a.yml cannot be read: line 1: key 'a' appears twice; keep one
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError(f"{where} cannot be read: {line}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{where} cannot be read: {error}") from None


def papers() -> list[dict[str, Any]]:
    """Return the nineteen papers as ``book/papers.yml`` lists them: number, slug, short, title, authors, part, ..."""
    listing: list[dict[str, Any]] = strict_yaml(
        (paths.root() / "book" / "papers.yml").read_text(encoding="utf-8"), "book/papers.yml"
    )
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
