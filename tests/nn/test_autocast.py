"""bfloat16 autocast on the CPU: every kind of input, norm, attention and head runs and trains."""

import itertools

import pytest
import torch
from torch_geometric.data import Batch

from grass_gnn import GRASS, GRASSConfig, GRASSConv
from grass_gnn.nn.baselines import LAYERS, Baseline
from grass_gnn.nn.norm import NORMS, collect_statistics
from grass_gnn.testing import random_input

FEATURES = {
    "none": [],
    "index": [4],
    "one-hot": [3],
    "continuous": [2],
    "ogb": [],
}


def make_config(nodes="index", edges="index", **changes):
    settings = {
        "input.nodes.kind": "ogb-atom" if nodes == "ogb" else nodes,
        "input.nodes.sizes": FEATURES[nodes],
        "input.edges.kind": "ogb-bond" if edges == "ogb" else edges,
        "input.edges.sizes": FEATURES[edges],
        "encoding.steps": 3,
        "rewiring.degree": 2,
        "model.dim": 8,
        "model.layers": 2,
        "model.head_hidden": 4,
        "model.edge_removal": 0.2,
    }
    return GRASSConfig().override(settings | {k.replace("__", "."): v for k, v in changes.items()})


def check(config, kind=GRASS, tolerance=0.1):
    """A training step and an evaluation with collected statistics, near those in float32."""
    torch.manual_seed(0)
    model = kind(config).train()
    graphs = Batch.from_data_list([random_input(config, 6, seed) for seed in range(4)])
    batch = model.prepare(graphs) if kind is GRASS else graphs
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(batch).float().square().mean()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name
        assert parameter.grad is None or parameter.grad.dtype == torch.float32, name
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        with collect_statistics(model):
            model(batch)
        found = model.eval()(batch).float()
    with torch.no_grad():
        expected = model(batch)
    assert (found - expected).norm() <= tolerance * expected.norm() + 0.02


@pytest.mark.parametrize("ops", ["native", "reference"])
@pytest.mark.parametrize(("nodes", "edges"), itertools.product(FEATURES, FEATURES))
def test_every_kind_of_features(nodes, edges, ops, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", ops)
    check(make_config(nodes, edges))
    # Without any input, rows differ by little more than rounding before they are normalised.
    tolerance = 0.1 if (nodes, edges) != ("none", "none") else 0.3
    bare = {"encoding__kind": "none", "encoding__degrees": "none"}
    check(make_config(nodes, edges, **bare), tolerance=tolerance)


@pytest.mark.parametrize("ops", ["native", "reference"])
@pytest.mark.parametrize("attention", ["grass", "gat", "gatedgcn", "transformer"])
@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_attention_and_head(norm, attention, ops, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", ops)
    changes = {"model__norm": norm, "model__attention": attention}
    for level, hidden in (("graph", 0), ("graph", 4), ("node", 4), ("edge", 0)):
        changes |= {"task__level": level, "model__head_hidden": hidden}
        check(make_config("index", "continuous", **changes))


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("checkpoint", [0, 1])
def test_pooling_and_checkpoints(pooling, checkpoint):
    check(make_config(model__pooling=pooling, model__checkpoint=checkpoint))


@pytest.mark.parametrize("name", LAYERS)
def test_baselines(name):
    for edges in ("index", "continuous"):
        check(make_config("index", edges, model__architecture=name), Baseline)


@pytest.mark.parametrize("dtypes", itertools.product((torch.float32, torch.bfloat16), repeat=2))
def test_a_layer_on_its_own_keeps_the_precision_of_its_weights(dtypes):
    conv = GRASSConv(8, edge_removal=0.3)
    x, e = torch.randn(5, 8, dtype=dtypes[0]), torch.randn(12, 8, dtype=dtypes[1])
    edge_index = torch.randint(5, (2, 12))
    with torch.autocast("cpu", torch.bfloat16):
        for attention in (False, True):
            out = conv(x, edge_index, e, return_attention_weights=attention)
            assert out[0].dtype == out[1].dtype == torch.float32


def test_embeddings_and_head_are_not_rounded():
    """Mixed precision on a CPU is for the layers; elsewhere it costs time and memory."""
    torch.manual_seed(0)
    config = make_config("continuous", "continuous")
    model = GRASS(config).train()
    batch = model.prepare([random_input(config, 6, seed) for seed in range(4)])
    x, e = model.embed(batch)
    out = model.output(x, e, batch)
    with torch.autocast("cpu", torch.bfloat16):
        again = model.embed(batch)
        assert model.output(x, e, batch).equal(out)
    assert again[0].equal(x)
    assert again[1].equal(e)
