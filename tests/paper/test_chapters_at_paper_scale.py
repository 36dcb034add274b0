"""The chapters at profile `paper`: the same cells on models of the papers' classes, in miniature."""

import json

import datasets
import pytest
import yaml

from icml26 import chapters
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
