"""Several processes train as one: the same steps, one writer, and no loss when one of them dies."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from safetensors.torch import load_file
from small_runs import CASES, config, data

from grass_gnn import GrassError
from grass_gnn.api.fitting import EXAMPLE
from grass_gnn.cli import main
from grass_gnn.ops import build
from grass_gnn.training import loop as training_loop
from grass_gnn.training.distributed import Team, find_team
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import read_checkpoint, write_checkpoint
from grass_gnn.training.run import LeadersLock, train

HERE = Path(__file__).parent
LAUNCHERS = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in LAUNCHERS} | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(HERE.parents[1]),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A folder in which two processes of torchrun have done what ``pair.py`` says."""
    folder = tmp_path_factory.mktemp("pair")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, str(HERE / "pair.py"), str(folder), *train_arguments(folder / "table")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (folder / "stdout.txt").write_text(done.stdout)
    return folder


def curve(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(float(row["train_loss"]), float(row["val_metric"])) for row in rows]


def assert_same_run(one: Path, other: Path, tolerance: float = 1e-4):
    for a, b in zip(curve(one), curve(other), strict=True):
        assert a == pytest.approx(b, rel=tolerance)
    found, expected = (load_file(run / "weights.safetensors") for run in (one, other))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=tolerance, msg=name)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(case, pair, tmp_path, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "" if case.endswith("fused") else "reference")
    if case.endswith("fused") and not build.available():
        pytest.skip("no C++ compiler")
    chosen = config(case)
    one = train(chosen, data(chosen, tmp_path), tmp_path / "one", RunOptions(seed=3))
    assert_same_run(pair / case, one.folder)
    leader, follower = (
        torch.load(pair / f"{case}-{rank}.pt", weights_only=True) for rank in range(2)
    )
    assert all(torch.equal(leader[name], follower[name]) for name in leader)
    results = json.loads((pair / case / "results.json").read_text())
    assert results["test"]["mean"] == pytest.approx(one.test.mean, rel=1e-3)


def test_a_stop_in_one_process_stops_all_and_resuming_repeats_the_whole_run(pair, tmp_path):
    said = [(pair / f"stopped-{rank}.txt").read_text() for rank in range(2)]
    assert said[0] == said[1] and "Stopped in epoch 2" in said[0]
    stopped, whole = (
        (pair / name / "weights.safetensors").read_bytes() for name in ("stopped", "whole")
    )
    assert stopped == whole
    assert curve(pair / "stopped") == curve(pair / "whole")


def test_one_process_resumes_a_run_of_two(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")
    chosen = config("regression")
    shutil.copytree(pair / "half", tmp_path / "half")
    checkpoint = read_checkpoint(tmp_path / "half" / "checkpoints")
    assert checkpoint["grass_gnn"]["batches_done"] == 4
    options = RunOptions(seed=3, resume=True)
    train(chosen, data(chosen, tmp_path), tmp_path / "half", options)
    assert_same_run(tmp_path / "half", pair / "regression")


def test_statistics_of_their_own_give_another_run(pair):
    apart, together = curve(pair / "apart"), curve(pair / "regression")
    assert all(a != pytest.approx(b, rel=1e-4) for a, b in zip(apart, together, strict=True))
    assert apart[0] == pytest.approx(together[0], rel=0.5)


def test_a_bad_step_in_one_process_is_skipped_in_all(pair):
    for rank in range(2):
        assert json.loads((pair / f"bad-{rank}.json").read_text()) == {"skipped": 1, "finite": True}


def test_processes_draw_on_their_own(pair):
    drawn = [json.loads((pair / f"masks-{rank}.json").read_text()) for rank in range(2)]
    assert len({*drawn[0], *drawn[1]}) == 6


def member(rank, size):
    team = Team()
    team.rank, team.size = rank, size
    return team


def test_each_graph_is_seen_once_an_epoch_in_the_batches_of_one_process(tmp_path):
    chosen = config("regression")
    prepared = data(chosen, tmp_path)

    def batches(rank, size):
        loop = TrainingLoop(
            torch.nn.Linear(1, 1),
            chosen,
            prepared,
            LeadersLock(tmp_path),
            RunOptions(seed=3, workers=0),
            member(rank, size),
        )
        loop.batches_done = 4  # the second of epoch 2
        return [batch.y for batch in loop._batches()]

    def values(*parts):
        return sorted(value for part in parts for value in part.nan_to_num(-9).flatten().tolist())

    alone, first, second = batches(0, 1), batches(0, 2), batches(1, 2)
    assert len(alone) == len(first) == len(second) == 2
    for a, b, c in zip(alone, first, second, strict=True):
        assert len(b) == len(c) == 4
        assert values(a) == values(b, c)


EPOCHS = 4
BATCHES = 16  # four in each


def train_arguments(out, *more):
    """The command that trains on a small table of molecules beside ``out``."""
    table = out.parent / "table.csv"
    table.write_text("\n".join(EXAMPLE.read_text().splitlines()[:41]))
    settings = {
        "encoding.steps": 4,
        "model.dim": 8,
        "model.layers": 2,
        "model.head_hidden": 0,
        "training.batch_size": 8,
        "training.patience": 0,
        "training.checkpoint_minutes": 1e-9,
        "evaluation.rewirings": 1,
        "evaluation.statistics_passes": 1,
        "evaluation.every": 100,
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return [
        *("train", str(table), "--target", "logP", "--epochs", str(EPOCHS), "--seed", "5"),
        *("--out", str(out), "--no-baseline", *given, *more),
    ]


def first_checkpoint(folder, leader):
    """Wait for a checkpoint; the process that follows the one that writes it."""
    while leader.poll() is None and not list(folder.glob("checkpoints/*.ckpt")):
        time.sleep(0.1)
    (follower,) = psutil.Process(leader.pid).children()
    return follower


def test_one_process_of_a_command_prints_and_writes(pair):
    assert (pair / "stdout.txt").read_text().count("Everything is in") == 1
    assert len((pair / "table" / "metrics.csv").read_text().splitlines()) == EPOCHS + 1


@pytest.mark.usefixtures("fresh_readers")
def test_a_dead_process_gives_one_sentence_and_the_run_can_be_resumed(
    pair, tmp_path, monkeypatch, capfd
):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRASS_OPS", "reference")
    arguments = train_arguments(tmp_path / "run", "--devices", "2")

    others = psutil.Process().children()  # of other tests

    def followers():
        return [child for child in psutil.Process().children() if child not in others]

    def save_and_kill(*given):
        write_checkpoint(*given)
        for follower in followers():
            follower.kill()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop, "write_checkpoint", save_and_kill)
        assert main(arguments) == 1
    said = [line for line in capfd.readouterr().err.splitlines() if "Error:" in line]
    assert len(said) == 1
    assert "Process 0 of 2 has lost the others" in said[0] and "--resume" in said[0]
    checkpoint = read_checkpoint(tmp_path / "run" / "checkpoints")
    assert 0 < checkpoint["grass_gnn"]["batches_done"] < BATCHES
    assert not followers()

    assert main([*arguments, "--resume"]) == 0
    found = (tmp_path / "run" / "weights.safetensors").read_bytes()
    assert found == (pair / "table" / "weights.safetensors").read_bytes()


def test_the_death_of_the_leader_ends_the_others(tmp_path):
    # Many epochs, so that the run does not end before it is killed.
    arguments = train_arguments(tmp_path / "run", "--epochs", "50")
    command = [sys.executable, "-m", "grass_gnn", *arguments]
    leader = subprocess.Popen(
        [*command, "--devices", "2"],
        env=ENVIRONMENT | {"GRASS_OPS": "reference"},
        stderr=subprocess.PIPE,
    )
    follower = first_checkpoint(tmp_path / "run", leader)
    leader.kill()
    follower.wait(60)
    assert b"Process 1 of 2 has lost the others" in leader.communicate()[1]


def test_launchers_are_found(monkeypatch):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    assert (find_team().size, find_team("auto").size) == (1, max(1, torch.cuda.device_count()))
    with monkeypatch.context() as patch:
        for name, value in {
            "TORCHELASTIC_RUN_ID": "x",
            "RANK": "5",
            "LOCAL_RANK": "1",
            "GROUP_RANK": "1",
            "WORLD_SIZE": "8",
            "LOCAL_WORLD_SIZE": "4",
        }.items():
            patch.setenv(name, value)
        for given in ((), ("auto",), (4, 2), (None, 2)):
            team = find_team(*given)
            assert isinstance(team.environment, TorchElasticEnvironment)
            assert (team.rank, team.size, team.leads) == (5, 8, False)
        for given in ((2, 2), (4,), (1,)):
            with pytest.raises(GrassError, match="torchrun started 4 processes on each of 2"):
                find_team(*given)
    with monkeypatch.context() as patch:
        for name, value in {
            "SLURM_NTASKS": "4",
            "SLURM_NTASKS_PER_NODE": "2",
            "SLURM_NNODES": "2",
            "SLURM_PROCID": "2",
            "SLURM_LOCALID": "0",
            "SLURM_NODEID": "1",
            "SLURM_JOB_NAME": "train",
        }.items():
            patch.setenv(name, value)
        for given in (("auto",), (2, 2)):
            team = find_team(*given)
            assert isinstance(team.environment, SLURMEnvironment)
            assert (team.rank, team.size, team.started_here) == (2, 4, False)
        assert find_team().size == 1  # a job of several tasks may also train one model in each
        with pytest.raises(GrassError, match="SLURM started 2"):
            find_team(4, 1)


def test_work_that_cannot_be_divided_is_refused(tmp_path, monkeypatch, capsys):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    for given, sentence in (
        (("x",), "a number or auto"),
        ((0,), "at least one"),
        ((2, 2), "MASTER_ADDR"),
    ):
        with pytest.raises(GrassError, match=sentence):
            find_team(*given)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(GrassError, match="notebook"):
        find_team(2)
    monkeypatch.delattr(sys, "ps1")
    chosen = config("regression", training__batch_size=7)
    prepared = data(chosen, tmp_path)
    with pytest.raises(GrassError, match="Batches of 7 graphs cannot be divided among 2"):
        train(chosen, prepared, tmp_path / "run", RunOptions(devices=2))
    with pytest.raises(GrassError, match="torchrun"):
        train(
            config("regression"), prepared, tmp_path / "run", RunOptions(devices=2), model=object()
        )
    monkeypatch.setattr(type(prepared.train), "__len__", lambda self: 1)
    with pytest.raises(GrassError, match="A single graph"):
        train(chosen, prepared, tmp_path / "run", RunOptions(devices=2))
    assert not (tmp_path / "run").exists()
    assert main(["train", "example", "--folds", "2", "--devices", "2"]) == 1
    assert "--folds" in capsys.readouterr().err
