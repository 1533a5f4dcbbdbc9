"""The same grid on a local two-worker Ray and one run after the other: the same results."""

import pytest
from tiny_grids import TINY, tiny_experiment

from grass_gnn import GrassError
from grass_gnn.experiments.grid import Grid
from grass_gnn.experiments.job import Source
from grass_gnn.experiments.measured import GridRecord
from grass_gnn.experiments.runners import on_cluster
from grass_gnn.files import read_json

ray = pytest.importorskip("ray", reason="the extra 'cluster' (Ray) is not installed")


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    """Two processes that do tasks; they inherit the environment from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        patch.setenv("GRASS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "300")  # a busy machine is slow to start it
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


def grid(folder, cells=("grass", "gcn")):
    experiment = tiny_experiment("cluster-baselines", cells)
    return Grid(experiment, folder, TINY, source=Source(generate=(8, 4, 4)), threads=1)


def test_no_cluster_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "")
    with pytest.raises(GrassError, match="no Ray cluster at 'auto'"):
        list(grid(tmp_path / "grid").run(on_cluster("auto")))


def test_ray_gives_the_results_of_a_sequential_run(tmp_path, two_workers):
    here, there = grid(tmp_path / "here"), grid(tmp_path / "there")
    assert not [a.error for a in here.run() if a.error]
    advances = list(there.run(on_cluster(cpus=1)))
    assert len(advances) == 2 and not [a.error for a in advances if a.error]
    assert read_json(there.folder / "results.json") == read_json(here.folder / "results.json")
    record = GridRecord.open(there.folder)
    assert record.all_runs[0].curve and record.all_runs[0].predictions
    assert list(there.run(on_cluster())) == []  # nothing is left to do


def test_a_failing_task_is_a_failed_cell(tmp_path, two_workers):
    source = Source(folder=str(tmp_path / "nowhere"))
    experiment = tiny_experiment("cluster-baselines", ["grass"])
    failing = Grid(experiment, tmp_path / "grid", TINY, source=source, threads=1)
    (advance,) = failing.run(on_cluster(cpus=1))
    assert "nowhere" in advance.error
    assert read_json(failing.folder / "results.json")[0]["status"] == "failed"
