"""The helpers that test models, and what they find."""

import pytest
import torch
from torch_geometric.data import Batch

from grass_gnn import GRASS, GRASSConfig, GRASSConv
from grass_gnn.testing import (
    assert_permutation_equivariant,
    permute_nodes,
    random_graph,
    random_input,
    random_permutation,
)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SMALL = {"model.dim": 8, "model.layers": 2, "encoding.steps": 3, "rewiring.degree": 2}


def make_config(**changes):
    return GRASSConfig().override(SMALL | {k.replace("__", "."): v for k, v in changes.items()})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("level", ["graph", "node", "edge"])
def test_models_are_equivariant_on_any_device(level, device):
    config = make_config(task__level=level)
    model = GRASS(config).to(device).eval()
    data = Batch.from_data_list([random_input(config, n, n, device) for n in (4, 6)])
    assert data.edge_index.device.type == device
    assert_permutation_equivariant(model, model.prepare(data), level)


def test_random_input_has_everything_a_configuration_asks_for():
    config = make_config(
        input__nodes__kind="continuous", input__nodes__sizes=[3], input__edges__kind="index",
        input__edges__sizes=[4], input__descriptors=5,
    )  # fmt: skip
    data = random_input(config, 7, seed=3)
    assert data.x.shape == (7, 3)
    assert data.edge_attr.shape == (data.num_edges, 1)
    assert data.descriptors.shape == (1, 5)
    assert data.is_undirected()
    assert GRASS(config)(data).shape == (1, 1)


def test_targets_of_nodes_are_permuted_with_them():
    config = make_config(task__level="node")
    batch = GRASS(config).prepare(random_input(config, 6))
    permutation = random_permutation(batch.node_graph, 1)
    permuted = permute_nodes(batch, permutation, "node")
    assert torch.equal(permuted.y[permutation], batch.y)
    assert torch.equal(permuted.node_encoding[permutation], batch.node_encoding)


def test_a_model_that_sees_numbers_of_nodes_is_caught():
    graph = random_graph(8, 20)
    x, e = torch.randn(8, 4), torch.randn(20, 4)
    assert_permutation_equivariant(GRASSConv(4).eval(), (x, graph.edge_index, e))

    def numbered(x, edge_index, e):
        return x + torch.arange(len(x)).unsqueeze(1), e

    with pytest.raises(AssertionError, match="differ"):
        assert_permutation_equivariant(numbered, (x, graph.edge_index, e))
