"""The look of help and tables: no Python types, and plain text in a pipe."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

from rich.console import Console
from rich.table import Table
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_ENDLESS = 10_000  # columns, so that lines in a pipe or a log are not wrapped


def console(stderr: bool = False) -> Console:
    """A console that wraps lines and uses colours only on a terminal."""
    colours: Any = None if _no_colours() else "auto"
    made = Console(stderr=stderr, highlight=False, color_system=colours)
    if not _is_screen(made):
        made.width = _ENDLESS
    return made


def plain_table(table: Table, target: Console) -> Table:
    """Remove the frame of a table unless it is shown on a terminal."""
    if not _is_screen(target):
        table.box, table.padding = None, (0, 2, 0, 0)
    return table


def _no_colours() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def _is_screen(target: Console) -> bool:
    return target.is_terminal and not target.is_dumb_terminal


class _Argument(TyperArgument):
    """An argument without a type column in the help: its name says what it is."""

    def display_type_rich(self, ctx: Any) -> str | None:
        """No type."""
        return None


def _without_types(parameters: list[Any] | None) -> list[Any] | None:
    """The parameters of a command, with arguments that show no type."""
    found = []
    for one in parameters or []:
        if type(one) is TyperArgument:
            argument = _Argument.__new__(_Argument)
            vars(argument).update(vars(one), metavar=one.metavar or str(one.name).upper())
            one = argument
        found.append(one)
    return found if parameters is not None else None


class _Plain:
    """Help without the types of flags, and without escape codes if NO_COLOR is set."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options and arguments."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in parameters:
            if isinstance(one, TyperOption) and one.is_flag:
                one.metavar = ""
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; rich would still print bold text if NO_COLOR is set."""
        if not _no_colours():
            super().format_help(ctx, formatter)  # type: ignore[misc]
            return
        with contextlib.redirect_stdout(io.StringIO()) as page:
            super().format_help(ctx, formatter)  # type: ignore[misc]
        print(page.getvalue(), end="")


class Command(_Plain, TyperCommand):
    """A command."""

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, params=_without_types(params), **options)


class Group(_Plain, TyperGroup):
    """A group of commands."""
