"""The network: embedding, layers, norms, pooling, heads."""

from grass_gnn.nn.attention import GRASSConv
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import BatchNorm, collect_statistics, reset_statistics

__all__ = ["GRASS", "BatchNorm", "GRASSConv", "collect_statistics", "reset_statistics"]
