"""Real text whose lengths nobody chose: what programmers write about a function, asked for in five ways.

Lengths of generations that TIE (Zheng et al., arXiv 2604.00499, Section 3) schedules by must not be drawn from the law
under test. Here they are decided by an end token that a language model samples, and the model has learnt it from the
source files of Python's standard library, NumPy and SciPy. A prompt names a definition by its signature and asks for
the file it is in, its first line of code, the first paragraph of its docstring, the whole docstring, or its code. (By
itself a signature hardly tells how long its docstring is; like a server's users, these ask for unlike things.)

Source files are parsed, never imported. The text is what is installed, so that another version of Python, NumPy or
SciPy gives other numbers; `digest` tells. The model is `icml26.tie.docstring_lm`'s.
"""

import ast
import hashlib
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path
from typing import NamedTuple

import numpy as np

from icml26.errors import InputError

__all__ = ["KINDS", "PACKAGES", "Pair", "Splits", "choose", "digest", "pairs", "split"]

PACKAGES = ("python", "numpy", "scipy")
NOT_DOCUMENTATION = {"site-packages", "dist-packages", "test", "tests", "idle_test"}  # folders
KINDS = ("file", "line", "summary", "docstring", "code")  # what a prompt asks for
LONGEST_PROMPT = 94  # bytes; an end token comes before it and a line break after it
SHARES = (85, 95)  # percent of the files: up to here for the model, up to there for predictors, the others for tests


class Pair(NamedTuple):
    """A prompt and what the source has in answer to it.

    Attributes
    ----------
    file : str
        Package and path inside it.
    prompt : str
        A signature and one of `KINDS`, such as ``def name(arguments) summary:`` or ``class Name(bases) file:``.
    answer : str
        Not empty.
    """

    file: str
    prompt: str
    answer: str


class Splits(NamedTuple):
    """Pairs in three parts that share no file, no prompt and no answer.

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


def pairs(packages: Sequence[str] = PACKAGES) -> list[Pair]:
    """Ask one thing about each documented function, method and class of packages, in the order of paths and lines.

    What is asked is decided by a hash of the path and the signature. Files that this Python cannot parse, tests,
    prompts longer than 94 bytes, and repeated pairs are left out.

    Parameters
    ----------
    packages : sequence of str
        "python" (the standard library) or names of installed packages.

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
    >>> {pair.prompt.split()[-1] for pair in pairs(["json"])} <= {f"{kind}:" for kind in KINDS}
    True
    """
    found = {}
    for package in packages:
        root = _folder(package)
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
            inside = path.relative_to(root)
            if not NOT_DOCUMENTATION.intersection(inside.parts):
                file = f"{package}/{inside.as_posix()}"
                for prompt, answer in _asked(path, file):
                    found.setdefault((prompt, answer), file)
    return [Pair(file, *text) for text, file in found.items()]


def split(found: Iterable[Pair]) -> Splits:
    """Split pairs by a hash of their files, so that what is written alike in one file stays together.

    85 % of the files are the model's, 10 % the predictors', 5 % the test's. A pair is left out if its prompt or its
    answer is in an earlier part too, and so is a prompt of the last two parts that is there already.

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
    prompts, answers = {}, {}  # of which part
    ordered = sorted(((_part(pair.file), pair) for pair in found), key=lambda item: item[0])
    for part, pair in ordered:
        repeated = part > 0 and pair.prompt in prompts
        if repeated or answers.get(pair.answer, part) != part:
            continue
        prompts.setdefault(pair.prompt, part)
        answers.setdefault(pair.answer, part)
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
    >>> choose([Pair("a.py", "def f()", "One.")], 1, seed=0)[0].prompt
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
    percent = _hash(file) % 100
    return sum(percent >= share for share in SHARES)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def _asked(path: Path, file: str) -> Iterator[tuple[str, str]]:
    source = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that are not valid, in other people's strings
            tree = ast.parse(source)
    except SyntaxError:
        return
    lines = source.decode(errors="replace").splitlines()
    for node in _definitions(tree):
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        signature = _signature(node)
        code = textwrap.dedent("\n".join(lines[node.body[0].end_lineno : node.end_lineno])).strip()
        summary = docstring.split("\n\n")[0].rstrip()
        answers = (file, code.split("\n")[0], summary, docstring.rstrip(), code)
        chosen = _hash(f"{file} {signature}") % len(KINDS)
        prompt = f"{signature} {KINDS[chosen]}:"
        if answers[chosen] and len(prompt.encode()) <= LONGEST_PROMPT:
            yield prompt, answers[chosen]


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
