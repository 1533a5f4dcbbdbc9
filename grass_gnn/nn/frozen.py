"""GRASS with everything below its head held fast."""

from __future__ import annotations

from torch import nn

from grass_gnn.config import GRASSConfig
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import BatchAverages

# What turns a graph into the representations of its nodes and edges; the rest serves the head.
BODY = ("node_features", "edge_features", "node_encoding", "edge_encoding", "layers")


class FrozenGRASS(GRASS):
    """A GRASS of which only the head is trained.

    Its layers stay as they predict, in training too: no edge removal, and norms that use, and never
    change, the statistics they came with. So a graph is represented just as it was before.
    """

    def __init__(self, config: GRASSConfig) -> None:
        super().__init__(config)
        for part in self.body:
            part.requires_grad_(False)
            for module in part.modules():
                if isinstance(module, BatchAverages):
                    module.frozen = True
        self.train()

    @property
    def body(self) -> list[nn.Module]:
        """The parts that are frozen."""
        return [part for name in BODY if (part := getattr(self, name)) is not None]

    def train(self, mode: bool = True) -> FrozenGRASS:
        """Switch the head alone between training and evaluation."""
        super().train(mode)
        for part in self.body:
            part.train(False)
        return self
