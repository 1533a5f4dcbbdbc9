"""Derivatives beyond the usual backward pass: float32 on the CPU against float64."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap
from torch_geometric.data import Batch, Data

from grass_gnn import GRASS, GRASSConfig, GRASSConv
from grass_gnn.nn.norm import collect_statistics
from grass_gnn.ops import reference

NODES, EDGES, DIM = 6, 17, 5


@pytest.fixture(params=["batch", "instance", "none", "layer", "layer-graph"])
def problem(request):
    """A layer, its input in float32, and the same in float64, whose layer is the reference."""
    generator = torch.Generator().manual_seed(2)
    torch.manual_seed(2)
    conv = GRASSConv(DIM, residual_scale=0.7, norm=request.param).eval()
    x = torch.randn(NODES, DIM, generator=generator)
    e = torch.randn(EDGES, DIM, generator=generator)
    edge_index = torch.randint(NODES, (2, EDGES), generator=generator)
    exact = GRASSConv(DIM, residual_scale=0.7, norm=request.param).eval().double()
    exact.load_state_dict(conv.state_dict())
    weight = torch.randn(NODES, DIM, generator=generator)  # of the outputs in a scalar

    def both(function):
        return (
            function(lambda x: conv(x, edge_index, e.to(x.dtype))[0], x, weight),
            function(lambda x: exact(x, edge_index, e.to(x.dtype))[0], x.double(), weight.double()),
        )

    return both


def assert_close(found, expected):
    assert expected.abs().max() > 1e-3
    assert found.dtype == torch.float32
    assert (found.double() - expected).norm() <= 2e-3 * expected.norm()


def test_forward_mode(problem):
    for transform in (
        lambda f, x, _: jvp(f, (x,), (torch.ones_like(x).cumsum(0),))[1],
        lambda f, x, _: jacfwd(f)(x),
    ):
        assert_close(*problem(transform))


def test_dual_numbers(problem):
    def tangent(f, x, weight):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, weight))).tangent

    assert_close(*problem(tangent))


def test_reverse_mode_of_torch_func(problem):
    assert_close(*problem(lambda f, x, weight: grad(lambda x: (weight * f(x)).sum())(x)))
    assert_close(*problem(lambda f, x, _: jacrev(f)(x)))


def test_vmap(problem):
    def run(f, x, _):
        return vmap(f)(torch.stack([x, 2 * x, x - 1]))

    assert_close(*problem(run))
    found, _ = problem(run)
    one, _ = problem(lambda f, x, _: f(2 * x))
    assert torch.allclose(found[1], one, atol=1e-4)


def test_double_backward(problem):
    """The gradient of a loss on forces, the gradients of an energy."""

    def loss_gradient(f, x, weight):
        x = x.clone().requires_grad_()
        (force,) = torch.autograd.grad((weight * f(x).tanh()).sum(), x, create_graph=True)
        return torch.autograd.grad(force.square().sum(), x)[0]

    assert_close(*problem(loss_gradient))


def test_force_loss_trains_all_weights():
    """With edge removal: the first gradient uses the same kept edges."""
    torch.manual_seed(0)
    conv = GRASSConv(DIM, edge_removal=0.3, norm="instance").train()
    x, e = torch.randn(NODES, DIM, requires_grad=True), torch.randn(EDGES, DIM, requires_grad=True)
    edge_index = torch.randint(NODES, (2, EDGES))
    energy = conv(x, edge_index, e)[0].tanh().square().sum()
    wanted = (x, e, *conv.parameters())
    plain = torch.autograd.grad(energy, wanted, retain_graph=True)
    graph = torch.autograd.grad(energy, wanted, create_graph=True)
    for a, b in zip(plain, graph, strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4)
    graph[0].square().sum().backward()
    for name, parameter in conv.named_parameters():
        if name not in ("edge_bias", "edge_out.weight"):  # they do not touch the nodes
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("norm", ["batch", "instance", "none"])
def test_gradgradcheck_of_the_reference(norm, monkeypatch):
    """Without √ε, which ties the output to the maximum that no gradient flows through."""
    monkeypatch.setattr(reference, "EPSILON", 1e-24)
    conv = GRASSConv(2, norm=norm).double().eval()
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    e = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    edge_index = torch.tensor([[0, 1, 2, 0, 1, 2], [1, 2, 0, 0, 1, 2]])
    arguments = (lambda x, e: conv(x, edge_index, e), (x, e))
    assert gradcheck(*arguments, check_forward_ad=True)
    assert gradgradcheck(*arguments)


def test_forces_through_the_whole_model():
    """Positions are node features: the force on a node, and a loss on it, of two graphs."""
    settings = {
        "input.nodes.kind": "continuous", "input.nodes.sizes": [3], "encoding.steps": 3,
        "rewiring.degree": 2, "rewiring.when": "graph", "model.dim": 8, "model.layers": 3,
        "model.head_hidden": 4, "model.edge_removal": 0.2,
    }  # fmt: skip
    torch.manual_seed(0)
    model = GRASS(GRASSConfig().override(settings))
    ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
    batch = Batch.from_data_list([Data(x=torch.randn(4, 3), edge_index=ring) for _ in range(2)])

    def second(model, batch):
        batch = batch._replace(x=batch.x.clone().requires_grad_())
        energy = model(batch).sum()
        (force,) = torch.autograd.grad(energy, batch.x, create_graph=True)
        force.square().sum().backward()
        return [p.grad for p in model.parameters()]

    second(model.train(), model.prepare(batch))
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
    with torch.no_grad(), collect_statistics(model):
        model(batch)
    model.zero_grad()
    prepared = model.prepare(batch)
    exact = GRASS(model.config).double().eval()
    exact.load_state_dict(model.state_dict())
    high = prepared._replace(
        x=prepared.x.double(),
        node_encoding=prepared.node_encoding.double(),
        edge_encoding=prepared.edge_encoding.double(),
    )
    for a, b in zip(second(model, prepared), second(exact, high), strict=True):
        if b is not None and b.norm() > 1e-6:
            assert (a.double() - b).norm() <= 5e-3 * b.norm()


def test_per_sample_gradients_of_parameters():
    conv = GRASSConv(DIM, norm="instance").eval()
    x, e = torch.randn(3, NODES, DIM), torch.randn(EDGES, DIM)
    edge_index = torch.randint(NODES, (2, EDGES))
    parameters = {name: p.detach() for name, p in conv.named_parameters()}

    def loss(parameters, x):
        return functional_call(conv, parameters, (x, edge_index, e))[0].square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for row in range(3):
        conv.zero_grad()
        conv(x[row], edge_index, e)[0].square().sum().backward()
        assert torch.allclose(each["node_bias"][row], conv.node_bias.grad, atol=1e-3)
