"""Every text of the task is its own solution and no other text is; problems and orders are as uniform as they claim."""

import re
import time
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from icml26.arithmetic.task import (
    END,
    VOCABULARY,
    Checked,
    Problems,
    Task,
    answer,
    check,
    check_all,
    decode,
    encode,
    orders,
    problems,
    texts,
)
from icml26.errors import InputError

tasks = st.builds(Task, branches=st.integers(1, 3), steps=st.integers(1, 16), checked=st.booleans())
seeds = st.integers(0, 2**32)
few = settings(max_examples=25, deadline=None)


def solutions(some, seed=0):
    return texts(some, seed)[:, some.task.prompt_length :]


def evaluated(prompt: str) -> str:
    """The answer by Python's own arithmetic: each branch as one expression."""
    total = 0
    for branch in "abc":
        found = re.findall(rf"{branch}\d+ ([-+*]?) ?(\d)", prompt)
        expression = ""
        for sign, digit in found:
            expression = f"({expression}{sign}{digit})"
        total += eval(expression or "0")
    return str(total % 10)


@given(st.lists(st.sampled_from(VOCABULARY), min_size=1))
def test_decoding_what_was_encoded_gives_the_text_back(words):
    assert decode(encode(" ".join(words))) == " ".join(words)


def test_the_vocabulary_holds_no_token_twice_and_ids_fit_one_byte():
    assert len(set(VOCABULARY)) == len(VOCABULARY) == 71


@few
@given(tasks, seeds)
def test_a_text_is_prompt_and_solution_of_the_lengths_that_the_task_states(task, seed):
    some = problems(task, 3, seed)
    written = texts(some, seed)
    assert written.shape == (3, task.length)
    assert torch.equal(written[:, : task.prompt_length], torch.stack(some.prompts))
    assert (written == END).sum(1).tolist() == [1, 1, 1]
    assert (written[:, -1] == END).all()
    assert task.length == task.prompt_length + task.solution_length


@few
@given(tasks, seeds)
def test_answers_are_those_of_an_independent_evaluation_of_the_prompt(task, seed):
    some = problems(task, 5, seed)
    assert some.answers == [evaluated(decode(prompt)) for prompt in some.prompts]


@few
@given(tasks, seeds)
def test_every_step_that_a_text_writes_is_true_and_starts_from_the_branchs_last_value(task, seed):
    some = problems(task, 2, seed)
    for prompt, solution in zip(some.prompts, solutions(some, seed), strict=True):
        values = dict(re.findall(r"([abc])0 (\d)", decode(prompt)))
        asked = dict(re.findall(r"([abc]\d+) ([-+*] \d)", decode(prompt)))
        body = decode(solution).split(" # ")[0]
        once = body.split(" check ")
        assert len(once) == 1 + task.checked
        assert len(set(once)) == 1
        for label, before, operation, after in re.findall(r"([abc]\d+) (\d) ([-+*] \d) = (\d)", once[0]):
            assert before == values[label[0]]
            assert operation == asked.pop(label)
            assert int(after) == eval(f"{before}{operation}") % 10
            values[label[0]] = after
        assert asked == {}


@few
@given(tasks, seeds)
def test_every_text_passes_the_check_with_its_own_order(task, seed):
    some = problems(task, 4, seed)
    written = solutions(some, seed)
    found = check_all(some, written[:, None])
    assert found.valid.all()
    assert found.correct.all()
    assert [str(digit) for digit in found.answers[:, 0]] == some.answers
    for index, solution in enumerate(written):
        labels = re.findall(r"[abc]\d+", decode(solution))[: task.branches * task.steps]
        assert check(some, index, solution) == Checked(some.answers[index], True, True, tuple(labels))
        assert decode(found.orders[index, 0]).split() == labels


@few
@given(tasks, seeds, st.floats(0, 1, exclude_max=True), st.integers(1, len(VOCABULARY) - 1))
def test_a_text_with_any_one_token_changed_fails(task, seed, place, change):
    some = problems(task, 1, seed)
    written = solutions(some, seed)[0]
    at = int(place * len(written))
    written[at] = (written[at] + change) % len(VOCABULARY)
    found = check(some, 0, written)
    assert not found.valid
    assert found.order is None


@few
@given(tasks, seeds)
def test_tokens_after_the_end_do_not_count_and_a_solution_cut_short_is_none(task, seed):
    some = problems(task, 1, seed)
    written = solutions(some, seed)[0]
    longer = torch.cat([written, torch.tensor([3, END, 7])])
    assert check(some, 0, longer) == check(some, 0, written)
    assert check(some, 0, written[:-1]) == Checked(None, False, False, None)


def test_orders_are_counted_and_accepted_as_brute_force_finds_them():
    for task in (Task(1, 4), Task(2, 3), Task(3, 2), Task(2, 2, checked=True)):
        some = problems(task, 1, seed=3)
        solution = solutions(some)[0]
        count = 6 * task.branches * task.steps
        steps = [solution[i : i + 6] for i in range(0, count, 6)]
        accepted = set()
        for order in permutations(range(len(steps))):
            body = torch.cat([steps[i] for i in order])
            middle = [encode("check"), body] if task.checked else []
            found = check(some, 0, torch.cat([body, *middle, solution[-task._answer_length :]]))
            if found.valid:
                accepted.add(found.order)
        assert len(accepted) == orders(task)
        for order in accepted:
            for branch in "abc"[: task.branches]:
                assert [label for label in order if label[0] == branch] == [
                    f"{branch}{step}" for step in range(1, task.steps + 1)
                ]


def test_texts_use_every_order_equally_often():
    task = Task(branches=2, steps=3)
    some = problems(task, 1, seed=0)[np.zeros(8000, dtype=int)]
    found = check_all(some, solutions(some, seed=4)[:, None]).orders[:, 0]
    counts = Counter(map(bytes, found))
    assert len(counts) == orders(task)
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_problems_are_uniform_and_so_are_their_answers():
    some = problems(Task(branches=1, steps=6), 20_000, seed=1)
    assert chisquare(np.bincount(some.starts.ravel(), minlength=10)).pvalue > 1e-3
    assert chisquare(np.bincount(some.signs.ravel())).pvalue > 1e-3
    assert chisquare(np.bincount([int(digit) for digit in some.answers], minlength=10)).pvalue > 1e-3
    times = some.operands[some.signs == 2]
    assert set(times.tolist()) == {3, 7, 9}
    assert set(some.operands[some.signs < 2].tolist()) == set(range(1, 10))


def test_equal_seeds_give_equal_problems_and_texts_and_other_seeds_others():
    task = Task()
    first, again, other = (problems(task, 50, seed) for seed in (5, 5, 6))
    assert torch.equal(texts(first, 1), texts(again, 1))
    assert not torch.equal(texts(first, 1), texts(first, 2))
    assert not torch.equal(torch.stack(first.prompts), torch.stack(other.prompts))


def test_problems_are_indexed_like_arrays():
    some = problems(Task(), 6, seed=0)
    assert len(some) == 6
    assert some[-1].answers == some.answers[-1:]
    assert some[2:4].answers == some.answers[2:4]
    assert some[np.array([True, False] * 3)].answers == some.answers[::2]
    assert [one.answers[0] for one in some] == some.answers


def test_values_of_a_problem_worked_by_hand():
    some = Problems(
        Task(2, 3), np.array([[3, 7]]), np.array([[[0, 2, 1], [2, 1, 0]]]), np.array([[[4, 7, 9], [3, 6, 5]]])
    )
    assert decode(some.prompts[0]) == "<s> a0 3 , a1 + 4 , a2 * 7 , a3 - 9 , b0 7 , b1 * 3 , b2 - 6 , b3 + 5 ?"
    solution = "b1 7 * 3 = 1 a1 3 + 4 = 7 a2 7 * 7 = 9 b2 1 - 6 = 5 b3 5 + 5 = 0 a3 9 - 9 = 0 # 0 + 0 = 0 ."
    assert check(some, 0, encode(solution)).valid
    assert not check(some, 0, encode(solution.replace("a1 3", "b3 3"))).valid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# 4 .", "4"),
        ("a1 3 # 4 + 5 = 8 . # 4 .", "8"),
        ("# # 1 + 2 + 3 = 4 .", "4"),
        ("# 1 + 2 + 3 + 4 = 5 .", None),
        ("# 1 + 2 + = 5 .", None),
        ("# 1 - 2 = 5 .", None),
        ("4 .", None),
        ("# 4", None),
        ("# a1 .", None),
        ("# .", None),
        (". # 4 .", None),
        ("= 4 .", None),
        ("", None),
    ],
)
def test_only_a_well_formed_end_is_an_answer(text, expected):
    assert answer(encode(text)) == expected


def test_thousands_of_continuations_are_judged_at_once():
    some = problems(Task(branches=1, steps=10), 500, seed=0)
    tokens = solutions(some)[:, None].expand(-1, 40, -1)
    start = time.process_time()
    assert check_all(some, tokens).valid.all()
    assert time.process_time() - start < 3


def test_wrong_arguments_are_named_in_one_line():
    some = problems(Task(), 2, seed=0)
    cases = [
        (lambda: Task(branches=4), "branches=4"),
        (lambda: Task(steps=17), "steps=17"),
        (lambda: Task(checked=1), "checked=1"),
        (lambda: problems(Task(), 0, seed=0), "n=0"),
        (lambda: problems(Task(), 1, seed=-1), "seed=-1"),
        (lambda: texts(some, seed=True), "seed=True"),
        (lambda: encode("a1 3 plus 4"), "'plus'"),
        (lambda: decode([71]), "hold 71"),
        (lambda: decode([-1]), "hold -1"),
        (lambda: decode([0.5]), "give integers"),
        (lambda: check(some, 2, encode("# 4 .")), "index=2"),
        (lambda: check_all(some, np.zeros((3, 1, 5), dtype=int)), "of 3 problems"),
        (lambda: check_all(some, np.zeros((2, 5), dtype=int)), "2 axes"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
