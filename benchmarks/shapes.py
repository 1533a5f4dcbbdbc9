"""Generated batches with the shapes of the paper's datasets, and models for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from grass_gnn import GRASSConfig
from grass_gnn.data.batch import GraphBatch, InputGraphs, rewire
from grass_gnn.data.benchmarks.sbm import generate_pattern
from grass_gnn.data.packed.dataset import pack
from grass_gnn.testing import random_features, random_input


class Case(NamedTuple):
    """A preset, the number of graphs per batch, and settings that make it fit."""

    preset: str
    graphs: int
    settings: dict[str, object]


CASES = {
    "zinc": Case("zinc", 200, {}),
    "pattern": Case("pattern", 16, {}),
    "pascalvoc-sp": Case("pascalvoc-sp", 8, {}),
    # Fewer layers, so that the reference fits in memory, and fewer eigenpairs, which do not affect
    # the layers.
    "roman-empire": Case("roman-empire", 1, {"model.layers": 6, "encoding.eigenpairs": 64}),
}


def config_of(case: Case) -> GRASSConfig:
    return GRASSConfig.preset(case.preset, **case.settings)


def molecule(config: GRASSConfig, seed: int) -> Data:
    """The size of a ZINC molecule: 23.2 ± 4.5 nodes (9 to 38), about 50 directed edges."""
    size = 23.2 + 4.5 * torch.randn((), generator=torch.Generator().manual_seed(seed)).item()
    return random_input(config, min(max(round(size), 9), 38), seed)


def superpixels(config: GRASSConfig, seed: int) -> Data:
    """About the size of a PascalVOC-SP picture: 480 nodes, 2,700 directed edges."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(480, 2, generator=generator)
    distance = torch.cdist(points, points).fill_diagonal_(torch.inf)
    nearest = distance.topk(4, largest=False).indices  # [480, 4]
    edge_index = torch.stack([torch.arange(480).repeat_interleave(4), nearest.flatten()])
    return with_features(config, to_undirected(edge_index), 480, generator)


def sentence_graph(config: GRASSConfig, seed: int) -> Data:
    """The size of roman-empire: a chain of 22,662 words with 10,000 more edges."""
    generator = torch.Generator().manual_seed(seed)
    n = 22_662
    chain = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    more = torch.randint(n, (2, 10_266), generator=generator)
    edges = torch.cat([chain, more[:, more[0] != more[1]]], dim=1)
    return with_features(config, to_undirected(edges), n, generator)


def with_features(
    config: GRASSConfig, edge_index: torch.Tensor, num_nodes: int, generator: torch.Generator
) -> Data:
    return Data(
        x=random_features(config.input.nodes, num_nodes, generator),
        edge_index=edge_index,
        edge_attr=random_features(config.input.edges, edge_index.size(1), generator),
        y=torch.randint(config.task.outputs, (num_nodes,), generator=generator),
        num_nodes=num_nodes,
    )


MAKERS: dict[str, Callable[[GRASSConfig, int], Data]] = {
    "zinc": molecule,
    "pascalvoc-sp": superpixels,
    "roman-empire": sentence_graph,
}


def make_batches(name: str, count: int) -> list[GraphBatch]:
    """Different batches of a case, encoded and rewired."""
    case = CASES[name]
    config = config_of(case)
    if name == "pattern":
        graphs = list(generate_pattern((case.graphs, 1, 1), 0)["train"])
    else:
        graphs = [MAKERS[name](config, seed) for seed in range(case.graphs)]
    packed = pack(graphs, config)
    inputs: InputGraphs = packed.select(torch.arange(len(graphs)))
    torch.manual_seed(0)
    return [rewire(inputs, config.encoding, config.rewiring) for _ in range(count)]
