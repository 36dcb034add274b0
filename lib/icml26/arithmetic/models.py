"""Small language models of chained arithmetic: their recipes, their training, and the committed checkpoints.

Llamas of a few narrow blocks, trained on solutions of `icml26.arithmetic.task` with the loss on the solution alone:

- `orders`: two branches, so that a problem has many right solutions; trained until most greedy answers are right;
- `chain`: one branch of ten steps, and `checked`, whose solutions write all steps twice; both stopped inside the phase
  change, at the first evaluation where more than half of the sampled answers are right;
- `chain-rl` and `checked-rl`: those two continued by GRPO (`icml26.rl`) with the right answer as the only reward.

`RECIPES` holds all that decides the weights, apart from the machine's arithmetic; `load` returns the committed result
of one; ``python -m icml26.arithmetic.models NAME ...`` follows recipes anew (one to four minutes each on one thread).
The loop and the file format are `icml26.training`'s.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from icml26 import generation, rl, training
from icml26.arithmetic import task as arithmetic
from icml26.arithmetic.task import Task
from icml26.checkpoints import digest
from icml26.checks import whole
from icml26.errors import InputError, nearest

__all__ = ["FAMILIES", "RECIPES", "continue_by_grpo", "load", "names", "pass_at_1", "task_of", "texts", "train"]

FAMILIES = ("orders", "chain", "checked", "chain-rl", "checked-rl")
_GREEDY = 1e-4  # a temperature at which only the likeliest token is drawn
_CHUNK = 4096  # problems written at a time: int64 tables of more would take most of the memory


MODEL = {
    "model_type": "llama",
    "vocab_size": len(arithmetic.VOCABULARY),
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "initializer_range": 0.1,  # near 1/sqrt(64): with the usual 0.02 so narrow a model starts slowly
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def _recipe(task: Task, seed: int, **stop: float) -> dict:
    config = training.TrainingConfig(
        steps=3000, batch_size=64, window=task.length - 1, learning_rate=5e-3, warmup=50, final_share=1.0
    )
    return {
        "task": asdict(task),
        "model": MODEL,
        "training": asdict(config) | {"betas": list(config.betas)},
        "texts": 65536,
        # The last step is the first multiple of `every`, from `first` on, at which `pass_at_1` on these problems
        # exceeds `above`.
        "stop": stop | {"problems": 128, "seed": 2026},
        "seed": seed,
    }


def _continued(parent: str, recipes: dict[str, dict]) -> dict:
    """The recipe of a model that GRPO makes of another."""
    length = Task(**recipes[parent]["task"]).solution_length
    config = rl.GRPOConfig(steps=100, max_new_tokens=length, end=arithmetic.END, learning_rate=3e-4)
    return {
        "task": recipes[parent]["task"],
        "model": recipes[parent]["model"],
        "parent": parent,
        "parent_sha256": digest(recipes[parent]),
        "rl": asdict(config),
        "problems": 4096,
        "seed": recipes[parent]["seed"],
    }


def _recipes() -> dict[str, dict]:
    found = {}
    for seed in range(5):
        for name, checked in (("chain", False), ("checked", True)):
            task = Task(branches=1, steps=10, checked=checked)
            found[f"{name}-{seed}"] = _recipe(task, seed, first=100, every=5, above=0.5, temperature=1.0)
    for family in ("chain", "checked"):
        for seed in range(5):
            found[f"{family}-rl-{seed}"] = _continued(f"{family}-{seed}", found)
    for seed in range(3):
        found[f"orders-{seed}"] = _recipe(Task(), seed, first=300, every=20, above=0.85, temperature=_GREEDY)
    return found


RECIPES: dict[str, dict] = _recipes()


def names(family: str) -> list[str]:
    """List the models of a family, by seed.

    Parameters
    ----------
    family : str
        One of `FAMILIES`.

    Returns
    -------
    list of str

    Raises
    ------
    InputError
        If there is no such family.

    Examples
    --------
    >>> names("chain")
    ['chain-0', 'chain-1', 'chain-2', 'chain-3', 'chain-4']
    """
    if family not in FAMILIES:
        raise InputError(f"family={family!r} is not known{nearest(family, FAMILIES)}; there are {', '.join(FAMILIES)}")
    return [name for name in RECIPES if name.rpartition("-")[0] == family]


def task_of(name: str) -> Task:
    """Return the task that a model was trained on.

    Parameters
    ----------
    name : str
        One of `RECIPES`.

    Returns
    -------
    Task

    Raises
    ------
    InputError
        If there is no such model.

    Examples
    --------
    >>> task_of("chain-0")
    Task(branches=1, steps=10, checked=False)
    """
    return Task(**_known(name)["task"])


def load(name: str) -> training.Checkpoint:
    """Load a committed model.

    Parameters
    ----------
    name : str
        One of `RECIPES`.

    Returns
    -------
    Checkpoint
        Model, recipe and digest.

    Raises
    ------
    InputError
        If there is no such model, or its file is damaged.

    Examples
    --------
    >>> load("chain-0").recipe == RECIPES["chain-0"]
    True
    """
    _known(name)
    return training.load_checkpoint(_path(name))


def texts(name: str) -> UInt8[Tensor, "texts length"]:
    """Draw the texts that a model was trained on: as good as new ones, for hardly any comes up twice.

    Parameters
    ----------
    name : str
        One of `RECIPES` that names texts, not a parent.

    Returns
    -------
    uint8 tensor, texts x length
        Prompts and solutions.

    Raises
    ------
    InputError
        If there is no such model.

    Examples
    --------
    >>> texts("chain-0").shape
    torch.Size([65536, 107])
    """
    recipe = _known(name)
    if "texts" not in recipe:
        raise InputError(f"name={name!r} continues {recipe['parent']!r} and has no texts of its own: use that")
    draw, task = np.random.default_rng([recipe["seed"], 1]), Task(**recipe["task"])
    found = torch.empty((recipe["texts"], task.length), dtype=torch.uint8)
    for rows in found.split(_CHUNK):
        rows[:] = arithmetic.texts(arithmetic.problems(task, len(rows), draw), draw)
    return found


def pass_at_1(
    model: Any, problems: arithmetic.Problems, *, seed: int, samples: int = 1, temperature: float = 1.0
) -> float:
    """Estimate how often a sampled answer is right.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Such as `load` returns.
    problems : Problems
        To solve.
    seed : int
        Of the samples.
    samples : int
        Continuations of each problem.
    temperature : float
        Divides the logits.

    Returns
    -------
    float
        Share of right answers.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> task = task_of("chain-0")
    >>> pass_at_1(training.build(RECIPES["chain-0"]["model"], seed=0), arithmetic.problems(task, 4, seed=0), seed=0)
    0.0
    """
    drawn = generation.sample(
        model,
        problems.prompts,
        samples=samples,
        max_new_tokens=problems.task.solution_length,
        end=arithmetic.END,
        generator=torch.Generator().manual_seed(whole("seed", seed, 0)),
        temperature=temperature,
    )
    return float(arithmetic.check_all(problems, drawn.tokens).correct.mean())


def train(name: str, *, steps: int | None = None, progress: Callable[[int, float], None] | None = None) -> Any:
    """Follow a recipe: one to four minutes on one thread.

    Parameters
    ----------
    name : str
        One of `RECIPES`.
    steps : int, optional
        Stop after so many steps even if the recipe goes on.
    progress : callable, optional
        Called after each step with the number of steps done and the step's loss (of GRPO, its mean reward).

    Returns
    -------
    transformers.LlamaForCausalLM
        fp32, in evaluation mode.

    Raises
    ------
    InputError
        If there is no such recipe, or it ends without reaching its accuracy.

    Examples
    --------
    >>> train("chain-0", steps=1).num_parameters()
    86784
    """
    recipe = _known(name)
    if "parent" in recipe:
        return continue_by_grpo(recipe, steps=steps, progress=progress)
    stop, task = recipe["stop"], Task(**recipe["task"])
    problems = arithmetic.problems(task, stop["problems"], stop["seed"])
    reached = False

    def until(step: int) -> bool:
        nonlocal reached
        if step >= stop["first"] and step % stop["every"] == 0:
            share = pass_at_1(model, problems, seed=stop["seed"], temperature=stop["temperature"])
            reached = share > stop["above"]
        return reached

    model = training.build(recipe["model"], recipe["seed"])
    config = training.TrainingConfig(**recipe["training"] | {"betas": tuple(recipe["training"]["betas"])})
    training.train(
        model,
        texts(name),
        config,
        seed=recipe["seed"],
        skip=task.prompt_length,
        stop=steps,
        until=until,
        progress=progress,
    )
    if not reached and steps is None:
        raise InputError(f"{name}: {config.steps} steps did not reach a share of {stop['above']}; change the recipe")
    return model


def continue_by_grpo(
    recipe: dict, *, steps: int | None = None, progress: Callable[[int, float], None] | None = None
) -> Any:
    """Follow a recipe that continues another model by GRPO, rewarding right answers alone: two or three minutes.

    Parameters
    ----------
    recipe : dict
        A value of `RECIPES` that names a parent.
    steps : int, optional
        Stop after so many steps even if the recipe goes on.
    progress : callable, optional
        Called after each step with the number of steps done and the share of right answers.

    Returns
    -------
    transformers.LlamaForCausalLM
        fp32, in evaluation mode.

    Raises
    ------
    InputError
        If the parent's file is missing, or was made by another recipe than the one in the code.

    Examples
    --------
    >>> continue_by_grpo(RECIPES["chain-rl-0"], steps=1).num_parameters()
    86784
    """
    parent = load(recipe["parent"])
    if digest(parent.recipe) != recipe["parent_sha256"]:
        raise InputError(f"{recipe['parent']} is not of this recipe's parent: make its checkpoint anew first")
    config = rl.GRPOConfig(**recipe["rl"])
    if steps is not None:
        config = replace(config, steps=min(config.steps, whole("steps", steps, 1)))
    draw = np.random.default_rng([recipe["seed"], 2])
    problems = arithmetic.problems(Task(**recipe["task"]), recipe["problems"], draw)
    answers = problems.answers

    def right(index: int, tokens: Tensor) -> bool:
        return arithmetic.answer(tokens) == answers[index]

    rl.grpo(parent.model, problems.prompts, right, config, seed=recipe["seed"], progress=progress)
    return parent.model


def _known(name: str) -> dict:
    if name not in RECIPES:
        raise InputError(f"name={name!r} is no model{nearest(name, RECIPES)}; there are {', '.join(RECIPES)}")
    return RECIPES[name]


def _path(name: str) -> Path:
    return Path(str(files(__package__))) / "checkpoints" / f"{name}.safetensors"


def _main() -> None:
    from tqdm.auto import tqdm

    for name in sys.argv[1:]:
        with tqdm(desc=name, unit=" steps") as bar:

            def progress(step: int, value: float, bar: Any = bar) -> None:
                bar.set_postfix(last=f"{value:.3f}", refresh=False)
                bar.update()

            training.save_checkpoint(train(name, progress=progress), RECIPES[name], _path(name))


if __name__ == "__main__":
    _main()
