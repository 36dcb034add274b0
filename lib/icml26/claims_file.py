"""The claims file of a chapter: a paper's claims and the rules that decide them, as data.

``book/claims/NN_slug.yml`` is written before the experiment. Reading it here is strict: a missing, unknown or
contradictory key is an error that names file, claim and key, so that no rule is left to be filled in once the result is
known. What a rule makes of a measurement is `icml26.claims`' business.
"""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml26 import paths
from icml26.errors import InputError, nearest
from icml26.papers import strict_yaml

__all__ = ["Claim", "Paper", "Rule", "claims_path", "load"]

_NULLS = {"difference": 0.0, "ratio": 1.0}
_KINDS = ("difference", "ratio", "within", "exact")
_LIKE_PAPER = {"the", "a", "paper", "papers", "s", "own", "setting", "scale", "as", "in", "at", "same"}
_DIRECTIONS = ("above", "below")


@dataclass(frozen=True)
class Paper:
    """What the paper reports: the number if it gives one, the same in words, and where it was measured."""

    value: float | None
    text: str
    setting: str


@dataclass(frozen=True)
class Rule:
    """What decides a claim; all fields but `kind` are None for an exact claim."""

    kind: str
    direction: str | None = None
    null: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Claim:
    """One row of a claims file."""

    id: str
    statement: str
    paper: Paper
    test: str
    rule: Rule
    scale: str


def claims_path(slug: str) -> Path:
    """Return where the claims of a chapter are written down.

    Parameters
    ----------
    slug : str
        The chapter, such as ``"15_s_quant"``.

    Returns
    -------
    Path
        ``book/claims/SLUG.yml`` in the project.

    Raises
    ------
    InputError
        If there is no such file; the message names the nearest chapter that has one.

    Examples
    --------
    >>> claims_path("15_s_quant").name
    '15_s_quant.yml'
    """
    folder = paths.root() / "book" / "claims"
    file = folder / f"{slug}.yml"
    if not file.is_file():
        hint = nearest(slug, [known.stem for known in folder.glob("*.yml")])
        raise InputError(f"chapter {slug!r} has no claims file book/claims/{slug}.yml{hint or '; write it first'}")
    return file


def load(path: Path) -> dict[str, Claim]:
    """Read and check a claims file.

    Parameters
    ----------
    path : Path
        A YAML file as ``book/claims/NN_slug.yml``.

    Returns
    -------
    dict of str to Claim
        The claims by id, in the file's order.

    Raises
    ------
    InputError
        If the file is not readable YAML, or a key is missing, unknown, of the wrong type or at odds with another.

    Examples
    --------
    >>> load(claims_path("15_s_quant"))["Q6"].rule.kind
    'exact'
    """
    where = f"book/claims/{path.name}" if path.parent.name == "claims" else str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where} cannot be read: {error}") from error
    content = strict_yaml(text, where)
    rows = _Mapping(content, where, required=("claims",))["claims"]
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{where}: 'claims' must be a list with at least one claim")
    claims: dict[str, Claim] = {}
    for number, row in enumerate(rows, 1):
        claim = _claim(row, where, number)
        if claim.id in claims:
            raise InputError(f"{where}: claim {claim.id} appears twice; give each its own id")
        claims[claim.id] = claim
    return claims


def _claim(row: object, where: str, number: int) -> Claim:
    name = row.get("id") if isinstance(row, Mapping) else None
    if not isinstance(name, str) or not name or any(character.isspace() for character in name):
        raise InputError(f"{where}: claim number {number} needs an 'id' that is one word in text, not {name!r}")
    where = f"{where}: claim {name}"
    fields = _Mapping(row, where, required=("id", "statement", "paper", "test", "rule", "scale"))
    block = _Mapping(fields["paper"], f"{where}: paper", required=("value", "text", "setting"))
    value = None if block["value"] is None else block.number("value")
    return Claim(
        id=name,
        statement=fields.text("statement"),
        paper=Paper(value=value, text=block.text("text"), setting=block.text("setting")),
        test=fields.text("test"),
        rule=_rule(fields["rule"], f"{where}: rule", value),
        scale=_scale(fields, where),
    )


def _scale(fields: "_Mapping", where: str) -> str:
    """Return the scale; the one word `paper` has a meaning, so what only looks like it is refused."""
    scale = fields.text("scale")
    words = re.findall(r"[a-z]+", scale.casefold())
    close = difflib.get_close_matches(" ".join(words), ["paper"], cutoff=0.7)
    if (close or ("paper" in words and set(words) <= _LIKE_PAPER)) and fields["scale"] != "paper":
        raise InputError(
            f"{where}: key 'scale' is {fields['scale']!r}; write exactly paper where the laptop run is at the paper's "
            "own setting, else what the experiment stands in for"
        )
    return scale


def _rule(row: object, where: str, value: float | None) -> Rule:
    if isinstance(row, Mapping) and None in row and "null" not in row:
        row = {"null" if key is None else key: entry for key, entry in row.items()}  # YAML reads a bare null as None
    optional = ("direction", "null", "tolerance")
    rule = _Mapping(row, where, required=("kind",), optional=optional)
    kind = rule.choice("kind", _KINDS)
    if kind == "exact":
        for key in optional:
            if key in rule:
                raise InputError(f"{where}: key {key!r} has no meaning for kind 'exact'; remove it")
        return Rule(kind)
    direction = rule.choice("direction", _DIRECTIONS)
    null = rule.number("null") if "null" in rule or kind == "within" else _NULLS[kind]
    if value is None:
        if kind == "within":
            raise InputError(f"{where}: kind 'within' needs the paper's number, but paper.value is null")
        if "tolerance" in rule:
            raise InputError(f"{where}: key 'tolerance' needs the paper's number, but paper.value is null; remove it")
        return Rule(kind, direction, null)
    tolerance = rule.number("tolerance")
    if tolerance <= 0:
        raise InputError(f"{where}: key 'tolerance' must be above 0, not {tolerance}")
    distance = value - null if direction == "above" else null - value
    if distance <= tolerance:
        raise InputError(
            f"{where}: paper.value {value} must lie {direction} the null {null} by more than the tolerance "
            f"{tolerance}, or no result could tell them apart"
        )
    return Rule(kind, direction, null, tolerance)


class _Mapping:
    """A mapping whose keys are known to be the right ones, with typed access that names the place of a fault."""

    def __init__(self, row: object, where: str, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
        if not isinstance(row, Mapping):
            raise InputError(f"{where} must be a mapping with the keys {', '.join(required)}, not {row!r}")
        for key in row:
            if key not in required + optional:
                raise InputError(f"{where}: unknown key {key!r}{nearest(str(key), required + optional)}")
        self._row, self._where = row, where
        for key in required:
            self[key]

    def __contains__(self, key: str) -> bool:
        return key in self._row

    def __getitem__(self, key: str) -> Any:
        if key not in self._row:
            raise InputError(f"{self._where}: key {key!r} is missing")
        return self._row[key]

    def text(self, key: str) -> str:
        entry = self[key]
        if not isinstance(entry, str) or not entry.strip():
            raise InputError(f"{self._where}: key {key!r} must be a text, not {entry!r}")
        return " ".join(entry.split())

    def number(self, key: str) -> float:
        entry = self[key]
        if isinstance(entry, bool) or not isinstance(entry, int | float) or not math.isfinite(entry):
            raise InputError(f"{self._where}: key {key!r} must be a finite number, not {entry!r}")
        return float(entry)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        entry = self[key]
        if entry not in choices:
            raise InputError(
                f"{self._where}: key {key!r} must be one of {', '.join(choices)}, not {entry!r}"
                f"{nearest(str(entry), choices)}"
            )
        return entry
