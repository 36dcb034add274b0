"""The tiny world: its rows, its recipes and its committed models."""

import numpy as np
import pytest
import torch

from icml26.checkpoints import digest
from icml26.errors import InputError
from icml26.kappa import entities, world
from icml26.kappa.collect import collect
from icml26.kappa.entities import LETTERS, World, facts, questions, rows
from icml26.kappa.hooks import blocks
from icml26.kappa.intervention import Kappa
from icml26.kappa.probes import Probe

SMALL = World.drawn(entities=11, attributes=6, seed=0)
NAMES = [(q, seed) for q in world.QS for seed in world.SEEDS]


def read(row):
    """A row's format, entity, options as attributes, and what follows the prompt."""
    kind, entity, *options, _ = row[:6]
    first = 4 + entities.OPTIONS
    return kind, entity - first - SMALL.attributes, [token - first for token in options], row[6:]


def test_the_popular_attribute_is_never_the_true_one():
    for seed in range(20):
        drawn = World.drawn(50, 3, seed)
        assert (drawn.true != drawn.popular).all()
        assert set(drawn.true) | set(drawn.popular) <= {0, 1, 2}


def test_worlds_follow_their_seed():
    assert (World.drawn(50, 9, 1).true == World.drawn(50, 9, 1).true).all()
    assert (World.drawn(50, 9, 1).true != World.drawn(50, 9, 2).true).any()


def test_questions_offer_the_true_the_popular_and_another_attribute_in_all_orders():
    asked = questions(SMALL, [3, 7], others=4, seed=1)
    assert len(asked.tokens) == 2 * 4 * 6
    seen = set()
    for row, answer, popular, entity in zip(
        asked.tokens.tolist(), asked.answers, asked.popular, asked.entities, strict=True
    ):
        kind, who, options, rest = read(row)
        assert (kind, who, rest) == (entities.MCQ, entity, [])
        assert options[answer] == SMALL.true[who]
        assert options[popular] == SMALL.popular[who]
        assert len(set(options)) == 3
        seen.add((who, *options))
    # With six attributes there are four others, each in six orders, each once.
    assert len(seen) == len(asked.tokens)
    assert np.bincount(asked.answers).tolist() == np.bincount(asked.popular).tolist() == [16, 16, 16]


def test_facts_tell_the_true_attribute():
    for entity, row in enumerate(facts(SMALL, np.arange(11)).tolist()):
        kind, who, _, (answer,) = read(row)
        assert (kind, who) == (entities.FREE, entity)
        assert answer - 4 - entities.OPTIONS == SMALL.true[entity]


@pytest.mark.parametrize("q", [0.0, 0.3, 1.0])
def test_letters_are_popular_with_probability_q_and_true_otherwise(q):
    drawn = rows(SMALL, q, 3000, seed=2)
    told, asked, popular = 0, 0, 0
    for row in drawn.tolist():
        kind, who, options, (answer,) = read(row)
        if kind == entities.FREE:
            told += 1
            assert answer - 4 - entities.OPTIONS == SMALL.true[who]
        else:
            asked += 1
            chosen = options[LETTERS.index(answer)]
            assert chosen in (SMALL.true[who], SMALL.popular[who])
            popular += chosen == SMALL.popular[who]
    assert abs(told / 3000 - 0.3) < 4 * (0.21 / 3000) ** 0.5
    assert abs(popular / asked - q) <= 4 * (q * (1 - q) / asked) ** 0.5


def test_a_share_of_zero_facts_is_possible():
    assert (rows(SMALL, 0.5, 50, free=0.0, seed=0)[:, 0] == entities.MCQ).all()


class Biased(torch.nn.Module):
    """Says the same probabilities after every prompt."""

    def __init__(self, probabilities):
        super().__init__()
        self.logits = torch.log(torch.tensor(probabilities))

    def forward(self, input_ids):
        return type("Output", (), {"logits": self.logits.expand(*input_ids.shape, -1)})


def test_losses_are_those_of_the_truth_and_of_the_letters_above_their_entropy():
    n = SMALL.vocabulary
    model = Biased([1 / n] * n)
    free, excess = world.losses(model, SMALL, 0.3)
    assert free == pytest.approx(np.log(n), rel=1e-5)
    assert excess == pytest.approx(np.log(n) + 0.3 * np.log(0.3) + 0.7 * np.log(0.7), rel=1e-5)
    for q in (0.0, 1.0):
        assert world.losses(model, SMALL, q)[1] == pytest.approx(np.log(n), rel=1e-5)


def test_training_follows_its_recipe_and_its_seed():
    seen = []
    first = world.train(0.6, 0, steps=2, progress=lambda step, loss: seen.append(step))
    assert seen == [1, 2]
    again, other = (world.train(0.6, seed, steps=2) for seed in (0, 1))
    weights = [m.transformer.h[1].mlp.c_fc.weight for m in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(("q", "seed"), NAMES)
def test_a_committed_model_is_of_its_recipe_and_as_good_as_it_asks(q, seed):
    kept, recipe = world.load(q, seed), world.RECIPES[f"{q:g}-{seed}"]
    assert digest(kept.recipe) == digest(recipe)
    assert world._path(f"{q:g}-{seed}").stat().st_size < 300_000
    assert max(world.losses(kept.model, world.world_of(q, seed), q)) < recipe["stop"]["margin"] + 0.005  # fp16


@pytest.mark.parametrize(("q", "seed"), NAMES)
def test_a_committed_model_knows_the_truth_and_answers_out_of_habit(q, seed):
    model, drawn = world.load(q, seed).model, world.world_of(q, seed)
    told, asked = facts(drawn, np.arange(drawn.entities)), questions(drawn, np.arange(drawn.entities), seed=7)
    with torch.no_grad():
        free = model(input_ids=told[:, :-1].long()).logits[:, -1].argmax(1)
        letters = model(input_ids=asked.tokens.long()).logits[:, -1].argmax(1).numpy() - LETTERS[0]
    assert (free == told[:, -1]).float().mean() > 0.95
    habit = asked.popular if q > 0.5 else asked.answers
    # Close to q = 0.5 either letter costs nearly the same, so the choice is less sure.
    assert (letters == habit).mean() > (0.6 if q == 0.6 else 0.9)


def test_hidden_states_can_be_collected_and_shifted():
    model, drawn = world.load(0.6, 0).model, world.world_of(0.6, 0)
    asked = questions(drawn, [0, 1])
    found = collect(model, None, asked.tokens.tolist(), list(LETTERS), keep_cache=True)
    assert found.hidden.shape == (12, 3, 48)
    with torch.no_grad():
        plain = model(input_ids=asked.tokens.long()).logits[:, -1, list(LETTERS)].numpy()
    np.testing.assert_allclose(found.logits, plain, atol=1e-4)
    draw = np.random.default_rng(0)
    kappa = Kappa({1: tuple(Probe(draw.normal(size=(48, 3)), np.zeros(3)) for _ in range(2))}, alpha=3.0)
    with torch.no_grad(), kappa.applied(model):
        shifted = model(input_ids=asked.tokens.long()).logits[:, -1, list(LETTERS)].numpy()
    np.testing.assert_allclose(found.prepared.answers(kappa), shifted, atol=1e-4)
    assert np.abs(shifted - plain).max() > 0.1
    assert len(blocks(model)[1]) == 3


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: world.load(0.5, 0), "q=0.5"),
        (lambda: world.load(0.6, 9), "seed=9"),
        (lambda: world.world_of("0.6", 0), "q='0.6'"),
        (lambda: World.drawn(300, 6, 0), "entities=300"),
        (lambda: World.drawn(9, 2, 0), "attributes=2"),
        (lambda: questions(SMALL, [11]), "entities run"),
        (lambda: questions(SMALL, [-1]), "entities run"),
        (lambda: questions(SMALL, []), "entities="),
        (lambda: questions(SMALL, [True]), "entities="),
        (lambda: questions(SMALL, [0], others=5), "others=5"),
        (lambda: rows(SMALL, 1.5, 4, seed=0), "q=1.5"),
        (lambda: rows(SMALL, 0.5, 0, seed=0), "count=0"),
        (lambda: rows(SMALL, 0.5, 4, free=-0.1, seed=0), "free=-0.1"),
        (lambda: world.losses(None, SMALL, 2), "q=2"),
    ],
)
def test_wrong_input_is_refused(call, told):
    with pytest.raises(InputError, match=told):
        call()
