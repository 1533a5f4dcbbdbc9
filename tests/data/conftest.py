"""Small graphs and a private cache for the tests of data."""

from collections.abc import Callable
from pathlib import Path

import pytest
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
    """A random directed multigraph that fits ``CONFIG``."""
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 9, (1,), generator=generator)) if nodes is None else nodes
    m = int(torch.randint(0, 20, (1,), generator=generator)) if edges is None else edges
    return Data(
        x=torch.randint(0, 5, (n, 1), generator=generator),
        edge_index=torch.randint(0, n, (2, m), generator=generator),
        edge_attr=torch.randn(m, 2, generator=generator),
        y=torch.randn(1, generator=generator),
    )


@pytest.fixture
def config() -> GRASSConfig:
    return CONFIG


@pytest.fixture
def graphs() -> list[Data]:
    return [random_graph(seed) for seed in range(23)]


@pytest.fixture
def graph() -> Callable[..., Data]:
    return random_graph


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's own cache of data; compiled code stays where it is."""
    from grass_gnn.ops import build

    build.available()
    folder = tmp_path / "cache"
    monkeypatch.setenv("GRASS_CACHE", str(folder))
    return folder
