"""How the command line shows things: tables, and the progress of one chapter or of a batch.

Everything here makes or updates rich renderables; `icml26.cli` decides when they are shown. On a terminal progress is
live; elsewhere it is one plain line per event, fit for a log.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from icml26.planning import Batch, Status
from icml26.report import count

__all__ = ["BatchView", "batch_table", "chapter_progress", "claims_table", "columns", "size"]

_STYLES = {"finished": "green", "failed": "bold red", "running": "cyan", "waiting": "dim", "unchanged": "dim"}


def columns(*heads: str) -> Table:
    """Return an empty table with these column heads."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def size(number: int | None) -> str:
    """Return bytes in MB, for reading."""
    return "–" if number is None else f"{number / 1e6:,.1f} MB"


def claims_table(claims: Sequence[Mapping[str, Any]]) -> Table:
    """Return the claims of one result with their verdicts."""
    table = columns("claim", "verdict", "statement")
    for claim in claims:
        table.add_row(escape(claim["id"]), escape(claim["label"]), escape(claim["statement"]))
    return table


def batch_table(batch: Batch) -> Table:
    """Return the end of a batch: chapter, status, seconds, peak memory, verdicts."""
    table = columns("chapter", "status", "seconds", "peak MB", "verdicts")
    for status in batch.chapters:
        result = status.result or {}
        seconds = result.get("seconds", status.seconds)
        table.add_row(
            status.slug,
            f"[{_STYLES[status.state]}]{status.state}[/]",
            "–" if seconds is None else f"{seconds:.1f}",
            str(result.get("peak_memory_mb", "–")),
            count(result["claims"]) if result else "–",
        )
    return table


@contextmanager
def chapter_progress(console: Console, slug: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of one chapter during a block; yields what takes the cell's number and their count."""
    if not console.is_terminal:
        console.print(f"{slug}: running", highlight=False)
        yield lambda cell, cells: None
        return
    parts = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("cell"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*parts, console=console, transient=True) as progress:
        task = progress.add_task(slug, total=None)
        yield lambda cell, cells: progress.update(task, completed=cell, total=cells)


class BatchView:
    """The progress of a batch; an instance is the listener that `icml26.batch.reproduce` wants.

    Parameters
    ----------
    console : rich.console.Console
        Where to show it.
    """

    def __init__(self, console: Console) -> None:
        self.batch: Batch | None = None
        self._console = console
        self._live: Live | None = None
        self._told: dict[str, str] = {}
        self._start = time.monotonic()

    def __call__(self, batch: Batch) -> None:
        """Take the batch as it stands now."""
        if self.batch is None:
            self.batch = batch
            for note in batch.notes:
                self._say(note)
            self._say(f"{len(batch.waiting())} of {len(batch.chapters)} chapters to run at profile {batch.profile}")
        for status in batch.waiting():
            if self._told.get(status.slug, "waiting") != status.state:
                self._told[status.slug] = status.state
                self._tell(batch, status)

    def _tell(self, batch: Batch, status: Status) -> None:
        left = sum(other.state in ("waiting", "running") for other in batch.waiting())
        style = _STYLES[status.state]
        if status.state == "running":
            if self._live is None:
                self._say(f"{status.slug} [{style}]started[/]")
            return
        took = f" after {status.seconds:.0f} s" if status.seconds is not None else ""
        what = escape(status.message) if status.message else f"{status.slug} {status.state}{took}"
        self._say(f"[{style}]{what}[/]; {left} left")

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        running = [status for status in self.batch.waiting() if status.state == "running"] if self.batch else []
        for status in running:
            place = f"cell {status.cell}/{status.cells}" if status.cells else "starting"
            table.add_row(f"[cyan]{status.slug}[/]", place, f"{status.seconds or 0:.0f} s")
        waiting = sum(status.state == "waiting" for status in self.batch.waiting()) if self.batch else 0
        table.add_row(f"[dim]{waiting} waiting[/]", "", f"[dim]{time.monotonic() - self._start:.0f} s[/]")
        return table

    def __enter__(self) -> "BatchView":
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
