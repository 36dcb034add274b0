"""Short questions with one right text, so that a pre-trained model's accuracy under a sampler is exact.

A second witness for the comparison of Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346) with other samplers:
the answer takes several tokens, and one teacher-forced pass gives the next-token distributions along it. The product of
a sampler's processed probabilities is the probability that it answers rightly, for all samplers and temperatures at
once and without any draw; `icml26.top_w.accuracy.run_cells` does that for the questions made here. They ask for a code
out of a short list: the prompt determines the answer, and greedy choice of a model of 135 M parameters finds it about
two times in three (a sum of two small numbers after examples, one in three).
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from icml26.checks import whole
from icml26.errors import InputError
from icml26.top_w.tasks import Task

__all__ = ["questions"]

# Each is one token of SmolLM2's, so that prompts are equally long and share a batch.
_NAMES = (
    "Anna",
    "Ben",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Jack",
    "Kate",
    "Leo",
    "Mary",
    "Paul",
    "Rose",
    "Sam",
)


def questions(tokenizer: Any, n: int, *, entries: int = 3, digits: int = 3, asked: int = 1, seed: int) -> Task:
    """Ask for the code of one of several names.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        The model's.
    n : int
        Problems.
    entries, digits : int
        Names in the list, at most 14, and digits of each code.
    asked : int
        Names whose codes are repeated before the one that is asked for, fewer than `entries`.
    seed : int
        Of names, codes and questions; use different ones for problems to tune on and problems to measure on.

    Returns
    -------
    Task
        With the one right continuation of each problem: a blank, the code, a full stop.

    Raises
    ------
    InputError
        If a number is out of range, or the tokenizer joins the end of a prompt and its answer.

    Examples
    --------
    >>> from icml26 import models
    >>> _, tokenizer = models.load_lm("tiny-random-llama")
    >>> task = questions(tokenizer, 1, entries=2, digits=3, asked=0, seed=0)
    >>> tokenizer.decode(task.prompts[0]), tokenizer.decode(task.solutions[0][0])
    ("List: Paul's code is 230. Kate's code is 001. Again: Kate's code is", ' 001.')
    """
    whole("entries", entries, 1, len(_NAMES))
    whole("digits", digits, 1)
    whole("asked", asked, 0, entries - 1)
    draw = np.random.default_rng(whole("seed", seed, 0))
    return _task(tokenizer, [_look_up(draw, entries, digits, asked) for _ in range(whole("n", n, 1))])


def _look_up(draw: np.random.Generator, entries: int, digits: int, asked: int) -> tuple[str, str]:
    names = draw.choice(_NAMES, entries, replace=False)
    codes = ["".join(map(str, row)) for row in draw.integers(0, 10, (entries, digits))]
    said = [f" {name}'s code is {code}." for name, code in zip(names, codes, strict=True)]
    *before, last = draw.permutation(entries)[: asked + 1]
    question = f" {names[last]}'s code is"
    return f"List:{''.join(said)} Again:{''.join(said[i] for i in before)}{question}", f" {codes[last]}."


def _task(tokenizer: Any, asked: list[tuple[str, str]]) -> Task:
    prompts = [_ids(tokenizer, prompt, special=True) for prompt, _ in asked]
    answers = [_ids(tokenizer, answer) for _, answer in asked]
    for (prompt, answer), first, second in zip(asked, prompts, answers, strict=True):
        if not torch.equal(_ids(tokenizer, prompt + answer, special=True), torch.cat([first, second])):
            raise InputError(
                f"tokenizer {type(tokenizer).__name__} joins {prompt[-1]!r} and {answer!r}; use another model"
            )

    def check(index: int, tokens: Int64[Tensor, " tokens"]) -> str | None:
        right = asked[index][1]
        return right if tokenizer.decode(tokens[: len(answers[index])]) == right else None

    ends = {int(answer[-1]) for answer in answers}
    end = ends.pop() if len(ends) == 1 else tokenizer.eos_token_id
    return Task(prompts, end, max(map(len, answers)), check, [answer[None] for answer in answers])


def _ids(tokenizer: Any, text: str, *, special: bool = False) -> Int64[Tensor, " tokens"]:
    return torch.tensor(tokenizer.encode(text, add_special_tokens=special))
