"""``grass-gnn explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples
from grass_gnn.evaluation import load_model
from grass_gnn.progress import reporting
from grass_gnn.workflow import explain_table

EXAMPLES = examples(
    "grass-gnn explain runs/solubility new.csv -o pictures",
    "grass-gnn explain runs/solubility new.csv -o pictures --limit 100 --rewirings 4",
)


def explain(
    run: Annotated[Path, typer.Argument(help="The folder of a run on molecules.")],
    table: Annotated[Path, typer.Argument(help="A table of molecules (CSV, TSV, Parquet).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")],
    smiles: Annotated[
        str | None, typer.Option(help="Column of SMILES; that of training if not given.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Explain so many of the first rows.", min=1)] = 20,
    rewirings: Annotated[int, typer.Option(help="Rewirings to average over.", min=1)] = 16,
    seed: Annotated[int, typer.Option(help="Of the rewirings.", min=0)] = 0,
) -> None:
    """Draw molecules with the attention that each bond gets, and write the numbers."""
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
    err.print(f"{rows - failed} pictures, {failed} rows that are no molecules, in {output}.")
