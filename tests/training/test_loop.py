"""The training loop: validation, averaged weights, precision, old checkpoints, loggers, options."""

import csv
import hashlib
import io
import math
import sys
from types import SimpleNamespace

import pytest
import torch
from test_run import config, prepared, stop_after, weights

from grass_gnn import GrassError
from grass_gnn.api.fitting import EXAMPLE, fit_table
from grass_gnn.evaluation import protocol
from grass_gnn.evaluation.run import evaluate_run
from grass_gnn.files import locked
from grass_gnn.nn.model import build_model
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.optim import BestWeights, WeightAverage
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import LOGGERS, checkpoints, open_logger, read_checkpoint
from grass_gnn.training.run import train
from grass_gnn.training.signals import Interrupted


def read_metrics(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def example(tmp_path):
    """Trains on molecules of the example table."""

    def run(**settings):
        table = tmp_path / "table.csv"
        table.write_text("\n".join(EXAMPLE.read_text().splitlines()[:81]))
        chosen = {
            "model.dim": 16,
            "model.layers": 4,
            "training.epochs": 12,
            "training.batch_size": 16,
            "training.patience": 0,
            "evaluation.rewirings": 12,
            "evaluation.statistics_passes": 4,
        } | settings
        return fit_table(table, ["logP"], tmp_path / "run", settings=chosen, forest=False)

    return run


@pytest.mark.parametrize("settings", [{}, {"training.patience": 20}, {"training.average": 0.9}])
def test_the_last_validation_agrees_with_the_final_evaluation(example, settings):
    """The curve, early stopping and the final score measure the same thing."""
    run = example(**settings)
    recorded = [float(row["val_metric"]) for row in read_metrics(run.folder)]
    epoch = run.results["training"]["best_epoch"]
    final = run.results["val"]
    noise = math.sqrt(final["variance"])
    # The statistics of one pass instead of four add a little to the noise of the rewiring.
    assert recorded[epoch - 1] == pytest.approx(final["mean"], abs=5 * noise + 0.02 * final["mean"])
    if "training.patience" in settings:
        assert recorded[epoch - 1] == min(recorded)


def test_validation_does_not_disturb_training(tmp_path):
    """Weights and input averages are the same whether every epoch is validated or only the last."""
    found = []
    for every in (1, 100):
        chosen = config(evaluation__every=every)
        data = prepared(chosen, tmp_path / "cache")
        found.append(train(chosen, data, tmp_path / f"run{every}", RunOptions(seed=3)))
    assert [bool(row["val_metric"]) for row in read_metrics(found[1].folder)] == [
        False,
        False,
        True,
    ]
    assert weights(found[0].folder) == weights(found[1].folder)


def test_statistics_for_validation_are_bounded(tmp_path, monkeypatch):
    chosen = config(training__batch_size=4)
    data = prepared(chosen, tmp_path / "cache")  # 11 batches
    model = build_model(chosen, data, 0)
    norm = model.layers.layers[0].node_norm
    for batches, graphs, expected in ((3, 0, 3), (1, 17, 5), (100, 0, 11)):
        monkeypatch.setattr(protocol, "QUICK_BATCHES", batches)
        monkeypatch.setattr(protocol, "QUICK_GRAPHS", graphs)
        protocol.collect(model, data.train, chosen, quick=True)
        assert int(norm.num_batches) == expected


def test_the_moving_average_by_hand():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    fixed, average = model.bias.clone(), WeightAverage(model, 0.75)
    expected, seen = None, []
    for step in range(1, 9):
        with torch.no_grad():
            model.weight.copy_(torch.randn(2, 3))
        seen.append(model.weight.detach().double())
        average.update(model)
        # Equal weights for the first 1 / (1 − 0.75) = 4 steps, exponential afterwards.
        expected = sum(seen) / step if step <= 4 else 0.75 * expected + 0.25 * seen[-1]
        torch.testing.assert_close(
            average.weights["weight"].double(), expected, rtol=1e-5, atol=1e-6
        )
    last = model.weight.detach().clone()
    with average.applied(model):
        torch.testing.assert_close(model.weight.detach().double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(model.weight, last) and torch.equal(model.bias, fixed)


@pytest.mark.parametrize(
    ("metric", "scores", "best", "seen"),
    [
        ("mae", [3, 2, 2.5, 1, 1, math.nan, None, 4, 5, 0], 5, 9),  # 4 and 5 exhaust its patience
        ("auc", [0.5, 0.7, 0.6, 0.7, 0.6, 0.9], 6, 6),
        ("auc", [0.9, 0.8, 0.7, 1.0], 1, 3),
        ("r2", [-3, -1, -2, -1.5], 2, 4),
        ("auc", [math.nan, None], 0, 2),  # as of a validation set without positives
    ],
)
def test_the_best_weights_are_those_of_the_last_epoch_with_the_best_score(
    metric, scores, best, seen
):
    model, found, epoch = torch.nn.Linear(1, 1), BestWeights(metric, patience=2), 0
    while epoch < len(scores) and not found.exhausted:
        epoch += 1
        torch.nn.init.constant_(model.weight, epoch)
        found.update(model, epoch, scores[epoch - 1])
        again = BestWeights(metric, patience=2)  # as by a resumption after any epoch
        again.load_state_dict(found.state_dict())
        found = again
    assert (found.epoch, epoch) == (best, seen)
    found.copy_to(model)
    assert float(model.weight.detach()) == (best or seen)  # the last ones, if none had a score


def test_a_run_keeps_the_average_of_its_steps_and_resumes_it(tmp_path, monkeypatch):
    chosen = config(training__average=0.8)
    data = prepared(chosen, tmp_path / "cache")
    steps = []
    update = WeightAverage.update

    def note(self, model):
        steps.append([p.detach().double().clone() for p in model.parameters()])
        update(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(WeightAverage, "update", note)
        run = train(chosen, data, tmp_path / "run", RunOptions(seed=3))
    assert len(steps) == 15
    for number, parameter in enumerate(run.model.parameters()):
        average = steps[0][number]
        for done, step in enumerate(steps, 1):
            average = average + max(0.2, 1 / done) * (step[number] - average)
        torch.testing.assert_close(parameter.detach().double(), average, rtol=1e-4, atol=1e-6)
    plain = train(config(), data, tmp_path / "plain", RunOptions(seed=3))
    for last, parameter in zip(steps[-1], plain.model.parameters(), strict=True):
        assert torch.equal(last, parameter.detach().double())  # training itself does not change

    with pytest.raises(Interrupted):
        train(chosen, data, tmp_path / "two", RunOptions(seed=3, progress=stop_after(8)))
    train(chosen, data, tmp_path / "two", RunOptions(seed=3, resume=True))
    assert weights(tmp_path / "two") == weights(run.folder)


CONTINUOUS = {"kind": "continuous", "sizes": [2]}


@pytest.mark.parametrize("ops", ["", "reference"])
@pytest.mark.parametrize("nodes", [None, CONTINUOUS])
@pytest.mark.parametrize("edges", [None, CONTINUOUS])
def test_half_precision_trains_on_the_cpu(nodes, edges, ops, tmp_path, monkeypatch):
    """Embeddings of categories and of numbers come in different types under autocast."""
    monkeypatch.setenv("GRASS_OPS", ops)
    changes = {
        f"input__{part}__{name}": value
        for part, chosen in (("nodes", nodes), ("edges", edges))
        for name, value in (chosen or {}).items()
    }
    chosen = config(training__precision="bf16-mixed", training__epochs=1, **changes)
    exact = chosen.override({"training.precision": "32-true"})
    data = prepared(chosen, tmp_path / "cache")
    losses = []
    for name, one in (("half", chosen), ("exact", exact)):
        train(one, data, tmp_path / name, RunOptions(seed=3))
        losses.append(float(read_metrics(tmp_path / name)[0]["train_loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def in_old_format(folder):
    """Rewrite the newest checkpoint of a run as Lightning's Trainer wrote it."""
    path, new = checkpoints(folder)[0], read_checkpoint(folder)
    old = {
        "epoch": 0,
        "global_step": 7,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {f"model.{name}": value for name, value in new["model"].items()},
        "loops": {},
        "callbacks": {"FiniteSteps": new["finite"]},
        "optimizer_states": [new["optimizer"]],
        "lr_schedulers": [{"base_lrs": [1e-3], "last_epoch": 7}],
        "grass_gnn": new["grass_gnn"],
    }
    if new["best"] is not None:
        old["callbacks"]["BestWeights"] = new["best"]
    buffer = io.BytesIO()
    torch.save(old, buffer)
    checksum = hashlib.sha256(buffer.getvalue()).hexdigest()[:16]
    path.unlink()
    (folder / f"{path.stem.split('-')[0]}-{checksum}.ckpt").write_bytes(buffer.getvalue())


@pytest.mark.parametrize("patience", [0, 2])
def test_checkpoints_of_earlier_versions_are_resumed(patience, tmp_path):
    chosen = config(training__patience=patience)
    data = prepared(chosen, tmp_path / "cache")
    whole = train(chosen, data, tmp_path / "whole", RunOptions(seed=3))
    with pytest.raises(Interrupted):
        train(chosen, data, tmp_path / "run", RunOptions(seed=3, progress=stop_after(7)))
    in_old_format(tmp_path / "run" / "checkpoints")
    train(chosen, data, tmp_path / "run", RunOptions(seed=3, resume=True))
    assert weights(tmp_path / "run") == weights(whole.folder)


def test_a_caller_can_watch_epochs_and_stop(tmp_path):
    chosen = config()
    data = prepared(chosen, tmp_path / "cache")
    rows = []

    def second(row):
        rows.append(row)
        return row["epoch"] == 2

    with locked(tmp_path / "run") as lock:
        loop = TrainingLoop(build_model(chosen, data, 3), chosen, data, lock, RunOptions(seed=3))
        loop.run(second)
    assert [row["epoch"] for row in rows] == [1, 2] and loop.epoch == 2
    assert all(isinstance(row["val_metric"], float) for row in rows)


def test_options_by_keyword_still_work_with_a_warning(tmp_path):
    chosen = config(training__epochs=1)
    data = prepared(chosen, tmp_path / "cache")
    with pytest.warns(DeprecationWarning, match="RunOptions"):
        old = train(chosen, data, tmp_path / "old", seed=3, workers=0)
    with pytest.warns(DeprecationWarning, match="RunOptions"):
        train(chosen, data, tmp_path / "positional", 3)
    new = train(chosen, data, tmp_path / "new", RunOptions(seed=3))
    assert weights(old.folder) == weights(new.folder) == weights(tmp_path / "positional")
    with pytest.raises(TypeError, match="sead"):
        train(chosen, data, tmp_path / "none", sead=3)


def test_devices_are_checked(tmp_path):
    chosen = config(training__epochs=1)
    data = prepared(chosen, tmp_path / "cache")
    run = train(chosen, data, tmp_path / "run", RunOptions(device="cpu"))
    assert next(run.model.parameters()).device.type == "cpu"
    for device in ("cuda:99", "toaster"):
        with pytest.raises(GrassError, match=device):
            train(chosen, data, tmp_path / "other", RunOptions(device=device))
    assert not (tmp_path / "other" / "checkpoints").exists()


def fake_loggers(monkeypatch, logged):
    """Stand-ins for the three packages, which note what they are given."""

    class Writer:
        def __init__(self, folder):
            logged.append(("folder", folder))

        def add_scalar(self, name, value, step):
            logged.append((name, value, step))

        def close(self):
            logged.append("closed")

    class Client:
        def __init__(self, uri):
            logged.append(("folder", uri))

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return "1"

        def create_run(self, experiment):
            return SimpleNamespace(info=SimpleNamespace(run_id=experiment))

        def log_metric(self, run, name, value, step):
            logged.append((name, value, step))

        def set_terminated(self, run):
            logged.append("closed")

    class Run:
        def log(self, values, step):
            logged.extend((name, value, step) for name, value in values.items())

        def finish(self):
            logged.append("closed")

    def init(project, dir):
        logged.append(("folder", dir))
        return Run()

    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer)
    )
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))


@pytest.mark.parametrize("name", LOGGERS)
def test_loggers_get_every_epoch(name, tmp_path, monkeypatch):
    logged = []
    fake_loggers(monkeypatch, logged)
    chosen = config(training__epochs=2)
    data = prepared(chosen, tmp_path / "cache")
    train(chosen, data, tmp_path / "run", RunOptions(seed=3, logger=name))
    assert logged[0][0] == "folder" and str(tmp_path / "run") in logged[0][1]
    assert logged[-1] == "closed"
    losses = [entry[1:] for entry in logged if entry[0] == "train_loss"]
    rows = read_metrics(tmp_path / "run")
    assert losses == [(float(row["train_loss"]), int(row["step"])) for row in rows]


def test_loggers_that_are_missing(tmp_path, monkeypatch):
    with pytest.raises(GrassError, match="tensorboard, mlflow, wandb"):
        open_logger("paper", tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(GrassError, match=r"grass-gnn\[wandb\]"):
        open_logger("wandb", tmp_path)
    assert open_logger(None, tmp_path) is None


def test_predictions_of_a_table_name_rows_and_columns(example):
    run = example(**{"training.epochs": 1, "evaluation.rewirings": 2})
    with (run.folder / "splits.csv").open(newline="") as file:
        splits = {row["line"]: row["split"] for row in csv.DictReader(file)}
    table = (run.folder.parent / "table.csv").read_text().splitlines()
    known = list(csv.DictReader(table))
    for split in ("val", "test"):
        with (run.folder / f"{split}_predictions.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        ends = ["logP_lower", "logP_upper"] if split == "test" else []
        assert list(rows[0]) == ["row", "smiles", "logP", "logP_pred", "logP_std", *ends]
        assert [row["row"] for row in rows] == [
            line for line, own in splits.items() if own == split
        ]
        for row in rows:
            given = known[int(row["row"]) - 2]
            assert row["smiles"] == given["smiles"]
            assert float(row["logP"]) == pytest.approx(float(given["logP"]), rel=1e-5)


def test_deterministic_rewirings_are_as_many_as_asked_for_whatever_the_seed(example):
    folder = example(**{"training.epochs": 1, "evaluation.rewirings": 2}).folder
    found = [evaluate_run(folder, seed=seed, deterministic=True)["test"] for seed in (1, 2)]
    assert found[0] == found[1] and found[0]["rewirings"] == 2
    assert len(set(found[0]["scores"])) == 2  # different rewirings, each fixed by its number
    others = [evaluate_run(folder, seed=seed)["test"]["scores"] for seed in (1, 2)]
    assert others[0] != others[1]
