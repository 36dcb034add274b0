"""The benchmarks' table: ratios of rates to one baseline per group, and nothing that names the machine."""

import importlib.util
import json

import pytest

RUN = {
    "machine_info": {
        "node": "secret-host",
        "system": "Linux",
        "machine": "x86_64",
        "python_version": "3.12.0",
        "cpu": {"brand_raw": "Some Processor", "count": 2},
    },
    "benchmarks": [
        {
            "group": "streams",
            "stats": {"median": 2.0},
            "extra_info": {"label": "peer", "work": 1000, "unit": "bit", "baseline": True},
        },
        {
            "group": "streams",
            "stats": {"median": 0.5},
            "extra_info": {"label": "ours", "work": 4000, "unit": "bit", "baseline": False},
        },
    ],
}


@pytest.fixture
def render(project):
    spec = importlib.util.spec_from_file_location("render", project / "benchmarks" / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_gives_rates_and_their_ratios_to_the_baseline(render):
    lines = render.table(RUN).splitlines()
    assert lines[0] == "## streams"
    assert "| peer | 1 kbit | 2 s | 500 bit/s | baseline |" in lines
    assert "| ours | 4 kbit | 500 ms | 8 kbit/s | 16 |" in lines


def test_the_rendered_page_does_not_name_the_machine(render, tmp_path):
    (tmp_path / "bench.json").write_text(json.dumps(RUN))
    render.main(str(tmp_path / "bench.json"), str(tmp_path / "results.md"))
    text = (tmp_path / "results.md").read_text()
    assert "Some Processor, 2 cores" in text
    assert "secret-host" not in text


@pytest.mark.parametrize("flags", [(False, False), (True, True)])
def test_a_group_without_exactly_one_baseline_is_an_error(render, flags):
    run = json.loads(json.dumps(RUN))
    for entry, flag in zip(run["benchmarks"], flags, strict=True):
        entry["extra_info"]["baseline"] = flag
    with pytest.raises(SystemExit, match="baselines"):
        render.table(run)
