"""``grass-gnn demo``."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from grass_gnn.cli.common import err, examples, out, print_json, print_table, show_error_bars
from grass_gnn.cli.options import Json

EXAMPLES = examples("grass-gnn demo", "grass-gnn demo --seed 1 --out runs/another")

EPOCHS = 40  # two minutes on two cores
PREDICTIONS = "well_known_predicted.csv"  # in the folder of the demo


def demo(
    folder: Annotated[
        Path,
        typer.Option(
            "--out", help="Run folder; an earlier run in it is deleted.", metavar="FOLDER"
        ),
    ] = Path("runs/demo"),
    epochs: Annotated[int, typer.Option(help="Number of epochs.", min=1, metavar="N")] = EPOCHS,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0, metavar="N")] = 0,
    json: Json = False,
) -> None:
    """Train on measured solubilities, predict well-known molecules, and write a report."""
    from grass_gnn.api.fitting import fit_table
    from grass_gnn.api.prediction import predict_table
    from grass_gnn.data.tables.spec import BUNDLED, WELL_KNOWN, TableSpec
    from grass_gnn.errors import GrassError
    from grass_gnn.evaluation.trained import load_model
    from grass_gnn.files import locked
    from grass_gnn.report.page import write_report
    from grass_gnn.training.options import RunOptions
    from grass_gnn.uncertainty.domain import DOMAIN

    table = BUNDLED["solubility"]
    with locked(folder) as lock:
        if not (folder / DOMAIN).is_file() and any(path != lock.path for path in folder.iterdir()):
            raise GrassError(
                f"{folder} contains files of something else, which the demonstration would delete: "
                "choose another --out."
            )
        lock.empty()
    err.print("[bold]1/3[/] Training on measured solubilities in water (logS, log10 of mol/L)")
    settings = {"training.epochs": epochs}
    spec = TableSpec((table.target,))
    run = fit_table(table.path, spec, folder, RunOptions(seed=seed), settings=settings)
    err.print("[bold]2/3[/] Predicting well-known molecules that are not in the table")
    predictions = folder / PREDICTIONS
    predict_table(load_model(folder), WELL_KNOWN, predictions, seed=seed)
    err.print("[bold]3/3[/] Writing the report")
    page = folder / "report.html"
    write_report([folder], page)
    with predictions.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if json:
        print_json({"results": run.results, "predictions": rows, "report": str(page)})
        return
    _show_scores(run.results)
    _show_predictions(rows, table.target)
    steps = {
        f"grass-gnn serve {folder}": "a page to paste molecules into",
        f"grass-gnn predict {folder} new.csv": "any CSV with a column of SMILES",
        "grass-gnn train molecules.csv --target NAME": "your own table",
    }
    width = max(map(len, steps))
    out.print(f"The report is in [bold]{page}[/]: open it in a browser. Try next:")
    for command, what in steps.items():
        out.print(f"  {command:{width}}  # {what}")


def _show_scores(results: dict[str, Any]) -> None:
    """Print the test scores, those of each member alone, and how good the intervals are."""
    from grass_gnn.api.forest import MODEL

    test, baseline = results["test"]["metrics"], results.get("baseline", {})
    table = Table("", *(f"test {name.upper()}" for name in test), "training rows")
    cells = [f"{value:.3f} ({low:.3f} to {high:.3f})" for value, (low, high) in test.values()]
    sizes = results["data"]["fingerprint"]["splits"]
    rows, members = f"{sizes['train']['graphs']:,}", results["test"].get("members", {})
    title = "all averaged (95 % interval)" if members else "GRASS (95 % interval)"
    table.add_row(title, *cells, "" if members else rows)
    shown = {"network": "GRASS alone", "forest": MODEL}
    for member, scores in members.items():
        cells = [f"{scores[metric]:.3f}" for metric in test]
        own = rows if member == "network" else f"{baseline['rows']:,}"
        table.add_row(shown.get(member, member), *cells, own)
    print_table(table)
    if baseline:
        others = "forest and Gaussian process use" if len(members) > 2 else "forest uses"
        out.print(f"The {others} {baseline['inputs']}.")
    if bars := results.get("error_bars"):
        show_error_bars(bars)


def _show_predictions(rows: list[dict[str, str]], target: str) -> None:
    """Predicted and measured values."""
    table = Table("molecule", f"predicted {target}", "90 % interval", "measured", "warning")
    for row in rows:
        interval = " to ".join(f"{float(row[f'{target}_{end}']):.2f}" for end in ("lower", "upper"))
        measured = f"{float(row[target]):.2f}" if row[target] else "–"
        value = f"{float(row[f'{target}_pred']):.2f}"
        table.add_row(row["name"], value, interval, measured, row["warning"])
    print_table(table)
