"""From the results of a run to its pages: the ledger of all claims and the table of all papers.

It reads result files and the list of papers, and decides nothing: verdicts are the ledger's (`icml26.claims`). The
filter on the ledger's page is the book's script; without it the whole table shows.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from icml26 import chapters, paths
from icml26.claims import VERDICTS
from icml26.claims_view import COLUMNS, html_row
from icml26.errors import InputError
from icml26.runner import read_result

__all__ = ["collect", "count", "pages", "readme_table", "update_readme", "write"]

_BEGIN, _END = "<!-- verdicts:begin -->", "<!-- verdicts:end -->"
_UNWRITTEN = "not written yet"


def collect(folder: Path) -> list[dict[str, Any]]:
    """Read the results in a folder.

    Parameters
    ----------
    folder : Path
        A run's folder, or that of the published results.

    Returns
    -------
    list of dict
        The chapters' results, in the papers' order.

    Raises
    ------
    InputError
        If there is no such folder or a file in it is no result.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"no results at {folder}; run `icml26 reproduce` first")
    files = (folder / f"{slug}.json" for slug in chapters.slugs())
    return [read_result(file) for file in files if file.is_file()]


def count(claims: Sequence[Mapping[str, Any]]) -> str:
    """Say how many claims got which verdict.

    Parameters
    ----------
    claims : sequence of mapping
        Rows with a ``verdict``.

    Returns
    -------
    str
        The verdicts that occur, in the ledger's order.

    Examples
    --------
    >>> count([{"verdict": "not tested"}, {"verdict": "holds"}, {"verdict": "holds"}])
    '2 holds, 1 not tested'
    """
    found = Counter(claim["verdict"] for claim in claims)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict])


def pages(folder: Path, out: Path) -> dict[Path, str]:
    """Return the pages of a run without writing them.

    Parameters
    ----------
    folder : Path
        Where the results are.
    out : Path
        Where the pages belong; their links lead to ``chapters/`` beside them.

    Returns
    -------
    dict of Path to str
        ``claims.md``, ``claims.json`` and ``papers_table.md`` in `out`, with their text.

    Raises
    ------
    InputError
        As `collect`.
    """
    results = {result["chapter"]: result for result in collect(folder)}
    claims = [
        {"chapter": slug, "profile": result["profile"], "data": result["data"], **claim}
        for slug, result in results.items()
        for claim in result["claims"]
    ]
    return {
        Path(out) / "claims.md": _claims_page(results),
        Path(out) / "claims.json": json.dumps(claims, indent=1, ensure_ascii=False) + "\n",
        Path(out) / "papers_table.md": _papers_table(results),
    }


def write(folder: Path, out: Path) -> list[Path]:
    """Write the pages of a run; see `pages`.

    Parameters
    ----------
    folder : Path
        Where the results are.
    out : Path
        Where the pages go.

    Returns
    -------
    list of Path
        The three files.

    Raises
    ------
    InputError
        As `collect`.
    """
    texts = pages(folder, out)
    for path, text in texts.items():
        paths.write_atomic(path, text)
    return list(texts)


def _papers() -> list[dict[str, Any]]:
    return sorted(chapters.papers(), key=lambda paper: (chapters.PARTS.index(paper["part"]), paper["number"]))


def _status(slug: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    if slug in results:
        data = "" if results[slug]["data"] == "real" else ", on stand-in data"
        return f"executed at `{results[slug]['profile']}`{data}"
    return "written, no result in this run" if chapters.source(slug).is_file() else _UNWRITTEN


def _papers_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| Part | Paper | Authors | arXiv | Status | Verdicts |", "|---|---|---|---|---|---|"]
    for paper in _papers():
        slug = paper["slug"]
        title = _cell(paper["title"])
        name = f"[{title}](chapters/{slug}.ipynb)" if slug in results else title
        arxiv = f"[{paper['arxiv']}](https://arxiv.org/abs/{paper['arxiv']})" if paper["arxiv"] else "none known"
        authors = _cell(", ".join(paper["authors"])) if paper["authors"] else "not known to us"
        verdicts = count(results[slug]["claims"]) if slug in results else "–"
        row = (paper["part"], f"{paper['number']}. {name}", authors, arxiv, _status(slug, results), verdicts)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def readme_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of verdicts for the README, in GitHub's Markdown.

    Parameters
    ----------
    results : sequence of mapping
        As `collect` returns them.

    Returns
    -------
    str
        One row per paper, without a line break at the end.
    """
    by_slug = {result["chapter"]: result for result in results}
    lines = ["| Paper | Part | Verdicts |", "|---|---|---|"]
    for paper in _papers():
        slug = paper["slug"]
        name = f"[{_cell(paper['title'])}](book/chapters/{slug}.ipynb)" if slug in by_slug else _cell(paper["title"])
        verdicts = count(by_slug[slug]["claims"]) if slug in by_slug else _UNWRITTEN
        lines.append(f"| {paper['number']}. {name} | {paper['part']} | {verdicts} |")
    return "\n".join(lines)


def update_readme(text: str, table: str) -> str:
    """Put a table between the README's two marks.

    Parameters
    ----------
    text : str
        The README, with the lines ``<!-- verdicts:begin -->`` and ``<!-- verdicts:end -->``.
    table : str
        What goes between them.

    Returns
    -------
    str
        The README with the table; everything else as it was.

    Raises
    ------
    InputError
        If the marks are not there once each and in order.

    Examples
    --------
    >>> print(update_readme("a\\n<!-- verdicts:begin -->\\nold\\n<!-- verdicts:end -->\\nb", "new"))
    a
    <!-- verdicts:begin -->
    new
    <!-- verdicts:end -->
    b
    """
    if text.count(_BEGIN) != 1 or text.count(_END) != 1 or text.index(_BEGIN) > text.index(_END):
        raise InputError(f"README.md needs the lines {_BEGIN} and {_END} once each, in this order")
    head, _, rest = text.partition(_BEGIN)
    return f"{head}{_BEGIN}\n{table}\n{_END}{rest.partition(_END)[2]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _claims_page(results: Mapping[str, Mapping[str, Any]]) -> str:
    papers = [paper for paper in _papers() if paper["slug"] in results]
    claims = [claim for result in results.values() for claim in result["claims"]]
    lines = [
        "# The ledger of claims",
        "",
        f"Every claim of every chapter, {len(claims)} so far from {len(papers)} of {len(chapters.slugs())} papers: "
        f"{count(claims) or 'none yet'}.",
        "The rule that decides a claim was written down before its experiment ran; "
        "[How to read a chapter](how_to_read.md#verdicts) says what each verdict means.",
        "",
    ]
    for result in results.values():
        if result["data"] != "real":
            lines += [f"{_short(result)} was measured on stand-in data.", ""]
        if result.get("overrides"):
            knobs = ", ".join(f"`{name} = {value!r}`" for name, value in result["overrides"].items())
            lines += [f"{_short(result)} was run with parameters set by hand: {knobs}.", ""]
    if claims:
        lines += ["```{raw} html", *_filter(papers, claims), *_table(papers, results), "```", ""]
    missing = [paper for paper in _papers() if paper["slug"] not in results]
    if missing:
        lines += ["## Not in the ledger yet", ""]
        lines += [f"- {paper['short']}, *{paper['title']}*: {_status(paper['slug'], results)}" for paper in missing]
        lines += [""]
    return "\n".join(lines)


def _short(result: Mapping[str, Any]) -> str:
    return next(paper["short"] for paper in chapters.papers() if paper["slug"] == result["chapter"])


def _filter(papers: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, Any]]) -> list[str]:
    present = {claim["verdict"] for claim in claims}
    by_paper = "".join(f'<option value="{paper["slug"]}">{escape(paper["short"])}</option>' for paper in papers)
    by_verdict = "".join(f'<option value="{word}">{word}</option>' for word in VERDICTS if word in present)
    return [
        '<form class="claims-filter" hidden>',
        f'<label>Paper <select name="paper"><option value="">all</option>{by_paper}</select></label>',
        f'<label>Verdict <select name="verdict"><option value="">all</option>{by_verdict}</select></label>',
        '<button type="reset">Show all</button>',
        f'<output aria-live="polite">{len(claims)} of {len(claims)} claims</output>',
        "</form>",
    ]


def _table(papers: Sequence[Mapping[str, Any]], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    caption = "Claims of all chapters and what this run found"
    heads = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    lines = [
        f'<div class="table-box" role="region" tabindex="0" aria-label="{caption}">',
        f'<table class="claims-ledger"><caption>{caption}</caption>',
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
    ]
    for paper in papers:
        slug, short = paper["slug"], escape(paper["short"])
        for claim in results[slug]["claims"]:
            cells = html_row(claim).partition("</th>")[2]  # the same cells as in the chapter, under another head
            lines.append(
                f'<tr data-paper="{slug}" data-paper-name="{short}" data-verdict="{claim["verdict"]}">'
                f'<th scope="row"><a href="chapters/{slug}.html">{short}</a> {escape(claim["id"])}</th>{cells}'
            )
    return [*lines, "</tbody>", "</table>", "</div>"]
