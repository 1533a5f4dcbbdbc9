"""Fixtures of small graphs, and a private cache for the tests of data."""

from collections.abc import Callable
from pathlib import Path

import pytest
from random_graphs import CONFIG, random_graph
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig


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
    """Tests do not touch the user's own data cache; compiled code stays where it is."""
    from grass_gnn.ops import build

    build.available()
    folder = tmp_path / "cache"
    monkeypatch.setenv("GRASS_CACHE", str(folder))
    return folder
