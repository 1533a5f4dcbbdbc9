"""Where the edges of each node stand: both orders of an edge list, made once per batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class EdgeOrder(NamedTuple):
    """The edges of each node, found by tail and by head, so that a flipped layer needs no sorting.

    The edges with tail ``j`` are the rows ``tail_order[tail_ptr[j]:tail_ptr[j + 1]]``, and likewise
    for heads. ``graph_ptr`` holds the first node of each graph: nodes of a graph are contiguous and
    edges never leave it, which lets a thread own whole graphs. All are int32.
    """

    tail_ptr: Tensor  # [N + 1]
    tail_order: Tensor  # [E]
    head_ptr: Tensor  # [N + 1]
    head_order: Tensor  # [E]
    graph_ptr: Tensor  # [B + 1]

    def flipped(self) -> EdgeOrder:
        """The order of the same edges with head and tail exchanged."""
        return EdgeOrder(
            self.head_ptr, self.head_order, self.tail_ptr, self.tail_order, self.graph_ptr
        )


def edge_order(edge_index: Tensor, num_nodes: int, graph_ptr: Tensor | None = None) -> EdgeOrder:
    """Find the edges of every node by tail and by head (a stable sort of each row)."""
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
