"""Norms and their statistics against a straightforward float64 computation over unequal batches."""

import numpy as np
import pytest
import torch

from grass_gnn.nn.norm import (
    BatchNorm,
    GraphLayerNorm,
    InputNorm,
    InstanceNorm,
    LayerNorm,
    collect_statistics,
    reset_statistics,
)
from grass_gnn.ops.reference import EPSILON

ROWS = [17, 5, 40, 2]


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(3)
    return [
        3 + torch.randn(rows, 4, generator=generator) * torch.tensor([0.1, 1, 10, 100])
        for rows in ROWS
    ]


def expected_moments(batches):
    arrays = [batch.double().numpy() for batch in batches]
    means = np.mean([a.mean(axis=0) for a in arrays], axis=0)
    variances = np.mean([a.var(axis=0, ddof=1) for a in arrays], axis=0)
    return means, variances


def one_graph(v):
    return torch.zeros(len(v), dtype=torch.int64)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_uses_the_batch_until_statistics_are_collected(batches, training):
    norm = BatchNorm(4).train(training)
    for v in batches:
        a = v.double().numpy()
        expected = (a - a.mean(axis=0)) / np.sqrt(a.var(axis=0, ddof=1) + EPSILON)
        np.testing.assert_allclose(norm(v, one_graph(v), 1), expected, atol=2e-4)
    assert norm.num_batches == 0


def test_collected_statistics_are_plain_averages_of_batches(batches):
    norm = BatchNorm(4)
    with collect_statistics(norm):
        for v in batches:
            norm(v, one_graph(v), 1)
    mean, var = expected_moments(batches)
    np.testing.assert_allclose(norm.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(norm.var, var, rtol=1e-5)
    v = batches[1]
    expected = (v.double().numpy() - mean) / np.sqrt(var + EPSILON)
    np.testing.assert_allclose(norm(v, one_graph(v), 1), expected, atol=1e-4)
    # They travel with the state, are left alone by training mode, and can be forgotten.
    other = BatchNorm(4)
    other.load_state_dict(norm.state_dict())
    other.eval()
    assert torch.equal(other(v, one_graph(v), 1), norm(v, one_graph(v), 1))
    own = (v - v.mean(0)) / (v.var(0) + EPSILON).sqrt()
    assert torch.allclose(norm.train()(v, one_graph(v), 1), own, atol=1e-4)
    reset_statistics(norm)
    assert torch.allclose(norm.eval()(v, one_graph(v), 1), own, atol=1e-4)


@pytest.mark.parametrize("with_gradient", [False, True])
def test_input_norm_of_many_rows(with_gradient):
    generator = torch.Generator().manual_seed(5)
    v = 100 + torch.randn(10_001, 3, generator=generator)  # several parts, and a rest
    before = v.clone()
    a = v.double().numpy()
    out = InputNorm(3).train()(v.requires_grad_(with_gradient))
    expected = (a - a.mean(axis=0)) / a.std(axis=0, ddof=1)
    np.testing.assert_allclose(out.detach(), expected, atol=1e-4)
    assert torch.equal(v.detach(), before)
    if with_gradient:  # of a sum over normalised rows there is none, whatever weights channels have
        (out * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        np.testing.assert_allclose(v.grad, np.zeros((10_001, 3)), atol=1e-4)
        v.grad = None
        (InputNorm(3).train()(v)[:5] ** 2).sum().backward()
        exact = torch.from_numpy(a).requires_grad_()
        same = (exact - exact.mean(0)) / exact.std(0)
        (same[:5] ** 2).sum().backward()
        np.testing.assert_allclose(v.grad, exact.grad, atol=1e-4)


def test_input_norm_averages_all_training_batches(batches):
    norm = InputNorm(4).train()
    for v in batches:
        a = v.double().numpy()
        expected = (a - a.mean(axis=0)) / a.std(axis=0, ddof=1)
        np.testing.assert_allclose(norm(v), expected, atol=2e-4)
    mean, var = expected_moments(batches)
    norm.eval()
    v = batches[2]
    np.testing.assert_allclose(norm(v), (v.double().numpy() - mean) / np.sqrt(var), atol=1e-4)
    assert norm.num_batches == len(batches)


def test_constant_channels_of_an_input_become_zero_also_up_to_rounding():
    v = torch.randn(100, 4)
    v[:, 0] = 5.0
    v[:, 1] = 1e-8 * torch.randn(100)
    v[:, 2] = 0.1 + 1e-8 * torch.randn(100)
    norm = InputNorm(4)
    out = norm(v)
    assert torch.count_nonzero(out[:, :3]) == 0
    assert out[:, 3].std() == pytest.approx(1, rel=1e-4)
    assert torch.count_nonzero(norm.eval()(v)[:, :3]) == 0


def test_one_row_is_no_division_by_zero():
    v = torch.randn(1, 4)
    assert torch.count_nonzero(BatchNorm(4)(v, one_graph(v), 1)) == 0
    assert torch.count_nonzero(InputNorm(4)(v)) == 0


def test_norms_by_graph_and_by_row():
    v = torch.randn(10, 3, dtype=torch.float64)
    graph = torch.tensor([0] * 4 + [1] * 6)
    for rows in (slice(0, 4), slice(4, 10)):
        part = v[rows]
        instance = part / (part.square().mean(0) + EPSILON).sqrt()
        assert torch.allclose(InstanceNorm()(v, graph, 2)[rows], instance)
        whole = part / (part.square().mean() + EPSILON).sqrt()
        assert torch.allclose(GraphLayerNorm()(v, graph, 2)[rows], whole)
    row = (v - v.mean(1, keepdim=True)) / (v.var(1, correction=0, keepdim=True) + EPSILON).sqrt()
    assert torch.allclose(LayerNorm()(v, graph, 2), row)
