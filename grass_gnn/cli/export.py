"""``grass-gnn export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples
from grass_gnn.cli.options import Run

EXAMPLES = examples("grass-gnn export runs/solubility -o solubility.pt2")


def export(
    run: Run,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The .pt2 to write; a .json goes beside it.", metavar="FILE"
        ),
    ],
) -> None:
    """Write a trained model as one file that PyTorch runs without this package.

    It takes plain tensors, which the JSON names: torch.export.load(FILE).module()(**tensors).
    """
    from grass_gnn.api.export import export_model
    from grass_gnn.evaluation.trained import load_model

    beside = export_model(load_model(run), output)
    err.print(f"Written to {output}; its inputs are described in {beside}.")
