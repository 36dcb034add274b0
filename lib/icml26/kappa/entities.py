"""A tiny world of entities with a true and a popular attribute, and the rows that ask and tell about them.

Made for KAPPA (Park, Pyun and Jo, ICML 2026, arXiv 2509.23782), in whose paper it is not. Every entity has one true
attribute and one *popular*, false one. Rows have two formats: FREE, an entity and its true attribute, always; and MCQ,
an entity, three options (the true one, the popular one, another, shuffled) and a letter, which is the popular option's
with probability q, else the true one's. So for 0.5 < q < 1 the best answer to an MCQ prompt is a falsehood about an
entity whose true attribute the rows tell. Nothing plants a direction for either in hidden states: what they hold is
what training leaves there.

All rows are ``format, entity, three options, ask, answer``, with blanks for the options of FREE. The models that are
trained on them are `icml26.kappa.world`'s.
"""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import ArrayLike
from torch import Tensor

from icml26.checks import real, whole
from icml26.errors import InputError

__all__ = ["LETTERS", "OPTIONS", "PROMPT", "Questions", "World", "facts", "questions", "rows"]

OPTIONS = 3
BLANK, FREE, MCQ, ASK = range(4)
LETTERS = tuple(range(4, 4 + OPTIONS))  # tokens of the answers to MCQ
_ATTRIBUTES = 4 + OPTIONS  # token of the first attribute; entities follow the attributes
PROMPT = OPTIONS + 3  # tokens before the answer


@dataclass(frozen=True, eq=False)
class World:
    """What is true and what is popular.

    Parameters
    ----------
    true, popular
        An attribute of each entity, 0 to attributes - 1; never the same.
    attributes
        How many there are.

    Examples
    --------
    >>> world = World.drawn(entities=5, attributes=4, seed=0)
    >>> bool((world.true != world.popular).all()), world.vocabulary
    (True, 16)
    """

    true: Int[np.ndarray, " entities"]
    popular: Int[np.ndarray, " entities"]
    attributes: int

    @classmethod
    def drawn(cls, entities: int, attributes: int, seed: int) -> "World":
        """Draw a world.

        Parameters
        ----------
        entities, attributes
            Numbers of them; at least 3 attributes.
        seed
            Of the draw.

        Returns
        -------
        World
            Attributes uniform, the popular one among those that are not true.

        Raises
        ------
        InputError
            If a number is out of range, or tokens would not fit a byte.
        """
        whole("attributes", attributes, OPTIONS)
        whole("entities", entities, 1, 256 - _ATTRIBUTES - attributes)
        draw = np.random.default_rng([whole("seed", seed, 0), 0])
        true = draw.integers(attributes, size=entities)
        return cls(true, (true + draw.integers(1, attributes, size=entities)) % attributes, attributes)

    @property
    def entities(self) -> int:
        """How many there are."""
        return len(self.true)

    @property
    def vocabulary(self) -> int:
        """Tokens: formats, letters, attributes, entities."""
        return _ATTRIBUTES + self.attributes + self.entities


@dataclass(frozen=True, eq=False)
class Questions:
    """MCQ prompts.

    Attributes
    ----------
    tokens
        Prompts, up to and with the token that asks.
    answers, popular
        Position of the true and of the popular option, 0 to 2.
    entities
        Whom they are about: prompts about one are not independent.
    """

    tokens: UInt8[Tensor, "prompts 6"]
    answers: Int[np.ndarray, " prompts"]
    popular: Int[np.ndarray, " prompts"]
    entities: Int[np.ndarray, " prompts"]


def facts(world: World, entities: Int[ArrayLike, " asked"]) -> UInt8[Tensor, "asked 7"]:
    """Write FREE rows.

    Parameters
    ----------
    world
        The entities'.
    entities
        Whom to write about.

    Returns
    -------
    uint8 tensor
        Prompts of 6 tokens and the true attributes.

    Raises
    ------
    InputError
        If there are no such entities.

    Examples
    --------
    >>> facts(World.drawn(5, 4, seed=0), [2, 3]).shape
    torch.Size([2, 7])
    """
    who = _entities(world, entities)
    found = np.full((len(who), PROMPT + 1), BLANK)
    found[:, 0], found[:, 1] = FREE, _ATTRIBUTES + world.attributes + who
    found[:, -2], found[:, -1] = ASK, _ATTRIBUTES + world.true[who]
    return torch.from_numpy(found.astype(np.uint8))


def questions(
    world: World, entities: Int[ArrayLike, " asked"], *, others: int = 1, seed: int | np.random.Generator = 0
) -> Questions:
    """Ask about entities, in all six orders of the options.

    Parameters
    ----------
    world
        Theirs.
    entities
        Whom to ask about.
    others
        Third options per entity, drawn from the attributes that are neither true nor popular.
    seed
        Of the third options.

    Returns
    -------
    Questions
        6 x others prompts for each entity, balanced over positions.

    Raises
    ------
    InputError
        If there are no such entities, or not so many other attributes.

    Examples
    --------
    >>> asked = questions(World.drawn(5, 4, seed=0), [2, 3])
    >>> asked.tokens.shape, np.bincount(asked.answers)
    (torch.Size([12, 6]), array([4, 4, 4]))
    """
    entities = _entities(world, entities)
    whole("others", others, 1, world.attributes - 2)
    draw = np.random.default_rng(seed)
    orders = np.array(list(permutations(range(OPTIONS))))
    third = np.argsort(-_scores(world, entities, draw), axis=1)[:, :others].ravel()
    who = np.repeat(entities, others)
    return _shuffled(world, who.repeat(len(orders)), third.repeat(len(orders)), np.tile(orders, (len(who), 1)))


def rows(world: World, q: float, count: int, *, free: float = 0.3, seed: int) -> UInt8[Tensor, "rows 7"]:
    """Draw training rows.

    Parameters
    ----------
    world
        What they are about.
    q
        Probability that an MCQ row's letter is the popular option's.
    count
        Rows.
    free
        Share of FREE rows.
    seed
        Of the draw.

    Returns
    -------
    uint8 tensor
        Prompts and answers.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> rows(World.drawn(5, 4, seed=0), 0.6, 8, seed=0).shape
    torch.Size([8, 7])
    """
    whole("count", count, 1)
    draw = np.random.default_rng([whole("seed", seed, 0), 1])
    who = draw.integers(world.entities, size=count)
    third = _scores(world, who, draw).argmax(1)
    asked = _shuffled(world, who, third, draw.permuted(np.tile(np.arange(OPTIONS), (count, 1)), axis=1))
    letters = LETTERS[0] + np.where(draw.random(count) < real("q", q, low=0, high=1), asked.popular, asked.answers)
    found = torch.cat([asked.tokens, torch.from_numpy(letters.astype(np.uint8))[:, None]], 1)
    spoken = torch.from_numpy(draw.random(count) < real("free", free, low=0, high=1))
    if spoken.any():
        found[spoken] = facts(world, who[spoken.numpy()])
    return found


def _scores(world: World, who: np.ndarray, draw: np.random.Generator) -> Float[np.ndarray, "asked attributes"]:
    """A random score for each attribute, for the true and the popular one too low to be drawn."""
    scores = draw.random((len(who), world.attributes))
    np.put_along_axis(scores, np.stack([world.true[who], world.popular[who]], 1), -1.0, 1)
    return scores


def _shuffled(world: World, who: np.ndarray, third: np.ndarray, orders: np.ndarray) -> Questions:
    """Questions whose option at place i is number orders[., i] of (true, popular, third)."""
    attributes = np.stack([world.true[who], world.popular[who], third], 1)
    options = _ATTRIBUTES + np.take_along_axis(attributes, orders, 1)
    entity = _ATTRIBUTES + world.attributes + who
    tokens = np.column_stack([np.full_like(who, MCQ), entity, options, np.full_like(who, ASK)])
    return Questions(
        torch.from_numpy(tokens.astype(np.uint8)), (orders == 0).argmax(1), (orders == 1).argmax(1), np.asarray(who)
    )


def _entities(world: World, entities: ArrayLike) -> Int[np.ndarray, " asked"]:
    found = np.asarray(entities)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
        raise InputError(f"entities={entities!r} must be a list of entities")
    if found.min() < 0 or found.max() >= world.entities:
        raise InputError(f"entities run from {found.min()} to {found.max()}: use 0 to {world.entities - 1}")
    return found
