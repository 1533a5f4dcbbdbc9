"""The grid: finished runs are kept, failed ones reported, stopped ones resumed."""

import json
import os
import signal
import sys
import time

import psutil
import pytest
import torch
from tiny_grids import TINY, tiny_experiment

from grass_gnn import GrassError
from grass_gnn.cli import main
from grass_gnn.experiments import budget as budget_module
from grass_gnn.experiments import grid as grid_module
from grass_gnn.experiments import job as job_module
from grass_gnn.experiments.budget import BUDGETS, make_budget
from grass_gnn.experiments.catalogue import experiment
from grass_gnn.experiments.grid import Grid, open_grid
from grass_gnn.experiments.job import Source
from grass_gnn.experiments.measured import GridRecord
from grass_gnn.experiments.runners import _ending, in_processes
from grass_gnn.files import read_json
from grass_gnn.training.signals import Interrupted

CLUSTER = [
    *("reproduce", "cluster-baselines", "--cells", "grass,gcn", "--generate", "8,4,4"),
    *("--epochs", "1", "--layers", "2", "--passes", "1", "--rewirings", "2", "--graphs", "8"),
    *("--threads", "1", "--out", "grid"),
]


def test_finished_cells_are_kept_and_failed_ones_reported(tmp_path, random_source):
    original = job_module.train

    def sometimes_failing(config, data, folder, options):
        if config.rewiring.when == "once" and options.seed == 1:
            raise RuntimeError("no such luck")
        return original(config, data, folder, options)

    grid = Grid(tiny_experiment(), tmp_path / "grid", TINY, seeds=(0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "train", sometimes_failing)
        advances = list(grid.run())
    assert [a.done for a in advances] == [1, 2, 3, 4, 5, 6] and advances[-1].seconds_left == 0
    assert [a.job.name for a in advances if a.error] == ["rewire-once, seed 1"]
    record = GridRecord.open(grid.folder)
    assert record.failures == {"rewire-once/seed-1": "RuntimeError: no such luck"}
    assert {name: len(runs) for name, runs in record.runs.items() if runs} == {
        "grass": 2,
        "rewire-once": 1,
        "gat": 2,
    }
    results = read_json(grid.folder / "results.json")
    assert [entry["status"] for entry in results].count("finished") == 5
    assert len(results) == 6 and results[0]["budget"]["layers"] == 2

    (again,) = Grid(tiny_experiment(), grid.folder, TINY, seeds=(0, 1)).run()
    assert again.job.name == "rewire-once, seed 1" and again.error is None
    assert GridRecord.open(grid.folder).failures == {}


def test_numbers_are_averaged_over_seeds(tmp_path, random_source):
    grid = Grid(tiny_experiment(cells=["grass"]), tmp_path / "grid", TINY, seeds=(0, 1, 2))
    list(grid.run())
    record = GridRecord.open(grid.folder)
    cell = grid.experiment.cell("grass")
    score = record.measured(cell, "score")
    scores = [entry["test"]["mean"] for entry in read_json(grid.folder / "results.json")]
    assert score.runs == 3 and score.mean == pytest.approx(sum(scores) / 3)
    assert score.standard_error == pytest.approx(score.spread / 3**0.5)
    assert record.measured(cell, "peak_memory").mean > 10
    assert record.measured(cell, "dense_size").mean > 0
    assert record.lookup("ablation-zinc", "GRASS", "MAE") == score
    assert record.lookup("ablation-zinc", "BN → LN", "MAE") is None
    first = record.runs["grass"][0]
    assert first.is_cell and len(first.predictions) == 4


def test_another_budget_in_the_same_folder_is_refused(tmp_path, random_source):
    list(Grid(tiny_experiment(cells=["grass"]), tmp_path / "grid", TINY).run())
    with pytest.raises(GrassError, match="different budget"):
        Grid(tiny_experiment(cells=["grass"]), tmp_path / "grid", BUDGETS["smoke"])


def test_minutes_become_epochs_that_all_rows_share(tmp_path, random_source):
    budget = make_budget("smoke", minutes=0.02)
    grid = Grid(tiny_experiment(cells=["grass", "gat"]), tmp_path / "grid", budget)
    assert not [a.error for a in grid.run() if a.error]
    epochs = {entry["epochs"] for entry in read_json(grid.folder / "results.json")}
    plan = read_json(grid.folder / "plan.json")
    assert epochs == {plan["zinc"]} and plan["zinc"] >= 1


def test_budgets_say_what_they_are():
    assert BUDGETS["paper"].describe() == "the paper's full budget"
    hour = make_budget("hour", layers=12, epochs=10)
    assert hour.minutes is None and "10 epochs" in hour.describe()
    assert "12 layers" in hour.describe() and "reduced" in hour.describe()
    assert hour.slug == "10epochs-12layers-10000graphs-10passes-10rewirings"
    assert BUDGETS["hour"].slug == "hour"
    with pytest.raises(GrassError, match="did you mean 'smoke'"):
        make_budget("smoky")
    with pytest.raises(GrassError, match="either"):
        make_budget("paper", epochs=3, minutes=2)


@pytest.mark.parametrize(("name", "shared"), [("zinc-ablation", True), ("zinc-minutes", False)])
def test_minutes_are_those_of_the_threads_of_a_run(name, shared, tmp_path, random_source):
    """Shared by all rows, or timed in each run."""
    threads, used = torch.get_num_threads(), []
    budget = make_budget("smoke", minutes=0.01)
    grid = Grid(tiny_experiment(name, ["grass"]), tmp_path / "grid", budget, threads=threads + 1)
    original = budget_module.train

    def noting(*args, **options):
        used.append(torch.get_num_threads())
        return original(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_module, "train", noting)
        assert not [a.error for a in grid.run() if a.error]
    assert used == [threads + 1] and torch.get_num_threads() == threads
    assert (grid.folder / "plan.json").exists() == shared


@pytest.mark.parametrize("name", ["zinc-ablation", "zinc-minutes"])
def test_a_grid_stopped_while_an_epoch_is_timed_is_reported_and_resumed(
    name, tmp_path, random_source
):
    """Timed for all rows together or in each run, and killed before anything was removed."""
    grid = Grid(
        tiny_experiment(name, ["grass"]), tmp_path / "grid", make_budget("smoke", minutes=1)
    )

    def stopped(config, data, folder, options):
        (folder / "checkpoints").mkdir(parents=True)
        raise Interrupted(f"resume with --resume --out {folder}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_module, "train", stopped)
        patch.setattr(budget_module.shutil, "rmtree", lambda *args, **options: None)
        with pytest.raises(Interrupted, match="the same command"):
            list(grid.run())
    record = GridRecord.open(grid.folder)
    assert record.all_runs == record.unfinished == [] and record.failures == {}
    with pytest.MonkeyPatch.context() as patch:
        for module in (grid_module, job_module):
            patch.setattr(module, "epochs_within", lambda *args: 1)
        assert [advance.error for advance in grid.run()] == [None]


@pytest.mark.parametrize("name", ["smoke", "hour"])
def test_epochs_may_also_be_a_setting(name, tmp_path, random_source):
    budget = make_budget(name, {"training.epochs": 3})
    (job,) = Grid(tiny_experiment(cells=["grass"]), tmp_path / "grid", budget).jobs
    assert job.config().training.epochs == 3 and budget.minutes is None
    assert "1 epoch" not in budget.describe() and "min" not in budget.describe()
    assert make_budget("paper", {"training.epochs": 3}).to_dict()["epochs"] is None
    for limit in ({"epochs": 2}, {"minutes": 1}):
        with pytest.raises(GrassError):
            make_budget(name, {"training.epochs": 3}, **limit)


def test_settings_of_a_budget_reach_all_rows_but_those_that_are_about_them(tmp_path, random_source):
    given = {"training.optimizer": "muon", "rewiring.degree": 3}
    budget = make_budget("smoke", given)
    grid = Grid(experiment("zinc-ablation"), tmp_path / "grid", budget)
    configs = {job.cell.name: job.config() for job in grid.jobs}
    assert configs["adamw"].training.optimizer == "adamw"
    assert {config.training.optimizer for name, config in configs.items() if name != "adamw"} == {
        "muon"
    }
    assert {config.rewiring.degree for config in configs.values()} == {3}
    baseline = experiment("zinc-minutes").only(["gin"])
    (job,) = Grid(baseline, tmp_path / "minutes", budget).jobs
    assert job.config().training.optimizer == "adamw"  # a setting of all baselines
    assert "training.optimizer = muon" in budget.describe() and "reduced" in budget.describe()
    assert "optimizer-muon-degree-3" in budget.slug
    alone = make_budget("paper", {"model.norm": "layer"})
    assert alone.describe() == "other settings: model.norm = layer" and not alone.is_paper
    list(Grid(tiny_experiment(cells=["grass"]), tmp_path / "set", budget).run())
    assert open_grid(tmp_path / "set")[1] == budget
    assert "settings" not in BUDGETS["smoke"].to_dict()  # so that earlier grids can be resumed


def start(command, said):
    """Run a command in a process that has imported everything already: a fork of this one."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            with said.open("w") as sys.stderr:
                status = main(command)
        finally:
            os._exit(status)
    return child


def wait_until(condition, child):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline and os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(0.05)


def test_a_killed_grid_goes_on_and_recomputes_only_what_is_unfinished(
    tmp_path, capsys, monkeypatch
):
    """Each cell is a process. SIGKILL to the grid after its first cell ends the second one too."""
    monkeypatch.chdir(tmp_path)
    said = tmp_path / "said.txt"
    said.touch()
    grid = start(CLUSTER, said)
    wait_until(lambda: "[1/2] grass, seed 0" in said.read_text(), grid)
    started = []  # the process of the second cell; that of the first has ended

    def is_started():
        found = psutil.Process(grid).children()
        started[:] = [one for one in found if "spawn_main" in "".join(one.cmdline())]
        return bool(started)

    wait_until(is_started, grid)
    os.kill(grid, signal.SIGKILL)
    os.waitpid(grid, 0)
    assert not psutil.wait_procs(started, timeout=300)[1]
    told = said.read_text()
    assert "2 runs, 0 of them finished" in told and "reduced budget" in told and "left" in told
    first, second = (
        tmp_path / "grid" / name / "seed-0" / "results.json" for name in ("grass", "gcn")
    )
    kept = first.stat().st_mtime_ns
    assert not second.exists()

    assert main([*CLUSTER, "--json"]) == 0
    captured = capsys.readouterr()
    assert [entry["cell"] for entry in json.loads(captured.out)] == ["gcn", "grass"]
    assert "2 runs, 1 of them finished" in captured.err
    assert "GRASS and baselines on CLUSTER" in (tmp_path / "grid" / "report.html").read_text()
    assert main(CLUSTER) == 0
    assert "2 of them finished" in capsys.readouterr().err
    assert first.stat().st_mtime_ns == kept
    assert main([*CLUSTER, "--seeds", "1", "--layers", "1"]) == 1
    assert "different budget" in capsys.readouterr().err


def test_sigterm_is_handed_on_and_the_run_has_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = [*CLUSTER, "--epochs", "100000", "--cells", "grass"]
    grid = start(long, tmp_path / "said.txt")
    run = tmp_path / "grid" / "grass" / "seed-0"
    wait_until((run / "metrics.csv").is_file, grid)
    os.kill(grid, signal.SIGTERM)
    _, status = os.waitpid(grid, 0)
    told = (tmp_path / "said.txt").read_text()
    assert os.waitstatus_to_exitcode(status) == 1 and "run the same command to resume" in told
    assert list((run / "checkpoints").glob("*.ckpt")) and not (run / "error.json").exists()


def test_errors_of_a_process_are_reported(tmp_path, monkeypatch):
    source = Source(generate=(8, 4, 4))
    experiment = tiny_experiment("cluster-baselines", ["grass"])
    grid = Grid(experiment, tmp_path / "grid", TINY, source=source)
    monkeypatch.setenv("GRASS_CACHE", "/proc/nowhere")  # nobody can write there
    (advance,) = grid.run(in_processes)
    assert advance.error and "/proc/nowhere" in advance.error
    assert "SIGKILL" in _ending(-9) and "exit code 3" in _ending(3)
