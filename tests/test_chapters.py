"""Knobs are refused before anything runs unless they are known, typed and in range; results follow from contents."""

import math

import pytest
from miniature import chapter, project

from icml26 import chapters
from icml26.errors import InputError
from icml26.parameters import parameters

KNOBS = """\
# %% [markdown]
# Prose about `# %% tags=["parameters"]` is no cell.

# %% tags=["parameters"]
blocks: int = 256  # blocks per tensor [blocks; 16..65536]
threshold: float = 0.9  # least share to rebuild [fraction; 0.01..1]
model: str = (
    "minilm"  # which model [name; minilm | tiny-random]
)
note: str = "a, b"  # a free text [text]
layouts: list[str] = ["columns"]  # orders tried [name; columns | row-major]
widths: list[int] = [4, 8]  # block widths [columns; 1..64]
rates: list[float] = [0.5, 1]  # rates [bits; 0..8]
check: bool = True  # whether to check [switch]

# %%
blocks = 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = project(tmp_path / "p", {"01_cdg": {"imports": "import icml26.stats"}, "15_s_quant": {}})
    monkeypatch.setenv("ICML26_ROOT", str(made))
    return made


def test_a_knob_is_read_with_type_unit_range_and_description():
    knobs = parameters(KNOBS)
    assert list(knobs) == ["blocks", "threshold", "model", "note", "layouts", "widths", "rates", "check"]
    assert (knobs["blocks"].default, knobs["blocks"].low, knobs["blocks"].high) == (256, 16, 65536)
    assert knobs["model"].choices == ("minilm", "tiny-random")
    assert knobs["threshold"].unit == "fraction"
    assert knobs["check"].description == "whether to check"
    assert (knobs["note"].choices, knobs["note"].low) == ((), None)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("blocks", "64", 64),
        ("threshold", "1", 1.0),
        ("threshold", "5e-1", 0.5),
        ("model", "tiny-random", "tiny-random"),
        ("note", "'x, y: 3'", "x, y: 3"),
        ("widths", "4,8", [4, 8]),
        ("widths", "[16]", [16]),
        ("rates", "[1, 2.5]", [1.0, 2.5]),
        ("layouts", "row-major, columns", ["row-major", "columns"]),
        ("check", "False", False),
    ],
)
def test_a_value_in_range_is_parsed_as_the_knob_s_type(name, text, value):
    parsed = parameters(KNOBS)[name].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("blocks", "15"), ("blocks", "65537"), ("blocks", "64.0"), ("blocks", "many"), ("blocks", "true"),
        ("threshold", "nan"), ("threshold", "inf"), ("threshold", "0"), ("model", "minilm-l6"), ("layouts", "rows"),
        ("widths", "4, 65"), ("widths", "[]"), ("check", "1"), ("check", "yes"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_out_of_range_is_refused_by_name(name, text):
    with pytest.raises(InputError, match=f"parameter {name}"):
        parameters(KNOBS)[name].parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blocks", True), ("blocks", 64.0), ("blocks", "64"), ("threshold", "0.5"), ("threshold", math.nan),
        ("check", 1), ("model", None), ("widths", 4), ("widths", [True]), ("note", 3),
    ],
)  # fmt: skip
def test_a_profile_s_value_is_not_converted_silently(name, value):
    with pytest.raises(InputError, match=f"parameter {name}"):
        parameters(KNOBS)[name].check(value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("blocks = 3  # blocks [blocks; 1..9]", "is no knob"),
        ("import math", "is no knob"),
        ("blocks: int = 3", "lacks its comment"),
        ("blocks: int = 3  # no unit", "lacks its comment"),
        ("blocks: int = 3  # blocks [blocks; 4..9]", "out of range"),
        ("blocks: int = 3  # blocks [blocks; few]", "low..high"),
        ("blocks: int = 1 + 2  # blocks [blocks; 1..9]", "computed default"),
        ("blocks: dict = {}  # blocks [blocks]", "has type dict"),
        ("blocks: int = 2.5  # blocks [blocks; 1..9]", "not of type int"),
        ("blocks: int = ", "not Python"),
    ],
)
def test_a_line_that_is_no_knob_is_an_error_of_the_chapter(line, reason):
    with pytest.raises(InputError, match=reason):
        parameters(f'# %% tags=["parameters"]\n{line}\n')


@pytest.mark.parametrize("count", [0, 2])
def test_a_chapter_has_exactly_one_parameters_cell(count):
    cell = '# %% tags=["parameters"]\nseed: int = 0  # seed [number; 0..9]\n'
    with pytest.raises(InputError, match=f"{count} cells tagged"):
        parameters(cell * count + "# %%\nx = 1\n")


def test_a_user_s_value_wins_over_the_profile_s_and_that_over_the_default(folder):
    (folder / "profiles" / "quick.yml").write_text("01_cdg:\n  parameters: {term: 2, word: fancy}\n")
    values = chapters.bind("01_cdg", "quick", {"word": "plain"})
    assert values == {"seed": 0, "term": 2.0, "word": "plain", "widths": [1, 2], "check": True}
    assert type(values["term"]) is float
    assert chapters.bind("15_s_quant", "quick")["term"] == 1.0, "a chapter without an entry has its defaults"


def test_an_unknown_parameter_is_an_error_with_the_nearest_name(folder):
    with pytest.raises(InputError, match="01_cdg: unknown parameter 'trem'; did you mean 'term'"):
        chapters.bind("01_cdg", "quick", {"trem": 1.0})
    (folder / "profiles" / "quick.yml").write_text("01_cdg:\n  parameters: {sed: 2}\n")
    with pytest.raises(InputError, match=r"profiles/quick.yml, 01_cdg: unknown parameter 'sed'; did you mean 'seed'"):
        chapters.bind("01_cdg", "quick")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("01_cdgg: {}", "01_cdgg is no chapter; did you mean '01_cdg'"),
        ("01_cdg: {params: {}}", "has 'params'"),
        ("01_cdg: {resources: {memory: 3}}", "has the resource 'memory'; did you mean 'memory_gb'"),
        ("01_cdg: {", "cannot be read: line 2: "),
        ("01_cdg: {}\n01_cdg: {}", "cannot be read: line 2: key '01_cdg' appears twice; keep one"),
        ("01_cdg: {parameters: {term: 1:30}}", "cannot be read: line 1: '1:30' is no usable number"),
    ],
)
def test_a_faulty_profile_is_an_error_that_names_the_file(folder, entry, reason):
    (folder / "profiles" / "quick.yml").write_text(f"{entry}\n")
    with pytest.raises(InputError, match=f"profiles/quick.yml.* {reason}"):
        chapters.profile("quick")


def test_an_unknown_profile_or_chapter_is_an_error_with_the_nearest_name(folder):
    with pytest.raises(InputError, match="did you mean 'laptop'"):
        chapters.profile("labtop")
    with pytest.raises(InputError, match="did you mean 's_quant'"):
        chapters.resolve("s_quan")
    with pytest.raises(InputError, match="chapter 17_top_w is not written yet; written: 01_cdg, 15_s_quant"):
        chapters.bind("17_top_w", "quick")
    assert chapters.resolve("1") == chapters.resolve("01") == chapters.resolve("cdg") == "01_cdg"
    assert chapters.existing() == ["01_cdg", "15_s_quant"]


def test_sources_follow_every_way_to_import_and_nothing_else(folder, monkeypatch):
    package = folder / "lib" / "icml26"
    monkeypatch.setattr(chapters, "_PACKAGE", package)
    (package / "top_w").mkdir()
    texts = {
        "top_w/__init__.py": "from .core import warp",
        "top_w/core.py": "from ..alpha import NUMBER\ndef warp():\n    import icml26.beta as b",
        "alpha.py": "from icml26 import gamma, NOTHING",
        "beta.py": "import json",
        "gamma.py": "broken (",
        "delta.py": "",
    }
    for name, text in texts.items():
        (package / name).write_text(text)
    chapter(folder, "01_cdg", imports="from icml26.top_w import warp")
    found = set(chapters.digests("01_cdg"))
    assert found >= {f"lib/icml26/{name}" for name in texts if name != "delta.py"}
    assert found >= {"notebooks/01_cdg.py", "book/claims/01_cdg.yml", "lib/icml26/claims.py", "lib/icml26/__init__.py"}
    assert "lib/icml26/delta.py" not in found
    assert "lib/icml26/batch.py" not in found


def test_the_fingerprint_changes_with_whatever_can_change_an_output_and_with_nothing_else(folder):
    seen = [chapters.fingerprint("15_s_quant", "laptop")]
    assert chapters.fingerprint("15_s_quant", "quick") == seen[0], "equal parameters give equal results"
    chapter(folder, "01_cdg", body="pass  # another chapter")
    assert chapters.fingerprint("15_s_quant", "laptop") == seen[0]
    seen.append(chapters.fingerprint("15_s_quant", "paper"))  # judged at the paper's setting
    seen.append(chapters.fingerprint("15_s_quant", "laptop", {"term": 2.0}))
    chapter(folder, "15_s_quant", body="pass  # new")
    seen.append(chapters.fingerprint("15_s_quant", "laptop"))
    claims = folder / "book" / "claims" / "15_s_quant.yml"
    claims.write_text(claims.read_text() + "# new\n")
    seen.append(chapters.fingerprint("15_s_quant", "laptop"))
    assert len(set(seen)) == len(seen)
