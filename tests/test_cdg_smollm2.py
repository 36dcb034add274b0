"""The committed traces of SmolLM2: what was asked, what was drawn, and the file that holds it."""

import re

import numpy as np
import pytest

from icml26 import checkpoints, models
from icml26.cdg import smollm2
from icml26.cdg.traces import Trace
from icml26.errors import InputError


def test_every_question_asks_for_a_fact_that_stands_in_it():
    for lookup in smollm2.lookups():
        *_, facts, question, _ = lookup.prompt.splitlines()
        name = re.search(r"What is (\w+)'s code\?", question).group(1)
        codes = dict(re.findall(r"(\w+)'s code is (\d{4})\.", facts))
        assert len(codes) == smollm2.RECIPE["people"]
        assert codes[name] == lookup.answer


def test_a_question_does_not_depend_on_how_many_are_asked_for():
    assert smollm2.lookups({**smollm2.RECIPE, "questions": 3}) == smollm2.lookups()[:3]


def test_the_committed_file_was_drawn_by_this_recipe():
    recorded = smollm2.load()
    assert checkpoints.digest(recorded.recipe) == checkpoints.digest(smollm2.RECIPE)
    assert recorded.answers == [lookup.answer for lookup in smollm2.lookups()]
    for traces, starts in zip(recorded.questions, recorded.write_up, strict=True):
        assert len(traces) == len(starts) == smollm2.RECIPE["traces"]
        for trace, start in zip(traces, starts, strict=True):
            assert 1 <= len(trace.confidences) <= smollm2.RECIPE["max_new_tokens"]
            assert (start < len(trace.confidences)) == (trace.answer is not None)
            # ln K is the least a mean over the K most probable tokens can be; float16 rounds.
            assert trace.confidences.min() > np.log(smollm2.RECIPE["log_probabilities"]) - 0.01


def test_what_is_saved_is_read_back(tmp_path):
    recipe = {**smollm2.RECIPE, "questions": 1, "traces": 2}
    traces = [Trace("red", np.array([3.5, 4.25, 5.0]), 2.5), Trace(None, np.array([4.0]), 1.0)]
    smollm2.save(smollm2.Recorded([traces], ["red"], [np.array([1, 1])], recipe), tmp_path / "t.npz")
    read = smollm2.load(tmp_path / "t.npz")
    assert [trace.answer for trace in read.questions[0]] == ["red", None]
    assert [trace.confidences.tolist() for trace in read.questions[0]] == [[3.5, 4.25, 5.0], [4.0]]
    assert (read.answers, read.write_up[0].tolist(), read.recipe) == (["red"], [1, 1], recipe)


def test_a_damaged_or_foreign_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "t.npz"
    with pytest.raises(InputError, match="cannot be read"):
        smollm2.load(path)
    path.write_bytes(smollm2.FILE.read_bytes()[:1000])
    with pytest.raises(InputError, match="damaged"):
        smollm2.load(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(InputError, match="not a file of"):
        smollm2.load(path)
    held = dict(np.load(smollm2.FILE))
    np.savez(path, **{**held, "lengths": held["lengths"] + 1})
    with pytest.raises(InputError, match="recipe"):
        smollm2.load(path)


def test_drawing_measures_each_token_and_finds_the_answer_s_sentence():
    model, tokenizer = models.load_lm("tiny-random-llama")
    recipe = {**smollm2.RECIPE, "traces": 3, "max_new_tokens": 6}
    traces, starts = smollm2.draw(model, tokenizer, smollm2.Lookup("Facts:", "red"), 0, recipe)
    again, _ = smollm2.draw(model, tokenizer, smollm2.Lookup("Facts:", "red"), 0, recipe)
    assert len(traces) == len(starts) == 3
    for trace, same, start in zip(traces, again, starts, strict=True):
        np.testing.assert_array_equal(trace.confidences, same.confidences)
        assert trace.answer is None
        assert start == len(trace.confidences) <= 6
    text = " Emma's code is 12. The answer is 12. The answer is 34.\n"
    answer, start = smollm2._answer(tokenizer, tokenizer.encode(text, add_special_tokens=False))
    assert answer == "34"
    assert text[start:].startswith("The answer is 34")
