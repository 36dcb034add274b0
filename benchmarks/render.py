"""Render one run of the benchmarks as a table: ``python benchmarks/render.py _build/bench.json [results.md]``.

Reads pytest-benchmark's JSON, in which `conftest.measure` has put each measurement's label, work and unit, and writes
medians, rates and ratios of rates to each group's baseline. It keeps of the machine what explains a time (processor,
cores, versions) and nothing that names it.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("numpy", "scipy", "torch", "galois")
HEAD = """# Benchmarks

Written by `make bench`; `README.md` beside this file says what is measured. All rows of a table come from one run on
one machine, so read the last column: how many times the baseline's rate.
"""


def _quantity(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def _seconds(value: float) -> str:
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def machine(run: dict) -> str:
    """One line on the machine of a run: processor, cores, Python and libraries, and no name."""
    info = run["machine_info"]
    processor = info.get("cpu", {}).get("brand_raw") or info["machine"]
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    cores = info.get("cpu", {}).get("count", "unknown number of")
    return f"Machine: {info['system']}, {processor}, {cores} cores. Python {info['python_version']}, {libraries}."


def table(run: dict) -> str:
    """The groups of a run as Markdown tables; each group has one baseline."""
    groups: dict[str, list[dict]] = {}
    for entry in run["benchmarks"]:
        groups.setdefault(entry["group"], []).append(entry)
    parts = []
    for group, entries in groups.items():
        rates = [entry["extra_info"]["work"] / entry["stats"]["median"] for entry in entries]
        baselines = [rate for rate, entry in zip(rates, entries, strict=True) if entry["extra_info"]["baseline"]]
        if len(baselines) != 1:
            raise SystemExit(f"group {group!r} has {len(baselines)} baselines: mark one with baseline=True")
        rows = [f"## {group}", "", "| | work | median | rate | times the baseline |", "|---|---:|---:|---:|---:|"]
        for rate, entry in zip(rates, entries, strict=True):
            extra = entry["extra_info"]
            work = f"{_quantity(extra['work'])}{extra['unit']}"
            ratio = (
                "baseline"
                if extra["baseline"]
                else f"{rate / baselines[0]:.2g}"
                if rate < 100 * baselines[0]
                else f"{rate / baselines[0]:.0f}"
            )
            median = _seconds(entry["stats"]["median"])
            rows.append(f"| {extra['label']} | {work} | {median} | {_quantity(rate)}{extra['unit']}/s | {ratio} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def main(source: str, target: str | None = None) -> None:
    """Render the run in ``source`` into ``target``, by default `results.md` beside this file."""
    run = json.loads(Path(source).read_text())
    text = f"{HEAD}\n{machine(run)}\n\n{table(run)}\n"
    Path(target or Path(__file__).with_name("results.md")).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
