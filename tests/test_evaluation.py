"""What zero-shot evaluation refuses before any package of the extra `paper` is needed."""

import importlib.util
import subprocess
import sys

import pytest

from icml26 import evaluation
from icml26.errors import InputError


@pytest.fixture
def bare(monkeypatch):
    """As where the extra `paper` is not installed, whether it is here or not."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_a_missing_package_is_one_line_that_names_the_extra(bare, tmp_path):
    (tmp_path / "dataset_dict.json").write_text("{}")
    for call, package in (
        (lambda: evaluation.zero_shot(None, None, ["arc_easy"]), "lm-eval"),
        (lambda: evaluation.get("arc_easy"), "lm-eval"),
        (lambda: evaluation.get(evaluation.WIKITEXT), "datasets"),
        (lambda: evaluation.dataset_text(evaluation.WIKITEXT), "datasets"),
        (lambda: evaluation.dataset_text(str(tmp_path)), "datasets"),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == (
            f"{package} is not installed; install the paper profile's packages: pip install 'icml26[paper]'"
        )


@pytest.mark.parametrize("tasks", ["arc_easy", [], ["boolq", "boolq"]])
def test_tasks_are_a_list_of_different_names(bare, tasks):
    with pytest.raises(InputError, match=r"tasks=.*: give a list of different names"):
        evaluation.zero_shot(None, None, tasks)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
@pytest.mark.parametrize("name", ["limit", "batch_size"])
def test_limit_and_batch_size_are_positive_integers(bare, name, value):
    with pytest.raises(InputError, match=f"{name}={value!r} must be a positive integer"):
        evaluation.zero_shot(None, None, ["boolq"], **{name: value})


@pytest.mark.parametrize("name", ["wikitext", "a/b/c", "a/b:c:d", "../folder", ""])
def test_a_text_is_a_saved_folder_or_a_hub_name(bare, name):
    with pytest.raises(InputError, match=r"is neither a folder that .* such as Salesforce/wikitext:wikitext-2-raw-v1"):
        evaluation.dataset_text(name)


def test_importing_the_module_brings_none_of_the_extra_s_packages_nor_torch():
    code = (
        "import sys, icml26.evaluation; print(*({'datasets', 'lm_eval', 'torch', 'transformers'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
