"""The errors that users meet: each message is one line that says what is wrong and what to do.

The command line turns `InputError` into exit code 2 and every other `Icml26Error` into exit code 1. This module knows
no other module of the package; how an error is shown is `icml26.cli`'s business.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["ChapterError", "Icml26Error", "InputError", "MissingData", "MissingModel", "ProjectNotFound", "nearest"]


class Icml26Error(Exception):
    """Base of all errors that this package raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong and what to do; line breaks are folded into spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(line.strip() for line in message.splitlines()))


class InputError(Icml26Error, ValueError):
    """An argument, a parameter or a file that the user gave is wrong."""


class ChapterError(Icml26Error):
    """A chapter's execution failed."""


class ProjectNotFound(InputError):
    """The command needs the book's files and is not run inside a clone of it."""


class MissingData(InputError):
    """A data file has not been prepared on this machine."""


class MissingModel(InputError):
    """A model's weights have not been prepared on this machine."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that the user probably meant.

    Parameters
    ----------
    name : str
        The unknown name.
    known : iterable of str
        The names that exist.

    Returns
    -------
    str
        ``"; did you mean 'x'?"`` to append to an error message, or ``""`` when nothing is close.

    Examples
    --------
    >>> nearest("treshold", ["blocks", "threshold"])
    "; did you mean 'threshold'?"
    >>> nearest("q2", ["Q1", "Q2"])
    "; did you mean 'Q2'?"
    >>> nearest("colour", ["blocks"])
    ''
    """
    folded = {candidate.casefold(): candidate for candidate in known}
    close = get_close_matches(str(name).casefold(), folded, n=1)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""
