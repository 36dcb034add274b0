"""What all tests share: the project's root, and property tests that are the same on every run."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root."""
    return Path(__file__).resolve().parents[1]


# A shell that starts pytest in the background has SIGINT ignored, and all that tests start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
