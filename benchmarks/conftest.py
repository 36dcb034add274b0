"""What every benchmark shares: `bench_*.py` is collected, and each measurement says what it did.

A benchmark belongs to a group and does a known amount of work; one member of the group is its baseline. `render.py`
turns one run into a table of ratios to the baselines, which travel between machines better than times do.
"""

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    named = parent.session.isinitpath(file_path)  # pytest itself collects a file that the command line names
    if file_path.suffix == ".py" and file_path.name.startswith("bench_") and not named:
        return pytest.Module.from_parent(parent, path=file_path)
    return None


@pytest.fixture
def measure(benchmark) -> Callable:
    """Time a call: ``measure(group, label, work, unit, function, *args, baseline=False)`` returns its result.

    ``work`` is how many ``unit`` one call does, so that members of a group may do different amounts.
    """

    def run(group: str, label: str, work: float, unit: str, function: Callable, *args, baseline: bool = False):
        benchmark.group = group
        benchmark.extra_info.update(label=label, work=work, unit=unit, baseline=baseline)
        return benchmark(function, *args)

    return run
