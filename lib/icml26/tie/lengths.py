"""Output lengths that real models produced, to schedule by.

`vicuna` reads 85,482 lengths with the class that SSJF's BERT predicted for each (Qiu et al., arXiv 2404.08509: one
generation a prompt, a real baseline of TIE, Zheng et al., arXiv 2604.00499). `smollm2` reads the committed lengths of a
hundred generations for each of some prompts, which the claims about one prompt's lengths need. How those were made is
`icml26.tie.smollm2`'s business, lengths of a model trained here are `icml26.tie.docstring_lm`'s.
"""

import json
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from icml26 import data
from icml26.errors import InputError
from icml26.tie.checks import checked_cap, checked_lengths

__all__ = ["RepeatedLengths", "VicunaLengths", "smollm2", "vicuna"]

VICUNA = "vicuna-lengths"  # its name in the data registry
SMOLLM2 = Path(__file__).with_name("lengths_smollm2.json")


class VicunaLengths(NamedTuple):
    """Lengths of vicuna-13b's answers to prompts of LMSYS-Chat-1M.

    Attributes
    ----------
    length : int array, shape (requests,)
        Output tokens, 2 to 511: longer answers are not in the file.
    predicted : int array, shape (requests,)
        Class that a BERT predicted from the prompt, 0 to 4; larger is longer.
    """

    length: Int64[np.ndarray, " requests"]
    predicted: Int64[np.ndarray, " requests"]


class RepeatedLengths(NamedTuple):
    """Lengths of several generations of each prompt.

    Attributes
    ----------
    prompts : tuple of str
        What was asked.
    sources : tuple of str
        Where each prompt comes from.
    lengths : int array, shape (prompts, samples)
        Output tokens, the end token included.
    cap : int
        Most output tokens.
    """

    prompts: tuple[str, ...]
    sources: tuple[str, ...]
    lengths: Int64[np.ndarray, "prompts samples"]
    cap: int

    @property
    def capped(self) -> Bool[np.ndarray, "prompts samples"]:
        """Which lengths are censored: those that reach the cap."""
        return self.lengths == self.cap


def vicuna() -> VicunaLengths:
    """Read SSJF's lengths and predictions, in the order of the file.

    Returns
    -------
    VicunaLengths
        85,482 requests; Kendall's tau of class and length is 0.63.

    Raises
    ------
    MissingData
        If the file is not on this machine; the message names both ways to have it.

    Examples
    --------
    >>> vicuna().length[:4]  # doctest: +SKIP
    array([40, 72, 23, 50])
    """
    columns = ["output_token_length", "predicted_length"]
    with data.path(VICUNA).open(encoding="utf-8") as file:
        header = file.readline().strip().split(",")
        table = np.loadtxt(file, delimiter=",", dtype=np.int64, usecols=[header.index(column) for column in columns])
    return VicunaLengths(*np.ascontiguousarray(table.T))


def smollm2(path: str | PathLike[str] = SMOLLM2) -> RepeatedLengths:
    """Read lengths of SmolLM2's answers as `icml26.tie.smollm2` writes them.

    Parameters
    ----------
    path : path-like
        The committed file unless given.

    Returns
    -------
    RepeatedLengths
        One row of lengths per prompt.

    Raises
    ------
    InputError
        If the file cannot be read, holds something else, or does not fit together.

    Examples
    --------
    >>> smollm2("lengths.txt")
    Traceback (most recent call last):
        ...
    icml26.errors.InputError: lengths.txt cannot be read (No such file or directory); give a file of icml26.tie.smollm2
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        prompts, sources = ([prompt[key] for prompt in content["prompts"]] for key in ("text", "source"))
        lengths, cap = np.array(content["lengths"]), content["cap"]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give a file of icml26.tie.smollm2") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a file of icml26.tie.smollm2, or is damaged; copy it again") from error
    lengths = checked_lengths(lengths, int(checked_cap(cap, whole=True)))
    if len(prompts) != len(lengths):
        raise InputError(f"{path} holds {len(prompts)} prompts and {len(lengths)} rows of lengths; copy it again")
    return RepeatedLengths(tuple(prompts), tuple(sources), lengths.astype(np.int64), cap)
