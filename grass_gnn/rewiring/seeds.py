"""Counter-based random numbers: what is drawn for a graph depends on its own seed alone.

With a stateful generator, the rewiring of a graph would depend on the graphs before it in the
batch. Here a random number is a hash of (seed, counters), computed for all nodes of all graphs at
once.
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
        counters: Distinguish results of the same seed; all broadcast with ``seeds``.
    """
    bits = _mix(seeds + _signed(_GOLDEN_RATIO))
    for counter in counters:
        # Tensors wrap around by themselves, Python integers do not.
        step = (
            counter * _signed(_GOLDEN_RATIO)
            if isinstance(counter, Tensor)
            else (_signed(counter * _GOLDEN_RATIO))
        )
        bits = _mix(bits + step)
    return bits


def shift_right(bits: Tensor, by: int) -> Tensor:
    """Logical right shift of int64 [...]; ``>>`` would repeat the sign bit."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def step_seeds(seed: int, epoch: int, graph_ids: Tensor) -> Tensor:
    """Seeds of the graphs of one training step.

    Args:
        seed: Random seed of the run.
        epoch: Number of the epoch; each has new random edges.
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
    """A hash of each graph as its seed, so that a graph has the same seed in any batch.

    The hash covers the number of nodes, the multiset of edges (in any order, with nodes numbered
    within the graph), and features if given. It depends on the numbering of the nodes.

    Args:
        edge_index: Head and tail of each edge [2, E].
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
        seed: Random seed of the hash.
        x: Node features [N, ...] to include in the hash.
        edge_attr: Edge features [E, ...] to include in the hash.

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
    # A sum does not depend on the order of edges, and counts parallel ones.
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
    """The finaliser of splitmix64; int64 products wrap around, as intended."""
    bits = (bits ^ shift_right(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shift_right(bits, 27)) * _signed(0x94D049BB133111EB)
    return bits ^ shift_right(bits, 31)


def _signed(value: int) -> int:
    """The int64 with the bits of ``value`` modulo 2⁶⁴."""
    return (value + 2**63) % 2**64 - 2**63
