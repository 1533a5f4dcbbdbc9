"""What the encodings' transforms read from a PyG graph."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch_geometric.data import Batch, Data


class Graph(NamedTuple):
    """The arguments that every encoding takes."""

    edge_index: Tensor  # [2, E]
    num_nodes: int
    weight: Tensor | None  # [E]


def read_graph(data: Data, weight_key: str | None) -> Graph:
    """Edges, number of nodes and weights (kept under ``weight_key``) of a single graph."""
    if isinstance(data, Batch) or not isinstance(data, Data):
        raise TypeError(
            "Encodings are computed on a torch_geometric Data, graph by graph and before batching, "
            f"not on {type(data).__name__}."
        )
    if data.edge_index is None:
        raise ValueError("The graph has no edge_index.")
    weight = None
    if weight_key is not None:
        if weight_key not in data:
            raise ValueError(f"The graph has no {weight_key!r} to take edge weights from.")
        weight = data[weight_key]
        if weight.dim() == 2 and weight.size(1) == 1:
            weight = weight.squeeze(1)
    return Graph(data.edge_index, data.num_nodes, weight)
