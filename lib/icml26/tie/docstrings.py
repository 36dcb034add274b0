"""Real text whose lengths nobody chose: signatures and the summaries written under them, and a small model of both.

Lengths of generations that TIE (Zheng et al., arXiv 2604.00499, Section 3) schedules by must not be drawn from the law
under test. Here they are decided by an end token that a language model samples, and the model has learnt it from the
documentation of Python's standard library, NumPy and SciPy: a signature is the prompt, the docstring's first paragraph
the answer. Source files are parsed, never imported. The text is what is installed, so that another version of Python,
NumPy or SciPy gives other numbers; `digest` tells. Sampling is `icml26.generation`'s, the training loop
`icml26.training`'s, what lengths are used for `icml26.tie.predictors`' and the chapter's.
"""

import ast
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path
from typing import NamedTuple

import numpy as np

from icml26.errors import InputError

__all__ = ["PACKAGES", "Pair", "Splits", "choose", "digest", "pairs", "split"]

PACKAGES = ("python", "numpy", "scipy")
NOT_DOCUMENTATION = {"site-packages", "dist-packages", "test", "tests", "idle_test"}  # folders
LONGEST_SIGNATURE = 94  # bytes; the prompt has an end token before it and a line break after it
SHARES = (85, 95)  # percent of the files: up to here for the model, up to there for predictors, the others for tests


class Pair(NamedTuple):
    """A signature and its summary.

    Attributes
    ----------
    file : str
        Package and path inside it.
    signature : str
        ``def name(arguments)`` or ``class Name(bases)``, one line.
    summary : str
        First paragraph of the docstring, unless whole docstrings were asked for.
    """

    file: str
    signature: str
    summary: str


class Splits(NamedTuple):
    """Pairs in three parts that share no file, no summary and no signature.

    Attributes
    ----------
    model : list of Pair
        To train the language model on.
    predictor : list of Pair
        Prompts to train predictors of lengths on.
    test : list of Pair
        Prompts to test on.
    """

    model: list[Pair]
    predictor: list[Pair]
    test: list[Pair]


def pairs(packages: Sequence[str] = PACKAGES, *, whole: bool = False) -> list[Pair]:
    """Collect all documented functions, methods and classes of packages, in the order of their paths and lines.

    Files that this Python cannot parse, tests, longer signatures than 94 bytes, and what repeats an earlier signature
    and summary are left out.

    Parameters
    ----------
    packages : sequence of str
        "python" (the standard library) or names of installed packages.
    whole : bool
        Take whole docstrings instead: 40 % of them are longer than 256 bytes, of the first paragraphs 2 %.

    Returns
    -------
    list of Pair
        About 12,000 of the three packages; 6 s.

    Raises
    ------
    InputError
        If a package is not installed as a folder of source files.

    Examples
    --------
    >>> next(pair.summary for pair in pairs(["json"]) if pair.signature == "class JSONDecoder")
    'Simple JSON <https://json.org> decoder'
    """
    found = {}
    for package in packages:
        root = _folder(package)
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
            inside = path.relative_to(root)
            if not NOT_DOCUMENTATION.intersection(inside.parts):
                for signature, summary in _documented(path, whole):
                    found.setdefault((signature, summary), f"{package}/{inside.as_posix()}")
    return [Pair(file, *text) for text, file in found.items()]


def split(found: Iterable[Pair]) -> Splits:
    """Split pairs by a hash of their files, so that what is written alike in one file stays together.

    85 % of the files are the model's, 10 % the predictors', 5 % the test's. A pair is left out if its signature or its
    summary is in an earlier part too, and so is a prompt of the last two parts that is there already.

    Parameters
    ----------
    found : iterable of Pair
        As `pairs` returns them.

    Returns
    -------
    Splits
        In the given order.

    Examples
    --------
    >>> parts = split(Pair(f"python/{n}.py", f"def f{n}()", f"Return {n}.") for n in range(1000))
    >>> [len(part) > 20 for part in parts], sum(map(len, parts))
    ([True, True, True], 1000)
    """
    parts = Splits([], [], [])
    signatures, summaries = {}, {}  # of which part
    ordered = sorted(((_part(pair.file), pair) for pair in found), key=lambda item: item[0])
    for part, pair in ordered:
        repeated = part > 0 and pair.signature in signatures
        if repeated or summaries.get(pair.summary, part) != part:
            continue
        signatures.setdefault(pair.signature, part)
        summaries.setdefault(pair.summary, part)
        parts[part].append(pair)
    return parts


def digest(found: Iterable[Pair]) -> str:
    """Hash pairs, to say which text numbers were measured on.

    Parameters
    ----------
    found : iterable of Pair
        As `pairs` returns them.

    Returns
    -------
    str
        SHA-256, 64 hexadecimal digits.

    Examples
    --------
    >>> digest([Pair("a.py", "def f()", "One.")])[:8]
    '41ec5698'
    """
    text = hashlib.sha256()
    for pair in found:
        text.update("\0".join((*pair, "")).encode())
    return text.hexdigest()


def choose(part: Sequence[Pair], count: int, seed: int) -> list[Pair]:
    """Draw pairs without replacement.

    Parameters
    ----------
    part : sequence of Pair
        A part of `split`.
    count : int
        How many.
    seed : int
        Of the draw.

    Returns
    -------
    list of Pair

    Raises
    ------
    InputError
        If there are fewer.

    Examples
    --------
    >>> choose([Pair("a.py", "def f()", "One.")], 1, seed=0)[0].signature
    'def f()'
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(part):
        raise InputError(f"count={count!r} must be an integer from 1 to {len(part)}, the pairs there are")
    return [part[i] for i in np.random.default_rng(seed).permutation(len(part))[:count]]


def _folder(package: str) -> Path:
    if package == "python":
        return Path(get_path("stdlib"))
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"package {package!r} is not installed as a folder of source files; use one that is")
    return Path(next(iter(spec.submodule_search_locations)))


def _part(file: str) -> int:
    percent = int.from_bytes(hashlib.sha256(file.encode()).digest()[:8]) % 100
    return sum(percent >= share for share in SHARES)


def _documented(path: Path, whole: bool) -> Iterator[tuple[str, str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that are not valid, in other people's strings
            tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return
    for node in _definitions(tree):
        docstring = ast.get_docstring(node) or ""
        summary = docstring if whole else docstring.split("\n\n")[0].rstrip()
        if summary:
            signature = _signature(node)
            if len(signature.encode()) <= LONGEST_SIGNATURE:
                yield signature, summary


def _definitions(node: ast.AST) -> Iterator[ast.AST]:
    """Functions and classes in the order of the file, at any depth of statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler):
            yield from _definitions(child)


def _signature(node: ast.AST) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    return f"def {node.name}({ast.unparse(node.args)})"
