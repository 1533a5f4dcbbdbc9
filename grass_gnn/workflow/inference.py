"""What a list of PyG graphs is: its features, its task and its splits, read off the tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import MOST_CATEGORIES, FeatureConfig, GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data.checking import check_sizes, number_tensor
from grass_gnn.data.sbm import SPLITS
from grass_gnn.data.splits import random_split
from grass_gnn.errors import GrassError

_LEVELS = ("graph", "node", "edge")
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
        descriptors=0 if descriptors is None else number_tensor("descriptors", descriptors).numel(),
    )


def _infer_features(what: str, tensors: Sequence[Tensor | None]) -> FeatureConfig:
    """Integers are categories; other numbers one-hot, if each row has a single 1, or continuous."""
    given = [tensor for tensor in tensors if tensor is not None]
    if not given:
        return FeatureConfig()
    if len(given) < len(tensors):
        raise GrassError(f"Some graphs have {what} features and others have none.")
    for tensor in given:
        if not isinstance(tensor, Tensor) or not tensor.dim() or tensor.is_complex():
            raise GrassError(f"The {what} features must be tensors with a row for each {what}.")
    flat = [tensor.flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1) for tensor in given]
    widths = {tensor.size(1) for tensor in flat if tensor.size(0)} or {flat[0].size(1)}
    if len(widths) > 1:
        few, many = min(widths), max(widths)
        raise GrassError(f"Some graphs have {few} columns of {what} features, others {many}.")
    rows = torch.cat([tensor for tensor in flat if tensor.size(0)] or flat[:1])  # [M, columns]
    if not rows.is_floating_point():
        if rows.numel() and int(rows.min()) < 0:
            raise GrassError(f"A {what} feature is negative, but categories count from 0.")
        largest = rows.max(dim=0).values.tolist() if rows.size(0) else [0] * rows.size(1)
        if max(largest, default=0) >= MOST_CATEGORIES:
            raise GrassError(
                f"A {what} feature is {max(largest):,}, too large for a category: "
                "write quantities as floats."
            )
        return _features("index", [int(value) + 1 for value in largest])
    one_hot = bool(((rows == 0) | (rows == 1)).all()) and bool((rows.sum(dim=1) == 1).all())
    kind = "one-hot" if one_hot and rows.size(1) > 1 else "continuous"
    return _features(kind, [rows.size(1)])


def _features(kind: str, sizes: list[int]) -> FeatureConfig:
    values = {"input": {"nodes": {"kind": kind, "sizes": sizes}}}
    return GRASSConfig.from_dict(values, "the features").input.nodes


def infer_level(graphs: Sequence[Data]) -> str:
    """What has a target, by how many there are: one a graph, a node, or an edge."""
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
    """The task that the targets ``y`` pose.

    Args:
        graphs: All graphs, of all splits.
        level: ``"graph"``, ``"node"`` or ``"edge"``, if that is not to be inferred.
        kind: Kind of the task, if that is not to be inferred.
    """
    level = _check_level(level) or infer_level(graphs)
    if kind is not None and kind not in _LOSS_AND_METRIC:
        raise GrassError(f"A task is one of {', '.join(_LOSS_AND_METRIC)}, not {kind!r}.")
    values = [number_tensor("target y", data.y) for data in graphs if data.y is not None]
    if len(values) < len(graphs):
        raise GrassError("Some graphs have no target y.")
    if level == "graph":
        parts = [y.reshape(1, -1) for y in values]
    else:
        parts = [y.flatten(1) if y.dim() > 1 else y.reshape(-1, 1) for y in values]
    if len(widths := {part.size(1) for part in parts}) > 1:
        few, many = min(widths), max(widths)
        raise GrassError(f"Some targets y have {few} values a {level}, others have {many}.")
    for number, (data, part) in enumerate(zip(graphs, parts, strict=True)):
        _check_masks(number, data, len(part))
    rows = torch.cat(parts)  # [M, outputs]
    known = rows[~torch.isnan(rows)] if rows.is_floating_point() else rows.flatten()
    if not known.numel():
        raise GrassError("All targets y are missing.")
    if kind is None:
        kind = _infer_kind(rows, known)
    outputs = rows.size(1)
    if kind == "classification":
        outputs = int(known.max()) + 1
    loss, metric = _LOSS_AND_METRIC[kind]
    missing = rows.is_floating_point() and known.numel() < rows.numel()
    task = {
        "level": level,
        "kind": kind,
        "outputs": max(outputs, 2) if kind == "classification" else outputs,
        "loss": loss,
        "metric": metric,
        "missing": missing and kind != "classification",
    }
    return GRASSConfig.from_dict({"task": task}, "what the targets y pose").task


def _check_masks(number: int, data: Data, rows: int) -> None:
    for name in (f"{split}_mask" for split in SPLITS):
        mask = data.get(name)
        if mask is None:
            continue
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (rows,):
            raise GrassError(
                f"The {name} of graph {number} must be boolean of shape [{rows}] "
                "(of several splits, choose one)."
            )


def _check_level(level: str | None) -> str | None:
    if level not in (None, *_LEVELS):
        raise GrassError(f"What has a target is one of {', '.join(_LEVELS)}, not {level!r}.")
    return level


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
    level = _check_level(level) or infer_level([data])
    if level == "graph":
        raise GrassError("A single graph with one target cannot be divided: give several graphs.")
    y = number_tensor("target y", data.y)
    drawn = random_split(y.size(0), shares, seed)
    known = data.get("known_mask")
    if known is None:
        known = ~torch.isnan(y.float().reshape(len(y), -1 if len(y) else 1)).all(dim=1)  # [M]
    elif not isinstance(known, Tensor) or known.dtype != torch.bool or known.shape != y.shape[:1]:
        raise GrassError(f"The known_mask must be boolean of shape [{len(y)}].")
    copy = data.clone()
    for split in SPLITS:
        own_rows = torch.tensor([own == split for own in drawn], dtype=torch.bool)
        copy[f"{split}_mask"] = own_rows & known
    return copy
