"""How a closed ledger shows itself: an HTML table, plain text, and the data that the runner takes from a notebook.

Colours are left to the book's style sheet, through the classes ``verdict`` and ``verdict-holds`` (and so on); without
it the table reads in the page's own colours. Verdicts are decided in `icml26.claims`.
"""

import copy
from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["COLUMNS", "MIMETYPE", "Summary", "html_row"]

MIMETYPE = "application/vnd.icml26.ledger+json"

COLUMNS = ("Claim", "What the paper says", "Its value", "Ours", "Verdict", "Scale, or why not tested")


class Summary:
    """A closed ledger, for display at the end of a cell.

    Parameters
    ----------
    content : mapping
        ``chapter``, ``data``, ``at_paper_setting`` and ``claims`` as `icml26.claims.Ledger.close` gives them.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = copy.deepcopy(dict(content))

    def rows(self) -> list[dict[str, Any]]:
        """Return the claims as plain data."""
        return copy.deepcopy(self._content["claims"])

    def exact(self) -> str:
        """Return the lines of the exact claims alone: what is equal on every machine, for checked outputs."""
        return "\n".join(_line(row) for row in self._content["claims"] if row["rule"]["kind"] == "exact")

    def __repr__(self) -> str:
        return "\n".join(_line(row) for row in self._content["claims"])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self._html(), MIMETYPE: copy.deepcopy(self._content)}

    def _html(self) -> str:
        content = self._content
        data = "real data" if content["data"] == "real" else "stand-in data"
        setting = ", at the paper's setting" if content["at_paper_setting"] else ""
        caption = escape(f"Claims of chapter {content['chapter']} and what this run found ({data}{setting})")
        heads = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
        body = "\n".join(html_row(row) for row in content["claims"])
        # A wide table scrolls inside its own box, which the keyboard can reach.
        return (
            f'<div class="ledger-box" role="region" tabindex="0" aria-label="{caption}" style="overflow-x: auto">\n'
            f'<table class="ledger">\n<caption>{caption}</caption>\n'
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
        )


def _line(row: Mapping[str, Any]) -> str:
    counted = row["exact"] is not None and row["value"] is not None
    return f"{row['id']} {row['label']}" + (f" ({_format(row['value'])})" if counted else "")


def html_row(row: Mapping[str, Any]) -> str:
    """Return a claim as a row of an HTML table under `COLUMNS`.

    Parameters
    ----------
    row : mapping
        A settled claim, as `icml26.claims.Ledger.rows` gives it.

    Returns
    -------
    str
        A ``<tr>`` whose first cell is the claim's id as the row's head.
    """
    how = f"Test: {row['test']}. Decided by: {_rule(row)}."
    remarks = [f"Not tested: {row['reason']}. Needs: {row['needs']}."] if row["reason"] else [_scale(row)]
    remarks += [row["note"]] if row["note"] else []
    kind = row["verdict"].replace(" ", "-")
    cells = (
        f"{escape(row['statement'])}<br><small>{escape(how)}</small>",
        f"{escape(row['paper']['text'])}<br><small>{escape(row['paper']['setting'])}</small>",
        escape(_ours(row)),
        f'<span class="verdict verdict-{kind}">{escape(row["label"])}</span>',
        "<br>".join(escape(remark) for remark in remarks),
    )
    return f'<tr><th scope="row">{escape(row["id"])}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _scale(row: Mapping[str, Any]) -> str:
    """Say at which scale a claim was judged; the file's `paper` is a wish that stand-in data cannot fulfil."""
    if row.get("at_paper_setting", row["scale"] == "paper"):  # results of older runs do not say
        return "the paper's own setting"
    if row["scale"] != "paper":
        return row["scale"]
    return "exact, on stand-in data" if row["rule"]["kind"] == "exact" else "stand-in data, not the paper's setting"


def _rule(row: Mapping[str, Any]) -> str:
    rule, number = row["rule"], row["paper"]["value"]
    if rule["kind"] == "exact":
        return "true or false"
    words = f"interval {rule['direction']} {_format(rule['null'])}"
    if number is not None:
        words += f"; at the paper's setting inside {_format(number)} ± {_format(rule['tolerance'])}"
    return words


def _ours(row: Mapping[str, Any]) -> str:
    if row["exact"] is not None:
        outcome = "true" if row["exact"] else "false"
        return outcome if row["value"] is None else f"{outcome} ({_format(row['value'])})"
    if row["interval"] is None:
        return "not measured"
    low, high = row["interval"]
    return f"{_format(row['value'])} [{_format(low)}, {_format(high)}]"


def _format(number: float) -> str:
    if number == int(number) or abs(number) >= 1e4:
        return f"{number:.0f}" if abs(number) < 1e15 else f"{number:.4g}"
    return f"{number:.4g}"
