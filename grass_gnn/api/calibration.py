"""Calibration: compare predicted uncertainties with errors on rows that were not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from grass_gnn.data.checking import CheckedGraph
from grass_gnn.data.packed.dataset import PackedDataset, pack_checked
from grass_gnn.data.tables.schema import TableSchema, read_known_rows
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.run import find_data
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.progress import Progress, report_progress, reporting
from grass_gnn.rewiring import graph_seeds
from grass_gnn.tasks import ProbabilityTask, make_task, rank_correlation
from grass_gnn.uncertainty.calibration import (
    Calibration,
    ProbabilityCalibration,
    SpreadCalibration,
    calibration_error,
    checksums,
    file_name,
    fit_scale,
    fit_temperature,
    miscalibration_area,
    with_temperature,
)
from grass_gnn.uncertainty.ensembles import Ensemble, Spread, combine, load_models, run_folders
from grass_gnn.uncertainty.plot import draw_coverage, draw_reliability

_ELSE = "use a table of rows that no run was trained on (--data)"


def validation_rows(models: Sequence[TrainedModel]) -> tuple[list[PackedDataset], Tensor]:
    """The first run's validation split, without rows that another run was trained on.

    Returns:
        The graphs, encoded for each model, and their targets [M] or [M, outputs].
    """
    first = models[0]
    try:
        prepared = find_data(first)
        if "val" not in prepared.splits:
            raise GrassError(f"The run {first.folder} has no validation split.")
        others = [find_data(model).train for model in models[1:]]
    except GrassError as error:
        raise GrassError(f"{error} Restore data/ of the run, or {_ELSE}.") from None
    val = prepared.val
    target = val.tensors["y"]
    if val.mask_name is not None:
        target = target[val.tensors[val.mask_name]]
    if not others:
        return [val], target
    Ensemble(models)  # raises unless all have the same task
    own, seen = _identities(val), torch.cat([_identities(train) for train in others])
    kept = torch.nonzero(~torch.isin(own, seen)).flatten()
    if not len(kept):
        raise GrassError(
            f"All {len(val)} validation rows of {first.folder} are training rows of another run: "
            f"train the runs with the same --split-seed (or split column), or {_ELSE}."
        )
    graphs = _unpack(val, kept)
    return [pack_checked(graphs, model.config) for model in models], target[kept]


def table_rows(
    models: Sequence[TrainedModel], path: str | Path
) -> tuple[list[PackedDataset], Tensor]:
    """The rows of a table with targets, in the form of :func:`validation_rows`."""
    ensemble = Ensemble(models)
    read = read_known_rows(path, ensemble.schema, ensemble.task.config)
    graphs, targets = [], []
    for molecule, (target, numbers) in zip(read.molecules, read.values, strict=True):
        if molecule is not None and target:
            graphs.append(molecule.checked(numbers))
            targets.append(target)
    found = ensemble.task.as_targets(torch.tensor(targets))  # [M] or [M, outputs]
    return [pack_checked(graphs, model.config) for model in models], found


def _identities(dataset: PackedDataset) -> Tensor:
    """A hash of each graph [B]: its nodes, edges and their features."""
    graphs = dataset.select(torch.arange(len(dataset)))
    return graph_seeds(graphs.edge_index, graphs.graph_ptr, x=graphs.x, edge_attr=graphs.edge_attr)


def _unpack(dataset: PackedDataset, ids: Tensor) -> list[CheckedGraph]:
    """Graphs of a packed dataset, to be encoded for another model."""
    found = []
    for number in ids.split(1):
        graph = dataset.select(number)
        found.append(
            CheckedGraph(
                num_nodes=int(graph.graph_ptr[-1]),
                edge_index=graph.edge_index,
                x=graph.x,
                edge_attr=graph.edge_attr,
                y=None,
                weight=None,
                descriptors=graph.descriptors,
                masks={},
            )
        )
    return found


FEWEST = 10  # rows needed to fit a factor
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
    """Calibrate the predicted uncertainties of a model on rows that it was not trained on.

    Writes a plot and the calibration to the run folder; ``predict`` then applies it.

    Args:
        run: The run folder.
        ensemble: Other runs that are averaged with it.
        rewirings: Number of rewirings to average predictions over.
        data: Table of molecules with targets; the validation split of the run by default.
        seed: Random seed of the rewirings.
        store: Whether to store the calibration, so that ``predict`` applies it.
        device: Device to run on; the GPU if there is one, otherwise the CPU.
        progress: Progress hook; by default a progress bar on a terminal.

    Example:
        >>> calibrate("runs/solubility").targets[0].scale  # doctest: +SKIP
    """
    models = load_models([run, *ensemble], device)
    folder = run_folders(run)[0]
    if models[0].folder != folder:
        raise GrassError(f"The model {run} is part of the package: calibrate a copy of its folder.")
    datasets, target = table_rows(models, data) if data is not None else validation_rows(models)
    found = []
    with reporting(progress):
        for model, dataset in zip(models, datasets, strict=True):
            found.append(model.predict_packed(dataset, rewirings, seed))
            report_progress("Predicting", len(found), len(models))
    picture = folder / f"{file_name(models)}.png"
    task, spread = make_task(models[0].config.task), combine(found)
    spreads, probabilities = [], None
    if isinstance(task, ProbabilityTask):
        probabilities = _check_probabilities(task, spread.mean, target, picture)
    else:
        spreads = _check_spreads(spread, target, _names(models[0]), picture)
    result = Calibration(
        kind=task.config.kind,
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
    """Calibrate the std of each target of a regression."""
    error = target.view_as(spread.mean).double() - spread.mean.double()  # [M, outputs]
    found, scores = [], {}
    for number, name in enumerate(names):
        known = ~error[:, number].isnan()
        std, own = spread.std[known, number].double(), error[known, number]
        spreads = std > _NO_SPREAD * std.median() if len(std) else std > 0
        z = (own[spreads] / std[spreads]).numpy()
        if len(std) and not len(z):
            raise GrassError(
                "All standard deviations are zero: use more --rewirings or an --ensemble."
            )
        _check_count(len(z))
        scale = fit_scale(z)
        if not scale:
            raise GrassError(f"All predictions of {name} are exact: there is nothing to calibrate.")
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
    task: ProbabilityTask, probability: Tensor, target: Tensor, picture: Path
) -> ProbabilityCalibration:
    """Calibrate the probabilities of a classification by temperature scaling."""
    target = target.view(task.target_shape(len(probability)))
    _check_count(len(target))
    temperature = fit_temperature(task, probability, target)
    scaled = with_temperature(task, probability, temperature)
    draw_reliability(task, probability, target, temperature, picture)
    return ProbabilityCalibration(
        temperature=temperature,
        rows=len(target),
        error=calibration_error(task, probability, target),
        scaled_error=calibration_error(task, scaled, target),
        log_loss=task.log_loss(probability, target),
        scaled_log_loss=task.log_loss(scaled, target),
    )


def _check_count(rows: int) -> None:
    if rows < FEWEST:
        raise GrassError(
            f"{rows} rows are too few for a calibration ({FEWEST} that no run was trained on are "
            "needed): use a larger validation set, the same --split-seed for all runs of an "
            "ensemble, or a table of other rows (--data)."
        )


def _within(z: np.ndarray) -> tuple[float, float]:
    """The fraction of errors within one and within two standard deviations."""
    return float(np.mean(np.abs(z) <= 1)), float(np.mean(np.abs(z) <= 2))
