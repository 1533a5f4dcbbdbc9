"""``grass-gnn info``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from grass_gnn.cli.common import examples, print_json, print_table, read_config, say
from grass_gnn.cli.options import Json

EXAMPLES = examples("grass-gnn info zinc", "grass-gnn info zinc --set model.layers=12 --json")


def info(
    preset: Annotated[
        str,
        typer.Argument(help="A preset, or a configuration (TOML).", metavar="PRESET|CONFIG"),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    json: Json = False,
) -> None:
    """Show a configuration and the size of its model."""
    from grass_gnn.config import preset_names, preset_note
    from grass_gnn.training.build import make_model

    config = read_config(preset, settings or [])
    model = make_model(config)
    parameters = sum(p.numel() for p in model.parameters())
    values = config.model_dump(mode="json")
    if json:
        print_json({"name": preset, "parameters": parameters, "config": values})
        return
    if preset in preset_names() and (note := preset_note(preset)):
        say(note)
    table = Table("setting", "value", title=f"{preset}: {parameters:,} parameters")
    for section, content in values.items():
        if not isinstance(content, dict):
            table.add_row(section, str(content))
            continue
        table.add_section()
        for name, value in content.items():
            table.add_row(f"{section}.{name}", _text(value))
    print_table(table)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(str(v) for v in value.values() if v != [])
    return str(value)
