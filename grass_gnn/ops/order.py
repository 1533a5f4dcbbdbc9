"""The edges of each node, by tail and by head, found once per batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class EdgeOrder(NamedTuple):
    """The edges of each node by tail and by head, so that a flipped layer needs no sorting.

    The edges with tail ``j`` are the rows ``tail_order[tail_ptr[j]:tail_ptr[j + 1]]``, and likewise
    for heads. ``graph_ptr`` has the first node of each graph: the nodes of a graph are contiguous
    and no edge leaves it, so that a thread can own whole graphs. All tensors are int32.
    """

    tail_ptr: Tensor  # [N + 1]
    tail_order: Tensor  # [E]
    head_ptr: Tensor  # [N + 1]
    head_order: Tensor  # [E]
    graph_ptr: Tensor  # [B + 1]


def edge_order(edge_index: Tensor, num_nodes: int, graph_ptr: Tensor | None = None) -> EdgeOrder:
    """Sort the edges by tail and by head, keeping the order of edges with the same node."""
    if graph_ptr is None:
        graph_ptr = torch.tensor([0, num_nodes], device=edge_index.device)
    head_ptr, head_order = _by_node(edge_index[0], num_nodes)
    tail_ptr, tail_order = _by_node(edge_index[1], num_nodes)
    return EdgeOrder(tail_ptr, tail_order, head_ptr, head_order, graph_ptr.to(torch.int32))


def _by_node(node: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    order = torch.argsort(node, stable=True)
    ptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=node.device)
    torch.cumsum(torch.bincount(node, minlength=num_nodes), 0, out=ptr[1:])
    return ptr.to(torch.int32), order.to(torch.int32)
