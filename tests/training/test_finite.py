"""Numbers that are not finite: a step with them changes nothing, and they never reach a file."""

import json
import math

import pytest
import torch
from safetensors import safe_open
from test_run import config, graphs, prepared, stop_after, weights
from torch import nn
from torch_geometric.data import Data

from grass_gnn import GRASSConfig, GrassError, fit
from grass_gnn.nn.norm import InputNorm
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.optim import FiniteSteps, check_weights, largest_gradient
from grass_gnn.training.optimizers import OPTIMIZERS, make_optimizer
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import read_checkpoint
from grass_gnn.training.run import train
from grass_gnn.training.signals import Interrupted


@pytest.fixture
def bad_losses(monkeypatch):
    """Makes the losses of chosen batches NaN or infinite."""
    original = TrainingLoop._loss

    def choose(bad):
        def loss(self, batch):
            return original(self, batch) * bad.get(self.batches_done, 1.0)

        monkeypatch.setattr(TrainingLoop, "_loss", loss)

    return choose


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.bn = InputNorm(3), nn.Linear(3, 1), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.linear(self.bn(self.norm(x)))


@pytest.mark.parametrize("optimizer", ["lion", "adamw"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["gradient", "loss"])
def test_a_bad_step_changes_neither_weights_nor_optimiser_nor_averages(optimizer, value, where):
    model = Tiny()
    training = GRASSConfig().training.model_copy(update={"optimizer": optimizer})
    optim = make_optimizer(model, training)
    steps = FiniteSteps(OPTIMIZERS[optimizer].largest_gradient)

    def step(spoil):
        steps.begin(model)
        optim.zero_grad()
        loss = model(torch.randn(5, 3)).sum()
        loss.backward()
        if spoil and where == "gradient":
            model.linear.weight.grad[0, 1] = value
        number = value if spoil and where == "loss" else float(loss.detach())
        assert steps.accept(model, number, float(largest_gradient(model))) is not spoil
        optim.step()

    def state():
        moments = [t for s in optim.state_dict()["state"].values() for t in s.values()]
        return [t.clone() for t in (*model.state_dict().values(), *moments)]

    step(spoil=False)
    before = state()
    step(spoil=True)
    assert all(map(torch.equal, before, state()))
    step(spoil=True)
    step(spoil=False)
    assert not all(map(torch.equal, before, state()))
    assert (steps.skipped, steps.in_a_row) == (2, 0)


def test_bad_steps_are_skipped_counted_and_survive_a_resume(tmp_path, bad_losses):
    bad_losses({2: math.nan, 3: math.inf, 7: math.nan})
    chosen = config(training__skipped_steps=3)
    data = prepared(chosen, tmp_path / "cache")
    run = train(chosen, data, tmp_path / "run", RunOptions(seed=3))
    assert run.results["training"]["skipped_steps"] == 3
    rows = [line.split(",") for line in (run.folder / "metrics.csv").read_text().splitlines()]
    assert [row[rows[0].index("skipped_steps")] for row in rows[1:]] == ["2", "3", "3"]
    assert all(math.isfinite(float(row[3])) for row in rows[1:])

    right_after_two_bad_ones = RunOptions(seed=3, progress=stop_after(4))
    with pytest.raises(Interrupted, match="--resume"):
        train(chosen, data, tmp_path / "stopped", right_after_two_bad_ones)
    again = train(chosen, data, tmp_path / "stopped", RunOptions(seed=3, resume=True))
    assert weights(again.folder) == weights(run.folder)
    assert again.results["training"]["skipped_steps"] == 3


def test_bad_steps_that_persist_end_training_and_keep_the_batch(tmp_path, bad_losses):
    bad_losses(dict.fromkeys(range(6, 99), math.nan))
    chosen = config(training__skipped_steps=4, training__checkpoint_minutes=1e-9)
    data = prepared(chosen, tmp_path / "cache")
    with pytest.raises(GrassError, match="epoch 2, batch 5, after 4 steps") as caught:
        train(chosen, data, tmp_path / "run")
    path = tmp_path / "run" / "nonfinite_batch.safetensors"
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"epoch": "2", "batch": "5", "seed": "0", "loss": "nan"}
        assert file.get_tensor("y").shape == (8, 1)
        assert file.get_tensor("edge_index").max() < len(file.get_tensor("node_encoding"))
    checkpoint = read_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint["grass_gnn"]["batches_done"] == 9  # which the bad steps did not change
    assert all(torch.isfinite(v.float()).all() for v in checkpoint["model"].values())


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    model = Tiny()
    check_weights(model, tmp_path)
    model.linear.weight.data[0, 0] = math.inf
    with pytest.raises(GrassError, match=r"linear\.weight are not finite"):
        check_weights(model, tmp_path)


SMALL = {
    "encoding.steps": 3,
    "rewiring.degree": 1,
    "model.dim": 4,
    "model.layers": 1,
    "model.head_hidden": 0,
    "training.epochs": 6,
    "training.batch_size": 6,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 1,
}


def scaled(x, y, dtype=torch.float32):
    found = graphs(config(), 24)
    for seed, one in enumerate(found):
        torch.manual_seed(seed)
        one.x = torch.randn(one.num_nodes, 2, dtype=dtype) * x
        one.y = torch.randn(1, 1, dtype=dtype) * y
    return found


def trained_finitely(data, folder, **settings):
    model = fit(data, folder, settings=SMALL | settings)
    tensors = model.model.state_dict().values()
    mean, _ = model.predict(data["test"] if isinstance(data, dict) else data[:3], rewirings=1)
    return all(torch.isfinite(tensor.float()).all() for tensor in (*tensors, mean))


@pytest.mark.parametrize(("x", "y"), [(1, 1e30), (1, 1e-30), (1e-30, 1), (1e14, 1)])
def test_extreme_numbers_train(x, y, tmp_path):
    assert trained_finitely(scaled(x, y), tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["training"]["skipped_steps"] == 0
    assert math.isfinite(results["test"]["mean"])


@pytest.mark.parametrize(
    ("x", "y", "settings", "sentence"),
    [
        (1, 1e30, {"task.loss": "mse"}, "not finite or too large"),  # squares overflow
        (1, 1e30, {"training.optimizer": "adamw"}, "not finite or too large"),
        (1, 1e39, {}, "target y is not finite"),  # as float32
        (1e30, 1, {}, "features of row 0 are beyond 1e"),
        (1e39, 1, {}, "features of row 0 are not finite"),
    ],
)
def test_extreme_numbers_are_refused(x, y, settings, sentence, tmp_path):
    data = scaled(x, y, torch.float64)
    with pytest.raises(GrassError, match=sentence):
        fit(data, tmp_path / "run", settings=SMALL | settings)
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def star(leaves):
    ends = torch.arange(1, leaves + 1)
    edges = torch.stack([torch.zeros_like(ends), ends])
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(edge_index=edges, num_nodes=leaves + 1, y=torch.tensor([[1.0]]))


def isolated(nodes):
    edges = torch.zeros(2, 0, dtype=torch.long)
    return Data(edge_index=edges, num_nodes=nodes, y=torch.tensor([[1.0]]))


@pytest.mark.parametrize("make", [star, isolated])
def test_extreme_shapes_train(make, tmp_path):
    """A node of degree 100,000, and 100,000 nodes without an edge."""
    data = {"train": [make(100_000)], "val": [make(50)], "test": [make(60), make(70)]}
    settings = {"training.epochs": 1, "evaluation.statistics_passes": 0, "encoding.steps": 2}
    assert trained_finitely(data, tmp_path / "run", **settings)
