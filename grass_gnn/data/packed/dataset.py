"""Packed graphs: the graphs of a split in a few long tensors, and parts of one large graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from grass_gnn.config import EncodingConfig, GRASSConfig
from grass_gnn.data.batch import InputGraphs, known_pairs
from grass_gnn.data.fields import MASKS, field_of, row_of, type_in_use
from grass_gnn.encoding import make_encoding

# Of InputGraphs: what is not a tensor with rows of nodes, edges, graphs or targets.
_STRUCTURE = ("graph_ptr", "edge_index", "stored", "added", "known_pairs")


@dataclass(frozen=True)
class LargeGraph:
    """A single graph whose nodes have targets, with the in-edges of each node at hand."""

    graph: InputGraphs
    ptr: Tensor  # [N + 1]
    edges: Tensor  # [E] row of each edge, sorted by tail

    @classmethod
    def of(cls, graph: InputGraphs) -> LargeGraph:
        """Sort the edges of a graph by their tails."""
        tail = graph.edge_index[1]
        ptr = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(tail, minlength=graph.num_nodes), 0, out=ptr[1:])
        return cls(graph, ptr, torch.argsort(tail, stable=True))

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of all edges into some nodes, and the position in ``nodes`` of the tail of each."""
        first, count = self.ptr[nodes], self.ptr[nodes + 1] - self.ptr[nodes]
        owner = torch.repeat_interleave(count)  # [E']
        offset = torch.arange(owner.numel()) - (count.cumsum(0) - count)[owner]
        return self.edges[first[owner] + offset], owner

    def induced(self, nodes: Tensor, counting: Tensor | None = None) -> InputGraphs:
        """The subgraph of some nodes, given in ascending order, and of all edges among them.

        Its edges are sorted by tail. The nodes in ``counting`` count in the loss; if it is not
        given, those that count in the whole graph do.
        """
        rows, tail = self.in_edges(nodes)
        whole = self.graph
        heads = whole.edge_index[0][rows]  # [E'] in the whole graph
        head = torch.searchsorted(nodes, heads).clamp(max=len(nodes) - 1)
        inside = nodes[head] == heads
        rows, head, tail = rows[inside], head[inside], tail[inside]

        def part(name: str, tensor: Tensor) -> Tensor:
            row = row_of(name, "node")
            return tensor if row == "graph" else tensor[nodes if row == "node" else rows]

        found = {
            one.name: part(one.name, tensor)
            for one in fields(whole)
            if one.name not in _STRUCTURE and (tensor := getattr(whole, one.name)) is not None
        }
        if counting is not None:
            found["mask"] = torch.isin(nodes, counting)
        return InputGraphs(
            graph_ptr=torch.tensor([0, len(nodes)]),
            edge_index=torch.stack([head, tail]),
            stored={name: part(name, tensor) for name, tensor in whole.stored.items()},
            **found,
        )

    def around(self, seeds: Tensor, fan_outs: list[int], generator: torch.Generator) -> Tensor:
        """The seed nodes and nodes near them, in ascending order.

        In each hop, at most ``fan_outs[hop]`` in-edges of each node reached by the last hop are
        drawn without replacement, and followed to their heads.
        """
        found = reached = seeds.sort().values
        for fan_out in fan_outs:
            rows, owner = self.in_edges(reached)
            # The first few edges of each node, in random order.
            order = torch.randperm(owner.numel(), generator=generator)
            order = order[torch.argsort(owner[order], stable=True)]
            count = torch.bincount(owner, minlength=len(reached))
            place = torch.arange(owner.numel()) - (count.cumsum(0) - count)[owner]
            heads = self.graph.edge_index[0][rows[order[place < fan_out]]].unique()
            reached = heads[~torch.isin(heads, found)]
            found = torch.cat([found, reached]).sort().values
        return found


@dataclass(frozen=True)
class PackedDataset:
    """The graphs of a split, from which any batch is gathered without a loop over graphs.

    Tensors have the smallest type that holds their values (``edge_index`` as rows [E, 2], with
    nodes numbered within their graph), and get the types of the model when graphs are selected.
    """

    graph_ptr: Tensor  # [B + 1] first node of each graph
    edge_ptr: Tensor  # [B + 1] first edge of each graph
    tensors: dict[str, Tensor]
    types: dict[str, torch.dtype]  # of selected tensors
    level: str  # what has a target: "graph", "node" or "edge"
    mask_name: str | None = None  # the mask of the targets that count
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False)  # shared by the splits

    def __post_init__(self) -> None:
        for name in self.tensors:
            field_of(name)  # raises if unknown

    def __len__(self) -> int:
        return self.graph_ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.graph_ptr[-1])

    @property
    def num_edges(self) -> int:
        """Number of input edges of all graphs."""
        return int(self.edge_ptr[-1])

    def for_split(self, split: str) -> PackedDataset:
        """The same graphs, where only the targets of one split count if they have masks."""
        name = f"{split}_mask"
        return replace(self, mask_name=name) if name in self.tensors else self

    def first(self, count: int) -> PackedDataset:
        """The first ``count`` graphs, as views."""
        return self.part(0, min(count, len(self)))

    def part(self, start: int, stop: int) -> PackedDataset:
        """The graphs ``start`` to ``stop - 1``, as views."""
        nodes, edges = self.graph_ptr[start : stop + 1], self.edge_ptr[start : stop + 1]
        rows = {
            "graph": slice(start, stop),
            "node": slice(int(nodes[0]), int(nodes[-1])),
            "edge": slice(int(edges[0]), int(edges[-1])),
        }
        tensors = {
            name: tensor[rows[row_of(name, self.level)]] for name, tensor in self.tensors.items()
        }
        return replace(
            self,
            graph_ptr=nodes - nodes[0],
            edge_ptr=edges - edges[0],
            tensors=tensors,
            _known={},
        )

    def select(self, ids: Tensor) -> InputGraphs:
        """The graphs with these indices [B'], in this order, laid end to end."""
        if len(self) == 1 and ids.numel() == 1:
            return self._only_graph
        return self._gather(ids)

    def with_known_pairs(self, graphs: InputGraphs, encoding: EncodingConfig) -> InputGraphs:
        """Add the encodings of input edges of a single large graph, computed only once."""
        encoder = make_encoding(encoding)
        if len(self) > 1 or not encoder.costly_pairs:
            return graphs
        key = encoding.model_dump_json()
        if key not in self._known:
            self._known[key] = known_pairs(graphs, encoder)
        return replace(graphs, known_pairs=self._known[key])

    @cached_property
    def _only_graph(self) -> InputGraphs:
        """The single graph of this dataset, gathered once rather than at each step."""
        return self._gather(torch.zeros(1, dtype=torch.int64))

    @cached_property
    def large_graph(self) -> LargeGraph:
        """The single graph of this dataset, from which parts can be taken."""
        return LargeGraph.of(self._only_graph)

    def _gather(self, ids: Tensor) -> InputGraphs:
        graph_ptr, nodes = _spans(self.graph_ptr, ids)
        edge_ptr, edges = _spans(self.edge_ptr, ids)
        rows = {"graph": ids, "node": nodes, "edge": edges}
        found = {
            name: tensor.index_select(0, rows[row_of(name, self.level)]).to(
                self.types.get(name, tensor.dtype)
            )
            for name, tensor in self.tensors.items()
            if name not in MASKS or name == self.mask_name
        }
        first_node = torch.repeat_interleave(graph_ptr[:-1], edge_ptr.diff())  # [E]
        edge_index = found.pop("edge_index").t() + first_node  # [2, E]
        given = {name: found.pop(name) for name in _GIVEN if name in found}
        if self.mask_name:
            given["mask"] = found.pop(self.mask_name)
        return InputGraphs(graph_ptr=graph_ptr, edge_index=edge_index, stored=found, **given)


# Stored tensors with an attribute of their own in InputGraphs; the others belong to the encoding.
_GIVEN = ("x", "edge_attr", "y", "descriptors")


def _spans(ptr: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Where each selected span starts when they are laid end to end [B' + 1], and all rows."""
    first, size = ptr[ids], ptr[ids + 1] - ptr[ids]  # [B'] each
    new = torch.zeros(ids.numel() + 1, dtype=torch.int64)
    torch.cumsum(size, 0, out=new[1:])
    total = int(new[-1])
    offset = torch.repeat_interleave(first - new[:-1], size, output_size=total)
    return new, offset + torch.arange(total)


def from_tensors(tensors: Mapping[str, Tensor], config: GRASSConfig) -> PackedDataset:
    """A dataset from the tensors that ``packed_shapes`` describes."""
    rest = dict(tensors)
    graph_ptr, edge_ptr = rest.pop("graph_ptr"), rest.pop("edge_ptr")
    types = {name: type_in_use(name, config) for name in rest}
    return PackedDataset(graph_ptr, edge_ptr, rest, types, config.task.level)
