"""What a list of PyG graphs is: its features, its task and its splits, read off the tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import FeatureConfig, InputConfig, TaskConfig
from grass_gnn.data.checking import check_sizes
from grass_gnn.data.sbm import SPLITS
from grass_gnn.data.splits import random_split
from grass_gnn.errors import GrassError

_LOSS_AND_METRIC = {
    "regression": ("l1", "mae"),
    "binary": ("bce", "auc"),
    "classification": ("cross-entropy", "accuracy"),
    "multilabel": ("bce", "ap"),
}


def infer_input(graphs: Sequence[Data]) -> InputConfig:
    """The features of nodes, of edges and of whole graphs."""
    descriptors = graphs[0].get("descriptors")
    return InputConfig(
        nodes=_infer_features("node", [data.x for data in graphs]),
        edges=_infer_features("edge", [data.edge_attr for data in graphs]),
        descriptors=0 if descriptors is None else torch.as_tensor(descriptors).numel(),
    )


def _infer_features(what: str, tensors: Sequence[Tensor | None]) -> FeatureConfig:
    """Integers are categories; other numbers one-hot, if each row has a single 1, or continuous."""
    given = [tensor for tensor in tensors if tensor is not None]
    if not given:
        return FeatureConfig()
    if len(given) < len(tensors):
        raise GrassError(f"Some graphs have {what} features and others have none.")
    flat = [tensor.reshape(tensor.size(0), -1) for tensor in given]
    widths = {tensor.size(1) for tensor in flat if tensor.size(0)} or {flat[0].size(1)}
    if len(widths) > 1:
        few, many = min(widths), max(widths)
        raise GrassError(f"Some graphs have {few} columns of {what} features, others {many}.")
    rows = torch.cat([tensor for tensor in flat if tensor.size(0)] or flat[:1])  # [M, columns]
    if not rows.is_floating_point():
        if rows.numel() and int(rows.min()) < 0:
            raise GrassError(f"A {what} feature is negative, but categories count from 0.")
        largest = rows.max(dim=0).values.tolist() if rows.size(0) else [0] * rows.size(1)
        return FeatureConfig(kind="index", sizes=[int(value) + 1 for value in largest])
    one_hot = bool(((rows == 0) | (rows == 1)).all()) and bool((rows.sum(dim=1) == 1).all())
    kind = "one-hot" if one_hot and rows.size(1) > 1 else "continuous"
    return FeatureConfig.model_validate({"kind": kind, "sizes": [rows.size(1)]})


def infer_level(graphs: Sequence[Data]) -> str:
    """What has a target, by how many there are: one a graph, a node, or an edge."""
    nodes, edges = check_sizes(graphs)
    counts = []
    for number, data in enumerate(graphs):
        if data.y is None:
            raise GrassError(f"Graph {number} has no target y.")
        y = torch.as_tensor(data.y)
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
    """The task that the targets ``y`` pose.

    Args:
        graphs: All graphs, of all splits.
        level: ``"graph"``, ``"node"`` or ``"edge"``, if that is not to be inferred.
        kind: Kind of the task, if that is not to be inferred.
    """
    level = level or infer_level(graphs)
    values = [torch.as_tensor(data.y) for data in graphs if data.y is not None]
    if len(values) < len(graphs):
        raise GrassError("Some graphs have no target y.")
    if level == "graph":
        rows = torch.cat([y.reshape(1, -1) for y in values])  # [B, outputs]
    else:
        rows = torch.cat([y.reshape(y.size(0), -1) for y in values])  # [M, outputs]
    known = rows[~torch.isnan(rows)] if rows.is_floating_point() else rows.flatten()
    if not known.numel():
        raise GrassError("All targets y are missing.")
    if kind is None:
        kind = _infer_kind(rows, known)
    outputs = rows.size(1)
    if kind == "classification":
        outputs = int(known.max()) + 1
    loss, metric = _LOSS_AND_METRIC.get(kind, ("", ""))
    missing = rows.is_floating_point() and known.numel() < rows.numel()
    return TaskConfig.model_validate(
        {
            "level": level,
            "kind": kind,
            "outputs": max(outputs, 2) if kind == "classification" else outputs,
            "loss": loss,
            "metric": metric,
            "missing": missing and kind != "classification",
        }
    )


def _infer_kind(rows: Tensor, known: Tensor) -> str:
    labels = bool(((known == 0) | (known == 1)).all())
    if rows.size(1) > 1:
        return "multilabel" if labels else "regression"
    if labels:
        return "binary"
    return "regression" if rows.is_floating_point() else "classification"


def divide(
    graphs: Sequence[Data] | Mapping[str, Sequence[Data]] | Data,
    level: str | None,
    shares: Sequence[float],
    seed: int,
) -> dict[str, list[Data]]:
    """The graphs of three splits.

    A mapping of splits is taken as it is, a list is divided at random. Of a single graph the nodes
    (or edges) are divided: by its masks if it has any, at random if not.
    """
    if isinstance(graphs, Mapping):
        if missing := [split for split in SPLITS if not len(graphs.get(split, ()))]:
            raise GrassError(f"There are no graphs in {', '.join(missing)}: all three are needed.")
        return {split: list(graphs[split]) for split in SPLITS}
    found = [graphs] if isinstance(graphs, Data) else list(_each(graphs))
    check_sizes(found)
    if len(found) == 1:
        single = [_with_masks(found[0], level, shares, seed)]
        return dict.fromkeys(SPLITS, single)  # one list: it is stored once
    drawn = random_split(len(found), shares, seed)
    splits = {
        split: [data for data, own in zip(found, drawn, strict=True) if own == split]
        for split in SPLITS
    }
    if not all(splits.values()):
        raise GrassError(f"{len(found)} graphs are too few to train, validate and test with.")
    return splits


def _each(graphs: Iterable[Any]) -> Iterable[Data]:
    """The graphs of a list or of a PyG dataset."""
    if not hasattr(graphs, "__len__"):
        return list(graphs)
    return (graphs[number] for number in range(len(graphs)))  # type: ignore[index, arg-type]


def _with_masks(data: Data, level: str | None, shares: Sequence[float], seed: int) -> Data:
    """A single graph with masks; targets that are missing are in none of them."""
    if all(f"{split}_mask" in data for split in SPLITS):
        return data
    level = level or infer_level([data])
    if level == "graph":
        raise GrassError("A single graph with one target cannot be divided: give several graphs.")
    y = torch.as_tensor(data.y)
    drawn = random_split(y.size(0), shares, seed)
    known = data.get("known_mask")
    if known is None:
        known = ~torch.isnan(y.float().reshape(y.size(0), -1)).all(dim=1)  # [M]
    copy = data.clone()
    for split in SPLITS:
        copy[f"{split}_mask"] = torch.tensor([own == split for own in drawn]) & known
    return copy
