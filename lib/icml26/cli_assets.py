"""The commands `icml26 models` and `icml26 data`, and what all commands print with: a part of `icml26.cli`.

Finding, checking and fetching is the business of `icml26.models` and `icml26.data`.
"""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from icml26.errors import Icml26Error

__all__ = ["data", "examples", "models", "say", "show"]

_UNWRAPPED = 10_000  # characters; wider than any row


def examples(*lines: str) -> str:
    """Return the end of a command's help."""
    return "\n\n".join(("[bold]Examples[/bold]", *(f"  {line}" for line in lines)))


def show(*what: Any) -> None:
    """Print tables or lines with rich; elsewhere than on a terminal each row is one line, for grep and its like."""
    from rich.console import Console

    soft_wrap = all(isinstance(item, str) for item in what)
    if Console().is_terminal:
        Console().print(*what, highlight=False, soft_wrap=soft_wrap)
        return
    console = Console(width=_UNWRAPPED)
    with console.capture() as printed:
        console.print(*what, highlight=False, soft_wrap=soft_wrap)
    for line in printed.get().splitlines():
        say(line.rstrip())


def say(line: str) -> None:
    """Print one line as it is."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


Names = Annotated[list[str] | None, typer.Argument(help="Which; if none is named, all that need no extra package.")]
Files = Annotated[list[str] | None, typer.Argument(help="Which; all if none is named.")]
models = typer.Typer(invoke_without_command=True, epilog=examples("icml26 models", "icml26 models get"))
data = typer.Typer(invoke_without_command=True, epilog=examples("icml26 data", "icml26 data get gsm8k-test"))


def _each(names: list[str], action: Callable[..., Any], *arguments: Any) -> None:
    """Do something for each name, all of them, and fail at the end if one failed."""
    failed: list[Icml26Error] = []
    for name in names:
        try:
            action(name, *arguments)
        except Icml26Error as error:
            failed.append(error)
    for error in failed[:-1]:
        sys.stderr.write(f"icml26: {error}\n")
    if failed:
        raise failed[-1]


@models.callback()
def _models(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        list_models()


@models.command("list", epilog=examples("icml26 models list"))
def list_models() -> None:
    """List the models: name, size, licence, where each is or what is missing."""
    from icml26 import models as store
    from icml26.cli_view import columns, size

    table = columns("model", "kind", "size", "licence", "where")
    for row in store.status():
        table.add_row(row.name, row.kind, size(row.size), row.licence, row.where.replace("[", "\\["))
    show(table)


@models.command("get", epilog=examples("icml26 models get", "icml26 models get smollm2-135m"))
def get_models(names: Names = None) -> None:
    """Check the models' files and convert them once into the cache; downloads only models named by hub id."""
    from icml26 import models as store

    _each(names or [name for name, info in store.REGISTRY.items() if not info.extra], store.get, say)


@models.command("check", epilog=examples("icml26 models check", "icml26 models check minilm-l6"))
def check_models(names: Names = None) -> None:
    """Compare the models' files with their checksums, byte by byte."""
    from icml26 import models as store

    def check(name: str) -> None:
        folder = store.check(name)
        say(f"{name}: sound, {folder or 'built in memory'}")

    _each(names or [row.name for row in store.status() if row.ready], check)


@data.callback()
def _data(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        list_data()


@data.command("list", epilog=examples("icml26 data list"))
def list_data() -> None:
    """List the data files: name, size, licence, where each is or what is missing."""
    from icml26 import data as store
    from icml26.cli_view import columns, size

    table = columns("file", "size", "licence", "what", "where")
    for row in store.status():
        where = row.where.replace("[", "\\[") if row.ready else "not here"
        table.add_row(row.name, size(row.size), row.licence, row.what, where)
    show(table)
    show("`icml26 data get NAME` fetches a file; ICML26_DATA names a folder that has them already")


@data.command("get", epilog=examples("icml26 data get", "icml26 data get gsm8k-test"))
def get_data(names: Files = None) -> None:
    """Download data files from their authors' repositories, at a pinned commit, and check them."""
    from icml26 import data as store

    _each(names or list(store.registry()), store.get, say)
