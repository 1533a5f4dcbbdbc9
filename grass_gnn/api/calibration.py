"""Calibration: compare predicted uncertainties with errors on rows that were not trained on.

:func:`add_error_bars` does so at the end of a training, and checks the result on the test rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from grass_gnn.data.checking import CheckedGraph
from grass_gnn.data.packed.dataset import PackedDataset, pack_checked
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.data.tables.composition import Composition
from grass_gnn.data.tables.schema import TableSchema, read_known_rows
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.forest import (
    ForestPrediction,
    Stack,
    forest_checksum,
    leaf_errors,
    load_stack,
    with_forest,
)
from grass_gnn.evaluation.predictions import RowNames, SavedPredictions, write_predictions
from grass_gnn.evaluation.trained import TrainedModel, find_data, load_model
from grass_gnn.files import write_json
from grass_gnn.progress import Progress, report_progress, reporting
from grass_gnn.rewiring import graph_seeds
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
    clue_table,
    file_name,
    fit_error_model,
    fit_scale,
    fit_temperature,
    kept_scores,
    miscalibration_area,
    with_temperature,
)
from grass_gnn.uncertainty.domain import Nearness, Neighbours
from grass_gnn.uncertainty.ensembles import (
    COVERAGE,
    Ensemble,
    Spread,
    combine,
    embed_graphs,
    load_models,
    run_folders,
    similarity_reference,
)

logger = logging.getLogger(__name__)

_ELSE = "use a table of rows that no run was trained on (--data)"


class HeldOutRows(NamedTuple):
    """Rows that no model was trained on."""

    datasets: list[PackedDataset]  # the graphs, encoded for each model
    target: Tensor  # [M] or [M, outputs]
    similarity: np.ndarray | None = None  # of molecules, to the first run's training set [M]
    forests: Sequence[ForestPrediction | None] = ()  # of each model, if it has a forest


def validation_rows(models: Sequence[TrainedModel]) -> HeldOutRows:
    """The first run's validation split, without rows that another run was trained on.

    Forests are fitted to validation rows, too, but have predicted each by trees that were not.
    """
    first = models[0]
    try:
        prepared = find_data(first)
        if "val" not in prepared.splits:
            raise GrassError(f"The run {first.folder} has no validation split.")
        others = [find_data(model) for model in models[1:]]
    except GrassError as error:
        raise GrassError(f"{error} Restore data/ of the run, or {_ELSE}.") from None
    val = prepared.val
    target = val.tensors["y"]
    if val.mask_name is not None:
        target = target[val.tensors[val.mask_name]]
    similarity = split_similarity(first, "val", len(val))
    stacks = [load_stack(model, make_task(model.config.task)) for model in models]
    if not others:
        return HeldOutRows([val], target, similarity, [split_forest(stacks[0], "val", len(val))])
    Ensemble(models)  # raises unless all have the same task
    own, seen = _identities(val), torch.cat([_identities(other.train) for other in others])
    usable = ~torch.isin(own, seen)
    known = [_known_forest(own, *pair) for pair in zip([prepared, *others], stacks, strict=True)]
    for found in known:
        usable &= True if found is None else found[1]
    kept = torch.nonzero(usable).flatten()
    if not len(kept):
        raise GrassError(
            f"All {len(val)} validation rows of {first.folder} are training rows of another run: "
            f"train the runs with the same --split-seed (or split column), or {_ELSE}."
        )
    graphs = _unpack(val, kept)
    datasets = [pack_checked(graphs, model.config) for model in models]
    similarity = None if similarity is None else similarity[kept.numpy()]
    forests = [f and ForestPrediction(*(part[kept] for part in f[0])) for f in known]
    return HeldOutRows(datasets, target[kept], similarity, forests)


def split_forest(stack: Stack | None, split: str, count: int) -> ForestPrediction | None:
    """What a forest has predicted for the rows of a split, fitted to others.

    Raises:
        GrassError: The file of the forest does not contain them.
    """
    if stack is None:
        return None
    found = stack.join(split) if split in stack.splits else None
    if found is None or len(found.mean) != count:
        raise GrassError(f"The forest has not predicted the {split} rows: {_ELSE}.")
    return found


def _known_forest(
    graphs: Tensor, data: PreparedData, stack: Stack | None
) -> tuple[ForestPrediction, Tensor] | None:
    """What a forest has predicted for graphs [M] of its validation and test rows, and for which."""
    if stack is None:
        return None
    parts = {name: split_forest(stack, name, len(data.splits[name])) for name in ("val", "test")}
    own = torch.cat([_identities(data.splits[name]) for name in parts])
    same = graphs[:, None] == own  # [M, rows]
    at = same.int().argmax(dim=1)
    found = [found for found in parts.values() if found is not None]
    both = ForestPrediction(*(torch.cat(part)[at] for part in zip(*found, strict=True)))
    return both, same.any(dim=1)


def split_similarity(model: TrainedModel, split: str, count: int) -> np.ndarray | None:
    """Similarities of the molecules of a split to the training set [M], if the run has them."""
    known = similarity_reference(model)
    found = None if known is None else known.splits.get(split)
    return found if found is not None and len(found) == count else None


def table_rows(models: Sequence[TrainedModel], path: str | Path) -> HeldOutRows:
    """The rows of a table with targets."""
    ensemble = Ensemble(models)
    forest = ensemble.forest_descriptors
    read = read_known_rows(path, ensemble.schema, ensemble.task.config, forest)
    pairs = zip(read.molecules, read.values, strict=True)
    usable = [(one, *values) for one, values in pairs if one is not None and values[0]]
    graphs = [molecule.checked(numbers) for molecule, _, numbers in usable]
    targets = torch.tensor([target for _, target, _ in usable])
    datasets = [pack_checked(graphs, model.config) for model in models]
    similarity = None
    if ensemble.similarity is not None:
        similarity = ensemble.similarity.nearest(np.stack([one.fingerprint for one, *_ in usable]))
    columns = ensemble.forest_columns(
        [molecule for molecule, *_ in usable], [numbers for *_, numbers in usable]
    )
    found = ensemble.task.as_targets(targets)  # [M] or [M, outputs]
    return HeldOutRows(datasets, found, similarity, ensemble.ask_forests(columns))


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


FEWEST = 10  # rows needed for a calibration
# The std of a molecule that does not depend on rewiring (a single atom) is only rounding error.
_NO_SPREAD = 1e-3  # as a fraction of the median
_MOST_TRAINING = 20_000  # training graphs among which neighbours are chosen


class HeldOut(NamedTuple):
    """Predictions of M rows that the models were not trained on."""

    found: Spread  # [M, outputs]
    target: Tensor  # [M] or [M, outputs]
    near: Nearness | None  # comparison with the training set
    source: str
    between_models: bool = True  # whether the spread is also that between the models
    forest: bool = False  # whether it is also that of forests


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
            held = out_of_fold(models, rewirings, seed)
        else:
            held = held_out(models, data, reference, rewirings, seed)
    picture = folder / f"{file_name(models)}.png" if plot else None
    task = make_task(models[0].config.task)
    spreads, probabilities = [], None
    if isinstance(task, ProbabilityTask):
        probabilities = _check_probabilities(task, held.found.mean, held.target, picture)
    else:
        if data is None and reference is not None and len(held.target) < FEWEST:
            held = with_neighbour_errors(held, reference)
        units = _units(models[0], reference)
        spreads = _check_spreads(held, units, _names(models[0]), picture)
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


def training_reference(model: TrainedModel, seed: int = 0) -> Neighbours | None:
    """The training set of a regression in the representation of its model.

    None for other tasks, and for runs without their data.
    """
    task = make_task(model.config.task)
    if task.predicts_probabilities or task.level != "graph":
        return None
    try:
        train = find_data(model).train.first(_MOST_TRAINING)
    except GrassError:
        return None
    if len(train) < 2:
        return None
    fitted = model.predict_packed(train, 1, seed).mean
    target = train.tensors["y"].view_as(fitted)
    return Neighbours.of(
        embed_graphs(model, train, seed), target.double().numpy(), fitted.double().numpy()
    )


def compare(
    model: TrainedModel,
    reference: Neighbours,
    dataset: PackedDataset,
    similarity: np.ndarray | None,
    forests: Sequence[ForestPrediction | None],
    found: Spread,
) -> Nearness:
    """Compare graphs and their predictions with the training set of a model."""
    mean = found.mean.double().numpy()
    embeddings = embed_graphs(model, dataset)
    return reference.compare(embeddings, mean, similarity, leaf_errors(forests))


def held_out(
    models: Sequence[TrainedModel],
    data: str | Path | None,
    reference: Neighbours | None,
    rewirings: int,
    seed: int,
) -> HeldOut:
    """Predictions of validation rows, or of the rows of a table."""
    rows = table_rows(models, data) if data is not None else validation_rows(models)
    predictions = []
    for model, dataset, forest in zip(models, rows.datasets, rows.forests, strict=True):
        stack = load_stack(model, make_task(model.config.task))
        network = model.predict_packed(dataset, rewirings, seed)
        predictions.append(with_forest(stack, network, forest))
        report_progress("Calibrating", len(predictions), len(models))
    found, near = combine(predictions), None
    if reference is not None:
        graphs = rows.datasets[0]
        near = compare(models[0], reference, graphs, rows.similarity, rows.forests, found)
    source = "validation split" if data is None else Path(data).name
    with_trees = any(one is not None for one in rows.forests)
    return HeldOut(found, rows.target, near, source, forest=with_trees)


def out_of_fold(models: Sequence[TrainedModel], rewirings: int, seed: int) -> HeldOut:
    """Predictions of each row of a cross-validation by the run that was tested on it."""
    parts, targets, nears = [], [], []
    for number, model in enumerate(models):
        test = find_data(model).test
        stack = load_stack(model, make_task(model.config.task))
        network = model.predict_packed(test, rewirings, seed)
        forest = split_forest(stack, "test", len(test))
        found = combine([with_forest(stack, network, forest)])
        reference = training_reference(model, seed)
        if reference is not None:
            similarity = split_similarity(model, "test", len(test))
            nears.append(compare(model, reference, test, similarity, [forest], found))
        parts.append(found)
        targets.append(test.tensors["y"])
        report_progress("Calibrating", number + 1, len(models))
    found = Spread(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
    return HeldOut(
        found,
        torch.cat(targets),
        Nearness.join(nears) if len(nears) == len(models) else None,
        "cross-validation",
        between_models=False,
        forest=any(forest_checksum(model) for model in models),
    )


def with_neighbour_errors(held: HeldOut, reference: Neighbours) -> HeldOut:
    """Add the training rows, each predicted as the mean of its neighbours.

    Used if there are too few validation rows. This nearest-neighbour model is simpler than ours,
    and its errors are usually larger.
    """
    near, error = reference.leave_one_out()
    target = torch.from_numpy(reference.targets)
    typical = held.found.std.median(dim=0).values.expand(target.shape)
    own = held.found
    found = Spread(
        torch.cat([own.mean, (target + torch.from_numpy(error)).to(own.mean.dtype)]),
        *(torch.cat([part, typical.to(part.dtype)]) for part in own[1:]),
    )
    both = None
    if held.near is not None:
        both = Nearness.join([held.near, near])
    return held._replace(
        found=found,
        target=torch.cat([held.target.view(len(own.mean), -1), target.to(held.target.dtype)]),
        near=both,
        source="validation split and nearest neighbours",
    )


def _units(model: TrainedModel, reference: Neighbours | None) -> list[float]:
    """The standard deviation of each target in the training set."""
    if reference is None:
        units = np.array(model.config.task.target_scale, dtype=float)
        units = np.broadcast_to(units, (model.config.task.outputs,))
    else:
        units = np.nanstd(reference.targets.astype(float), axis=0)
    return [float(unit) if unit > 0 else 1.0 for unit in units]


def _names(model: TrainedModel) -> list[str]:
    schema = TableSchema.from_card(model.card)
    outputs = model.config.task.outputs
    return schema.targets if schema is not None else [f"y{number}" for number in range(outputs)]


def _check_spreads(
    held: HeldOut, units: Sequence[float], names: Sequence[str], picture: Path | None = None
) -> list[SpreadCalibration]:
    """Calibrate the std of each target of a regression."""
    spread = held.found
    error = held.target.view_as(spread.mean).double() - spread.mean.double()  # [M, outputs]
    found, before, after = [], {}, {}
    for number, name in enumerate(names):
        known = ~error[:, number].isnan()
        std, own = spread.std[known, number].double(), error[known, number]
        _check_count(len(std))
        spreads = std > _NO_SPREAD * std.median()
        z = (own[spreads] / std[spreads]).numpy() if bool(spreads.any()) else np.ones(1)
        if not bool(own.any()):
            raise GrassError(f"All predictions of {name} are exact: there is nothing to calibrate.")
        near = None if held.near is None else held.near.rows(known.numpy())
        clues = clue_table(std.numpy(), near, number, units[number])
        size = own.abs().numpy()
        model, scores = fit_error_model(
            clues, size, units[number], held.between_models, held.forest
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
    saved = SavedPredictions.read(path)
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
