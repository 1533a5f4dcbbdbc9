"""Rows that a model was not trained on, its predictions of them, and its training set.

These are what a calibration needs: validation rows, the rows of a table, or those that a fold of a
cross-validation was tested on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grass_gnn.data.checking import CheckedGraph
from grass_gnn.data.packed.dataset import PackedDataset, pack_checked
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.data.tables.rows import read_known_rows
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.forest import ForestPrediction, leaf_errors
from grass_gnn.evaluation.stack import Stack, forest_checksum, load_stack, with_forest
from grass_gnn.evaluation.trained import TrainedModel, find_data
from grass_gnn.progress import report_progress
from grass_gnn.rewiring import graph_seeds, random_bits
from grass_gnn.tasks import make_task
from grass_gnn.uncertainty.ensembles import (
    Ensemble,
    Spread,
    combine,
    embed_graphs,
    similarity_reference,
)
from grass_gnn.uncertainty.neighbours import Nearness, Neighbours
from grass_gnn.uncertainty.similarity import count_familiar

logger = logging.getLogger(__name__)

_ELSE = "use a table of rows that no run was trained on (--data)"
_MOST_TRAINING = 20_000  # training graphs among which neighbours are chosen


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
    stacks = [load_stack(model) for model in models]
    if not others:
        return HeldOutRows([val], target, similarity, [split_forest(stacks[0], "val", len(val))])
    Ensemble(models)  # raises unless all have the same task
    own, seen = _identities(val), torch.cat([_identities(other.train) for other in others])
    usable = ~torch.isin(own, seen)
    forest = split_forest(stacks[0], "val", len(val))
    known = [forest and (forest, torch.ones_like(usable))]
    known += [_known_forest(own, *pair) for pair in zip(others, stacks[1:], strict=True)]
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
    usable = [(one, *values) for one, values in pairs if one is not None and values.targets]
    graphs = [molecule.checked(numbers) for molecule, _, numbers in usable]
    targets = torch.tensor([target for _, target, _ in usable])
    datasets = [pack_checked(graphs, model.config) for model in models]
    similarity = None
    if ensemble.similarity is not None:
        similarity = ensemble.similarity.nearest(np.stack([one.fingerprint for one, *_ in usable]))
        if same := count_familiar(similarity):
            logger.warning(
                "%d of %d rows of %s have the fingerprint of a training molecule: error bars "
                "become too small if the model was trained on them.",
                same,
                len(usable),
                path,
            )
    columns = ensemble.forest_columns(
        [molecule for molecule, *_ in usable], [numbers for *_, numbers in usable]
    )
    found = ensemble.task.as_targets(targets)  # [M] or [M, outputs]
    return HeldOutRows(datasets, found, similarity, ensemble.ask_forests(columns))


def _identities(dataset: PackedDataset) -> Tensor:
    """A hash of each row [B]: nodes and edges with their features, and descriptors."""
    graphs = dataset.select(torch.arange(len(dataset)))
    found = graph_seeds(graphs.edge_index, graphs.graph_ptr, x=graphs.x, edge_attr=graphs.edge_attr)
    if graphs.descriptors is not None:  # the same molecule at another temperature is another row
        for column in (graphs.descriptors.double() + 0.0).t().contiguous().view(torch.int64):
            found = random_bits(found, column)
    return found


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
                descriptors=graph.descriptors,
            )
        )
    return found


class HeldOutPredictions(NamedTuple):
    """Predictions of M rows that the models were not trained on."""

    found: Spread  # [M, outputs]
    target: Tensor  # [M] or [M, outputs]
    near: Nearness | None  # comparison with the training set
    source: str
    between_models: bool = True  # whether the spread is also that between the models
    forest: bool = False  # whether it is also that of forests


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


def predict_held_out(
    models: Sequence[TrainedModel],
    data: str | Path | None,
    reference: Neighbours | None,
    rewirings: int,
    seed: int,
) -> HeldOutPredictions:
    """Predictions of validation rows, or of the rows of a table."""
    rows = table_rows(models, data) if data is not None else validation_rows(models)
    predictions = []
    for model, dataset, forest in zip(models, rows.datasets, rows.forests, strict=True):
        stack = load_stack(model)
        network = model.predict_packed(dataset, rewirings, seed)
        predictions.append(with_forest(stack, network, forest))
        report_progress("Calibrating", len(predictions), len(models))
    found, near = combine(predictions), None
    if reference is not None:
        graphs = rows.datasets[0]
        near = compare(models[0], reference, graphs, rows.similarity, rows.forests, found)
    source = "validation split" if data is None else Path(data).name
    with_trees = any(one is not None for one in rows.forests)
    return HeldOutPredictions(found, rows.target, near, source, forest=with_trees)


def predict_out_of_fold(
    models: Sequence[TrainedModel], rewirings: int, seed: int
) -> HeldOutPredictions:
    """Predictions of each row of a cross-validation by the run that was tested on it."""
    parts, targets, nears = [], [], []
    for number, model in enumerate(models):
        test = find_data(model).test
        stack = load_stack(model)
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
    return HeldOutPredictions(
        found,
        torch.cat(targets),
        Nearness.join(nears) if len(nears) == len(models) else None,
        "cross-validation",
        between_models=False,
        forest=any(forest_checksum(model) for model in models),
    )


def with_neighbour_errors(held: HeldOutPredictions, reference: Neighbours) -> HeldOutPredictions:
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
