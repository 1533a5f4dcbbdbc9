"""How help and tables look: words instead of types, and nothing but text in a pipe."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console
from rich.table import Table
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_ENDLESS = 10_000  # columns: no line of a pipe or a log is broken


def console(stderr: bool = False) -> Console:
    """A console with the width and colours of its terminal; elsewhere lines as long as they are."""
    colours: Any = None if _no_colours() else "auto"
    made = Console(stderr=stderr, highlight=False, color_system=colours)
    if not _is_screen(made):
        made.width = _ENDLESS
    return made


def plain_table(table: Table, target: Console) -> Table:
    """The table as ``target`` shows it: with a frame on a screen, else as bare columns."""
    if not _is_screen(target):
        table.box, table.padding = None, (0, 2, 0, 0)
    return table


def help_as_asked_for() -> None:
    """Let help, which typer prints, heed NO_COLOR: rich alone would still make words bold."""
    if _no_colours():
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None


def _no_colours() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def _is_screen(target: Console) -> bool:
    return target.is_terminal and not target.is_dumb_terminal


class Command(TyperCommand):
    """A command whose help says in words what each of its options takes."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options and arguments, without Python's types."""
        return _in_words(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands, whose own options are shown like those of its commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options of the group itself, without Python's types."""
        return _in_words(super().get_params(ctx))


def _in_words(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        if isinstance(one, TyperArgument):
            one.metavar = one.metavar or str(one.name).upper()
            # The name of an argument says what it is; typer would add a column of <path> and <str>.
            one.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
        elif isinstance(one, TyperOption) and one.is_flag:
            one.metavar = ""
    return parameters
