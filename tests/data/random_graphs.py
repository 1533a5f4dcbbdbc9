"""Small graphs for the tests of data, and a matching configuration."""

import torch
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig

CONFIG = GRASSConfig.from_dict(
    {
        "input": {
            "nodes": {"kind": "index", "sizes": [5]},
            "edges": {"kind": "continuous", "sizes": [2]},
        },
        "encoding": {"steps": 4},
        "rewiring": {"degree": 2},
    }
)


def random_graph(seed: int, nodes: int | None = None, edges: int | None = None) -> Data:
    """A random directed multigraph that matches ``CONFIG``."""
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 9, (1,), generator=generator)) if nodes is None else nodes
    m = int(torch.randint(0, 20, (1,), generator=generator)) if edges is None else edges
    return Data(
        x=torch.randint(0, 5, (n, 1), generator=generator),
        edge_index=torch.randint(0, n, (2, m), generator=generator),
        edge_attr=torch.randn(m, 2, generator=generator),
        y=torch.randn(1, generator=generator),
    )
