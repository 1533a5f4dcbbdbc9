"""``grass-gnn explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.api.options import PredictOptions
from grass_gnn.cli.common import err, examples, plain
from grass_gnn.cli.options import Fields, Molecules, Run, expand_options

EXAMPLES = examples(
    "grass-gnn explain runs/solubility new.csv -o pictures",
    "grass-gnn explain runs/solubility new.csv -o pictures --limit 100 --rewirings 4",
)


@expand_options
def explain(
    run: Run,
    molecules: Molecules,
    options: Annotated[PredictOptions, Fields(only=("smiles", "rewirings", "seed", "device"))],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder to write to; TABLE-explained by default.",
            metavar="FOLDER",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Number of rows to explain.", min=1, metavar="N")] = 20,
) -> None:
    """Draw molecules with the attention of each bond, and write the numbers."""
    from grass_gnn.api.explanation import explain_table
    from grass_gnn.evaluation.trained import load_model

    output = output or Path(f"{molecules.name.split('.')[0]}-explained")
    rows, failed = explain_table(
        load_model(run, options.device), molecules, output, options, limit=limit
    )
    unread = f" ({failed:,} could not be read)" if failed else ""
    err.print(f"Explained {rows - failed:,} of {rows:,} rows{unread} → {plain(str(output))}")
