"""From runs to what the project commits: executed chapters, results, references for nbval, ledger and tables.

A complete run at `laptop` and one at `quick` are needed, both of the files as they are; running is `icml26.batch`'s
business. A chapter whose fingerprint is that of the published one is left alone, so that git does not fill with
pictures that a second run draws a little differently.
"""

import json
from pathlib import Path

from icml26 import chapters, paths, report
from icml26.errors import InputError
from icml26.planning import outdated
from icml26.runner import read_result, run_folder

__all__ = ["MOST_BYTES", "publish"]

MOST_BYTES = 1_500_000  # of an executed chapter


def publish() -> list[Path]:
    """Copy complete runs at `laptop` and `quick` to where the project keeps them.

    Returns
    -------
    list of Path
        The files that changed.

    Raises
    ------
    InputError
        If a chapter has no up-to-date result, was not measured on real data, or is too large; nothing is written then.
    """
    root = paths.root()
    slugs = chapters.existing()
    late = [
        f"{slug} at {profile} ({why})"
        for profile in ("laptop", "quick")
        for slug in slugs
        if (why := outdated(slug, profile))
    ]
    if late:
        raise InputError(
            f"the runs are not complete: {'; '.join(late)}; run `icml26 reproduce --profile laptop` and `... quick`"
        )
    laptop, quick = run_folder("laptop"), run_folder("quick")
    for slug in slugs:
        size = (laptop / f"{slug}.ipynb").stat().st_size
        if size > MOST_BYTES:
            raise InputError(
                f"{slug}: the executed chapter has {size:,} bytes; make its figures smaller, {MOST_BYTES:,} is the most"
            )
        if read_result(laptop / f"{slug}.json")["data"] != "real":
            raise InputError(f"{slug} was measured on stand-in data; published results need the real data")
    results = root / "results" / "laptop"
    texts: dict[Path, str] = {}
    for slug in slugs:
        chapter, result = root / "book" / "chapters" / f"{slug}.ipynb", results / f"{slug}.json"
        if not (_stamp(chapter) == _stamp(laptop / chapter.name) and result.is_file()):
            texts[chapter] = (laptop / chapter.name).read_text(encoding="utf-8")
            texts[result] = (laptop / result.name).read_text(encoding="utf-8")
        reference = root / "tests" / "reference" / f"{slug}.ipynb"
        if _stamp(reference) != _stamp(quick / reference.name):
            texts[reference] = _without_pictures(quick / reference.name)
    changed = _write(texts)
    readme = root / "README.md"  # made of the results just written
    table = report.readme_table(report.collect(results))
    texts = {readme: report.update_readme(readme.read_text(encoding="utf-8"), table)}
    return changed + _write(texts | report.pages(results, root / "book"))


def _write(texts: dict[Path, str]) -> list[Path]:
    changed = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.write_atomic(path, texts[path])
    return changed


def _without_pictures(notebook: Path) -> str:
    """A reference is compared by its printed outputs alone."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            output.update({"data": {k: v for k, v in data.items() if not k.startswith("image/")}} if data else {})
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _stamp(notebook: Path) -> str | None:
    try:
        return json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["icml26"]["fingerprint"]
    except (FileNotFoundError, ValueError, KeyError):
        return None
