"""What ``make run`` shows: a small GRASS against two baselines, on graphs made on the spot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import PreparedData, prepare_benchmark
from grass_gnn.experiments.budget import count_parameters, same_size, train_for
from grass_gnn.locks import locked
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import Run, train

SIZES = (480, 60, 120)  # training, validation and test graphs
# Of the baselines, which do not look at added edges. The learning rates are the best of 1e-3, 3e-3
# and 1e-2 by validation score.
BASELINES = {"GCN": 3e-3, "GatedGCN": 1e-2}


@dataclass(frozen=True)
class Contestant:
    """One trained network of the demonstration."""

    name: str
    parameters: int
    seconds: float
    accuracy: float
    averaged: float  # of predictions averaged over rewirings
    folder: Path


def demonstrate(folder: Path, seed: int = 0) -> Iterator[Contestant]:
    """Train GRASS, then each baseline for the same time; the folder is replaced."""
    config = GRASSConfig.preset("cluster-small")
    data = prepare_benchmark(config, generate=SIZES, seed=seed)
    with locked(folder) as lock:
        lock.empty()
        yield from _contest(config, data, folder, seed)


def _contest(
    config: GRASSConfig, data: PreparedData, folder: Path, seed: int
) -> Iterator[Contestant]:
    run = train(config, data, folder / "grass", RunOptions(seed=seed))
    seconds = run.results["training"]["seconds"]
    yield _contestant("GRASS", run, config)
    for name, learning_rate in BASELINES.items():
        settings = {
            "rewiring.kind": "none",
            "training.optimizer": "adamw",
            "training.weight_decay": 1e-5,
            "training.learning_rate": learning_rate,
        }
        baseline = same_size(config, name.lower(), **settings)
        run = train_for(baseline, data, folder / name.lower(), seconds, seed)
        yield _contestant(name, run, baseline)


def _contestant(name: str, run: Run, config: GRASSConfig) -> Contestant:
    return Contestant(
        name,
        count_parameters(config),
        run.results["training"]["seconds"],
        run.test.mean,
        run.test.averaged[max(run.test.averaged)],
        run.folder,
    )
