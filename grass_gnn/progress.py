"""Progress of long work: reported to the caller, or shown on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich import progress as rich_progress
from rich.console import Console

Progress = Callable[[str, int, int], None]  # what, done, total


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


@contextlib.contextmanager
def reporting(progress: Progress | None = None) -> Iterator[Progress]:
    """The caller's own function, or one that moves a bar on standard error if it is a terminal."""
    if progress is not None:
        yield progress
        return
    console = Console(stderr=True)
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    hidden = not console.is_terminal
    tasks: dict[str, rich_progress.TaskID] = {}
    with rich_progress.Progress(*columns, console=console, transient=True, disable=hidden) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks or bar.tasks[tasks[what]].completed > done:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield show
