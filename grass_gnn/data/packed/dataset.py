"""Parts of one large graph: what some of its nodes induce, and the nodes around others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from grass_gnn.config import EncodingConfig, FeatureConfig, GRASSConfig
from grass_gnn.data.batch import InputGraphs, known_pairs
from grass_gnn.tasks import make_task

_NODE_ROWS = ("x", "y", "mask", "degree", "vectors", "laplacian")


@dataclass(frozen=True)
class LargeGraph:
    """A single graph, and where the in-edges of each of its nodes are."""

    graph: InputGraphs
    ptr: Tensor  # [N + 1]
    edges: Tensor  # [E] row of each edge, in order of tails

    @classmethod
    def of(cls, graph: InputGraphs) -> LargeGraph:
        """Sort the edges of a graph by their tails."""
        tail = graph.edge_index[1]
        ptr = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(tail, minlength=graph.num_nodes), 0, out=ptr[1:])
        return cls(graph, ptr, torch.argsort(tail, stable=True))

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of all edges into some nodes, and the place in ``nodes`` of the tail of each."""
        first, count = self.ptr[nodes], self.ptr[nodes + 1] - self.ptr[nodes]
        owner = torch.repeat_interleave(count)  # [E']
        offset = torch.arange(owner.numel()) - (count.cumsum(0) - count)[owner]
        return self.edges[first[owner] + offset], owner

    def induced(self, nodes: Tensor, counting: Tensor | None = None) -> InputGraphs:
        """The subgraph of some nodes, given in rising order, and of all edges among them.

        Its edges are in order of their tails. Of its nodes those in ``counting`` count in the
        loss, or where it is not given, those that do in the whole graph.
        """
        rows, tail = self.in_edges(nodes)
        whole = self.graph
        heads = whole.edge_index[0][rows]  # [E'] in the whole graph
        head = torch.searchsorted(nodes, heads).clamp(max=len(nodes) - 1)
        inside = nodes[head] == heads
        rows, head, tail = rows[inside], head[inside], tail[inside]
        part = {
            name: rows_of[nodes]
            for name in _NODE_ROWS
            if (rows_of := getattr(whole, name)) is not None
        }
        if counting is not None:
            part["mask"] = torch.isin(nodes, counting)
        return InputGraphs(
            graph_ptr=torch.tensor([0, len(nodes)]),
            edge_index=torch.stack([head, tail]),
            edge_attr=None if whole.edge_attr is None else whole.edge_attr[rows],
            values=whole.values,
            **part,
        )

    def around(self, seeds: Tensor, fan_outs: list[int], generator: torch.Generator) -> Tensor:
        """The seeds and nodes near them, in rising order.

        Hop by hop, at most ``fan_outs`` in-edges of each node that the last hop reached are drawn,
        without replacement, and followed to their heads.
        """
        found = reached = seeds.sort().values
        for fan_out in fan_outs:
            rows, owner = self.in_edges(reached)
            # Edges of a node in random order, of which the first few are taken.
            order = torch.randperm(owner.numel(), generator=generator)
            order = order[torch.argsort(owner[order], stable=True)]
            count = torch.bincount(owner, minlength=len(reached))
            place = torch.arange(owner.numel()) - (count.cumsum(0) - count)[owner]
            heads = self.graph.edge_index[0][rows[order[place < fan_out]]].unique()
            reached = heads[~torch.isin(heads, found)]
            found = torch.cat([found, reached]).sort().values
        return found


# What a row of each tensor belongs to; y and masks follow the task.
ROW_OF = {
    "x": "node",
    "degree": "node",
    "vectors": "node",
    "laplacian": "node",
    "edge_index": "edge",
    "edge_attr": "edge",
    "transition": "edge",
    "values": "graph",
    "descriptors": "graph",
}


@dataclass(frozen=True)
class PackedDataset:
    """The graphs of a split; a batch of any of them is gathered without a loop over graphs.

    Tensors keep the smallest type that holds their values (``edge_index`` the numbers of nodes
    within their graph, as rows [E, 2]) and become what the model takes when graphs are selected.
    """

    graph_ptr: Tensor  # [B + 1] first node of each graph
    edge_ptr: Tensor  # [B + 1] first edge of each graph
    tensors: dict[str, Tensor]
    types: dict[str, torch.dtype]  # of selected tensors
    level: str  # what has a target: "graph", "node" or "edge"
    mask_name: str | None = None  # the tensor that says which targets count
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False)  # shared by the splits

    def __len__(self) -> int:
        return self.graph_ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.graph_ptr[-1])

    @property
    def num_edges(self) -> int:
        """Number of edges of all graphs, as they were given."""
        return int(self.edge_ptr[-1])

    def for_split(self, split: str) -> PackedDataset:
        """The same graphs where only the targets of one split count, if they have masks."""
        name = f"{split}_mask"
        return replace(self, mask_name=name) if name in self.tensors else self

    def first(self, count: int) -> PackedDataset:
        """The first so many graphs; nothing is copied."""
        return self.part(0, min(count, len(self)))

    def part(self, start: int, stop: int) -> PackedDataset:
        """The graphs from one number up to another; their tensors are not copied."""
        nodes, edges = self.graph_ptr[start : stop + 1], self.edge_ptr[start : stop + 1]
        rows = {
            "graph": slice(start, stop),
            "node": slice(int(nodes[0]), int(nodes[-1])),
            "edge": slice(int(edges[0]), int(edges[-1])),
        }
        tensors = {
            name: tensor[rows[ROW_OF.get(name, self.level)]]
            for name, tensor in self.tensors.items()
        }
        return replace(
            self,
            graph_ptr=nodes - nodes[0],
            edge_ptr=edges - edges[0],
            tensors=tensors,
            _known={},
        )

    def select(self, ids: Tensor) -> InputGraphs:
        """The graphs with these numbers [B'], in this order, laid end to end."""
        if len(self) == 1 and ids.numel() == 1:
            return self._only_graph
        return self._gather(ids)

    def with_known_pairs(self, graphs: InputGraphs, encoding: EncodingConfig) -> InputGraphs:
        """Add what rewiring does not change: of a single large graph it is encoded only once."""
        if len(self) > 1 or encoding.kind != "decomposed-rrwp":
            return graphs
        key = encoding.model_dump_json()
        if key not in self._known:
            self._known[key] = known_pairs(graphs, encoding)
        return replace(graphs, known_pairs=self._known[key])

    @cached_property
    def _only_graph(self) -> InputGraphs:
        """A single large graph is the same every time, and not worth copying at each step."""
        return self._gather(torch.zeros(1, dtype=torch.int64))

    @cached_property
    def large_graph(self) -> LargeGraph:
        """The only graph, with its edges in order, to take parts of it."""
        return LargeGraph.of(self._only_graph)

    def _gather(self, ids: Tensor) -> InputGraphs:
        graph_ptr, nodes = _spans(self.graph_ptr, ids)
        edge_ptr, edges = _spans(self.edge_ptr, ids)
        rows = {"graph": ids, "node": nodes, "edge": edges}
        found = {}
        for name, tensor in self.tensors.items():
            if not name.endswith("_mask") or name == self.mask_name:
                row = rows[ROW_OF.get(name, self.level)]
                found[name] = tensor.index_select(0, row).to(self.types.get(name, tensor.dtype))
        first_node = torch.repeat_interleave(graph_ptr[:-1], edge_ptr.diff())  # [E]
        edge_index = found.pop("edge_index").t() + first_node  # [2, E]
        mask = found.pop(self.mask_name) if self.mask_name else None
        return InputGraphs(graph_ptr=graph_ptr, edge_index=edge_index, mask=mask, **found)


def _spans(ptr: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Where each chosen span starts when they are laid end to end [B' + 1], and all its rows."""
    first, size = ptr[ids], ptr[ids + 1] - ptr[ids]  # [B'] each
    new = torch.zeros(ids.numel() + 1, dtype=torch.int64)
    torch.cumsum(size, 0, out=new[1:])
    total = int(new[-1])
    offset = torch.repeat_interleave(first - new[:-1], size, output_size=total)
    return new, offset + torch.arange(total)


def from_tensors(tensors: dict[str, Tensor], config: GRASSConfig) -> PackedDataset:
    """A dataset from the tensors that ``packed_shapes`` describes."""
    tensors = dict(tensors)
    types = {
        "x": _type_in_use(config.input.nodes),
        "edge_attr": _type_in_use(config.input.edges),
        "edge_index": torch.int64,
        "y": make_task(config.task).target_type,
    }
    return PackedDataset(
        tensors.pop("graph_ptr"), tensors.pop("edge_ptr"), tensors, types, config.task.level
    )


def _type_in_use(features: FeatureConfig) -> torch.dtype:
    return torch.float32 if features.is_float else torch.int64
