"""Alternatives to random regular graphs for the ablations: independent random edges, all pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.rewiring.regular import both_directions, check_seeds, distinct_pairs
from grass_gnn.rewiring.seeds import random_bits, shift_right
from grass_gnn.validation import check_graph_ptr, check_non_negative_int


def random_edges(graph_ptr: Tensor, r: int, seeds: Tensor) -> Tensor:
    """As many random pairs as :func:`random_regular_edges` draws, but with independent ends.

    min(r, |V| − 1) · |V| pairs per graph are drawn with uniform ends. Loops and repeats in the same
    direction are removed, and each remaining pair becomes two edges.

    Args:
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
        r: Number of pairs per node.
        seeds: One int64 seed per graph [B].

    Returns:
        Head and tail of each edge [2, E], grouped by graph; each drawn pair precedes its reverse.
    """
    check_graph_ptr(graph_ptr)
    check_non_negative_int("r", r)
    check_seeds(seeds, graph_ptr)
    graph_ptr = graph_ptr.long()
    sizes = graph_ptr.diff()  # [B]
    drawn = sizes * (sizes - 1).clamp(min=0, max=r)  # [B]
    graph = torch.repeat_interleave(drawn)  # [M]
    first = drawn.cumsum(0) - drawn  # [B]
    number = torch.arange(graph.numel(), device=graph.device) - first[graph]  # [M], in its graph
    end = torch.arange(2, device=graph.device).unsqueeze(1)  # [2, 1]
    bits = shift_right(random_bits(seeds[graph], number, end), 32)  # [2, M]
    pairs = ((bits * sizes[graph]) >> 32) + graph_ptr[graph]  # [2, M]
    return both_directions(distinct_pairs(pairs[:, pairs[0] != pairs[1]], directed=True))


def complete_edges(graph_ptr: Tensor) -> Tensor:
    """All ordered pairs of different nodes of each graph [2, E], sorted by head.

    Args:
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
    """
    check_graph_ptr(graph_ptr)
    graph_ptr = graph_ptr.long()
    sizes = graph_ptr.diff()  # [B]
    graph = torch.repeat_interleave(sizes)  # [N]
    size = sizes[graph]  # [N]
    head = torch.repeat_interleave(size)  # [Σ n²]: each node once per node of its graph
    row_start = torch.cumsum(size, 0) - size  # [N]
    tail = torch.arange(head.numel(), device=head.device) - row_start[head] + graph_ptr[graph[head]]
    return torch.stack([head, tail])[:, head != tail]
