"""Rows that models were not trained on, to see how far their predictions can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from grass_gnn.data import PackedDataset, pack_checked
from grass_gnn.data.checking import CheckedGraph
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel
from grass_gnn.evaluation.run import find_data
from grass_gnn.rewiring import graph_seeds
from grass_gnn.workflow.ensemble import Ensemble
from grass_gnn.workflow.rows import read_known_rows

_ELSE = "name a table of rows that no run has seen (--data)"


def validation_rows(models: Sequence[TrainedModel]) -> tuple[list[PackedDataset], Tensor]:
    """The first run's validation split, without what another run was trained on.

    Returns:
        The graphs as each model takes them, and their targets [M] or [M, outputs].
    """
    first = models[0]
    try:
        prepared = find_data(first)
        if "val" not in prepared.splits:
            raise GrassError(f"The run {first.folder} has no validation split.")
        others = [find_data(model).train for model in models[1:]]
    except GrassError as error:
        raise GrassError(f"{error} Bring data/ of the run back, or {_ELSE}.") from None
    val = prepared.val
    target = val.tensors["y"]
    if val.mask_name is not None:
        target = target[val.tensors[val.mask_name]]
    if not others:
        return [val], target
    Ensemble(models)  # raises unless they answer the same question
    own, seen = _identities(val), torch.cat([_identities(train) for train in others])
    kept = torch.nonzero(~torch.isin(own, seen)).flatten()
    if not len(kept):
        raise GrassError(
            f"Each of the {len(val)} validation rows of {first.folder} was trained on by another "
            f"run: train them with the same --split-seed (or split column), or {_ELSE}."
        )
    graphs = _unpack(val, kept)
    return [pack_checked(graphs, model.config) for model in models], target[kept]


def table_rows(
    models: Sequence[TrainedModel], path: str | Path
) -> tuple[list[PackedDataset], Tensor]:
    """The rows of a table that have targets; returns what :func:`validation_rows` does."""
    ensemble = Ensemble(models)
    read = read_known_rows(path, ensemble.schema, ensemble.task)
    graphs, targets = [], []
    for molecule, (target, numbers) in zip(read.molecules, read.values, strict=True):
        if molecule is not None and target:
            graphs.append(molecule.checked(numbers))
            targets.append(target)
    found = torch.tensor(targets)  # [M, outputs]
    if ensemble.task.kind == "classification":
        found = found.flatten().long()  # [M]
    return [pack_checked(graphs, model.config) for model in models], found


def _identities(dataset: PackedDataset) -> Tensor:
    """A hash of each graph [B]: atoms, bonds and their features."""
    graphs = dataset.select(torch.arange(len(dataset)))
    return graph_seeds(graphs.edge_index, graphs.graph_ptr, x=graphs.x, edge_attr=graphs.edge_attr)


def _unpack(dataset: PackedDataset, ids: Tensor) -> list[CheckedGraph]:
    """Molecules of a packed dataset, to be encoded for another model."""
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
