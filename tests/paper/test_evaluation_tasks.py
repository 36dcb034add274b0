"""Zero-shot accuracy and texts through lm-eval and datasets, on models and data sets of a few bytes."""

import json

import numpy as np
import pytest
import torch

from icml26 import evaluation, models
from icml26.errors import InputError, MissingData

TASKS = ["arc_easy", "arc_challenge", "hellaswag", "winogrande", "boolq"]
# A wrong answer that is likelier than the right one to a model that prefers the letter e to all else.
ITEMS = [{"q": "One", "options": ["e", "x"], "answer": 0}, {"q": "Two", "options": ["e", "x"], "answer": 1}]


@pytest.fixture
def task_file(tmp_path):
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, ITEMS)))
    file = tmp_path / "two_lines.yaml"
    file.write_text(
        "task: two_lines\n"
        "dataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {tmp_path}/items.jsonl}}, cache_dir: {tmp_path}/cache}}\n"
        "output_type: multiple_choice\n"
        "test_split: test\n"
        "doc_to_text: '{{q}}'\n"
        "doc_to_target: answer\n"
        "doc_to_choice: '{{options}}'\n"
        "metric_list: [{metric: acc}]\n"
    )
    return str(file)


@pytest.fixture
def partial_to_e():
    """A language model that gives one token, the byte e, the greatest likelihood everywhere."""
    model, tokenizer = models.load_lm("tiny-random-llama")
    head = torch.nn.Linear(128, 259)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    head.bias.data[tokenizer("e")["input_ids"][0]] = 1.0
    model.config.tie_word_embeddings = False
    model.lm_head = head
    return model, tokenizer


def test_each_item_is_marked_by_the_likelier_choice_in_the_data_set_s_order(partial_to_e, task_file):
    marks = evaluation.zero_shot(*partial_to_e, [task_file])
    assert list(marks) == [task_file]
    np.testing.assert_array_equal(marks[task_file], [1, 0])


def test_a_limit_keeps_the_first_items(partial_to_e, task_file):
    np.testing.assert_array_equal(evaluation.zero_shot(*partial_to_e, [task_file], limit=1)[task_file], [1])


def test_the_paper_s_five_tasks_run_by_name_from_the_hub_s_cache_on_both_models(language_model, capfd):
    model, tokenizer = models.load_lm(language_model)
    padding, state = tokenizer.pad_token, torch.random.get_rng_state()
    marks = evaluation.zero_shot(model, tokenizer, TASKS)
    assert list(marks) == TASKS
    for items in marks.values():
        assert items.shape == (2,)
        assert set(items) <= {0, 1}
    again = evaluation.zero_shot(model, tokenizer, TASKS[:2], batch_size=1)
    for task in again:
        np.testing.assert_array_equal(again[task], marks[task])
    assert tokenizer.pad_token == padding
    assert torch.equal(torch.random.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")


def test_a_data_set_that_is_not_here_is_never_downloaded_and_named_with_both_ways_to_have_it(partial_to_e):
    with pytest.raises(MissingData, match=r"data of openbookqa is not .*evaluation.get\('openbookqa'\).*, or name a"):
        evaluation.zero_shot(*partial_to_e, ["openbookqa"])
    with pytest.raises(MissingData, match=r"data of nobody/nothing is not .*evaluation.get\(.*, or name a folder"):
        evaluation.dataset_text("nobody/nothing")


def test_getting_what_is_here_already_needs_no_network_nor_progress_bars(monkeypatch, capfd):
    import datasets
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    lines = []
    evaluation.get("boolq", lines.append)
    evaluation.get(evaluation.WIKITEXT, lines.append)
    assert [line.rpartition(": ")[2] for line in lines][1::2] == ["ready", "ready"]
    with pytest.raises(MissingData, match="data of nobody/nothing could not be downloaded: "):
        evaluation.get("nobody/nothing")
    assert capfd.readouterr() == ("", "")


def test_unknown_tasks_groups_and_tasks_without_choices_are_refused(partial_to_e, task_file, tmp_path):
    for task, said in (
        ("bolq", "did you mean 'boolq'?"),
        ("mmlu", "'mmlu' is a group"),
        (f"{tmp_path}/none.yaml", "none.yaml does not exist"),
    ):
        with pytest.raises(InputError, match=said.replace("?", r"\?")):
            evaluation.zero_shot(*partial_to_e, [task])
    text = (tmp_path / "two_lines.yaml").read_text()
    (tmp_path / "free.yaml").write_text(text.replace("multiple_choice", "generate_until"))
    with pytest.raises(InputError, match="does not measure the accuracy"):
        evaluation.zero_shot(*partial_to_e, [f"{tmp_path}/free.yaml"])
    (tmp_path / "broken.yaml").write_text(text.replace("items.jsonl", "gone.jsonl"))
    with pytest.raises(InputError, match=r"broken.yaml could not be loaded: .*gone.jsonl"):
        evaluation.zero_shot(*partial_to_e, [f"{tmp_path}/broken.yaml"])


def test_a_text_is_the_same_from_a_folder_and_from_the_hub_s_cache(wikitext):
    text = evaluation.dataset_text(wikitext)
    assert text == evaluation.dataset_text(evaluation.WIKITEXT)
    assert text.startswith(" = Rain and sand 1 = \n")
    assert text.count("\n\n\n = Rain and sand 2") == 1  # the first row ends with a line break; joining adds two


def test_texts_without_the_split_or_the_column_are_refused(tmp_path):
    import datasets

    data = datasets.Dataset.from_dict({"line": ["one"]})
    data.save_to_disk(str(tmp_path / "lines"))
    datasets.DatasetDict({"train": data}).save_to_disk(str(tmp_path / "train"))
    with pytest.raises(InputError, match="no column `text`, only line"):
        evaluation.dataset_text(str(tmp_path / "lines"))
    with pytest.raises(InputError, match="no split `test`, only train"):
        evaluation.dataset_text(str(tmp_path / "train"))
