"""Attention per edge, averaged over channels, layers and rewirings.

The attention of an edge i → j is the share of node j's input that comes from node i. In flipped
layers (every second one) head and tail swap roles, so the weight of edge i → j counts as attention
of j → i. Parallel edges of the same kind are summed. The attention that a node pays to
all its edges, including its self-loop and the added edges, sums to 1.

Attention says where information flows, not what it is good for: for that, there are the
contributions of atoms (:mod:`grass_gnn.evaluation.attribution`).
:mod:`grass_gnn.evaluation.pictures` draws both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grass_gnn._lazy import lazy_names
from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import ADDED_EDGE, INPUT_EDGE, SELF_LOOP
from grass_gnn.data.packed.dataset import PackedDataset, pack
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.evaluation.protocol import TEST, check_rewirings
from grass_gnn.nn.model import GRASS

if TYPE_CHECKING:
    from torch_geometric.data import Data

# Pictures have a file of their own; these names can still be imported from here.
__getattr__, *_ = lazy_names(
    "grass_gnn.evaluation", {"pictures": ("draw_contributions", "draw_graph", "draw_molecule")}
)

KINDS = {INPUT_EDGE: "existing", SELF_LOOP: "self-loop", ADDED_EDGE: "added"}


@dataclass(frozen=True)
class Explanation:
    """Attention per edge of one graph."""

    edge_index: Tensor  # [2, K] source, target
    kind: Tensor  # [K] INPUT_EDGE, SELF_LOOP or ADDED_EDGE
    attention: Tensor  # [K] share of the target node's input
    num_nodes: int

    @property
    def by_kind(self) -> dict[str, float]:
        """Share of all attention on existing edges, on self-loops and on added edges."""
        return {
            name: float(self.attention[self.kind == kind].sum()) / self.num_nodes
            for kind, name in KINDS.items()
        }

    def pairs(self, kind: int = INPUT_EDGE) -> dict[tuple[int, int], float]:
        """Attention of each pair of nodes (smaller index first), summed over both directions."""
        found: dict[tuple[int, int], float] = {}
        chosen = self.kind == kind
        edges = self.edge_index[:, chosen].t().tolist()
        for (i, j), share in zip(edges, self.attention[chosen].tolist(), strict=True):
            pair = min(i, j), max(i, j)
            found[pair] = found.get(pair, 0.0) + share
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the added edges are those of all rewirings."""
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
    """Attention of a model on one graph, averaged over several rewirings."""
    check_rewirings(rewirings)
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
    """:func:`explain_graph` for a dataset of one graph and the rewirings with these numbers."""
    model.eval()
    n = dataset.num_nodes
    total = torch.zeros(len(KINDS) * n * n, dtype=torch.float32)  # index: kind, source, target
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


def shares_text(explanation: Explanation) -> str:
    """The share of all attention on existing edges, self-loops and added edges."""
    existing, loops, added = (100 * share for share in explanation.by_kind.values())
    return f"existing edges {existing:.0f} %, self-loops {loops:.0f} %, added edges {added:.0f} %"


def attention_range(explanation: Explanation) -> tuple[float, float]:
    """The lowest and the highest attention of an existing edge."""
    pairs = explanation.pairs()
    return (min(pairs.values()), max(pairs.values())) if pairs else (0.0, 1.0)
