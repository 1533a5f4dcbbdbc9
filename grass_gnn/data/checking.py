"""What a graph must be to go into a dataset, with one sentence for each thing that may be wrong."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import feature_columns
from grass_gnn.data.benchmarks.sbm import SPLITS
from grass_gnn.errors import GrassError
from grass_gnn.tasks import Task, make_task
from grass_gnn.validation import check_graph

_MOST_NODES = 1 << 31  # of a graph; what says more is no number of nodes


class CheckedGraph(NamedTuple):
    """A graph as it is packed, of the shapes and types that the configuration asks for."""

    num_nodes: int
    edge_index: Tensor  # [2, E]
    x: Tensor | None  # [n, columns]
    edge_attr: Tensor | None  # [E, columns]
    y: Tensor | None  # [rows] class numbers, or [rows, outputs]; a row a graph, node or edge
    weight: Tensor | None  # [E]
    descriptors: Tensor | None  # [1, columns]
    masks: dict[str, Tensor]  # [rows] for each split, of a graph whose nodes or edges are split


def check(number: int, data: Data, config: GRASSConfig, targets: bool = True) -> CheckedGraph:
    """Check one graph; ``number`` names it in an error.

    Args:
        number: Place of the graph in its list, from 0.
        data: The graph.
        config: What it must fit.
        targets: Whether it must have a target.
    """
    try:
        return _check(data, config, targets)
    except (ValueError, TypeError) as error:
        message = str(error).removeprefix("The graph ")
        if message != str(error):
            raise GrassError(f"Graph {number} {message}") from None
        raise GrassError(f"Graph {number}: {message[0].lower() + message[1:]}") from None


def check_sizes(graphs: Sequence[Data]) -> tuple[Tensor, Tensor]:
    """Number of nodes [B] and edges [B] of each graph, of which there must be at least one."""
    if not len(graphs):
        raise GrassError("There are no graphs: a dataset needs at least one.")
    nodes, edges = [], []
    for number, data in enumerate(graphs):
        if not isinstance(data, Data):
            raise GrassError(f"Graph {number} is not a PyG Data but a {type(data).__name__}.")
        index = data.edge_index
        if not isinstance(index, Tensor) or index.dim() != 2 or index.size(0) != 2:
            raise GrassError(
                f"Graph {number} has no edge_index of shape [2, E] (without edges: [2, 0])."
            )
        count = _count_nodes(data)
        if not count:
            raise GrassError(f"Graph {number} has no nodes.")
        nodes.append(count)
        edges.append(data.edge_index.size(1))
    return torch.tensor(nodes), torch.tensor(edges)


def _count_nodes(data: Data) -> int:
    """Number of nodes as PyG finds it; 0 where features or a number of nodes make no sense."""
    try:
        count = operator.index(data.num_nodes)
    except (TypeError, ValueError, IndexError, RuntimeError, AttributeError):
        return 0
    return count if 0 < count <= _MOST_NODES else 0


def number_tensor(name: str, value: Any) -> Tensor:
    """A tensor of numbers, from what a graph holds under a name."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        tensor = None
    if tensor is None or tensor.is_complex():
        raise GrassError(f"The {name} of a graph must be a tensor of numbers.")
    return tensor


def _check(data: Data, config: GRASSConfig, targets: bool) -> CheckedGraph:
    num_nodes, edge_index = int(data.num_nodes or 0), data.edge_index
    weight = data.get("edge_weight")
    if weight is not None:
        weight = number_tensor("edge_weight", weight).flatten().float()
    for name in ("x", "edge_attr"):
        value = data.get(name)
        if value is not None and (not isinstance(value, Tensor) or not value.dim()):
            raise GrassError(f"The {name} of a graph must be a tensor with a row for each.")
    check_graph(edge_index, num_nodes, weight)
    num_edges = edge_index.size(1)
    task = make_task(config.task)
    rows = task.num_rows(1, num_nodes, num_edges)
    return CheckedGraph(
        num_nodes,
        edge_index,
        feature_columns("node", data.x, config.input.nodes, num_nodes),
        feature_columns("edge", data.edge_attr, config.input.edges, num_edges),
        _targets(data, task, rows) if targets else None,
        weight,
        _descriptors(data, config.input.descriptors),
        _masks(data, config.split, rows),
    )


def _targets(data: Data, task: Task, rows: int) -> Tensor:
    if data.y is None:
        raise GrassError("The graph has no target y.")
    return task.check_targets(number_tensor("target y", data.y), rows)


def _descriptors(data: Data, columns: int) -> Tensor | None:
    """Numbers of the graph as a whole [1, columns], if the model takes any."""
    if not columns:
        return None
    values = data.get("descriptors")
    values = torch.empty(0) if values is None else number_tensor("descriptors", values)
    if values.numel() != columns:
        raise GrassError(f"The graph needs {columns} descriptors (data.descriptors).")
    values = values.reshape(1, columns).float()
    if not bool(torch.isfinite(values).all()):
        raise GrassError("The graph has descriptors that are not finite.")
    return values


def _masks(data: Data, split: int, rows: int) -> dict[str, Tensor]:
    """The masks of a graph whose nodes (or edges) are split, of the chosen split of several."""
    masks = {}
    for name in SPLITS:
        mask = data.get(f"{name}_mask")
        if mask is None:
            continue
        if isinstance(mask, Tensor) and mask.dim() == 2:
            if split >= mask.size(1):
                raise GrassError(
                    f"The graph has {mask.size(1)} splits, 0 to {mask.size(1) - 1}; "
                    f"there is no split {split}."
                )
            mask = mask[:, split]
        if not isinstance(mask, Tensor) or mask.shape != (rows,) or mask.dtype != torch.bool:
            given = (
                f"{mask.dtype} of shape {list(mask.shape)}"
                if isinstance(mask, Tensor)
                else f"a {type(mask).__name__}"
            )
            raise GrassError(f"The {name}_mask must be boolean of shape [{rows}], not {given}.")
        masks[name] = mask
    return masks
