"""What every chapter keeps, checked on its source and on its executed copies, real ones and skeletons alike."""

import ast
import json
import re
from pathlib import Path

from icml26 import chapters, paths
from icml26.claims_file import claims_path, load
from icml26.publish import MOST_BYTES

HEADINGS = [
    "In one minute",
    "The idea",
    "From equation to code",
    "Experiment",
    "Claims",
    "What did not hold, and why",
    "Turn the knobs",
    "Use it in your own code",
    "At the paper's scale",
    "References",
]
# What only those who write the chapter understand has no place in a reason or in what a claim needs.
PROCESS = re.compile(
    r"\b(first half|second half|issues?|to-?do|fixme|later|soon|yet|milestone|sprint)\b", re.IGNORECASE
)
FIGURE = re.compile(r"plotting\.(figure|verdict_plot)\(|plt\.(figure|subplots)\(")
NAMES = (
    re.compile(r"\bglue\(\s*f?\"([^\"]+)\""),
    re.compile(r"\{glue:\w*\}`([^`:]+)"),
    re.compile(r"^:label: *(\S+)", re.MULTILINE),
    re.compile(r"^\$\$ *\(([^)]+)\)", re.MULTILINE),
    re.compile(r"^\(([^)\s]+)\)=$", re.MULTILINE),
    re.compile(r"\"name\": *\"([^\"]+)\""),
    re.compile(r"^:name: *(\S+)", re.MULTILINE),
)


def cells(source: str) -> list[tuple[str, str]]:
    """Header and text of each cell; the text of a Markdown cell without its comment signs."""
    found = []
    for part in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        header, _, text = part.partition("\n")
        if "[markdown]" in header:
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        found.append((header.strip(), text))
    return found


def violations(slug: str) -> list[str]:
    """What a chapter's source does not keep, in words; empty for a good chapter."""
    source = chapters.read(slug)
    prose = "\n".join(text for header, text in cells(source) if "[markdown]" in header)
    code = [(header, text) for header, text in cells(source) if "[markdown]" not in header]
    wrong = []
    plain = re.sub(r"^(`{3,}|:{3,}).*?^\1$", "", prose, flags=re.MULTILINE | re.DOTALL)
    if len(re.findall(r"^# \S", plain, re.MULTILINE)) != 1:
        wrong.append("it needs exactly one title")
    found = re.findall(r"^## +(.+?) *$", plain, re.MULTILINE)
    if found != HEADINGS:
        wrong.append(f"its sections are {found}, not {HEADINGS}")
    knobs = chapters.parameters(source)
    if "seed" not in knobs or knobs["seed"].type != "int":
        wrong.append("it has no parameter `seed: int`")
    wrong += [
        f"parameter {knob.name} has no bounds"
        for knob in knobs.values()
        if knob.type.removeprefix("list[").removesuffix("]") in ("int", "float") and knob.low is None
    ]
    load(claims_path(slug))
    for profile in chapters.PROFILES:
        if slug not in chapters.profile(profile):
            wrong.append(f"profiles/{profile}.yml has no entry for it")
        chapters.bind(slug, profile)
    names = {name for pattern in NAMES for text in (prose, source) for name in pattern.findall(text)}
    wrong += [f"the name {name!r} does not start with the slug" for name in sorted(names) if not name.startswith(slug)]
    for header, text in code:
        if FIGURE.search(text) and not described(metadata_of(header)):
            wrong.append(f"a figure has no alt text or caption: {text.strip().splitlines()[0]!r}")
    wrong += [f"a claim is left out for a reason of ours: {text!r}" for text in process_words(source)]
    if f'Ledger("{slug}"' not in source or ".close()" not in source:
        wrong.append("it closes no ledger of its own")
    return wrong


def process_words(code: str) -> list[str]:
    """The texts given as a claim's `reason` or `needs`, as a keyword or in a dictionary, that speak of the work."""
    given = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.keyword) and node.arg in ("reason", "needs"):
            given.append(node.value)
        elif isinstance(node, ast.Dict):
            given += [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value in ("reason", "needs")
            ]
    texts = [
        part.value
        for value in given
        for part in ast.walk(value)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return [text for text in texts if PROCESS.search(text)]


def metadata_of(header: str) -> dict[str, object]:
    """The mystnb metadata in a cell's header."""
    found = re.search(r"mystnb=(\{.*\})", header)
    return json.loads(found[1]) if found else {}


def described(mystnb: dict) -> bool:
    """Whether a figure has alternative text and a caption."""
    return bool(mystnb.get("image", {}).get("alt")) and bool(mystnb.get("figure", {}).get("caption"))


def executed_violations(path: Path) -> list[str]:
    """What an executed chapter does not keep."""
    wrong = []
    if path.stat().st_size > MOST_BYTES:
        wrong.append(f"it has {path.stat().st_size:,} bytes; {MOST_BYTES:,} is the most")
    text = path.read_text(encoding="utf-8")
    if str(paths.root()) in text or str(Path.home()) + "/" in text:
        wrong.append("it names folders of the machine that ran it")
    for number, cell in enumerate(json.loads(text)["cells"]):
        outputs = cell.get("outputs", [])
        pictures = any(kind.startswith("image/") for output in outputs for kind in output.get("data", {}))
        if pictures and not described(cell["metadata"].get("mystnb", {})):
            wrong.append(f"cell {number} shows a picture without alt text or caption")
        if any(output["output_type"] == "error" for output in outputs):
            wrong.append(f"cell {number} failed")
    return wrong
