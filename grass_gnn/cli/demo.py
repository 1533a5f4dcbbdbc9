"""``grass-gnn demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from grass_gnn.cli.common import err, examples, out, print_json, print_table
from grass_gnn.cli.options import Json

EXAMPLES = examples("grass-gnn demo", "grass-gnn demo --seed 1 --out runs/another")


def demo(
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the runs; overwritten.", metavar="FOLDER")
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Random seed.", min=0, metavar="N")] = 0,
    json: Json = False,
) -> None:
    """Train a small GRASS, a GCN and a GatedGCN for the same time on generated graphs."""
    from grass_gnn.experiments.demo import SIZES, demonstrate

    err.print(
        f"CLUSTER: in each of {sum(SIZES)} random graphs, find the six communities from one known "
        "member of each.\nThree networks of one size train for the same time, about a minute each."
    )
    contestants = []
    for contestant in demonstrate(folder, seed):
        contestants.append(contestant)
        err.print(
            f"{contestant.name}: {100 * contestant.accuracy:.1f} % of test nodes, "
            f"after {contestant.seconds:.0f} s"
        )
    if json:
        print_json([{**vars(c), "folder": str(c.folder)} for c in contestants])
        return
    table = Table("network", "parameters", "training", "test accuracy", "averaged over rewirings")
    for c in sorted(contestants, key=lambda c: -c.accuracy):
        table.add_row(
            c.name,
            f"{c.parameters:,}",
            f"{c.seconds:.0f} s",
            f"{100 * c.accuracy:.1f} %",
            f"{100 * c.averaged:.1f} %" if c.name == "GRASS" else "",
        )
    print_table(table)
    grass = contestants[0]
    out.print(
        f"GRASS learned to find the community of {100 * grass.accuracy:.0f} % of the nodes "
        "(guessing: 17 %).\n"
        f"Its run, with weights, curves and scores, is in [bold]{grass.folder}[/].\n"
        "Try next:\n"
        f"  grass-gnn evaluate {grass.folder} --rewirings 16\n"
        "  grass-gnn train cluster --generate 1000,200,200 --epochs 5 --set model.layers=16\n"
        "  grass-gnn info zinc"
    )
