"""Lengths of real models are read as they were measured, or refused in one line."""

import json

import numpy as np
import pytest
from scipy.stats import kendalltau

from icml26 import data
from icml26.errors import InputError
from icml26.tie import lengths, smollm2

RECIPE = {**smollm2.RECIPE, "requests": ["Tell me a joke.", "Why is the sky blue?"], "gsm8k": 0, "cap": 9}


@pytest.fixture
def write(tmp_path):
    def write(**changes):
        path = tmp_path / "lengths.json"
        path.write_text(json.dumps(smollm2.content([[1, 9, 4], [2, 3, 9]], RECIPE) | changes), encoding="utf-8")
        return path

    return write


@pytest.mark.skipif(not data.available("vicuna-lengths"), reason="needs `icml26 data get vicuna-lengths`")
def test_ssjfs_classes_order_vicunas_lengths_as_published():
    found = lengths.vicuna()
    assert len(found.length) == len(found.predicted) == 85_482
    assert (found.length.min(), found.length.max()) == (2, 511)
    assert found.length.std() / found.length.mean() == pytest.approx(0.83, abs=0.005)
    assert sorted(set(found.predicted)) == [0, 1, 2, 3, 4]
    assert kendalltau(found.length, found.predicted).statistic == pytest.approx(0.63, abs=0.005)
    means = [found.length[found.predicted == kind].mean() for kind in range(5)]
    assert means == sorted(means)


def test_what_the_recipe_writes_is_what_is_read(write):
    found = lengths.smollm2(write())
    assert found.prompts == ("Tell me a joke.", "Why is the sky blue?")
    assert found.sources == ("request", "request")
    assert np.array_equal(found.lengths, [[1, 9, 4], [2, 3, 9]])
    assert found.lengths.dtype == np.int64
    assert found.cap == 9


def test_a_length_at_the_cap_is_censored(write):
    assert np.array_equal(lengths.smollm2(write()).capped, [[False, True, False], [False, False, True]])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lengths": [[1, 2]]}, "2 prompts and 1 rows"),
        ({"lengths": [[1, 2], [3]]}, "is damaged"),
        ({"lengths": [[0, 2], [3, 4]]}, "count the end token"),
        ({"lengths": [[1, 12], [3, 4]]}, "above cap=9"),
        ({"lengths": [[1.5, 2], [3, 4]]}, "give integers"),
        ({"cap": "nine"}, "cap='nine'"),
        ({"prompts": [1, 2]}, "is damaged"),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(write, changes, told):
    with pytest.raises(InputError, match=told):
        lengths.smollm2(write(**changes))


def test_a_truncated_file_is_refused(write):
    path = write()
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match="copy it again"):
        lengths.smollm2(path)
