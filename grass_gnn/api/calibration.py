"""Calibration: compare predicted uncertainties with errors on rows that were not trained on.

:func:`add_error_bars` does so at the end of a training, and checks the result on the test rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grass_gnn.api.held_out import (
    HeldOutPredictions,
    predict_held_out,
    predict_out_of_fold,
    split_forest,
    training_reference,
    with_neighbour_errors,
)
from grass_gnn.data.tables.composition import Composition
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.predictions import RowNames, SavedPredictions, write_predictions
from grass_gnn.evaluation.trained import TrainedModel, find_data, load_model
from grass_gnn.files import write_json
from grass_gnn.progress import Progress, reporting
from grass_gnn.tasks import ProbabilityTask, make_task, rank_correlation
from grass_gnn.training.run import Run
from grass_gnn.uncertainty.calibration import (
    NEIGHBOURS,
    Calibration,
    NeighboursFile,
    ProbabilityCalibration,
    SpreadCalibration,
    calibration_error,
    checksums,
    file_name,
    fit_error_model,
    fit_scale,
    fit_temperature,
    indicator_table,
    kept_scores,
    miscalibration_area,
    with_temperature,
)
from grass_gnn.uncertainty.ensembles import (
    COVERAGE,
    Ensemble,
    Spread,
    load_models,
    run_folders,
)
from grass_gnn.uncertainty.neighbours import Neighbours

logger = logging.getLogger(__name__)

FEWEST = 10  # rows needed for a calibration
# The std of a molecule that does not depend on rewiring (a single atom) is only rounding error.
_NO_SPREAD = 1e-3  # as a fraction of the median


def calibrate(
    run: str | Path,
    ensemble: Sequence[str | Path] = (),
    *,
    rewirings: int = 16,
    data: str | Path | None = None,
    seed: int = 0,
    store: bool = True,
    device: str | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Calibrate error bars and probabilities on rows that a model was not trained on.

    ``fit_table`` and ``cross_validate`` do this at their end. Writes the calibration to the run
    folder, where ``predict`` finds it.

    Args:
        run: The run folder. That of a cross-validation is calibrated by the predictions of each
            row by the run that was not trained on it.
        ensemble: Other runs that are averaged with it.
        rewirings: Number of rewirings to average predictions over.
        data: Table of molecules with targets; the validation split of the run by default.
        seed: Random seed of the rewirings.
        store: Whether to store the calibration, so that ``predict`` applies it.
        device: Device to run on; the GPU if there is one, otherwise the CPU.
        progress: Progress hook; by default a progress bar on a terminal.

    Example:
        >>> calibrate("runs/solubility").targets[0].half_width(0.9)  # doctest: +SKIP
    """
    models = load_models([run, *ensemble], device)
    folders = run_folders(run)
    if models[0].folder != folders[0]:
        raise GrassError(f"The model {run} is part of the package: calibrate a copy of its folder.")
    return calibrate_models(
        models, folders, data, rewirings=rewirings, seed=seed, store=store, progress=progress
    )


def calibrate_models(
    models: Sequence[TrainedModel],
    folders: Sequence[Path],
    data: str | Path | None = None,
    *,
    rewirings: int = 16,
    seed: int = 0,
    store: bool = True,
    plot: bool = True,
    progress: Progress | None = None,
) -> Calibration:
    """:func:`calibrate` for models that are loaded already.

    Args:
        models: The models; the calibration is written to the folder of the first.
        folders: The run folders that were named first: one, or all folds of a cross-validation.
        data: Table of molecules with targets; the validation split by default.
        rewirings: Number of rewirings to average predictions over.
        seed: Random seed of the rewirings.
        store: Whether to store the calibration.
        plot: Whether to write a plot to the run folder.
        progress: Progress hook; by default a progress bar on a terminal.
    """
    folder = folders[0]
    with reporting(progress):
        reference = training_reference(models[0], seed)
        if data is None and len(models) == len(folders) > 1:
            held = predict_out_of_fold(models, rewirings, seed)
        else:
            held = predict_held_out(models, data, reference, rewirings, seed)
    picture = folder / f"{file_name(models)}.png" if plot else None
    task = make_task(models[0].config.task)
    spreads, probabilities = [], None
    if isinstance(task, ProbabilityTask):
        probabilities = _check_probabilities(task, held.found.mean, held.target, picture)
    else:
        rows_of = [held] * task.outputs
        if data is None and reference is not None:
            known = ~held.target.view(len(held.target), -1).isnan()  # [M, outputs]
            few = (known.sum(dim=0) < FEWEST).tolist()
            if any(few):
                more = with_neighbour_errors(held, reference)
                rows_of = [more if needed else held for needed in few]
                held = more
        units = _units(models[0], reference)
        spreads = _check_spreads(rows_of, units, _names(models[0]), picture)
    result = Calibration(
        kind=task.config.kind,
        models=checksums(models),
        rewirings=rewirings,
        rows=len(held.target),
        source=held.source,
        targets=spreads,
        probabilities=probabilities,
    )
    if store:
        if reference is not None and spreads:
            path = folder / NEIGHBOURS[file_name(models)]
            file = NeighboursFile(
                model=str(models[0].card.get("weights_sha256")), sha256=reference.save(path)
            )
            result = result.model_copy(update={"neighbours": file})
        result.save(folder)
    return result


def _units(model: TrainedModel, reference: Neighbours | None) -> list[float]:
    """The standard deviation of each target in the training set."""
    if reference is None:
        units = np.array(model.config.task.target_scale, dtype=float)
        units = np.broadcast_to(units, (model.config.task.outputs,))
    else:
        targets = reference.targets.astype(float)
        missing = np.isnan(targets).all(axis=0)  # targets that no training row has
        units = np.nanstd(np.where(missing, 0.0, targets), axis=0)
    return [float(unit) if unit > 0 else 1.0 for unit in units]


def _names(model: TrainedModel) -> list[str]:
    schema = TableSchema.from_card(model.card)
    outputs = model.config.task.outputs
    return schema.targets if schema is not None else [f"y{number}" for number in range(outputs)]


def _check_spreads(
    rows_of: Sequence[HeldOutPredictions],
    units: Sequence[float],
    names: Sequence[str],
    picture: Path | None = None,
) -> list[SpreadCalibration]:
    """Calibrate the std of each target of a regression, with the rows to use for each."""
    found, before, after = [], {}, {}
    for number, (name, held) in enumerate(zip(names, rows_of, strict=True)):
        spread = held.found
        target = held.target.view_as(spread.mean)[:, number].double()
        error = target - spread.mean[:, number].double()  # [M]
        known = ~error.isnan()
        std, own = spread.std[known, number].double(), error[known]
        _check_count(len(std), f" with {name}" if len(names) > 1 else "")
        spreads = std > _NO_SPREAD * std.median()
        z = (own[spreads] / std[spreads]).numpy() if bool(spreads.any()) else np.ones(1)
        if not bool(own.any()):
            raise GrassError(f"All predictions of {name} are exact: there is nothing to calibrate.")
        near = None if held.near is None else held.near.rows(known.numpy())
        indicators = indicator_table(std.numpy(), near, number, units[number])
        size = own.abs().numpy()
        model, scores = fit_error_model(
            indicators, size, units[number], held.between_models, held.forest
        )
        calibrated = torch.from_numpy(size / np.maximum(scores, 1e-12))
        before[name], after[name] = z, scores
        found.append(
            SpreadCalibration(
                target=name,
                scale=fit_scale(z) or 1.0,
                rows=len(std),
                without_spread=int((~spreads).sum()),
                rank_correlation=rank_correlation(std[:, None], own.abs()[:, None]),
                area=miscalibration_area(z),
                scaled_area=miscalibration_area(scores),
                within=_within(z),
                scaled_within=_within(scores),
                errors=model,
                scores=kept_scores(scores),
                calibrated_correlation=rank_correlation(calibrated[:, None], own.abs()[:, None]),
            )
        )
    if picture is not None:
        from grass_gnn.uncertainty.plot import draw_coverage

        draw_coverage(before, after, picture)
    return found


def _check_probabilities(
    task: ProbabilityTask, probability: Tensor, target: Tensor, picture: Path | None
) -> ProbabilityCalibration:
    """Calibrate the probabilities of a classification by temperature scaling."""
    target = target.view(task.target_shape(len(probability)))
    _check_count(len(target))
    temperature = fit_temperature(task, probability, target)
    scaled = with_temperature(task, probability, temperature)
    if picture is not None:
        from grass_gnn.uncertainty.plot import draw_reliability

        draw_reliability(task, probability, target, temperature, picture)
    return ProbabilityCalibration(
        temperature=temperature,
        rows=len(target),
        error=calibration_error(task, probability, target),
        scaled_error=calibration_error(task, scaled, target),
        log_loss=task.log_loss(probability, target),
        scaled_log_loss=task.log_loss(scaled, target),
    )


def _check_count(rows: int, of: str = "") -> None:
    if rows < FEWEST:
        raise GrassError(
            f"{rows} rows{of} are too few for a calibration ({FEWEST} that no run was trained on "
            "are needed): use a larger validation set, the same --split-seed for all runs of an "
            "ensemble, or a table of other rows (--data)."
        )


def _within(z: np.ndarray) -> tuple[float, float]:
    """The fraction of errors within one and within two standard deviations."""
    return float(np.mean(np.abs(z) <= 1)), float(np.mean(np.abs(z) <= 2))


def add_error_bars(
    run: Run,
    names: RowNames,
    molecules: Sequence[Composition],
    progress: Progress | None = None,
) -> Run:
    """Calibrate a run on molecules at the end of its training.

    The test predictions of a regression get calibrated standard deviations and intervals, and
    ``results.json`` says how many of the intervals contain the true value. A run that cannot be
    calibrated, because it has too few validation rows, stays as it is.

    Args:
        run: The finished run.
        names: Names of the rows and columns of its test predictions.
        molecules: What the test molecules are made of.
        progress: Progress hook; by default a progress bar on a terminal.
    """
    rewirings = run.results["test"]["rewirings"]
    try:
        model = load_model(run.folder)
        found = calibrate_models(
            [model], [run.folder], rewirings=rewirings, plot=False, progress=progress
        )
    except GrassError as error:
        logger.info("No calibration: %s", error)
        return run
    if not found.targets:
        return run
    facts = _write_intervals(model, found, run.folder / "test_predictions.csv", names, molecules)
    results = {**run.results, "error_bars": facts}
    write_json(run.folder / "results.json", results)
    return replace(run, results=results)


def _write_intervals(
    model: TrainedModel,
    calibration: Calibration,
    path: Path,
    names: RowNames,
    molecules: Sequence[Composition],
) -> dict[str, Any]:
    """Write calibrated standard deviations and intervals of the test set to its predictions.

    Returns:
        For ``results.json``: of each target, the share of true values within the intervals, their
        mean width, and Spearman's ρ of the standard deviation and the absolute error.
    """
    ensemble = Ensemble([model], calibration)
    saved = SavedPredictions.read(path, ensemble.task)
    mean, std = torch.from_numpy(saved.mean), torch.from_numpy(saved.std)
    reference, test = ensemble.similarity, find_data(model).test
    found = ensemble.with_error_bars(
        Spread(mean, std, std, torch.zeros_like(std)),
        [test],
        [split_forest(ensemble.stacks[0], "test", len(test))],
        None if reference is None else reference.splits.get("test"),
    )
    _, found = ensemble.compare(molecules, found)
    ends = ensemble.interval(found)
    assert ends is not None  # the calibration has targets
    target = torch.from_numpy(saved.target)
    write_predictions(path, target, mean, found.std, names, ends)
    error = (target - mean).abs()
    facts: dict[str, Any] = {"coverage": COVERAGE, "targets": {}}
    for number, name in enumerate(names.targets):
        known = ~error[:, number].isnan()
        low, high, true = (part[known, number] for part in (*ends, target))
        inside = ((low <= true) & (true <= high)).double()
        own = found.std[known, number], error[known, number]
        facts["targets"][name] = {
            "rows": int(known.sum()),
            "inside": float(inside.mean()) if len(inside) else None,
            "width": float((high - low).mean()) if len(inside) else None,
            "rank_correlation": rank_correlation(*(part[:, None] for part in own)),
        }
    return facts
