"""What commands share: consoles, tables, and parsing of option values."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from grass_gnn.cli.look import console, plain_table
from grass_gnn.errors import GrassError

if TYPE_CHECKING:
    from grass_gnn.config import GRASSConfig

out = console()
err = console(stderr=True)

EPILOG = "Add [bold]--debug[/] to any command to see the traceback of an error."


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    shown = "\n".join(f"[dim]$[/] {line}" for line in lines)
    return f"[bold]Examples[/]\n{shown}"


def plain(text: str) -> str:
    """Escape brackets, which rich would read as markup."""
    return text.replace("[", "\\[")


def say(sentence: str) -> None:
    """Print a message on standard error."""
    err.print(sentence, markup=False)


def print_table(table: Table) -> None:
    """Print a table: with a frame on a terminal, as bare columns in a pipe."""
    out.print(plain_table(table, out))


def print_json(value: Any) -> None:
    """Print JSON."""
    print(json.dumps(value, indent=2))


def read_config(name: str, settings: list[str], epochs: int | None = None) -> GRASSConfig:
    """The configuration of a preset or file, changed by ``--set`` and ``--epochs``."""
    from grass_gnn.config import GRASSConfig, preset_names, suggest

    if name.endswith(".toml") or Path(name).is_file():
        config = GRASSConfig.from_toml(name)
    elif name in preset_names():
        config = GRASSConfig.preset(name)
    else:
        raise GrassError(f"{name!r} is neither a preset nor a file{suggest(name, preset_names())}")
    return config.override(parse_settings(settings, epochs))


def config_file(path: Path | None) -> GRASSConfig | None:
    """The configuration of ``--config``, if it was given."""
    from grass_gnn.config import GRASSConfig

    return None if path is None else GRASSConfig.from_toml(path)


def parse_settings(settings: list[str], epochs: int | None = None) -> dict[str, Any]:
    """The settings changed by ``--set`` and ``--epochs``, by dotted name."""
    changes = dict(_setting(text) for text in settings)
    return changes if epochs is None else {**changes, "training.epochs": epochs}


def _setting(text: str) -> tuple[str, Any]:
    """Parse ``name=value``; values are TOML, or plain strings."""
    name, equals, value = text.partition("=")
    if not equals:
        raise GrassError(f"--set takes name=value, such as model.layers=12, not {text!r}.")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()


def parse_names(text: str | None) -> list[str]:
    """Names from ``NAME,NAME``."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def parse_sizes(text: str | None) -> tuple[int, int, int] | None:
    """The number of training, validation and test graphs, from ``N,N,N``."""
    if text is None:
        return None
    try:
        train, val, test = (int(part) for part in text.split(","))
        if min(train, val, test) < 1:
            raise ValueError
    except ValueError:
        raise GrassError(
            f"--generate takes three numbers such as 1000,200,200, not {text!r}."
        ) from None
    return train, val, test
