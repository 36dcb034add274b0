"""The reference of a chapter notices a change of its method."""

import json
import os
import shutil
import subprocess
import sys

import pytest


def first_check(notebook: dict) -> dict:
    """The notebook up to its first compared cell, without figures: all that this test needs to run."""
    kept = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and "mystnb" not in cell["metadata"]:
            kept.append(cell)
        if "nbval-check-output" in cell["metadata"].get("tags", ()):
            break
    return notebook | {"cells": kept}


@pytest.mark.slow
def test_nbval_fails_when_one_constant_of_the_codec_changes(project, tmp_path):
    shutil.copytree(project / "lib", tmp_path / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    notebook = json.loads((project / "tests/reference/15_s_quant.ipynb").read_text(encoding="utf-8"))
    (tmp_path / "short.ipynb").write_text(json.dumps(first_check(notebook)), encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(tmp_path / "lib"), "ICML26_ROOT": str(project)}
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "-q", "-p", "no:cacheprovider", "-c", os.devnull]

    def verify() -> subprocess.CompletedProcess:
        return subprocess.run([*command, "short.ipynb"], cwd=tmp_path, env=env, capture_output=True, text=True)

    untouched = verify()
    assert untouched.returncode == 0, untouched.stdout
    register = tmp_path / "lib/icml26/s_quant/register.py"
    text = register.read_text(encoding="utf-8")
    assert text.count("10: (0, 3)") == 1
    register.write_text(text.replace("10: (0, 3)", "10: (0, 7)"), encoding="utf-8")  # as maximal, another stream
    changed = verify()
    assert changed.returncode == 1, changed.stdout
    assert "SQuantConfig" in changed.stdout, "the block that must never change differs"
