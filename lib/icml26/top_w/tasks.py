"""Tasks whose solutions can be checked, in the one form that accuracies are measured on.

Two for Top-W's chapter (Gholami Davoodi et al., arXiv 2602.10346): chained arithmetic whose steps may be written in
several orders, for models trained here, and GSM8K (Cobbe et al., arXiv 2110.14168) with eight examples as chain of
thought, which is the paper's task (`gsm8k_cot` of lm-eval). `icml26.top_w.forced` adds short ones for a pre-trained
model of any size. A task knows prompts and verdicts; accuracies are `icml26.top_w.accuracy`'s business.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import LogitsProcessor

from icml26 import tasks
from icml26.arithmetic import task as arithmetic
from icml26.checks import whole
from icml26.errors import InputError

__all__ = ["Task", "chained_arithmetic", "gsm8k", "gsm8k_answer", "solutions"]

_STOPS = ("Q:", "\n\n")


@dataclass(frozen=True)
class Task:
    """Problems for a language model, and who is right.

    Parameters
    ----------
    prompts : sequence of int64 tensor
        Token ids, one vector a problem.
    end : int
        Token that ends a continuation.
    max_new_tokens : int
        Most tokens of a continuation.
    check : callable
        ``check(index, tokens)`` says which solution of problem ``index`` a continuation is, as anything hashable; None
        if it is none. Its tokens include the end token.
    solutions : sequence of int64 tensor, each of shape (solutions, tokens), optional
        All right continuations of each problem, end token included, where they can be listed.
    processors : sequence of transformers.LogitsProcessor
        Called after a sampler's, to stop a continuation.

    Examples
    --------
    >>> task = chained_arithmetic(arithmetic.Task(branches=2, steps=3), 4, seed=0)
    >>> len(task), task.solutions[0].shape
    (4, torch.Size([20, 43]))
    """

    prompts: Sequence[Int64[Tensor, " tokens"]]
    end: int
    max_new_tokens: int
    check: Callable[[int, Int64[Tensor, " tokens"]], Hashable | None]
    solutions: Sequence[Int64[Tensor, "solutions tokens"]] | None = None
    processors: Sequence[LogitsProcessor] = ()

    def __len__(self) -> int:
        return len(self.prompts)


def chained_arithmetic(task: arithmetic.Task, n: int, seed: int) -> Task:
    """Return fresh problems of chained arithmetic; a solution is right if every step and the answer are.

    Parameters
    ----------
    task : icml26.arithmetic.Task
        Branches and steps.
    n : int
        Problems.
    seed : int
        Of the problems.

    Returns
    -------
    Task
        With all solutions listed; one is told from another by the order of its steps.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> task = chained_arithmetic(arithmetic.Task(branches=1, steps=2), 1, seed=0)
    >>> task.check(0, task.solutions[0][0])
    ('a1', 'a2')
    """
    drawn = arithmetic.problems(task, n, seed)
    return Task(
        prompts=drawn.prompts,
        end=arithmetic.END,
        max_new_tokens=task.solution_length,
        check=lambda index, tokens: arithmetic.check(drawn, index, tokens).order,
        solutions=list(solutions(drawn)),
    )


def solutions(problems: arithmetic.Problems) -> Int64[Tensor, "problems orders solution_length"]:
    """List every valid solution of problems of chained arithmetic.

    Parameters
    ----------
    problems : icml26.arithmetic.Problems
        Their steps are written once (``checked=False``).

    Returns
    -------
    int64 tensor, problems x orders x solution_length
        ``arithmetic.orders(task)`` of each.

    Raises
    ------
    InputError
        If the steps are written twice.

    Examples
    --------
    >>> one = arithmetic.problems(arithmetic.Task(branches=2, steps=1), 1, seed=0)
    >>> [arithmetic.decode(text[:6]) for text in solutions(one)[0]]
    ['a1 8 - 3 = 5', 'b1 6 + 1 = 7']
    """
    task = problems.task
    if task.checked:
        raise InputError("problems write their steps twice; list solutions of a task with checked=False")
    written = arithmetic.texts(problems, seed=0)[:, task.prompt_length :]
    steps = task.branches * task.steps
    ending = int((written[0] == arithmetic.encode("#")).nonzero()[0, 0])
    blocks = written[:, :ending].reshape(len(problems), steps, -1)
    # Sorted by label, the blocks are branch a's steps in order, then b's.
    blocks = blocks.take_along_dim(blocks[..., :1].argsort(1), 1)
    orders = []
    for branches in _arrangements([task.steps] * task.branches):
        seen = [0] * task.branches
        for place, branch in enumerate(branches):
            branches[place] = branch * task.steps + seen[branch]
            seen[branch] += 1
        orders.append(branches)
    arranged = blocks[:, torch.tensor(orders)].reshape(len(problems), len(orders), ending)
    return torch.cat([arranged, written[:, None, ending:].expand(-1, len(orders), -1)], -1)


def _arrangements(left: list[int]) -> Iterator[list[int]]:
    """All sequences that hold each index as often as `left` says."""
    if not any(left):
        yield []
    for index, count in enumerate(left):
        if count:
            rest = [other - (place == index) for place, other in enumerate(left)]
            yield from ([index, *others] for others in _arrangements(rest))


def gsm8k(
    tokenizer: Any,
    n: int,
    *,
    first: int = 0,
    shots: int = 8,
    max_new_tokens: int = 256,
    flexible: bool = False,
    problems: Sequence[tasks.Problem] | None = None,
) -> Task:
    """Return GSM8K's word problems after a few examples with their chains of thought, as lm-eval's `gsm8k_cot` asks.

    Unlike there, the examples are the first problems of the same file, and are never asked. A continuation ends where
    the next question or a blank line begins.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        The model's.
    n : int
        Problems.
    first : int
        Problems left out before them, so that parts of the data do not overlap.
    shots : int
        Examples.
    max_new_tokens : int
        Most tokens of a continuation.
    flexible : bool
        Whether the last number of a continuation is its answer (lm-eval's "flexible-extract"); by default what follows
        "The answer is" ("strict-match").
    problems : sequence of icml26.tasks.Problem, optional
        GSM8K's test problems by default.

    Returns
    -------
    Task
        Solutions are told apart by the numbers that they hold, in order.

    Raises
    ------
    MissingData
        If GSM8K's file is not on this machine.
    InputError
        If there are too few problems or a number is out of range.

    Examples
    --------
    >>> from icml26 import models
    >>> apples = [tasks.Problem(f"I eat {k} of 9 apples. How many are left?", f"9-{k}={9 - k}", str(9 - k))
    ...           for k in range(4)]
    >>> _, tokenizer = models.load_lm("tiny-random-llama")
    >>> task = gsm8k(tokenizer, 2, shots=2, problems=apples)
    >>> task.check(0, torch.tensor(tokenizer.encode(" 9-2=7. The answer is 7.", add_special_tokens=False)))
    ('9', '-2', '7', '7')
    """
    whole("n", n, 1)
    whole("first", first, 0)
    whole("shots", shots, 0)
    if problems is None:
        problems = tasks.gsm8k_problems("train") + tasks.gsm8k_problems("held-out")
    asked = problems[shots + first : shots + first + n]
    if len(asked) < n:
        raise InputError(f"n={n} after shots={shots} and first={first} needs more than the {len(problems)} problems")
    examples = "".join(
        f"Q: {p.question}\nA: {' '.join(p.solution.split())} The answer is {p.answer}.\n\n" for p in problems[:shots]
    )
    prompts = [torch.tensor(tokenizer.encode(f"{examples}Q: {p.question}\nA:")) for p in asked]

    def check(index: int, tokens: Int64[Tensor, " tokens"]) -> Hashable | None:
        text = _before_stop(tokenizer.decode(tokens, skip_special_tokens=True))
        right = gsm8k_answer(text, flexible=flexible) == asked[index].answer
        return tuple(_NUMBER.findall(text)) if right else None

    stop = _EndsAt(tokenizer, max(map(len, prompts)))
    return Task(prompts, tokenizer.eos_token_id, max_new_tokens, check, processors=(stop,))


_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_STRICT = re.compile(r"The answer is (-?[0-9.,]+).")
_FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")


def gsm8k_answer(text: str, *, flexible: bool = False) -> str | None:
    """Read the answer of a chain of thought with lm-eval's patterns for `gsm8k_cot`.

    Parameters
    ----------
    text : str
        What the model wrote.
    flexible : bool
        The last number rather than what first follows "The answer is".

    Returns
    -------
    str or None
        Without thousands separators, dollar signs and a final period.

    Examples
    --------
    >>> gsm8k_answer("So it is 3 * 400. The answer is 1,200."), gsm8k_answer("It is $1,200", flexible=True)
    ('1200', '1200')
    >>> gsm8k_answer("It is 1200.")
    """
    found = _FLEXIBLE.findall(text)[-1:] if flexible else _STRICT.findall(text)[:1]
    return re.sub(r"[,$]|\.$", "", found[0]) if found else None


def _before_stop(text: str) -> str:
    return re.split("|".join(map(re.escape, _STOPS)), text.lstrip("\n"), maxsplit=1)[0]


class _EndsAt(LogitsProcessor):
    """Leave only the end token to rows that have written a stop: `generate`'s stopping strings, for `sample`."""

    def __init__(self, tokenizer: Any, prompt: int) -> None:
        self.tokenizer, self.prompt = tokenizer, prompt  # prompts are padded on the left to the longest

    def __call__(
        self, input_ids: Int64[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Decode the last tokens: a stop has at most two characters, but a token may be part of one."""
        tail = input_ids[:, self.prompt :][:, -4:]
        texts = self.tokenizer.batch_decode(tail) if tail.shape[1] else []
        done = [row for row, text in enumerate(texts) if any(stop in text.lstrip("\n") for stop in _STOPS)]
        if done:
            scores = scores.clone()
            scores[done] = -torch.inf
            scores[done, self.tokenizer.eos_token_id] = 0.0
        return scores
