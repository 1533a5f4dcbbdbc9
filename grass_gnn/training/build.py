"""Builds the model of a run; without Lightning, so that ``grass-gnn info`` starts quickly."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import torch

from grass_gnn.config import GRASSConfig
from grass_gnn.nn.model import GRASS

if TYPE_CHECKING:
    from grass_gnn.data.packed.prepare import PreparedData
    from grass_gnn.nn.baselines import Baseline


def make_model(config: GRASSConfig) -> GRASS | Baseline:
    """GRASS or a baseline, as the configuration says."""
    if config.model.architecture == "grass":
        return GRASS(config)
    from grass_gnn.nn.baselines import Baseline  # layers of PyG, which takes seconds to import

    return Baseline(config)


def build_model(config: GRASSConfig, data: PreparedData, seed: int) -> GRASS | Baseline:
    """A fresh model for some data: seeded weights, pooling scales of its training set."""
    torch.manual_seed(seed)
    model = make_model(config)
    nodes, edges, pairs = astuple(data.statistics)
    if not isinstance(model, GRASS):
        model.mean_nodes.fill_(nodes)
    elif model.pooling is not None:
        model.pooling.set_scales(nodes, edges, config.rewiring.added_edges(nodes, pairs))
    return model
