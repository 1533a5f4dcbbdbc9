"""``grass-gnn train``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grass_gnn.cli.common import (
    config_file,
    examples,
    out,
    parse_settings,
    parse_sizes,
    print_json,
    read_config,
    show_folds,
    show_run,
)
from grass_gnn.cli.options import (
    BENCHMARK,
    TABLE,
    Baseline,
    Config,
    Epochs,
    Forest,
    Generate,
    Options,
    RawFiles,
    ResultsAsJson,
    Settings,
    Table,
    expand_options,
    option_names,
    refuse,
)
from grass_gnn.data.tables.spec import TableSpec

if TYPE_CHECKING:
    from grass_gnn.api.cross_validation import CrossValidation

EXAMPLES = examples(
    "grass-gnn train solubility",
    "grass-gnn train molecules.csv --target logS",
    "grass-gnn train molecules.csv --smiles structure --target pKa,logP --split scaffold",
    "grass-gnn train train.csv --val val.csv --test test.csv --target y --out runs/mine",
    "grass-gnn train molecules.csv --target logS --folds 5",
    "grass-gnn train graphs.pt --out runs/graphs",
    "grass-gnn train zinc --data folder/zinc --epochs 20 --set model.layers=12",
    "grass-gnn train zinc-cpu --data folder/zinc",
    "grass-gnn train cluster --generate 1000,200,200 --out runs/cluster",
    "grass-gnn train zinc --data folder/zinc --start-from runs/zinc-12-layers",
    "grass-gnn train zinc --out runs/zinc --resume",
    "grass-gnn train zinc --data folder/zinc --devices 2",
)
_FOR_GRAPHS = ("task", "shares", "split_seed")  # fields of a table's spec that also apply to graphs


@expand_options
def train(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="Table of molecules (CSV, TSV, Excel, SDF, SMI, Parquet), file of PyG graphs "
            "(.pt), preset, configuration (TOML), or a table that comes with the package: "
            "solubility (1,267 molecules, measured logS) or example (572 molecules, "
            "computed logP).",
            metavar="TABLE|GRAPHS|PRESET|CONFIG",
        ),
    ],
    table: Table,
    options: Options,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Cross-validate with this many folds.",
            min=2,
            metavar="N",
            rich_help_panel=TABLE,
        ),
    ] = None,
    forest: Forest = True,
    baseline: Baseline = True,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Do not start from the pretrained model that comes with the package.",
            rich_help_panel=TABLE,
        ),
    ] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(
            help="Start from the weights of a finished run with at most as many layers; further "
            "layers are inserted so that the output is unchanged at first.",
            metavar="RUN",
            rich_help_panel=BENCHMARK,
        ),
    ] = None,
    data: RawFiles = None,
    generate: Generate = None,
    config: Config = None,
    epochs: Epochs = None,
    settings: Settings = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder; runs/NAME by default.", metavar="FOLDER"),
    ] = None,
    json: ResultsAsJson = False,
) -> None:
    """Train on your own data or a benchmark, evaluate, and write a run folder."""
    from grass_gnn.api.cross_validation import cross_validate
    from grass_gnn.api.fitting import fit_graphs, fit_table
    from grass_gnn.api.graph_task import GraphSpec
    from grass_gnn.api.graphs import is_graph_file, read_graphs
    from grass_gnn.data.packed.prepare import prepare_benchmark
    from grass_gnn.data.tables.files import TABLE_ENDINGS, is_table, table_name
    from grass_gnn.data.tables.spec import BUNDLED, find_table
    from grass_gnn.training.run import take_part
    from grass_gnn.training.start import train_from

    on_table = source in BUNDLED or is_table(source)
    on_graphs = not on_table and is_graph_file(source)
    if not on_table:
        names = ["folds", "forest", "baseline", "from_scratch", *option_names(TableSpec)]
        told = ""
        if on_graphs:
            names = [name for name in names if name not in _FOR_GRAPHS]
        elif Path(source).is_file():
            told = f": the name of {source} ends in none of {', '.join(TABLE_ENDINGS)}"
        refuse(context, names, f"applies only to tables of molecules{told}.")
    if on_table or on_graphs:
        refuse(context, ["data", "generate", "start_from"], "applies only to benchmarks.")
    else:
        refuse(context, ["config"], f"does not apply to {source}, which is a configuration.")
    if folds is not None:
        refuse(context, ["devices", "nodes"], "does not work with --folds.")
    if take_part(options.devices, options.nodes, options.device):
        return
    name = table_name(source) if on_table else Path(source).name.removesuffix(".toml")
    folder = folder or Path("runs") / (Path(source).stem if on_graphs else name)
    changes = parse_settings(settings or [], epochs)
    if on_table:
        spec = replace(table, forest=forest, baseline=baseline, from_scratch=from_scratch)
        path, spec = find_table(source, spec)
        given: dict[str, Any] = {"config": config_file(config), "settings": changes}
        if folds is not None:
            _show_folds(cross_validate(path, spec, folder, folds, options, **given), folder, json)
            return
        show_run(
            fit_table(path, spec, folder, options, **given), json, "predict RUN new.csv -o out.csv"
        )
    elif on_graphs:
        own = GraphSpec(task=table.task, shares=table.shares, split_seed=table.split_seed)
        graphs = read_graphs(source)
        run = fit_graphs(graphs, own, folder, options, config=config_file(config), settings=changes)
        show_run(run, json, "evaluate RUN")
    else:
        chosen = read_config(source, settings or [], epochs)
        prepared = prepare_benchmark(chosen, data, parse_sizes(generate), options.seed)
        run = train_from(start_from, chosen, prepared, folder, options)
        following = "evaluate RUN" if chosen.model.architecture == "grass" else ""
        note = "Baselines keep their scores and predictions, but no weights."
        show_run(run, json, following, note)


def _show_folds(found: CrossValidation, folder: Path, json: bool) -> None:
    if json:
        print_json(found.to_dict())
        return
    show_folds(found.to_dict())
    command = f"grass-gnn predict {folder} new.csv -o out.csv"
    out.print(f"Everything is in [bold]{folder}[/]. Next, all folds as an ensemble: {command}")
