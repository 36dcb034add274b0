"""Every example in a docstring of the package runs and prints what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

import icml26

PACKAGE = Path(icml26.__file__).parent
MODULES = sorted(
    ".".join(("icml26", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no example may depend on, or leave anything in, the working directory
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert not list(tmp_path.iterdir())
