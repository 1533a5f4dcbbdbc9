"""Progress of long computations: one hook, or a progress bar on a terminal.

Long computations call :func:`report_progress`. Callers use :func:`reporting` to decide where the
reports go; by default they are discarded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[str, int, int], None]  # description, done, total (0 if unknown)

_hook: ContextVar[Progress | None] = ContextVar("progress hook", default=None)


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def report_progress(what: str, done: int, total: int) -> None:
    """Report that ``done`` of ``total`` steps are finished (total 0: the number is unknown)."""
    (_hook.get() or silent)(what, done, total)


@contextmanager
def reporting(progress: Progress | None = None) -> Iterator[Progress]:
    """Send progress reports to a hook for as long as the context is open.

    Args:
        progress: The hook. By default, that of an enclosing context; if there is none, a progress
            bar on standard error if that is a terminal.
    """
    hook = progress or _hook.get()
    if hook is None and sys.stderr.isatty():
        with _bar() as hook, _installed(hook):
            yield hook
    else:
        with _installed(hook or silent) as hook:
            yield hook


@contextmanager
def _installed(hook: Progress) -> Iterator[Progress]:
    token = _hook.set(hook)
    try:
        yield hook
    finally:
        _hook.reset(token)


@contextmanager
def _bar() -> Iterator[Progress]:
    """A progress bar per description, removed at the end."""
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    tasks: dict[str, rich_progress.TaskID] = {}
    console = Console(stderr=True)
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:

        def show(what: str, done: int, total: int) -> None:
            name = what.split(" · ")[0]  # details, such as the loss, may follow
            if name not in tasks or bar.tasks[tasks[name]].completed > done:
                tasks[name] = bar.add_task(what, total=total or None)
            bar.update(tasks[name], description=what, completed=done)

        yield show
