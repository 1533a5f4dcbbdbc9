from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from grass_gnn.data.benchmarks.registry import load_benchmark
from grass_gnn.data.benchmarks.sbm import generate_cluster
from grass_gnn.data.benchmarks.statistics import dataset_statistics
from grass_gnn.data.packed.prepare import Fingerprint, content_hash, fingerprint


def test_the_hash_sees_every_tensor_and_the_order(graph) -> None:
    graphs = [graph(0, 5, 8), graph(1, 5, 8)]
    base = content_hash({"train": graphs})
    assert base == content_hash({"train": [g.clone() for g in graphs]})
    assert base != content_hash({"train": graphs[::-1]})
    assert base != content_hash({"val": graphs})
    for name in ("x", "edge_index", "edge_attr", "y"):
        changed = graphs[0].clone()
        changed[name].view(-1)[0] = changed[name].view(-1)[0] * 0 + 3
        assert base != content_hash({"train": [changed, graphs[1]]}), name


def test_hashes_do_not_change_between_versions() -> None:
    """Caches and run folders identify their data by this hash."""
    graph = Data(
        x=torch.arange(6).view(3, 2),
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        edge_attr=torch.tensor([0.5, 1.5]),
        edge_weight=torch.tensor([2.0, 3.0]),
        y=torch.tensor([1.0]),
        descriptors=torch.tensor([[4.0]]),
        train_mask=torch.tensor([True, False, False]),
        val_mask=torch.tensor([False, True, False]),
        test_mask=torch.tensor([False, False, True]),
        pos=torch.zeros(3, 3),  # not read, so not hashed
    )
    plain = Data(edge_index=graph.edge_index, num_nodes=3)
    found = content_hash({"train": [graph, plain], "val": [plain]})
    assert found == "174df00cd0876a3d907c6f4538fe8c64"


def test_official_or_not(shared_data: Path) -> None:
    data = load_benchmark("minesweeper", shared_data / "heterophilous")
    found = fingerprint(data.splits, "minesweeper")
    assert found.official and not found.differences
    assert Fingerprint.from_dict(found.to_dict()) == found
    data = load_benchmark("peptides-func", shared_data / "peptides_func_5pct")
    found = fingerprint(data.splits, "peptides-func")
    assert not found.official
    assert found.differences[0] == "train has 544 graphs, not 10873"
    assert found.differences[-1] == "305.07 edges per graph on average, not 307.3"


def test_generated_graphs_are_never_official() -> None:
    found = fingerprint(generate_cluster((2, 1, 1)), "cluster", generated=True)
    assert not found.official and found.differences == ["it was generated here"]
    assert not fingerprint(generate_cluster((2, 1, 1))).official


def test_paths_of_known_graphs() -> None:
    path = Data(edge_index=to_undirected(torch.tensor([[0, 1, 2], [1, 2, 3]])), num_nodes=4)
    triangle = Data(edge_index=to_undirected(torch.tensor([[0, 1, 2], [1, 2, 0]])), num_nodes=3)
    apart = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=2)
    found = dataset_statistics({"train": [path, triangle], "test": [apart]})
    assert (found.graphs, found.measured) == (3, 2)
    assert found.mean_nodes == 3.0 and found.mean_edges == 4.0
    assert found.shortest_path == pytest.approx(((5 / 3 + 1) / 2, 1 / 3))
    assert found.diameter == pytest.approx((2.0, 1.0))
    sampled = dataset_statistics({"train": [path, triangle]}, sample=1)
    assert sampled.graphs == 2 and sampled.measured == 1


def test_published_paths_of_peptides(shared_data: Path) -> None:
    """On a 5 % sample, so within its sampling error of 20.89 ± 9.79 and 56.99 ± 28.72."""
    data = load_benchmark("peptides-func", shared_data / "peptides_func_5pct")
    found = dataset_statistics(data.splits)
    assert found.shortest_path is not None and found.diameter is not None
    assert found.shortest_path[0] == pytest.approx(20.89, abs=1.1)
    assert found.diameter[0] == pytest.approx(56.99, abs=3.2)
