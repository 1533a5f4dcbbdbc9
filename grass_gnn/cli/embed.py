"""``grass-gnn embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples
from grass_gnn.cli.options import (
    Deterministic,
    Rewirings,
    RewiringSeed,
    Run,
    SmilesOfTraining,
    Table,
)
from grass_gnn.progress import reporting

EXAMPLES = examples(
    "grass-gnn embed runs/solubility new.csv -o new.npz",
    "grass-gnn embed runs/solubility new.csv -o atoms.parquet --level node",
)


def embed(
    run: Run,
    table: Table,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The .npz or .parquet to write.", metavar="FILE"),
    ],
    level: Annotated[
        str, typer.Option(help="Of molecules or of their atoms.", metavar="graph|node")
    ] = "graph",
    smiles: SmilesOfTraining = None,
    rewirings: Rewirings = 16,
    deterministic: Deterministic = False,
    seed: RewiringSeed = 0,
) -> None:
    """Write the representations of molecules or of their atoms."""
    from grass_gnn.api.embedding import embed_table
    from grass_gnn.evaluation.trained import load_model

    model = load_model(run)
    with reporting() as progress:
        rows, failed = embed_table(
            model,
            table,
            output,
            level=level,
            smiles=smiles,
            rewirings=rewirings,
            seed=seed,
            deterministic=deterministic,
            progress=progress,
        )
    err.print(f"{rows:,} rows, {failed:,} of them no molecules. Written to {output}.")
