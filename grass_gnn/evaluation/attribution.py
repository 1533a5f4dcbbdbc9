"""Contributions of nodes to the prediction of a graph, by masking.

The contribution of a node is the model's output minus the output when the features of the node and
of its edges are masked: their embeddings are left out of x⁰ and e⁰ (equations 3 and 4). Encodings,
self-loops and added edges stay as they are, so that masked and original graph differ in nothing
else, and share their rewirings.

Unlike attention, contributions have a sign and the unit of the target (logits for classes and
labels). They are not additive: their sum is not the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import INPUT_EDGE, GraphBatch, rewire
from grass_gnn.data.packed.dataset import PackedDataset, pack
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import check_rewirings
from grass_gnn.nn.model import GRASS
from grass_gnn.rewiring import graph_seeds

if TYPE_CHECKING:
    from torch_geometric.data import Data

_BATCH_NODES = 20_000  # nodes of all masked copies that are predicted together


@dataclass(frozen=True)
class Attribution:
    """Contributions of the nodes of one graph."""

    contribution: Tensor  # [n, outputs], in the unit of the target, or logits
    output: Tensor  # [outputs] of the graph as it is, averaged over the same rewirings

    def of_output(self, number: int) -> list[float]:
        """The contribution of each node to one output."""
        return self.contribution[:, number].tolist()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: one row per node, one column per output."""
        return {"contributions": self.contribution.tolist(), "output": self.output.tolist()}


def attribute_graph(
    model: GRASS, config: GRASSConfig, data: Data, rewirings: int = 16
) -> Attribution:
    """Contributions of the nodes of one graph, averaged over several rewirings.

    The rewirings follow from the graph alone, so the result is the same at every call.

    Args:
        model: A model with one prediction per graph.
        config: Its configuration.
        data: The graph.
        rewirings: Number of rewirings to average over.

    Raises:
        GrassError: The model predicts nodes or edges.
    """
    check_rewirings(rewirings)
    dataset = pack([data], config, targets=False)
    return attribute_packed(model, config, dataset, range(rewirings))


@torch.no_grad()
def attribute_packed(
    model: GRASS, config: GRASSConfig, dataset: PackedDataset, rewirings: Sequence[int]
) -> Attribution:
    """:func:`attribute_graph` for a dataset of one graph and the rewirings with these numbers."""
    if config.task.level != "graph":
        raise GrassError(
            f"Contributions of nodes are computed for predictions of graphs; this model predicts "
            f"each {config.task.level}."
        )
    model.eval()
    n = dataset.num_nodes
    masked = torch.arange(-1, n)  # the masked node of each copy; −1: none
    total = torch.zeros(())
    for number in rewirings:
        outputs = []
        for part in masked.split(max(1, _BATCH_NODES // n)):
            graphs = dataset.select(torch.zeros_like(part))
            # Copies of the same graph have the same hash, and so the same rewiring.
            seeds = graph_seeds(graphs.edge_index, graphs.graph_ptr, seed=number)
            batch = rewire(graphs, config.encoding, config.rewiring, seeds)
            places = torch.arange(len(part)) * n + part  # of the masked nodes in the batch
            outputs.append(_masked_output(model, batch, places[part >= 0]).cpu())
        total = total + torch.cat(outputs).double()  # [1 + n, outputs]
    mean = total / len(rewirings)
    return Attribution(mean[0] - mean[1:], mean[0])


def _masked_output(model: GRASS, batch: GraphBatch, nodes: Tensor) -> Tensor:
    """The output [B, outputs] for a batch in which the features of some nodes are masked."""
    batch = batch.to(model.target_scale.device)
    hidden = torch.zeros(len(batch.node_graph), dtype=torch.bool)
    hidden[nodes] = True
    hidden = hidden.to(batch.node_graph.device)  # [N]
    head, tail = batch.edge_index
    around = (hidden[head] | hidden[tail]) & (batch.edge_kind == INPUT_EDGE)  # [E]
    x, e = model.embed(batch)
    x_in = model.node_features(batch.x, len(x))
    e_in = model.edge_features(batch.edge_attr, len(e), batch.edge_kind)
    x = torch.where(hidden.unsqueeze(1), x - x_in, x)
    e = torch.where(around.unsqueeze(1), e - e_in, e)
    x, e = model.layers(x, e, batch)
    return model.output(x, e, batch)
