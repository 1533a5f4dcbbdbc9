"""``grass-gnn evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import examples, out, print_json
from grass_gnn.cli.options import Workers
from grass_gnn.cli.results import show_results
from grass_gnn.evaluation import evaluate_run
from grass_gnn.progress import reporting

EXAMPLES = examples(
    "grass-gnn evaluate runs/zinc",
    "grass-gnn evaluate runs/zinc --data folder/zinc --split val --rewirings 16 --json",
)


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with the raw files; the run's own if not given.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    rewirings: Annotated[
        int | None, typer.Option(help="Number of rewirings; the run's own if not given.", min=1)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the rewirings; the run's own if not given.", min=0)
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Seed each rewiring by a hash of its graph.")
    ] = False,
    workers: Workers = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a trained model under many rewirings."""
    with reporting() as progress:
        results = evaluate_run(run, data, split, rewirings, seed, deterministic, workers, progress)
    if json:
        print_json(results)
    else:
        show_results(results, out)
