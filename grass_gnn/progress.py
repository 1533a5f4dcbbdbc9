"""Progress of long computations: one hook, a progress bar on a terminal, or lines in a log.

Long computations call :func:`report_progress`. Callers use :func:`reporting` to decide where the
reports go; outside of it they are discarded.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[str, int, int], None]  # description, done, total (0 if unknown)

LINE_SECONDS = 30.0  # between two lines of a log

logger = logging.getLogger(__name__)

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
            bar on standard error if that is a terminal, or else a line in the log every half
            minute.
    """
    hook = progress or _hook.get()
    if hook is None and sys.stderr.isatty():
        with _bar() as hook, _installed(hook):
            yield hook
    else:
        with _installed(hook or LogLines()) as hook:
            yield hook


@contextmanager
def _installed(hook: Progress) -> Iterator[Progress]:
    token = _hook.set(hook)
    try:
        yield hook
    finally:
        _hook.reset(token)


class LogLines:
    """Logs a line with the estimated time left, at most every ``LINE_SECONDS``.

    Args:
        clock: Gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.name, self.done = "", 0  # of the computation that reported last
        self.started = self.last = self.clock()
        self.first = 0  # steps that were done when it started

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report progress."""
        name, now = what.split(" · ")[0], self.clock()
        if name != self.name or done < self.done:  # a new computation
            self.name, self.started, self.first = name, now, done
        self.done = done
        if now - self.last < LINE_SECONDS:
            return
        self.last = now
        line = f"{what}: {done:,}" + (f" of {total:,}" if total else "")
        if total > done > self.first:
            left = (now - self.started) / (done - self.first) * (total - done)
            line += f", about {_in_words(left)} left"
        logger.info("%s.", line)


def _in_words(seconds: float) -> str:
    """A duration in words, such as ``12 min``."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
