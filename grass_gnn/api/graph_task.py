"""What graphs contain, what is predicted of them, and how they are split.

Features, task and prediction level are inferred from tensors; graphs are split at random or by
their masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import MOST_CATEGORIES, FeatureConfig, GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data.checking import MASKS, check_sizes, number_tensor
from grass_gnn.data.tables.dataset import random_split
from grass_gnn.data.tables.spec import DEFAULT_SHARES, SPLITS
from grass_gnn.errors import GrassError
from grass_gnn.tasks import TASKS, kind_of_tensor, too_many_classes

_LEVELS = ("graph", "node", "edge")


def infer_input(graphs: Sequence[Data]) -> InputConfig:
    """Infer the node, edge and graph features."""
    descriptors = graphs[0].get("descriptors")
    return InputConfig(
        nodes=_infer_features("node", [data.x for data in graphs]),
        edges=_infer_features("edge", [data.edge_attr for data in graphs]),
        descriptors=0 if descriptors is None else number_tensor("descriptors", descriptors).numel(),
    )


def _infer_features(what: str, tensors: Sequence[Tensor | None]) -> FeatureConfig:
    """Integers are categories; floats are one-hot if each row has a single 1, else continuous."""
    given = [tensor for tensor in tensors if tensor is not None]
    if not given:
        return FeatureConfig()
    if len(given) < len(tensors):
        raise GrassError(f"Some graphs have {what} features and others have none.")
    for tensor in given:
        if not isinstance(tensor, Tensor) or not tensor.dim():
            raise GrassError(f"The {what} features must be tensors with a row for each {what}.")
        if tensor.is_complex() or tensor.layout != torch.strided:
            raise GrassError(f"The {what} features must be dense tensors of real numbers.")
    flat = [tensor.flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1) for tensor in given]
    widths = {tensor.size(1) for tensor in flat if tensor.size(0)} or {flat[0].size(1)}
    if len(widths) > 1:
        few, many = min(widths), max(widths)
        raise GrassError(f"Some graphs have {few} columns of {what} features, others {many}.")
    rows = torch.cat([tensor for tensor in flat if tensor.size(0)] or flat[:1])  # [M, columns]
    if not rows.is_floating_point():
        rows = rows.long()  # uint16 has no minimum
        if rows.numel() and int(rows.min()) < 0:
            raise GrassError(f"A {what} feature is negative, but categories start at 0.")
        largest = rows.max(dim=0).values.tolist() if rows.size(0) else [0] * rows.size(1)
        if max(largest, default=0) >= MOST_CATEGORIES:
            raise GrassError(
                f"A {what} feature is {max(largest):,}, too large for a category: "
                "store quantities as floats."
            )
        return _features("index", [int(value) + 1 for value in largest])
    one_hot = bool(((rows == 0) | (rows == 1)).all()) and bool((rows.sum(dim=1) == 1).all())
    kind = "one-hot" if one_hot and rows.size(1) > 1 else "continuous"
    return _features(kind, [rows.size(1)])


def _features(kind: str, sizes: list[int]) -> FeatureConfig:
    values = {"input": {"nodes": {"kind": kind, "sizes": sizes}}}
    return GRASSConfig.from_dict(values, "the features").input.nodes


def infer_level(graphs: Sequence[Data]) -> str:
    """Infer from the number of targets whether they belong to graphs, nodes or edges."""
    nodes, edges = check_sizes(graphs)
    counts = []
    for number, data in enumerate(graphs):
        if data.y is None:
            raise GrassError(f"Graph {number} has no target y.")
        y = number_tensor("target y", data.y)
        counts.append(y.size(0) if y.dim() else 1)
    rows = torch.tensor(counts)
    if torch.equal(rows, nodes) and int(rows.max()) > 1:
        return "node"
    if torch.equal(rows, edges) and int(rows.max()) > 1:
        return "edge"
    return "graph"


def infer_graph_task(
    graphs: Sequence[Data], level: str | None = None, kind: str | None = None
) -> TaskConfig:
    """Infer the task from the targets ``y``.

    Args:
        graphs: The graphs of all splits.
        level: ``"graph"``, ``"node"`` or ``"edge"``; inferred by default.
        kind: Kind of the task; inferred by default (integers are classes, floats are quantities,
            zeros and ones are labels).
    """
    level = _check_level(level) or infer_level(graphs)
    if kind is not None and kind not in TASKS:
        raise GrassError(f"The task must be one of {', '.join(TASKS)}, not {kind!r}.")
    values = [number_tensor("target y", data.y) for data in graphs if data.y is not None]
    if len(values) < len(graphs):
        raise GrassError("Some graphs have no target y.")
    if level == "graph":
        parts = [y.reshape(1, -1) for y in values]
    else:
        parts = [y.flatten(1) if y.dim() > 1 else y.reshape(-1, 1) for y in values]
    if len(widths := {part.size(1) for part in parts}) > 1:
        few, many = min(widths), max(widths)
        raise GrassError(f"Some targets y have {few} values per {level}, others have {many}.")
    for number, (data, part) in enumerate(zip(graphs, parts, strict=True)):
        _check_masks(number, data, len(part))
    rows = torch.cat(parts)  # [M, outputs]
    known = rows[~torch.isnan(rows)] if rows.is_floating_point() else rows.flatten()
    if not known.numel():
        raise GrassError("All targets y are missing.")
    if known.is_floating_point() and not torch.isfinite(known).all():
        raise GrassError("Some targets y are infinite.")
    found = kind_of_tensor(rows, known) if kind is None else TASKS[kind]
    if kind is None and found.cells == "classes":
        count, total = len(known.unique()), len(known)
        if too_many_classes(count, total):
            raise GrassError(
                f"The {total:,} targets y are {count:,} different integers, too many for classes: "
                'use task="regression" (--task), or floats.'
            )
    outputs = found.count_outputs(rows.size(1), classes=int(known.max()) + 1)
    missing = rows.is_floating_point() and known.numel() < rows.numel()
    task = found.default_settings(outputs, missing, level)
    return GRASSConfig.from_dict({"task": task}, "the targets y").task


def _check_masks(number: int, data: Data, rows: int) -> None:
    for name in MASKS:
        mask = data.get(name)
        if mask is None:
            continue
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (rows,):
            raise GrassError(
                f"The {name} of graph {number} must be boolean of shape [{rows}] "
                "(select one if there are several splits)."
            )


def _check_level(level: str | None) -> str | None:
    if level not in (None, *_LEVELS):
        raise GrassError(f"The level must be one of {', '.join(_LEVELS)}, not {level!r}.")
    return level


Graphs: TypeAlias = Sequence[Data] | Mapping[str, Sequence[Data]] | Data


@dataclass(frozen=True)
class GraphSpec:
    """What graphs contain and how they are split; whatever is not given is inferred.

    Args:
        level: What the targets belong to: ``"graph"``, ``"node"`` or ``"edge"``.
        task: Kind of the task, such as ``"regression"``.
        shares: Fractions of the training, validation and test set.
        split_seed: Random seed of the split; by default that of the run.
        input: The features of nodes and edges.
    """

    level: str | None = None
    task: str | None = None
    shares: Sequence[float] = DEFAULT_SHARES
    split_seed: int | None = None
    input: InputConfig | None = None

    def infer(self, splits: Mapping[str, Sequence[Data]]) -> tuple[InputConfig, TaskConfig]:
        """The features and the task of the graphs of all splits."""
        graphs = distinct(splits)
        return self.input or infer_input(graphs), infer_graph_task(graphs, self.level, self.task)


def distinct(splits: Mapping[str, Sequence[Data]]) -> list[Data]:
    """The graphs of all splits; a graph that is in several splits counts once."""
    return list({id(graph): graph for part in splits.values() for graph in part}.values())


def split_graphs(graphs: Graphs, spec: GraphSpec, seed: int) -> dict[str, list[Data]]:
    """Split graphs into training, validation and test set.

    A mapping of splits is used as it is; a list is split at random. For a single graph, the nodes
    (or edges) are split, by its masks if it has any and at random otherwise.
    """
    if isinstance(graphs, Mapping):
        if missing := [split for split in SPLITS if not len(graphs.get(split, ()))]:
            raise GrassError(f"The splits {', '.join(missing)} are empty: all three are needed.")
        return {split: list(graphs[split]) for split in SPLITS}
    found = [graphs] if isinstance(graphs, Data) else list(_each(graphs))
    check_sizes(found)
    seed = seed if spec.split_seed is None else spec.split_seed
    if len(found) == 1:
        single = [_with_masks(found[0], spec, seed)]
        for split in SPLITS:
            mask = single[0][f"{split}_mask"]
            if isinstance(mask, Tensor) and not bool(mask.any()):
                raise GrassError(f"The {split} split is empty: it has no node or edge to predict.")
        return dict.fromkeys(SPLITS, single)  # one list: it is stored once
    drawn = random_split(len(found), spec.shares, seed)
    splits = {
        split: [data for data, own in zip(found, drawn, strict=True) if own == split]
        for split in SPLITS
    }
    if not all(splits.values()):
        raise GrassError(
            f"{len(found)} graphs are too few for a training, validation and test set."
        )
    return splits


def _each(graphs: Iterable[Any]) -> Iterable[Data]:
    """The graphs of a list or of a PyG dataset."""
    if not hasattr(graphs, "__iter__") and not hasattr(graphs, "__getitem__"):
        raise GrassError(f"Expected PyG graphs or the name of a file, not {graphs!r}.")
    if not hasattr(graphs, "__len__") or not hasattr(graphs, "__getitem__"):
        return list(graphs)
    rows = cast("Sequence[Any]", graphs)  # PyG datasets do not inherit from Sequence
    return (rows[number] for number in range(len(rows)))


def _with_masks(data: Data, spec: GraphSpec, seed: int) -> Data:
    """A single graph with split masks, which leave out missing targets."""
    missing = [name for name in MASKS if name not in data]
    if not missing:
        return _without_missing(data)
    if len(missing) < len(SPLITS):  # a random split would train on nodes that one mask sets aside
        raise GrassError(
            f"The graph has no {' and no '.join(missing)}: give it masks of all three splits, or "
            "none to split it at random."
        )
    level = _check_level(spec.level) or infer_level([data])
    if level == "graph":
        raise GrassError("A single graph with one target cannot be split: provide several graphs.")
    y = number_tensor("target y", data.y)
    if y.dim() == 0:
        raise GrassError(f"The target y is a single number: it needs one row per {level}.")
    pair = torch.arange(y.size(0))  # [M]
    if level == "edge" and len(y) == data.edge_index.size(1):
        # The two directions of an edge stay together, because one gives the target of the other.
        pair = data.edge_index.sort(dim=0).values.unique(dim=1, return_inverse=True)[1]
    split_of = random_split(int(pair.max()) + 1 if len(pair) else 0, spec.shares, seed)
    drawn = [split_of[number] for number in pair.tolist()]
    known = _known_rows(data, y)
    copy = data.clone()
    for split in SPLITS:
        own_rows = torch.tensor([own == split for own in drawn], dtype=torch.bool)
        copy[f"{split}_mask"] = own_rows & known
    return copy


def _known_rows(data: Data, y: Tensor) -> Tensor:
    """Rows of the target that are not missing altogether [M]."""
    known = data.get("known_mask")  # of classes, which have no value that stands for "missing"
    if known is None:
        return ~torch.isnan(y.float().reshape(len(y), -1 if len(y) else 1)).all(dim=1)
    if not isinstance(known, Tensor) or known.dtype != torch.bool or known.shape != y.shape[:1]:
        raise GrassError(f"The known_mask must be boolean of shape [{len(y)}].")
    return known


def _without_missing(data: Data) -> Data:
    """A single graph whose own masks leave out nodes (or edges) without a class.

    Missing numbers stay, because they are NaN and do not count in loss and scores.

    Raises:
        GrassError: A mask selects only missing targets.
    """
    y = None if data.y is None else number_tensor("target y", data.y)
    if y is None or y.dim() == 0:
        return data  # another check says what is wrong
    known, copy = _known_rows(data, y), data.clone()
    for name in MASKS:
        mask = data[name]
        dense = isinstance(mask, Tensor) and mask.layout == torch.strided
        if not dense or mask.dtype != torch.bool or mask.shape[:1] != known.shape:
            continue  # another check says what is wrong
        # There may be a column for each of several splits.
        labelled = mask & (known if mask.dim() == 1 else known.unsqueeze(1))
        if mask.dim() == 1 and mask.any() and not labelled.any():
            raise GrassError(f"All targets that the {name} selects are missing.")
        if "known_mask" in data:
            copy[name] = labelled
    return copy
