"""``grass-gnn train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import (
    err,
    examples,
    out,
    parse_sizes,
    print_json,
    read_config,
)
from grass_gnn.cli.results import show_results
from grass_gnn.data import prepare_benchmark
from grass_gnn.training import train as run_training

EXAMPLES = examples(
    "grass-gnn train zinc",
    "grass-gnn train zinc --data folder/zinc --epochs 20 --set model.layers=12",
    "grass-gnn train cluster --generate 1000,200,200 --out runs/cluster",
    "grass-gnn train zinc --out runs/zinc --resume",
)


def train(
    preset: Annotated[str, typer.Argument(help="A preset, or a configuration file (TOML).")],
    data: Annotated[
        Path | None, typer.Option(help="Folder with the raw files; downloaded if not given.")
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            help="PATTERN, CLUSTER: draw so many graphs, as TRAIN,VAL,TEST.", metavar="N,N,N"
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="The run folder; runs/NAME if not given.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs.", min=1)] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: name=value.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Threads that prepare batches.", min=0)] = 1,
    logger: Annotated[
        str | None, typer.Option(help="Also log to tensorboard, mlflow or wandb.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Train a configuration, evaluate it by the paper's protocol, keep everything in a folder."""
    config = read_config(preset, settings or [], epochs)
    name = Path(preset).stem
    folder = folder or Path("runs") / name
    prepared = prepare_benchmark(config, data, parse_sizes(generate), seed)
    run = run_training(config, prepared, folder, seed, resume, workers, logger=logger, console=err)
    if json:
        print_json(run.results)
    else:
        show_results(run.results, out)
        out.print(f"Everything is in [bold]{folder}[/]. Next: grass-gnn evaluate {folder}")
