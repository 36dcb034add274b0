"""The committed models are of the recipes in the code, as accurate as their rule says, and stop where it says."""

import numpy as np
import pytest
import torch

from icml26 import generation, training
from icml26.arithmetic import models
from icml26.arithmetic import task as arithmetic
from icml26.checkpoints import digest
from icml26.errors import InputError

TRAINED = [name for name, recipe in models.RECIPES.items() if "stop" in recipe]


@pytest.fixture
def tiny(monkeypatch):
    """A recipe that takes no time, to be changed."""
    recipe = {
        "task": {"branches": 1, "steps": 1, "checked": False},
        "model": models.MODEL | {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1},
        "training": models.RECIPES["chain-0"]["training"] | {"steps": 8, "batch_size": 4},
        "texts": 64,
        "stop": {"first": 4, "every": 3, "above": -1.0, "temperature": 1.0, "problems": 4, "seed": 0},
        "seed": 0,
    }
    monkeypatch.setitem(models.RECIPES, "tiny-0", recipe)
    return recipe


def test_there_are_five_seeds_of_chains_and_three_of_orders():
    assert {family: len(models.names(family)) for family in models.FAMILIES} == {
        "orders": 3,
        "chain": 5,
        "checked": 5,
        "chain-rl": 5,
        "checked-rl": 5,
    }
    assert sum(len(models.names(family)) for family in models.FAMILIES) == len(models.RECIPES)
    assert [models.RECIPES[name]["seed"] for name in models.names("checked")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", models.RECIPES)
def test_a_committed_model_is_of_the_recipe_in_the_code_and_small(name):
    assert digest(models.load(name).recipe) == digest(models.RECIPES[name])
    assert models._path(name).stat().st_size < 400_000


@pytest.mark.parametrize("name", TRAINED)
def test_a_committed_model_is_as_accurate_as_its_rule_says(name):
    model, stop = models.load(name).model, models.RECIPES[name]["stop"]
    problems = arithmetic.problems(models.task_of(name), stop["problems"], stop["seed"])
    found = models.pass_at_1(model, problems, seed=stop["seed"], temperature=stop["temperature"])
    # fp16 turns an answer or two; a model past the phase change would be right nearly always.
    assert stop["above"] - 0.03 < found < 0.97


@pytest.mark.parametrize("name", models.names("orders"))
def test_the_models_of_several_orders_write_many_valid_ones(name):
    task = models.task_of(name)
    problems = arithmetic.problems(task, 8, seed=31)
    drawn = generation.sample(
        models.load(name).model,
        problems.prompts,
        samples=16,
        max_new_tokens=task.solution_length,
        end=arithmetic.END,
        generator=torch.Generator().manual_seed(0),
    )
    found = arithmetic.check_all(problems, drawn.tokens)
    written = zip(found.orders, found.valid, strict=True)
    distinct = [len({bytes(order) for order in orders[valid]}) for orders, valid in written]
    assert np.mean(distinct) > 3


def test_training_stops_at_the_first_multiple_from_the_first_step_on(tiny):
    seen = []
    model = models.train("tiny-0", progress=lambda step, loss: seen.append(step))
    assert seen == [1, 2, 3, 4, 5, 6]
    expected = training.build(tiny["model"], 0)
    training.train(
        expected,
        models.texts("tiny-0"),
        training.TrainingConfig(**tiny["training"] | {"betas": (0.9, 0.95)}),
        seed=0,
        skip=models.task_of("tiny-0").prompt_length,
        stop=6,
    )
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_a_recipe_that_ends_without_its_accuracy_is_an_error(tiny):
    tiny["stop"]["above"] = 1.0
    with pytest.raises(InputError, match="8 steps did not reach"):
        models.train("tiny-0")
    assert models.train("tiny-0", steps=2) is not None


def test_the_texts_of_a_recipe_are_its_tasks_and_hardly_any_comes_up_twice(tiny):
    tiny["texts"] = 5000  # more than are written at a time
    tiny["task"] = models.RECIPES["chain-0"]["task"]
    found = models.texts("tiny-0")
    assert found.dtype == torch.uint8
    assert len(found.unique(dim=0)) == 5000
    texts = [arithmetic.decode(row) for row in found[::500]]
    assert all(text.startswith("<s> a0 ") and text.endswith(" .") and text.count("=") == 10 for text in texts)
    tiny["seed"] = 1
    assert not torch.equal(models.texts("tiny-0"), found)


def test_pass_at_1_counts_right_answers_of_all_samples():
    problems = arithmetic.problems(arithmetic.Task(1, 2), 4, seed=0)
    right = arithmetic.texts(problems, 0)[:, problems.task.prompt_length :]
    tokens = right[:, None].repeat(1, 2, 1)
    tokens[1:, :, -2] = (tokens[1:, :, -2] + 1) % 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "sample", lambda *args, **given: generation.Continuations(tokens, None, None))
        assert models.pass_at_1(None, problems, samples=2, seed=0) == 0.25


def test_wrong_names_are_answered_with_the_nearest():
    cases = [
        (lambda: models.load("chain-9"), "no model; did you mean 'chain-"),
        (lambda: models.task_of("order-0"), "did you mean 'orders-0'"),
        (lambda: models.names("chains"), "did you mean 'chain'"),
        (lambda: models.texts("chain-rl-0"), "continues 'chain-0'"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
