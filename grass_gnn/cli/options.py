"""Options that several commands have, said in one way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Titles of the groups that options are shown in.
TABLE = "Table of molecules"
BENCHMARK = "Benchmark"
TRAINING = "Training"
REWIRING = "Rewirings"

RUN_HELP = "The folder of a run, or the name of a model that comes with the package."
NAMES = "NAME,NAME…"

Run = Annotated[Path, typer.Argument(help=RUN_HELP, metavar="RUN")]
Table = Annotated[
    Path, typer.Argument(help="A table of molecules (CSV, TSV, Parquet).", metavar="TABLE")
]

# Of tables of molecules.
Target = Annotated[
    str | None,
    typer.Option(help="Columns to predict.", metavar=NAMES, rich_help_panel=TABLE),
]
Smiles = Annotated[
    str | None,
    typer.Option(
        help="Column of SMILES; found by its name if not given.",
        metavar="NAME",
        rich_help_panel=TABLE,
    ),
]
SmilesOfTraining = Annotated[
    str | None,
    typer.Option(help="Column of SMILES; that of training if not given.", metavar="NAME"),
]
Split = Annotated[
    str,
    typer.Option(
        help="random, scaffold, or a column that says train, val or test.",
        metavar="KIND|NAME",
        rich_help_panel=TABLE,
    ),
]
Shares = Annotated[
    str,
    typer.Option(
        help="Shares of training, validation and test.", metavar="X,X,X", rich_help_panel=TABLE
    ),
]
ValidationTable = Annotated[
    Path | None,
    typer.Option(help="A table of validation rows.", metavar="FILE", rich_help_panel=TABLE),
]
TestTable = Annotated[
    Path | None, typer.Option(help="A table of test rows.", metavar="FILE", rich_help_panel=TABLE)
]
Task = Annotated[
    str | None,
    typer.Option(
        help="regression, binary, classification or multilabel; inferred if not given.",
        metavar="KIND",
        rich_help_panel=TABLE,
    ),
]
Features = Annotated[
    str,
    typer.Option(help="Numbering of atoms and bonds.", metavar="ogb|zinc", rich_help_panel=TABLE),
]
Descriptors = Annotated[
    str | None,
    typer.Option(
        help="Columns of numbers to give to the head.", metavar=NAMES, rich_help_panel=TABLE
    ),
]
BadRows = Annotated[
    str,
    typer.Option(
        help="What to do about rows that cannot be used.",
        metavar="skip|fail",
        rich_help_panel=TABLE,
    ),
]

# Of benchmarks.
RawFiles = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the raw files, if not downloaded.",
        metavar="FOLDER",
        rich_help_panel=BENCHMARK,
    ),
]
Generate = Annotated[
    str | None,
    typer.Option(
        help="PATTERN, CLUSTER: draw so many graphs for training, validation and test.",
        metavar="N,N,N",
        rich_help_panel=BENCHMARK,
    ),
]

# Of training.
Epochs = Annotated[
    int | None,
    typer.Option(help="Number of epochs.", min=1, metavar="N", rich_help_panel=TRAINING),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting; may be repeated.",
        metavar="NAME=VALUE",
        rich_help_panel=TRAINING,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        help="Settings (TOML) to start from; by the size of the data if not given.",
        metavar="FILE",
        rich_help_panel=TRAINING,
    ),
]
Seed = Annotated[
    int, typer.Option(help="Of everything random.", min=0, metavar="N", rich_help_panel=TRAINING)
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with an interrupted run.", rich_help_panel=TRAINING),
]
Workers = Annotated[
    int,
    typer.Option(
        help="Threads that prepare batches.", min=0, metavar="N", rich_help_panel=TRAINING
    ),
]
Logger = Annotated[
    str | None,
    typer.Option(
        help="Also log to tensorboard, mlflow or wandb.", metavar="NAME", rich_help_panel=TRAINING
    ),
]

# Of predicting.
Rewirings = Annotated[
    int,
    typer.Option(help="Rewirings to average over.", min=1, metavar="N", rich_help_panel=REWIRING),
]
RewiringSeed = Annotated[
    int, typer.Option(help="Of the rewirings.", min=0, metavar="N", rich_help_panel=REWIRING)
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Let rewirings follow from each graph alone.",
        rich_help_panel=REWIRING,
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(help="Another run to average with; may be repeated.", metavar="RUN"),
]

# Of what is printed.
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ResultsAsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
