"""A batch of graphs as the model takes it: rewired, encoded, and in order of tails.

``InputGraphs`` are graphs as they were given, laid end to end; ``rewire`` makes of them a
``GraphBatch``, in one vectorised pass over the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from grass_gnn.config import EncodingConfig, RewiringConfig
from grass_gnn.encoding import decomposed_pairs, rrwp_pairs
from grass_gnn.ops import EdgeOrder
from grass_gnn.rewiring import complete_edges, random_edges, random_regular_edges

INPUT_EDGE, SELF_LOOP, ADDED_EDGE = 0, 1, 2  # values of GraphBatch.edge_kind


@dataclass(frozen=True)
class InputGraphs:
    """B graphs with N nodes and E edges in all, laid end to end, with what their encoding needs.

    Of ``transition``, ``vectors`` with ``values``, and ``laplacian``, the one that the encoding
    asks for is there: RRWP follows from the transition probabilities of the edges, D-RRWP from the
    eigenpairs.
    """

    graph_ptr: Tensor  # [B + 1] first node of each graph
    edge_index: Tensor  # [2, E]
    x: Tensor | None = None  # [N, ...]
    edge_attr: Tensor | None = None  # [E, ...]
    y: Tensor | None = None  # [B, targets], [N] or [E], as the task has it
    mask: Tensor | None = None  # [N] nodes (or [E] edges) that count in the loss
    degree: Tensor | None = None  # [N, 2] out, in
    transition: Tensor | None = None  # [E]
    vectors: Tensor | None = None  # [N, m + 1]; alternating: U ‖ V [N, 2(m + 1)]
    values: Tensor | None = None  # [B, m + 1]
    laplacian: Tensor | None = None  # [N, k]
    descriptors: Tensor | None = None  # [B, columns] of graphs as a whole
    known_pairs: Tensor | None = None  # [E + N, columns] encodings of edges, then of self-loops

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.graph_ptr[-1])

    @property
    def node_graph(self) -> Tensor:
        """The graph of each node [N]."""
        sizes = self.graph_ptr.diff()
        return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)


class GraphBatch(NamedTuple):
    """What the model takes: plain tensors, edges of all kinds together, sorted by tail.

    Every node has one self-loop among the edges, and added edges may be parallel to input edges.
    """

    x: Tensor | None  # [N, ...] node features as the embedding takes them
    edge_index: Tensor  # [2, E] head and tail
    edge_attr: Tensor | None  # [E, ...] zero on self-loops and added edges
    edge_kind: Tensor  # [E] INPUT_EDGE, SELF_LOOP or ADDED_EDGE
    node_encoding: Tensor  # [N, columns] P_ii ‖ d⁺ ‖ d⁻
    edge_encoding: Tensor  # [E, columns] P_ij ‖ P_ji
    node_graph: Tensor  # [N] the graph of each node
    order: EdgeOrder
    input_edges: Tensor  # [E_in] row of each input edge, in the order in which they came
    y: Tensor | None = None
    mask: Tensor | None = None
    descriptors: Tensor | None = None  # [B, columns] of graphs as a whole

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return self.order.graph_ptr.size(0) - 1

    def to(self, device: torch.device | str) -> GraphBatch:
        """The same batch on another device."""
        moved = {
            name: value.to(device, non_blocking=True)
            for name, value in self._asdict().items()
            if isinstance(value, Tensor)
        }
        order = EdgeOrder(*(part.to(device, non_blocking=True) for part in self.order))
        return self._replace(order=order, **moved)


def pair_encoding(graphs: InputGraphs, encoding: EncodingConfig, pairs: Tensor) -> Tensor:
    """Encoding of any pairs of nodes [2, M] → [M, columns], equation (2)."""
    if encoding.kind == "rrwp":
        assert graphs.transition is not None
        return rrwp_pairs(
            pairs,
            graphs.edge_index,
            graphs.transition,
            graphs.num_nodes,
            encoding.steps,
            graphs.graph_ptr,
        )
    if encoding.kind == "decomposed-rrwp":
        assert graphs.vectors is not None and graphs.values is not None
        sides = 2 if encoding.directed == "alternating" else 1
        found = [
            decomposed_pairs(pairs, vectors, graphs.values, encoding.steps, graphs.node_graph)
            for vectors in graphs.vectors.chunk(sides, dim=1)
        ]
        return found[0] if sides == 1 else torch.cat(found, dim=1)
    if encoding.kind == "laplacian":
        assert graphs.laplacian is not None
        return torch.cat([graphs.laplacian[pairs[0]], graphs.laplacian[pairs[1]]], dim=1)
    return torch.empty(pairs.size(1), 0)


def known_pairs(graphs: InputGraphs, encoding: EncodingConfig) -> Tensor:
    """Encodings of all edges and self-loops [E + N, columns], which no rewiring changes."""
    loops = torch.arange(graphs.num_nodes).expand(2, -1)
    return pair_encoding(graphs, encoding, torch.cat([graphs.edge_index, loops], dim=1))


def node_encoding(loops: Tensor, encoding: EncodingConfig, degree: Tensor | None) -> Tensor:
    """Encoding of nodes, equations (1) and (3), from that of their self-loops (P_ii ‖ P_ii)."""
    columns = [loops[:, : encoding.steps] if encoding.kind in ("rrwp", "laplacian") else loops]
    if encoding.degrees != "none":
        assert degree is not None
        columns.append(degree[:, [0, 0]] if encoding.degrees == "out-out" else degree)
    return torch.cat(columns, dim=1)


def added_edges(graph_ptr: Tensor, rewiring: RewiringConfig, seeds: Tensor | None) -> Tensor:
    """The edges [2, E_R] that rewiring superimposes on graphs, from one seed a graph."""
    if rewiring.kind == "none" or (rewiring.degree == 0 and rewiring.kind != "complete"):
        return torch.empty(2, 0, dtype=torch.int64, device=graph_ptr.device)
    if rewiring.kind == "complete":
        return complete_edges(graph_ptr)
    if seeds is None:
        seeds = torch.randint(2**62, (len(graph_ptr) - 1,))
    if rewiring.kind == "non-regular":
        return random_edges(graph_ptr, rewiring.degree, seeds)
    return random_regular_edges(graph_ptr, rewiring.degree, seeds, variant=rewiring.variant)


def rewire(
    graphs: InputGraphs,
    encoding: EncodingConfig,
    rewiring: RewiringConfig,
    seeds: Tensor | None = None,
) -> GraphBatch:
    """Superimpose random edges, add self-loops, sort by tail and encode all pairs.

    Args:
        graphs: The graphs, with what their encoding needs.
        encoding: The encoding of nodes and pairs.
        rewiring: The random graph to superimpose.
        seeds: One int64 seed a graph [B]: the rewiring of a graph follows from its seed alone,
            whatever else is in the batch. Drawn from torch's generator if not given.
    """
    added = added_edges(graphs.graph_ptr, rewiring, seeds)
    edges = sort_edges(graphs.edge_index, added, graphs.num_nodes)
    if graphs.known_pairs is None:
        pairs = pair_encoding(graphs, encoding, edges.edge_index)  # [E, columns]
    else:
        drawn = pair_encoding(graphs, encoding, added)  # [E_R, columns]
        pairs = torch.cat([graphs.known_pairs, drawn]).index_select(0, edges.source)
    loops = pairs.index_select(0, edges.loop_rows)  # [N, columns]
    nodes = node_encoding(loops, encoding, graphs.degree)  # [N, columns]
    return assemble(graphs, edges, nodes, pairs)


class SortedEdges(NamedTuple):
    """Edges of all three kinds in order of tails, and where each came from."""

    edge_index: Tensor  # [2, E]
    kind: Tensor  # [E]
    source: Tensor  # [E] row in the concatenation of input edges, self-loops and added edges
    position: Tensor  # [E] the inverse of source
    num_input: int
    num_nodes: int

    @property
    def loop_rows(self) -> Tensor:
        """Row of the self-loop of each node [N]."""
        return self.position[self.num_input : self.num_input + self.num_nodes]


def sort_edges(edge_index: Tensor, added: Tensor, num_nodes: int) -> SortedEdges:
    """Put input edges, a self-loop for every node, and added edges into order of tails."""
    loops = torch.arange(num_nodes).expand(2, -1)
    counts = torch.tensor([edge_index.size(1), num_nodes, added.size(1)])
    kind = torch.repeat_interleave(torch.tensor([INPUT_EDGE, SELF_LOOP, ADDED_EDGE]), counts)
    head, tail = torch.cat([edge_index, loops, added], dim=1)  # [E] each
    source = _order_of(tail, num_nodes)
    position = torch.empty_like(source)
    position[source] = torch.arange(len(source))
    return SortedEdges(
        torch.stack([head.index_select(0, source), tail.index_select(0, source)]),
        kind.index_select(0, source),
        source,
        position,
        edge_index.size(1),
        num_nodes,
    )


def _order_of(nodes: Tensor, num_nodes: int) -> Tensor:
    """The stable order of nodes [E]; narrow keys are sorted several times as fast."""
    narrow = torch.int16 if num_nodes <= torch.iinfo(torch.int16).max else torch.int32
    return torch.argsort(nodes.to(narrow), stable=True)


def _starts(nodes: Tensor, num_nodes: int) -> Tensor:
    """Where the edges of each node start among the sorted ones [N + 1], int32."""
    starts = torch.zeros(num_nodes + 1, dtype=torch.int32)
    torch.cumsum(torch.bincount(nodes, minlength=num_nodes), 0, out=starts[1:])
    return starts


def _both_orders(edges: SortedEdges, graph_ptr: Tensor) -> EdgeOrder:
    """What ``edge_order`` finds, for edges that are sorted by tail already."""
    head, tail = edges.edge_index
    return EdgeOrder(
        tail_ptr=_starts(tail, edges.num_nodes),
        tail_order=torch.arange(len(tail), dtype=torch.int32),
        head_ptr=_starts(head, edges.num_nodes),
        head_order=_order_of(head, edges.num_nodes).to(torch.int32),
        graph_ptr=graph_ptr.to(torch.int32),
    )


def assemble(
    graphs: InputGraphs, edges: SortedEdges, node_encoding: Tensor, edge_encoding: Tensor
) -> GraphBatch:
    """Put the parts of a batch together; encodings are those of the sorted edges."""
    edge_attr = graphs.edge_attr
    if edge_attr is not None:
        others = edge_attr.new_zeros(len(edges.kind) - edges.num_input, *edge_attr.shape[1:])
        edge_attr = torch.cat([edge_attr, others]).index_select(0, edges.source)
    return GraphBatch(
        x=graphs.x,
        edge_index=edges.edge_index,
        edge_attr=edge_attr,
        edge_kind=edges.kind,
        node_encoding=node_encoding,
        edge_encoding=edge_encoding,
        node_graph=graphs.node_graph,
        order=_both_orders(edges, graphs.graph_ptr),
        input_edges=edges.position[: edges.num_input],
        y=graphs.y,
        mask=graphs.mask,
        descriptors=graphs.descriptors,
    )
