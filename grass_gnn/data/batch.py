"""From graphs to the batches of the model: rewired, encoded, and sorted by tail.

Datasets and ``model(data)`` share the same code: :class:`InputGraphs`, graphs laid end to end with
the stored tensors of their encoding, go through :func:`rewire`, in one vectorised pass over the
whole batch, and become a :class:`GraphBatch`. Packed datasets select their ``InputGraphs``;
:func:`batch_from_data` makes them from PyG graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from grass_gnn.config import EncodingConfig, GRASSConfig, RewiringConfig
from grass_gnn.data.checking import CheckedGraph, check_graphs, has_several_graphs
from grass_gnn.encoding import (
    ENCODINGS,
    Encoding,
    Structure,
    check_not_stale,
    graph_ptr_of,
    make_encoding,
)
from grass_gnn.encoding.graph import WEIGHT_KEY, plain_tensor
from grass_gnn.errors import GrassError
from grass_gnn.ops import EdgeOrder, edge_order
from grass_gnn.ops.order import stable_order
from grass_gnn.rewiring import complete_edges, graph_seeds, random_edges, random_regular_edges
from grass_gnn.validation import check_within_graphs

if TYPE_CHECKING:
    from torch_geometric.data import Data


INPUT_EDGE, SELF_LOOP, ADDED_EDGE = 0, 1, 2  # values of GraphBatch.edge_kind

_ENCODED = sorted({kind.attr_name for kind in ENCODINGS.values()} - {""})  # names on PyG graphs


@dataclass(frozen=True)
class InputGraphs:
    """B graphs with N nodes and E edges in total, laid end to end, not yet rewired."""

    graph_ptr: Tensor  # [B + 1] first node of each graph
    edge_index: Tensor  # [2, E]
    x: Tensor | None = None  # [N, ...]
    edge_attr: Tensor | None = None  # [E, ...]
    y: Tensor | None = None  # [B, targets], [N] or [E], depending on the task
    mask: Tensor | None = None  # [N] nodes (or [E] edges) that count in the loss
    descriptors: Tensor | None = None  # [B, columns] of whole graphs
    stored: Mapping[str, Tensor] = field(default_factory=dict)  # of the encoding, and degree [N, 2]
    added: Tensor | None = None  # [2, E_R] added edges, of graphs that were rewired before
    known_pairs: Tensor | None = None  # [E + N, columns] encodings of edges, then of self-loops,
    # then [E_R, columns] of added edges where they are known

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.graph_ptr[-1])

    @property
    def node_graph(self) -> Tensor:
        """The graph of each node [N]."""
        return torch.repeat_interleave(self.graph_ptr.diff())

    @property
    def structure(self) -> Structure:
        """The graphs as input of an encoding."""
        return Structure(self.edge_index, self.graph_ptr, self.stored)

    @property
    def loops(self) -> Tensor:
        """A self-loop for every node [2, N]."""
        return torch.arange(self.num_nodes, device=self.graph_ptr.device).expand(2, -1)


class GraphBatch(NamedTuple):
    """The model's input: plain tensors, with edges of all kinds together, sorted by tail.

    Every node has one self-loop among the edges, and added edges may be parallel to input edges.
    """

    x: Tensor | None  # [N, ...] node features for the embedding
    edge_index: Tensor  # [2, E] head and tail
    edge_attr: Tensor | None  # [E, ...] zero on self-loops and added edges
    edge_kind: Tensor  # [E] INPUT_EDGE, SELF_LOOP or ADDED_EDGE
    node_encoding: Tensor  # [N, columns] P_ii ‖ d⁺ ‖ d⁻
    edge_encoding: Tensor  # [E, columns] P_ij ‖ P_ji
    node_graph: Tensor  # [N] the graph of each node
    order: EdgeOrder
    input_edges: Tensor  # [E_in] row of each input edge, in their original order
    y: Tensor | None = None
    mask: Tensor | None = None
    descriptors: Tensor | None = None  # [B, columns] of whole graphs

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


def known_pairs(graphs: InputGraphs, encoding: Encoding) -> Tensor:
    """Encodings of all edges and self-loops [E + N, columns], which rewiring does not change."""
    return encoding.pairs(torch.cat([graphs.edge_index, graphs.loops], dim=1), graphs.structure)


def added_edges(graph_ptr: Tensor, rewiring: RewiringConfig, seeds: Tensor | None) -> Tensor:
    """Draw the edges [2, E_R] that rewiring adds to the graphs, from one seed per graph [B]."""
    if rewiring.kind == "none" or (rewiring.degree == 0 and rewiring.kind != "complete"):
        return torch.empty(2, 0, dtype=torch.int64, device=graph_ptr.device)
    if rewiring.kind == "complete":
        return complete_edges(graph_ptr)
    if seeds is None:
        seeds = torch.randint(2**62, (len(graph_ptr) - 1,), device="cpu")
    seeds = seeds.to(graph_ptr.device)
    if rewiring.kind == "non-regular":
        return random_edges(graph_ptr, rewiring.degree, seeds)
    return random_regular_edges(graph_ptr, rewiring.degree, seeds, variant=rewiring.variant)


def rewire(
    graphs: InputGraphs,
    encoding: EncodingConfig,
    rewiring: RewiringConfig,
    seeds: Tensor | None = None,
) -> GraphBatch:
    """Add random edges and self-loops, sort edges by tail, and encode all pairs.

    Args:
        graphs: The graphs, with the stored tensors of their encoding.
        encoding: The encoding of nodes and pairs.
        rewiring: The random graph to superimpose, unless the graphs were rewired before.
        seeds: One int64 seed per graph [B]. The edges added to a graph depend on its seed alone,
            not on the other graphs of the batch. By default, drawn from torch's generator.
    """
    encoder = make_encoding(encoding)
    added = graphs.added
    if added is None:
        added = added_edges(graphs.graph_ptr, rewiring, seeds)
    edges = sort_edges(graphs.edge_index, added, graphs.num_nodes)
    if graphs.known_pairs is None:
        pairs = encoder.pairs(edges.edge_index, graphs.structure)  # [E, columns]
    else:
        known = graphs.known_pairs
        if known.size(0) < edges.source.numel():
            known = torch.cat([known, encoder.pairs(added, graphs.structure)])
        pairs = known.index_select(0, edges.source)  # [E, columns]
    loops = pairs.index_select(0, edges.loop_rows)  # [N, columns]
    nodes = encoder.nodes(loops, graphs.stored.get("degree"))  # [N, columns]
    return assemble(graphs, edges, nodes, pairs)


class SortedEdges(NamedTuple):
    """Edges of all three kinds sorted by tail, and where each came from."""

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
    """Sort input edges, a self-loop for every node, and added edges by tail."""
    device = edge_index.device
    loops = torch.arange(num_nodes, device=device).expand(2, -1)
    counts = torch.tensor([edge_index.size(1), num_nodes, added.size(1)], device=device)
    kinds = torch.tensor([INPUT_EDGE, SELF_LOOP, ADDED_EDGE], device=device)
    kind = torch.repeat_interleave(kinds, counts)
    head, tail = torch.cat([edge_index, loops, added], dim=1)  # [E] each
    source = stable_order(tail, num_nodes)
    position = torch.empty_like(source)
    position[source] = torch.arange(len(source), device=device)
    return SortedEdges(
        torch.stack([head.index_select(0, source), tail.index_select(0, source)]),
        kind.index_select(0, source),
        source,
        position,
        edge_index.size(1),
        num_nodes,
    )


def assemble(
    graphs: InputGraphs, edges: SortedEdges, node_encoding: Tensor, edge_encoding: Tensor
) -> GraphBatch:
    """Assemble a batch from its parts; encodings are in the order of the sorted edges."""
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
        order=edge_order(edges.edge_index, edges.num_nodes, graphs.graph_ptr, sorted_by_tail=True),
        input_edges=edges.position[: edges.num_input],
        y=graphs.y,
        mask=graphs.mask,
        descriptors=graphs.descriptors,
    )


def batch_from_data(
    data: Data | Sequence[Data], config: GRASSConfig, seeds: Tensor | None = None
) -> GraphBatch:
    """Check PyG graphs, and encode and rewire them unless transforms have already done so.

    Degrees and encodings written by transforms are used if they match the model's configuration.
    Missing ones are computed, with ``edge_weight`` if the graphs have it. Graphs
    that ``AddRandomRegularEdges`` has rewired (they have ``added_edge_mask``) keep their added
    edges. ``y`` is passed on as it is.

    Args:
        data: A graph, a ``Batch``, a ``Data`` with ``batch``, or a list of graphs.
        config: The model's configuration.
        seeds: One seed per graph for the rewiring [B].

    Raises:
        GrassError: The graphs do not match the model, or were changed after they were encoded.
        TypeError: The argument is something else, such as ``HeteroData``.
    """
    data = as_data(data)
    graphs = read_graphs(data, config)
    if seeds is None and config.rewiring.when != "always" and graphs.added is None:
        seeds = graph_seeds(graphs.edge_index, graphs.graph_ptr)
    return rewire(graphs, config.encoding, config.rewiring, seeds)


def as_data(graphs: Data | Sequence[Data]) -> Data:
    """Convert the inputs that PyG users may pass to a model to one ``Data`` or ``Batch``."""
    from torch_geometric.data import Batch, Data, HeteroData

    if isinstance(graphs, Data):
        return graphs
    if isinstance(graphs, HeteroData):
        raise TypeError(
            "HeteroData has several types of nodes or edges, which are not supported: "
            "convert it with to_homogeneous()."
        )
    if not isinstance(graphs, list | tuple) or not all(isinstance(one, Data) for one in graphs):
        what = type(graphs).__name__
        raise TypeError(f"Expected a torch_geometric Data, a Batch or a list of Data, not {what}.")
    if not graphs:
        raise GrassError("The list of graphs is empty.")
    if any(has_several_graphs(one) for one in graphs):
        raise TypeError("Expected a list of single graphs, not of batches.")
    # PyG keeps the attributes of the first graph, and would drop these from the others.
    for name in (WEIGHT_KEY, "added_edge_mask", "degree", *_ENCODED):
        if name not in graphs[0] and any(name in one for one in graphs):
            raise GrassError(
                "The graphs of the list cannot be batched: their attributes differ "
                f"(only some have {name!r})."
            )
    try:
        return Batch.from_data_list(list(graphs))
    except (KeyError, AttributeError, RuntimeError, TypeError) as error:
        raise GrassError(
            f"The graphs of the list cannot be batched: their attributes differ ({error})."
        ) from error


def read_graphs(data: Data, config: GRASSConfig) -> InputGraphs:
    """Check one graph or a batch, and add the stored tensors of the encoding."""
    if data.edge_index is None:
        raise GrassError("The graph has no edge_index (an empty one has shape [2, 0]).")
    if not data.num_nodes:
        raise GrassError("The graph has no nodes.")
    graph_ptr = graph_ptr_of(data)
    if bool((graph_ptr.diff() == 0).any()):
        empty = int((graph_ptr.diff() == 0).nonzero()[0])
        raise GrassError(f"Graph {empty} of the batch has no nodes.")
    plain, added = _without_added_edges(data)
    checked = check_graphs(
        plain, config, num_graphs=graph_ptr.numel() - 1, targets=False, masks=False
    )
    if graph_ptr.numel() > 2:
        check_within_graphs("edge_index", checked.edge_index, graph_ptr)
    graphs = InputGraphs(
        graph_ptr=graph_ptr,
        edge_index=checked.edge_index,
        x=checked.x,
        edge_attr=checked.edge_attr,
        y=data.y,
        descriptors=checked.descriptors,
        added=None if added is None else plain_tensor(data.edge_index)[:, added],
    )
    encoding = make_encoding(config.encoding)
    if added is not None and f"edge_{encoding.attr_name}" in data:
        known = _written_pairs(data, added, graphs, encoding)
        degrees = encoding.compute_degrees(graphs.edge_index, graphs.num_nodes, checked.weight)
        graphs = replace(graphs, known_pairs=known, stored=degrees)
    else:
        graphs = replace(graphs, stored=_stored(data, graphs, encoding, checked))
    if encoding.degrees != "none" and "degree" in data:
        graphs = replace(graphs, stored={**graphs.stored, "degree": _written_degree(data, graphs)})
    return graphs


def _without_added_edges(data: Data) -> tuple[Data, Tensor | None]:
    """The graphs before rewiring, and which of their edges [E] a transform has added, if any."""
    added = data.get("added_edge_mask")
    if added is None:
        return data, None
    num_edges = data.edge_index.size(-1)
    if not isinstance(added, Tensor) or added.dtype != torch.bool or added.shape != (num_edges,):
        raise GrassError(
            f"added_edge_mask must be boolean of shape [{num_edges}]: put AddRandomRegularEdges "
            "after transforms that change edges."
        )
    plain = copy(data)
    plain.num_nodes, plain.edge_index = data.num_nodes, data.edge_index[:, ~added]
    if isinstance(data.edge_attr, Tensor) and data.edge_attr.shape[:1] == (num_edges,):
        plain.edge_attr = data.edge_attr[~added]
    return plain, added


def _stored(
    data: Data, graphs: InputGraphs, encoding: Encoding, checked: CheckedGraph
) -> dict[str, Tensor]:
    """Stored tensors of the encoding, written by a transform or computed now."""
    name = encoding.attr_name
    written = encoding.read(data, name) if name in data else None
    if written is None:
        return encoding.compute_batch(graphs.edge_index, graphs.graph_ptr, checked.weight)
    check_not_stale(data, name, graphs.edge_index, graphs.graph_ptr)
    _check_settings(name, written, encoding)
    degrees = encoding.compute_degrees(graphs.edge_index, graphs.num_nodes, checked.weight)
    return degrees | written


def _check_settings(name: str, written: Mapping[str, Tensor], encoding: Encoding) -> None:
    """Raise if a transform with other settings wrote the stored tensors of an encoding."""
    for part, columns in encoding.stored_columns.items():
        if columns and part in written and written[part].size(1) != columns:
            raise GrassError(
                f"The transform that wrote {name!r} has different settings from the model: "
                f"{part} has {written[part].size(1)} columns, but the model takes {columns}."
            )


def _written_pairs(data: Data, added: Tensor, graphs: InputGraphs, encoding: Encoding) -> Tensor:
    """Encodings [E + N + E_R, columns] of edges, self-loops and added edges, from transforms."""
    name = encoding.attr_name
    if name not in data:
        raise GrassError(f"The graph has 'edge_{name}' but no {name!r}.")
    check_not_stale(data, name, graphs.edge_index, graphs.graph_ptr)
    _check_settings(name, encoding.read(data, name) or {}, encoding)
    nodes, pairs = data[name], data[f"edge_{name}"]
    if nodes.size(1) != encoding.own_columns or pairs.size(1) != encoding.pair_columns:
        raise GrassError(
            f"The encodings {name!r} and 'edge_{name}' have {nodes.size(1)} and {pairs.size(1)} "
            f"columns, but the model takes {encoding.own_columns} and {encoding.pair_columns}."
        )
    return torch.cat([pairs[~added], encoding.loops(nodes), pairs[added]])


def _written_degree(data: Data, graphs: InputGraphs) -> Tensor:
    """Degrees as ``AddDegree`` wrote them [N, 2]."""
    degree = data["degree"]
    if not isinstance(degree, Tensor) or degree.shape != (graphs.num_nodes, 2):
        raise GrassError(
            f"data.degree must have shape [{graphs.num_nodes}, 2], as AddDegree writes it."
        )
    check_not_stale(data, "degree", graphs.edge_index, graphs.graph_ptr)
    return degree.float()
