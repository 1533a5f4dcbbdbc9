"""``grass-gnn finetune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples, out, parse_names, parse_settings, print_json, say
from grass_gnn.cli.options import (
    NAMES,
    TABLE,
    TRAINING,
    BadRows,
    Descriptors,
    Epochs,
    Logger,
    ResultsAsJson,
    Resume,
    Run,
    Seed,
    Shares,
    Split,
    Table,
    Task,
    TestTable,
    ValidationTable,
    Workers,
)

EXAMPLES = examples(
    "grass-gnn finetune runs/logS own.csv --target pKa",
    "grass-gnn finetune runs/logS own.csv --target pKa --freeze --out runs/pKa",
    "grass-gnn finetune runs/logS own.csv --target toxic --epochs 50 "
    "--set training.learning_rate=1e-4",
)


def finetune(
    run: Run,
    table: Table,
    target: Annotated[
        str, typer.Option(help="Columns to predict.", metavar=NAMES, rich_help_panel=TABLE)
    ],
    smiles: Annotated[
        str | None,
        typer.Option(
            help="Column of SMILES; that of RUN, or found by its name.",
            metavar="NAME",
            rich_help_panel=TABLE,
        ),
    ] = None,
    split: Split = "random",
    shares: Shares = "0.8,0.1,0.1",
    val: ValidationTable = None,
    test: TestTable = None,
    task: Task = None,
    descriptors: Descriptors = None,
    bad_rows: BadRows = "skip",
    freeze: Annotated[
        bool,
        typer.Option(
            "--freeze",
            help="Train a new head alone, on layers as they are.",
            rich_help_panel=TRAINING,
        ),
    ] = False,
    epochs: Epochs = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting of training, evaluation or head; may be repeated.",
            metavar="NAME=VALUE",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Seed = 0,
    resume: Resume = False,
    workers: Workers = 1,
    logger: Logger = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The run folder; runs/TABLE-from-RUN if not given.", metavar="FOLDER"
        ),
    ] = None,
    json: ResultsAsJson = False,
) -> None:
    """Train a model further on another table, with a new head for its targets.

    Features, encoding, rewiring and layers stay those of RUN. All weights are trained, gently, or
    with --freeze those of the new head alone.
    """
    from grass_gnn.api.finetuning import Start, finetune_table
    from grass_gnn.cli.results import show_results
    from grass_gnn.data.tables.splits import parse_shares
    from grass_gnn.evaluation.trained import load_model

    start = Start(load_model(run), freeze)
    name = f"{table.name.split('.')[0]}-from-{run.resolve().name}"
    finished = finetune_table(
        start,
        table,
        parse_names(target),
        folder or Path("runs") / name,
        smiles=smiles,
        split=split,
        shares=parse_shares(shares),
        val=val,
        test=test,
        task=task,
        descriptors=parse_names(descriptors),
        bad_rows=bad_rows,
        settings=parse_settings(settings or [], epochs),
        seed=seed,
        resume=resume,
        workers=workers,
        logger=logger,
        console=err,
        say=say,
    )
    if json:
        print_json(finished.results)
        return
    show_results(finished.results)
    out.print(
        f"Everything is in [bold]{finished.folder}[/]. "
        f"Next: grass-gnn predict {finished.folder} new.csv -o out.csv"
    )
