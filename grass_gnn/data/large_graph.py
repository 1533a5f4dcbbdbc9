"""Parts of one large graph: what some of its nodes induce, and the nodes around others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from grass_gnn.data.batch import InputGraphs

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
