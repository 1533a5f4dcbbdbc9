"""``grass-gnn tune``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import table as rich_table

from grass_gnn.cli.common import (
    config_file,
    err,
    examples,
    out,
    parse_settings,
    print_json,
    print_table,
)
from grass_gnn.cli.options import (
    TRAINING,
    Config,
    Fields,
    Search,
    Table,
    expand_options,
    settings_option,
)
from grass_gnn.training.options import RunOptions

if TYPE_CHECKING:
    from grass_gnn.api.tuning import TuneResult

EXAMPLES = examples(
    "grass-gnn tune molecules.csv --target logS --trials 50",
    "grass-gnn tune molecules.csv --target logS --minutes 60 --epochs 30 -o best.toml",
    "grass-gnn train molecules.csv --target logS --config best.toml",
    "grass-gnn tune molecules.csv --target logS --storage postgresql://user@host/studies",
)
SHOWN = 10  # of the best trials


@expand_options
def tune(
    molecules: Annotated[
        str,
        typer.Argument(
            help="Table of molecules (CSV, TSV, Excel, SDF, SMI, Parquet), or a table that comes "
            "with the package: solubility or example.",
            metavar="TABLE",
        ),
    ],
    table: Table,
    search: Search,
    options: Annotated[RunOptions, Fields(TRAINING, only=("seed", "workers", "device"))],
    config: Config = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs per trial.", min=1, metavar="N", rich_help_panel=TRAINING),
    ] = None,
    settings: Annotated[
        list[str] | None, settings_option("Fix a setting in all trials.", TRAINING)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File for the best settings; best.toml in the folder by default.",
            metavar="FILE",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Output folder; runs/TABLE-tune by default.", metavar="FOLDER"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the trials as JSON.")] = False,
) -> None:
    """Search for better settings with Optuna; bad trials are stopped early.

    The same command resumes an interrupted study, and several machines can share one. Trials are
    compared on the validation set; the test set is not used.
    """
    from grass_gnn.api.tuning import tune as tune_settings
    from grass_gnn.data.tables.files import table_name
    from grass_gnn.data.tables.spec import find_table

    folder = folder or Path("runs") / f"{table_name(molecules)}-tune"
    path, table = find_table(molecules, table)
    result = tune_settings(
        path,
        table,
        folder,
        replace(search, file=output),
        options,
        config=config_file(config),
        settings=parse_settings(settings or [], epochs),
    )
    if json:
        print_json({"metric": result.metric, "trials": [asdict(one) for one in result.trials]})
    else:
        _show(result)
    if result.interrupted:
        err.print("Stopped; run the same command again to resume.")
        raise typer.Exit(130)


def _show(result: TuneResult) -> None:
    shown = rich_table.Table("trial", result.metric, "epochs", "settings")
    for one in result.trials[:SHOWN]:
        score = "" if one.score is None else f"{one.score:.4g}"
        epochs = f"{one.epochs}{'' if one.state == 'complete' else f' ({one.state})'}"
        settings = ", ".join(
            f"{name.split('.')[-1]} {value:.3g}" for name, value in one.settings.items()
        )
        shown.add_row(str(one.number), score, epochs, settings)
    print_table(shown)
    if result.best is not None:
        out.print(
            f"The best settings are in [bold]{result.file}[/]. "
            f"Next: grass-gnn train TABLE --target … --config {result.file}"
        )
