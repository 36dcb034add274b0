"""Traces of a model of one's own on questions whose answers it puts into a box: the path of the profile `paper`.

CDG (Wang et al., arXiv 2605.25244) samples DeepSeek-R1-0528-Qwen3-8B at temperature 0.6 and top-p 0.95, and three other
models, on AIME, BRUMO and HMMT. `from_model` does that with `icml26.generation.sample`, a question at a time, and keeps
answers and confidences only. Answers are read as DeepConf's code does (Fu et al., arXiv 2508.15260), and compared by
``math-verify`` where it is installed. What a `Condition` is, `icml26.cdg.conditions` tells.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from icml26 import evaluation, generation, models, tasks
from icml26.cdg.conditions import Condition, calibration_count, questions_of
from icml26.cdg.confidence import measure
from icml26.cdg.question import Question, Trace
from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["Sampling", "boxed", "from_model", "same_answer"]

# Narrower than float(), which takes "1_0", "inf" and digits of other scripts, and rounds.
_NUMBER = re.compile(r"[+-]?([0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?|[0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_WRITE_UP = "</think>"
_INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Sampling:
    """How `from_model` samples; the defaults are the paper's for DeepSeek-R1-0528-Qwen3-8B.

    Parameters
    ----------
    temperature, top_p, top_k
        As in ``transformers``; ``top_k=0`` leaves it off.
    max_new_tokens
        Longest trace; one that has not ended by then counts with the answer that it has, if any.
    rows
        Traces sampled together.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> Sampling(top_k=40).top_p
    0.95
    """

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 0
    max_new_tokens: int = 64_000
    rows: int = 64

    def __post_init__(self) -> None:
        real("temperature", self.temperature, above=0)
        real("top_p", self.top_p, above=0, high=1)
        whole("top_k", self.top_k, 0)
        whole("max_new_tokens", self.max_new_tokens, 1)
        whole("rows", self.rows, 1)

    def processors(self) -> list[Callable]:
        """The warpers of ``transformers``, temperature first."""
        from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        warpers = [TemperatureLogitsWarper(float(self.temperature))]
        if self.top_k:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            warpers.append(TopPLogitsWarper(self.top_p))
        return warpers


def from_model(
    name: str,
    questions: str,
    traces: int,
    *,
    seed: int,
    calibration_share: float = 0.3,
    limit: int | None = None,
    top: int = 20,
    sampling: Sampling = Sampling(),
    instruction: str = _INSTRUCTION,
    progress: Callable[[int, int], None] | None = None,
) -> Condition:
    """Sample a causal language model on questions whose answers it puts into a box.

    Parameters
    ----------
    name : str
        A model as `icml26.models.load_lm` takes it.
    questions : str
        "gsm8k", or a data set as `icml26.evaluation.dataset_questions` takes it.
    traces : int
        Of each question.
    seed : int
        Of the order of the questions and of the draws.
    calibration_share : float
        Share of the questions that choose settings.
    limit : int, optional
        So many questions; all of them by default.
    top : int
        Log-probabilities in a token's confidence.
    sampling : Sampling
        Temperature, truncation and length.
    instruction : str
        Follows each question.
    progress : callable, optional
        Called with the questions done and their number.

    Returns
    -------
    Condition
        The answer's mark is the last box; the write-up begins after ``</think>``, or at the box where there is none.

    Raises
    ------
    InputError
        If a number is out of range, or the tokenizer has no end token.
    MissingData, MissingModel
        If questions or model are not on this machine.

    Examples
    --------
    >>> from_model("tiny-random-llama", "gsm8k", 2, seed=0, limit=3,
    ...            sampling=Sampling(max_new_tokens=20)).correct.shape  # doctest: +SKIP
    (3, 2)
    """
    whole("traces", traces, 1)
    model, tokenizer = models.load_lm(name)
    if tokenizer.eos_token_id is None:
        raise InputError(f"the tokenizer of {name} has no end token, so that no trace would end; set its eos_token")
    if questions == "gsm8k":
        asked = [(problem.question, problem.answer) for problem in tasks.gsm8k_problems("held-out")]
    else:
        asked = evaluation.dataset_questions(questions)
    # Sets such as AIME are sorted by difficulty, and the first questions choose settings.
    shuffled = np.random.default_rng(whole("seed", seed, 0)).permutation(len(asked))
    asked = [asked[place] for place in shuffled[: None if limit is None else whole("limit", limit, 2)]]
    generator = torch.Generator().manual_seed(seed)
    found: list[Question] = []
    marks: list[tuple[int, int]] = []
    for number, (text, _) in enumerate(asked, 1):
        question: list[Trace] = []
        for start in range(0, traces, sampling.rows):
            drawn = generation.sample(
                model,
                [_prompt(tokenizer, f"{text}\n\n{instruction}")],
                samples=min(sampling.rows, traces - start),
                max_new_tokens=sampling.max_new_tokens,
                end=tokenizer.eos_token_id,
                generator=generator,
                processors=sampling.processors(),
                measure=measure(top),
            )
            rows = [row[:length] for row, length in zip(drawn.tokens[0], drawn.lengths[0].tolist(), strict=True)]
            answers = [boxed(tokenizer.decode(row, skip_special_tokens=False)) for row in rows]
            question += questions_of(np.array([answers], dtype=object), drawn)[0]
            for row in rows:
                box = _tokens_before(tokenizer, row, "boxed")
                marks.append((box, min(box, _tokens_before(tokenizer, row, _WRITE_UP))))
        found.append(Question.of(question))
        if progress is not None:
            progress(number, len(asked))
    answer_at, writeup_at = np.reshape(marks, (len(asked), traces, 2)).transpose(2, 0, 1)
    truths = tuple(truth for _, truth in asked)
    calibration = calibration_count(len(asked), calibration_share)
    return Condition(name, found, truths, answer_at, writeup_at, calibration, top, equal=same_answer)


def boxed(text: str) -> str | None:
    """Read the answer in the last box of a text, as DeepConf's code does (Fu et al., arXiv 2508.15260).

    The last occurrence of the word "boxed" counts, whatever stands before it: of a text that speaks of a box behind its
    answer, what follows that word is read.

    Parameters
    ----------
    text : str
        What the model wrote.

    Returns
    -------
    str or None
        What stands between the braces that follow the last "boxed", up to the text's end if they are not closed, or,
        without braces, up to the next "$"; None where there is no box or nothing in it.

    Raises
    ------
    InputError
        If the text is none.

    Examples
    --------
    >>> boxed(r"so $\\boxed{\\frac{1}{2}}$."), boxed("nothing"), boxed(r"\\boxed 5$ is it")
    ('\\\\frac{1}{2}', None, '5')
    >>> boxed(r"\\boxed{7}, the boxed number")
    'number'
    """
    _check_text("text", text)
    _, box, rest = text.rpartition("boxed")
    if not box or not rest:
        return None
    if rest[0] != "{":
        return rest.split("$")[0].strip() or None
    depth = 0
    for place, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:place].strip() or None
    return rest[1:].strip() or None


def same_answer(answer: str, truth: str) -> bool:
    r"""Compare a winner with the right answer.

    The package ``math-verify`` decides where it is installed (extra ``paper``); without it, equal strings do, and equal
    numbers, compared exactly: decimals with digits 0 to 9, a point, commas between groups of three, and an exponent of
    at most three digits. Votes are grouped by string whatever this says, as in the released code.

    Parameters
    ----------
    answer, truth : str
        What the model answered, and what is right.

    Returns
    -------
    bool

    Raises
    ------
    InputError
        If one of them is no text.

    Examples
    --------
    >>> same_answer("\\text{b}", "B"), same_answer("070", "70"), same_answer("1,000", "1000.0")
    (True, True, True)
    >>> same_answer("1/2", "2"), same_answer("1,5", "15"), same_answer("1_0", "10")
    (False, False, False)
    """
    _check_text("answer", answer)
    _check_text("truth", truth)
    answer, truth = (re.sub(r"\\text\{([^{}]*)\}", r"\1", text).strip() for text in (answer, truth))
    if answer == truth or (len(answer) == 1 and answer.isalpha() and answer.casefold() == truth.casefold()):
        return True
    if _NUMBER.fullmatch(answer) and _NUMBER.fullmatch(truth):
        return Decimal(answer.replace(",", "")) == Decimal(truth.replace(",", ""))
    try:
        from math_verify import parse, verify
    except ModuleNotFoundError:
        return False
    return bool(verify(parse(f"${truth}$"), parse(f"${answer}$")))


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise InputError(f"{name}={text!r} must be text, such as '7'")


def _tokens_before(tokenizer: Any, tokens: Int64[Tensor, " tokens"], word: str) -> int:
    """Tokens before the one in which the last occurrence of a word begins; all of them where it does not occur."""
    text = tokenizer.decode(tokens, skip_special_tokens=False)
    place = text.rfind(word)
    if place < 0:
        return len(tokens)
    low, high = 0, len(tokens) - 1  # the text of the first `low` tokens ends before the place, or at it
    while low < high:
        middle = (low + high + 1) // 2
        if len(tokenizer.decode(tokens[:middle], skip_special_tokens=False)) <= place:
            low = middle
        else:
            high = middle - 1
    return low


def _prompt(tokenizer: Any, text: str) -> Int64[Tensor, " tokens"]:
    if tokenizer.chat_template is None:
        return torch.tensor(tokenizer(text + "\n")["input_ids"])
    messages = [{"role": "user", "content": text}]
    return torch.tensor(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    )
