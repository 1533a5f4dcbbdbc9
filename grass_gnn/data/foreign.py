"""Packed graphs that somebody else may have written: everything is checked before it is used.

Indices of nodes and categories go to compiled code, which does not look at them again.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packing import shapes_of
from grass_gnn.data.sbm import SPLITS
from grass_gnn.errors import GrassError

_ROWS = 1 << 22  # edges that are looked at at a time


def check_packed(tensors: Mapping[str, Tensor], config: GRASSConfig, place: object) -> None:
    """Raise unless these tensors are packed graphs that fit a configuration.

    Args:
        tensors: What was read from a file.
        config: The configuration.
        place: The file, to be named in an error.
    """
    problem = _problem(tensors, config)
    if problem:
        raise GrassError(f"The file {place} is damaged: {problem}.")


def _problem(tensors: Mapping[str, Tensor], config: GRASSConfig) -> str | None:
    sizes = []
    for name, least in (("graph_ptr", 1), ("edge_ptr", 0)):  # every graph has a node
        pointer = tensors.get(name)
        if pointer is None or pointer.dtype != torch.int64 or pointer.dim() != 1:
            return f"{name} is not a list of places"
        size = pointer.diff()
        if len(size) == 0 or int(pointer[0]) or int(pointer.min()) < 0 or int(size.min()) < least:
            return f"{name} does not go up from 0"
        sizes.append(size)
    nodes, edges = sizes
    if len(nodes) != len(edges):
        return "graph_ptr and edge_ptr are of different lengths"
    masks = [f"{split}_mask" for split in SPLITS if f"{split}_mask" in tensors]
    expected = shapes_of(nodes, edges, config, masks)
    found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    if found != expected:
        wrong = sorted(n for n in expected.keys() | found if found.get(n) != expected.get(n))
        return f"{', '.join(repr(name) for name in wrong)} should not be there or look otherwise"
    return _wrong_values(tensors, config, nodes, edges)


def _wrong_values(
    tensors: Mapping[str, Tensor], config: GRASSConfig, nodes: Tensor, edges: Tensor
) -> str | None:
    largest = torch.repeat_interleave(nodes, edges)  # [E] nodes of each edge's graph
    index = tensors["edge_index"]  # [E, 2]
    for first in range(0, len(index), _ROWS):
        part, limit = index[first : first + _ROWS], largest[first : first + _ROWS, None]
        if bool(((part < 0) | (part >= limit)).any()):
            return "an edge leads to a node that is not there"
    for name, features in (("x", config.input.nodes), ("edge_attr", config.input.edges)):
        values = tensors.get(name)
        if values is not None and len(values) and not values.is_floating_point():
            high, low = values.max(dim=0).values, values.min(dim=0).values
            if bool((low < 0).any()) or bool((high >= torch.tensor(features.categories)).any()):
                return f"{name} holds a category that is not there"
    for name, tensor in tensors.items():
        missing = name == "y" and config.task.missing
        if tensor.is_floating_point() and not missing and not bool(tensor.isfinite().all()):
            return f"{name} is not finite"
    if "transition" in tensors and bool((tensors["transition"] < 0).any()):
        return "a probability is negative"
    y = tensors["y"]
    classes = config.task.kind == "classification" and len(y)
    if classes and (int(y.min()) < 0 or int(y.max()) >= config.task.outputs):
        return "y holds a class that is not there"
    return None
