"""``grass-gnn finetune``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import examples, parse_settings, show_run
from grass_gnn.cli.options import (
    TABLE,
    TRAINING,
    Baseline,
    Epochs,
    Fields,
    Forest,
    Molecules,
    OneProcessOptions,
    ResultsAsJson,
    Run,
    expand_options,
    option_fields,
    settings_option,
)
from grass_gnn.data.tables.spec import TableSpec

EXAMPLES = examples(
    "grass-gnn finetune runs/logS own.csv --target pKa",
    "grass-gnn finetune runs/logS own.csv --target pKa --freeze --out runs/pKa",
    "grass-gnn finetune runs/logS own.csv --target toxic --epochs 50 "
    "--set training.learning_rate=1e-4",
)


@expand_options
def finetune(
    run: Run,
    molecules: Molecules,
    table: Annotated[
        TableSpec,
        Fields(
            TABLE,
            only=option_fields(TableSpec, but=("features",)),
            help=(
                ("targets", "Columns to predict, separated by commas."),
                (
                    "smiles",
                    "Column of SMILES or InChI; that of RUN by default, or found by its name.",
                ),
            ),
        ),
    ],
    options: OneProcessOptions,
    freeze: Annotated[
        bool,
        typer.Option(
            "--freeze",
            help="Freeze the layers and train only the new head.",
            rich_help_panel=TRAINING,
        ),
    ] = False,
    forest: Forest = True,
    baseline: Baseline = True,
    epochs: Epochs = None,
    settings: Annotated[
        list[str] | None,
        settings_option("Change a setting of training, evaluation or head.", TRAINING),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder; runs/TABLE-from-RUN by default.", metavar="FOLDER"),
    ] = None,
    json: ResultsAsJson = False,
) -> None:
    """Fine-tune a model on another table, with a new head for its targets.

    Features, encoding, rewiring and layers are those of RUN. All weights are trained at a lower
    learning rate; with --freeze, only the new head is trained.
    """
    from grass_gnn.api.finetuning import Pretrained, finetune_table
    from grass_gnn.data.tables.files import table_name
    from grass_gnn.evaluation.trained import load_model

    name = f"{table_name(molecules)}-from-{run.resolve().name}"
    finished = finetune_table(
        Pretrained(load_model(run, "cpu"), freeze),
        molecules,
        replace(table, forest=forest, baseline=baseline),
        folder or Path("runs") / name,
        options,
        settings=parse_settings(settings or [], epochs),
    )
    show_run(finished, json, "predict RUN new.csv -o out.csv")
