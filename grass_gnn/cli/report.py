"""``grass-gnn report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import examples, out

EXAMPLES = examples(
    "grass-gnn report runs/zinc -o report.html",
    "grass-gnn report runs/zinc-ablation-hour runs/zinc-edges-hour -o report.html",
)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or of grass-gnn reproduce.", metavar="RUN"),
    ],
    page: Annotated[
        Path, typer.Option("--out", "-o", help="The page to write.", metavar="FILE")
    ] = Path("report.html"),
) -> None:
    """Write one self-contained page: the paper beside what was measured, curves and figures."""
    from grass_gnn.report.page import write_report

    write_report(runs, page)
    out.print(f"The report is [bold]{page}[/]; its tables and figures lie beside it.")
