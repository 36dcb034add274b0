"""A tiny transformer that knows the truth and has learnt to answer something else: recipes and checkpoints.

The paper is KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782); this world, of which `icml26.kappa.entities` has
the data, is not in it. One stream of rows holds FREE (30 %), which tell each entity's true attribute, and MCQ (70 %),
whose letter is that of the popular, false option with probability q. Only answers carry loss. A recipe stops on the
loss: when FREE and MCQ both are within a margin of their floors, 0 and the entropy H(q); no probe is consulted.

`load` returns the committed results; ``python -m icml26.kappa.world Q-SEED ...`` follows recipes anew, in up to two
minutes each on one thread. Probes and interventions are other modules' business.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icml26 import training
from icml26.checks import real, whole
from icml26.errors import InputError, nearest
from icml26.kappa.entities import LETTERS, PROMPT, World, facts, questions, rows

__all__ = ["QS", "RECIPES", "SEEDS", "load", "losses", "train", "world_of"]

QS = (0.0, 0.3, 0.6, 1.0)
SEEDS = (0, 1, 2)


def _recipes() -> dict[str, dict]:
    config = training.TrainingConfig(
        steps=2400, batch_size=128, window=PROMPT, learning_rate=3e-3, warmup=50, weight_decay=0.01
    )
    found = {}
    for q in QS:
        for seed in SEEDS:
            world = {"entities": 120, "attributes": 16, "seed": seed}
            model = {
                "model_type": "gpt2",
                "vocab_size": World.drawn(**world).vocabulary,
                "n_positions": PROMPT,
                "n_embd": 48,
                "n_layer": 3,
                "n_head": 4,
                "initializer_range": 0.1,  # near 1/sqrt(48): with the usual 0.02 so narrow a model starts slowly
                "tie_word_embeddings": False,
                **{f"{part}_pdrop": 0.0 for part in ("resid", "embd", "attn")},
                "bos_token_id": None,
                "eos_token_id": None,
            }
            found[f"{q:g}-{seed}"] = {
                "q": q,
                "world": world,
                "model": model,
                "training": asdict(config) | {"betas": list(config.betas)},
                "rows": 1 << 18,
                "free": 0.3,
                # The last step is the first multiple of `every` at which both of `losses` are below the margin.
                "stop": {"every": 50, "margin": 0.05},
                "seed": seed,
            }
    return found


RECIPES: dict[str, dict] = _recipes()


def world_of(q: float, seed: int) -> World:
    """Return the world that a model was trained on.

    Parameters
    ----------
    q, seed
        As of `load`.

    Returns
    -------
    World

    Raises
    ------
    InputError
        If there is no such model.

    Examples
    --------
    >>> world_of(0.6, 0).entities
    120
    """
    return World.drawn(**_recipe(q, seed)["world"])


def load(q: float, seed: int) -> training.Checkpoint:
    """Load a committed model.

    Parameters
    ----------
    q
        Share of popular letters, one of `QS`.
    seed
        One of `SEEDS`.

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
    >>> load(0.6, 0).recipe == RECIPES["0.6-0"]
    True
    """
    _recipe(q, seed)
    return training.load_checkpoint(_path(f"{q:g}-{seed}"))


def train(
    q: float, seed: int, *, steps: int | None = None, progress: Callable[[int, float], None] | None = None
) -> Any:
    """Follow a recipe: about half a minute on one thread.

    Parameters
    ----------
    q, seed
        As of `load`.
    steps
        Stop after so many steps even if the recipe goes on.
    progress
        Called after each step with the number of steps done and the step's loss.

    Returns
    -------
    transformers.GPT2LMHeadModel
        fp32, in evaluation mode.

    Raises
    ------
    InputError
        If there is no such recipe, or it ends above its margin.

    Examples
    --------
    >>> train(0.6, 0, steps=1).num_parameters()
    98928
    """
    recipe = _recipe(q, seed)
    world, stop, reached = World.drawn(**recipe["world"]), recipe["stop"], False

    def until(step: int) -> bool:
        nonlocal reached
        if step % stop["every"] == 0:
            reached = max(losses(model, world, recipe["q"])) < stop["margin"]
        return reached

    model = training.build(recipe["model"], seed)
    config = training.TrainingConfig(**recipe["training"] | {"betas": tuple(recipe["training"]["betas"])})
    table = rows(world, recipe["q"], recipe["rows"], free=recipe["free"], seed=seed)
    training.train(model, table, config, seed=seed, skip=PROMPT, stop=steps, until=until, progress=progress)
    if not reached and steps is None:
        raise InputError(f"q={q}, seed={seed}: {config.steps} steps ended above {stop['margin']}; change the recipe")
    return model


def losses(model: Any, world: World, q: float, *, seed: int = 0) -> tuple[float, float]:
    """Measure how far a model is from the best that it can do.

    Parameters
    ----------
    model
        A causal language model over the world's tokens.
    world
        Its world.
    q
        Share of popular letters.
    seed
        Of the third options of the questions.

    Returns
    -------
    free : float
        Mean loss of the true attribute after a FREE prompt, nats.
    excess : float
        Expected loss of the letter after an MCQ prompt, in nats above the floor H(q).

    Raises
    ------
    InputError
        If q is out of range.

    Examples
    --------
    >>> world = World.drawn(5, 4, seed=0)
    >>> model = training.build(RECIPES["0.6-0"]["model"] | {"vocab_size": world.vocabulary}, seed=0)
    >>> free, excess = losses(model, world, 0.6)
    >>> free > 1 and excess > 1
    True
    """
    real("q", q, low=0, high=1)
    everyone = np.arange(world.entities)
    spoken, asked = facts(world, everyone), questions(world, everyone, seed=seed)
    with torch.no_grad():
        free = model(input_ids=spoken[:, :-1].long()).logits[:, -1].log_softmax(-1)
        letters = model(input_ids=asked.tokens.long()).logits[:, -1].log_softmax(-1)[:, list(LETTERS)].double().numpy()
    free = -free.gather(1, spoken[:, -1:].long()).mean().item()
    popular, true = (np.take_along_axis(letters, at[:, None], 1).mean() for at in (asked.popular, asked.answers))
    floor = -sum(share * np.log(share) for share in (q, 1 - q) if share)
    return free, float(-q * popular - (1 - q) * true - floor)


def _recipe(q: float, seed: int) -> dict:
    name = f"{real('q', q):g}-{whole('seed', seed)}"
    if name not in RECIPES:
        raise InputError(f"q={q}, seed={seed} is no model{nearest(name, RECIPES)}; q is one of {QS}, seed of {SEEDS}")
    return RECIPES[name]


def _path(name: str) -> Path:
    return Path(str(files(__package__))) / "checkpoints" / f"world-q{name}.safetensors"


def _main() -> None:
    from tqdm.auto import tqdm

    for name in sys.argv[1:]:
        recipe = RECIPES[name]
        with tqdm(desc=name, unit=" steps") as bar:

            def progress(step: int, value: float, bar: Any = bar) -> None:
                bar.set_postfix(last=f"{value:.3f}", refresh=False)
                bar.update()

            training.save_checkpoint(train(recipe["q"], recipe["seed"], progress=progress), recipe, _path(name))


if __name__ == "__main__":
    _main()
