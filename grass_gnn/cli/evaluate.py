"""``grass-gnn evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import examples, print_json, show_results
from grass_gnn.cli.options import REWIRING, Deterministic, Device, Json, Run

EXAMPLES = examples(
    "grass-gnn evaluate runs/zinc",
    "grass-gnn evaluate runs/zinc --data folder/zinc --split val --rewirings 16 --json",
)


def evaluate(
    run: Run,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Benchmarks: folder with the raw files; that used in training by default.",
            metavar="FOLDER",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Split to score.", metavar="train|val|test")] = "test",
    workers: Annotated[
        int,
        typer.Option(
            help="Threads that prepare batches while the model computes.", min=0, metavar="N"
        ),
    ] = 1,
    rewirings: Annotated[
        int | None,
        typer.Option(
            help="Number of rewirings; that of the run by default.",
            min=1,
            metavar="N",
            rich_help_panel=REWIRING,
        ),
    ] = None,
    deterministic: Deterministic = False,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed of the rewirings; that of the run by default.",
            min=0,
            metavar="N",
            rich_help_panel=REWIRING,
        ),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Score a trained model on its data, for single rewirings and for averaged predictions."""
    from grass_gnn.evaluation.run import evaluate_run

    results = evaluate_run(run, data, split, rewirings, seed, deterministic, workers, device)
    if json:
        print_json(results)
    else:
        show_results(results)
