from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import CONFIG, random_graph
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from grass_gnn.data.batch import InputGraphs
from grass_gnn.data.packed.dataset import PoolingStatistics, pack
from grass_gnn.data.packed.store import TensorWriter, read_tensors
from grass_gnn.encoding import decompose, laplacian_eigenvectors, node_degrees
from grass_gnn.encoding import transition_probabilities as transitions
from grass_gnn.errors import GrassError


def naive(graphs: list[Data], ids: list[int]) -> InputGraphs:
    """One graph after the other."""
    chosen = [graphs[i] for i in ids]
    batch = Batch.from_data_list(chosen)
    return InputGraphs(
        graph_ptr=batch.ptr,
        edge_index=batch.edge_index,
        x=batch.x,
        edge_attr=batch.edge_attr,
        y=batch.y.unsqueeze(1),
        stored={
            "degree": torch.cat([node_degrees(g.edge_index, g.num_nodes) for g in chosen]),
            "transition": torch.cat([transitions(g.edge_index, g.num_nodes) for g in chosen]),
        },
    )


def assert_same(found: InputGraphs, expected: InputGraphs) -> None:
    tensors, others = ({**vars(graphs), **graphs.stored} for graphs in (found, expected))
    assert tensors.keys() == others.keys()
    for name in tensors.keys() - {"stored"}:
        a, b = tensors[name], others[name]
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype and torch.equal(a, b), name


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_selected_graphs_are_the_graphs_laid_end_to_end(data: st.DataObject) -> None:
    graphs = [random_graph(seed) for seed in data.draw(st.lists(st.integers(0, 999), min_size=2))]
    ids = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1))
    assert_same(pack(graphs, CONFIG).select(torch.tensor(ids)), naive(graphs, ids))


def test_packing_in_shards_changes_nothing(graphs, config, monkeypatch) -> None:
    whole = pack(graphs, config)
    monkeypatch.setattr("grass_gnn.data.packed.dataset._SHARD", 4)
    parts = pack(graphs, config)
    ids = torch.arange(len(graphs))
    assert_same(parts.select(ids), whole.select(ids))
    assert parts.num_nodes == sum(g.num_nodes for g in graphs)
    assert parts.num_edges == sum(g.num_edges for g in graphs)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("directed", ["symmetrize", "alternating"])
def test_eigenvectors_are_packed(graphs, config, directed: str, workers: int) -> None:
    config = config.override(
        {
            "encoding.kind": "decomposed-rrwp",
            "encoding.eigenpairs": 3,
            "encoding.directed": directed,
        }
    )
    found = pack(graphs, config, workers=workers).select(torch.tensor([4, 2]))
    parts = [
        decompose(graphs[i].edge_index, graphs[i].num_nodes, 3, None, directed) for i in (4, 2)
    ]
    assert found.stored.keys() == {"degree", "vectors", "values"}
    assert torch.equal(found.stored["vectors"][:, :4], torch.cat([part.vectors for part in parts]))
    assert torch.equal(found.stored["values"], torch.stack([part.values for part in parts]))
    if directed == "alternating":
        right = [part.right_vectors for part in parts if part.right_vectors is not None]
        assert torch.equal(found.stored["vectors"][:, 4:], torch.cat(right))


def test_laplacian_eigenvectors_are_packed(graphs, config) -> None:
    packed = pack(graphs, config.override({"encoding.kind": "laplacian"}))
    expected = laplacian_eigenvectors(graphs[3].edge_index, graphs[3].num_nodes, 4)
    found = packed.select(torch.tensor([3])).stored["laplacian"]
    assert torch.equal(found, expected)


def test_edge_weights_count(graph, config) -> None:
    data = graph(0, 5, 9)
    data.edge_weight = torch.rand(9)
    found = pack([data, graph(1)], config).select(torch.tensor([0]))
    expected = transitions(data.edge_index, 5, data.edge_weight)
    assert torch.equal(found.stored["transition"], expected)
    assert torch.equal(found.stored["degree"], node_degrees(data.edge_index, 5, data.edge_weight))


def test_targets_by_task(graph, config) -> None:
    data = [graph(seed, 4, 6) for seed in range(3)]
    for kind, loss, metric, outputs, dtype, columns in (
        ("classification", "cross-entropy", "accuracy", 3, torch.int64, None),
        ("multilabel", "bce", "ap", 2, torch.float32, 2),
        ("binary", "bce", "auc", 1, torch.float32, 1),
    ):
        for level, rows in (("graph", 1), ("node", 4), ("edge", 6)):
            task = {"level": level, "kind": kind, "loss": loss, "metric": metric}
            fitting = config.override(
                {f"task.{k}": v for k, v in {**task, "outputs": outputs}.items()}
            )
            for g in data:
                g.y = torch.ones(rows * (columns or 1)).long()
            y = pack(data, fitting).select(torch.tensor([2, 0])).y
            assert y is not None and y.dtype == dtype
            assert y.shape == ((2 * rows,) if columns is None else (2 * rows, columns))


def test_without_targets(graphs, config) -> None:
    for g in graphs:
        del g.y
    assert pack(graphs, config, targets=False).select(torch.tensor([1])).y is None


def test_pooling_statistics(graph, config) -> None:
    found = PoolingStatistics.of(pack([graph(0, 2, 3), graph(1, 4, 6)], config))
    assert (found.mean_nodes, found.mean_edges, found.mean_pairs) == (3.0, 4.5, 7.0)


def test_a_single_graph_is_not_copied_at_each_step(graph, config) -> None:
    packed = pack([graph(0)], config)
    ids = torch.tensor([0])
    assert packed.select(ids) is packed.select(ids)


def test_tensors_written_in_pieces_are_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    a, b = torch.arange(7), torch.randn(5, 3)
    shapes = {"flag": (torch.bool, (3,)), "b": (torch.float32, (5, 3)), "a": (torch.int64, (7,))}
    with TensorWriter(path, shapes) as writer:
        for piece in a.split(2):
            writer.append("a", piece)
        writer.append("flag", torch.tensor([True, False, True]))
        writer.append("b", b[:4])
        writer.append("b", b[4:])
    found = read_tensors(path)
    assert torch.equal(found["a"], a) and torch.equal(found["b"], b)
    assert found["flag"].tolist() == [True, False, True]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(GrassError, match="is damaged"):
        read_tensors(path)


def test_an_undirected_graph_is_needed_where_asked_for(config) -> None:
    config = config.override({"encoding.kind": "decomposed-rrwp", "encoding.directed": "error"})
    good = random_graph(0, 5, 0)
    good.edge_index = to_undirected(torch.tensor([[0, 1], [1, 2]]))
    good.edge_attr = torch.zeros(4, 2)
    bad = random_graph(1, 3, 1)
    bad.edge_index = torch.tensor([[0], [1]])
    with pytest.raises(GrassError, match=r"Graph 1 cannot be encoded: .*without an equal reverse"):
        pack([good, bad], config)
