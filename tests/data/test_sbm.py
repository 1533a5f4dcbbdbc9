import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import contains_self_loops, is_undirected

from grass_gnn.data.benchmarks.sbm import generate_cluster, generate_pattern


def density(graph: Data, rows: torch.Tensor, columns: torch.Tensor) -> float:
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    pairs = rows.unsqueeze(1) & columns.unsqueeze(0) & ~torch.eye(len(rows), dtype=torch.bool)
    return float(adjacency[pairs].mean())


def assert_mean(values: list[float], expected: float) -> None:
    """Within four standard errors."""
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / len(values) ** 0.5


def test_cluster_has_its_statistics() -> None:
    graphs = generate_cluster(600)["train"]
    assert_mean([g.num_nodes for g in graphs], 117.0)
    # E[s²] = 455.17 of a size s: 6·(455.17 − 19.5)·0.55 inside, 30·19.5²·0.25 across.
    assert_mean([g.num_edges for g in graphs], 4289.6)
    # The published set (mean 117.2 and 4,301.7) is another sample of 12,000 of the same.
    spread = np.std([g.num_edges for g in graphs]) / 12_000**0.5
    assert abs(4301.7 - 4289.6) < 4 * spread
    inside = [density(g, g.y == 0, g.y == 0) for g in graphs[:100]]
    across = [density(g, g.y == 0, g.y == 1) for g in graphs[:100]]
    assert_mean(inside, 0.55)
    assert_mean(across, 0.25)
    for graph in graphs[:50]:
        assert is_undirected(graph.edge_index) and not contains_self_loops(graph.edge_index)
        sizes = torch.bincount(graph.y)
        assert len(sizes) == 6 and sizes.min() >= 5 and sizes.max() <= 34
        feature = graph.x.argmax(1)
        assert sorted(feature[feature > 0].tolist()) == [1, 2, 3, 4, 5, 6]
        assert torch.equal(graph.y[feature > 0] + 1, feature[feature > 0])


def test_pattern_has_its_statistics() -> None:
    graphs = generate_pattern(600, groups=600)["train"]
    assert_mean([g.num_nodes for g in graphs], 117.0)
    assert_mean([g.num_edges for g in graphs], 5870.0)
    # The published set has 100 patterns of 21.4 nodes on average (118.9 − 97.5), for which the
    # model gives 6,078.6 edges within what 100 pattern sizes leave open.
    size = np.array([int(g.y.sum()) for g in graphs])
    edges = np.array([g.num_edges for g in graphs])
    slope, offset = np.polyfit(size, edges, 1)
    assert abs(slope * 21.4 + offset - 6078.6) < 150
    some = graphs[:100]
    assert_mean([density(g, g.y == 1, g.y == 0) for g in some], 0.5)
    assert_mean([density(g, g.y == 1, g.y == 1) for g in some], 0.5)
    assert_mean([float(g.x[:, 0].mean()) for g in some], 1 / 3)
    for graph in some[:50]:
        assert is_undirected(graph.edge_index) and not contains_self_loops(graph.edge_index)


def test_graphs_of_a_group_share_their_pattern() -> None:
    splits = generate_pattern((6, 3, 3), groups=3)

    def invariants(graph: Data) -> tuple[int, list[float]]:
        inside = graph.y == 1
        return int(inside.sum()), graph.x[inside].sum(0).tolist()

    for group in range(3):
        members = [*splits["train"][2 * group : 2 * group + 2]]
        members += [splits["val"][group], splits["test"][group]]
        assert all(invariants(member) == invariants(members[0]) for member in members)
    assert not torch.equal(splits["train"][0].edge_index, splits["train"][1].edge_index)


@pytest.mark.parametrize("generate", [generate_cluster, generate_pattern])
def test_same_seed_same_graphs(generate) -> None:
    first, again, other = generate((3, 2, 1), 5), generate((3, 2, 1), 5), generate((3, 2, 1), 6)
    for split in first:
        for a, b, c in zip(first[split], again[split], other[split], strict=True):
            assert torch.equal(a.edge_index, b.edge_index) and torch.equal(a.y, b.y)
            assert not torch.equal(a.edge_index, c.edge_index)
    assert not torch.equal(first["train"][0].edge_index, first["val"][0].edge_index)
