"""Generates the page of all commands from the same source as ``--help``."""

from collections.abc import Iterator
from typing import Any

import typer.main
from rich.text import Text

from grass_gnn.cli import app
from tools.website.markdown_text import table

INTRODUCTION = """\
# Commands

The help of each command. Add `--debug` to any command to see the traceback of an error.
"""
MARK = "<!-- illustrative: needs your files; the tests check that the commands can be parsed -->\n"


def all_commands() -> Iterator[tuple[str, Any]]:
    """Each command with its name; groups come before their commands."""
    yield from _commands("", typer.main.get_command(app))


def _commands(prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield prefix + name, command
            if hasattr(command, "commands"):
                yield from _commands(f"{prefix}{name} ", command)


def parameters(command: Any) -> list[Any]:
    """Arguments and options of a command, as its help shows them."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    shown = (one for one in command.get_params(context) if not getattr(one, "hidden", False))
    return [one for one in shown if one.name != "help"]


def examples(command: Any) -> list[str]:
    """The example calls at the end of a command's help."""
    lines = Text.from_markup(command.epilog or "").plain.splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def commands_page() -> str:
    """The page as Markdown."""
    listed = [[f"[`{name}`](#{_anchor(name)})", _first(one)] for name, one in all_commands()]
    parts = [INTRODUCTION, table(["command", "what it does"], listed)]
    return "\n".join([*parts, *(_section(name, one) for name, one in all_commands())])


def _section(name: str, command: Any) -> str:
    parts = [f"## grass-gnn {name}\n", f"{Text.from_markup(command.help or '').plain}\n"]
    if rows := [_row(one) for one in parameters(command)]:
        parts.append(table(["argument or option", "meaning", "default"], rows))
    if lines := examples(command):
        parts.append(MARK + "```bash\n" + "".join(f"{line}\n" for line in lines) + "```\n")
    return "\n".join(parts)


def _row(one: Any) -> list[str]:
    if one.param_type_name == "argument":
        name = f"`{one.metavar or one.name.upper()}`"
    else:
        metavar = "" if one.is_flag else f" {one.metavar or one.type.name.upper()}"
        spellings = [*sorted(one.opts, key=len, reverse=True), *one.secondary_opts]
        name = ", ".join(f"`{word}{metavar}`" for word in spellings)
    return [name, Text.from_markup(one.help or "").plain, _default(one)]


def _default(one: Any) -> str:
    if one.required:
        return "required"
    if one.default is None or one.default is False:
        return ""
    return "on" if one.default is True else f"`{one.default}`"


def _first(command: Any) -> str:
    return (command.help or "").strip().partition("\n\n")[0]


def _anchor(name: str) -> str:
    return f"grass-gnn {name}".replace(" ", "-")
