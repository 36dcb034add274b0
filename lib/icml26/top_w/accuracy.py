"""Accuracy and diversity of samplers on a task: one row for each sampler, temperature and problem.

Where a task lists its right solutions, both are exact: teacher forcing gives the model's logits after every beginning
of every solution, a sampler's processed probabilities multiply along a solution to the probability ``P`` that it is
drawn, and a problem's accuracy is the sum of ``P``, its distinct right solutions among n draws the sum of
``1 - (1 - P)^n`` in expectation. All samplers and temperatures read the same logits, and no draw adds noise. Elsewhere
continuations are drawn, with the same random numbers in every cell.

For the comparisons of Top-W (Gholami Davoodi et al., arXiv 2602.10346) with other samplers. Tuning and the claims'
statistics are in `icml26.top_w.comparison`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from icml26 import generation
from icml26.checks import real, whole
from icml26.errors import InputError
from icml26.top_w.samplers import Sampler
from icml26.top_w.tasks import Task

__all__ = ["run_cells"]

# Logits held at a time, 32 MB in float32.
_WORKSPACE = 1 << 23
# From this size on sorting the vocabulary once pays: most rules sort it again, and sorted input is sorted fast.
_LARGE = 1024


def run_cells(
    model: Any,
    task: Task,
    samplers: Sequence[Sampler],
    temperatures: Sequence[float],
    *,
    samples: int = 16,
    seed: int = 0,
    exact: bool | None = None,
    batch: int = 1280,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Measure samplers on the problems of a task.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model in evaluation mode.
    task : Task
        Problems, and who is right.
    samplers : sequence of Sampler
        Each with one setting.
    temperatures : sequence of float
        Positive.
    samples : int
        Continuations of each problem. A deterministic sampler draws one, whose row stands for all temperatures.
    seed : int
        Of the draws; every cell uses the same random numbers.
    exact : bool, optional
        Whether to compute expectations rather than to draw; by default where the task lists its solutions.
    batch : int
        Continuations drawn at a time.
    progress : callable, optional
        Called with one line of text as parts are done.

    Returns
    -------
    DataFrame
        ``sampler, setting, temperature, problem``; ``accuracy`` (share of right continuations); ``distinct`` (different
        right solutions among ``samples``); ``kept`` (mean number of tokens kept) and ``single`` (share of steps that
        keep one), over the steps drawn, or, where exact, over all beginnings of right solutions.

    Raises
    ------
    InputError
        If an argument is out of range, there is no sampler, two have the same name and setting, or the task lists no
        solutions for ``exact=True``.

    Examples
    --------
    >>> from icml26 import models
    >>> from icml26.top_w.samplers import controls
    >>> model, _ = models.load_lm("tiny-random-llama")
    >>> task = Task([torch.tensor([1, 2])], end=0, max_new_tokens=2, check=lambda index, tokens: None,
    ...             solutions=[torch.tensor([[5, 0], [6, 0]])])
    >>> run_cells(model, task, controls(259), [1.0], samples=4)["distinct"].between(0, 2).all()
    np.True_
    """
    whole("samples", samples, 1)
    whole("seed", seed, 0)
    whole("batch", batch, 1)
    temperatures = [real("temperatures", temperature, above=0) for temperature in temperatures]
    names = [(sampler.name, sampler.setting) for sampler in samplers]
    if not names or not temperatures or len(set(names)) < len(names):
        raise InputError(f"samplers={names} at {temperatures}: give different samplers and at least one temperature")
    if exact is None:
        exact = task.solutions is not None
    if exact and task.solutions is None:
        raise InputError("exact=True needs a task that lists its solutions; leave it out to draw continuations")
    say = progress or (lambda line: None)
    cells = [(s, t) for s in samplers for t in (temperatures[:1] if s.deterministic else temperatures)]
    if exact:
        measured = _expected(model, task, cells, samples, say)
    else:
        measured = []
        for sampler, temperature in cells:
            measured.append(_drawn(model, task, sampler, temperature, samples, seed, batch))
            say(f"{sampler.name} {sampler.setting} at temperature {temperature:g}")
    rows = []
    for (sampler, temperature), values in zip(cells, measured, strict=True):
        for repeated in temperatures if sampler.deterministic else [temperature]:
            head = {"sampler": sampler.name, "setting": sampler.setting, "temperature": repeated}
            rows.append(pd.DataFrame({**head, "problem": np.arange(len(task)), **values}))
    return pd.concat(rows, ignore_index=True)


class _Forced(NamedTuple):
    """Logits after the beginnings of some problems' solutions, each beginning once."""

    logits: Float[Tensor, "nodes vocabulary"]
    problem: Int64[np.ndarray, " nodes"]
    node: Int64[Tensor, "rows steps"]  # after which each token of each solution comes
    tokens: Int64[Tensor, "rows steps"]
    row_problem: Int64[np.ndarray, " rows"]


def _expected(
    model: Any, task: Task, cells: Sequence[tuple[Sampler, float]], samples: int, say: Callable[[str], None]
) -> list[dict[str, Float[np.ndarray, " problems"]]]:
    n = len(task)
    sums = np.zeros((len(cells), 4, n))  # accuracy, distinct, kept, single
    nodes = np.zeros(n)
    done = 0
    for batch in _forced(model, task):
        nodes += np.bincount(batch.problem, minlength=n)
        views = _Views(batch.logits)
        for number, (sampler, temperature) in enumerate(cells):
            log_p, kept = views.processed(sampler, temperature, batch)
            p = np.exp(log_p)
            some = -np.expm1(samples * np.log1p(-np.minimum(p, 1 - 1e-16)))
            for row, weights, group in (
                (0, p, batch.row_problem),
                (1, some, batch.row_problem),
                (2, kept, batch.problem),
                (3, kept == 1, batch.problem),
            ):
                sums[number, row] += np.bincount(group, weights, minlength=n)
        done += len(set(batch.row_problem))
        say(f"{done} of {n} problems, {len(cells)} cells each")
    sums[:, 2:] /= nodes
    return [dict(zip(("accuracy", "distinct", "kept", "single"), cell, strict=True)) for cell in sums]


class _Views:
    """Logits as they are, and each row sorted for rules that do not care which token is which."""

    def __init__(self, logits: Float[Tensor, "nodes vocabulary"]) -> None:
        self.logits = logits
        self.ordered = None
        if logits.shape[1] >= _LARGE:
            self.ordered, order = logits.sort(dim=-1, descending=True, stable=True)
            places = torch.arange(order.shape[1], device=order.device).expand_as(order)
            self.place = torch.empty_like(order).scatter_(1, order, places)

    def processed(
        self, sampler: Sampler, temperature: float, batch: _Forced
    ) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " nodes"]]:
        """Log-probability of each solution, and how many tokens are kept after each beginning."""
        scores, tokens = self.logits, batch.tokens
        if self.ordered is not None and not sampler.by_token:
            scores, tokens = self.ordered, self.place[batch.node, batch.tokens]
        scores = _processed(sampler.processors(temperature), scores)
        chosen = scores[batch.node, tokens].double() - scores.logsumexp(-1).double()[batch.node]
        return chosen.sum(-1).cpu().numpy(), scores.isfinite().sum(-1).double().cpu().numpy()


@torch.inference_mode()
def _forced(model: Any, task: Task) -> Iterator[_Forced]:
    """Run the model over all solutions, problems of equal lengths together."""
    alike = defaultdict(list)
    for index, (prompt, found) in enumerate(zip(task.prompts, task.solutions, strict=True)):
        alike[len(prompt), found.shape].append(index)
    for (_, (each, steps)), members in alike.items():
        per_batch = max(1, _WORKSPACE // (each * steps * model.get_input_embeddings().num_embeddings))
        for start in range(0, len(members), per_batch):
            indices = members[start : start + per_batch]
            tokens = torch.cat([task.solutions[index] for index in indices])
            prompts = torch.stack([task.prompts[index] for index in indices]).repeat_interleave(each, 0)
            node, first = _nodes(np.repeat(np.arange(len(indices)), each), tokens.numpy())
            row, step = np.divmod(first, steps)
            # The last token is never an input: nothing is asked after it.
            ids = torch.cat([prompts, tokens[:, :-1]], 1).to(model.device)
            logits = model(input_ids=ids, logits_to_keep=steps, use_cache=False).logits
            yield _Forced(
                logits[row, step].float(),
                np.asarray(indices)[row // each],
                torch.from_numpy(node),
                tokens,
                np.repeat(indices, each),
            )


def _nodes(
    root: Int64[np.ndarray, " rows"], tokens: Int64[np.ndarray, "rows steps"]
) -> tuple[Int64[np.ndarray, "rows steps"], Int64[np.ndarray, " nodes"]]:
    """Number the different beginnings that rows' tokens come after, and say where (flat) each first occurs."""
    rows, steps = tokens.shape
    node = np.empty((rows, steps), dtype=np.int64)
    firsts, state, known = [], root, 0
    for step in range(steps):
        _, first, state = np.unique(state, return_index=True, return_inverse=True)
        node[:, step] = state + known
        firsts.append(first * steps + step)
        known += len(first)
        state = state * (tokens.max() + 1) + tokens[:, step]
    return node, np.concatenate(firsts)


def _drawn(
    model: Any, task: Task, sampler: Sampler, temperature: float, samples: int, seed: int, batch: int
) -> dict[str, Float[np.ndarray, " problems"]]:
    samples = 1 if sampler.deterministic else samples
    generator = torch.Generator().manual_seed(seed)
    columns = defaultdict(list)
    for start in range(0, len(task), max(1, batch // samples)):
        once = _Once(sampler.processors(temperature))
        drawn = generation.sample(
            model,
            task.prompts[start : start + max(1, batch // samples)],
            samples=samples,
            max_new_tokens=task.max_new_tokens,
            end=task.end,
            generator=generator,
            processors=[once, *task.processors],
            measure=once.kept,
        )
        for index, (rows, lengths) in enumerate(zip(drawn.tokens, drawn.lengths.tolist(), strict=True), start):
            keys = [task.check(index, row[:length]) for row, length in zip(rows, lengths, strict=True)]
            right = [key for key in keys if key is not None]
            columns["accuracy"].append(len(right) / samples)
            columns["distinct"].append(float(len(set(right))))
        kept = drawn.measured.flatten(1)
        columns["kept"] += kept.nanmean(1).tolist()
        columns["single"] += ((kept == 1).sum(1) / kept.isfinite().sum(1)).tolist()
    return {name: np.array(values) for name, values in columns.items()}


class _Once:
    """A sampler's processors, run once a step both to count what they keep and to draw from it."""

    def __init__(self, processors: Sequence[Callable[[None, Tensor], Tensor]]) -> None:
        self.processors = processors

    def kept(self, logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
        """Count the tokens kept; `sample` measures before it draws."""
        self.scores = _processed(self.processors, logits)
        return self.scores.isfinite().sum(-1).float()

    def __call__(
        self, input_ids: Int64[Tensor, "rows tokens"], logits: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Return what was counted."""
        return self.scores


def _processed(
    processors: Sequence[Callable[[None, Tensor], Tensor]], scores: Float[Tensor, "rows vocabulary"]
) -> Float[Tensor, "rows vocabulary"]:
    for processor in processors:
        scores = processor(None, scores)  # truncation rules do not read what was written before
    return scores
