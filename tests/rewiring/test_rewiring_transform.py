import pickle

import networkx as nx
import pytest
import torch
from scipy.stats import ks_2samp
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddSelfLoops, Compose

from grass_gnn.encoding import (
    AddDecomposedRRWP,
    AddDegree,
    AddLaplacianPE,
    AddRRWP,
    decompose,
    decomposed_pairs,
    dense_rrwp,
)
from grass_gnn.rewiring import AddRandomRegularEdges, complete_edges

ENCODINGS = {
    "none": None,
    "rrwp": AddRRWP(5),
    "decomposed": AddDecomposedRRWP(5, m=4),
    "alternating": AddDecomposedRRWP(5, m=4, directed="alternating"),
    "laplacian": AddLaplacianPE(3),
    "together": Compose([AddDegree(), AddRRWP(3), AddLaplacianPE(2)]),
}


def molecule(num_nodes: int = 23, seed: int = 0) -> Data:
    """A tree with a few rings, with features."""
    graph = nx.random_labeled_tree(num_nodes, seed=seed) if num_nodes > 1 else nx.empty_graph(1)
    if num_nodes > 6:
        graph.add_edges_from([(0, num_nodes - 1), (2, num_nodes - 3)])
    edges = torch.tensor([*graph.edges], dtype=torch.int64).view(-1, 2).t()
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(
        x=torch.arange(num_nodes).view(-1, 1),
        edge_index=edges,
        edge_attr=torch.arange(1, edges.size(1) + 1).view(-1, 1).repeat(1, 3),
        y=torch.tensor([float(seed)]),
    )


def dataset() -> list[Data]:
    return [molecule(n, seed) for seed, n in enumerate([23, 1, 2, 17, 5])]


def test_added_edges_follow_the_present_ones() -> None:
    data, before = molecule(), molecule()
    assert AddRandomRegularEdges(3)(data.clone()).edge_index.size(1) > data.edge_index.size(1)
    data = AddRandomRegularEdges(3)(data)
    count = before.edge_index.size(1)
    assert torch.equal(data.edge_index[:, :count], before.edge_index)
    assert data.added_edge_mask.tolist() == [False] * count + [True] * (data.num_edges - count)
    assert torch.equal(data.edge_attr[:count], before.edge_attr)
    assert data.edge_attr.dtype == before.edge_attr.dtype and not data.edge_attr[count:].any()
    assert torch.equal(data.y, before.y) and torch.equal(data.x, before.x)
    assert data.validate()


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_rewired_batch_can_be_taken_apart(name: str) -> None:
    encode = ENCODINGS[name] or (lambda data: data)
    graphs = [encode(data) for data in dataset()]
    transform = AddRandomRegularEdges(6, when="graph", seed=3)
    batch = transform(Batch.from_data_list(graphs))
    apart = [transform(data.clone()) for data in graphs]
    parts = batch.to_data_list()
    assert len(parts) == len(apart)
    for part, alone in zip(parts, apart, strict=True):
        assert sorted(part.keys()) == sorted(alone.keys())
        for key, value in alone.to_dict().items():
            torch.testing.assert_close(part[key], value, atol=1e-6, rtol=1e-5, msg=key)
    together = Batch.from_data_list(apart)
    for key, value in together.to_dict().items():
        torch.testing.assert_close(batch[key], value, atol=1e-6, rtol=1e-5, msg=key)
    assert torch.equal(batch[3].edge_index, apart[3].edge_index)


def test_encodings_of_all_edges_are_filled_in() -> None:
    plain = molecule()
    data = AddRandomRegularEdges(4)(AddRRWP(6)(molecule()))
    powers, (i, j) = dense_rrwp(plain.edge_index, 23, 6), data.edge_index
    torch.testing.assert_close(data.edge_rrwp, torch.cat([powers[:, i, j], powers[:, j, i]]).t())

    data = AddRandomRegularEdges(4)(AddDecomposedRRWP(6)(molecule()))
    found = decompose(plain.edge_index, 23, 6)
    expected = decomposed_pairs(data.edge_index, found.vectors, found.values, 6)
    torch.testing.assert_close(data.edge_rrwp, expected)

    data = AddRandomRegularEdges(4)(AddLaplacianPE(6)(molecule()))
    i, j = data.edge_index
    expected = torch.cat([data.laplacian_pe[i], data.laplacian_pe[j]], dim=1)
    assert torch.equal(data.edge_laplacian_pe, expected)


def test_kinds() -> None:
    data = AddRandomRegularEdges(3, kind="complete")(molecule())
    added = data.edge_index[:, data.added_edge_mask]
    assert torch.equal(added, complete_edges(torch.tensor([0, 23])))
    data = AddRandomRegularEdges(3, kind="non-regular")(molecule())
    assert 0 < int(data.added_edge_mask.sum()) <= 6 * 23
    data = AddRandomRegularEdges(0)(AddRRWP(2)(molecule()))
    assert not data.added_edge_mask.any() and data.edge_rrwp.size(0) == data.num_edges
    data = AddRandomRegularEdges(1, variant="simple", seed=1)(molecule())
    assert int(data.added_edge_mask.sum()) == 46


def rewired(transform: AddRandomRegularEdges, data: Data) -> list[list[int]]:
    return transform(data.clone()).edge_index.tolist()


def test_when() -> None:
    graph, other = molecule(seed=1), molecule(seed=2)
    always = AddRandomRegularEdges(3)
    torch.manual_seed(0)
    first = rewired(always, graph)
    assert rewired(always, graph) != first
    torch.manual_seed(0)
    assert rewired(always, graph) == first

    seeded, again = AddRandomRegularEdges(3, seed=7), AddRandomRegularEdges(3, seed=7)
    calls = [rewired(seeded, graph) for _ in range(3)]
    assert calls[0] != calls[1] != calls[2]
    torch.manual_seed(1)
    assert [rewired(again, graph) for _ in range(3)] == calls

    once = AddRandomRegularEdges(3, when="once")
    kept = rewired(once, graph)
    rewired(once, other)
    assert rewired(pickle.loads(pickle.dumps(once)), graph) == rewired(once, graph) == kept
    assert rewired(AddRandomRegularEdges(3, when="once"), graph) != kept

    by_graph = [AddRandomRegularEdges(3, when="graph") for _ in range(2)]
    assert rewired(by_graph[0], graph) == rewired(by_graph[1], graph)
    assert rewired(AddRandomRegularEdges(3, when="graph", seed=1), graph) != rewired(
        by_graph[0], graph
    )


class Rewired(torch.utils.data.Dataset):
    """The same graph again and again, rewired each time."""

    def __init__(self, transform: AddRandomRegularEdges) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Data:
        return self.transform(molecule())


@pytest.mark.parametrize("seed", [None, 5])
def test_workers_and_epochs_draw_differently(seed: int | None) -> None:
    def epochs() -> list[str]:
        torch.manual_seed(0)
        dataset = Rewired(AddRandomRegularEdges(3, seed=seed))
        loader = DataLoader(dataset, batch_size=1, num_workers=2)
        return [str(batch.edge_index.tolist()) for _ in range(2) for batch in loader]

    first = epochs()
    assert len(set(first)) == 16
    assert epochs() == first  # and yet PyTorch's seed decides


def test_batches_of_transformed_graphs_equal_a_transformed_batch_on_average() -> None:
    graphs = [molecule() for _ in range(200)]
    transform = AddRandomRegularEdges(6, seed=0)
    loaded = next(iter(DataLoader([transform(data.clone()) for data in graphs], batch_size=200)))
    whole = transform(Batch.from_data_list(graphs))
    counts = []
    for batch in (loaded, whole):
        graph = batch.batch[batch.edge_index[0, batch.added_edge_mask]]
        counts.append(torch.bincount(graph, minlength=200).numpy())
        assert counts[-1].mean() == pytest.approx(237, abs=2.5)
    assert ks_2samp(*counts).pvalue > 1e-3


def test_batch_made_by_hand() -> None:
    batch = Batch(
        edge_index=torch.tensor([[0, 1, 3], [1, 2, 4]]),
        num_nodes=5,
        ptr=torch.tensor([0, 3, 5]),
        batch=torch.tensor([0, 0, 0, 1, 1]),
    )
    batch = AddRandomRegularEdges(2)(batch)
    graph = batch.batch[batch.edge_index]
    assert torch.equal(graph[0], graph[1]) and bool((graph[0].diff() >= 0).all())


def weighted_edges(data: Data, kept: torch.Tensor) -> list[tuple[float, ...]]:
    edges = data.edge_index[:, kept].tolist()
    return sorted(zip(*edges, data.edge_weight.tolist(), strict=True))


def test_weights_stay_with_their_edges_if_those_are_not_grouped_by_graph() -> None:
    graphs = [
        Data(edge_index=torch.randint(5, (2, 8)), edge_weight=torch.rand(8), num_nodes=5)
        for _ in range(3)
    ]
    batch = Batch.from_data_list(graphs)
    looped = AddSelfLoops(attr="edge_weight", fill_value=7.0)(batch.clone())
    mixed = torch.randperm(batch.num_edges)
    by_hand = Data(
        edge_index=batch.edge_index[:, mixed],
        edge_weight=batch.edge_weight[mixed],
        batch=batch.batch,
        num_nodes=15,
    )
    for data in (batch, looped, by_hand):
        rewired = AddRandomRegularEdges(2)(data.clone())
        assert bool(rewired.added_edge_mask.any())
        before = weighted_edges(data, torch.ones(data.num_edges, dtype=torch.bool))
        assert weighted_edges(rewired, ~rewired.added_edge_mask) == before
    assert len(AddRandomRegularEdges(2)(batch.clone()).to_data_list()) == 3
    with pytest.raises(RuntimeError):  # its slices would give wrong edges
        AddRandomRegularEdges(2)(looped.clone()).to_data_list()


def test_repr_and_bad_arguments() -> None:
    expected = "AddRandomRegularEdges(r=4, kind='regular', variant='half', when='graph', seed=3)"
    assert repr(AddRandomRegularEdges(4, variant="half", when="graph", seed=3)) == expected
    with pytest.raises(ValueError, match="r must be at least 0, not -1"):
        AddRandomRegularEdges(-1)
    with pytest.raises(TypeError, match="r must be an integer, not 1"):
        AddRandomRegularEdges(1.5)
    with pytest.raises(ValueError, match="must be even"):
        AddRandomRegularEdges(3, variant="half")
    for option in ("kind", "variant", "when"):
        with pytest.raises(ValueError, match=f"{option} must be one of"):
            AddRandomRegularEdges(3, **{option: "sometimes"})
    with pytest.raises(ValueError, match="already been rewired"):
        AddRandomRegularEdges(2)(AddRandomRegularEdges(2)(molecule()))
    stripped = AddRRWP(2)(molecule())
    del stripped.rrwp_transition
    with pytest.raises(ValueError, match="rrwp_transition"):
        AddRandomRegularEdges(2)(stripped)
    with pytest.raises(TypeError, match="not HeteroData"):
        AddRandomRegularEdges(2)(HeteroData())
    with pytest.raises(ValueError, match=r"edge_index\[1, 0\] is 9"):
        AddRandomRegularEdges(2)(Data(edge_index=torch.tensor([[0], [9]]), num_nodes=3))
