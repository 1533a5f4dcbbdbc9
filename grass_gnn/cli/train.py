"""``grass-gnn train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grass_gnn.cli.common import (
    config_file,
    err,
    examples,
    out,
    parse_names,
    parse_settings,
    parse_sizes,
    print_json,
    read_config,
    say,
)
from grass_gnn.cli.options import (
    TABLE,
    BadRows,
    Config,
    Descriptors,
    Epochs,
    Features,
    Generate,
    Logger,
    RawFiles,
    ResultsAsJson,
    Resume,
    Seed,
    Settings,
    Shares,
    Smiles,
    Split,
    Target,
    Task,
    TestTable,
    ValidationTable,
    Workers,
)
from grass_gnn.errors import GrassError

if TYPE_CHECKING:
    from grass_gnn.api.cross_validation import CrossValidation
    from grass_gnn.training.run import Run

EXAMPLES = examples(
    "grass-gnn train example",
    "grass-gnn train molecules.csv --target logS",
    "grass-gnn train molecules.csv --smiles structure --target pKa,logP --split scaffold",
    "grass-gnn train train.csv --val val.csv --test test.csv --target y --out runs/mine",
    "grass-gnn train molecules.csv --target logS --folds 5",
    "grass-gnn train zinc --data folder/zinc --epochs 20 --set model.layers=12",
    "grass-gnn train zinc-cpu --data folder/zinc",
    "grass-gnn train cluster --generate 1000,200,200 --out runs/cluster",
    "grass-gnn train zinc --out runs/zinc --resume",
    "grass-gnn train zinc --data folder/zinc --devices 2",
)
MACHINES = "Several processes or machines"


def train(
    source: Annotated[
        str,
        typer.Argument(
            help="A table of molecules (CSV, TSV, Parquet), a preset, a configuration (TOML), "
            "or example: a table of well-known molecules and their computed logP.",
            metavar="TABLE|PRESET|CONFIG",
        ),
    ],
    target: Target = None,
    smiles: Smiles = None,
    split: Split = "random",
    shares: Shares = "0.8,0.1,0.1",
    val: ValidationTable = None,
    test: TestTable = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Cross-validate: as many runs, each tested on another part.",
            min=2,
            metavar="N",
            rich_help_panel=TABLE,
        ),
    ] = None,
    split_seed: Annotated[
        int | None,
        typer.Option(
            help="Of a random split; --seed if not given.",
            min=0,
            metavar="N",
            rich_help_panel=TABLE,
        ),
    ] = None,
    task: Task = None,
    features: Features = "ogb",
    descriptors: Descriptors = None,
    bad_rows: BadRows = "skip",
    data: RawFiles = None,
    generate: Generate = None,
    config: Config = None,
    epochs: Epochs = None,
    settings: Settings = None,
    seed: Seed = 0,
    resume: Resume = False,
    workers: Workers = 1,
    logger: Logger = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="Processes on this machine that share each batch: a number, or auto (one a GPU).",
            metavar="N|auto",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            help="Machines that share each batch.", min=1, metavar="N", rich_help_panel=MACHINES
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="The run folder; runs/NAME if not given.", metavar="FOLDER"),
    ] = None,
    json: ResultsAsJson = False,
) -> None:
    """Train on a table or a benchmark, evaluate, and keep everything in a folder."""
    from grass_gnn.api.cross_validation import cross_validate
    from grass_gnn.api.fitting import EXAMPLE, EXAMPLE_TARGET, fit_table
    from grass_gnn.data.packed.prepare import prepare_benchmark
    from grass_gnn.data.tables.files import is_table
    from grass_gnn.data.tables.splits import parse_shares
    from grass_gnn.training.follow import take_part
    from grass_gnn.training.run import train as run_training

    if folds is not None and (devices or nodes):
        raise GrassError("Folds (--folds) train in one process: leave out --devices and --nodes.")
    if take_part(devices, nodes):
        return
    folder = folder or Path("runs") / Path(source).name.split(".")[0]
    if source == "example":
        source, target = str(EXAMPLE), target or EXAMPLE_TARGET
    if is_table(source):
        options: dict[str, Any] = {
            "smiles": smiles,
            "split": split,
            "shares": parse_shares(shares),
            "features": features,
            "descriptors": parse_names(descriptors),
            "task": task,
            "bad_rows": bad_rows,
            "config": config_file(config),
            "settings": parse_settings(settings or [], epochs),
            "seed": seed,
            "split_seed": split_seed,
            "resume": resume,
            "workers": workers,
            "logger": logger,
            "console": err,
            "say": say,
        }
        targets = parse_names(target)
        if folds is not None:
            if val is not None or test is not None:
                raise GrassError(
                    "Folds test and validate on one table: leave out --val and --test."
                )
            _show_folds(cross_validate(source, targets, folder, folds, **options), folder, json)
            return
        options |= {"devices": devices, "nodes": nodes}
        run = fit_table(source, targets, folder, val=val, test=test, **options)
    else:
        if folds is not None:
            raise GrassError("Cross-validation (--folds) is for tables of molecules.")
        chosen = read_config(source, settings or [], epochs)
        prepared = prepare_benchmark(chosen, data, parse_sizes(generate), seed)
        run = run_training(
            chosen,
            prepared,
            folder,
            seed,
            resume,
            workers,
            logger=logger,
            console=err,
            devices=devices,
            nodes=nodes,
        )
    _show(run, json, "predict RUN new.csv -o out.csv" if is_table(source) else "evaluate RUN")


def _show(run: Run, json: bool, following: str) -> None:
    from grass_gnn.cli.results import show_results

    if json:
        print_json(run.results)
        return
    show_results(run.results)
    command = following.replace("RUN", str(run.folder))
    out.print(f"Everything is in [bold]{run.folder}[/]. Next: grass-gnn {command}")


def _show_folds(found: CrossValidation, folder: Path, json: bool) -> None:
    from grass_gnn.cli.results import show_folds

    if json:
        print_json(found.to_dict())
        return
    show_folds(found.to_dict())
    command = f"grass-gnn predict {folder} new.csv -o out.csv"
    out.print(f"Everything is in [bold]{folder}[/]. Next, all folds as an ensemble: {command}")
