"""A chapter's knobs: read from its `parameters` cell without running it, and checked before anything runs.

A knob is one line, ``name: type = default  # description [unit; bounds or choices]``. Types are int, float, bool, str
and lists of int, float and str; bounds are ``low..high`` (both included), choices ``a | b``. Where the cells of a
chapter lie and which values a profile gives is the business of `icml26.chapters`.
"""

import ast
import io
import math
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from icml26.errors import InputError, nearest

__all__ = ["Parameter", "bound", "parameters"]

_SCALARS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
_TYPES = (*_SCALARS, "list[int]", "list[float]", "list[str]")
_COMMENT = re.compile(r"#\s*(?P<description>.+?)\s*\[(?P<unit>[^;\[\]]+?)\s*(?:;\s*(?P<range>[^\[\]]+?)\s*)?\]\s*$")
_CELL = re.compile(r"^# %%(?P<header>.*)$", re.MULTILINE)
_TAGS = re.compile(r"tags=\[(?P<tags>[^\]]*)\]")
_FORM = "write `name: type = default  # description [unit; low..high]`"


@dataclass(frozen=True)
class Parameter:
    """One knob of a chapter.

    Parameters
    ----------
    name : str
        The variable in the chapter.
    type : str
        ``int``, ``float``, ``bool``, ``str``, ``list[int]``, ``list[float]`` or ``list[str]``.
    default : object
        The value in the chapter's source.
    unit : str
        The unit, in words.
    low, high : float or None
        Bounds of a number, or of each number in a list; both are allowed values.
    choices : tuple of str
        The allowed strings; empty where any string is allowed.
    description : str
        What the knob does.
    """

    name: str
    type: str
    default: Any
    unit: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    description: str

    def check(self, value: Any) -> Any:
        """Return the value if it is of the knob's type and in its range.

        Parameters
        ----------
        value : object
            What a profile, a user or the source gives; an int is taken as a float where a float is wanted.

        Returns
        -------
        object
            The value, as the knob's type.

        Raises
        ------
        InputError
            If the type is wrong, a number is not finite or out of its bounds, a string is no choice, a list is empty.

        Examples
        --------
        >>> knob = Parameter("blocks", "int", 256, "blocks", 16, 65536, (), "blocks sampled per tensor")
        >>> knob.check(64)
        64
        >>> knob.check(8)
        Traceback (most recent call last):
        icml26.errors.InputError: parameter blocks=8 is out of range; give 16..65536 [blocks]
        """
        if not self.type.startswith("list["):
            return self._check_scalar(value, self.type)
        if not isinstance(value, list | tuple):
            raise InputError(f"parameter {self.name}={value!r} is not a list; give {self.type}")
        if not value:
            raise InputError(f"parameter {self.name} is an empty list; give at least one {self.type[5:-1]}")
        return [self._check_scalar(item, self.type[5:-1]) for item in value]

    def _check_scalar(self, value: Any, kind: str) -> Any:
        said = f"parameter {self.name}={value!r}"
        if kind == "float" and type(value) is int:
            value = float(value)
        if type(value) is not _SCALARS[kind]:
            raise InputError(f"{said} is not of type {kind}; give {self.range or kind} [{self.unit}]")
        if kind == "float" and not math.isfinite(value):
            raise InputError(f"{said} is not finite; give {self.range or 'a finite number'} [{self.unit}]")
        if self.low is not None and self.high is not None and not self.low <= value <= self.high:
            raise InputError(f"{said} is out of range; give {self.range} [{self.unit}]")
        if self.choices and value not in self.choices:
            raise InputError(f"{said} is no choice; give {self.range}{nearest(value, self.choices)}")
        return value

    @property
    def range(self) -> str:
        """The bounds or choices as they are written in the chapter; empty where there are none."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g}..{self.high:g}" if self.type.endswith("float") else f"{self.low:.0f}..{self.high:.0f}"
        return " | ".join(self.choices)

    def parse(self, text: str) -> Any:
        """Turn the text of ``-p name=text`` into a checked value.

        Parameters
        ----------
        text : str
            A number, ``true`` or ``false``, a string, or several of them between commas (brackets may enclose them).

        Returns
        -------
        object
            The value, as the knob's type.

        Raises
        ------
        InputError
            If the text does not read as the knob's type, or as for `check`.

        Examples
        --------
        >>> Parameter("widths", "list[int]", [4], "columns", 1, 64, (), "block widths").parse("[4, 8]")
        [4, 8]
        """
        if not self.type.startswith("list["):
            return self.check(self._read(text.strip(), self.type))
        inner = text.strip().removeprefix("[").removesuffix("]").strip()
        items = [item.strip() for item in inner.split(",")] if inner else []
        return self.check([self._read(item, self.type[5:-1]) for item in items])

    def _read(self, text: str, kind: str) -> Any:
        if kind == "str":
            quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
            return text[1:-1] if quoted else text
        if kind == "bool":
            known = {"true": True, "false": False}
            if text.casefold() not in known:
                raise InputError(f"parameter {self.name}={text!r} is not of type bool; give true or false")
            return known[text.casefold()]
        try:
            return _SCALARS[kind](text)
        except ValueError:
            raise InputError(
                f"parameter {self.name}={text!r} is not of type {kind}; give {self.range or kind} [{self.unit}]"
            ) from None


def parameters(source: str) -> dict[str, Parameter]:
    """Read the knobs from a chapter's source.

    Parameters
    ----------
    source : str
        The chapter in jupytext's py:percent form.

    Returns
    -------
    dict of str to Parameter
        In the order in which they are written.

    Raises
    ------
    InputError
        If there is not exactly one cell tagged ``parameters``, or a line of it is no knob.

    Examples
    --------
    >>> source = '''# %% tags=["parameters"]
    ... seed: int = 0  # root of all random numbers [number; 0..999]
    ... '''
    >>> parameters(source)["seed"].high
    999.0
    """
    cells = [text for header, text in _cells(source) if "parameters" in _tags(header)]
    if len(cells) != 1:
        raise InputError(f"the chapter has {len(cells)} cells tagged `parameters`; it needs exactly one")
    try:
        statements = ast.parse(cells[0]).body
    except SyntaxError as error:
        raise InputError(f"the parameters cell is not Python ({error.msg}: {(error.text or '').strip()!r})") from None
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(cells[0]).readline)
        if token.type == tokenize.COMMENT
    }
    lines = cells[0].splitlines()
    knobs = []
    for node in statements:
        # A formatter may have broken a long line, and put the comment beside the value.
        spanned = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        comment = next((comments[line] for line in spanned if line in comments), "")
        knobs.append(_knob(node, comment, lines[node.lineno - 1]))
    return {knob.name: knob for knob in knobs}


def _cells(source: str) -> list[tuple[str, str]]:
    heads = list(_CELL.finditer(source))
    ends = [head.start() for head in heads[1:]] + [len(source)]
    return [(head["header"], source[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


def _tags(header: str) -> set[str]:
    found = _TAGS.search(header)
    return {tag.strip(" \"'") for tag in found["tags"].split(",")} if found else set()


def _knob(node: ast.stmt, comment: str, line: str) -> Parameter:
    said = f"parameters cell, line {line.strip()!r}"
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
        raise InputError(f"{said} is no knob; {_FORM}")
    kind = ast.unparse(node.annotation)
    if kind not in _TYPES:
        raise InputError(f"{said} has type {kind}; use one of {', '.join(_TYPES)}")
    told = _COMMENT.match(comment)
    if not told:
        raise InputError(f"{said} lacks its comment; {_FORM}")
    try:
        default = ast.literal_eval(node.value)
    except ValueError:
        raise InputError(f"{said} has a computed default; write it out") from None
    low = high = None
    choices: tuple[str, ...] = ()
    allowed = told["range"]
    if allowed and kind.removeprefix("list[").removesuffix("]") in ("int", "float"):
        try:
            low, high = (float(end) for end in allowed.split(".."))
        except ValueError:
            raise InputError(f"{said} has the bounds {allowed!r}; write them as low..high") from None
    elif allowed:
        choices = tuple(choice.strip() for choice in allowed.split("|"))
    knob = Parameter(node.target.id, kind, default, told["unit"], low, high, choices, told["description"])
    knob.check(default)
    return knob


def bound(knobs: Mapping[str, Parameter], *layers: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Lay values over the defaults, and refuse what is unknown, of the wrong type or out of range.

    Parameters
    ----------
    knobs : mapping of str to Parameter
        The chapter's knobs.
    *layers : tuple of str and mapping
        Where the values come from (in words, for the error) and the values; later layers win.

    Returns
    -------
    dict of str to object
        A value for every knob, in the knobs' order.

    Raises
    ------
    InputError
        If a name is unknown (the nearest known one is named) or a value is refused by `Parameter.check`.

    Examples
    --------
    >>> knobs = {"seed": Parameter("seed", "int", 0, "number", 0, 999, (), "root of all random numbers")}
    >>> bound(knobs, ("profile quick", {"seed": 7}))
    {'seed': 7}
    """
    values = {name: knob.default for name, knob in knobs.items()}
    for origin, layer in layers:
        for name, value in layer.items():
            if name not in knobs:
                hint = nearest(name, knobs) or f"; known are {', '.join(knobs)}"
                raise InputError(f"{origin}: unknown parameter {name!r}{hint}")
            try:
                values[name] = knobs[name].check(value)
            except InputError as error:
                raise InputError(f"{origin}: {error}") from None
    return {name: knob.check(values[name]) for name, knob in knobs.items()}
