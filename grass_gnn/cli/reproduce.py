"""``grass-gnn reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from grass_gnn.cli.common import (
    err,
    examples,
    out,
    parse_names,
    parse_settings,
    parse_sizes,
    plain,
    print_json,
    print_table,
)
from grass_gnn.cli.options import NAMES, Generate, RawFiles, ResultsAsJson, settings_option
from grass_gnn.progress import reporting

if TYPE_CHECKING:
    from grass_gnn.experiments.grid import Advance

THEORY = "theory"  # simulated graphs: it has no runs
EXAMPLES = examples(
    "grass-gnn reproduce",
    "grass-gnn reproduce theory",
    "grass-gnn reproduce zinc-ablation --budget smoke --data folder/zinc",
    "grass-gnn reproduce zinc-edges --layers 12 --epochs 10 --seeds 3 --data folder/zinc",
    "grass-gnn reproduce zinc-edges --data folder/zinc --set training.optimizer=muon",
    "grass-gnn reproduce zinc-minutes --minutes 5 --data folder/zinc",
    "grass-gnn reproduce lrgb --budget paper --seeds 8 --cluster auto --threads 8 --gpus 1",
)
LIMITS = "Limits per run"
MACHINES = "Machines"


def _limit(text: str, least: float) -> Any:
    return typer.Option(help=text, min=least, metavar="N", rich_help_panel=LIMITS)


def reproduce(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Table or figure of the paper; without it, all are listed."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Number of runs per row, with seeds 0, 1, ….", min=1, metavar="N")
    ] = 1,
    cells: Annotated[
        str | None,
        typer.Option(
            help="Run only these rows; grass-gnn reproduce --json lists their names.", metavar=NAMES
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of runs and report; runs/EXPERIMENT-BUDGET by default.",
            metavar="FOLDER",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Seconds per run, about an hour per run, or the paper's settings.",
            metavar="smoke|hour|paper",
            rich_help_panel=LIMITS,
        ),
    ] = "hour",
    epochs: Annotated[int | None, _limit("Epochs per run.", 1)] = None,
    minutes: Annotated[
        float | None, _limit("Training time per run in minutes, instead of epochs.", 0.01)
    ] = None,
    layers: Annotated[int | None, _limit("Maximum number of layers.", 1)] = None,
    graphs: Annotated[int | None, _limit("Maximum number of graphs per split.", 2)] = None,
    passes: Annotated[
        int | None, _limit("Maximum number of passes for norm statistics.", 0)
    ] = None,
    rewirings: Annotated[
        int | None, _limit("Maximum number of rewirings per evaluation.", 1)
    ] = None,
    batch_size: Annotated[int | None, _limit("Maximum batch size.", 1)] = None,
    settings: Annotated[
        list[str] | None,
        settings_option(
            "Change a setting of all rows, except in rows that are about this setting.", LIMITS
        ),
    ] = None,
    data: RawFiles = None,
    generate: Generate = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads per run.", min=1, metavar="N", rich_help_panel=MACHINES),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Run on a Ray cluster: its address, auto (that of this machine), or local.",
            metavar="ADDRESS",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    gpus: Annotated[
        float,
        typer.Option(
            help="On a cluster: GPUs (or fraction of one) per run.",
            min=0,
            metavar="N",
            rich_help_panel=MACHINES,
        ),
    ] = 0,
    json: ResultsAsJson = False,
) -> None:
    """Reproduce a table or figure of the paper within a budget, next to the published numbers.

    Finished runs are kept: the same command resumes an interrupted experiment and repeats failed
    runs. A run that fails does not stop the others.
    """
    from grass_gnn.experiments.budget import make_budget
    from grass_gnn.experiments.catalogue import experiment as find_experiment
    from grass_gnn.experiments.grid import Grid, collect_results
    from grass_gnn.experiments.job import Source
    from grass_gnn.experiments.runners import in_processes, on_cluster
    from grass_gnn.report.page import write_report

    if experiment is None:
        _list(json)
        return
    if experiment == THEORY:
        _theory(folder or Path("runs") / THEORY, json)
        return
    chosen = find_experiment(experiment)
    if cells is not None:
        chosen = chosen.only(parse_names(cells))
    limits = make_budget(
        budget,
        parse_settings(settings or []),
        epochs=epochs,
        minutes=minutes,
        layers=layers,
        graphs=graphs,
        passes=passes,
        rewirings=rewirings,
        batch_size=batch_size,
    )
    folder = folder or Path("runs") / f"{experiment}-{limits.slug}"
    source = Source(None if data is None else str(data), parse_sizes(generate))
    threads = threads or (1 if cluster else None)  # a task uses the cores that it asked for
    grid = Grid(chosen, folder, limits, range(seeds), source, threads)
    pending = len(grid.pending)
    err.print(
        f"{chosen.title}: {len(grid.jobs)} runs, {len(grid.jobs) - pending} of them finished, "
        f"with {limits.describe()}."
    )
    failed = 0
    backend = in_processes if cluster is None else on_cluster(cluster, threads or 1, gpus)
    for advance in grid.run(backend):
        failed += advance.error is not None
        _show(advance)
    page = write_report([folder], folder / "report.html", files=folder)
    if json:
        print_json(list(collect_results(folder)))
    else:
        out.print(f"Paper and measured side by side: [bold]{page}[/].")
    if failed:
        raise typer.Exit(1)


def _theory(folder: Path, json: bool) -> None:
    from grass_gnn.experiments.theory import measure_theory
    from grass_gnn.report.theory import checks, write_theory_page

    with reporting():
        theory = measure_theory()
    page = write_theory_page(theory, folder / "report.html")
    found = checks(theory)
    if json:
        print_json([vars(check) for check in found])
        return
    table = Table("claim of the appendix", "simulation", "measured")
    for check in found:
        table.add_row(
            check.claim, "agrees" if check.agrees else "[bold]disagrees[/]", check.measured
        )
    print_table(table)
    out.print(f"With charts: [bold]{page}[/].")


def _show(advance: Advance) -> None:
    """Print one line about a finished run."""
    told = f"[red]failed:[/] {plain(advance.error)}" if advance.error else f"{advance.score:.4f}"
    left = f", about {_duration(advance.seconds_left)} left" if advance.done < advance.total else ""
    err.print(plain(f"[{advance.done}/{advance.total}] {advance.job.name}: ") + f"{told}{left}")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _list(json: bool) -> None:
    from grass_gnn.experiments.catalogue import experiments

    found = experiments()
    if json:
        print_json({name: list(e.cells) for name, e in found.items()} | {THEORY: []})
        return
    table = Table("experiment", "runs", "description")
    for name, e in found.items():
        table.add_row(name, str(len(e.cells)), e.title)
    table.add_row(THEORY, "", "The appendix's claims about random graphs, checked by simulation")
    print_table(table)
