"""``grass-gnn predict``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.api.options import PredictOptions
from grass_gnn.cli.common import err, examples, plain, print_json
from grass_gnn.cli.options import (
    Ensemble,
    Fields,
    Molecules,
    RunOrFolds,
    expand_options,
    option_fields,
)

EXAMPLES = examples(
    "grass-gnn predict zinc new.csv -o logp.csv",
    "grass-gnn predict runs/solubility new.csv -o out.csv",
    "grass-gnn predict runs/solubility new.csv -o out.csv --coverage 0.95",
    "grass-gnn predict runs/solubility new.csv -o out.csv --deterministic --rewirings 4",
    "grass-gnn predict runs/a new.csv -o out.csv --ensemble runs/b --ensemble runs/c",
    "grass-gnn predict runs/folds new.csv -o out.csv  # all runs of a cross-validation",
)


@expand_options
def predict(
    run: RunOrFolds,
    molecules: Molecules,
    options: Annotated[
        PredictOptions, Fields(only=option_fields(PredictOptions, but=("calibrated",)))
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="CSV or TSV file to write, compressed if it ends in .gz; TABLE-predicted.csv by "
            "default.",
            metavar="FILE",
        ),
    ] = None,
    ensemble: Ensemble = None,
    uncalibrated: Annotated[
        bool, typer.Option("--uncalibrated", help="Do not apply a stored calibration.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Predict a table of molecules: value, std and interval for each row, or an error message."""
    from grass_gnn.api.prediction import predict_table
    from grass_gnn.data.tables.files import table_name
    from grass_gnn.tasks import format_score
    from grass_gnn.uncertainty.ensembles import load_models

    output = output or Path(f"{table_name(molecules)}-predicted.csv")
    models = load_models([run, *(ensemble or [])], options.device)
    summary = predict_table(
        models, molecules, output, replace(options, calibrated=not uncalibrated)
    )
    if json:
        print_json(asdict(summary))
        return
    counts = f"Predicted {summary.predicted:,} of {summary.rows:,} rows"
    if summary.failed:
        counts += f", {summary.failed:,} failed (see the column error)"
    if summary.warned:
        counts += f", {summary.warned:,} with a warning"
    err.print(f"{counts} → {plain(str(output))}")
    if summary.calibration:
        err.print(f"{summary.calibration[0].upper()}{summary.calibration[1:]}.")
    if summary.scores and summary.scored < summary.rows:
        err.print(f"Scores of {summary.scored:,} of {summary.rows:,} rows:")
    for name, value in summary.scores.items():
        err.print(f"  {name} {format_score(value)}")
    if summary.familiar:
        err.print(
            f"At least {summary.familiar:,} of {summary.scored:,} scored rows have the fingerprint "
            "of a training molecule: these scores are too good if the model was trained on them."
        )
    if summary.scores:
        err.print("(train and evaluate draw other rewirings, so their scores differ a little.)")
