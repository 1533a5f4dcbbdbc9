"""RRWP: random walk probabilities of selected pairs, in C++ on a CPU, in PyTorch elsewhere."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from grass_gnn.encoding.base import Encoding, Row, Structure, TwoSidedEncoding
from grass_gnn.ops import build
from grass_gnn.validation import (
    check_graph,
    check_graph_ptr,
    check_pairs,
    check_positive_int,
    check_weights,
    check_within_graphs,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data

# Walks are computed for a block of end nodes at a time, of at most this many probabilities.
_BLOCK_NUMBERS = 1 << 24
# For fewer probabilities than this, threads cost more than they save.
_THREAD_NUMBERS = 1 << 20


def normalised_rows(head: Tensor, value: Tensor, num_nodes: int) -> Tensor:
    """Values divided by their sum over the edges with the same head, in float64 [E]."""
    value = value.double()
    total = value.new_zeros(num_nodes).index_add(0, head, value)[head]  # [E]
    return torch.where(total > 0, value / total, 0.0)


def walk_probabilities(
    pairs: Tensor, edge_index: Tensor, transition: Tensor, graph_ptr: Tensor, k: int, both: bool
) -> Tensor:
    """P_ij of each pair after 1, …, k steps; with ``both``, P_ij ‖ P_ji.

    Args:
        pairs: The pairs (i, j) [2, M], each within one graph. All arguments must be valid.
        edge_index: Head and tail of each edge [2, E].
        transition: Probability of each edge [E].
        graph_ptr: First node of each graph, and the number of nodes [B + 1], int64.
        k: Number of random walk steps.
        both: Whether to return P_ji as well.

    Returns:
        Probabilities as float32 [M, k] or [M, 2k].
    """
    walk = walk_native if edge_index.device.type == "cpu" and build.available() else walk_torch
    return walk(pairs, edge_index, transition, graph_ptr, k, both)


def walk_torch(
    pairs: Tensor, edge_index: Tensor, transition: Tensor, graph_ptr: Tensor, k: int, both: bool
) -> Tensor:
    """:func:`walk_probabilities` of pairs [2, M] → [M, k] in PyTorch, on any device."""
    sizes = graph_ptr.diff()  # [B]
    graph = torch.repeat_interleave(sizes)  # [N]
    num_nodes = graph.numel()
    local = torch.arange(num_nodes, device=graph.device) - graph_ptr[graph]  # [N]
    start, end = (torch.cat([pairs, pairs.flip(0)], dim=1) if both else pairs).long()

    # Storage in float32 leaves rows that sum to 1 ± 6e-8, which k steps would multiply.
    probability = normalised_rows(edge_index[0], transition, num_nodes)  # [E], float64
    step = torch.sparse_coo_tensor(
        edge_index.long(), probability, (num_nodes, num_nodes), check_invariants=False
    )  # [N, N], parallel edges add up

    out = torch.zeros(k, start.numel(), dtype=torch.float32, device=graph.device)
    largest = int(sizes.max()) if sizes.numel() else 0
    width = max(1, _BLOCK_NUMBERS // max(1, num_nodes))
    for first in range(0, largest, width):  # end nodes, numbered within their graphs
        column = local - first  # [N]
        inside = (column >= 0) & (column < width)  # [N]
        wanted = inside[end].nonzero().squeeze(1)
        # After no step a walker is where it started.
        walk = probability.new_zeros(num_nodes, min(width, largest - first))
        walk[inside.nonzero().squeeze(1), column[inside]] = 1.0
        place = start[wanted] * walk.size(1) + column[end[wanted]]  # in the flattened walk
        for h in range(k):
            walk = step @ walk  # [N, width]: these columns of T^(h+1)
            out[h].index_copy_(0, wanted, walk.view(-1).index_select(0, place).float())
    return torch.cat(out.chunk(2, dim=1)).t() if both else out.t()


def walk_native(
    pairs: Tensor, edge_index: Tensor, transition: Tensor, graph_ptr: Tensor, k: int, both: bool
) -> Tensor:
    """:func:`walk_probabilities` of pairs [2, M] → [M, k] in C++ (``ops/walks.cpp``)."""
    pairs, edge_index = pairs.long().contiguous(), edge_index.long().contiguous()
    transition, graph_ptr = transition.detach().float().contiguous(), graph_ptr.contiguous()
    # Not of torch's default type, because C++ writes float32.
    out = torch.empty(pairs.size(1), (2 if both else 1) * k, dtype=torch.float32, device="cpu")
    failed = _native_function()(
        graph_ptr.data_ptr(),
        graph_ptr.numel() - 1,
        edge_index.data_ptr(),
        transition.data_ptr(),
        edge_index.size(1),
        pairs.data_ptr(),
        pairs.size(1),
        k,
        int(both),
        out.data_ptr(),
        torch.get_num_threads() if out.numel() > _THREAD_NUMBERS else 1,
    )
    if failed:
        raise MemoryError(f"Not enough memory for the random walks of {pairs.size(1)} pairs.")
    return out


@cache
def _native_function() -> Any:
    """The C function with its argument types; the first call compiles the library."""
    function = build.library().grass_walk_probabilities
    pointer, size, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    function.argtypes = [
        *(pointer, size),  # graph_ptr, number of graphs
        *(pointer, pointer, size),  # edge_index, transition, number of edges
        *(pointer, size),  # pairs, number of pairs
        *(size, flag, pointer, flag),  # k, both, out, threads
    ]
    function.restype = flag
    return function


def transition_probabilities(
    edge_index: Tensor, num_nodes: int, weight: Tensor | None = None
) -> Tensor:
    """Probability that a walker at the head of an edge takes that edge.

    Summed over parallel edges, they form the transition matrix T = D⁻¹A. Rows of nodes without
    outgoing edges (or whose weights are all zero) are zero: the walk ends there.

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        weight: Weight of each edge [E].

    Returns:
        One probability per edge, float32 [E].
    """
    check_graph(edge_index, num_nodes, weight)
    value = torch.ones_like(edge_index[0]) if weight is None else weight
    return normalised_rows(edge_index[0], value, num_nodes).float()


def dense_rrwp(edge_index: Tensor, num_nodes: int, k: int, weight: Tensor | None = None) -> Tensor:
    """The full tensor P = [T, T², …, T^k], for small graphs.

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        k: Number of random walk steps.
        weight: Weight of each edge [E].

    Returns:
        P as float32 [k, n, n].
    """
    check_positive_int("k", k)
    check_graph(edge_index, num_nodes, weight)
    head, tail = edge_index.long()
    value = torch.ones_like(head) if weight is None else weight
    step = torch.zeros(num_nodes, num_nodes, dtype=torch.float64, device=head.device)
    step.index_put_((head, tail), normalised_rows(head, value, num_nodes), accumulate=True)
    powers = [step]
    for _ in range(1, k):
        powers.append(powers[-1] @ step)
    return torch.stack(powers).float()  # [k, n, n]


def rrwp_nodes(
    edge_index: Tensor,
    num_nodes: int,
    k: int,
    transition: Tensor,
    graph_ptr: Tensor | None = None,
) -> Tensor:
    """Return probabilities P_ii after 1, …, k steps (equation 1).

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: Total number of nodes.
        k: Number of random walk steps.
        transition: Probability of each edge [E], from :func:`transition_probabilities`.
        graph_ptr: For a batch, the first node of each graph and the number of nodes [B + 1].

    Returns:
        P_ii as float32 [n, k].
    """
    graph_ptr = _check(edge_index, transition, num_nodes, k, graph_ptr)
    pairs = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
    return walk_probabilities(pairs, edge_index, transition, graph_ptr, k, both=False)


def rrwp_pairs(
    pairs: Tensor,
    edge_index: Tensor,
    transition: Tensor,
    num_nodes: int,
    k: int,
    graph_ptr: Tensor | None = None,
) -> Tensor:
    """Probabilities of walking from i to j and from j to i (equation 2).

    Memory grows with the number of pairs, not with k·|V|².

    Args:
        pairs: The pairs (i, j) [2, M], in any order, each within one graph.
        edge_index: Head and tail of each edge [2, E].
        transition: Probability of each edge [E], from :func:`transition_probabilities`.
        num_nodes: Total number of nodes.
        k: Number of random walk steps.
        graph_ptr: For a batch, the first node of each graph and the number of nodes [B + 1].

    Returns:
        P_ij ‖ P_ji as float32 [M, 2k].
    """
    graph_ptr = _check(edge_index, transition, num_nodes, k, graph_ptr)
    check_pairs("pairs", pairs, num_nodes)
    check_within_graphs("pairs", pairs, graph_ptr)
    return walk_probabilities(pairs, edge_index, transition, graph_ptr, k, both=True)


class RRWP(TwoSidedEncoding):
    """Relative random walk probabilities: nodes P_ii [N, k], pairs P_ij ‖ P_ji [M, 2k].

    Only the transition probabilities of the edges are stored; the walks of just the pairs of a
    batch are computed when it is made.

    Args:
        k: Number of random walk steps.
        degrees: Degrees appended to the encoding of nodes.
    """

    stored_rows: ClassVar[Mapping[str, Row]] = {"transition": "edge"}
    local = False  # a walk between two nodes may visit the whole graph
    attr_name = "rrwp"

    def _own_stored_columns(self) -> dict[str, int]:
        return {"transition": 0}

    def _compute(
        self, edge_index: Tensor, num_nodes: int, weight: Tensor | None
    ) -> dict[str, Tensor]:
        return {"transition": transition_probabilities(edge_index, num_nodes, weight)}  # [E]

    def problem_with(self, stored: Mapping[str, Tensor]) -> str | None:
        """Whether a probability is negative."""
        return "a probability is negative" if bool((stored["transition"] < 0).any()) else None

    def pairs(self, pairs: Tensor, graphs: Structure) -> Tensor:
        """P_ij ‖ P_ji of pairs [2, M] → [M, 2k]."""
        edge_index, graph_ptr, stored = graphs
        return rrwp_pairs(
            pairs, edge_index, stored["transition"], int(graph_ptr[-1]), self.k, graph_ptr
        )

    @classmethod
    def of_written(cls, data: Data, name: str) -> tuple[Encoding, dict[str, Tensor]] | None:
        """The encoding that :class:`AddRRWP` wrote to ``data[name]``, if it did."""
        stored = cls.read(data, name)
        return None if stored is None else (cls(data[name].size(1)), stored)


def _check(
    edge_index: Tensor, transition: Tensor, num_nodes: int, k: int, graph_ptr: Tensor | None
) -> Tensor:
    """Check the common arguments, and return ``graph_ptr`` (of a single graph if not given)."""
    check_positive_int("k", k)
    check_graph(edge_index, num_nodes)
    check_weights("transition", transition, edge_index.size(1))
    if graph_ptr is None:
        return torch.tensor([0, num_nodes], device=edge_index.device)
    check_graph_ptr(graph_ptr, num_nodes)
    check_within_graphs("edge_index", edge_index, graph_ptr)
    return graph_ptr.long()
