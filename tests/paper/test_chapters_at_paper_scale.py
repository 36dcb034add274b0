"""The chapters at profile `paper`: the same cells on models of the papers' classes, in miniature."""

import json

import datasets
import pytest
import yaml

from icml26 import chapters, tasks
from icml26.runner import run_chapter

SLUG = "15_s_quant"
TASKS = ["arc_easy", "boolq"]


def test_s_quant_runs_at_the_paper_profile_by_parameters_alone(language_model, wikitext, tmp_path, project):
    knobs = chapters.parameters(chapters.read(SLUG))
    if "language_model" not in knobs:
        pytest.skip(f"chapter {SLUG} has no parameter `language_model` yet")
    # The sizes are those of profile `quick`; models and data are what the profile `paper` names, in miniature.
    quick = chapters.profile("quick")[SLUG]["parameters"]
    names = {
        "model": language_model,
        "language_model": language_model,
        "loss_text": wikitext,
        "zero_shot": TASKS if knobs["zero_shot"].type == "list[str]" else ",".join(TASKS),
    }
    overrides = {**quick, **names}
    result = json.loads(run_chapter(SLUG, profile="paper", overrides=overrides, out=tmp_path).read_text())

    assert result["profile"] == "paper"
    assert {name: result["parameters"][name] for name in names} == names
    claims = yaml.safe_load((project / "book" / "claims" / f"{SLUG}.yml").read_text())["claims"]
    assert [claim["id"] for claim in result["claims"]] == [claim["id"] for claim in claims]
    verdicts = {claim["id"]: claim["verdict"] for claim in result["claims"]}
    assert verdicts["Q1"] != "not tested"  # the language model's loss was measured
    assert verdicts["Q6"] == "holds"  # the only claim whose own setting a miniature has
    assert not [name for name in ("Q1", "Q2", "Q3", "Q4") if verdicts[name] == "holds"]
    cells = json.loads((tmp_path / f"{SLUG}.ipynb").read_text())["cells"]
    shown = json.dumps([cell.get("outputs") for cell in cells])
    assert all(task in shown for task in TASKS)


def judged(path, project):
    """Verdicts of a finished run by claim; every claim has one."""
    result = json.loads(path.read_text())
    claims = yaml.safe_load((project / "book" / "claims" / f"{path.stem}.yml").read_text())["claims"]
    assert result["profile"] == "paper"
    assert [claim["id"] for claim in result["claims"]] == [claim["id"] for claim in claims]
    return {claim["id"]: claim["verdict"] for claim in result["claims"]}


def test_tie_runs_at_the_paper_profile_with_a_model_and_prompts_of_one_s_own(language_model, tmp_path, project):
    rows = [{"conversation": [{"role": "user", "content": f"Tell me about number {n}."}]} for n in range(30)]
    prompts = tmp_path / "prompts"
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(prompts))
    quick = chapters.profile("quick")["08_tie"]["parameters"]
    # A random model hardly ever ends an answer, so that only the kept answers say something of laws.
    names = {"language_model": language_model, "prompt_texts": str(prompts), "cap": 16, "assistant": True}
    found = judged(run_chapter("08_tie", profile="paper", overrides={**quick, **names}, out=tmp_path), project)
    assert found["C5"] == "holds"
    assert found["C8"] == "not tested"
    assert "not tested" not in {found[name] for name in ("C1", "C2", "C3", "C4", "C6", "C7", "C9")}


def test_cdg_runs_at_the_paper_profile_with_a_model_and_questions_of_one_s_own(language_model, tmp_path, project):
    rows = [{"problem_idx": n, "problem": f"What is {n} + {n}?", "answer": 2 * n} for n in range(8)]
    asked = tmp_path / "asked"
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(asked))
    quick = chapters.profile("quick")["01_cdg"]["parameters"]
    # A random model never fills a box, and six questions leave none to compare before and after GRPO.
    names = {
        "language_model": language_model,
        "question_set": str(asked),
        "questions": 6,
        "traces": 8,
        "top": 20,
        "max_new_tokens": 24,
    }
    settings = {"temperature": 0.6, "top_p": 0.95, "budgets": [4, 8]}
    path = run_chapter("01_cdg", profile="paper", overrides={**quick, **names, **settings}, out=tmp_path)
    found = judged(path, project)
    assert {found[name] for name in ("C1", "C2", "C3a", "C3b", "C4a", "C4b", "C4c", "C5", "C6")} == {"not tested"}
    cells = json.loads((tmp_path / "01_cdg.ipynb").read_text())["cells"]
    assert "eligible" in json.dumps([cell.get("outputs") for cell in cells])


def test_nqs_runs_at_the_paper_profile_on_a_table_of_one_s_own(tmp_path, project):
    from icml26 import data

    if not data.available("nqs"):
        pytest.skip("data file nqs is not on this machine")
    table = tmp_path / "runs.csv"
    table.write_bytes(data.path("nqs").read_bytes())
    quick = chapters.profile("quick")["19_nqs"]["parameters"]
    released = {
        "limit_steps": 20_000,
        "limit_parameters": 64_000_000,
        "limit_batch": 1024,
        "small_batch": 192,
        "gap": 64,
    }
    overrides = {**quick, **released, "data": str(table)}
    found = judged(run_chapter("19_nqs", profile="paper", overrides=overrides, out=tmp_path), project)
    assert "not tested" not in {found[name] for name in ("C1", "C2", "C3", "C5", "C6", "C7", "C8", "C9")}


def test_top_w_runs_at_the_paper_profile_with_a_model_of_one_s_own(language_model, tmp_path, project):
    from icml26 import data

    if not data.available("gsm8k-test"):
        pytest.skip("data file gsm8k-test is not on this machine")
    quick = chapters.profile("quick")["17_top_w"]["parameters"]
    names = {"language_model": language_model, "task": "gsm8k", "shots": 1, "new_tokens": 16, "samples": 2}
    found = judged(run_chapter("17_top_w", profile="paper", overrides={**quick, **names}, out=tmp_path), project)
    assert found["C6"] == found["C7"] == "holds"
    assert found["C4"] == "not tested"
    measured = {name for name in found if name not in ("C4", "C6", "C7")}
    assert not {found[name] for name in measured} & {"not tested", "holds"}  # a random model is no 8B model


def test_gsrq_runs_at_the_paper_profile_with_a_model_and_a_text_of_one_s_own(language_model, tmp_path, project):
    quick = chapters.profile("quick")["12_gsrq"]["parameters"]
    rows = tasks.english_text("train")[:40_000].split("\n\n")  # enough for calibration, validation and test
    datasets.DatasetDict({"test": datasets.Dataset.from_dict({"text": rows})}).save_to_disk(str(tmp_path / "text"))
    names = {"language_model": language_model, "calibration_text": str(tmp_path / "text")}
    found = judged(run_chapter("12_gsrq", profile="paper", overrides={**quick, **names}, out=tmp_path), project)
    assert {name for name in found if found[name] == "not tested"} == {"C4", "C7"}
    assert not [name for name in found if found[name] == "holds"]  # a random model is no 8B model


def test_kappa_runs_at_the_paper_profile_with_a_model_and_questions_of_one_s_own(language_model, tmp_path, project):
    answers = ["rain", "stone", "bread", "glass", "wood"]
    names = ["truthful_qa", "choices"]
    for place, name in enumerate(names):
        rows = [
            {
                "question": f"Which of these is number {n} of list {place}?",
                "choices": [answers[(n + step) % 5] for step in range(4)],
                "answer": n % 4,
            }
            for n in range(40)
        ]
        folder = tmp_path / name
        datasets.DatasetDict({"validation": datasets.Dataset.from_list(rows)}).save_to_disk(str(folder))
    quick = chapters.profile("quick")["09_kappa"]["parameters"]
    # A tokenizer made for the test has no chat template.
    own = {"language_model": language_model, "tasks": [str(tmp_path / name) for name in names], "chat": False}
    overrides = {**quick, "train_items": 40, "data_split": "validation", **own}
    found = judged(run_chapter("09_kappa", profile="paper", overrides=overrides, out=tmp_path), project)
    assert found["A10"] == "not tested"
    assert found["A3"] == "not tested"  # two tasks have no rank correlation
    assert "not tested" not in {found[name] for name in ("A1", "A4", "A4b", "A5", "A7", "A9", "A11", "A12")}
    assert found["A1"] != "holds"  # a random model knows nothing


def test_questions_come_with_their_answers(tmp_path):
    from icml26 import evaluation
    from icml26.errors import InputError

    datasets.Dataset.from_dict({"problem": [" 1 + 1? "], "answer": [2]}).save_to_disk(str(tmp_path / "sums"))
    assert evaluation.dataset_questions(str(tmp_path / "sums")) == [("1 + 1?", "2")]
    datasets.Dataset.from_dict({"problem": ["1 + 1?"]}).save_to_disk(str(tmp_path / "open"))
    with pytest.raises(InputError, match="column `answer`"):
        evaluation.dataset_questions(str(tmp_path / "open"))


def test_prompts_are_the_first_turns_of_chats(tmp_path):
    from icml26 import evaluation
    from icml26.errors import InputError

    turns = [[{"role": "user", "content": " Why? "}, {"role": "assistant", "content": "So."}], [], None]
    datasets.Dataset.from_list([{"conversation": turn} for turn in turns]).save_to_disk(str(tmp_path / "chats"))
    assert evaluation.dataset_prompts(str(tmp_path / "chats")) == ["Why?"]
    datasets.Dataset.from_dict({"question": ["One?", ""]}).save_to_disk(str(tmp_path / "questions"))
    assert evaluation.dataset_prompts(str(tmp_path / "questions")) == ["One?"]
    datasets.Dataset.from_dict({"line": ["one"]}).save_to_disk(str(tmp_path / "lines"))
    with pytest.raises(InputError, match="none of the columns conversation"):
        evaluation.dataset_prompts(str(tmp_path / "lines"))
