"""``grass-gnn pretrain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import examples, parse_settings, show_run
from grass_gnn.cli.options import (
    TABLE,
    Epochs,
    OneProcessOptions,
    ResultsAsJson,
    Settings,
    expand_options,
)

EXAMPLES = examples(
    "grass-gnn pretrain molecules.smi -o runs/pretrained",
    "grass-gnn pretrain moses.csv.gz zinc.smi -o runs/pretrained --exclude test.csv",
    "grass-gnn pretrain moses.csv.gz -o runs/pretrained --resume",
    "grass-gnn finetune runs/pretrained molecules.csv --target logS",
)


@expand_options
def pretrain(
    lists: Annotated[
        list[Path],
        typer.Argument(
            help="Tables with a column of SMILES, or text files with one SMILES per line.",
            metavar="LIST...",
            show_default=False,
        ),
    ],
    options: OneProcessOptions,
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Run folder.", metavar="FOLDER", show_default=False)
    ],
    molecules: Annotated[
        int,
        typer.Option(
            help="Number of molecules to draw: equally many from each list that is long enough.",
            metavar="N",
            min=3,
            rich_help_panel=TABLE,
        ),
    ] = 250_000,
    exclude: Annotated[
        list[Path] | None,
        typer.Option(
            help="Leave out the molecules of this table; can be repeated.",
            metavar="TABLE",
            rich_help_panel=TABLE,
        ),
    ] = None,
    smiles: Annotated[
        str | None,
        typer.Option(
            help="Column of SMILES; found by its name by default.",
            metavar="NAME",
            rich_help_panel=TABLE,
        ),
    ] = None,
    fragments: Annotated[
        float,
        typer.Option(
            help="Share of molecules that are replaced by a random fragment.",
            metavar="X",
            min=0,
            max=1,
            rich_help_panel=TABLE,
        ),
    ] = 0.3,
    epochs: Epochs = None,
    settings: Settings = None,
    json: ResultsAsJson = False,
) -> None:
    """Pretrain a network for molecules on long lists of SMILES.

    It learns to predict several hundred RDKit descriptors, which need no measurements. Use the run
    folder with finetune, to train on a table, or with embed, without further training.
    """
    from grass_gnn.api.pretraining import PretrainingSpec
    from grass_gnn.api.pretraining import pretrain as pretrain_model

    spec = PretrainingSpec(molecules, tuple(map(str, exclude or [])), smiles, fragments)
    changes = parse_settings(settings or [], epochs)
    run = pretrain_model(list(lists), folder, spec, options, settings=changes)
    show_run(run, json, "finetune RUN molecules.csv --target NAME")
