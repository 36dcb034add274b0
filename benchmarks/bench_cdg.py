"""CDG's vote over 30 questions of 512 traces of 10,000 tokens, beside the same vote as a loop over traces and tokens.

Questions come from an iterator over a few that are held, as they would from files: the memory that a vote needs beside
them does not grow with their number.
"""

import tracemalloc

import numpy as np
import pytest

from icml26.cdg.question import Question, Trace
from icml26.cdg.voting import vote

QUESTIONS, TRACES, TOKENS = 30, 512, 10_000
VOTES = "CDG's vote over traces of 10,000 tokens, in float32"
SHORT = "CDG's vote over 64 traces of 100 tokens"


def traces(number, tokens, seed):
    generator = np.random.default_rng(seed)
    answers = generator.integers(0, 12, number)
    values = generator.gamma(40, 0.25, (number, tokens)).astype(np.float32)
    return [Trace(str(answer), row) for answer, row in zip(answers, values, strict=True)]


def looped(question, alpha=0.5, beta=10.0, percent=10):
    """The vote in plain Python, from lists of numbers as a decoded file holds them."""
    scores, counts = {}, {}
    for answer, values in question:
        k = max(1, len(values) * percent // 100)
        score = sum(values) / len(values) + beta * (sum(values[-k:]) - sum(values[:k])) / k
        scores[answer] = scores.get(answer, 0.0) + score
        counts[answer] = counts.get(answer, 0) + 1
    return max(scores, key=lambda answer: counts[answer] ** alpha * scores[answer] / counts[answer])


@pytest.fixture(scope="module")
def held():
    return [traces(TRACES, TOKENS, seed) for seed in range(2)]


def test_loop(measure, held):
    few = held[0][:8]
    lists = [(trace.answer, trace.confidences.tolist()) for trace in few]
    winner = measure(VOTES, "a loop over 8 traces, sums of lists", 8 * TOKENS, "token", looped, lists, baseline=True)
    assert winner == vote(few).winner


@pytest.mark.parametrize("number", [64, TRACES])
def test_one_question(measure, held, number):
    question = Question.of(held[0][:number])
    found = measure(VOTES, f"`vote`, {number} traces of one question", number * TOKENS, "token", vote, question)
    assert sum(found.counts.values()) == number


def test_all_questions(measure, held):
    def run():
        return [vote(held[index % len(held)]).winner for index in range(QUESTIONS)]

    label = f"`vote`, {QUESTIONS} questions of {TRACES} traces, from lists of arrays"
    winners = measure(VOTES, label, QUESTIONS * TRACES * TOKENS, "token", run)
    assert winners[::2] == winners[:1] * (QUESTIONS // 2)


def test_a_vote_needs_the_memory_of_one_question(held):
    one = sum(trace.confidences.nbytes for trace in held[0])
    tracemalloc.start()
    for index in range(4):
        vote(held[index % len(held)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * one


def test_short_loop(measure):
    question = traces(64, 100, 2)
    lists = [(trace.answer, trace.confidences.tolist()) for trace in question]
    assert measure(SHORT, "a loop, sums of lists", 64, "trace", looped, lists, baseline=True) == vote(question).winner


def test_short(measure):
    question = Question.of(traces(64, 100, 2))
    assert measure(SHORT, "`vote`", 64, "trace", vote, question).winner == vote(question).winner
