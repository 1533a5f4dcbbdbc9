"""The table of tensors: everything that is read from users' graphs or stored for them.

Packing, selecting, sampling, hashing and the checks of stored files take names and rows from this
table, and refuse a tensor that is not in it. What an encoding stores is listed by the encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch

from grass_gnn.config import FeatureConfig, GRASSConfig
from grass_gnn.data.tables.spec import SPLITS
from grass_gnn.encoding import ENCODINGS
from grass_gnn.encoding.base import Row
from grass_gnn.errors import GrassError
from grass_gnn.tasks import make_task


class Field(NamedTuple):
    """One tensor of a graph."""

    name: str
    row: Row | Literal["target"]  # what a row belongs to; targets follow task.level
    kind: Literal["float", "bool", "index", "features", "target"] = "float"
    given: bool = False  # read from the user's graphs, and therefore part of the content hash


_INPUTS = (  # in the order in which they are hashed: new ones go to the end
    Field("x", "node", "features", given=True),
    Field("edge_index", "edge", "index", given=True),
    Field("edge_attr", "edge", "features", given=True),
    Field("edge_weight", "edge", given=True),  # stored only as what is computed from it
    Field("y", "target", "target", given=True),
    Field("descriptors", "graph", given=True),
    *(Field(f"{split}_mask", "target", "bool", given=True) for split in SPLITS),
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

MASKS = tuple(f"{split}_mask" for split in SPLITS)
HASHED = tuple(field.name for field in FIELDS.values() if field.given)


def field_of(name: str) -> Field:
    """The entry of a tensor.

    Raises:
        GrassError: There is no such tensor.
    """
    if name not in FIELDS:
        raise GrassError(f"There is no tensor {name!r} in the table of grass_gnn.data.fields.")
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
    """The smallest type that holds any value of a tensor; ``most_nodes`` of the largest graph."""
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
