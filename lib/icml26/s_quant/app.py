"""The command ``icml26 compress``, which `icml26.cli` loads when it is called.

It encodes a model by S-Quant (Wang et al., ICML 2026, arXiv: none) or SeedLM (Shafipour et al., arXiv 2410.10714), or
verifies what it wrote. The work is done by `compress` and `audit`; here are options, progress and tables.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml26.cli_assets import examples, say, show
from icml26.errors import Icml26Error, InputError

if TYPE_CHECKING:
    from icml26.s_quant.audit import Audit
    from icml26.s_quant.compress import Event

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode="rich"
)


@app.command(
    "compress",
    no_args_is_help=True,
    help="""Encode the linear layers of a model with S-Quant or SeedLM into a folder that transformers loads.

    What is finished survives a kill: the same command goes on where it stopped. Load the folder with from_pretrained
    after `import icml26.s_quant.hf`.""",
    epilog=examples(
        "icml26 compress smollm2-135m --codec seedlm --out smollm2-seedlm",
        "icml26 compress ./my-model --codec squant --bits 3 --jobs 4 --out my-model-3bit",
        "icml26 compress minilm-l6 --codec squant --set seed_bits=8 --layers '*.intermediate.*' --out minilm-8",
        "icml26 compress --check my-model-3bit",
        "icml26 compress ./my-model --check my-model-3bit",
    ),
)
def compress(
    model: Annotated[str | None, typer.Argument(help="A folder, or a name that `icml26 models` lists.")] = None,
    codec: Annotated[str | None, typer.Option(help="seedlm, squant or squant-repaired.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write, or to go on with.")] = None,
    bits: Annotated[int, typer.Option(help="About how many bits per weight: 4 or 3.")] = 4,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one parameter of the codec; repeatable.")
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only modules so called, * for anything; repeatable."),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Processes; as many as processors.")] = None,
    device: Annotated[str, typer.Option(help="Where to search: cpu, cuda.")] = "cpu",
    check: Annotated[
        Path | None, typer.Option("--check", metavar="DIR", help="Verify a folder instead; against MODEL, if named.")
    ] = None,
) -> None:
    """Encode a model, or verify a folder.

    Parameters
    ----------
    model, codec, out, bits, change, layers, jobs, device, check
        The command line's argument and options, as its help describes them.

    Raises
    ------
    InputError
        If they do not belong together.
    """
    if check is not None:
        if codec or out:
            raise InputError("--check verifies a folder: leave out --codec and --out")
        _check(check, model)
        return
    if model is None or codec is None or out is None:
        missing = [name for name, value in (("MODEL", model), ("--codec", codec), ("--out", out)) if value is None]
        raise InputError(f"{' and '.join(missing)} is missing: see `icml26 compress --help`")
    from icml26.s_quant import compress as compressing
    from icml26.s_quant.audit import audit
    from icml26.s_quant.presets import preset

    config = preset(codec, bits, **_changes(change or []))
    if jobs is None:
        jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jobs = jobs if device == "cpu" else 1
    try:
        with _progress() as listen:
            count = compressing.compress(
                model, out, config, layers=layers or (), jobs=jobs, device=device, progress=listen
            )
            found = audit(out)
    except KeyboardInterrupt:
        kept = len(list(out.glob("encoded/[!.]*")))
        say(f"interrupted: {kept} encoded tensors are kept in {out}; the same command goes on from there")
        raise
    _fail(found)
    show(_totals(found))
    kept = len(found.rows) - count
    say(f"{count} tensors encoded{f', {kept} kept from an earlier run' if kept else ''}: {out}")


def _changes(settings: list[str]) -> dict[str, Any]:
    import yaml

    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: write it as key=value")
        try:
            found[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"--set {setting}: the value cannot be read; write a number, a word or a list") from error
    return found


def _check(folder: Path, model: str | None) -> None:
    from icml26.cli_view import columns
    from icml26.s_quant.audit import audit
    from icml26.s_quant.checkpoint import read_checkpoint
    from icml26.s_quant.compress import located

    if model is None:
        found = audit(folder)
    else:
        with located(model) as original:
            found = audit(folder, read_checkpoint(original))
    heads = ("tensor", "shape", "bits/weight", "without counts", "relative error")
    table = columns(*heads, *(("against the model",) if model else ()))
    for row in found.rows:
        cells = [row.name, f"{row.shape[0]} x {row.shape[1]}", f"{row.bits:.3f}", f"{row.bits_without_counts:.3f}"]
        cells += [f"{row.error:.4f}", *([f"{row.measured:.4f}"] if row.measured is not None else [])]
        table.add_row(*cells)
    show(table)
    show(_totals(found))
    _fail(found)
    say(f"{folder} is sound")


def _totals(found: "Audit") -> Any:
    from icml26.cli_view import columns

    names = {
        "rest": "tensors left as they are",
        "headers": "headers of the encoded files",
        "other": "configuration, tokenizer, checksums",
    }
    table = columns("stored", "bytes", "bits per encoded weight")
    for name, size in sorted(found.sizes.items(), key=lambda item: (item[0] in names, item[0])):
        per = f"{8 * size / found.weights:.3f}" if name not in names and found.weights else ""
        table.add_row(names.get(name, name), f"{size:,}", per)
    total = f"{found.mean_bits():.3f}"
    if (without := found.mean_bits(counts=False)) != found.mean_bits():
        total += f" ({without:.3f} without counts)"
    table.add_row("[bold]all[/]", f"{sum(found.sizes.values()):,}", total)
    return table


def _fail(found: "Audit") -> None:
    """One line for each problem; the last is the error that the command ends with."""
    import sys

    for problem in found.problems[:-1]:
        sys.stderr.write(f"icml26: {problem}\n")
    if found.problems:
        raise Icml26Error(found.problems[-1])


@contextmanager
def _progress() -> Iterator[Callable[["Event"], None]]:
    """A bar with the time left on a terminal; elsewhere a line per finished tensor."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        told = -1

        def tell(event: "Event") -> None:
            nonlocal told
            if event.stage == "encoding" and event.finished != told:
                told = event.finished
                console.print(f"{told} of {event.tensors} tensors encoded", highlight=False)

        yield tell
        return
    parts = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[tensors]}"),
        TimeRemainingColumn(),
    )
    with Progress(*parts, console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def update(event: "Event") -> None:
            if event.stage not in tasks:
                for task in tasks.values():
                    progress.remove_task(task)
                tasks.clear()
                # What an earlier run encoded is no sign of how fast this one is.
                tasks[event.stage] = progress.add_task("", total=event.total - event.done, tensors="", start=True)
                base[event.stage] = event.done
            words = {"reading": "reading the model", "encoding": event.name[-40:], "writing": "writing the rest"}
            tensors = f"{event.finished} of {event.tensors} tensors" if event.stage == "encoding" else ""
            progress.update(
                tasks[event.stage],
                completed=event.done - base[event.stage],
                description=words[event.stage],
                tensors=tensors,
            )

        base: dict[str, float] = {}
        yield update
