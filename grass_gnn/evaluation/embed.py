"""Embeddings of graphs and nodes, as inputs for other models."""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import TEST, device_of, move_batch
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import graph_mean


@torch.no_grad()
def embed_split(
    model: GRASS,
    dataset: PackedDataset,
    config: GRASSConfig,
    level: str = "graph",
    rewirings: int = 16,
    seed: int = 0,
    by_graph: bool = False,
    batch_size: int = 200,
) -> Tensor:
    """Embeddings of a dataset, averaged over rewirings.

    Args:
        model: The model.
        dataset: The graphs.
        config: The model's configuration.
        level: ``"graph"`` for the input of the head, or the mean over nodes if the task has no
            pooling; ``"node"`` for x after the last layer.
        rewirings: Number of rewirings to average over.
        seed: Random seed of the rewirings.
        by_graph: Derive each rewiring from a hash of its graph.
        batch_size: Graphs per batch.

    Returns:
        [B, 3d + descriptors] or [B, d] for graphs, [N, d] for the nodes of all graphs.
    """
    if level not in ("graph", "node"):
        raise GrassError(f"The level of embeddings must be graph or node, not {level!r}.")
    model.eval()
    total = torch.zeros(())
    for number in range(rewirings):
        loader = GraphLoader(dataset, config, batch_size, seed=seed, stream=TEST, by_graph=by_graph)
        loader.set_epoch(number)
        total = total + torch.cat([_represent(model, batch, level) for batch in loader])
    return total / rewirings


def _represent(model: GRASS, batch: GraphBatch, level: str) -> Tensor:
    batch = move_batch(batch, device_of(model))
    x, e = model.represent(batch)
    if level == "node":
        return x.cpu()  # [N, d]
    if model.pooling is not None:
        return model.readout(x, e, batch).cpu()  # [B, 3d + descriptors]
    return graph_mean(x, batch.node_graph, batch.num_graphs).cpu()  # [B, d]
