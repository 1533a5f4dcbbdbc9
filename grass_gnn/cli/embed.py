"""``grass-gnn embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples, plain
from grass_gnn.cli.options import Molecules, Prediction, Run, expand_options

EXAMPLES = examples(
    "grass-gnn embed runs/solubility new.csv -o new.npz",
    "grass-gnn embed runs/solubility new.csv -o atoms.parquet --level node",
)


@expand_options
def embed(
    run: Run,
    molecules: Molecules,
    options: Prediction,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=".npz or .parquet file to write; TABLE-embedded.npz by default.",
            metavar="FILE",
        ),
    ] = None,
    level: Annotated[
        str, typer.Option(help="Embed whole molecules or their atoms.", metavar="graph|node")
    ] = "graph",
) -> None:
    """Write the embeddings of molecules or of their atoms."""
    from grass_gnn.api.embedding import embed_table
    from grass_gnn.data.tables.files import table_name
    from grass_gnn.evaluation.trained import load_model

    output = output or Path(f"{table_name(molecules)}-embedded.npz")
    rows, failed = embed_table(
        load_model(run, options.device), molecules, output, options, level=level
    )
    unread = f" ({failed:,} could not be read)" if failed else ""
    err.print(f"Embedded {rows - failed:,} of {rows:,} rows{unread} → {plain(str(output))}")
