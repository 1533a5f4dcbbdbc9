"""Shared fixtures: where real data are, and little work so that tests can run side by side."""

import contextlib
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

from grass_gnn.data.tables import reading

# Two tests run side by side, and some start processes: with more threads they would wait for each
# other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def few_resamples_and_trees():
    """Few resamples for confidence intervals, and few trees: else both take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grass_gnn.evaluation.protocol.BOOTSTRAP", 20)
        patch.setattr("grass_gnn.api.forest._TREES", 15)
        yield


_start, _close = reading.ReadingPool._start, reading.ReadingPool.close
_MOST_KEPT = 6


@pytest.fixture(scope="session", autouse=True)
def kept_readers():
    """Idle workers of one test read the molecules of the next, whatever its reader.

    To start them, each of which imports RDKit, takes a third of the time of a small run.
    """
    kept = []
    lock = threading.Lock()  # a pool starts its workers in several threads

    def end(worker):
        worker.process.kill()
        worker.kill()

    def key():
        return reading._START, tuple(sys.path)

    def start(pool):
        with lock:
            for worker in kept:
                if worker.started_with == key() and worker.process.poll() is None:
                    kept.remove(worker)
                    pool._all.append(worker)
                    return worker
        worker = _start(pool)
        worker.started_with = key()
        return worker

    def close(pool):
        pool._closed = True  # its threads take no other worker
        with contextlib.suppress(IndexError):  # there is none left
            while worker := pool._idle.pop():
                pool._all.remove(worker)
                with lock:
                    kept.append(worker)
        _close(pool)
        with lock:
            while len(kept) > _MOST_KEPT:
                end(kept.pop(0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading.ReadingPool, "_start", start)
        patch.setattr(reading.ReadingPool, "close", close)
        yield
    for worker in kept:
        end(worker)


@pytest.fixture
def fresh_readers(monkeypatch):
    """Workers end with their pool, as outside of the tests."""
    monkeypatch.setattr(reading.ReadingPool, "_start", _start)
    monkeypatch.setattr(reading.ReadingPool, "close", _close)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real benchmark data, if it is there."""
    chosen = os.environ.get("GRASS_TEST_DATA")
    folder = Path(chosen) if chosen else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data: set GRASS_TEST_DATA to their folder")
    return folder
