"""Options that several commands have, said in one way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Of tables of molecules.
Split = Annotated[
    str, typer.Option(help="random, scaffold, or a column that says train, val or test.")
]
Shares = Annotated[str, typer.Option(help="Shares of training, validation and test.")]
ValidationTable = Annotated[Path | None, typer.Option(help="A table of validation rows.")]
TestTable = Annotated[Path | None, typer.Option(help="A table of test rows.")]
Task = Annotated[
    str | None,
    typer.Option(help="regression, binary, classification or multilabel; inferred if not given."),
]
BadRows = Annotated[str, typer.Option(help="Rows that cannot be used: skip or fail.")]

# Of training.
Epochs = Annotated[int | None, typer.Option(help="Number of epochs.", min=1)]
Seed = Annotated[int, typer.Option(help="Of everything random.", min=0)]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")]
Workers = Annotated[int, typer.Option(help="Threads that prepare batches.", min=0)]
Logger = Annotated[str | None, typer.Option(help="Also log to tensorboard, mlflow or wandb.")]
ResultsAsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
