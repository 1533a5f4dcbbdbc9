"""``grass-gnn export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import err, examples
from grass_gnn.cli.options import Run

EXAMPLES = examples(
    "grass-gnn export runs/solubility -o solubility.pt2",
    "grass-gnn export runs/solubility -o solubility.pt2 --device cpu",
)


def export(
    run: Run,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The .pt2 file to write, RUN.pt2 by default; a .json file is written next to it.",
            metavar="FILE",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Device that the file will run on; the GPU if there is one, otherwise the CPU.",
            metavar="DEVICE",
        ),
    ] = None,
) -> None:
    """Export a trained model to a file that PyTorch can run without this package.

    Its inputs are plain tensors, which the JSON file describes. To run it:
    torch.export.load(FILE).module()(**tensors).
    """
    from grass_gnn.api.export import export_model
    from grass_gnn.evaluation.trained import load_model

    output = output or Path(f"{run.name}.pt2")
    beside = export_model(load_model(run, device), output)
    err.print(f"Exported to {output}; its inputs are described in {beside}.")
