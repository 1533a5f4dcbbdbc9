import pytest
import torch
from random_graphs import CONFIG

from grass_gnn.data.batch import ADDED_EDGE, INPUT_EDGE, SELF_LOOP, rewire
from grass_gnn.data.packed.dataset import pack
from grass_gnn.encoding import make_encoding, rrwp_pairs
from grass_gnn.ops import edge_order


@pytest.fixture
def inputs(graphs):
    return pack(graphs, CONFIG).select(torch.arange(len(graphs)))


def test_a_batch_is_the_graphs_with_loops_and_added_edges(inputs) -> None:
    seeds = torch.arange(len(inputs.graph_ptr) - 1)
    batch = rewire(inputs, CONFIG.encoding, CONFIG.rewiring, seeds)
    head, tail = batch.edge_index
    assert (tail.diff() >= 0).all()
    loops = (batch.edge_kind == SELF_LOOP).nonzero().squeeze(1)
    assert torch.equal(head[loops], torch.arange(inputs.num_nodes))
    assert torch.equal(tail[loops], torch.arange(inputs.num_nodes))
    assert (batch.edge_kind[batch.input_edges] == INPUT_EDGE).all()
    assert torch.equal(batch.edge_index[:, batch.input_edges], inputs.edge_index)
    assert batch.edge_attr is not None
    assert torch.equal(batch.edge_attr[batch.input_edges], inputs.edge_attr)
    assert not batch.edge_attr[batch.edge_kind != INPUT_EDGE].any()
    assert torch.equal(batch.node_graph[head], batch.node_graph[tail])
    added = batch.edge_index[:, batch.edge_kind == ADDED_EDGE]
    assert added.size(1) > 0 and (added[0] != added[1]).all()


def test_its_encodings_are_those_of_its_pairs(inputs) -> None:
    batch = rewire(inputs, CONFIG.encoding, CONFIG.rewiring)
    walks = (inputs.edge_index, inputs.stored["transition"], inputs.num_nodes)
    pairs = rrwp_pairs(batch.edge_index, *walks, 4, inputs.graph_ptr)
    assert torch.equal(batch.edge_encoding, pairs)
    loops = pairs[batch.edge_kind == SELF_LOOP]
    assert torch.equal(
        batch.node_encoding, torch.cat([loops[:, :4], inputs.stored["degree"]], dim=1)
    )


def test_its_orders_are_what_sorting_finds(inputs) -> None:
    batch = rewire(inputs, CONFIG.encoding, CONFIG.rewiring)
    expected = edge_order(batch.edge_index, inputs.num_nodes, inputs.graph_ptr)
    for name, part in expected._asdict().items():
        found = getattr(batch.order, name)
        assert found.dtype == part.dtype and torch.equal(found, part), name


@pytest.mark.parametrize("kind", ["regular", "non-regular", "complete", "none"])
@pytest.mark.parametrize("encoding", ["rrwp", "decomposed-rrwp", "laplacian", "none"])
@pytest.mark.parametrize("directed", ["symmetrize", "alternating"])
def test_all_encodings_and_rewirings(graphs, kind: str, encoding: str, directed: str) -> None:
    config = CONFIG.override(
        {"encoding.kind": encoding, "rewiring.kind": kind, "encoding.directed": directed}
    )
    inputs = pack(graphs, config).select(torch.arange(5))
    batch = rewire(inputs, config.encoding, config.rewiring)
    encoder = make_encoding(config.encoding)
    assert batch.node_encoding.shape == (inputs.num_nodes, encoder.node_columns)
    assert batch.edge_encoding.shape == (batch.edge_index.size(1), encoder.pair_columns)
    moved = batch.to("cpu")
    assert torch.equal(moved.order.head_order, batch.order.head_order)
