"""``grass-gnn predict``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples, print_json
from grass_gnn.data.molecules import MAX_ATOMS
from grass_gnn.progress import reporting
from grass_gnn.workflow import load_models, predict_table

EXAMPLES = examples(
    "grass-gnn predict runs/solubility new.csv -o out.csv",
    "grass-gnn predict runs/solubility new.csv -o out.csv --deterministic --rewirings 4",
    "grass-gnn predict runs/a new.csv -o out.csv --ensemble runs/b --ensemble runs/c",
    "grass-gnn predict runs/folds new.csv -o out.csv   (all runs of a cross-validation)",
)


def predict(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run on molecules, or of a cross-validation.")
    ],
    table: Annotated[Path, typer.Argument(help="A table of molecules (CSV, TSV, Parquet).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The CSV to write.")],
    smiles: Annotated[
        str | None, typer.Option(help="Column of SMILES; that of training if not given.")
    ] = None,
    rewirings: Annotated[int, typer.Option(help="Rewirings to average over.", min=1)] = 16,
    ensemble: Annotated[
        list[Path] | None, typer.Option(help="Another run to average with; may be repeated.")
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Let rewirings follow from the molecule alone."),
    ] = False,
    uncalibrated: Annotated[
        bool, typer.Option("--uncalibrated", help="Leave out what calibrate found.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the rewirings.", min=0)] = 0,
    max_atoms: Annotated[
        int, typer.Option(help="Refuse larger molecules, with a reason.", min=1)
    ] = MAX_ATOMS,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read SMILES; one a core if not given.", min=0)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Predict for a table: each row once, in order, with a value and its spread, or a reason."""
    models = load_models([run, *(ensemble or [])])
    with reporting() as progress:
        summary = predict_table(
            models,
            table,
            output,
            smiles=smiles,
            rewirings=rewirings,
            seed=seed,
            deterministic=deterministic,
            max_atoms=max_atoms,
            calibrated=not uncalibrated,
            workers=workers,
            progress=progress,
        )
    if json:
        print_json(asdict(summary))
        return
    err.print(
        f"{summary.rows:,} rows: {summary.predicted:,} predicted, {summary.failed:,} not "
        f"(column error), {summary.warned:,} with a warning. Written to {output}.",
        highlight=False,
    )
    if summary.calibration:
        sentence = summary.calibration[0].upper() + summary.calibration[1:]
        err.print(f"{sentence}.", highlight=False)
    for name, value in summary.scores.items():
        err.print(f"  {name} {value:.4f}", highlight=False)
