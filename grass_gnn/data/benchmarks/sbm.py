"""Generators of PATTERN and CLUSTER, the stochastic block models of the two benchmarks.

They give two real benchmarks of any size without a download. Graph i of a split depends only on the
seed, the split and i, and in PATTERN on the pattern of its group. A larger CLUSTER therefore starts
with the graphs of a smaller one; in PATTERN, the groups depend on the sizes of the splits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch_geometric.data import Data

from grass_gnn.data.tables.spec import SPLITS

CLUSTER_COMMUNITIES = 6
CLUSTER_INSIDE, CLUSTER_ACROSS = 0.55, 0.25
PATTERN_COMMUNITIES = 5
PATTERN_INSIDE, PATTERN_ACROSS = 0.5, 0.35
PATTERN_INNER, PATTERN_ATTACHED = 0.5, 0.5
PATTERN_FEATURES = 3
PATTERN_GROUPS = 100  # patterns of the published set, each with 100/20/20 graphs


def generate_cluster(
    num_graphs: int | Sequence[int] = (10_000, 1_000, 1_000), seed: int = 0
) -> dict[str, list[Data]]:
    """CLUSTER: find the six communities of a graph, with one labelled node in each.

    Args:
        num_graphs: Number of training, validation and test graphs (or of training graphs only).
        seed: Random seed.
    """
    return {
        split: [_cluster_graph(np.random.default_rng([seed, part, i])) for i in range(size)]
        for part, (split, size) in enumerate(_sizes(num_graphs))
    }


def generate_pattern(
    num_graphs: int | Sequence[int] = (10_000, 2_000, 2_000),
    seed: int = 0,
    groups: int = PATTERN_GROUPS,
) -> dict[str, list[Data]]:
    """PATTERN: find the nodes of a pattern hidden in a graph of five communities.

    The graphs of a split are divided evenly into groups. All graphs of a group, in all splits, have
    the same pattern with the same node features.

    Args:
        num_graphs: Number of training, validation and test graphs (or of training graphs only).
        seed: Random seed.
        groups: Number of patterns, at most as many as there are training graphs.
    """
    sizes = _sizes(num_graphs)
    groups = max(1, min(groups, sizes[0][1]))
    patterns = [_pattern(np.random.default_rng([seed, len(SPLITS), g])) for g in range(groups)]
    return {
        split: [
            _pattern_graph(np.random.default_rng([seed, part, i]), *patterns[i * groups // size])
            for i in range(size)
        ]
        for part, (split, size) in enumerate(sizes)
    }


def _sizes(num_graphs: int | Sequence[int]) -> list[tuple[str, int]]:
    sizes = (num_graphs, 0, 0) if isinstance(num_graphs, int) else tuple(num_graphs)
    return list(zip(SPLITS, sizes, strict=True))


def _block_sizes(rng: np.random.Generator, blocks: int) -> np.ndarray:
    return rng.integers(5, 35, blocks)


def _draw_edges(rng: np.random.Generator, probability: np.ndarray) -> np.ndarray:
    """A symmetric boolean adjacency without loops, from the probability of each pair [n, n]."""
    upper = np.triu(rng.random(probability.shape, dtype=np.float32) < probability, 1)
    return upper | upper.T


def _block_probability(community: np.ndarray, inside: float, across: float) -> np.ndarray:
    same = community[:, None] == community[None, :]  # [n, n]
    return np.where(same, np.float32(inside), np.float32(across))


def _cluster_graph(rng: np.random.Generator) -> Data:
    sizes = _block_sizes(rng, CLUSTER_COMMUNITIES)
    community = np.repeat(np.arange(CLUSTER_COMMUNITIES), sizes)  # [n]
    adjacency = _draw_edges(rng, _block_probability(community, CLUSTER_INSIDE, CLUSTER_ACROSS))
    feature = np.zeros_like(community)
    labelled = np.cumsum(sizes) - sizes + rng.integers(0, sizes)  # one node of each community
    feature[labelled] = np.arange(CLUSTER_COMMUNITIES) + 1
    return _shuffled(rng, adjacency, feature, community, CLUSTER_COMMUNITIES + 1)


def _pattern(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Adjacency and node features of the pattern of a group."""
    size = int(_block_sizes(rng, 1)[0])
    adjacency = _draw_edges(rng, np.full((size, size), PATTERN_INNER, dtype=np.float32))
    return adjacency, rng.integers(0, PATTERN_FEATURES, size)


def _pattern_graph(rng: np.random.Generator, pattern: np.ndarray, feature: np.ndarray) -> Data:
    community = np.repeat(
        np.arange(PATTERN_COMMUNITIES), _block_sizes(rng, PATTERN_COMMUNITIES)
    )  # [n]
    n, size = len(community), len(pattern)
    probability = np.full((n + size, n + size), PATTERN_ATTACHED, dtype=np.float32)
    probability[:n, :n] = _block_probability(community, PATTERN_INSIDE, PATTERN_ACROSS)
    adjacency = _draw_edges(rng, probability)
    adjacency[n:, n:] = pattern
    features = np.concatenate([rng.integers(0, PATTERN_FEATURES, n), feature])
    inside = np.repeat([0, 1], [n, size])
    return _shuffled(rng, adjacency, features, inside, PATTERN_FEATURES)


def _shuffled(
    rng: np.random.Generator,
    adjacency: np.ndarray,
    feature: np.ndarray,
    target: np.ndarray,
    num_features: int,
) -> Data:
    """The graph with its nodes in random order, in the form of PyG's own PATTERN and CLUSTER."""
    order = rng.permutation(len(feature))
    edges = np.stack(np.nonzero(adjacency[np.ix_(order, order)]))  # [2, E]
    one_hot = np.eye(num_features, dtype=np.float32)[feature[order]]  # [n, features]
    return Data(
        x=torch.from_numpy(one_hot),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy(target[order]),
    )
