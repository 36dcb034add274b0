"""The seven numbers of a noisy quadratic system, checked, and their JSON form.

The paper is Li and Maddison (ICML 2026, arXiv 2605.09154); the JSON keys are those of its official package. What loss
the numbers imply is `icml26.nqs.law`'s business, finding them `icml26.nqs.fitting`'s.
"""

import json
import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np

from icml26.errors import InputError
from icml26.paths import write_atomic

__all__ = ["RELEASED", "STEP", "Theta"]

STEP = 1.999
"""The constant step gamma of the official package. It is redundant: only gamma Q and gamma R matter."""


@dataclass(frozen=True)
class Theta:
    """Power-law spectra of a noisy quadratic system (assumptions A1 to A3), for directions n = 1, 2, ...

    Parameters
    ----------
    p, P
        Initial risk of direction n is P / n^p, in nats per token; p > 1, P > 0.
    q, Q
        Curvature of direction n is Q / n^q; q > 0 and 0 < Q < 2 / `STEP` = 1.0005, above which direction 1 diverges.
    e_irr
        Irreducible loss in nats per token, at least 0.
    R, r
        Variance of the gradient noise in direction n at batch size B is R / (n^r B); R > 0, r any number.

    Raises
    ------
    InputError
        If a number is out of its range or not finite.

    Examples
    --------
    >>> Theta(p=1.5, q=1.0, P=4.0, Q=0.8, e_irr=1.2, R=3.0, r=1.0).p
    1.5
    """

    p: float
    q: float
    P: float
    Q: float
    e_irr: float
    R: float
    r: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            try:
                value = float(value) if number else value
            except OverflowError:  # an integer of some 400 digits
                value = math.inf
            if not number or not math.isfinite(value):
                raise InputError(f"{field.name}={value!r} must be a finite number")
            object.__setattr__(self, field.name, value)
        if self.p <= 1:
            raise InputError(f"p={self.p} must be above 1, or the risk of all directions together is infinite")
        for name in ("q", "P", "Q", "R"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name}={getattr(self, name)} must be above 0")
        if self.Q * STEP >= 2:
            raise InputError(f"Q={self.Q} must be below {2 / STEP:.5f}, or the first direction diverges")
        if self.e_irr < 0:
            raise InputError(f"e_irr={self.e_irr} must be at least 0: it is a loss in nats per token")

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write the numbers as JSON with the official package's keys.

        Parameters
        ----------
        path
            File to write; nothing is written without one.

        Returns
        -------
        str
            The JSON text.

        Raises
        ------
        InputError
            If the file cannot be written.

        Examples
        --------
        >>> Theta.from_json(RELEASED.to_json()) == RELEASED
        True
        """
        text = json.dumps(asdict(self), indent=2) + "\n"
        if path is not None:
            try:
                write_atomic(path, text)
            except (OSError, ValueError, TypeError) as error:
                raise InputError(f"path={path!r} cannot be written ({error}); name a file") from None
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Self:
        """Read the numbers from a JSON file or from JSON text.

        Parameters
        ----------
        source
            Path of a file, or the text itself (it starts with a brace, a bracket or a quotation mark).

        Returns
        -------
        Theta
            The numbers; other keys of the file are an error.

        Raises
        ------
        InputError
            If the source is neither, the file cannot be read, is not JSON, or its keys are not those of the official
            package.

        Examples
        --------
        >>> Theta.from_json('{"p": 1.5, "q": 1, "P": 4, "Q": 0.8, "e_irr": 1.2, "R": 3, "r": 1}').P
        4.0
        """
        if not isinstance(source, str | os.PathLike):
            raise InputError(f"source={source!r} must be the path of a JSON file, or JSON text")
        text = source if isinstance(source, str) and source.lstrip().startswith(("{", "[", '"')) else _read(source)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:  # no JSON, or a number or nesting beyond Python's limits
            raise InputError(f"the parameters are not JSON ({error}); write them with Theta.to_json") from None
        names = [field.name for field in fields(cls)]
        if not isinstance(found, dict) or set(found) != set(names):
            keys = sorted(found) if isinstance(found, dict) else type(found).__name__
            raise InputError(f"the parameters have keys {keys}; they must be exactly {names}")
        return cls(**found)


def _read(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # the latter for bytes that are not UTF-8 and for a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{str(path)!r}: {reason}; name a JSON file written by Theta.to_json") from None


RELEASED = Theta(p=1.11313, q=0.58424, P=3.39269, Q=0.88533, e_irr=0.35450, R=8.41003, r=2.58293)
"""The fit that the official package ships, to 64 training runs of Pythia models on OpenWebText2."""
