"""The fused layers against the reference in float64."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stack_problems import (
    assert_parity,
    distance,
    make_problem,
    random_edges,
    run_native,
    run_reference,
)

from grass_gnn.ops import build, grass_stack, pack_weights, use_native

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")

MANY_GRAPHS = (60,) * 12  # threads own whole graphs
ONE_GRAPH = (700,)  # threads share it


@pytest.mark.parametrize("width", [1, 3, 8, 15, 16, 17, 24, 32, 33, 48, 64, 80, 96, 128, 130, 256])
def test_any_width(width):
    assert_parity(make_problem(width))


@pytest.mark.parametrize("norm", ["batch", "instance", "none"])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("removal", [0.0, 0.3])
@pytest.mark.parametrize("first_layer", [0, 3])
def test_any_setting(norm, flip, removal, first_layer):
    problem = make_problem(24, layers=3)
    assert_parity(
        problem, norm=norm, flip=flip, removal=removal, seed=2**63 + 11, first_layer=first_layer
    )


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    width=st.integers(1, 130),
    layers=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    per_node=st.floats(0.2, 12),
    norm=st.sampled_from(["batch", "instance", "none"]),
    flip=st.booleans(),
    removal=st.sampled_from([0.0, 0.5]),
    output_bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_graphs(width, layers, sizes, per_node, norm, flip, removal, output_bias, seed):
    problem = make_problem(
        width, layers, tuple(sizes), per_node, output_bias=output_bias, seed=seed
    )
    # A relative gradient through a norm over so few rows is beyond float32, also the reference's:
    # it is the small rest of numbers that cancel. test_instance_norm_of_one_row bounds that rest.
    if norm == "batch" and min(problem.x.size(0), problem.e.size(0)) < 4:
        norm = "none"
    if norm == "instance" and fewest_rows(problem) < 3:
        norm = "none"
    assert_parity(problem, norm=norm, flip=flip, removal=removal, seed=seed)


def fewest_rows(problem):
    """Of nodes or of edges, in any graph."""
    graph = torch.bucketize(problem.edge_index[0], problem.graph_ptr[1:-1], right=True)
    edges = torch.bincount(graph, minlength=len(problem.graph_ptr) - 1)
    return min(int(edges.min()), int(problem.graph_ptr.diff().min()))


@pytest.mark.parametrize("width", [1, 24, 33])
def test_instance_norm_of_one_row(width):
    problem = make_problem(width, 1, sizes=(1,), edge_index=torch.zeros(2, 1, dtype=torch.long))
    found, expected = (run(problem, norm="instance") for run in (run_native, run_reference))
    assert distance(found.x, expected.x) < 1e-5
    # The norm divides by the value itself, so that is what rounding errors are multiplied with.
    raw = run_reference(problem, norm="none")
    factor = 1 / min(raw.x.abs().min(), raw.e.abs().min())
    incoming = problem.along_x.norm() + problem.along_e.norm()
    for name in ("grad_x", "grad_e", "grad_weights"):
        difference = getattr(found, name).double() - getattr(expected, name)
        assert difference.norm() < 5e-6 * factor * incoming, name


def test_forty_nine_layers():
    assert_parity(make_problem(32, layers=49, sizes=(20,) * 10, per_node=8), removal=0.1)


@pytest.mark.parametrize(
    ("sizes", "per_node"),
    [(MANY_GRAPHS, 7), (ONE_GRAPH, 7), (ONE_GRAPH, 2)],
    ids=["graphs of its own", "sums by thread", "sums by edge"],
)
@pytest.mark.parametrize("norm", ["batch", "instance"])
@pytest.mark.parametrize("width", [32, 33])
@pytest.mark.usefixtures("three_threads")
def test_all_ways_to_share_work(sizes, per_node, norm, width):
    assert_parity(make_problem(width, 3, sizes, per_node), norm=norm, removal=0.2)


def test_sorted_edges():
    edge_index = random_edges([30], 6, torch.Generator().manual_seed(0))
    edge_index = edge_index[:, torch.argsort(edge_index[1], stable=True)]
    assert_parity(make_problem(32, sizes=(30,), edge_index=edge_index))


@pytest.mark.parametrize("norm", ["batch", "instance", "none"])
def test_no_edges(norm):
    edge_index = torch.zeros(2, 0, dtype=torch.long)
    assert_parity(make_problem(32, sizes=(5, 2), edge_index=edge_index), norm=norm)


def test_one_node_graphs_with_loops():
    edge_index = torch.arange(6).repeat(2, 3)
    assert_parity(make_problem(24, sizes=(1,) * 6, edge_index=edge_index), norm="instance")


@pytest.mark.parametrize("hub_is_tail", [True, False])
@pytest.mark.usefixtures("three_threads")
def test_hub_of_degree_ten_thousand(hub_is_tail):
    spokes = torch.arange(10_000)
    edge_index = torch.stack([spokes, torch.zeros_like(spokes)])
    if not hub_is_tail:
        edge_index = edge_index.flip(0)
    assert_parity(make_problem(16, sizes=(10_000,), edge_index=edge_index), flip=False)


def test_mean_much_larger_than_the_deviations():
    problem = make_problem(32, layers=2, sizes=(300,))
    assert_parity(problem._replace(x=problem.x + 100, e=problem.e - 30))


def test_output_biases():
    assert_parity(make_problem(33, layers=3, output_bias=True), norm="instance")


def test_given_statistics():
    problem = make_problem(32, layers=3, sizes=(40, 30))
    other = make_problem(32, layers=3, sizes=(50, 20), seed=1)._replace(layers=problem.layers)
    collected = run_reference(other).statistics
    assert_parity(problem, statistics=collected)


def test_statistics_are_those_of_the_batch():
    problem = make_problem(33, layers=3, sizes=(40, 30))
    found, expected = run_native(problem).statistics, run_reference(problem).statistics
    assert found.shape == (3, 2, 2, 33)
    assert distance(found, expected) < 1e-5
    assert not found.requires_grad


def test_a_stack_in_two_pieces_is_the_same_stack():
    problem = make_problem(32, layers=5, sizes=(40, 30))
    whole = run_native(problem, removal=0.2, seed=7)
    x, e = problem.x.float(), problem.e.float()
    for first, last in ((0, 3), (3, 5)):
        x, e, _ = grass_stack(
            x, e, problem.edge_index, problem.order(),
            pack_weights(problem.layers[first:last]).float(), residual_scale=0.3, flip=True,
            norm="batch", removal=0.2, seed=7, first_layer=first,
        )  # fmt: skip
    torch.testing.assert_close(x, whole.x, rtol=0, atol=1e-5)
    torch.testing.assert_close(e, whole.e, rtol=0, atol=1e-5)


@pytest.mark.parametrize("sizes", [MANY_GRAPHS, ONE_GRAPH])
@pytest.mark.usefixtures("three_threads")
def test_same_bytes_every_time(sizes):
    problem = make_problem(32, 3, sizes, per_node=7)
    first, second = run_native(problem), run_native(problem)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("sizes", [MANY_GRAPHS, ONE_GRAPH])
@pytest.mark.usefixtures("three_threads")
def test_without_gradients_the_output_is_the_same(sizes):
    problem = make_problem(32, 4, sizes, per_node=7)
    with_gradients = run_native(problem, removal=0.1)
    with torch.no_grad():
        out = grass_stack(
            problem.x.float(), problem.e.float(), problem.edge_index, problem.order(),
            pack_weights(problem.layers).float(), residual_scale=0.3, flip=True, norm="batch",
            removal=0.1,
        )  # fmt: skip
    assert torch.equal(out.x, with_gradients.x)
    assert torch.equal(out.e, with_gradients.e)


def test_gradient_of_one_output_only():
    problem = make_problem(32)
    problem = problem._replace(along_e=torch.zeros_like(problem.along_e))
    x = problem.x.float().requires_grad_()
    out = grass_stack(
        x, problem.e.float(), problem.edge_index, problem.order(),
        pack_weights(problem.layers).float(), residual_scale=0.3, flip=True, norm="batch",
    )  # fmt: skip
    out.x.backward(problem.along_x.float())
    assert distance(x.grad, run_reference(problem).grad_x) < 1e-4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_not_hidden(value):
    problem = make_problem(32)
    problem.e[3, 5] = value
    with torch.no_grad():
        out = grass_stack(
            problem.x.float(), problem.e.float(), problem.edge_index, problem.order(),
            pack_weights(problem.layers).float(), residual_scale=0.3, flip=True, norm="batch",
        )  # fmt: skip
    assert not out.e.isfinite().all()
    assert not out.x.isfinite().all()


@pytest.mark.parametrize("norm", ["batch", "instance", "none"])
def test_opcheck(norm):
    problem = make_problem(8)
    x, e, weights = (
        t.float().requires_grad_() for t in (problem.x, problem.e, pack_weights(problem.layers))
    )
    arguments = (
        x, e, weights, problem.edge_index, list(problem.order()), None, 0.3, True, norm, 0.2, 5, 1,
        False, False, True,
    )  # fmt: skip
    torch.library.opcheck(torch.ops.grass_gnn.stack.default, arguments)


def test_wrong_input_is_an_error():
    problem = make_problem(8)
    x, e, weights = problem.x.float(), problem.e.float(), pack_weights(problem.layers).float()

    order = problem.order()

    def run(x=x, e=e, order=order, w=weights, **options):
        options = {"residual_scale": 0.3, "flip": True, "norm": "batch", **options}
        return grass_stack(x, e, problem.edge_index, order, w, **options)

    with pytest.raises(ValueError, match="e has shape"):
        run(e=e[:-1])
    with pytest.raises(ValueError, match="width 8"):
        run(w=weights[:, 1:])
    with pytest.raises(ValueError, match="float64"):
        run(x=x.double())
    with pytest.raises(ValueError, match="norm is 'layer'"):
        run(norm="layer")
    with pytest.raises(ValueError, match="removal is 1"):
        run(removal=1.0)
    with pytest.raises(ValueError, match="statistics are for"):
        run(norm="none", statistics=torch.zeros(2, 2, 2, 8))
    with pytest.raises(ValueError, match="order does not match"):
        run(order=order._replace(tail_order=order.tail_order.flip(0)))
    with pytest.raises(ValueError, match="connects two graphs"):
        run(order=order._replace(graph_ptr=torch.tensor([0, 5, 24], dtype=torch.int32)))


def test_use_native(monkeypatch):
    x = torch.zeros(3, 4)
    monkeypatch.delenv("GRASS_OPS", raising=False)
    assert use_native(x, "batch")
    assert not use_native(x.double(), "batch")
    assert not use_native(x, "layer")
    monkeypatch.setenv("GRASS_OPS", "reference")
    assert not use_native(x, "batch")
    monkeypatch.setenv("GRASS_OPS", "fast")
    with pytest.raises(ValueError, match="GRASS_OPS"):
        use_native(x, "batch")
