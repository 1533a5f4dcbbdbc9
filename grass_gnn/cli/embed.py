"""``grass-gnn embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples
from grass_gnn.evaluation import load_model
from grass_gnn.progress import reporting
from grass_gnn.workflow import embed_table

EXAMPLES = examples(
    "grass-gnn embed runs/solubility new.csv -o new.npz",
    "grass-gnn embed runs/solubility new.csv -o atoms.parquet --level node",
)


def embed(
    run: Annotated[Path, typer.Argument(help="The folder of a run on molecules.")],
    table: Annotated[Path, typer.Argument(help="A table of molecules (CSV, TSV, Parquet).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz or .parquet to write.")],
    level: Annotated[str, typer.Option(help="graph or node.")] = "graph",
    smiles: Annotated[
        str | None, typer.Option(help="Column of SMILES; that of training if not given.")
    ] = None,
    rewirings: Annotated[int, typer.Option(help="Rewirings to average over.", min=1)] = 16,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Let rewirings follow from the molecule alone."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the rewirings.", min=0)] = 0,
) -> None:
    """Write the representations of molecules or of their atoms."""
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
