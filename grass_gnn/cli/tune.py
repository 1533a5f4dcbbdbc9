"""``grass-gnn tune``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from grass_gnn.cli.common import (
    config_file,
    err,
    examples,
    out,
    parse_names,
    parse_settings,
    print_json,
    print_table,
    say,
)
from grass_gnn.cli.options import (
    TRAINING,
    BadRows,
    Config,
    Descriptors,
    Features,
    Shares,
    Smiles,
    Split,
    Target,
    Task,
    TestTable,
    ValidationTable,
    Workers,
)

if TYPE_CHECKING:
    from grass_gnn.api.tuning import TuneResult

EXAMPLES = examples(
    "grass-gnn tune molecules.csv --target logS --trials 50",
    "grass-gnn tune molecules.csv --target logS --minutes 60 --epochs 30 -o best.toml",
    "grass-gnn train molecules.csv --target logS --config best.toml",
    "grass-gnn tune molecules.csv --target logS --storage postgresql://user@host/studies",
)
SEARCH = "Search"
SHOWN = 10  # of the best trials


def tune(
    table: Annotated[
        str,
        typer.Argument(help="A table of molecules (CSV, TSV, Parquet), or example."),
    ],
    target: Target = None,
    smiles: Smiles = None,
    split: Split = "random",
    shares: Shares = "0.8,0.1,0.1",
    val: ValidationTable = None,
    test: TestTable = None,
    task: Task = None,
    features: Features = "ogb",
    descriptors: Descriptors = None,
    bad_rows: BadRows = "skip",
    trials: Annotated[
        int,
        typer.Option(
            help="Trials that the study is to have in all.",
            min=1,
            metavar="N",
            rich_help_panel=SEARCH,
        ),
    ] = 30,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Begin no trial after so many minutes.",
            min=0,
            metavar="N",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="A file, or an SQL URL that many machines share; tune.db in the folder if not "
            "given.",
            metavar="FILE|URL",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    study: Annotated[
        str,
        typer.Option(
            help="Name of the study in the storage.", metavar="NAME", rich_help_panel=SEARCH
        ),
    ] = "grass-gnn",
    config: Config = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs of each trial.", min=1, metavar="N", rich_help_panel=TRAINING),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Fix a setting; may be repeated.",
            metavar="NAME=VALUE",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Of the search and of all trials.", min=0, metavar="N", rich_help_panel=TRAINING
        ),
    ] = 0,
    workers: Workers = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The settings to write; best.toml in the folder if not given.",
            metavar="FILE",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="The folder; runs/TABLE-tune if not given.", metavar="FOLDER"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the trials as JSON.")] = False,
) -> None:
    """Search for better settings: many trainings, of which the bad ones end early.

    The same command goes on with a study that was stopped, and several machines may work on one at
    a time. Trials are compared by their validation rows; the test rows are left alone.
    """
    from grass_gnn.api.fitting import EXAMPLE, EXAMPLE_TARGET
    from grass_gnn.api.tuning import tune_table
    from grass_gnn.data.tables.splits import parse_shares

    folder = folder or Path("runs") / f"{Path(table).name.split('.')[0]}-tune"
    if table == "example":
        table, target = str(EXAMPLE), target or EXAMPLE_TARGET
    result = tune_table(
        table,
        parse_names(target),
        folder,
        trials=trials,
        minutes=minutes,
        storage=storage,
        study=study,
        file=output,
        config=config_file(config),
        settings=parse_settings(settings or [], epochs),
        seed=seed,
        workers=workers,
        say=say,
        smiles=smiles,
        split=split,
        shares=parse_shares(shares),
        val=val,
        test=test,
        features=features,
        descriptors=parse_names(descriptors),
        task=task,
        bad_rows=bad_rows,
    )
    if json:
        print_json({"metric": result.metric, "trials": [asdict(one) for one in result.trials]})
    else:
        _show(result)
    if result.interrupted:
        err.print("Stopped; the same command goes on.")
        raise typer.Exit(130)


def _show(result: TuneResult) -> None:
    shown = Table("trial", result.metric, "epochs", "settings")
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
