"""One layer: equations, gradients, edge removal, flipping, equivariance."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grass_gnn import GRASSConv
from grass_gnn.nn.alternatives import ReplacementConv
from grass_gnn.nn.norm import moments
from grass_gnn.ops import reference
from grass_gnn.ops.reference import EPSILON, LayerWeights, attention_weights, grass_layer
from grass_gnn.testing import assert_permutation_equivariant, random_graph

NORMS = ["batch", "layer", "layer-graph", "instance", "none"]


def layer_input(num_nodes, num_edges, dim, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    edge_index = random_graph(num_nodes, num_edges, seed).edge_index
    x = torch.randn(num_nodes, dim, generator=generator, dtype=dtype)
    e = torch.randn(num_edges, dim, generator=generator, dtype=dtype)
    return x, edge_index, e


def test_layer_is_the_sum_over_edges_of_the_specification():
    """The numbered steps of the specification, written once more as loops over edges and nodes."""
    dim, alpha = 5, 0.3
    conv = GRASSConv(dim, residual_scale=alpha, norm="none").double()
    with torch.no_grad():
        conv.node_bias.normal_()
        conv.edge_bias.normal_()
    x, edge_index, e = layer_input(6, 14, dim, dtype=torch.float64)
    keep = torch.nn.functional.dropout(torch.ones_like(e), 0.4)
    w = conv.weights
    tt, th, eh, et = w.node_in.chunk(4)
    ee, te, ae = w.edge_in.chunk(3)
    mish = torch.nn.functional.mish
    new_x, new_e, weights = torch.empty_like(x), torch.empty_like(e), torch.empty_like(e)
    for j in range(len(x)):
        edges = [k for k in range(len(e)) if edge_index[1, k] == j]
        total = tt @ x[j]
        if edges:
            z = torch.stack([ae @ e[k] for k in edges])
            s = torch.exp(z - z.max(dim=0).values) * keep[edges] + EPSILON**0.5
            a = s / (s.sum(dim=0) + EPSILON)
            for row, k in enumerate(edges):
                weights[k] = a[row]
                total = total + a[row] * (th @ x[edge_index[0, k]] + te @ e[k])
        new_x[j] = x[j] + alpha * (w.node_out @ mish(total + w.node_bias))
    for k in range(len(e)):
        tilde = ee @ e[k] + eh @ x[edge_index[0, k]] + et @ x[edge_index[1, k]]
        new_e[k] = e[k] + alpha * (w.edge_out @ mish(tilde + w.edge_bias))
    *found, (_, attention) = conv(x, edge_index, e, keep=keep, return_attention_weights=True)
    found.append(attention)
    for value, expected in zip(found, (new_x, new_e, weights), strict=True):
        assert torch.allclose(value, expected, atol=1e-12)


def test_attention_survives_the_removal_of_all_edges():
    z, tail = torch.randn(4, 3), torch.tensor([0, 0, 0, 1])
    a = attention_weights(z, tail, 2, keep=torch.zeros(4, 3))
    assert torch.allclose(a[:3], torch.full((3, 3), 1 / 3), atol=1e-3)
    extreme = attention_weights(torch.tensor([[1e4], [-1e4]]), torch.tensor([0, 0]), 1, None)
    assert torch.isfinite(extreme).all()


def test_edge_removal_is_off_in_evaluation_and_unbiased_in_training():
    conv = GRASSConv(4, edge_removal=0.3)
    e = torch.zeros(20_000, 4)
    keep = conv.removal(e)
    assert keep.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert keep.mean() == pytest.approx(1, abs=0.02)
    assert (keep[:, 0] == keep[:, 1]).float().mean() < 0.7  # channels are independent
    assert conv.eval().removal(e) is None


def test_gradients_by_gradcheck(monkeypatch):
    """Without √ε, which ties the output to the maximum that no gradient flows through."""
    monkeypatch.setattr(reference, "EPSILON", 1e-24)
    conv = GRASSConv(3, norm="none").double()
    x, edge_index, e = layer_input(4, 7, 3, dtype=torch.float64)
    parameters = [p.detach().clone().requires_grad_() for p in conv.weights[:6]]

    def run(x, e, *weights):
        out = grass_layer(x, e, edge_index, LayerWeights(*weights), 0.2)
        return moments(out.x)[1], moments(out.e)[1], out.x, out.e

    inputs = (x.requires_grad_(), e.requires_grad_(), *parameters)
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=15, deadline=None)
@given(
    num_nodes=st.integers(1, 12),
    num_edges=st.integers(1, 40),
    dim=st.integers(1, 20),
    seed=st.integers(0, 1000),
)
def test_every_norm_is_equivariant(norm, num_nodes, num_edges, dim, seed):
    conv = GRASSConv(dim, norm=norm).double().eval()
    graph = layer_input(num_nodes, num_edges, dim, seed, torch.float64)
    assert_permutation_equivariant(conv, graph, seed=seed, tolerance=1e-6)


@pytest.mark.parametrize("attention", ["gat", "gatedgcn", "transformer"])
def test_replacement_attentions_are_equivariant(attention):
    conv = ReplacementConv(8, attention).double().eval()
    x, edge_index, e = layer_input(10, 30, 8, dtype=torch.float64)
    graph = torch.zeros(10, dtype=torch.int64)

    def layer(x, edge_index, e):
        return conv(x, edge_index, e, graph, 1)

    assert_permutation_equivariant(layer, (x, edge_index, e), tolerance=1e-8)


def test_flipping_carries_information_both_ways():
    """On the directed path 0 → 1 → 2, node 2 affects node 0 only if edges are flipped."""
    loops = torch.arange(3)
    edge_index = torch.cat([torch.tensor([[0, 1], [1, 2]]), loops.expand(2, -1)], dim=1)
    layers = [GRASSConv(4, norm="none").double() for _ in range(4)]
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    e = torch.randn(5, 4, dtype=torch.float64)

    def influence(flip, source, target):
        y, f = x, e
        for number, layer in enumerate(layers):
            y, f = layer(y, edge_index.flip(0) if flip and number % 2 else edge_index, f)
        return torch.autograd.grad(y[target].sum(), x)[0][source].abs().sum()

    assert influence(False, 0, 2) > 0
    assert influence(False, 2, 0) == 0
    assert influence(True, 0, 2) > 0
    assert influence(True, 2, 0) > 0


def test_fused_and_reference_layers_agree():
    conv = GRASSConv(16).eval()
    x, edge_index, e = layer_input(30, 100, 16)
    fused = conv(x, edge_index, e)
    *plain, _ = conv(
        x, edge_index, e, return_attention_weights=True
    )  # the reference keeps the weights
    for a, b in zip(fused, plain, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_repr_and_bad_arguments():
    assert repr(GRASSConv(8, 0.4, 0.1, "layer")) == (
        "GRASSConv(8, residual_scale=0.4, edge_removal=0.1, norm='layer')"
    )
    for arguments in ({"dim": 0}, {"dim": 4, "edge_removal": 1}, {"dim": 4, "norm": "group"}):
        with pytest.raises(ValueError, match=r"dim|edge_removal|norm"):
            GRASSConv(**arguments)
