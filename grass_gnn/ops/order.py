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


def edge_order(
    edge_index: Tensor,
    num_nodes: int,
    graph_ptr: Tensor | None = None,
    sorted_by_tail: bool = False,
) -> EdgeOrder:
    """Sort the edges by tail, unless they are already, and by head; both sorts are stable."""
    if graph_ptr is None:
        graph_ptr = torch.tensor([0, num_nodes], device=edge_index.device)
    head, tail = edge_index
    tail_ptr, head_ptr = _starts(tail, num_nodes), _starts(head, num_nodes)
    in_order = torch.arange(len(tail), device=tail.device)
    tail_order = in_order if sorted_by_tail else stable_order(tail, num_nodes)
    parts = tail_ptr, tail_order, head_ptr, stable_order(head, num_nodes), graph_ptr
    return EdgeOrder(*(part.to(torch.int32) for part in parts))


def stable_order(nodes: Tensor, num_nodes: int) -> Tensor:
    """The stable order of nodes [E]; narrow keys are sorted several times faster."""
    narrow = torch.int16 if num_nodes <= torch.iinfo(torch.int16).max else torch.int32
    return torch.argsort(nodes.to(narrow), stable=True)


def _starts(nodes: Tensor, num_nodes: int) -> Tensor:
    """Where the edges of each node start among the sorted ones [N + 1], int32."""
    starts = torch.zeros(num_nodes + 1, dtype=torch.int32, device=nodes.device)
    torch.cumsum(torch.bincount(nodes, minlength=num_nodes), 0, out=starts[1:])
    return starts
