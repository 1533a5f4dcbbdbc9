"""Read edges, weights and the graph of each node from PyG graphs, for encodings and rewiring."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from grass_gnn.validation import check_graph, check_graph_ptr, check_weights

if TYPE_CHECKING:
    from torch_geometric.data import Data


WEIGHT_KEY = "edge_weight"  # PyG's name for edge weights, used wherever a graph has them


class Graph(NamedTuple):
    """The structure of a single graph."""

    edge_index: Tensor  # [2, E]
    num_nodes: int
    weight: Tensor | None  # [E]


def read_graph(data: Data, weight_key: str | None = WEIGHT_KEY) -> Graph:
    """Read and check the edges, number of nodes and edge weights of a single graph.

    Args:
        data: The graph.
        weight_key: Name of the edge weights. ``"edge_weight"`` is optional, any other name must be
            present; ``None`` ignores edge weights.
    """
    from torch_geometric.data import Batch, Data

    if isinstance(data, Batch) or not isinstance(data, Data):
        raise TypeError(
            "Encodings are computed for one torch_geometric Data at a time, before batching, "
            f"not for a {type(data).__name__}."
        )
    if data.edge_index is None:
        raise ValueError("The graph has no edge_index.")
    if graph_ptr_of(data).numel() > 2:
        raise TypeError(
            "Encodings are computed for one graph at a time, before batching, but data.batch "
            "assigns the nodes to several graphs."
        )
    if "added_edge_mask" in data:
        raise ValueError(
            "The graph has already been rewired: put encodings before AddRandomRegularEdges."
        )
    edge_index, num_nodes = plain_tensor(data.edge_index), int(data.num_nodes or 0)
    weight = edge_weights(data, weight_key)
    check_graph(edge_index, num_nodes)
    if weight is not None:
        check_weights(weight_key or "", weight, edge_index.size(1))
    return Graph(edge_index, num_nodes, weight)


def plain_tensor(tensor: Tensor) -> Tensor:
    """PyG's ``EdgeIndex`` [2, E] or ``Index`` [E] as an ordinary tensor, which C++ can read.

    They also remember an order of the edges, which is wrong as soon as edges are added.
    """
    if type(tensor) is Tensor or not hasattr(tensor, "as_tensor"):
        return tensor
    return tensor.as_tensor()


def edge_weights(data: Data, weight_key: str | None = WEIGHT_KEY) -> Tensor | None:
    """Edge weights [E] of one graph or a batch, from a tensor [E] or [E, 1]; see read_graph."""
    if weight_key is None:
        return None
    weight = data.get(weight_key)
    if weight is None:
        if weight_key == WEIGHT_KEY:
            return None
        raise ValueError(f"The graph has no {weight_key!r} for the edge weights.")
    if not isinstance(weight, Tensor):
        raise TypeError(f"{weight_key} must be a tensor, not {type(weight).__name__}.")
    return weight.squeeze(1) if weight.dim() == 2 and weight.size(1) == 1 else weight


def graph_ptr_of(data: Data) -> Tensor:
    """The first node of each graph, and the number of nodes [B + 1].

    Taken from ``data.ptr`` of a batch, else from ``data.batch`` (the graph of each node), else the
    data is a single graph.
    """
    from torch_geometric.data import Batch

    num_nodes = int(data.num_nodes or 0)
    ptr, batch = data.get("ptr"), data.get("batch")
    if isinstance(ptr, Tensor) and (isinstance(data, Batch) or batch is not None):
        check_graph_ptr(ptr, num_nodes)
        return ptr.long()
    if batch is None:
        if isinstance(data, Batch):
            raise ValueError("The Batch has neither ptr nor batch, which assign nodes to graphs.")
        device = data.edge_index.device if isinstance(data.edge_index, Tensor) else None
        return torch.tensor([0, num_nodes], device=device)
    if (
        not isinstance(batch, Tensor)
        or batch.shape != (num_nodes,)
        or batch.dtype not in (torch.int64, torch.int32)
    ):
        raise ValueError(
            f"data.batch must contain the graph of each node, as integers [{num_nodes}]."
        )
    if batch.numel() and (int(batch[0]) < 0 or bool((batch.diff() < 0).any())):
        raise ValueError("data.batch must be sorted, so that the nodes of a graph are contiguous.")
    sizes = torch.bincount(batch)  # [B]
    if bool((sizes == 0).any()):
        raise ValueError(f"data.batch has no node of graph {int((sizes == 0).nonzero()[0])}.")
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def graph_checksums(edge_index: Tensor, graph_ptr: Tensor) -> Tensor:
    """A hash of the size and the edges, in order, of each graph [B], int64.

    Transforms leave it next to an encoding, to notice when the graph is changed afterwards.
    """
    check_graph(edge_index, int(graph_ptr[-1]))
    sizes = graph_ptr.diff()  # [B]
    head, tail = edge_index.long()
    graph = torch.repeat_interleave(sizes)[head]  # [E]
    first = graph_ptr[graph]  # [E] first node of its graph
    order = torch.argsort(graph, stable=True)
    count = torch.bincount(graph, minlength=sizes.numel())
    place = torch.empty_like(order)  # of each edge within its graph
    place[order] = (
        torch.arange(order.numel(), device=order.device) - (count.cumsum(0) - count)[graph[order]]
    )
    bits = _mix(_mix(_mix(head - first + 1) + tail - first) + place)
    return _mix(torch.zeros_like(sizes).index_add(0, graph, bits) + sizes)


def _mix(bits: Tensor) -> Tensor:
    """Spread the bits of int64 values; products wrap around."""
    bits = (bits ^ (bits >> 32)) * 0x2545F4914F6CDD1D
    return (bits ^ (bits >> 29)) * 0x369DEA0F31A53F85
