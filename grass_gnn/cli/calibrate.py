"""``grass-gnn calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from grass_gnn.cli.common import examples, out, print_json, print_table
from grass_gnn.cli.options import Device, Ensemble, Json, Rewirings, RewiringSeed

if TYPE_CHECKING:
    from grass_gnn.uncertainty.calibration import Calibration, SpreadCalibration

EXAMPLES = examples(
    "grass-gnn calibrate runs/solubility",
    "grass-gnn calibrate runs/a --ensemble runs/b --ensemble runs/c",
    "grass-gnn calibrate runs/a --data held_out.csv --no-store",
)

_LOW = 0.1  # rank correlation below which the std is hardly informative


def calibrate(
    run: Annotated[
        Path, typer.Argument(help="Run folder, or folder of a cross-validation.", metavar="RUN")
    ],
    ensemble: Ensemble = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Table with targets that no run was trained on; the validation split of RUN by "
            "default.",
            metavar="FILE",
        ),
    ] = None,
    store: Annotated[
        bool, typer.Option(help="Store the calibration, so that predict applies it.")
    ] = True,
    rewirings: Rewirings = 16,
    seed: RewiringSeed = 0,
    device: Device = None,
    json: Json = False,
) -> None:
    """Calibrate error bars and probabilities again; train has already done so."""
    from grass_gnn.api.calibration import calibrate as calibrate_runs
    from grass_gnn.uncertainty.calibration import file_name
    from grass_gnn.uncertainty.ensembles import run_folders

    found = calibrate_runs(
        run,
        ensemble or (),
        rewirings=rewirings,
        data=data,
        seed=seed,
        store=store,
        device=device,
    )
    if json:
        print_json(found.model_dump(mode="json"))
        return
    print_table(_probabilities(found) if found.probabilities else _spreads(found))
    for one in found.targets:
        _comment(one)
    applied = "predict will apply this calibration" if store else "nothing was stored"
    out.print(f"{found.rows:,} rows ({found.source}); {applied}.")
    plot = run_folders(run)[0] / f"{file_name(found.models)}.png"
    out.print(f"Plot: {plot}")


def _comment(one: SpreadCalibration) -> None:
    if (one.calibrated_correlation or 0.0) < _LOW:
        out.print(
            f"{one.target}: the std is hardly correlated with the error; calibration only "
            "corrects its overall size."
        )


def _spreads(found: Calibration) -> Table:
    from grass_gnn.uncertainty.ensembles import COVERAGE

    table = Table("target", "", "uncalibrated", "calibrated")
    for one in found.targets:
        ranks = [
            "–" if value is None else f"{value:z.2f}"
            for value in (one.rank_correlation, one.calibrated_correlation)
        ]
        width = f"± {one.half_width(COVERAGE):.2f} std"
        table.add_row(one.target, f"{100 * COVERAGE:.0f} % interval", "", width)
        table.add_row("", "miscalibration area", f"{one.area:.3f}", f"{one.scaled_area:.3f}")
        for count, share in enumerate(("68 %", "95 %")):
            shares = [f"{values[count]:.0%}" for values in (one.within, one.scaled_within)]
            table.add_row("", f"errors within {count + 1} std ({share})", *shares)
        table.add_row("", "rank correlation with error", *ranks, end_section=True)
    return table


def _probabilities(found: Calibration) -> Table:
    table = Table("", "as predicted", "with temperature")
    if (one := found.probabilities) is not None:
        table.add_row("temperature", "1", f"{one.temperature:.3g}")
        table.add_row("expected calibration error", f"{one.error:.4f}", f"{one.scaled_error:.4f}")
        table.add_row("log loss", f"{one.log_loss:.4f}", f"{one.scaled_log_loss:.4f}")
    return table
