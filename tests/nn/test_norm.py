"""Norms and their statistics against a straightforward float64 computation over unequal batches."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.optim.swa_utils import AveragedModel

from grass_gnn import GRASSConv
from grass_gnn.api.fitting import default_settings
from grass_gnn.config import GRASSConfig, preset_names
from grass_gnn.errors import GrassError
from grass_gnn.experiments.budget import make_budget
from grass_gnn.nn.model import make_model
from grass_gnn.nn.norm import (
    NORMS,
    BatchNorm,
    GraphLayerNorm,
    InputNorm,
    InstanceNorm,
    LayerNorm,
    Mode,
    Norm,
    collect_statistics,
    make_norm,
    reset_statistics,
)
from grass_gnn.ops.norms import Moments, graph_mean
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


@pytest.mark.parametrize("value", [25.37, -77.7, 1000.1, 101325.0, 1e6 + 0.5])
@pytest.mark.parametrize("rows", [7, 100, 997, 5000, 20011])
def test_large_constants_of_an_input_become_zero(value, rows):
    """Their mean is rounded, so they deviate from it, all in the same direction."""
    v = torch.full((rows, 1), value)
    norm = InputNorm(1)
    assert torch.count_nonzero(norm(v)) == 0
    # A slightly different value later is not dozens of standard deviations away.
    assert torch.count_nonzero(norm.eval()(v * (1 + 1e-6))) == 0
    varying = v + 1e-4 * abs(value) * torch.randn(rows, 1)
    assert InputNorm(1)(varying).std() == pytest.approx(1, rel=1e-2)


def test_one_row_does_not_divide_by_zero():
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_mean_of_many_rows_in_half_precision(dtype):
    graph = torch.arange(10_000) % 2
    v = torch.where(graph == 0, 1.5, 3.0).to(dtype).unsqueeze(1).expand(-1, 3)
    mean = graph_mean(v, graph, 2)
    assert mean.dtype == dtype and mean.tolist() == [[1.5] * 3, [3.0] * 3]


@pytest.mark.parametrize("scale", [1e-4, 1e-6, 1.0])
def test_the_first_batch_is_not_lost_to_rounding(scale):
    """1 + (var − 1) is zero for a variance of 1e-8 in float32, and 0.99999994 for one of 1."""
    v = scale * torch.randn(64, 3)
    inputs, layer = InputNorm(3).train(), BatchNorm(3)
    inputs(v)
    with collect_statistics(layer):
        layer(v, one_graph(v), 1)
    for norm in (inputs, layer):
        assert torch.equal(norm.mean, v.mean(0))
        assert torch.allclose(norm.var, v.var(0), rtol=1e-5, atol=0)
    if scale > 1e-6:
        assert inputs.eval()(v).std() == pytest.approx(1, rel=0.1)


def test_gradients_of_a_constant_channel_are_zero():
    v = torch.randn(20, 3)
    v[:, 1] = 2.5
    v.requires_grad_()
    (InputNorm(3).train()(v) ** 3).sum().backward()
    assert torch.isfinite(v.grad).all()
    assert torch.count_nonzero(v.grad[:, 1]) == 0
    assert torch.count_nonzero(v.grad[:, [0, 2]]) == 40


def test_modes_of_a_layer_norm():
    norm, v = BatchNorm(2), torch.randn(5, 2)
    assert norm.train().mode is Mode.BATCH
    assert norm.eval().mode is Mode.BATCH  # there is nothing else yet
    with collect_statistics(norm):
        assert norm.mode is Mode.COLLECTING
        norm(v, one_graph(v), 1)
    assert norm.mode is Mode.STORED
    assert norm.train().mode is Mode.BATCH
    norm.freeze()
    assert norm.mode is Mode.STORED  # in training too
    with collect_statistics(norm):
        assert norm.mode is Mode.STORED
    reset_statistics(norm)
    assert norm.mode is Mode.STORED


def test_modes_of_an_input_norm():
    norm, v = InputNorm(2), torch.randn(5, 2)
    assert norm.eval().mode is Mode.BATCH
    norm(v)
    assert norm.num_batches == 0
    assert norm.train().mode is Mode.COLLECTING
    norm(v)
    assert norm.eval().mode is Mode.STORED
    norm.freeze()
    assert norm.train().mode is Mode.STORED
    norm(v)
    assert norm.num_batches == 1


@pytest.mark.parametrize("kind", [BatchNorm, InputNorm])
def test_switching_modes_never_reads_a_tensor(kind, monkeypatch):
    """On a GPU, reading one would wait for all work before it, once per norm."""
    norm = kind(4)

    def read(*_):
        raise AssertionError("a tensor was read")

    for name in ("__bool__", "item", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, read)
    assert norm.train().eval().train().eval().mode is Mode.BATCH


@pytest.mark.parametrize("kind", [BatchNorm, InputNorm])
def test_statistics_that_are_copied_into_a_norm_are_used(kind, batches):
    """As by ``AveragedModel``, which copies buffers in place, and ``functional_call``."""
    norm, v = kind(4), batches[0]
    inputs = (v,) if kind is InputNorm else (v, one_graph(v), 1)
    average, other = AveragedModel(norm), kind(4).eval()
    with collect_statistics(norm):
        norm.train(kind is InputNorm)(*inputs)
    average.update_parameters(norm)
    assert average.eval().module.mode is Mode.STORED
    inputs = (batches[1], *inputs[1:-2], *((one_graph(batches[1]), 1) if inputs[1:] else ()))
    expected = norm.eval()(*inputs)
    assert torch.equal(average(*inputs), expected)
    assert torch.equal(functional_call(other, norm.state_dict(), inputs), expected)
    assert other.mode is Mode.BATCH
    average.module.num_batches.zero_()
    assert average.module.mode is Mode.BATCH


@pytest.mark.parametrize("ops", ["native", "reference"])
def test_batches_without_rows_are_not_averaged(ops, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", ops)
    conv, x, e = GRASSConv(4), torch.randn(9, 4), torch.randn(20, 4)
    edge_index = torch.randint(9, (2, 20))
    with torch.no_grad(), collect_statistics(conv):
        conv(x, edge_index[:, :0], e[:0])
        assert (conv.node_norm.num_batches, conv.edge_norm.num_batches) == (1, 0)
        conv(x, edge_index, e)
        before = conv.edge_norm.mean.clone(), conv.edge_norm.var.clone()
        conv(x, edge_index[:, :0], e[:0])
    assert (conv.node_norm.num_batches, conv.edge_norm.num_batches) == (3, 1)
    assert torch.equal(conv.edge_norm.mean, before[0])
    assert torch.equal(conv.edge_norm.var, before[1])

    inputs = InputNorm(4).train()
    inputs(x)
    inputs(x[:0])
    assert inputs.num_batches == 1 and inputs.mean.isfinite().all()


@pytest.mark.parametrize("kind", [BatchNorm, InputNorm])
def test_statistics_survive_copies_files_and_old_state(kind, batches):
    norm = kind(4).train()
    with collect_statistics(norm):
        for v in batches:
            norm.train(kind is InputNorm)
            norm(v) if kind is InputNorm else norm(v, one_graph(v), 1)
    norm.eval()
    assert list(norm.state_dict()) == ["mean", "var", "num_batches"]
    loaded, assigned = kind(4).eval(), kind(4).eval()
    loaded.load_state_dict(norm.state_dict())
    assigned.load_state_dict(norm.state_dict(), assign=True)
    copies = (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm)), loaded, assigned)
    for other in copies:
        assert other.mode is Mode.STORED
        assert torch.equal(other.var, norm.var)


def test_reset_parameters_after_to_empty_gives_a_fresh_layer():
    with torch.device("meta"):
        conv = GRASSConv(4)
    conv = conv.to_empty(device="cpu")
    for buffer in conv.buffers():
        buffer.fill_(77)
    conv.reset_parameters()
    for norm in (conv.node_norm, conv.edge_norm):
        assert norm.eval().mode is Mode.BATCH
        assert norm.num_batches == 0
        assert torch.equal(norm.mean, torch.zeros(4))
        assert torch.equal(norm.var, torch.ones(4))
    assert all(torch.isfinite(p).all() for p in conv.parameters())


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("stored", [False, True])
def test_a_norm_in_blocks_is_the_norm_of_all_rows(kind, stored):
    norm, v = make_norm(kind, 4), 2 + torch.randn(30, 4)
    if stored:
        with collect_statistics(norm):
            norm(1 + 3 * v, one_graph(v), 1)
    norm.eval()
    seen = Moments()
    for block in v.split(7):
        seen.add(block)
    function = norm.for_blocks(seen)
    found = torch.cat([function(block) for block in v.split(11)])
    torch.testing.assert_close(found, norm(v, one_graph(v), 1), rtol=1e-5, atol=1e-5)


def test_a_norm_without_block_statistics_is_refused_in_blocks():
    class Whole(Norm):
        def forward(self, v, row_graph, num_graphs):
            return v / v.abs().max()

    with pytest.raises(GrassError, match="Whole"):
        Whole().for_blocks(Moments())


@pytest.mark.parametrize("architecture", ["grass", "gin"])
def test_rare_inputs_are_clipped_alike_in_training_and_evaluation(architecture):
    """A column that is zero but for one row, as the return probability of the only triangle."""
    settings = {"model.input_limit": 3.0, "model.layers": 1, "model.architecture": architecture}
    model = make_model(GRASSConfig().override(settings))
    norms = [module for module in model.modules() if isinstance(module, InputNorm)]
    assert norms and {norm.limit for norm in norms} == {3.0}
    norm, plain = norms[0], InputNorm(norms[0].mean.numel())
    rows = torch.randn(400, plain.mean.numel())
    rows[:, 0] = 0.0
    rows[7, 0] = 0.5
    for training in (True, False):
        norm.train(training)
        plain.train(training)
        expected = plain(rows)
        assert expected[7, 0] > 15
        torch.testing.assert_close(norm(rows), expected.clamp(-3, 3))


def test_presets_have_no_limit_and_own_data_do():
    assert all(GRASSConfig.preset(name).model.input_limit == 0 for name in preset_names())
    assert default_settings(500, 20.0)["model.input_limit"] > 0


class ScaledNorm(BatchNorm):
    """A norm that someone derives from batch norm: with a learned scale."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.scale = torch.nn.Parameter(torch.full((dim,), 2.0))

    def forward(self, v, row_graph, num_graphs):
        return self.scale * super().forward(v, row_graph, num_graphs)


def test_a_norm_derived_from_batch_norm_is_what_the_layer_computes(monkeypatch):
    """The fused kernel and evaluation in blocks have the norm that it is derived from."""
    monkeypatch.setitem(NORMS, "scaled", ScaledNorm)
    plain, scaled = GRASSConv(4), GRASSConv(4, norm="scaled")
    scaled.load_state_dict(plain.state_dict(), strict=False)
    edge_index = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    x, e = torch.randn(4, 4), torch.randn(5, 4)
    expected, found = plain(x, edge_index, e), scaled(x, edge_index, e)
    for one, other in zip(expected, found, strict=True):
        assert torch.allclose(2 * one, other, atol=1e-5)
    found[0].square().sum().backward()
    assert scaled.node_norm.scale.grad.abs().min() > 0
    with pytest.raises(GrassError):
        scaled.node_norm.for_blocks(Moments())
    budget = make_budget("paper")
    monkeypatch.setitem(NORMS, "layer", ScaledNorm)
    config = budget.apply(GRASSConfig.preset("zinc", **{"model.norm": "layer"}))
    assert config.evaluation.statistics_passes == 100
