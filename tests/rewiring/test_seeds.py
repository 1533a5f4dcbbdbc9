import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from grass_gnn.rewiring import graph_seeds, random_bits, step_seeds


def splitmix64(state: int) -> int:
    """One output of splitmix64 in Python's integers, for a state before its increment."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


@given(st.integers(-(2**63), 2**63 - 1))
def test_bits_of_a_seed_are_splitmix64(seed: int) -> None:
    assert int(random_bits(torch.tensor([seed]))) % 2**64 == splitmix64(seed % 2**64)


def test_bits_are_fair_and_differ_by_every_argument() -> None:
    seeds = torch.arange(64).view(-1, 1, 1)
    bits = random_bits(seeds, torch.arange(32).view(1, -1, 1), torch.arange(32))
    assert bits.unique().numel() == bits.numel() == 64 * 32 * 32
    for shift in (0, 17, 40, 56):
        counts = torch.bincount(((bits >> shift) & 255).flatten(), minlength=256)
        assert chisquare(counts.numpy()).pvalue > 1e-4


def test_an_integer_counter_equals_a_tensor() -> None:
    seeds = torch.arange(5)
    for counter in (0, 1, -7, 2**62):
        assert torch.equal(random_bits(seeds, counter), random_bits(seeds, torch.tensor(counter)))


def test_step_seeds_differ_by_run_epoch_and_graph_only() -> None:
    graphs = torch.arange(100)
    seeds = torch.stack([step_seeds(run, epoch, graphs) for run in range(5) for epoch in range(5)])
    assert seeds.unique().numel() == seeds.numel()
    # Whatever else is in the batch, a graph keeps its seed.
    assert torch.equal(step_seeds(3, 2, graphs[[7, 3]]), step_seeds(3, 2, graphs)[[7, 3]])
    assert step_seeds(2**64 + 3, 2, graphs).equal(step_seeds(3, 2, graphs))


def test_graph_seeds_know_a_graph_in_any_batch_and_edge_order() -> None:
    triangle = torch.tensor([[0, 1, 2], [1, 2, 0]])
    path = torch.tensor([[0, 1], [1, 2]])
    both = torch.cat([triangle, path + 3, triangle[:, [2, 0, 1]] + 6], dim=1)
    order = torch.randperm(both.size(1), generator=torch.Generator().manual_seed(0))
    ptr = torch.tensor([0, 3, 6, 9])
    first, second, third = graph_seeds(both[:, order], ptr).tolist()
    assert first == third == int(graph_seeds(triangle, ptr[:2]))
    assert second == int(graph_seeds(path, ptr[:2]))


def test_graph_seeds_differ_where_graphs_do() -> None:
    ptr = torch.tensor([0, 3])
    path = torch.tensor([[0, 1], [1, 2]])
    x, edge_attr = torch.arange(6.0).view(3, 2), torch.tensor([[1], [2]])
    different = [
        graph_seeds(path, ptr),
        graph_seeds(path, ptr, seed=1),
        graph_seeds(path, torch.tensor([0, 4])),  # another node
        graph_seeds(path.flip(0), ptr),
        graph_seeds(path[:, :1], ptr),
        graph_seeds(path[:, [0, 0, 1]], ptr),  # a parallel edge
        graph_seeds(path[:, :0], ptr),
        graph_seeds(path, ptr, x=x),
        graph_seeds(path, ptr, x=x.flip(1)),
        graph_seeds(path, ptr, x=x.flip(0)),
        graph_seeds(path, ptr, edge_attr=edge_attr),
        graph_seeds(path, ptr, edge_attr=edge_attr.flip(0)),
        graph_seeds(path, ptr, x=x, edge_attr=edge_attr),
    ]
    assert torch.cat(different).unique().numel() == len(different)
    swapped = graph_seeds(path.flip(1), ptr, edge_attr=edge_attr.flip(0))
    assert swapped.equal(graph_seeds(path, ptr, edge_attr=edge_attr))
    assert graph_seeds(path, ptr, x=-0.0 * x).equal(graph_seeds(path, ptr, x=0.0 * x))
