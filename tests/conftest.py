"""What all tests share: the project's root, and property tests that are the same on every run."""

import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def icml26(monkeypatch, capsys):
    """Run a command in this process; returns exit code, output and errors."""
    from icml26 import cli

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["icml26", *arguments])
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setenv("TERM", "dumb")
        with pytest.raises(SystemExit) as end:
            cli.main()
        told = capsys.readouterr()
        return end.value.code or 0, told.out, told.err

    return run


# A shell that starts pytest in the background has SIGINT ignored, and all that tests start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
