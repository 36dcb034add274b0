"""Traces of SmolLM2 on look-ups, with confidences: the committed sample, how it was drawn, and reading it.

A question lists the codes of five people and asks for one of them; two questions with a written-out solution, which
reads the code twice, stand before it. SmolLM2-135M-Instruct answers each many times, at the temperature and nucleus
with which Confidence Dynamic Gain voting is run for most models (Wang et al., arXiv 2605.25244, Section 4), and the
confidence of every token is kept, from the whole distribution at temperature 1. ``python -m icml26.cdg.smollm2`` draws
the sample anew (a quarter of an hour on one idle thread; it resumes). The setting was chosen so that about half of the
answers are right; harder look-ups and sums were tried before. Votes are `icml26.cdg.voting`'s.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64

from icml26 import checkpoints, generation, models, paths
from icml26.cdg.confidence import measure
from icml26.cdg.traces import Trace
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["FILE", "RECIPE", "Lookup", "Recorded", "draw", "load", "lookups", "save"]

FILE = Path(__file__).with_name("traces_smollm2.npz")

RECIPE: Mapping[str, Any] = {
    "model": "smollm2-135m",
    "questions": 48,
    "traces": 32,
    "people": 5,
    "examples": 2,
    "temperature": 0.6,
    "top_p": 0.95,
    "max_new_tokens": 64,
    "log_probabilities": 20,
    "seed": 1,
}

_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry")
_DIGITS = 4
_ANSWER = re.compile(r"(?i)\bthe answer is (\w+)")


class Lookup(NamedTuple):
    """A question about facts that stand in the prompt.

    Attributes
    ----------
    prompt : str
        Examples, facts and question.
    answer : str
        The code that is asked for, four digits.
    """

    prompt: str
    answer: str


class Recorded(NamedTuple):
    """Traces of one model on several questions.

    Attributes
    ----------
    questions : list of list of Trace
        One list a question.
    answers : list of str
        The right answer of each question.
    write_up : list of int arrays, each of shape (traces,)
        The token at which the sentence with the answer begins; the trace's length where there is none.
    recipe : dict
        How they were drawn.
    """

    questions: list[list[Trace]]
    answers: list[str]
    write_up: list[Int64[np.ndarray, " traces"]]
    recipe: dict


def lookups(recipe: Mapping[str, Any] = RECIPE) -> list[Lookup]:
    """Make the questions of a recipe.

    Parameters
    ----------
    recipe : mapping
        With ``questions``, ``people`` (at most 8), ``examples`` and ``seed``.

    Returns
    -------
    list of Lookup
        Facts, order and what is asked are drawn uniformly; no question depends on how many are asked for.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> print(lookups()[0].prompt.splitlines()[-2])
    Question: What is Ben's code?
    """
    count = whole("questions", recipe["questions"], 1)
    people = whole("people", recipe["people"], 2, len(_NAMES))
    examples = whole("examples", recipe["examples"], 0)
    rng = np.random.default_rng(recipe["seed"])
    shown = "".join("".join(_lookup(rng, people)[:2]) + "\n" for _ in range(examples))
    drawn = (_lookup(rng, people) for _ in range(count))
    return [Lookup(shown + question, answer) for question, _, answer in drawn]


def draw(
    model: Any,
    tokenizer: Any,
    lookup: Lookup,
    index: int,
    recipe: Mapping[str, Any] = RECIPE,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Trace], Int64[np.ndarray, " traces"]]:
    """Answer one question many times.

    Parameters
    ----------
    model, tokenizer
        As `icml26.models.load_lm` returns them.
    lookup : Lookup
        The question.
    index : int
        Its number, so that its random numbers are its own.
    recipe : mapping
        With ``traces``, ``max_new_tokens``, ``temperature``, ``top_p``, ``log_probabilities`` and ``seed``.
    progress : callable, optional
        As in `icml26.generation.sample`.

    Returns
    -------
    traces : list of Trace
    write_up : int array, shape (traces,)
        As in `Recorded`.
    """
    from transformers import TemperatureLogitsWarper, TopPLogitsWarper

    (end,) = tokenizer.encode("\n", add_special_tokens=False)
    drawn = generation.sample(
        model,
        [tokenizer(lookup.prompt, return_tensors="pt").input_ids[0]],
        samples=recipe["traces"],
        max_new_tokens=recipe["max_new_tokens"],
        end=end,
        generator=torch.Generator().manual_seed(1_000_003 * recipe["seed"] + index),
        processors=[TemperatureLogitsWarper(recipe["temperature"]), TopPLogitsWarper(recipe["top_p"])],
        measure=measure(recipe["log_probabilities"]),
        progress=progress,
    )
    traces, starts = [], []
    for tokens, length, values in zip(drawn.tokens[0], drawn.lengths[0].tolist(), drawn.measured[0], strict=True):
        answer, start = _answer(tokenizer, tokens[:length].tolist())
        kept = values[:length].double().numpy()
        traces.append(Trace(answer, kept[:, 0], float(kept[:, 1].mean())))
        starts.append(start)
    return traces, np.array(starts)


def save(recorded: Recorded, path: str | PathLike[str] = FILE) -> None:
    """Write traces, confidences as float16, atomically.

    Parameters
    ----------
    recorded : Recorded
        As many traces for every question.
    path : path-like
        An ``.npz`` file.

    Raises
    ------
    OSError
        If the file cannot be written; one already there is then untouched.
    """
    traces = [trace for question in recorded.questions for trace in question]
    arrays = {
        "recipe": np.array(json.dumps(recorded.recipe, sort_keys=True)),
        "sha256": np.array(checkpoints.digest(recorded.recipe)),
        "answers": np.array(recorded.answers),
        "given": np.array([trace.answer or "" for trace in traces]),
        "lengths": np.array([len(trace.confidences) for trace in traces], dtype=np.int16),
        "write_up": np.concatenate(recorded.write_up).astype(np.int16),
        "certainty": np.array([trace.certainty for trace in traces], dtype=np.float32),
        "confidences": np.concatenate([trace.confidences for trace in traces]).astype(np.float16),
    }
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    paths.write_atomic(path, content.getvalue())


def load(path: str | PathLike[str] = FILE) -> Recorded:
    """Read what `save` wrote.

    Parameters
    ----------
    path : path-like
        The committed file unless given.

    Returns
    -------
    Recorded

    Raises
    ------
    InputError
        If the file cannot be read, holds something else, or does not fit together.

    Examples
    --------
    >>> recorded = load()
    >>> len(recorded.questions) == len(recorded.answers) == recorded.recipe["questions"]
    True
    """
    try:
        with np.load(path) as file:
            held = {name: file[name] for name in file.files}
        recipe = json.loads(str(held["recipe"]))
        sound = str(held["sha256"]) == checkpoints.digest(recipe)
        lengths = held["lengths"].astype(int)
        sound &= lengths.sum() == len(held["confidences"]) and len(lengths) == recipe["questions"] * recipe["traces"]
        parts = np.split(held["confidences"].astype(float), np.cumsum(lengths)[:-1])
        rows = zip(held["given"].tolist(), parts, held["certainty"].tolist(), strict=True)
        traces = [Trace(given or None, part, certainty) for given, part, certainty in rows]
        starts = held["write_up"].astype(np.int64).reshape(recipe["questions"], recipe["traces"])
        answers = held["answers"].tolist()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give a file of icml26.cdg.smollm2") from error
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is not a file of icml26.cdg.smollm2, or is damaged; copy it again") from error
    if not sound or len(answers) != recipe["questions"]:
        raise InputError(f"{path} does not fit its own recipe; copy it again, or draw it anew")
    each = recipe["traces"]
    questions = [traces[first : first + each] for first in range(0, len(traces), each)]
    return Recorded(questions, answers, list(starts), recipe)


def _lookup(rng: np.random.Generator, people: int) -> tuple[str, str, str]:
    names = [str(name) for name in rng.permutation(_NAMES)[:people]]
    codes = [str(code) for code in rng.integers(10 ** (_DIGITS - 1), 10**_DIGITS, people)]
    facts = " ".join(f"{name}'s code is {code}." for name, code in zip(names, codes, strict=True))
    asked = int(rng.integers(people))
    name, code = names[asked], codes[asked]
    question = f"Codes: {facts}\nQuestion: What is {name}'s code?\nSolution:"
    steps = f" {name}'s code is {code}. Read once more, {name}'s code is {code}. The answer is {code}.\n"
    return question, steps, code


def _answer(tokenizer: Any, tokens: list[int]) -> tuple[str | None, int]:
    """The answer of the last sentence that gives one, and the token at which this sentence begins."""
    text = tokenizer.decode(tokens)
    found = list(_ANSWER.finditer(text))
    if not found:
        return None, len(tokens)
    before = found[-1].start()
    start = next(n for n in range(len(tokens) + 1) if len(tokenizer.decode(tokens[: n + 1])) > before)
    return found[-1].group(1).lower(), start


def _main() -> None:
    from tqdm.auto import tqdm

    folder = paths.cache() / "cdg" / checkpoints.digest(RECIPE)
    folder.mkdir(parents=True, exist_ok=True)
    model, tokenizer = models.load_lm(RECIPE["model"])
    asked, parts = lookups(), []
    for index, lookup in enumerate(tqdm(asked, desc="questions")):
        part = folder / f"{index}.npz"
        if not part.is_file():
            traces, starts = draw(model, tokenizer, lookup, index)
            save(Recorded([traces], [lookup.answer], [starts], {**RECIPE, "questions": 1}), part)
        parts.append(load(part))
    save(
        Recorded(
            [part.questions[0] for part in parts],
            [part.answers[0] for part in parts],
            [part.write_up[0] for part in parts],
            dict(RECIPE),
        )
    )


if __name__ == "__main__":
    _main()
