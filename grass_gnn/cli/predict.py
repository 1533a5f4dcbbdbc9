"""``grass-gnn predict``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples, print_json
from grass_gnn.cli.options import (
    Deterministic,
    Ensemble,
    Rewirings,
    RewiringSeed,
    SmilesOfTraining,
    Table,
)
from grass_gnn.progress import reporting

EXAMPLES = examples(
    "grass-gnn predict zinc new.csv -o logp.csv",
    "grass-gnn predict runs/solubility new.csv -o out.csv",
    "grass-gnn predict runs/solubility new.csv -o out.csv --deterministic --rewirings 4",
    "grass-gnn predict runs/a new.csv -o out.csv --ensemble runs/b --ensemble runs/c",
    "grass-gnn predict runs/folds new.csv -o out.csv  # all runs of a cross-validation",
)


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run or of a cross-validation, or the name of a model that comes "
            "with the package."
        ),
    ],
    table: Table,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The CSV to write.", metavar="FILE")
    ],
    smiles: SmilesOfTraining = None,
    ensemble: Ensemble = None,
    uncalibrated: Annotated[
        bool, typer.Option("--uncalibrated", help="Leave out what calibrate found.")
    ] = False,
    max_atoms: Annotated[
        int,
        typer.Option(help="Refuse larger molecules, with a reason.", min=1, metavar="N"),
    ] = 1000,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that read SMILES; one a core if not given.", min=0, metavar="N"
        ),
    ] = None,
    rewirings: Rewirings = 16,
    deterministic: Deterministic = False,
    seed: RewiringSeed = 0,
    json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Predict for a table: each row once, in order, with a value and its spread, or a reason."""
    from grass_gnn.api.prediction import predict_table
    from grass_gnn.uncertainty.ensembles import load_models

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
        f"(column error), {summary.warned:,} with a warning. Written to {output}."
    )
    if summary.calibration:
        err.print(f"{summary.calibration[0].upper()}{summary.calibration[1:]}.")
    for name, value in summary.scores.items():
        err.print(f"  {name} {value:.4f}")
