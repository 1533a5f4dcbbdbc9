"""Where a model looks: attention by edge, averaged by a stated rule.

The attention of an edge i → j is the share with which node j takes from node i. In flipped layers
(every second one) head and tail have changed roles, so the weight that a row i → j has there is
counted for j → i. Shares are averaged over channels, layers and rewirings; edges of one kind that
run in parallel add up. What a node takes over all edges, its self-loop and the added ones
included, is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data import GraphLoader, PackedDataset, pack
from grass_gnn.data.batch import ADDED_EDGE, INPUT_EDGE, SELF_LOOP
from grass_gnn.evaluation.protocol import TEST
from grass_gnn.nn.model import GRASS

KINDS = {INPUT_EDGE: "existing", SELF_LOOP: "self-loop", ADDED_EDGE: "added"}


@dataclass(frozen=True)
class Explanation:
    """Attention by edge of one graph."""

    edge_index: Tensor  # [2, K] from, to
    kind: Tensor  # [K] INPUT_EDGE, SELF_LOOP or ADDED_EDGE
    attention: Tensor  # [K] share of what the node at "to" takes
    num_nodes: int

    @property
    def by_kind(self) -> dict[str, float]:
        """Shares of all attention that existing edges, self-loops and added edges get."""
        return {
            name: float(self.attention[self.kind == kind].sum()) / self.num_nodes
            for kind, name in KINDS.items()
        }

    def pairs(self, kind: int = INPUT_EDGE) -> dict[tuple[int, int], float]:
        """Attention of each pair of nodes (the smaller number first), both directions together."""
        found: dict[tuple[int, int], float] = {}
        chosen = self.kind == kind
        edges = self.edge_index[:, chosen].t().tolist()
        for (i, j), share in zip(edges, self.attention[chosen].tolist(), strict=True):
            pair = min(i, j), max(i, j)
            found[pair] = found.get(pair, 0.0) + share
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values keyed to edges, for JSON; added edges are those that any rewiring drew."""
        rows = zip(
            self.edge_index.t().tolist(), self.kind.tolist(), self.attention.tolist(), strict=True
        )
        edges = [
            {"from": i, "to": j, "kind": KINDS[kind], "attention": share}
            for (i, j), kind, share in rows
        ]
        return {"num_nodes": self.num_nodes, "by_kind": self.by_kind, "edges": edges}


def explain_graph(
    model: GRASS,
    config: GRASSConfig,
    data: Data,
    rewirings: int = 16,
    seed: int = 0,
    by_graph: bool = False,
) -> Explanation:
    """The attention of a model on one graph, over several rewirings."""
    dataset = pack([data], config, targets=False)
    return explain_packed(model, config, dataset, range(rewirings), seed, by_graph)


@torch.no_grad()
def explain_packed(
    model: GRASS,
    config: GRASSConfig,
    dataset: PackedDataset,
    rewirings: Sequence[int],
    seed: int = 0,
    by_graph: bool = False,
) -> Explanation:
    """:func:`explain_graph` of the only graph of a dataset, over the rewirings of these numbers."""
    model.eval()
    n = dataset.num_nodes
    total = torch.zeros(len(KINDS) * n * n)  # by kind, then from, then to
    for number in rewirings:
        loader = GraphLoader(
            dataset, config, 1, seed=seed, workers=0, stream=TEST, by_graph=by_graph
        )
        loader.set_epoch(number)
        (batch,) = loader
        batch, weights = model.attention(batch.to(model.target_scale.device))
        shares = weights.mean(dim=2).cpu()  # [L, E]
        head, tail = batch.edge_index.cpu()
        kind = batch.edge_kind.cpu().long() * n * n
        flipped = config.model.flip & (torch.arange(len(shares)) % 2 == 1)  # [L]
        for straight, places in ((~flipped, head * n + tail), (flipped, tail * n + head)):
            total.index_add_(0, kind + places, shares[straight].sum(dim=0) / len(shares))
    rows = total.nonzero().squeeze(1)
    pairs = rows % (n * n)
    return Explanation(
        torch.stack([pairs // n, pairs % n]), rows // (n * n), total[rows] / len(rewirings), n
    )
