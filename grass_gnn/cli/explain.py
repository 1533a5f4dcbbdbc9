"""``grass-gnn explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples
from grass_gnn.cli.options import Rewirings, RewiringSeed, Run, SmilesOfTraining, Table
from grass_gnn.progress import reporting

EXAMPLES = examples(
    "grass-gnn explain runs/solubility new.csv -o pictures",
    "grass-gnn explain runs/solubility new.csv -o pictures --limit 100 --rewirings 4",
)


def explain(
    run: Run,
    table: Table,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to write to.", metavar="FOLDER")
    ],
    smiles: SmilesOfTraining = None,
    limit: Annotated[
        int, typer.Option(help="Explain so many of the first rows.", min=1, metavar="N")
    ] = 20,
    rewirings: Rewirings = 16,
    seed: RewiringSeed = 0,
) -> None:
    """Draw molecules with the attention that each bond gets, and write the numbers."""
    from grass_gnn.api.explanation import explain_table
    from grass_gnn.evaluation.trained import load_model

    model = load_model(run)
    with reporting() as progress:
        rows, failed = explain_table(
            model,
            table,
            output,
            smiles=smiles,
            limit=limit,
            rewirings=rewirings,
            seed=seed,
            progress=progress,
        )
    err.print(f"{rows - failed:,} pictures; {failed:,} rows are no molecules. Written to {output}.")
