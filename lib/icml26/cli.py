"""The command `icml26`. It and its part `icml26.cli_assets` print; no other module does.

Each command imports what it needs when it runs, so that ``icml26 --help`` is quick and a plain installation, without
the book's tools, has all commands that can work there. A paper's own commands are loaded from its module when called.
"""

import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from icml26 import __version__, cli_assets
from icml26.cli_assets import examples, say, show
from icml26.errors import Icml26Error, InputError

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: dict[str, str] = {"compress": "icml26.s_quant.app:app"}
"""A paper's own command by name: ``"package.module:app"``, a Typer application."""
_SUMMARIES = {"compress": "Encode a model's linear layers with S-Quant or SeedLM, or verify such a model."}


class _PaperCommand(TyperCommand):
    """A paper's command as a list shows it: what it needs, torch for one, is imported when it is called."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        module, _, name = COMMANDS[str(self.name)].partition(":")
        return typer.main.get_command(getattr(import_module(module), name)).make_context(*args, **kwargs)


class _Group(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        return _PaperCommand(name=cmd_name, help=_SUMMARIES.get(cmd_name))


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("icml26 list", "icml26 run 15 --profile quick -p seed=7", "icml26 reproduce --jobs 2"),
)
_debug = False

Chapter = Annotated[str, typer.Argument(help="Number, name or slug: 15, s_quant, 15_s_quant.")]
Profile = Annotated[str, typer.Option("--profile", help="quick, laptop or paper.")]


def _version(value: bool) -> None:
    if value:
        say(f"icml26 {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run, check and extend the executable book of nineteen ICML 2026 papers."""
    global _debug
    _debug = debug


@app.command("list", epilog=examples("icml26 list", "icml26 list 15"))
def list_chapters(
    chapter: Annotated[str | None, typer.Argument(help="Show this chapter's parameters in full.")] = None,
) -> None:
    """List the papers, the chapters that are written and their parameters."""
    from icml26 import chapters
    from icml26.cli_view import columns

    if chapter is not None:
        slug = chapters.resolve(chapter)
        table = columns("parameter", "type", "default", "range", "unit", "what it does")
        for knob in chapters.parameters(chapters.read(slug)).values():
            row = (knob.name, knob.type, repr(knob.default), knob.range or "any", knob.unit, knob.description)
            table.add_row(*(cell.replace("[", "\\[") for cell in row))
        show(table)
        return
    table = columns("chapter", "paper", "part", "parameters")
    written = chapters.existing()
    for paper in chapters.papers():
        slug = paper["slug"]
        knobs = ", ".join(chapters.parameters(chapters.read(slug))) if slug in written else "[dim]not written yet[/]"
        table.add_row(slug, paper["short"], paper["part"], knobs)
    show(table)


@app.command(epilog=examples("icml26 run 15", "icml26 run s_quant --profile quick -p seed=7 -p blocks_per_tensor=64"))
def run(
    chapter: Chapter,
    profile: Profile = "laptop",
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="Set a parameter; repeatable.")
    ] = None,
    job: Annotated[bool, typer.Option("--job", hidden=True, help="Run as a job of a batch.")] = False,
) -> None:
    """Execute one chapter into _run/PROFILE, with the profile's parameters or yours."""
    from rich.console import Console

    from icml26 import batch, chapters, cli_view, locking, paths
    from icml26.runner import read_result, run_folder

    _interruptible()
    slug = chapters.resolve(chapter)
    if job:
        batch.run_job(slug, profile)
        return
    overrides = {}
    knobs = chapters.parameters(chapters.read(slug))
    for setting in parameter or []:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"-p {setting}: write it as key=value")
        overrides[name] = knobs[name].parse(text) if name in knobs else text
    chapters.bind(slug, profile, overrides)  # so that what is wrong shows before any progress
    with (
        locking.run_lock(run_folder(profile).parent),
        cli_view.chapter_progress(Console(stderr=True), slug) as progress,
    ):
        path = batch.run_chapter(slug, profile=profile, overrides=overrides, progress=progress)
    result = read_result(path)
    show(cli_view.claims_table(result["claims"]))
    where = path.with_suffix(".ipynb").relative_to(paths.root())
    show(f"{slug} finished in {result['seconds']} s, {result['peak_memory_mb']} MB at most: {where}")


@app.command(
    epilog=examples(
        "icml26 reproduce",
        "icml26 reproduce --chapters 15 --chapters 19 --profile quick --jobs 2",
        "icml26 reproduce --profile paper --executor slurm --dry-run",
        "SNAKEMAKE_PROFILE=mycluster icml26 reproduce --profile paper --executor slurm",
    )
)
def reproduce(
    profile: Profile = "laptop",
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Chapters at a time; as many as processors.")] = None,
    chapter: Annotated[list[str] | None, typer.Option("--chapters", help="Only these; repeatable.")] = None,
    executor: Annotated[str | None, typer.Option("--executor", help="slurm; this machine if not given.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would run and why.")] = False,
) -> None:
    """Execute every chapter whose source, modules, claims or parameters changed, by Snakemake."""
    from rich.console import Console

    from icml26 import batch
    from icml26.cli_view import BatchView, batch_table, columns

    _interruptible()
    names = [name for given in chapter or [] for name in given.replace(",", " ").split()]
    with BatchView(Console()) as view:
        code = batch.reproduce(profile, jobs, names, executor, dry_run, listen=view)
    assert view.batch is not None
    if dry_run:
        table = columns("chapter", "would run because")
        for status in view.batch.chapters:
            table.add_row(status.slug, status.why or "[dim]up to date[/]")
        show(table)
    else:
        show(batch_table(view.batch))
    raise typer.Exit(code)


def _interruptible() -> None:
    """Let a polite signal do what the user's interrupt does, so that nothing is left running."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


@app.command(epilog=examples("icml26 report", "icml26 report --profile quick"))
def report(profile: Profile = "laptop") -> None:
    """Write the claims page, claims.json and the papers' table of a run beside its results."""
    from icml26 import paths
    from icml26 import report as reports
    from icml26.runner import run_folder

    folder = run_folder(profile)
    for path in reports.write(folder, folder):
        say(str(path.relative_to(paths.root())))
    results = reports.collect(folder)
    verdicts = reports.count([claim for result in results for claim in result["claims"]])
    say(f"{len(results)} chapters: {verdicts or 'no claims yet'}")


@app.command(epilog=examples("icml26 verify", "icml26 verify 15"))
def verify(chapter: Annotated[str | None, typer.Argument(help="Only this chapter.")] = None) -> None:
    """Execute the reference notebooks again and compare the outputs that are equal on every machine (nbval)."""
    import subprocess

    from icml26 import chapters, paths
    from icml26.runner import environment

    folder = paths.root() / "tests" / "reference"
    target = folder / f"{chapters.resolve(chapter)}.ipynb" if chapter else folder
    if not target.exists():
        raise InputError(f"{target.relative_to(paths.root())} does not exist; `icml26 publish` writes the references")
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", str(target)]
    command += [] if chapter else ["-n", "2", "--dist", "loadfile"]
    raise typer.Exit(subprocess.run(command, cwd=paths.root(), env=environment(), check=False).returncode)


@app.command(epilog=examples("icml26 new 17_top_w"))
def new(chapter: Chapter) -> None:
    """Write the skeleton of a chapter: source, module, claims, test, profile entries, table of contents."""
    from icml26 import paths, scaffold

    for path in scaffold.new(chapter):
        say(str(path.relative_to(paths.root())))


@app.command(epilog=examples("icml26 book", "icml26 book --run laptop"))
def book(
    run: Annotated[str | None, typer.Option("--run", metavar="PROFILE", help="Render this run's chapters.")] = None,
    strict: Annotated[bool, typer.Option(help="Let a warning fail the build.")] = True,
) -> None:
    """Render the committed chapters, or those of a run, into _build/html."""
    from icml26 import book as books
    from icml26.runner import run_folder

    say(f"{books.build(run_folder(run) if run else None, strict, progress=say) / 'index.html'}")


@app.command(epilog=examples("icml26 reproduce && icml26 reproduce --profile quick && icml26 publish"))
def publish() -> None:
    """Copy complete runs at laptop and quick to book/, results/, tests/reference/ and the README (maintainers)."""
    from icml26 import paths
    from icml26.publish import publish as copy

    changed = copy()
    for path in changed:
        say(str(path.relative_to(paths.root())))
    say(f"{len(changed)} files changed")


app.add_typer(cli_assets.models, name="models", help="List, prepare and check the pretrained models.")
app.add_typer(cli_assets.data, name="data", help="List and fetch the real data files.")


def main() -> None:
    """Run the command line: exit code 2 for bad input, 1 for a failure, 130 after an interrupt."""
    try:
        app(prog_name="icml26")
    except Icml26Error as error:
        if _debug:
            raise
        sys.stderr.write(f"icml26: {error}\n")
        sys.exit(2 if isinstance(error, InputError) else 1)


if __name__ == "__main__":
    main()
