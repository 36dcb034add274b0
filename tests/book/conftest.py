"""The small book that the tests of this folder build."""

from pathlib import Path

import pytest
from smallbook import make_small_book


@pytest.fixture(scope="session")
def small_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a small book that nobody has built; tests that change it copy it first."""
    return make_small_book(tmp_path_factory.mktemp("small"))
