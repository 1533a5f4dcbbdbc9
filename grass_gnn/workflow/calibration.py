"""Can the error bars be trusted? An answer from validation rows, and factors that mend them.

Regression: with z = (true − mean) / std, std × s is likeliest under a Gaussian for
s = √(mean of z²), a factor for each target. Classification: logits / T, where T makes the true
classes or labels likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel
from grass_gnn.evaluation.calibration import (
    calibration_error,
    fit_scale,
    fit_temperature,
    log_loss,
    miscalibration_area,
    rank_correlation,
    with_temperature,
)
from grass_gnn.evaluation.calibration_plot import draw_coverage, draw_reliability
from grass_gnn.progress import Progress, silent
from grass_gnn.workflow.ensemble import Spread, combine
from grass_gnn.workflow.held_out import table_rows, validation_rows
from grass_gnn.workflow.run_folders import load_models, run_folders
from grass_gnn.workflow.schema import TableSchema
from grass_gnn.workflow.stored_calibration import (
    Calibration,
    ProbabilityCalibration,
    SpreadCalibration,
    checksums,
    file_name,
)

FEWEST = 10  # rows from which a factor is taken
# A molecule that no rewiring changes, such as a single atom, has no spread but rounding errors.
_NO_SPREAD = 1e-3  # of the median


def calibrate(
    run: str | Path,
    ensemble: Sequence[str | Path] = (),
    *,
    rewirings: int = 16,
    data: str | Path | None = None,
    seed: int = 0,
    store: bool = True,
    progress: Progress = silent,
) -> Calibration:
    """Compare a model's error bars with its errors, on rows that it was not trained on.

    A plot goes into the run folder, and the factors, which ``predict`` then applies.

    Args:
        run: The run folder.
        ensemble: Other runs that are averaged with it.
        rewirings: Rewirings that predictions are averaged over.
        data: A table of molecules with targets; the run's validation split if not given.
        seed: Of the rewirings.
        store: Whether ``predict`` is to apply what is found.
        progress: Told how many models have predicted.
    """
    models = load_models([run, *ensemble])
    folder = run_folders(run)[0]
    if models[0].folder != folder:
        raise GrassError(f"The model {run} comes with the package: calibrate a copy of its folder.")
    datasets, target = table_rows(models, data) if data is not None else validation_rows(models)
    found = []
    for model, dataset in zip(models, datasets, strict=True):
        found.append(model.predict_packed(dataset, rewirings, seed))
        progress("Predicting", len(found), len(models))
    picture = folder / f"{file_name(models)}.png"
    task, spread = models[0].config.task, combine(found)
    spreads, probabilities = [], None
    if task.kind == "regression":
        spreads = _check_spreads(spread, target, _names(models[0]), picture)
    else:
        probabilities = _check_probabilities(task.kind, spread.mean, target, picture)
    result = Calibration(
        kind=task.kind,
        models=checksums(models),
        rewirings=rewirings,
        rows=len(target),
        source="validation split" if data is None else Path(data).name,
        targets=spreads,
        probabilities=probabilities,
    )
    if store:
        result.save(folder)
    return result


def _names(model: TrainedModel) -> list[str]:
    schema = TableSchema.from_card(model.card)
    outputs = model.config.task.outputs
    return schema.targets if schema is not None else [f"y{number}" for number in range(outputs)]


def _check_spreads(
    spread: Spread, target: Tensor, names: Sequence[str], picture: Path
) -> list[SpreadCalibration]:
    """Every target of a regression: its coverage, before and after scaling."""
    error = target.view_as(spread.mean).double() - spread.mean.double()  # [M, outputs]
    found, scores = [], {}
    for number, name in enumerate(names):
        known = ~error[:, number].isnan()
        std, own = spread.std[known, number].double(), error[known, number]
        spreads = std > _NO_SPREAD * std.median() if len(std) else std > 0
        z = (own[spreads] / std[spreads]).numpy()
        if len(std) and not len(z):
            raise GrassError(
                "The predictions have no spread: give more --rewirings, or an --ensemble."
            )
        _check_count(len(z))
        scale = fit_scale(z)
        if not scale:
            raise GrassError(f"The predictions of {name} have no error: there is nothing to fit.")
        scores[name] = z
        found.append(
            SpreadCalibration(
                target=name,
                scale=scale,
                rows=len(z),
                without_spread=int((~spreads).sum()),
                rank_correlation=rank_correlation(std[:, None], own.abs()[:, None]),
                area=miscalibration_area(z),
                scaled_area=miscalibration_area(z / scale),
                within=_within(z),
                scaled_within=_within(z / scale),
            )
        )
    draw_coverage(scores, {one.target: one.scale for one in found}, picture)
    return found


def _check_probabilities(
    kind: str, probability: Tensor, target: Tensor, picture: Path
) -> ProbabilityCalibration:
    """The probabilities of a classification, before and after temperature scaling."""
    target = target if kind == "classification" else target.view_as(probability)
    _check_count(len(target))
    temperature = fit_temperature(kind, probability, target)
    scaled = with_temperature(kind, probability, temperature)
    draw_reliability(kind, probability, target, temperature, picture)
    return ProbabilityCalibration(
        temperature=temperature,
        rows=len(target),
        error=calibration_error(kind, probability, target),
        scaled_error=calibration_error(kind, scaled, target),
        log_loss=log_loss(kind, probability, target),
        scaled_log_loss=log_loss(kind, scaled, target),
    )


def _check_count(rows: int) -> None:
    if rows < FEWEST:
        raise GrassError(
            f"{rows} rows that no run was trained on are too few to calibrate with "
            f"({FEWEST} at least): validate on more, let the runs of an ensemble share a "
            "--split-seed, or name a table of such rows (--data)."
        )


def _within(z: np.ndarray) -> tuple[float, float]:
    """The share of errors within one and within two standard deviations."""
    return float(np.mean(np.abs(z) <= 1)), float(np.mean(np.abs(z) <= 2))
