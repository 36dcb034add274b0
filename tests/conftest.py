"""What all tests share: the project's root, and property tests that are the same on every run."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root."""
    return Path(__file__).resolve().parents[1]
