"""The pretend device notices faults: each one here is a missing copy, or a copy too many."""

import pytest
import torch
from pretend import DEVICE
from small import SMALL

from grass_gnn import GRASS, GRASSConfig, TrainedModel
from grass_gnn.api.calibration import calibrate
from grass_gnn.api.finetuning import finetune
from grass_gnn.data.packed.dataset import pack
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.evaluation.protocol import collect, device_of, evaluate
from grass_gnn.nn.model import GraphPooling, TaskHead
from grass_gnn.nn.norm import AveragingNorm
from grass_gnn.testing import random_input
from grass_gnn.training import RunOptions, train
from grass_gnn.training.loop import TrainingLoop

CONFIG = GRASSConfig().override(SMALL)


def stay(batch, device):
    """A batch that is not copied to the device."""
    return batch


def graphs(config=CONFIG, count=10):
    return [random_input(config, 4 + seed % 3, seed) for seed in range(count)]


def trained(config=CONFIG):
    torch.manual_seed(0)
    return TrainedModel(GRASS(config).eval(), config).to(DEVICE)


def training(folder, config=CONFIG, model=None):
    some = graphs(config)
    data = prepare({"train": some, "val": some[:2], "test": some[:2]}, config, folder / "data")
    return train(config, data, folder / "run", RunOptions(device=DEVICE), model=model)


def to_cpu(function):
    """The same function with its result on the CPU."""

    def changed(*args, **kwargs):
        found = function(*args, **kwargs)
        return found.cpu() if isinstance(found, torch.Tensor) else tuple(t.cpu() for t in found)

    return changed


FAULTS = {
    "train: batches not copied": (
        ("grass_gnn.training.loop.move_batch", stay),
        training,
    ),
    "train: predictions copied back": (
        ("grass_gnn.nn.model.TaskHead.forward", to_cpu(TaskHead.forward)),
        training,
    ),
    "train: norm statistics on the CPU": (
        ("grass_gnn.nn.norm.AveragingNorm.statistics", to_cpu(AveragingNorm.statistics)),
        training,
    ),
    "train: baseline, batches not copied": (
        ("grass_gnn.training.loop.move_batch", stay),
        lambda folder: training(folder, CONFIG.override({"model.architecture": "gcn"})),
    ),
    "train: predictions of several targets copied back": (
        ("grass_gnn.nn.model.TaskHead.forward", to_cpu(TaskHead.forward)),
        lambda folder: training(
            folder, CONFIG.override({"task.outputs": 2, "task.missing": True, "task.loss": "mse"})
        ),
    ),
    "statistics: batches not copied": (
        ("grass_gnn.evaluation.protocol.move_batch", stay),
        lambda folder: collect(trained().model, pack(graphs(), CONFIG), CONFIG, passes=1),
    ),
    "evaluate: batches not copied": (
        ("grass_gnn.evaluation.protocol.move_batch", stay),
        lambda folder: evaluate(trained().model, pack(graphs(), CONFIG), CONFIG, rewirings=1),
    ),
    "predict: pooling copied back": (
        ("grass_gnn.nn.model.GraphPooling.forward", to_cpu(GraphPooling.forward)),
        lambda folder: trained().predict(graphs(), rewirings=1),
    ),
    "embed: the batch is left behind": (
        ("grass_gnn.evaluation.embed.move_batch", stay),
        lambda folder: trained().embed(graphs(), rewirings=1),
    ),
    "explain and serve: the batch is left behind": (
        ("grass_gnn.data.batch.GraphBatch.to", stay),
        lambda folder: trained().explain(graphs()[0], rewirings=1),
    ),
    "finetune: batches not copied": (
        ("grass_gnn.training.loop.move_batch", stay),
        lambda folder: finetune(
            trained(),
            graphs(),
            folder / "tuned",
            settings={"training.epochs": 1, "training.batch_size": 4},
            device=DEVICE,
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_put_back_is_noticed(fault, tmp_path, monkeypatch):
    (place, broken), action = FAULTS[fault]
    monkeypatch.setattr(place, broken)
    with pytest.raises((RuntimeError, TypeError), match=r"same device|numpy"):
        action(tmp_path)


def test_calibration_notices_that_a_batch_is_left_behind(run, monkeypatch):
    monkeypatch.setattr("grass_gnn.data.batch.GraphBatch.to", stay)
    with pytest.raises(RuntimeError, match="same device"):
        calibrate(run, rewirings=2, store=False, device=DEVICE)


def test_a_model_that_is_moved_back_after_training_is_noticed(tmp_path, monkeypatch):
    """The final evaluation would then run on the CPU."""
    run = TrainingLoop.run

    def moved(self, *rest):
        run(self, *rest)
        self.model.cpu()

    assert device_of(training(tmp_path / "right").model) == torch.device(DEVICE)
    monkeypatch.setattr(TrainingLoop, "run", moved)
    assert device_of(training(tmp_path / "wrong").model) != torch.device(DEVICE)
