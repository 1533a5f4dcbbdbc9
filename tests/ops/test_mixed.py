"""The fused layers with bfloat16 operands against the reference in float64.

A processor without bfloat16 instructions computes the same products in float32, so these tests run
everywhere.
"""

import pytest
import torch
from stack_problems import Result, distance, make_problem, run_native, run_reference

from grass_gnn.ops import autocasts_to_bfloat16, build, grass_stack, pack_weights

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")

MANY_GRAPHS = (60,) * 12  # threads own whole graphs
ONE_GRAPH = (700,)  # threads share it


def assert_close(problem, bound=0.02, **options):
    """A bfloat16 operand is off by up to 0.4 %; float32 would be within 1e-4."""
    found = run_native(problem, mixed=True, **options)
    expected = run_reference(problem, **options)
    for name in ("x", "e", "grad_x", "grad_e", "grad_weights"):
        assert distance(getattr(found, name), getattr(expected, name)) < bound, name
    return found


@pytest.mark.parametrize("width", [1, 3, 8, 15, 16, 17, 24, 32, 33, 48, 96, 130])
def test_any_width(width):
    assert_close(make_problem(width, sizes=(30, 1, 41)))


@pytest.mark.parametrize("norm", ["batch", "instance", "none"])
@pytest.mark.parametrize("removal", [0.0, 0.3])
def test_any_setting(norm, removal):
    problem = make_problem(24, layers=3, sizes=(30, 3, 41), output_bias=norm == "none")
    assert_close(problem, norm=norm, flip=removal > 0, removal=removal, seed=11, first_layer=3)


def test_no_edges():
    problem = make_problem(32, layers=3, sizes=(30, 41), per_node=0)
    found, expected = run_native(problem, mixed=True), run_reference(problem)
    assert distance(found.x, expected.x) < 0.02
    assert distance(found.grad_x, expected.grad_x) < 0.02


@pytest.mark.parametrize("width", [32, 33])
def test_a_channel_that_is_the_same_in_all_rows_becomes_zero(width):
    """Its rounding must not look like a deviation, which a batch norm would multiply by 3,000."""
    one_node = torch.zeros(2, 5, dtype=torch.int64)
    problem = make_problem(width, layers=4, sizes=(1,), edge_index=one_node)
    found, expected = run_native(problem, mixed=True), run_reference(problem)
    assert not found.x.any()
    for name in ("e", "grad_x", "grad_e", "grad_weights"):
        assert distance(getattr(found, name), getattr(expected, name)) < 0.03, name


@pytest.mark.parametrize("sizes", [MANY_GRAPHS, ONE_GRAPH])
@pytest.mark.parametrize("width", [32, 33])
@pytest.mark.usefixtures("three_threads")
def test_threads_share_work_and_give_the_same_bytes_every_time(sizes, width):
    problem = make_problem(width, sizes=sizes)
    first, second = assert_close(problem), run_native(problem, mixed=True)
    assert all(torch.equal(getattr(first, n), getattr(second, n)) for n in Result._fields)


def test_gradients_of_forty_nine_layers_keep_their_direction():
    problem = make_problem(32, layers=49, sizes=(40, 50))
    found, expected = run_native(problem, mixed=True), run_reference(problem)
    for a, b in zip(found.grad_weights, expected.grad_weights, strict=True):
        assert torch.cosine_similarity(a.double(), b, dim=0) > 0.999


def test_saved_rows_take_half_the_memory():
    problem = make_problem(32, layers=4)
    x, e, weights = (t.float() for t in (problem.x, problem.e, pack_weights(problem.layers)))
    arguments = (
        x, e, weights, problem.edge_index, list(problem.order()), None, 0.3, True, "batch", 0.0, 0,
        0, False, True, True,
    )  # fmt: skip
    saved = torch.ops.grass_gnn.stack(*arguments)[3:5]
    assert [t.dtype for t in saved] == [torch.bfloat16] * 2
    assert saved[1].shape == (3, *e.shape)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_not_hidden(value):
    problem = make_problem(32)
    problem.e[3, 5] = value
    out = run_native(problem, mixed=True)
    assert not out.e.isfinite().all()
    assert not out.x.isfinite().all()


def test_without_gradients_nothing_is_rounded_between_layers():
    problem = make_problem(32, layers=3, sizes=(30, 41))
    expected = run_reference(problem)
    with torch.no_grad():
        out = grass_stack(
            problem.x.float(), problem.e.float(), problem.edge_index, problem.order(),
            pack_weights(problem.layers).float(), residual_scale=0.3, flip=True, norm="batch",
            mixed=True,
        )  # fmt: skip
    assert distance(out.x, expected.x) < 0.02
    assert distance(out.x, expected.x) < distance(run_native(problem, mixed=True).x, expected.x)


def test_opcheck():
    problem = make_problem(8)
    x, e, weights = (
        t.float().requires_grad_() for t in (problem.x, problem.e, pack_weights(problem.layers))
    )
    arguments = (
        x, e, weights, problem.edge_index, list(problem.order()), None, 0.3, True, "batch", 0.2, 5,
        1, False, True, True,
    )  # fmt: skip
    torch.library.opcheck(torch.ops.grass_gnn.stack.default, arguments, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("supported", [True, False])
def test_autocast_chooses_bfloat16_where_the_processor_has_it(monkeypatch, supported):
    monkeypatch.setattr(build, "has_bfloat16", lambda: supported)
    assert not autocasts_to_bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert autocasts_to_bfloat16() == supported
