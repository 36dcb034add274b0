"""The direction of dependencies: papers stand alone, the library ignores notebooks, plots and prints have one home."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import icml26
from icml26.chapters import SLUGS
from icml26.cli import COMMANDS

PACKAGE = Path(icml26.__file__).parent
PAPERS = {slug[3:] for slug in SLUGS}


def name_of(path: Path) -> str:
    parts = ("icml26", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(source: str, name: str, is_package: bool = False) -> set[str]:
    """Full names of all that a module imports anywhere in its text, lazily or for typing included."""
    package = name if is_package else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    return found


def papers_of(names: set[str]) -> set[str]:
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "icml26" and len(part) > 1 and part[1] in PAPERS}


def prints(source: str) -> list[str]:
    """Calls that write to the terminal: print, a console's print, echo, and the standard streams."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    texts = [ast.unparse(call.func) for call in calls]
    return [
        text
        for text in texts
        if text.split(".")[-1] in ("print", "rprint", "print_json", "echo", "secho", "pprint")
        or text.startswith(("sys.stdout.write", "sys.stderr.write"))
    ]


def of(name: str) -> set[str]:
    path = MODULES[name]
    return imported(path.read_text(encoding="utf-8"), name, path.name == "__init__.py")


@pytest.mark.parametrize("name", MODULES)
def test_a_paper_s_module_never_imports_another_paper_s_and_a_shared_one_imports_none(name):
    own = {name.split(".")[1]} & PAPERS if "." in name else set()
    assert papers_of(of(name)) <= own


@pytest.mark.parametrize("name", MODULES)
def test_the_library_never_imports_from_the_notebooks(name):
    assert not {other for other in of(name) if other.split(".")[0] in ("notebooks", "book", "tests", "benchmarks")}


@pytest.mark.parametrize("name", MODULES)
def test_only_the_plotting_module_imports_plotting_libraries(name):
    plots = {other for other in of(name) if other.split(".")[0] in ("matplotlib", "seaborn", "plotly", "pylab")}
    assert not plots or name == "icml26.plotting"


def is_command_line(name: str) -> bool:
    """Whether a module is `icml26.cli`, one of the parts it is split into, or a paper's own command."""
    own = {target.partition(":")[0] for target in COMMANDS.values()}
    return (
        name in own
        or name.split(".")[:2] == ["icml26", "cli"]
        or name.startswith("icml26.cli_")
        or name == "icml26.__main__"
    )


@pytest.mark.parametrize("name", [name for name in MODULES if not is_command_line(name)])
def test_only_the_command_line_prints(name):
    assert not prints(MODULES[name].read_text(encoding="utf-8"))
    # nor does anything else print through it
    assert not {other for other in of(name) if is_command_line(other)}


def test_the_checks_above_see_every_way_to_import_and_to_print():
    lazy = "def f():\n    from ..top_w import warp\n    import icml26.qtale.core\n    import_module('icml26.cdg')"
    assert papers_of(imported(lazy, "icml26.s_quant.codec")) == {"top_w", "qtale", "cdg"}
    assert papers_of(imported("from icml26 import top_w, stats", "icml26.stats")) == {"top_w"}
    assert papers_of(imported("from . import codec", "icml26.s_quant", is_package=True)) == {"s_quant"}
    assert papers_of(imported("from icml26.claims import Ledger", "icml26.stats")) == set()
    assert prints("print(1); console.print(2); rich.print(3); typer.echo(4); sys.stdout.write('5')") == [
        "print",
        "console.print",
        "rich.print",
        "typer.echo",
        "sys.stdout.write",
    ]
    assert prints('"""print(1)"""\nfingerprint(2); path.write(3)') == []


def test_everything_imports_with_triton_absent():
    # Blocked before anything else, as on a machine without it; a lazily imported kernel is tested with its module.
    code = """
import importlib, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "triton":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert "triton" not in sys.modules
"""
    names = [name for name in MODULES if not name.endswith("__main__")]
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_brings_nothing_heavy():
    code = "import sys, icml26, icml26.errors, icml26.paths; print(*({'torch', 'numpy', 'pooch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
