"""Zero-shot accuracy and evaluation texts at the papers' scale: lm-eval's tasks, data sets of the hub.

`zero_shot` gives each item of a task right or wrong, so that intervals can be bootstrapped over items, through the
wrapper that lm-eval (EleutherAI's Language Model Evaluation Harness) has for models of `transformers`; `dataset_text`
reads a text such as WikiText-2's, `dataset_prompts` what users ask, `dataset_questions` questions with their answers.
None downloads: `get` does, once, before anything timed. The packages come with the extra `paper`; importing this module
imports none of them. Loading models is left to `icml26.models`, losses on a text to the chapters' modules, intervals to
`icml26.stats`.
"""

import copy
import functools
import importlib.util
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml
from jaxtyping import Int64

from icml26.errors import InputError, MissingData, nearest

__all__ = ["WIKITEXT", "dataset_prompts", "dataset_questions", "dataset_text", "get", "zero_shot"]

WIKITEXT = "Salesforce/wikitext:wikitext-2-raw-v1"
_PROMPTS = ("conversation", "prompt", "instruction", "question", "text")
_QUESTIONS = ("problem", "question", "prompt")
_HUB_TEXT = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?::(\w[\w.-]*))?")


def zero_shot(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[str],
    *,
    limit: int | None = None,
    batch_size: int = 8,
    seed: int = 0,
) -> dict[str, Int64[np.ndarray, " items"]]:
    """Ask a language model multiple-choice questions without examples, and mark each answer.

    An answer is the choice to which the model gives the greatest likelihood, as lm-eval's metric ``acc`` has it.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model, on its device; put into evaluation mode.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer; left as it is.
    tasks : sequence of str
        Names of lm-eval's tasks (``arc_easy``, ``arc_challenge``, ``hellaswag``, ``winogrande``, ``boolq``), or paths
        of task files in lm-eval's YAML format.
    limit : int, optional
        The first so many items of each task; all of them by default.
    batch_size : int
        Sequences per forward pass.
    seed : int
        Of what a task samples; the tasks named above sample nothing.

    Returns
    -------
    dict of str to int64 array, items
        For each task, by the given name or path and in the given order, 1 where an item is answered rightly, else 0.

    Raises
    ------
    InputError
        If an argument is wrong, a task is unknown, a group, or not multiple choice, or lm-eval is not installed.
    MissingData
        If a task's data set is not on this machine; the message says how to have it.

    Examples
    --------
    >>> from icml26 import models
    >>> zero_shot(*models.load_lm("tiny-random-llama"), ["boolq"], limit=4)["boolq"].shape  # doctest: +SKIP
    (4,)
    """
    if isinstance(tasks, str) or not tasks or len(set(tasks)) < len(tasks):
        raise InputError(f"tasks={tasks!r}: give a list of different names or task files, such as ['arc_easy']")
    for name, value in (("limit", 1 if limit is None else limit), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}={value!r} must be a positive integer")
    _require("lm_eval")
    with _quiet(), _offline():
        from lm_eval.evaluator import evaluate
        from lm_eval.models.huggingface import HFLM

        loaded = {task: _load(task) for task in tasks}
        for task in loaded.values():
            task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=seed)
        # The wrapper gives a tokenizer without a padding token one.
        wrapped = HFLM(pretrained=model, tokenizer=copy.deepcopy(tokenizer), batch_size=batch_size, backend="causal")
        samples = evaluate(wrapped, {"tasks": loaded}, limit=limit, bootstrap_iters=0)["samples"]
    marks = {task: sorted((sample["doc_id"], sample["acc"]) for sample in samples[task]) for task in tasks}
    return {task: np.array([mark for _, mark in items], dtype=np.int64) for task, items in marks.items()}


def dataset_text(name: str) -> str:
    """Join the test texts of a data set, as papers do that report perplexity on WikiText-2.

    Parameters
    ----------
    name : str
        ``owner/name`` or ``owner/name:configuration`` of the hub (`WIKITEXT` is WikiText-2, raw), or a folder that
        ``save_to_disk`` of `datasets` has written. Read is the column ``text``, of the split ``test`` if there are
        splits.

    Returns
    -------
    str
        The rows, in order, two line breaks between them.

    Raises
    ------
    InputError
        If the name is neither, there is no such split or column, or `datasets` is not installed.
    MissingData
        If the data set is not on this machine; the message says how to have it.

    Examples
    --------
    >>> dataset_text(WIKITEXT).split()[:3]  # doctest: +SKIP
    ['=', 'Robert', 'Boulter']
    """
    found = _rows(name, "test")
    if "text" not in found.column_names:
        raise InputError(f"data set {name} has no column `text`, only {', '.join(found.column_names)}")
    return "\n\n".join(found["text"])


def dataset_prompts(name: str) -> list[str]:
    """Return what a user asks first in each row of a data set of chats, instructions or questions.

    Parameters
    ----------
    name : str
        As in `dataset_text`. Read is the first of the columns ``conversation`` (a list of turns with ``content``, as in
        LMSYS-Chat-1M), ``prompt``, ``instruction``, ``question`` and ``text`` that there is, of the split ``train`` if
        there are splits.

    Returns
    -------
    list of str
        Prompts without blank space around them, those that are empty left out, in the data set's order.

    Raises
    ------
    InputError
        If the name is neither, there is no such split or column, no prompt, or `datasets` is not installed.
    MissingData
        If the data set is not on this machine; the message says how to have it.

    Examples
    --------
    >>> asked = dataset_prompts("lmsys/lmsys-chat-1m")  # doctest: +SKIP
    """
    found = _rows(name, "train")
    column = next((column for column in _PROMPTS if column in found.column_names), None)
    if column is None:
        raise InputError(f"data set {name} has none of the columns {', '.join(_PROMPTS)}, only {found.column_names}")
    first = (row[0]["content"] if column == "conversation" and row else row for row in found[column])
    prompts = [text.strip() for text in first if isinstance(text, str) and text.strip()]
    if not prompts:
        raise InputError(f"data set {name} has no prompt in its column {column}")
    return prompts


def dataset_questions(name: str) -> list[tuple[str, str]]:
    """Return the questions of a data set with their right answers.

    Parameters
    ----------
    name : str
        As in `dataset_text`. Read are the first of the columns ``problem``, ``question`` and ``prompt`` that there is,
        and the column ``answer``, of the split ``train`` if there are splits, as MathArena's data sets have them.

    Returns
    -------
    list of (str, str)
        Question and answer without blank space around them, in the data set's order.

    Raises
    ------
    InputError
        If the name is neither, there is no such split or column, no row, or `datasets` is not installed.
    MissingData
        If the data set is not on this machine; the message says how to have it.

    Examples
    --------
    >>> dataset_questions("MathArena/aime_2025")[0][1]  # doctest: +SKIP
    '70'
    """
    found = _rows(name, "train")
    column = next((column for column in _QUESTIONS if column in found.column_names), None)
    if column is None or "answer" not in found.column_names:
        raise InputError(
            f"data set {name} has {', '.join(found.column_names)}; give one with the column `answer` and one of "
            f"{', '.join(_QUESTIONS)}"
        )
    if not len(found):
        raise InputError(f"data set {name} has no row; give one with questions")
    return [(str(row[column]).strip(), str(row["answer"]).strip()) for row in found]


def _rows(name: str, split: str) -> Any:
    folder = Path(name).expanduser()
    is_folder = any((folder / state).is_file() for state in ("dataset_dict.json", "state.json"))
    if not is_folder and not _HUB_TEXT.fullmatch(name):
        raise InputError(
            f"text {name!r} is neither a folder that `save_to_disk` of datasets has written, nor owner/name or "
            f"owner/name:configuration of the hub, such as {WIKITEXT}"
        )
    _require("datasets")
    with _quiet(), _offline():
        import datasets

        found = _folder_text(folder) if is_folder else _hub_text(name)
    if isinstance(found, datasets.DatasetDict):
        if split not in found:
            raise InputError(f"data set {name} has no split `{split}`, only {', '.join(found)}")
        found = found[split]
    return found


def get(name: str, progress: Callable[[str], None] | None = None) -> None:
    """Bring a text or a task's data set into the hub's cache on this machine, so that the others find it.

    Parameters
    ----------
    name : str
        ``owner/name:configuration`` as for `dataset_text`, or a task as for `zero_shot`.
    progress : callable, optional
        Called with one line of text at each step.

    Raises
    ------
    InputError
        If the name is unknown or a package is not installed.
    MissingData
        If the data set cannot be downloaded.

    Examples
    --------
    >>> get("boolq")  # doctest: +SKIP
    """
    say = progress or (lambda line: None)
    is_text = _HUB_TEXT.fullmatch(name) is not None and not Path(name).is_file()
    _require("datasets" if is_text else "lm_eval")
    say(f"{name}: looking for it in the hub's cache and on the hub")
    with _quiet():
        (_hub_text if is_text else _load)(name, download=True)
    say(f"{name}: ready")


def _folder_text(folder: Path) -> Any:
    import datasets

    try:
        return datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise InputError(f"data set {folder} could not be read: {_reason(error)}") from error


def _hub_text(name: str, *, download: bool = False) -> Any:
    import datasets

    repository, configuration = _HUB_TEXT.fullmatch(name).groups()
    try:
        return datasets.load_dataset(repository, configuration)
    except (OSError, ValueError) as error:
        other = "a folder that `save_to_disk` of datasets has written"
        raise _missing(name, error, other, download) from error


@functools.cache
def _manager(named: bool) -> Any:
    """lm-eval's index of tasks; reading all of its files takes seconds, and paths of files do without."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_defaults=named)


def _load(task: str, *, download: bool = False) -> Any:
    is_file = Path(task).suffix in (".yaml", ".yml")
    if is_file and not Path(task).is_file():
        raise InputError(f"task file {task} does not exist")
    manager = _manager(named=not is_file)
    if not is_file and task not in manager.all_subtasks:
        if task in manager.all_tasks:
            raise InputError(f"task {task!r} is a group of lm-eval's tasks; name the tasks themselves")
        raise InputError(f"task {task!r} is not known to lm-eval{nearest(task, manager.all_subtasks)}")
    try:
        [loaded] = manager.load([task])["tasks"].values()
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        if is_file:
            raise InputError(f"task file {task} could not be loaded: {_reason(error)}") from error
        raise _missing(task, error, "a task file with data of your own", download) from error
    if loaded.OUTPUT_TYPE != "multiple_choice" or "acc" not in loaded.aggregation():
        raise InputError(f"task {task!r} does not measure the accuracy (acc) of multiple choice; name one that does")
    return loaded


def _missing(name: str, error: Exception, other: str, download: bool) -> MissingData:
    if download:
        return MissingData(f"data of {name} could not be downloaded: {_reason(error)}")
    return MissingData(
        f"data of {name} is not on this machine ({_reason(error)}); with a network, run once "
        f"`python -c \"from icml26 import evaluation; evaluation.get('{name}')\"`, or name {other}"
    )


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        name = package.replace("_", "-")
        raise InputError(f"{name} is not installed; install the paper profile's packages: pip install 'icml26[paper]'")


@contextmanager
def _offline() -> Iterator[None]:
    """Refuse requests to the hub, as the variables HF_HUB_OFFLINE and HF_DATASETS_OFFLINE do at the start."""
    import datasets
    import huggingface_hub

    with (
        mock.patch.object(datasets.config, "HF_HUB_OFFLINE", True),
        mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True),
    ):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' progress bars, advice and logs out of a chapter's output."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for redirect in (redirect_stdout, redirect_stderr):
            stack.enter_context(redirect(io.StringIO()))
        for logger in map(logging.getLogger, ("lm_eval", "datasets")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield
