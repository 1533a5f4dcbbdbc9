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
    "grass-gnn explain runs/solubility new.csv -o pictures --show attention",
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
    show: Annotated[
        str,
        typer.Option(
            help="What the pictures show: atoms (how much each atom raises or lowers the "
            "prediction) or attention (of each bond).",
            metavar="WHAT",
        ),
    ] = "atoms",
    limit: Annotated[int, typer.Option(help="Number of rows to explain.", min=1, metavar="N")] = 20,
) -> None:
    """Draw molecules with the contribution of each atom, and write the numbers.

    The contribution of an atom is the change of the prediction when its features are masked. The
    JSON files also have the attention of each edge.
    """
    from grass_gnn.api.explanation import explain_table
    from grass_gnn.data.tables.files import table_name
    from grass_gnn.evaluation.trained import load_model

    output = output or Path(f"{table_name(molecules)}-explained")
    rows, failed = explain_table(
        load_model(run, options.device), molecules, output, options, show=show, limit=limit
    )
    unread = f" ({failed:,} could not be read)" if failed else ""
    err.print(f"Explained {rows - failed:,} of {rows:,} rows{unread} → {plain(str(output))}")
