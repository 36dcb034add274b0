"""The lists of facts behind KAPPA's questions, and the questions made of them."""

import re

import pytest

from icml26.errors import InputError
from icml26.kappa import facts as module
from icml26.kappa.facts import TASKS, facts, items, spelling, split_items
from icml26.multiple_choice import Item

SPLITS = (44, 16, 30)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_a_hundred_facts_and_no_word_stands_twice(task):
    known = facts(task)
    subjects = [fact.subject for fact in known]
    if task in ("category", "continent"):
        subjects = list(dict.fromkeys(subjects))
        assert min(sum(fact.subject == subject for fact in known) for subject in subjects) >= 12
    words = [word.casefold() for word in (*subjects, *(fact.answer for fact in known))]
    assert len(known) >= 100
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("task", TASKS)
def test_facts_are_clean_texts(task):
    for fact in facts(task):
        for text in fact:
            assert re.fullmatch(r"\w[\w .,-]*", text), text
            assert text == " ".join(text.split())


def test_there_are_twelve_categories():
    assert len({fact.subject for fact in facts("category")}) == 12


def test_a_capital_does_not_give_its_country_away():
    for country, capital in facts("capital"):
        assert country[:5].casefold() not in capital.casefold()
        assert capital.split()[0].casefold() not in country.casefold()


def test_continents_agree_with_the_list_of_capitals_on_names_of_countries():
    known = {fact.subject for fact in facts("capital")}
    here = {fact.answer for fact in facts("continent")}
    assert len(known & here) > 90


def test_answers_that_are_alike_are_answers():
    answers = {fact.answer for fact in facts("antonym")}
    assert {word for group in module._lists()["alike"] for word in group} <= answers


@pytest.mark.parametrize("task", TASKS)
def test_wrong_options_are_answers_of_other_questions_and_never_also_right(task):
    subject_of = {fact.answer: fact.subject for fact in facts(task)}
    for item in items(task, seed=3, options=4):
        right, *wrong = item.options
        assert item.answer == 0
        assert item.question == TASKS[task].format(subject_of[right])
        assert len({subject_of[word] for word in item.options}) == 4
        for group in module._lists()["alike"]:
            assert right not in group or not set(wrong) & set(group)


@pytest.mark.parametrize("task", TASKS)
def test_every_fact_is_asked_once_in_an_order_that_the_seed_decides(task):
    asked = items(task, seed=1)
    assert sorted(item.options[0] for item in asked) == sorted(fact.answer for fact in facts(task))
    assert asked == items(task, seed=1)
    assert asked != items(task, seed=2)


@pytest.mark.parametrize("task", TASKS)
def test_splits_share_no_word(task):
    splits = split_items(task, SPLITS, seed=5)
    assert tuple(map(len, splits)) == SPLITS
    words = [{word for item in split for word in item.options} for split in splits]
    assert [len(found) for found in words] == list(SPLITS)
    assert len(set.union(*words)) == sum(SPLITS)
    asked = [{item.question for item in split} for split in splits]
    shared = asked[0] & asked[1]
    assert bool(shared) == (task in ("category", "continent")), shared  # their subjects are few


def test_splits_have_categories_in_equal_shares():
    for split in split_items("category", (36, 24, 60), seed=2):
        asked = [item.question for item in split]
        counts = [asked.count(question) for question in set(asked)]
        assert len(counts) == 12
        assert max(counts) - min(counts) <= 2


def test_small_splits_can_be_asked_too():
    for seed in range(20):
        for task in TASKS:
            assert [len(split) for split in split_items(task, (12, 6, 6), seed)] == [12, 6, 6]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: facts("capitals"), "did you mean 'capital'"),
        (lambda: split_items("past", (100, 100)), "106 facts of past"),
        (lambda: split_items("past", ()), "sizes="),
        (lambda: split_items("past", (0,)), "sizes=0"),
        (lambda: split_items("past", (2, 2)), "make it larger"),
        (lambda: items("past", options=1), "options=1"),
        (lambda: items("past", seed=-1), "seed=-1"),
        (lambda: items("continent", options=6), "has no 6 options"),
    ],
)
def test_what_cannot_be_asked_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_spelling_answers_past_tenses_and_hardly_anything_else():
    shares = {task: sum(map(spelling, items(task))) / len(items(task)) for task in TASKS}
    assert shares.pop("past") > 0.85
    assert all(0.2 < share < 0.5 for share in shares.values())


def test_spelling_shares_ties():
    options = ("arose", "sank", "Swam", "felt")
    assert spelling(Item("What is the past tense of swim?", options, 2)) == 1
    assert spelling(Item("What is the past tense of swim?", options, 0)) == 0
    assert spelling(Item("What is the past tense of x?", options, 1)) == 0.25
    assert spelling(Item("What is the past tense of S?", options, 1)) == 0.5
