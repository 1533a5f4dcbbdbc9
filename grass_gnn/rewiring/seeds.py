"""Randomness by counting: what a graph draws depends on its own seed and on nothing else.

A generator hands out numbers in the order in which they are asked for, so a graph's rewiring would
change with whatever stands before it in the batch. Here a random number is a hash of (seed,
counters) instead: every node of every graph computes its own, all at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.validation import check_graph, check_graph_ptr

_GOLDEN_RATIO = 0x9E3779B97F4A7C15  # 2⁶⁴ divided by the golden ratio, and odd


def random_bits(seeds: Tensor, *counters: Tensor | int) -> Tensor:
    """64 random bits for every combination of a seed and its counters.

    Args:
        seeds: One int64 seed for each result, of any shape [...].
        counters: What tells results of the same seed apart; all broadcast with ``seeds``.
    """
    bits = _mix(seeds + _signed(_GOLDEN_RATIO))
    for counter in counters:
        # An int may wrap around here, a tensor does so by itself.
        step = (
            counter * _signed(_GOLDEN_RATIO)
            if isinstance(counter, Tensor)
            else (_signed(counter * _GOLDEN_RATIO))
        )
        bits = _mix(bits + step)
    return bits


def shift_right(bits: Tensor, by: int) -> Tensor:
    """Logical shift of int64 [...]: zeros come in from the left, while ``>>`` repeats the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def step_seeds(seed: int, epoch: int, graph_ids: Tensor) -> Tensor:
    """Seeds of the graphs of one training step.

    Args:
        seed: Seed of the run.
        epoch: Number of the epoch, so that each one rewires afresh.
        graph_ids: Index of each graph in its dataset [B].

    Returns:
        One int64 seed per graph [B].
    """
    return random_bits(
        torch.full_like(graph_ids, _signed(seed), dtype=torch.int64), epoch, graph_ids
    )


def graph_seeds(
    edge_index: Tensor,
    graph_ptr: Tensor,
    seed: int = 0,
    x: Tensor | None = None,
    edge_attr: Tensor | None = None,
) -> Tensor:
    """Seeds that are a hash of each graph: the same graph gets the same seed in any batch.

    The hash covers the number of nodes and the multiset of edges, as node numbers within the graph,
    whatever the order in which the edges stand; and the features, where they are given. Numbering
    the nodes differently is another graph.

    Args:
        edge_index: Head and tail of each edge [2, E].
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
        seed: Another seed gives other hashes.
        x: Node features [N, ...], if they are to be told apart too.
        edge_attr: Edge features [E, ...], if they are to be told apart too.

    Returns:
        One int64 seed per graph [B].
    """
    check_graph_ptr(graph_ptr)
    check_graph(edge_index, int(graph_ptr[-1]))
    graph_ptr = graph_ptr.long()
    sizes = graph_ptr.diff()  # [B]
    graph = torch.repeat_interleave(sizes)  # [N]
    local = torch.arange(graph.numel(), device=graph.device) - graph_ptr[graph]  # [N]
    head, tail = edge_index.long()

    edge_hash = random_bits(local[head], local[tail])  # [E]
    if edge_attr is not None:
        edge_hash = random_bits(edge_hash, _row_hash(edge_attr))
    # A sum does not depend on the order of its terms, and counts parallel edges.
    total = torch.zeros_like(sizes).index_add(0, graph[head], edge_hash)  # [B]
    if x is not None:
        total.index_add_(0, graph, random_bits(_row_hash(x), local, 1))
    return random_bits(total, sizes, seed)


def _row_hash(features: Tensor) -> Tensor:
    rows = features.reshape(features.size(0), -1)  # [N, F]
    if rows.is_floating_point():
        rows = (rows.double() + 0.0).view(torch.int64)  # -0.0 + 0.0 is 0.0: equal, so equal bits
    columns = torch.arange(rows.size(1), device=rows.device)
    return random_bits(rows.long(), columns).sum(1)  # [N]


def _mix(bits: Tensor) -> Tensor:
    """The finaliser of splitmix64; int64 products wrap around, as it wants."""
    bits = (bits ^ shift_right(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shift_right(bits, 27)) * _signed(0x94D049BB133111EB)
    return bits ^ shift_right(bits, 31)


def _signed(value: int) -> int:
    """The int64 with the bits of ``value`` modulo 2⁶⁴."""
    return (value + 2**63) % 2**64 - 2**63
