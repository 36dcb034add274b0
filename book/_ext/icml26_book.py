"""What this book needs from Sphinx beyond its theme: downloads and launch links per chapter, and no foreign request.

The theme loads Thebe's scripts on every page and they point to a content delivery network; they are switched off here.
Which files exist is decided when the book is staged (`icml26.book`), not here.
"""

import re
from html import escape
from pathlib import Path
from shutil import copytree
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment

CHAPTERS = "book/chapters/"
WIDE = ("book/index", "book/claims")  # pages with a wide table do without the contents at their side
BINDER = "https://mybinder.org/v2/gh"
COLAB = "https://colab.research.google.com/github"


class NearestPythonDomain(PythonDomain):
    """Python's names, where one that several modules have means that of the nearest: most of the path in common."""

    def find_obj(self, env: BuildEnvironment, modname: str | None, *args: Any, **options: Any) -> list[tuple[str, Any]]:
        """Find the objects of a name; one, if one is nearer to the module that names it than all others."""
        found = super().find_obj(env, modname, *args, **options)
        if len(found) < 2 or not modname:
            return found
        here = modname.split(".")
        near = [[a == b for a, b in zip(here, name.split("."), strict=False)] for name, _ in found]
        near = [[*same, False].index(False) for same in near]
        best = [match for match, length in zip(found, near, strict=True) if length == max(near)]
        return best if len(best) == 1 else found


def silence_thebe(app: Sphinx) -> None:
    """Take sphinx-thebe's handlers off every event, so that neither its files nor its settings reach a page."""
    for listeners in app.events.listeners.values():
        listeners[:] = [entry for entry in listeners if not entry.handler.__module__.startswith("sphinx_thebe")]
    app.registry.css_files[:] = [entry for entry in app.registry.css_files if "thebe" not in entry[0]]


def launch_links(url: str, branch: str, slug: str) -> list[tuple[str, str]]:
    """Binder opens the committed chapter; Colab opens the copy with an install cell that the site's branch holds."""
    if not url:
        return []
    host, _, repository = url.rstrip("/").removesuffix(".git").partition("github.com/")
    if not host or repository.count("/") != 1:
        raise ValueError(
            f"_config.yml: repository.url={url!r} is not https://github.com/OWNER/NAME; correct or empty it"
        )
    return [
        ("Open in Binder", f"{BINDER}/{repository}/{branch}?urlpath=lab/tree/{CHAPTERS}{slug}.ipynb"),
        ("Open in Colab", f"{COLAB}/{repository}/blob/gh-pages/_static/colab/{slug}.ipynb"),
    ]


def add_chapter_links(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document) -> None:
    """Put a chapter's downloads and launch links under its title; give wide tables room, and the ledger its filter."""
    if pagename in WIDE:
        context["meta"] = {**(context.get("meta") or {}), "html_theme.sidebar_secondary.remove": "true"}
    if pagename == "book/claims":
        app.add_js_file("claims.js", loading_method="defer")
    if not pagename.startswith(CHAPTERS) or "body" not in context:
        return
    slug = pagename.removeprefix(CHAPTERS)
    sources = context["pathto"]("_sources", 1)
    options = app.config.html_theme_options
    links = [f'<a href="{sources}/{pagename}.ipynb" download>Executed notebook (.ipynb)</a>']
    if (Path(app.srcdir) / "notebooks" / f"{slug}.py").is_file():
        links.append(f'<a href="{sources}/notebooks/{slug}.py" download>Source (.py)</a>')
    branch = options.get("repository_branch") or "main"
    links += [
        f'<a href="{escape(target)}">{label}</a>'
        for label, target in launch_links(options.get("repository_url") or "", branch, slug)
    ]
    items = "".join(f"<li>{link}</li>" for link in links)
    block = f'<nav class="chapter-links" aria-label="This chapter as a file"><ul>{items}</ul></nav>'
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{block}", 1)


def number_by_page(app: Sphinx, env: BuildEnvironment) -> None:
    """Start the numbers of figures, tables and listings anew on every page, as those of equations do."""
    for kinds in env.toc_fignumbers.values():
        for numbers in kinds.values():
            numbers.update({name: (position,) for position, name in enumerate(numbers, 1)})


def copy_sources(app: Sphinx, exception: Exception | None) -> None:
    """Copy the chapters' sources beside the pages' own, where the links point."""
    notebooks = Path(app.srcdir) / "notebooks"
    if exception is None and app.builder.format == "html" and notebooks.is_dir():
        copytree(notebooks, Path(app.outdir) / "_sources" / "notebooks", dirs_exist_ok=True)


def escape_bars(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Let a docstring say |x| for a magnitude, where reStructuredText would look for a substitution of that name."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            parts = re.split(r"(``.*?``)", line)
            parts[::2] = [re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts[::2]]
            lines[number] = "".join(parts)


def skip_routing(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out what scikit-learn adds to every estimator: it refers to scikit-learn's own book."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def setup(app: Sphinx) -> dict:
    """Register with Sphinx; this extension is loaded after those that it corrects."""
    silence_thebe(app)
    app.add_domain(NearestPythonDomain, override=True)
    app.connect("autodoc-skip-member", skip_routing)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after napoleon has read the types
    app.connect("env-check-consistency", number_by_page)
    app.connect("html-page-context", add_chapter_links)
    app.connect("build-finished", copy_sources)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
