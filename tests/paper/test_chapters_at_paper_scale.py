"""The chapters at profile `paper`: the same cells on models of the papers' classes, in miniature."""

import json

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
