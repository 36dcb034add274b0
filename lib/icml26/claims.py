"""The ledger: what a paper claims, what we measured, and the verdict that follows from rules fixed beforehand.

A chapter hands measurements to `Ledger`; the rule comes from ``book/claims/NN_slug.yml`` and the verdict from the rule
and the interval, so no call can set either. Reading the file is left to `icml26.claims_file`, showing the result to
`icml26.claims_view`, intervals to `icml26.stats`. A ledger writes no file: the runner takes the results out of the
executed notebook.
"""

import copy
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from icml26.claims_file import Claim, Paper, Rule, claims_path, load
from icml26.claims_view import MIMETYPE, Summary
from icml26.errors import InputError, nearest

__all__ = ["MIMETYPE", "VERDICTS", "Claim", "Ledger", "Paper", "Rule", "Summary", "decide", "load"]

VERDICTS = ("holds", "holds in direction", "inconclusive", "contradicted", "not tested")


def decide(
    claim: Claim, *, at_paper: bool, interval: tuple[float, float] | None = None, exact: bool | None = None
) -> str:
    """Decide a claim by its rule; the only place where a verdict comes into being.

    Parameters
    ----------
    claim : Claim
        The claim with its rule.
    at_paper : bool
        Whether the measurement was made at the paper's own setting.
    interval : (float, float), optional
        Confidence interval of the tested quantity, for rules other than ``exact``.
    exact : bool, optional
        Whether an exact claim is true.

    Returns
    -------
    str
        One of `VERDICTS` other than ``not tested``. An interval that touches the null or leaves the tolerance on one
        side only is ``inconclusive``.

    Examples
    --------
    >>> speed = Claim("Q2", "Fast.", Paper(4.0, "4x", "ASIC"), "clocks", Rule("within", "above", 1.0, 0.4), "a model")
    >>> decide(speed, at_paper=False, interval=(3.8, 4.1))
    'holds in direction'
    >>> decide(speed, at_paper=True, interval=(3.8, 4.1))
    'holds'
    >>> decide(speed, at_paper=False, interval=(0.9, 1.3))
    'inconclusive'
    """
    rule, number = claim.rule, claim.paper.value
    if rule.kind == "exact":
        return "holds" if exact else "contradicted"
    low, high = interval
    if at_paper and number is not None:
        least, most = number - rule.tolerance, number + rule.tolerance
        if least <= low and high <= most:
            return "holds"
        return "contradicted" if high < least or most < low else "inconclusive"
    beyond, short = (
        (low > rule.null, high < rule.null) if rule.direction == "above" else (high < rule.null, low > rule.null)
    )
    # A claim without a number has no tolerance to lie inside, so even at the paper's setting only its direction holds.
    return "holds in direction" if beyond else "contradicted" if short else "inconclusive"


class Ledger:
    """The claims of one chapter, each to be judged once by a measurement or skipped with a reason.

    Parameters
    ----------
    slug : str
        The chapter, such as ``"15_s_quant"``.
    data : {"real", "stand-in"}
        What the chapter measured on. Stand-in data is never the paper's setting.
    path : Path, optional
        Another claims file than ``book/claims/SLUG.yml``.

    Raises
    ------
    InputError
        If the file is missing or faulty, or `data` is neither word.

    Examples
    --------
    >>> ledger = Ledger("15_s_quant")
    >>> ledger.judge("Q6", exact=True)
    >>> ledger.verdict("Q6")
    'holds'
    >>> ledger.judge("Q3", value=1.04, interval=(1.02, 1.06))
    >>> ledger.verdict("Q3")
    'contradicted'
    """

    def __init__(self, slug: str, *, data: str = "real", path: str | os.PathLike[str] | None = None) -> None:
        if data not in ("real", "stand-in"):
            raise InputError(f"data={data!r}: say 'real' or 'stand-in'")
        self.slug = slug
        self.data = data
        self._at_paper_setting = os.environ.get("ICML26_SETTING") == "paper" and data == "real"
        self._claims = load(claims_path(slug) if path is None else Path(path))
        self._rows: dict[str, dict[str, Any]] = {}
        self._summary: Summary | None = None

    @property
    def at_paper_setting(self) -> bool:
        """Whether the whole run is at the paper's setting; the runner decides it, a chapter cannot."""
        return self._at_paper_setting

    def judge(
        self,
        id: str,
        *,
        value: float | None = None,
        interval: Sequence[float] | None = None,
        exact: bool | None = None,
        note: str = "",
        stand_in: bool = False,
    ) -> None:
        """Enter a measurement; the file's rule turns it into the verdict.

        Parameters
        ----------
        id : str
            The claim.
        value : float, optional
            The measured quantity, in the unit of the claim's `test`. Optional beside `exact` (a count, say).
        interval : (float, float), optional
            Its confidence interval, low end first. It holds `value`, except where `note` speaks of the interval: that
            of a maximum, for one, can lie beside it.
        exact : bool, optional
            The outcome of an exhaustive check, a property test or a count; for exact claims only.
        note : str
            A remark to show beside the verdict.
        stand_in : bool
            Whether the measurement is of a stand-in for the paper's own system, such as a simulated server, in every
            profile. It is then never at the paper's setting.

        Raises
        ------
        InputError
            If the id is unknown or settled already, the ledger is closed, or the measurement does not fit the rule.
        """
        claim = self._open(id)
        if not _is_bool(stand_in):
            raise InputError(f"claim {id}: stand_in={stand_in!r} must be True or False")
        at_paper = self._at_paper(claim) and not stand_in
        if claim.rule.kind == "exact":
            if interval is not None or not _is_bool(exact):
                raise InputError(f"claim {id} is exact: give exact=True or exact=False and no interval, not {exact!r}")
            measured = {"value": None if value is None else _number(id, "value", value), "exact": bool(exact)}
        else:
            if exact is not None:
                raise InputError(
                    f"claim {id} is decided by an interval: give value= and interval=, not exact={exact!r}"
                )
            if value is None:
                raise InputError(f"claim {id}: value is missing; give value= and interval=(low, high)")
            measured = {"value": _number(id, "value", value), "interval": _interval(id, interval)}
            if "interval" not in _text(id, "note", note).casefold():
                _inside(id, measured["value"], measured["interval"])
        verdict = decide(claim, at_paper=at_paper, interval=measured.get("interval"), exact=measured.get("exact"))
        label = "contradicted at this scale" if verdict == "contradicted" and not at_paper else verdict
        self._enter(claim, verdict, label, at_paper_setting=at_paper, **measured, note=_text(id, "note", note))

    def skip(self, id: str, *, reason: str, needs: str) -> None:
        """Leave a claim untested, and say so.

        Parameters
        ----------
        id : str
            The claim.
        reason : str
            Why it is not tested here.
        needs : str
            What it would take.

        Raises
        ------
        InputError
            If the id is unknown or settled already, the ledger is closed, or a text is empty.
        """
        claim = self._open(id)
        reason, needs = _text(id, "reason", reason), _text(id, "needs", needs)
        for name, text in (("reason", reason), ("needs", needs)):
            if not text:
                raise InputError(f"claim {id}: {name} is empty; say why it is not tested and what it would take")
        self._enter(claim, "not tested", "not tested", reason=reason, needs=needs)

    def close(self) -> Summary:
        """End the chapter's judging.

        Returns
        -------
        Summary
            Displays as the table of claims and carries the results for the runner; the same at every call.

        Raises
        ------
        InputError
            If a claim is neither judged nor skipped.
        """
        if self._summary is None:
            unfinished = [id for id in self._claims if id not in self._rows]
            if unfinished:
                raise InputError(f"claims {', '.join(unfinished)} of {self.slug} are neither judged nor skipped")
            self._summary = Summary(
                {
                    "chapter": self.slug,
                    "data": self.data,
                    "at_paper_setting": self.at_paper_setting,
                    "claims": self.rows(),
                }
            )
        return self._summary

    def verdict(self, id: str) -> str:
        """Return the verdict of a settled claim, one of `VERDICTS`."""
        self._claim(id)
        if id not in self._rows:
            raise InputError(f"claim {id} is not settled yet; judge or skip it first")
        return self._rows[id]["verdict"]

    def counts(self) -> dict[str, int]:
        """Count the settled claims by verdict, all five words in the order of `VERDICTS`."""
        found = [row["verdict"] for row in self._rows.values()]
        return {verdict: found.count(verdict) for verdict in VERDICTS}

    def rows(self) -> list[dict[str, Any]]:
        """Return the settled claims in the file's order, as plain data of the caller's own."""
        return [copy.deepcopy(self._rows[id]) for id in self._claims if id in self._rows]

    def paper(self, id: str) -> Paper:
        """Return what the paper reports on a claim, for prose and figures."""
        return self._claim(id).paper

    def _at_paper(self, claim: Claim) -> bool:
        return self.at_paper_setting or (claim.scale == "paper" and self.data == "real")

    def _claim(self, id: str) -> Claim:
        if id not in self._claims:
            raise InputError(f"{self.slug} has no claim {id!r}{nearest(id, self._claims)}")
        return self._claims[id]

    def _open(self, id: str) -> Claim:
        if self._summary is not None:
            raise InputError(f"claim {id}: the ledger of {self.slug} is closed; judge before close()")
        claim = self._claim(id)
        if id in self._rows:
            raise InputError(
                f"claim {id} is settled already ({self._rows[id]['verdict']}); make a new Ledger to judge again"
            )
        return claim

    def _enter(self, claim: Claim, verdict: str, label: str, **found: Any) -> None:
        row = asdict(claim) | {"verdict": verdict, "label": label}
        row |= {"at_paper_setting": self._at_paper(claim)}
        row |= {"value": None, "interval": None, "exact": None, "reason": None, "needs": None, "note": ""} | found
        if row["interval"] is not None:
            row["interval"] = list(row["interval"])
        self._rows[claim.id] = row


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


def _number(id: str, name: str, value: Any) -> float:
    try:
        number = math.nan if _is_bool(value) or isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"claim {id}: {name}={value!r} is not a finite number")
    return number


def _interval(id: str, interval: Sequence[float] | None) -> tuple[float, float]:
    if interval is None:
        raise InputError(f"claim {id}: interval is missing; give interval=(low, high), see icml26.stats")
    ends = tuple(np.atleast_1d(np.asarray(interval, dtype=object)))
    if len(ends) != 2:
        raise InputError(
            f"claim {id}: interval={ends!r} needs two ends (low, high); of a stats.Interval take .interval"
        )
    low, high = (_number(id, "interval end", end) for end in ends)
    if low > high:
        raise InputError(f"claim {id}: interval ({low}, {high}) is reversed; the low end comes first")
    return low, high


def _inside(id: str, value: float, interval: tuple[float, float]) -> None:
    low, high = interval
    if not low <= value <= high and not any(math.isclose(value, end, rel_tol=1e-6, abs_tol=1e-12) for end in interval):
        raise InputError(
            f"claim {id}: value={value} lies outside its interval ({low}, {high}); correct one of them, or say in "
            "note= why the interval lies beside the value"
        )


def _text(id: str, name: str, text: object) -> str:
    if not isinstance(text, str):
        raise InputError(f"claim {id}: {name}={text!r} must be a text")
    return " ".join(text.split())
