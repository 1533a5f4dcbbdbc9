"""Settings for a short schedule, compared at about equal cost; validation set only.

    python results/zinc/recipe.py --data FOLDER             # 14 minutes of a core per run
    python results/zinc/recipe.py --data FOLDER --rows 0,3  # some rows only

A row is trained in one stage, or in two: a shallow model first, and a deeper one that starts from
it. Finished runs are kept. Writes recipe.json. The test set is never predicted: the runs get the
validation set in its place.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from grass_gnn import GRASSConfig
from grass_gnn.data.packed.prepare import prepare_benchmark
from grass_gnn.files import read_json, write_json
from grass_gnn.training.options import RunOptions
from grass_gnn.training.start import train_from

HERE = Path(__file__).parent
COMMON = {
    "rewiring.degree": 3,
    "task.loss": "l1+tail",
    "training.batch_size": 50,
    "training.optimizer": "muon",
    "training.weight_decay": 0.3,
    "training.warmup": 0.05,
    "training.average": 0.999,
    "evaluation.every": 100,
    "evaluation.statistics_passes": 3,
    "evaluation.rewirings": 4,
}

Stage = dict[str, Any]


def stage(layers: int = 12, epochs: int = 30, rate: float = 2e-3, **settings: Any) -> Stage:
    """Settings of a stage; those of COMMON where nothing is said."""
    return {
        **COMMON,
        "model.layers": layers,
        "training.epochs": epochs,
        "training.learning_rate": rate,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }


ROWS: dict[str, list[Stage]] = {
    "12 layers, 30 epochs": [stage()],
    "absolute error": [stage(task__loss="l1")],
    "Lion, 1e-3": [stage(rate=1e-3, training__optimizer="lion")],
    "Muon, 1e-3": [stage(rate=1e-3)],
    "Muon, 4e-3": [stage(rate=4e-3)],
    "batches of 25": [stage(training__batch_size=25)],
    "batches of 100": [stage(training__batch_size=100)],
    "r = 6, 24 epochs": [stage(epochs=24, rewiring__degree=6)],
    "no edge removal": [stage(model__edge_removal=0.0)],
    "decay 1.0": [stage(training__weight_decay=1.0)],
    "6 layers, 58 epochs": [stage(6, 58)],
    "24 layers, 15 epochs": [stage(24, 15)],
    "49 layers, 8 epochs": [stage(49, 8, 1e-3)],
    "12 layers, 15 epochs, then 49 layers, 4 epochs": [stage(12, 15), stage(49, 4, 5e-4)],
}


def main() -> None:
    """Train the runs that are missing, and write the scores of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with ZINC's raw files")
    parser.add_argument("--runs", type=Path, default=Path("runs/zinc-recipe"))
    parser.add_argument("--rows", default=",".join(map(str, range(len(ROWS)))), help="which rows")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(arguments.seeds):
        for number in map(int, arguments.rows.split(",")):
            folder = arguments.runs / f"{number}-{seed}"
            train_stages(list(ROWS.values())[number], arguments.data, folder, seed)
    found = {name: scores(arguments.runs, number) for number, name in enumerate(ROWS)}
    write_json(HERE / "recipe.json", {name: runs for name, runs in found.items() if runs})


def train_stages(stages: list[Stage], source: str, folder: Path, seed: int) -> None:
    """Train the stages of a row that are missing, each in a folder of its own."""
    for number, settings in enumerate(stages):
        own = folder / str(number)
        if (own / "results.json").exists():
            continue
        config = GRASSConfig.preset("zinc", **settings)
        data = prepare_benchmark(config, source)
        data = replace(data, splits={**data.splits, "test": data.val})
        start = folder / str(number - 1) if number else None
        train_from(start, config, data, own, RunOptions(seed=seed, resume=own.exists()))


def scores(folder: Path, number: int) -> list[dict[str, float]]:
    """Validation scores, last training loss and seconds of a row's runs, after the last stage."""
    found = []
    for run in sorted(folder.glob(f"{number}-*")):
        stages = sorted(run.glob("*/results.json"))
        if len(stages) < len(list(ROWS.values())[number]):
            continue
        results = read_json(stages[-1])
        with (stages[-1].parent / "metrics.csv").open() as file:
            *_, last = csv.DictReader(file)
        with (stages[-1].parent / "val_predictions.csv").open() as file:
            errors = [abs(float(r["mean_0"]) - float(r["target_0"])) for r in csv.DictReader(file)]
        found.append(
            {
                "seed": results["seed"],
                "val": results["val"]["mean"],
                # Two validation molecules are missed by 8 and by 20: a fifth of the mean error.
                "val_up_to_one": sum(min(error, 1.0) for error in errors) / len(errors),
                "train_loss": float(last["train_loss"]),
                "seconds": sum(read_json(path)["training"]["seconds"] for path in stages),
            }
        )
    return found


if __name__ == "__main__":
    main()
