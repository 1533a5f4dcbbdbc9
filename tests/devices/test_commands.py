"""Commands and functions on another device: each runs there, and gives what it gives on the CPU."""

import json
import signal

import numpy as np
import pytest
import torch
from pretend import DEVICE, PretendTensor
from small import SET, SMALL

import grass_gnn
from grass_gnn import GRASSConfig, GrassError, load_model
from grass_gnn.cli import main
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.evaluation import trained as trained_module
from grass_gnn.evaluation.protocol import device_of
from grass_gnn.evaluation.streamed import predict_streamed
from grass_gnn.files import locked
from grass_gnn.nn.model import build_model
from grass_gnn.testing import random_input
from grass_gnn.training import RunOptions, train
from grass_gnn.training.distributed import Team
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.signals import Interrupted


def both(command, capsys):
    """What a command prints on the device and on the CPU."""
    texts = []
    for device in (DEVICE, "cpu"):
        assert main([*command, "--device", device]) == 0
        texts.append(capsys.readouterr().out)
    return texts


def test_training_records_the_memory_of_the_device(run):
    results = json.loads((run / "results.json").read_text())
    assert results["training"]["peak_memory_mb"] == 3.0  # the process has hundreds
    assert all(np.isfinite(results[split]["mean"]) for split in ("val", "test"))


def test_a_model_is_loaded_onto_the_gpu_if_there_is_one(run):
    assert load_model(run).device == torch.device(DEVICE)
    assert load_model(run, "cpu").device.type == "cpu"
    with pytest.raises(GrassError, match="no device"):
        load_model(run, "cuda:7")


def test_evaluate(run, capsys):
    found, expected = (json.loads(t) for t in both(["evaluate", str(run), "--json"], capsys))
    assert found["test"]["mean"] == pytest.approx(expected["test"]["mean"], rel=1e-4)


def test_predict(run, molecules, tmp_path):
    tables = []
    for device in ([], ["--device", "cpu"]):
        out = tmp_path / "out.csv"
        assert main(["predict", str(run), str(molecules), "-o", str(out), *device]) == 0
        tables.append([float(line.split(",")[3]) for line in out.read_text().splitlines()[1:]])
    assert tables[0] == pytest.approx(tables[1], rel=1e-4)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_embed(run, molecules, tmp_path, level):
    found = []
    for device in (DEVICE, "cpu"):
        command = ["embed", str(run), str(molecules), "-o", str(tmp_path / "out.npz")]
        command += ["--level", level, "--rewirings", "2", "--device", device]
        assert main(command) == 0
        found.append(np.load(tmp_path / "out.npz")["embedding"])
    assert np.allclose(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_explain(run, molecules, tmp_path):
    found = []
    for device in (DEVICE, "cpu"):
        folder = tmp_path / device.replace(":", "-")
        command = ["explain", str(run), str(molecules), "-o", str(folder), "--limit", "2"]
        assert main([*command, "--rewirings", "2", "--device", device]) == 0
        found.append(json.loads((folder / "2.json").read_text()))
    assert found[0]["by_kind"] == pytest.approx(found[1]["by_kind"], rel=1e-3)


def test_calibrate(run, capsys):
    command = ["calibrate", str(run), "--no-store", "--rewirings", "3", "--json"]
    found, expected = (json.loads(text) for text in both(command, capsys))
    assert found["targets"][0]["scale"] == pytest.approx(expected["targets"][0]["scale"], rel=1e-2)


def test_finetune(run, molecules, tmp_path, monkeypatch):
    trained = []
    save = trained_module.save_model

    def watched(model, *rest, **more):
        trained.append(model)
        save(model, *rest, **more)

    monkeypatch.setattr("grass_gnn.training.run.save_model", watched)
    command = ["finetune", str(run), str(molecules), "--target", "kind", "--epochs", "1"]
    command += ["--set", "training.batch_size=8", "--shares", "0.6,0.2,0.2"]
    assert main([*command, "--out", str(tmp_path / "run"), "--device", DEVICE]) == 0
    assert device_of(trained[0]) == torch.device(DEVICE)


def test_tune(molecules, tmp_path):
    pytest.importorskip("optuna")
    from grass_gnn.api import tuning

    devices = []
    loop = tuning.TrainingLoop

    class Watched(loop):
        def run(self, *rest):
            super().run(*rest)
            devices.append(device_of(self.model))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "TrainingLoop", Watched)
        command = ["tune", str(molecules), "--target", "size", "--trials", "1", "--epochs", "1"]
        fixed = [*SET, "--out", str(tmp_path / "tune")]
        assert main([*command, *fixed, "--device", DEVICE]) == 0
    assert devices == [torch.device(DEVICE)]


def test_serve(run):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from grass_gnn.serve.app import make_app
    from grass_gnn.serve.card import model_card
    from grass_gnn.serve.views import open_view
    from grass_gnn.uncertainty.ensembles import load_models

    models = load_models([run], DEVICE)
    view = open_view(models, 2)
    app = make_app(view, "size", model_card(models, view), "127.0.0.1")
    address = "http://127.0.0.1:8321"
    with TestClient(app, base_url=address, headers={"origin": address}) as client:
        asked = client.post("/look", json={"smiles": "CCO"})
        assert asked.status_code == 200 and len(asked.json()["samples"]) == 2
        assert client.post("/predict", content="CCO\nCCN").status_code == 200
    assert models[0].device == torch.device(DEVICE)


# ------------------------------------------------------------------- in Python


def graph_data(folder, **changes):
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    config = GRASSConfig().override(SMALL | settings)
    graphs = [random_input(config, 4 + seed % 3, seed) for seed in range(20)]
    splits = {"train": graphs[:12], "val": graphs[12:16], "test": graphs[16:]}
    return config, prepare(splits, config, folder)


RUNS = {
    "float32": {},
    "16-mixed": {"training.precision": "16-mixed", "training.optimizer": "adamw"},
    "bf16-mixed": {"training.precision": "bf16-mixed"},
    "accumulated": {"training.accumulate": 2, "training.average": 0.9, "model.edge_removal": 0.2},
}


@pytest.mark.parametrize("name", RUNS)
def test_training_ends_on_its_device_and_resumes_there(name, tmp_path):
    config, data = graph_data(tmp_path / "data", **RUNS[name], **{"training.batch_size": 4})
    run = train(config, data, tmp_path / "run", RunOptions(device=DEVICE))
    assert all(isinstance(value, PretendTensor) for value in run.model.state_dict().values())
    if name in ("float32", "bf16-mixed"):  # on the CPU, there is no float16
        on_cpu = train(config, data, tmp_path / "cpu", RunOptions(device="cpu"))
        tolerance = 1e-3 if name == "float32" else 0.2
        assert run.test.mean == pytest.approx(on_cpu.test.mean, rel=tolerance)
    else:
        longer = config.override({"training.patience": 5})
        train_an_epoch(longer, data, tmp_path / "parts")
        again = train(longer, data, tmp_path / "parts", RunOptions(device=DEVICE, resume=True))
        whole = train(longer, data, tmp_path / "whole", RunOptions(device=DEVICE))
        assert again.test.mean == whole.test.mean


def train_an_epoch(config, data, folder):
    """Start a run on the device that is stopped soon after its first epoch."""
    validate = TrainingLoop._validate

    def stop(self):
        if self.epoch == 1:
            signal.raise_signal(signal.SIGTERM)
        return validate(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "_validate", stop)
        with pytest.raises(Interrupted):
            train(config, data, folder, RunOptions(device=DEVICE))


WAITS = {
    "regression": {"model.edge_removal": 0.2},
    "several targets": {"task.outputs": 2, "task.missing": True, "task.target_scale": [1.0, 2.0]},
    "labels": {
        "task.kind": "multilabel",
        "task.outputs": 2,
        "task.missing": True,
        "task.loss": "bce",
        "task.metric": "ap",
    },
    "classes of nodes": {
        "task.level": "node",
        "task.kind": "classification",
        "task.outputs": 3,
        "task.loss": "weighted-cross-entropy",
        "task.metric": "accuracy",
    },
}


@pytest.mark.parametrize("name", WAITS)
def test_a_step_waits_for_the_device_once_and_its_batches_are_pinned(
    name, tmp_path, device, monkeypatch
):
    config, data = graph_data(tmp_path / "data", **WAITS[name])
    step, seen = TrainingLoop.train_batch, []

    def counted(self, batch):
        before = device.counts.copy()
        step(self, batch)
        seen.append(device.counts - before)

    monkeypatch.setattr(TrainingLoop, "train_batch", counted)
    model = build_model(config, data, 0)
    with locked(tmp_path / "run") as lock:
        TrainingLoop(model, config, data, lock, RunOptions(), Team(device=DEVICE)).run()
    later = seen[1:]  # optimisers allocate their state in the first step
    assert later and all(one["waits"] == 1 for one in later)
    assert all(one["copies"] and not one["unpinned"] for one in later)


def test_norms_do_not_wait_when_a_model_changes_its_mode(tmp_path, device):
    config, _ = graph_data(tmp_path / "data")
    model = grass_gnn.GRASS(config).to(DEVICE)
    device.counts.clear()
    model.train()
    model.eval()
    assert not device.counts["waits"]


def test_export_traces_on_the_device(run, tmp_path, monkeypatch):
    """Tracing itself needs a device that PyTorch's compiler knows."""
    traced = []

    def export(model, args, example, **options):
        traced.extend(example.values())
        raise GrassError("far enough")

    monkeypatch.setattr("grass_gnn.api.export.export", export)
    command = ["export", str(run), "-o", str(tmp_path / "model.pt2"), "--device", DEVICE]
    assert main(command) == 1
    assert traced and all(isinstance(value, PretendTensor) for value in traced)


def test_embeddings_of_models_for_nodes(tmp_path):
    config, _ = graph_data(tmp_path / "data", **{"task.level": "node"})
    torch.manual_seed(0)
    model = grass_gnn.GRASS(config)
    trained = grass_gnn.TrainedModel(model.eval(), config)
    graphs = [random_input(config, 5, seed) for seed in range(2)]
    expected = trained.embed(graphs, rewirings=1)
    found = trained.to(DEVICE).embed(graphs, rewirings=1)
    assert found.device.type == "cpu" and torch.allclose(found, expected, atol=1e-4)


def test_streamed_evaluation(tmp_path):
    changes = {"task.level": "node", "encoding.kind": "decomposed-rrwp", "encoding.eigenpairs": 3}
    config = GRASSConfig().override(SMALL | changes | {"evaluation.block_edges": 7})
    from grass_gnn.data.packed.dataset import pack

    torch.manual_seed(0)
    model = grass_gnn.GRASS(config).train()
    graph = random_input(config, 12)
    model([graph])  # the input norms need statistics
    model.eval()
    packed = pack([graph], config).select(torch.arange(1))
    expected = predict_streamed(model, packed, config, torch.arange(1))
    found = predict_streamed(model.to(DEVICE), packed, config, torch.arange(1))
    assert torch.allclose(found, expected, atol=1e-3)


def test_scikit_learn_estimators(molecules):
    pytest.importorskip("sklearn")
    from grass_gnn.api.estimators import GRASSRegressor

    smiles = [line.split(",")[0] for line in molecules.read_text().splitlines()[1:13]]
    settings = {name: v for name, v in SMALL.items() if not name.startswith(("input", "training"))}
    model = GRASSRegressor(epochs=1, settings=settings, device=DEVICE, rewirings=1)
    model.fit(smiles, [float(len(text)) for text in smiles])
    assert model.model_.device == torch.device(DEVICE)
    assert model.predict(smiles[:2]).shape == (2,)
