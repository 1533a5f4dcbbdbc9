"""``grass-gnn report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import examples, out

EXAMPLES = examples(
    "grass-gnn report runs/solubility -o report.html",
    "grass-gnn report runs/zinc-ablation-hour runs/zinc-edges-hour -o report.html",
)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, or of experiments by grass-gnn reproduce.", metavar="RUN"
        ),
    ],
    page: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="HTML file to write; by default RUN/report.html, or report.html for several runs.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            help="Also write the tables (Markdown, CSV, LaTeX) and figures (SVG) to this folder.",
            metavar="FOLDER",
        ),
    ] = None,
) -> None:
    """Write a self-contained HTML report about a run, or compare a grid of runs with the paper."""
    from grass_gnn.report.page import write_report

    if page is None:
        page = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
    write_report(runs, page, files)
    beside = f" Tables and figures are in [bold]{files}[/]." if files is not None else ""
    out.print(f"Report written to [bold]{page}[/].{beside}")
