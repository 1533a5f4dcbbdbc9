"""What ``make run`` shows: a small GRASS against two baselines, on graphs made on the spot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grass_gnn.config import GRASSConfig
from grass_gnn.data import prepare_benchmark
from grass_gnn.experiments.equal_time import count_parameters, same_size, train_for
from grass_gnn.training import Run, train

SIZES = (480, 60, 120)  # training, validation and test graphs
# Settings of the baselines: the best of a search over learning rates, by validation score.
BASELINES: dict[str, dict[str, Any]] = {
    "GCN": {"training.optimizer": "adamw", "training.learning_rate": 1e-2},
    "GatedGCN": {"training.optimizer": "adamw", "training.learning_rate": 1e-2},
}


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
    shutil.rmtree(folder, ignore_errors=True)
    run = train(config, data, folder / "grass", seed)
    seconds = run.results["training"]["seconds"]
    yield _contestant("GRASS", run, config)
    for name, settings in BASELINES.items():
        baseline = same_size(config, name.lower(), **settings, **{"training.weight_decay": 1e-5})
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
