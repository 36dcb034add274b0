"""Books for the tests of this folder: a small one to build, and the real one, built, to look at."""

import os
from pathlib import Path

import pytest
from smallbook import make_small_book

from icml26 import book


@pytest.fixture(scope="session")
def small_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a small book that nobody has built; tests that change it copy it first."""
    return make_small_book(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def site() -> Path:
    """The pages of this book: those that ICML26_BOOK names, else built now."""
    built = os.environ.get("ICML26_BOOK")
    return Path(built).resolve() if built else book.build()
