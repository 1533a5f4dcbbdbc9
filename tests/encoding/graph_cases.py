"""Graphs that encodings must get right, as hypothesis strategies and as a list of special cases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor


class Case(NamedTuple):
    edge_index: Tensor  # [2, E]
    num_nodes: int
    weight: Tensor | None  # [E]

    def adjacency(self) -> np.ndarray:
        """A in float64, parallel edges added up."""
        matrix = np.zeros((self.num_nodes, self.num_nodes))
        value = np.ones(self.edge_index.size(1)) if self.weight is None else self.weight.numpy()
        np.add.at(matrix, tuple(self.edge_index.numpy()), value)
        return matrix

    def symmetric(self) -> Case:
        """The same edges in both directions."""
        weight = None if self.weight is None else self.weight.repeat(2)
        edges = torch.cat([self.edge_index, self.edge_index.flip(0)], dim=1)
        return Case(edges, self.num_nodes, weight)


def edges(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t().contiguous()


SPECIAL = {
    "one node": Case(edges(), 1, None),
    "one node with a loop": Case(edges((0, 0)), 1, None),
    "two nodes": Case(edges((0, 1)), 2, None),
    "no edge": Case(edges(), 5, None),
    "isolated nodes": Case(edges((1, 3)), 5, None),
    "two components": Case(edges((0, 1), (1, 2), (3, 4)), 5, None),
    "parallel edges": Case(edges((0, 1), (0, 1), (0, 2), (1, 2)), 3, None),
    "loops": Case(edges((0, 0), (0, 1), (1, 2), (2, 2), (2, 2)), 3, None),
    "light weights": Case(edges((0, 1), (0, 2), (1, 2)), 3, torch.tensor([0.1, 0.2, 0.05])),
    "zero weights": Case(edges((0, 1), (1, 2)), 3, torch.tensor([0.0, 2.0])),
}


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12) -> Case:
    """Directed multigraphs with loops, and with or without weights."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=4 * num_nodes))
    weight = None
    if draw(st.booleans()):
        value = st.floats(0, 10, width=32).filter(lambda w: w == 0 or w > 1e-3)
        weight = draw(st.lists(value, min_size=len(pairs), max_size=len(pairs)))
        weight = torch.tensor(weight, dtype=torch.float32)
    return Case(edges(*pairs), num_nodes, weight)
