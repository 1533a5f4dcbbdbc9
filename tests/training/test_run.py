"""Training runs: the same seed gives the same bytes, whatever happens in between."""

import json
import os
import shutil
import signal

import pytest
import torch

from grass_gnn import GRASSConfig, GrassError, load_model
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.testing import random_input
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import checkpoints, read_checkpoint
from grass_gnn.training.run import train
from grass_gnn.training.signals import Interrupted

SETTINGS = {
    "input.nodes.kind": "index",
    "input.nodes.sizes": [5],
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
    "training.epochs": 3,
    "training.batch_size": 8,
    "evaluation.statistics_passes": 2,
    "evaluation.rewirings": 3,
}


def config(**changes):
    return GRASSConfig().override(SETTINGS | {k.replace("__", "."): v for k, v in changes.items()})


def graphs(chosen, count, first=0):
    return [random_input(chosen, 4 + seed % 7, first + seed) for seed in range(count)]


def prepared(chosen, folder):
    splits = {
        "train": graphs(chosen, 44),
        "val": graphs(chosen, 12, 100),
        "test": graphs(chosen, 12, 200),
    }
    return prepare(splits, chosen, folder)


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


def stop_after(batches, sent=signal.SIGTERM):
    """A progress hook that sends a signal to this process after a number of batches."""

    def progress(what, done, total):
        if what.startswith("Training") and done == batches:
            os.kill(os.getpid(), sent)

    return progress


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A finished run, which tests do not change."""
    chosen, folder = config(), tmp_path_factory.mktemp("reference")
    data = prepared(chosen, folder / "cache")
    return train(chosen, data, folder / "run", RunOptions(seed=3)), chosen, data


@pytest.fixture
def copied(reference, tmp_path):
    """A copy of its folder."""
    return shutil.copytree(reference[0].folder, tmp_path / "copy")


def test_run_folder_holds_everything(reference):
    run, chosen, _ = reference
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "config.toml",
        "config.json",
        "metrics.csv",
        "results.json",
        "weights.safetensors",
        "val_predictions.csv",
        "test_predictions.csv",
        "checkpoints",
    }
    lines = (run.folder / "test_predictions.csv").read_text().splitlines()
    assert lines[0] == "graph,target_0,mean_0,std_0" and len(lines) == 13
    results = json.loads((run.folder / "results.json").read_text())
    assert results["test"]["rewirings"] == 3 and len(results["test"]["scores"]) == 3
    assert set(results["test"]["averaged"]) == {"1", "2", "3"}
    low, high = results["test"]["interval"]
    assert low <= results["test"]["mean"] <= high
    assert results["data"]["fingerprint"]["hash"]
    rows = (run.folder / "metrics.csv").read_text().splitlines()
    assert len(rows) == 1 + chosen.training.epochs
    assert GRASSConfig.from_toml(run.folder / "config.toml") == chosen


def test_same_seed_same_bytes_whatever_the_workers(reference, tmp_path):
    run, chosen, data = reference
    for number, workers in enumerate((0, 2)):
        options = RunOptions(seed=3, workers=workers)
        again = train(chosen, data, tmp_path / f"again{number}", options)
        assert weights(again.folder) == weights(run.folder)
        assert again.test == run.test
    other = train(chosen, data, tmp_path / "other", RunOptions(seed=4))
    assert weights(other.folder) != weights(run.folder)


def test_loaded_model_predicts_what_was_evaluated(reference):
    run, chosen, _ = reference
    trained = load_model(run.folder)
    inputs = graphs(chosen, 5, 300)
    mean, std = trained.predict(inputs, rewirings=4)
    assert mean.shape == std.shape == (5, 1) and (std > 0).any()
    fixed = trained.predict(inputs, rewirings=2, deterministic=True)
    again = trained.predict(inputs, rewirings=2, seed=9, deterministic=True)
    assert torch.equal(again.mean, fixed.mean)
    alone = trained.predict(inputs[2:3], rewirings=2, deterministic=True)
    assert torch.allclose(alone.mean[0], fixed.mean[2], atol=1e-6)


EVERYTHING = {  # that a checkpoint has to contain
    "training__accumulate": 2,
    "training__average": 0.8,
    "training__optimizer": "muon",
    "training__patience": 3,
    "model__edge_removal": 0.3,
}


@pytest.mark.parametrize(
    ("changes", "stops"),
    [({}, range(1, 16)), (EVERYTHING, (2, 4, 5, 7, 9, 10, 12, 14, 15))],
    ids=["batches", "steps"],
)
def test_stopped_after_each_step_and_resumed_gives_the_same_bytes(tmp_path, changes, stops):
    """SIGTERM, as a cluster sends it: the run ends after the step, with a checkpoint."""
    chosen, folder = config(**changes), tmp_path / "stopped"
    data = prepared(chosen, tmp_path / "cache")
    whole = train(chosen, data, tmp_path / "whole", RunOptions(seed=3))
    for batches in stops:
        options = RunOptions(seed=3, resume=folder.exists(), progress=stop_after(batches))
        with pytest.raises(Interrupted, match="--resume"):
            train(chosen, data, folder, options)
        assert read_checkpoint(folder / "checkpoints")["grass_gnn"]["batches_done"] == batches
    again = train(chosen, data, folder, RunOptions(seed=3, resume=True))
    assert weights(folder) == weights(whole.folder)
    assert again.test == whole.test
    columns = [line.split(",")[:5] for line in (folder / "metrics.csv").read_text().splitlines()]
    assert columns == [
        line.split(",")[:5] for line in (whole.folder / "metrics.csv").read_text().splitlines()
    ]


def test_another_number_of_threads_on_resume_is_warned_of(tmp_path, caplog):
    chosen = config()
    data = prepared(chosen, tmp_path / "cache")
    for stop, threads in ((5, 1), (6, 1), (7, 2)):
        torch.set_num_threads(threads)
        options = RunOptions(seed=3, resume=stop > 5, progress=stop_after(stop))
        try:
            with pytest.raises(Interrupted):
                train(chosen, data, tmp_path / "run", options)
        finally:
            torch.set_num_threads(1)
        assert ("started with 1 threads" in caplog.text) == (threads == 2)


def test_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    chosen = config(training__checkpoint_minutes=1e-9)
    data = prepared(chosen, tmp_path / "cache")
    run = train(chosen, data, tmp_path / "run", RunOptions(seed=3))
    kept = checkpoints(run.folder / "checkpoints")
    assert len(kept) == 2
    expected = weights(run.folder)
    kept[0].write_bytes(kept[0].read_bytes()[:-50])
    train(chosen, data, run.folder, RunOptions(seed=3, resume=True))
    assert weights(run.folder) == expected
    for path in checkpoints(run.folder / "checkpoints"):
        path.write_bytes(b"rubbish")
    with pytest.raises(GrassError, match="damaged"):
        train(chosen, data, run.folder, RunOptions(seed=3, resume=True))


def test_resuming_with_something_else_is_refused(reference, copied, tmp_path):
    _, chosen, data = reference
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(GrassError, match="--resume, or another --out"):
        train(chosen, data, copied, RunOptions(seed=3))
    with pytest.raises(GrassError, match="seed is not that"):
        train(chosen, data, copied, RunOptions(seed=9, resume=True))
    with pytest.raises(GrassError, match="configuration is not that"):
        train(config(model__layers=3), data, copied, RunOptions(seed=3, resume=True))
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
    with pytest.raises(GrassError, match="no run to resume"):
        train(chosen, data, tmp_path / "nowhere", RunOptions(resume=True))


def test_a_run_can_be_made_longer_until_its_learning_rate_decays(tmp_path):
    """Warm-up in the first 5 batches; the rate is held up to batch 10, or up to batch 20."""
    short = config(training__epochs=4, training__warmup=0.25, training__hold=0.25)
    long = config(training__epochs=8, training__warmup=0.125, training__hold=0.375)
    data = prepared(short, tmp_path / "cache")
    expected = train(long, data, tmp_path / "long", RunOptions(seed=3))
    for batches, longer in ((9, True), (14, False)):
        folder = tmp_path / f"stopped{batches}"
        with pytest.raises(Interrupted):
            train(short, data, folder, RunOptions(seed=3, progress=stop_after(batches)))
        if longer:
            train(long, data, folder, RunOptions(seed=3, resume=True))
            assert weights(folder) == weights(expected.folder)
            assert GRASSConfig.from_toml(folder / "config.toml") == long
        else:
            with pytest.raises(GrassError, match="configuration is not that"):
                train(long, data, folder, RunOptions(seed=3, resume=True))
            assert GRASSConfig.from_toml(folder / "config.toml") == short


def test_damaged_run_folders_name_the_file(copied):
    (copied / "weights.safetensors").write_bytes(weights(copied)[:-9])
    with pytest.raises(GrassError, match=r"weights\.safetensors is damaged"):
        load_model(copied)
    (copied / "config.json").write_text("{")
    with pytest.raises(GrassError, match=r"config\.json is damaged"):
        load_model(copied)
    with pytest.raises(GrassError, match="no trained model"):
        load_model(copied / "checkpoints")


def test_a_shorter_last_step_has_the_mean_gradient_of_its_own_batches(tmp_path, monkeypatch):
    largest = {1: [], 4: []}

    def keep_weights(loop, batch, gradient):
        largest[loop.config.training.accumulate].append(gradient)
        loop._optimizer.zero_grad()

    monkeypatch.setattr(TrainingLoop, "_step", keep_weights)
    for accumulate in largest:
        chosen = config(
            training__epochs=1, training__accumulate=accumulate, model__edge_removal=0.0
        )
        train(chosen, prepared(chosen, tmp_path / "cache"), tmp_path / f"run{accumulate}")
    assert (len(largest[1]), len(largest[4])) == (5, 2)
    assert largest[4][-1] == pytest.approx(largest[1][-1], rel=1e-6)


def test_gradient_accumulation_is_the_larger_batch(tmp_path):
    """Without batch statistics and removal, two batches of 4 step as one of 8."""
    fixed = {
        "model__norm": "none",
        "model__edge_removal": 0.0,
        "input__nodes__kind": "none",
        "input__nodes__sizes": [],
        "encoding__kind": "none",
        "encoding__degrees": "none",
        "rewiring__degree": 0,
        "training__optimizer": "adamw",
    }
    results = []
    for size, accumulate in ((8, 1), (4, 2)):
        chosen = config(training__batch_size=size, training__accumulate=accumulate, **fixed)
        data = prepare(
            {
                "train": graphs(chosen, 16),
                "val": graphs(chosen, 4, 50),
                "test": graphs(chosen, 4, 60),
            },
            chosen,
            tmp_path / f"cache{size}",
        )
        run = train(chosen, data, tmp_path / f"run{size}", RunOptions(seed=1))
        results.append(torch.cat([p.flatten() for p in run.model.parameters()]))
    assert torch.allclose(*results, atol=1e-5)
