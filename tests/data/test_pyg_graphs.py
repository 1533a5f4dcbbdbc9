"""Graphs as PyG users pass them to a model: one by one, in batches, encoded and rewired before."""

import pytest
import torch
from random_graphs import CONFIG, random_graph
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import AddSelfLoops, Compose, ToUndirected

from grass_gnn import GRASS, AddDegree, AddRandomRegularEdges, AddRRWP, GrassError
from grass_gnn.data.batch import GraphBatch, batch_from_data, rewire
from grass_gnn.data.packed.dataset import pack
from grass_gnn.encoding import AddDecomposedRRWP, AddLaplacianPE, node_degrees
from grass_gnn.nn.norm import collect_statistics
from grass_gnn.rewiring import graph_seeds

BY_GRAPH = CONFIG.override({"rewiring.when": "graph"})
TRANSFORMS = {
    "rrwp": AddRRWP(4),
    "decomposed-rrwp": AddDecomposedRRWP(4, directed="symmetrize"),
    "laplacian": AddLaplacianPE(4),
}


def some_graphs() -> list[Data]:
    return [random_graph(seed, 6, 9) for seed in range(3)]


def assert_same(found: GraphBatch, expected: GraphBatch) -> None:
    for name, a in found._asdict().items():
        b = getattr(expected, name)
        if isinstance(a, torch.Tensor) and name != "y":
            torch.testing.assert_close(a, b, msg=name)


@pytest.mark.parametrize("kind", [*TRANSFORMS, "none"])
def test_a_model_sees_what_a_dataset_holds(kind: str) -> None:
    config = BY_GRAPH.override({"encoding.kind": kind})
    graphs = some_graphs()
    for data in graphs:
        data.edge_weight = torch.rand(9)
    inputs = pack(graphs, config).select(torch.arange(3))
    seeds = graph_seeds(inputs.edge_index, inputs.graph_ptr)
    expected = rewire(inputs, config.encoding, config.rewiring, seeds)
    assert_same(batch_from_data(graphs, config), expected)


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_weights_count_alike_in_transforms_and_in_the_model(kind: str) -> None:
    config = BY_GRAPH.override({"encoding.kind": kind})
    data = random_graph(0, 6, 9)
    data.edge_weight = torch.rand(9)
    encode = Compose([AddDegree(), TRANSFORMS[kind]])
    encoded = encode(data.clone())
    assert torch.equal(encoded.degree, node_degrees(data.edge_index, 6, data.edge_weight))
    expected = batch_from_data(data, config)
    assert_same(batch_from_data(encoded, config), expected)
    rewired = AddRandomRegularEdges(2, when="graph")(encoded)
    assert_same(batch_from_data(rewired, config), expected)
    # Rewired without degrees or encodings: both are computed, from the edges and their weights.
    bare = AddRandomRegularEdges(2, when="graph")(data.clone())
    assert_same(batch_from_data(bare, config), expected)
    counted = AddDegree(weight_key=None)(data.clone())
    assert torch.equal(counted.degree, node_degrees(data.edge_index, 6))


def test_ways_to_pass_several_graphs() -> None:
    graphs = some_graphs()
    batch = Batch.from_data_list(graphs)
    expected = batch_from_data(batch, BY_GRAPH)
    assert expected.num_graphs == 3
    assigned = Data(x=batch.x, edge_index=batch.edge_index, edge_attr=batch.edge_attr)
    assigned.batch = batch.batch
    without_ptr = batch.clone()
    del without_ptr.ptr
    for several in (graphs, tuple(graphs), assigned, without_ptr):
        assert_same(batch_from_data(several, BY_GRAPH), expected)
    torch.manual_seed(0)
    model = GRASS(BY_GRAPH)
    model(batch)  # input norms learn their averages in training
    with collect_statistics(model.eval()):
        model(batch)
    one_by_one = torch.cat([model(data) for data in graphs])
    for several in (graphs, batch, assigned, without_ptr):
        torch.testing.assert_close(model(several), one_by_one, atol=1e-5, rtol=1e-4)
    assert model.prepare(graphs).num_graphs == 3
    rewired = AddRandomRegularEdges(2, when="graph")(assigned.clone())
    assert_same(batch_from_data(rewired, BY_GRAPH), expected)


def test_a_list_loses_no_attribute_that_only_some_graphs_have() -> None:
    plain, weighted = random_graph(0, 6, 9), random_graph(1, 6, 9)
    weighted.edge_weight = torch.rand(9)
    rewired = AddRandomRegularEdges(2)(random_graph(1, 6, 9))
    for other in (weighted, rewired, AddRRWP(4)(plain.clone()), AddDegree()(plain.clone())):
        for graphs in ([plain, other], [other, plain]):
            with pytest.raises(GrassError, match="attributes differ"):
                batch_from_data(graphs, CONFIG)


def test_what_is_not_a_graph_gets_one_clear_error() -> None:
    model = GRASS(CONFIG)
    hetero = HeteroData()
    hetero["a"].x = torch.zeros(2, 1)
    for wrong in (hetero, Batch.from_data_list([hetero, hetero]), "CCO", [1, 2], None):
        with pytest.raises(TypeError) as error:
            model(wrong)
        assert "\n" not in str(error.value)
    with pytest.raises(TypeError, match="to_homogeneous"):
        model(hetero)
    batch = Batch.from_data_list(some_graphs())
    joined = random_graph(0, 6, 9)
    joined.batch = torch.tensor([0, 0, 0, 1, 1, 1])
    for several in (batch, joined):
        with pytest.raises(TypeError, match="single graphs"):
            model([several, several])
    with pytest.raises(GrassError, match="empty"):
        model([])
    nameless = Batch(x=batch.x, edge_index=batch.edge_index, edge_attr=batch.edge_attr)
    with pytest.raises(ValueError, match="neither ptr nor batch"):
        model(nameless)
    different = some_graphs()
    del different[1].edge_attr
    with pytest.raises(GrassError):
        model(different)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([0, 1, 0, 1, 1, 1], "sorted"),
        ([0, 0, 0, 2, 2, 2], "no node of graph 1"),
        ([0, 0, 0], "graph of each node"),
        ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], "graph of each node"),
        ([0, 0, 0, 1, 1, 1], "two different graphs"),
    ],
)
def test_bad_assignments_to_graphs(assignment: list, message: str) -> None:
    data = random_graph(0, 6, 9)
    data.batch = torch.tensor(assignment)
    with pytest.raises(ValueError, match=message):
        batch_from_data(data, CONFIG)


def test_datasets_refuse_batches_and_rewired_graphs() -> None:
    graphs = some_graphs()
    joined = random_graph(0, 6, 9)
    joined.batch = torch.tensor([0, 0, 0, 1, 1, 1])
    for several in (Batch.from_data_list(graphs), joined):
        with pytest.raises(GrassError, match="Graph 1 is a batch"):
            pack([graphs[0], several], CONFIG)
    with pytest.raises(GrassError, match="Graph 1 was rewired"):
        pack([graphs[0], AddRandomRegularEdges(2)(graphs[1])], CONFIG)


def subgraph(data: Data) -> Data:
    return data.subgraph(torch.tensor([0, 2, 3, 4]))


def reversed_edges(data: Data) -> Data:
    data.edge_index = data.edge_index.flip(0)
    return data


CHANGES = {
    "undirected": ToUndirected(),
    "subgraph": subgraph,
    "self-loops": AddSelfLoops(),
    "reversed": reversed_edges,
}


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("change", CHANGES)
def test_graphs_changed_after_encoding_are_noticed(kind: str, change: str) -> None:
    config = BY_GRAPH.override({"encoding.kind": kind, "input.edges.kind": "none"} | NO_SIZES)
    graph = Data(x=torch.zeros(6, 1).long(), edge_index=torch.tensor(EDGES))
    changed = CHANGES[change](TRANSFORMS[kind](graph.clone()))
    for use in (lambda data: batch_from_data(data, config), AddRandomRegularEdges(2)):
        with pytest.raises(GrassError, match="AddRandomRegularEdges last"):
            use(changed.clone())
    degrees = CHANGES[change](AddDegree()(graph.clone()))
    with pytest.raises(GrassError, match="AddRandomRegularEdges last"):
        batch_from_data(degrees, config)
    # The order that the message names works.
    ready = Compose([CHANGES[change], AddDegree(), TRANSFORMS[kind], AddRandomRegularEdges(2)])
    assert batch_from_data(ready(graph.clone()), config).num_graphs == 1


EDGES = [[0, 1, 2, 3, 3, 4], [1, 2, 3, 4, 5, 0]]
NO_SIZES = {"input.edges.sizes": []}


def test_encodings_come_before_rewiring() -> None:
    rewired = AddRandomRegularEdges(2)(random_graph(0, 6, 9))
    for transform in (AddDegree(), *TRANSFORMS.values()):
        with pytest.raises(ValueError, match="before AddRandomRegularEdges"):
            transform(rewired.clone())


def test_encodings_of_other_settings_are_refused() -> None:
    graph = random_graph(0, 6, 9)
    for kind, transform in (
        ("decomposed-rrwp", AddDecomposedRRWP(4, m=3, directed="symmetrize")),
        ("decomposed-rrwp", AddDecomposedRRWP(2, directed="alternating")),
        ("laplacian", AddLaplacianPE(3)),
    ):
        config = CONFIG.override({"encoding.kind": kind})
        for ready in (transform, Compose([transform, AddRandomRegularEdges(2)])):
            with pytest.raises(GrassError, match="different settings"):
                batch_from_data(ready(graph.clone()), config)
    rewired = AddRandomRegularEdges(2)(AddRRWP(5)(graph.clone()))
    with pytest.raises(GrassError, match="columns"):
        batch_from_data(rewired, CONFIG)
    own = graph.clone()
    own.degree = torch.ones(6)
    with pytest.raises(GrassError, match="degree"):
        batch_from_data(own, CONFIG)


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_encodings_under_another_name_are_extended_too(kind: str) -> None:
    default, named = TRANSFORMS[kind], TRANSFORMS[kind].__class__(4, attr_name="pe")
    if kind == "decomposed-rrwp":
        named = AddDecomposedRRWP(4, directed="symmetrize", attr_name="pe")
    rewire_edges = AddRandomRegularEdges(2, when="graph")
    graphs = some_graphs()
    expected = Batch.from_data_list([rewire_edges(default(data.clone())) for data in graphs])
    found = rewire_edges(Batch.from_data_list([named(data.clone()) for data in graphs]))
    name = default.attr_name
    assert name not in found and f"edge_{name}" not in found
    torch.testing.assert_close(found.pe, expected[name])
    torch.testing.assert_close(found.edge_pe, expected[f"edge_{name}"])
    # The model computes its own under the default name.
    config = BY_GRAPH.override({"encoding.kind": kind})
    assert_same(batch_from_data(found, config), batch_from_data(expected, config))
    assert AddDegree(attr_name="deg")(graphs[0].clone()).deg.shape == (6, 2)
    for wrong in ("", "a-b", "node_index", "batch_pe"):
        with pytest.raises(ValueError, match="attr_name"):
            AddRRWP(4, attr_name=wrong)


def test_graphs_encoded_by_an_older_version_still_work() -> None:
    data = AddRRWP(4)(random_graph(0, 6, 9))
    older = data.clone()
    del older.rrwp_checksum
    older.rrwp_edge_index = older.edge_index.clone()
    transform = AddRandomRegularEdges(2, when="graph")
    assert torch.equal(transform(older).edge_rrwp, transform(data).edge_rrwp)
