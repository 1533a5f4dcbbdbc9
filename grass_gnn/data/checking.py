"""The tensors of graphs: a table of all of them, and checks of those given by users.

Packing, selecting, sampling, hashing and the checks of stored files look up names and rows in the
table, and reject tensors that are not listed. The tensors of an encoding are listed by the
encoding. The checks are the same for datasets and for ``model(data)``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from grass_gnn.config import FeatureConfig, GRASSConfig
from grass_gnn.data.tables.spec import SPLITS
from grass_gnn.encoding import ENCODINGS
from grass_gnn.encoding.base import Row
from grass_gnn.encoding.graph import WEIGHT_KEY, plain_tensor
from grass_gnn.errors import DataError, GrassError
from grass_gnn.tasks import Task, make_task
from grass_gnn.validation import check_graph

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Field(NamedTuple):
    """One tensor of a graph."""

    name: str
    row: Row | Literal["target"]  # what a row belongs to; targets follow task.level
    kind: Literal["float", "bool", "index", "features", "target"] = "float"
    given: bool = False  # read from the user's graphs, and therefore part of the content hash


MASKS = tuple(f"{split}_mask" for split in SPLITS)

_INPUTS = (  # in the order of hashing: add new ones at the end
    Field("x", "node", "features", given=True),
    Field("edge_index", "edge", "index", given=True),
    Field("edge_attr", "edge", "features", given=True),
    Field("edge_weight", "edge", given=True),  # not stored itself, only what is computed from it
    Field("y", "target", "target", given=True),
    Field("descriptors", "graph", given=True),
    *(Field(name, "target", "bool", given=True) for name in MASKS),
    Field("mask", "target", "bool"),  # the mask of the chosen split
    Field("degree", "node"),
)

FIELDS: Mapping[str, Field] = MappingProxyType(
    {field.name: field for field in _INPUTS}
    | {
        name: Field(name, row)
        for encoding in ENCODINGS.values()
        for name, row in encoding.stored_rows.items()
    }
)

HASHED = tuple(field.name for field in FIELDS.values() if field.given)


def field_of(name: str) -> Field:
    """The entry of a tensor.

    Raises:
        GrassError: There is no such tensor.
    """
    if name not in FIELDS:
        raise GrassError(f"There is no tensor {name!r} in the table of grass_gnn.data.checking.")
    return FIELDS[name]


def row_of(name: str, level: str) -> str:
    """What a row of a tensor belongs to: ``"node"``, ``"edge"`` or ``"graph"``.

    Args:
        name: Name of the tensor.
        level: What has a target (``task.level``).
    """
    row = field_of(name).row
    return level if row == "target" else row


def stored_type(name: str, config: GRASSConfig, most_nodes: int) -> torch.dtype:
    """The smallest type for a tensor, given the number of nodes of the largest graph."""
    kind = field_of(name).kind
    if kind == "index":
        return _smallest_type(most_nodes - 1)
    if kind == "features":
        features = _features(name, config)
        return torch.float32 if features.is_float else _smallest_type(max(features.categories) - 1)
    if kind == "target":
        task = make_task(config.task)
        return task.target_type if task.classes is None else _smallest_type(task.classes - 1)
    return torch.bool if kind == "bool" else torch.float32


def type_in_use(name: str, config: GRASSConfig) -> torch.dtype:
    """The type of a tensor in a batch, for the model and the loss."""
    stored = stored_type(name, config, 1)
    return stored if stored in (torch.bool, torch.float32) else torch.int64


def _features(name: str, config: GRASSConfig) -> FeatureConfig:
    return config.input.nodes if name == "x" else config.input.edges


def _smallest_type(largest: int) -> torch.dtype:
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if largest <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


LARGEST_FEATURE = 1e15  # of continuous features, so that sums of their squares are finite
_MOST_NODES = 1 << 31  # a graph cannot have more


class CheckedGraph(NamedTuple):
    """A graph with the shapes and types of the configuration.

    Or B graphs laid end to end, if :func:`check_graphs` was given a batch.
    """

    num_nodes: int
    edge_index: Tensor  # [2, E]
    x: Tensor | None  # [n, columns]
    edge_attr: Tensor | None  # [E, columns]
    y: Tensor | None = None  # [rows] classes, or [rows, outputs]; a row per graph, node or edge
    weight: Tensor | None = None  # [E]
    descriptors: Tensor | None = None  # [B, columns]
    masks: Mapping[str, Tensor] = MappingProxyType({})  # [rows] of each split of nodes or edges


def check(number: int, data: Data, config: GRASSConfig, targets: bool = True) -> CheckedGraph:
    """Check one graph of a dataset; ``number`` names it in an error.

    Args:
        number: Position of the graph in its list, from 0.
        data: The graph.
        config: The input, task and split that it must match.
        targets: Whether it must have a target; otherwise its masks are not read either.
    """
    try:
        if "added_edge_mask" in data:
            raise GrassError(
                "The graph was rewired by AddRandomRegularEdges, but datasets are rewired for "
                "every batch: leave out that transform."
            )
        return check_graphs(data, config, targets=targets, masks=targets)
    except (ValueError, TypeError) as error:
        message = str(error).removeprefix("The graph ")
        if message != str(error):
            raise DataError(f"Graph {number} {message}") from None
        raise DataError(f"Graph {number}: {message[0].lower() + message[1:]}") from None


def check_sizes(graphs: Sequence[Data]) -> tuple[Tensor, Tensor]:
    """Number of nodes [B] and edges [B] of each graph; there must be at least one graph."""
    from torch_geometric.data import Data

    if not len(graphs):
        raise GrassError("There are no graphs: a dataset needs at least one.")
    nodes, edges = [], []
    for number, data in enumerate(graphs):
        if not isinstance(data, Data):
            raise GrassError(f"Graph {number} is not a PyG Data but a {type(data).__name__}.")
        if has_several_graphs(data):
            raise GrassError(
                f"Graph {number} is a batch of several graphs: pass the graphs one by one "
                "(Batch.to_data_list())."
            )
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


def has_several_graphs(data: Data) -> bool:
    """Whether this is a ``Batch``, or ``data.batch`` assigns the nodes to several graphs."""
    from torch_geometric.data import Batch

    batch = data.get("batch")
    if isinstance(data, Batch) or not isinstance(batch, Tensor):
        return isinstance(data, Batch)
    return batch.numel() > 0 and bool((batch != batch.view(-1)[0]).any())


def _count_nodes(data: Data) -> int:
    """Number of nodes as PyG infers it; 0 if that fails or makes no sense."""
    try:
        count = operator.index(data.num_nodes)
    except (TypeError, ValueError, IndexError, RuntimeError, AttributeError):
        return 0
    return count if 0 < count <= _MOST_NODES else 0


def number_tensor(name: str, value: Any) -> Tensor:
    """Convert an attribute of a graph to a tensor of real numbers."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        tensor = None
    if tensor is None or tensor.is_complex() or tensor.layout != torch.strided:
        raise GrassError(f"The {name} of a graph must be a tensor of numbers.")
    return tensor


def check_graphs(
    data: Data,
    config: GRASSConfig,
    *,
    num_graphs: int = 1,
    targets: bool = True,
    masks: bool = True,
) -> CheckedGraph:
    """Check one graph, or several laid end to end.

    Args:
        data: A graph, or a batch of ``num_graphs`` graphs; edges must be without added ones.
        config: The input, task and split that it must match.
        num_graphs: Number of graphs.
        targets: Whether it must have targets; otherwise they are left out.
        masks: Whether to read the masks of splits.
    """
    num_nodes, edge_index = int(data.num_nodes or 0), plain_tensor(data.edge_index)
    weight = data.get(WEIGHT_KEY)
    if weight is not None:
        weight = number_tensor(WEIGHT_KEY, weight).flatten().float()
    for name in ("x", "edge_attr"):
        value = data.get(name)
        if value is not None and (not isinstance(value, Tensor) or not value.dim()):
            raise GrassError(f"The {name} of a graph must be a tensor with one row for each.")
    check_graph(edge_index, num_nodes, weight)
    num_edges = edge_index.size(1)
    task = make_task(config.task)
    rows = task.num_rows(num_graphs, num_nodes, num_edges)
    return CheckedGraph(
        num_nodes,
        edge_index,
        feature_columns("node", data.x, config.input.nodes, num_nodes),
        feature_columns("edge", data.edge_attr, config.input.edges, num_edges),
        _targets(data, task, rows) if targets else None,
        weight,
        _descriptors(data, config.input.descriptors, num_graphs),
        _masks(data, config.split, rows) if masks else {},
    )


def feature_columns(
    what: str, features: Tensor | None, expected: FeatureConfig, num_rows: int
) -> Tensor | None:
    """Check features against the configuration, and give them two dimensions.

    Raises:
        GrassError: Features are missing, not finite, of the wrong shape or unknown categories.
    """
    if not expected.num_columns:
        return None
    if features is None:
        raise GrassError(
            f"The graph has no {what} features, but the model expects {expected.kind}."
        )
    if features.is_complex() or features.layout != torch.strided:
        raise GrassError(f"The {what} features must be a dense tensor of real numbers.")
    if features.shape == (0,) and not num_rows:  # torch.tensor([]) has neither columns nor a type
        kind = torch.float32 if expected.is_float else torch.int64
        return features.new_empty(0, expected.num_columns, dtype=kind)
    if features.dim() == 1:
        features = features.unsqueeze(1)
    if features.shape != (num_rows, expected.num_columns):
        raise GrassError(
            f"The {what} features have shape {list(features.shape)}, "
            f"but the model takes [{num_rows}, {expected.num_columns}]."
        )
    if expected.is_float:
        values = features.detach().float()  # flags, for example, have no absolute value
        if not torch.isfinite(values).all():
            row = int((~torch.isfinite(values)).any(dim=1).nonzero()[0])
            raise GrassError(f"The {what} features of row {row} are not finite.")
        if values.numel() and float(values.abs().max()) > LARGEST_FEATURE:
            row = int((values.abs() > LARGEST_FEATURE).any(dim=1).nonzero()[0])
            raise GrassError(
                f"The {what} features of row {row} are beyond {LARGEST_FEATURE:g}: scale them."
            )
        return features
    if features.is_floating_point():
        raise GrassError(f"The {what} features are category numbers: integers, not floats.")
    features = features.long()  # uint16 cannot be compared
    sizes = torch.tensor(expected.categories, device=features.device)
    outside = (features < 0) | (features >= sizes)
    if outside.any():
        row, column = outside.nonzero()[0].tolist()
        raise GrassError(
            f"The {what} feature {int(features[row, column])} in row {row}, column {column} is "
            f"beyond its {int(sizes[column])} categories."
        )
    return features


def _targets(data: Data, task: Task, rows: int) -> Tensor:
    if data.y is None:
        raise GrassError("The graph has no target y.")
    return task.check_targets(number_tensor("target y", data.y), rows)


def _descriptors(data: Data, columns: int, num_graphs: int) -> Tensor | None:
    """Descriptors of whole graphs [B, columns], if the model uses any."""
    if not columns:
        return None
    values = data.get("descriptors")
    values = torch.empty(0) if values is None else number_tensor("descriptors", values)
    if values.numel() != num_graphs * columns:
        raise GrassError(f"The graph needs {columns} descriptors (data.descriptors).")
    values = values.reshape(num_graphs, columns).float()
    if not bool(torch.isfinite(values).all()):
        raise GrassError("The graph has descriptors that are not finite.")
    return values


def _masks(data: Data, split: int, rows: int) -> dict[str, Tensor]:
    """The masks of a graph whose nodes (or edges) are split; of several splits, the chosen one."""
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
