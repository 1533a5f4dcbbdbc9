"""``grass-gnn info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from grass_gnn.cli.common import (
    examples,
    out,
    parse_settings,
    plain,
    print_json,
    print_table,
    read_config,
    say,
)
from grass_gnn.cli.options import Json, settings_option

EXAMPLES = examples(
    "grass-gnn info zinc",
    "grass-gnn info runs/solubility",
    "grass-gnn info zinc --set model.layers=12 --json",
)


def info(
    name: Annotated[
        str,
        typer.Argument(
            help="Preset, configuration (TOML), or run folder.", metavar="PRESET|CONFIG|RUN"
        ),
    ],
    settings: Annotated[list[str] | None, settings_option("Change a setting.")] = None,
    json: Json = False,
) -> None:
    """Show the settings and the number of parameters of a preset, a configuration or a run."""
    from grass_gnn.config import GRASSConfig, preset_names, preset_note
    from grass_gnn.evaluation.trained import CARD, model_folder, read_card, shipped_models
    from grass_gnn.nn.model import count_parameters

    trained: dict[str, Any] | None = None
    if name in shipped_models() or (Path(name) / CARD).is_file():
        trained = read_card(model_folder(name))
    if trained is not None and name not in preset_names():
        config = GRASSConfig.from_dict(trained["config"], name)
        config = config.override(parse_settings(settings or []))
    else:
        config = read_config(name, settings or [])
    parameters = count_parameters(config)
    values = config.model_dump(mode="json")
    weights = None if trained is None else _describe(trained)
    if json:
        found = {"name": name, "parameters": parameters, "config": values}
        print_json(found if weights is None else found | {"weights": weights})
        return
    if name in preset_names() and (note := preset_note(name)):
        say(note)
    table = Table("setting", "value", title=f"{name}: {parameters:,} parameters")
    for section, content in values.items():
        if not isinstance(content, dict):
            table.add_row(section, str(content))
            continue
        table.add_section()
        for setting, value in content.items():
            table.add_row(f"{section}.{setting}", _text(value))
    print_table(table)
    if weights is not None:
        out.print(plain(_sentence(name, name in preset_names(), weights)))


def _describe(card: dict[str, Any]) -> dict[str, Any]:
    """A description of trained weights."""
    from grass_gnn.config import GRASSConfig
    from grass_gnn.evaluation.trained import CARD
    from grass_gnn.nn.model import count_parameters

    config = GRASSConfig.from_dict(card["config"], CARD)
    return {
        "sha256": card.get("weights_sha256"),
        "seed": card.get("seed"),
        "epochs": config.training.epochs,
        "layers": config.model.layers,
        "width": config.model.dim,
        "parameters": count_parameters(config),
        "targets": card.get("table", {}).get("targets", []),
    }


def _sentence(name: str, is_preset: bool, weights: dict[str, Any]) -> str:
    size = f"{weights['layers']} layers of width {weights['width']}"
    targets = f", targets {', '.join(weights['targets'])}" if weights["targets"] else ""
    what = (
        f"The table above is the preset. Shipped weights {name}"
        if is_preset
        else f"Trained weights in {name}"
    )
    return f"{what}: {size}, {weights['parameters']:,} parameters{targets}."


def _text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(str(v) for v in value.values() if v != [])
    return str(value)
