"""``grass-gnn finetune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples, out, parse_names, parse_settings, print_json
from grass_gnn.cli.options import (
    BadRows,
    Epochs,
    Logger,
    ResultsAsJson,
    Resume,
    Seed,
    Shares,
    Split,
    Task,
    TestTable,
    ValidationTable,
    Workers,
)
from grass_gnn.cli.results import show_results
from grass_gnn.data.splits import parse_shares
from grass_gnn.evaluation import load_model
from grass_gnn.workflow import Start, finetune_table

EXAMPLES = examples(
    "grass-gnn finetune runs/logS own.csv --target pKa",
    "grass-gnn finetune runs/logS own.csv --target pKa --freeze --out runs/pKa",
    "grass-gnn finetune runs/logS own.csv --target toxic --epochs 50 "
    "--set training.learning_rate=1e-4",
)


def finetune(
    run: Annotated[Path, typer.Argument(help="The folder of a run on molecules to start from.")],
    table: Annotated[Path, typer.Argument(help="A table of molecules (CSV, TSV, Parquet).")],
    target: Annotated[str, typer.Option(help="Columns to predict, as NAME[,NAME].")],
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Train a new head alone, on layers as they are.")
    ] = False,
    smiles: Annotated[
        str | None, typer.Option(help="Column of SMILES; that of RUN, or found by its name.")
    ] = None,
    split: Split = "random",
    shares: Shares = "0.8,0.1,0.1",
    val: ValidationTable = None,
    test: TestTable = None,
    task: Task = None,
    descriptors: Annotated[
        str | None,
        typer.Option(help="Columns of numbers to give to the new head, as NAME[,NAME]."),
    ] = None,
    bad_rows: BadRows = "skip",
    folder: Annotated[
        Path | None, typer.Option("--out", help="The run folder; runs/TABLE-from-RUN if not given.")
    ] = None,
    epochs: Epochs = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of training, evaluation or head: name=value."),
    ] = None,
    seed: Seed = 0,
    resume: Resume = False,
    workers: Workers = 1,
    logger: Logger = None,
    json: ResultsAsJson = False,
) -> None:
    """Train a model further on another table, with a new head for its targets.

    Features, encoding, rewiring and layers stay those of RUN. All weights are trained, gently, or
    with --freeze those of the new head alone.
    """
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
        say=lambda sentence: err.print(sentence, highlight=False, markup=False),
    )
    if json:
        print_json(finished.results)
        return
    show_results(finished.results, out)
    out.print(
        f"Everything is in [bold]{finished.folder}[/]. "
        f"Next: grass-gnn predict {finished.folder} new.csv -o out.csv"
    )
