"""A batch of graphs as the model takes it: rewired, encoded, and in order of tails.

``InputGraphs`` are graphs as they were given, laid end to end; ``rewire`` makes of them a
``GraphBatch``, in one vectorised pass over the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from grass_gnn.config import EncodingConfig, FeatureConfig, GRASSConfig, RewiringConfig
from grass_gnn.data.encode import encode_spectrum, encode_structure
from grass_gnn.encoding import decomposed_pairs, node_degrees, rrwp_pairs
from grass_gnn.errors import GrassError
from grass_gnn.ops import EdgeOrder
from grass_gnn.rewiring import complete_edges, graph_seeds, random_edges, random_regular_edges
from grass_gnn.validation import check_graph

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


LARGEST_FEATURE = 1e15  # of continuous ones: sums of their squares stay finite


def batch_from_data(data: Data, config: GRASSConfig, seeds: Tensor | None = None) -> GraphBatch:
    """Encode and rewire PyG graphs, as far as transforms have not done so before.

    Graphs that ``AddRandomRegularEdges`` went over (they have ``added_edge_mask``) keep their
    added edges, and need the encoding of their edges; others are rewired here.

    Args:
        data: One graph, or a ``Batch`` of graphs.
        config: The model's configuration.
        seeds: One seed a graph for the rewiring [B].
    """
    num_nodes = _num_nodes(data)
    check_graph(data.edge_index, num_nodes)
    graphs = InputGraphs(
        graph_ptr=_graph_ptr(data, num_nodes),
        edge_index=data.edge_index,
        x=feature_columns("node", data.x, config.input.nodes, num_nodes),
        edge_attr=feature_columns(
            "edge", data.edge_attr, config.input.edges, data.edge_index.size(1)
        ),
        y=data.y,
        degree=data.get("degree"),
        descriptors=_descriptors(data, config.input.descriptors),
    )
    if "added_edge_mask" in data:
        return _keep_added_edges(data, graphs, config.encoding)
    if seeds is None and config.rewiring.when != "always":
        seeds = graph_seeds(graphs.edge_index, graphs.graph_ptr)
    structure = _structure(data, graphs, config.encoding)
    graphs = InputGraphs(**{**vars(graphs), **structure})
    return rewire(graphs, config.encoding, config.rewiring, seeds)


def _num_nodes(data: Data) -> int:
    if data.edge_index is None:
        raise GrassError("The graph has no edge_index (an empty one has shape [2, 0]).")
    if not data.num_nodes:
        raise GrassError("The graph has no nodes.")
    return int(data.num_nodes)


def _graph_ptr(data: Data, num_nodes: int) -> Tensor:
    if isinstance(data, Batch):
        return data.ptr
    return torch.tensor([0, num_nodes])


def _descriptors(data: Data, columns: int) -> Tensor | None:
    if not columns:
        return None
    if "descriptors" not in data:
        raise GrassError(f"The graph needs {columns} descriptors (data.descriptors).")
    return data["descriptors"].float().reshape(-1, columns)  # [B, columns]


def feature_columns(
    what: str, features: Tensor | None, expected: FeatureConfig, num_rows: int
) -> Tensor | None:
    """Check features against what the model embeds, and give them two dimensions.

    Raises:
        GrassError: They are missing, of another shape, not finite, or beyond their vocabulary.
    """
    if not expected.num_columns:
        return None
    if features is None:
        raise GrassError(f"The graph has no {what} features, but the model takes {expected.kind}.")
    if features.dim() == 1:
        features = features.unsqueeze(1)
    columns = features.flatten(1).size(1)
    index, width = not expected.is_float, expected.num_columns
    if features.dim() != 2 or columns != width or features.size(0) != num_rows:
        raise GrassError(
            f"The {what} features have shape {list(features.shape)}, "
            f"but the model takes [{num_rows}, {width}]."
        )
    if not index:
        if not torch.isfinite(features.float()).all():
            row = int((~torch.isfinite(features.float())).any(dim=1).nonzero()[0])
            raise GrassError(f"The {what} features of row {row} are not finite.")
        if features.numel() and float(features.abs().max()) > LARGEST_FEATURE:
            row = int((features.abs() > LARGEST_FEATURE).any(dim=1).nonzero()[0])
            raise GrassError(
                f"The {what} features of row {row} are beyond {LARGEST_FEATURE:g}: scale them."
            )
        return features
    if features.is_floating_point():
        raise GrassError(f"The {what} features are category numbers: integers, not floats.")
    sizes = torch.tensor(expected.categories)
    outside = (features < 0) | (features >= sizes)
    if outside.any():
        row, column = outside.nonzero()[0].tolist()
        raise GrassError(
            f"The {what} feature {int(features[row, column])} in row {row}, column {column} is "
            f"beyond its {int(sizes[column])} categories."
        )
    return features


def _structure(data: Data, graphs: InputGraphs, encoding: EncodingConfig) -> dict[str, Any]:
    """What the encoding needs, from the transforms' keys where they are there."""
    index, weight = graphs.edge_index, data.get("edge_weight")
    found: dict[str, Any] = encode_structure(index, graphs.num_nodes, encoding, weight)
    if graphs.degree is not None:
        found["degree"] = graphs.degree
    transition, vectors = data.get("rrwp_transition"), data.get("rrwp_vectors")
    if encoding.kind == "rrwp" and transition is not None:
        if torch.equal(data["rrwp_edge_index"], index):
            found["transition"] = transition
    elif encoding.kind == "decomposed-rrwp" and vectors is not None:
        right = data.get("rrwp_right_vectors")
        found["vectors"] = vectors if right is None else torch.cat([vectors, right], dim=1)
        found["values"] = data["rrwp_values"]
    elif encoding.kind == "laplacian" and "laplacian_pe" in data:
        found["laplacian"] = data["laplacian_pe"]
    elif encoding.kind in ("decomposed-rrwp", "laplacian"):
        parts = [
            encode_spectrum(edges, n, encoding, own_weight)
            for edges, n, own_weight in _each(graphs, weight)
        ]
        found |= {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return found


def _each(graphs: InputGraphs, weight: Tensor | None) -> list[tuple[Tensor, int, Tensor | None]]:
    """Edges, in local numbers, number of nodes and edge weights of each graph."""
    edge_graph = graphs.node_graph[graphs.edge_index[0]]
    found = []
    for number, (first, last) in enumerate(pairwise(graphs.graph_ptr.tolist())):
        own = edge_graph == number
        own_weight = None if weight is None else weight[own]
        found.append((graphs.edge_index[:, own] - first, last - first, own_weight))
    return found


def _keep_added_edges(data: Data, graphs: InputGraphs, encoding: EncodingConfig) -> GraphBatch:
    """A batch from graphs that transforms have encoded and rewired."""
    added = data["added_edge_mask"]
    prefix = "laplacian_pe" if encoding.kind == "laplacian" else "rrwp"
    loops, pairs = _encodings(data, encoding, prefix)
    given = graphs.edge_attr
    inputs = InputGraphs(
        **{
            **vars(graphs),
            "edge_index": graphs.edge_index[:, ~added],
            "edge_attr": None if given is None else given[~added],
            "degree": graphs.degree
            if graphs.degree is not None
            else node_degrees(graphs.edge_index[:, ~added], graphs.num_nodes),
        }
    )
    edges = sort_edges(inputs.edge_index, graphs.edge_index[:, added], graphs.num_nodes)
    pairs = torch.cat([pairs[~added], loops, pairs[added]])[edges.source]
    nodes = node_encoding(loops, encoding, inputs.degree)
    return assemble(inputs, edges, nodes, pairs)


def _encodings(data: Data, encoding: EncodingConfig, key: str) -> tuple[Tensor, Tensor]:
    """Encodings of self-loops [N, columns] and of all other edges [E, columns]."""
    num_nodes, num_edges = int(data.num_nodes or 0), data.edge_index.size(1)
    if encoding.kind == "none":
        return torch.empty(num_nodes, 0), torch.empty(num_edges, 0)
    for needed in (key, f"edge_{key}"):
        if needed not in data:
            raise GrassError(
                f"The rewired graph has no {needed!r}: put the encoding's transform "
                "(such as AddRRWP) before AddRandomRegularEdges."
            )
    nodes, pairs = data[key], data[f"edge_{key}"]
    loops = torch.cat([nodes, nodes], dim=1) if encoding.kind in ("rrwp", "laplacian") else nodes
    if pairs.size(1) != encoding.edge_columns:
        raise GrassError(
            f"The edges have {pairs.size(1)} columns of encoding, "
            f"but the model takes {encoding.edge_columns}."
        )
    return loops, pairs
