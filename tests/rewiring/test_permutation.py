import math
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from grass_gnn.errors import GrassError
from grass_gnn.rewiring import complete_edges, random_edges, random_regular_edges, step_seeds
from grass_gnn.rewiring.edges import _draw

SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=8)
VARIANTS = ["directed", "undirected", "half"]


def pointers(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0)


def equal_graphs(num_graphs: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    return torch.arange(num_graphs + 1) * num_nodes, step_seeds(0, 0, torch.arange(num_graphs))


def drawn(edge_index: Tensor) -> Tensor:
    """The pairs as they were drawn: each precedes its reverse."""
    assert torch.equal(edge_index[:, ::2], edge_index[:, 1::2].flip(0))
    return edge_index[:, ::2]


def codes(pairs: Tensor) -> Tensor:
    """One number per pair, which sorts faster than columns do."""
    return pairs[0] * 2**32 + pairs[1]


@given(SIZES, st.integers(0, 4), st.integers(0, 2**40), st.sampled_from([*VARIANTS, "non-regular"]))
def test_a_graph_is_rewired_by_its_own_seed(sizes, r, seed, variant) -> None:
    ptr, seeds = pointers(sizes), step_seeds(seed, 0, torch.arange(len(sizes)))

    def rewire(ptr: Tensor, seeds: Tensor) -> Tensor:
        if variant == "non-regular":
            return random_edges(ptr, r, seeds)
        return random_regular_edges(ptr, 2 * r if variant == "half" else r, seeds, variant)

    together = rewire(ptr, seeds)
    apart = [rewire(torch.tensor([0, n]), seeds[b : b + 1]) + ptr[b] for b, n in enumerate(sizes)]
    # Edges never cross graphs, and a batch is its graphs one after the other.
    assert torch.equal(together, torch.cat(apart, dim=1))
    graph = torch.repeat_interleave(torch.tensor(sizes))
    assert torch.equal(graph[together[0]], graph[together[1]])
    pairs = drawn(together)
    assert not (pairs[0] == pairs[1]).any()
    assert pairs.unique(dim=1).size(1) == pairs.size(1)
    if variant in ("undirected", "half"):
        assert together.unique(dim=1).size(1) == together.size(1)
    permutation_count = torch.tensor([min(r, n - 1) * n for n in sizes])
    assert (torch.bincount(graph[pairs[0]], minlength=len(sizes)) <= permutation_count).all()


@given(SIZES)
def test_complete_edges_are_all_ordered_pairs(sizes) -> None:
    expected = [
        (first + i, first + j)
        for first, n in zip(pointers(sizes).tolist(), sizes, strict=False)
        for i, j in permutations(range(n), 2)
    ]
    assert complete_edges(pointers(sizes)).t().tolist() == [list(pair) for pair in expected]


def test_permutations_are_uniform() -> None:
    ptr, seeds = equal_graphs(24_000, 4)
    _, tail = _draw(ptr, 1, seeds)
    local = tail.view(-1, 4) % 4  # [graphs, 4]: σ(0), …, σ(3)
    code = (local * torch.tensor([64, 16, 4, 1])).sum(1)
    _, counts = code.unique(return_counts=True)
    assert counts.numel() == 24
    assert chisquare(counts.numpy()).pvalue > 1e-3


def test_permutations_of_a_graph_are_independent() -> None:
    ptr, seeds = equal_graphs(36_000, 3)
    _, tail = _draw(ptr, 2, seeds)
    local = tail.view(-1, 6) % 3
    code = (local * 3 ** torch.arange(6)).sum(1)
    _, counts = code.unique(return_counts=True)
    assert counts.numel() == 36
    assert chisquare(counts.numpy()).pvalue > 1e-3


def test_large_permutations_are_permutations_and_uniform() -> None:
    _, tail = _draw(torch.tensor([0, 20_000]), 3, torch.tensor([5]))
    for p in range(3):
        assert torch.equal(tail[:, p].sort().values, torch.arange(20_000))
    counts = torch.histc((tail[:, 0] - torch.arange(20_000)).double() % 20_000, bins=50)
    assert chisquare(counts.numpy()).pvalue > 1e-4


@pytest.mark.parametrize(("n", "r"), [(23, 6), (10, 3), (5, 4), (118, 6)])
def test_expected_number_of_edges(n: int, r: int) -> None:
    graphs = 4000
    edge_index = random_regular_edges(*_with_r(equal_graphs(graphs, n), r))
    expected = 2 * n * (n - 1) * (1 - (1 - 1 / n) ** r)
    assert edge_index.size(1) / graphs == pytest.approx(expected, rel=3e-3)


def _with_r(graphs: tuple[Tensor, Tensor], r: int) -> tuple[Tensor, int, Tensor]:
    return graphs[0], r, graphs[1]


def test_molecules_of_the_paper() -> None:
    ptr, seeds = equal_graphs(4000, 23)
    edge_index = random_regular_edges(ptr, 6, seeds)
    assert edge_index.size(1) / 4000 == pytest.approx(237, abs=0.5)
    assert codes(edge_index).unique().numel() / 4000 == pytest.approx(209, abs=0.5)
    # Removing repeats without regard to direction leaves exactly the distinct edges.
    undirected = random_regular_edges(ptr, 6, seeds, "undirected")
    assert torch.equal(codes(undirected).sort().values, codes(edge_index).unique())


def test_distribution_of_drawn_degrees() -> None:
    n, r, graphs = 8, 4, 20_000
    ptr, seeds = equal_graphs(graphs, n)
    pairs = drawn(random_regular_edges(ptr, r, seeds))
    # Node 0 of each graph draws r independent uniform targets; count the different ones but itself.
    first = pairs[0, pairs[0] % n == 0] // n
    found = torch.bincount(torch.bincount(first, minlength=graphs), minlength=r + 1)
    probability = [1.0] + [0.0] * r
    for _ in range(r):
        # The next target is new with probability (n − 1 − distinct) / n.
        probability = [
            probability[d] * (1 + d) / n + (probability[d - 1] * (n - d) / n if d else 0.0)
            for d in range(r + 1)
        ]
    assert chisquare(found.numpy(), graphs * torch.tensor(probability).numpy()).pvalue > 1e-3


def test_every_node_has_degree_2r_but_for_removals() -> None:
    ptr, seeds = equal_graphs(1, 20_000)
    edge_index = random_regular_edges(ptr, 3, seeds)
    degree = torch.bincount(edge_index[0])
    assert degree.max() == 6  # three drawn by the node, three that drew it
    assert (degree == 6).double().mean() > 0.99


@pytest.mark.parametrize(("p", "graphs"), [(1, 10_000), (2, 30_000)])
def test_probability_of_being_simple(p: int, graphs: int) -> None:
    """It tends to exp(−(p² + p/2)), and not to the exp(−(r²/2 + r)) of equation (6)."""
    n = 60
    ptr, seeds = equal_graphs(graphs, n)
    edge_index = random_regular_edges(ptr, p, seeds, "undirected")
    edges = torch.bincount(edge_index[0] // n, minlength=graphs)
    simple = float((edges == 2 * p * n).double().mean())
    theory = math.exp(-(p**2 + p / 2))
    deviation = math.sqrt(theory * (1 - theory) / graphs)
    assert abs(simple - theory) < 4 * deviation + 0.05 * theory  # 5 % for n being finite
    for r in (p, 2 * p):  # read as the number of permutations, or as the degree
        if (p, r) != (1, 1):  # both are exp(−3/2) there
            assert abs(simple - math.exp(-(r**2 / 2 + r))) > 10 * deviation


@pytest.mark.parametrize("r", [1, 2])
def test_simple_graphs_are_regular(r: int) -> None:
    sizes = [9, 1, 30, 17, 12]
    ptr, seeds = pointers(sizes), step_seeds(0, 1, torch.arange(5))
    edge_index = random_regular_edges(ptr, r, seeds, "simple", max_trials=20_000)
    degree = torch.bincount(edge_index[0], minlength=sum(sizes))
    expected = torch.full((sum(sizes),), 2 * r)
    expected[9] = 0  # the graph of one node
    assert torch.equal(degree, expected)
    assert edge_index.unique(dim=1).size(1) == edge_index.size(1)
    alone = random_regular_edges(torch.tensor([0, 17]), r, seeds[3:4], "simple", max_trials=20_000)
    assert torch.equal(alone + 40, edge_index[:, (edge_index[0] >= 40) & (edge_index[0] < 57)])


def test_a_huge_r_costs_no_more_than_the_graph_can_take() -> None:
    ptr, seeds = equal_graphs(2, 5)
    assert torch.equal(random_regular_edges(ptr, 10**9, seeds), random_regular_edges(ptr, 4, seeds))


def test_an_empty_batch() -> None:
    ptr, seeds = torch.tensor([0]), torch.empty(0, dtype=torch.int64)
    for variant in (*VARIANTS, "simple"):
        assert random_regular_edges(ptr, 2, seeds, variant).shape == (2, 0)
    assert random_edges(ptr, 2, seeds).shape == complete_edges(ptr).shape == (2, 0)


def test_simple_gives_up() -> None:
    ptr, seeds = equal_graphs(3, 50)
    with pytest.raises(GrassError, match="No simple graph found for 3 of 3 graphs in 5 trials"):
        random_regular_edges(ptr, 6, seeds, "simple", max_trials=5)
    with pytest.raises(GrassError, match=r"A graph has 4 nodes.*each has 4 neighbours"):
        random_regular_edges(torch.tensor([0, 4]), 2, seeds[:1], "simple")


@given(SIZES, st.integers(0, 5))
def test_non_regular_edges_of_equal_number(sizes, r) -> None:
    ptr, seeds = pointers(sizes), step_seeds(0, 0, torch.arange(len(sizes)))
    pairs = drawn(random_edges(ptr, r, seeds))
    assert pairs.size(1) <= sum(min(r, n - 1) * n for n in sizes)


def test_non_regular_ends_are_uniform_and_independent() -> None:
    n, r, graphs = 6, 1, 20_000
    ptr, seeds = equal_graphs(graphs, n)
    pairs = drawn(random_edges(ptr, r, seeds)) % n
    counts = torch.bincount(pairs[0] * n + pairs[1], minlength=n * n).view(n, n)
    assert not counts.diagonal().any()
    # A pair is left if it is among the r·n pairs drawn out of n² with replacement.
    expected = n * (n - 1) * (1 - (1 - 1 / n**2) ** (r * n))
    assert pairs.size(1) / graphs == pytest.approx(expected, rel=0.01)
    off_diagonal = counts[~torch.eye(n, dtype=torch.bool)].double()
    assert float(((off_diagonal / off_diagonal.mean() - 1) ** 2).mean().sqrt()) < 0.03


def test_bad_arguments(monkeypatch) -> None:
    ptr, seeds = torch.tensor([0, 5]), torch.tensor([1])
    with pytest.raises(ValueError, match="r must be at least 0, not -2"):
        random_regular_edges(ptr, -2, seeds)
    with pytest.raises(ValueError, match="r must be at least 0, not -1"):
        random_edges(ptr, -1, seeds)
    with pytest.raises(TypeError, match=r"r must be an integer, not 2\.0"):
        random_regular_edges(ptr, 2.0, seeds)
    with pytest.raises(ValueError, match=r'r must be even in the variant "half".*not 3'):
        random_regular_edges(ptr, 3, seeds, "half")
    with pytest.raises(ValueError, match="variant must be one of directed"):
        random_regular_edges(ptr, 3, seeds, "other")
    with pytest.raises(ValueError, match="seeds must have one value for each of the 1 graphs"):
        random_regular_edges(ptr, 3, torch.tensor([1, 2]))
    with pytest.raises(TypeError, match="seeds must be int64"):
        random_regular_edges(ptr, 3, torch.tensor([1.0]))
    with pytest.raises(ValueError, match="max_trials must be at least 1"):
        random_regular_edges(ptr, 1, seeds, "simple", max_trials=0)
    monkeypatch.setattr("grass_gnn.rewiring.edges._KEY_BITS", 61)
    with pytest.raises(ValueError, match="too many for one call"):
        random_regular_edges(ptr, 4, seeds)
