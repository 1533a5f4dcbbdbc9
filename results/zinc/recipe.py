"""Settings for a short schedule, compared on a shallower model at equal cost; validation set only.

    python results/zinc/recipe.py --data FOLDER             # resumable; 5 minutes of a core per run
    python results/zinc/recipe.py --data FOLDER --rows 0,3  # some rows only

A row is the ZINC model with 12 layers, trained for about the time of 10 epochs. Writes recipe.json.
The test set is never predicted: the runs get the validation set in its place.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from grass_gnn import GRASSConfig
from grass_gnn.data.packed.prepare import prepare_benchmark
from grass_gnn.files import read_json, write_json
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import train

HERE = Path(__file__).parent
SMALL = {
    "model.layers": 12,
    "rewiring.degree": 3,
    "training.epochs": 10,
    "training.batch_size": 50,
    "training.weight_decay": 0.3,
    "evaluation.every": 10,
    "evaluation.statistics_passes": 3,
    "evaluation.rewirings": 4,
}


def lion(rate: float, **settings: Any) -> dict[str, object]:
    """Settings of a row that is trained with Lion."""
    return {
        "training.learning_rate": rate,
        **{k.replace("__", "."): v for k, v in settings.items()},
    }


def muon(rate: float, **settings: Any) -> dict[str, object]:
    """Settings of a row that is trained with Muon."""
    return {"training.optimizer": "muon", **lion(rate, **settings)}


ROWS = {
    "Lion, 1e-3": lion(1e-3),
    "Lion, 2e-3": lion(2e-3),
    "Muon, 1e-3": muon(1e-3),
    "Muon, 2e-3": muon(2e-3),
    "Muon, 4e-3": muon(4e-3),
    "Muon, 2e-3, loss l1+tail": muon(2e-3, task__loss="l1+tail"),
    "Muon, 2e-3, batches of 25": muon(2e-3, training__batch_size=25),
    "Muon, 2e-3, batches of 100": muon(2e-3, training__batch_size=100),
    "Muon, 2e-3, r = 6, 7 epochs": muon(2e-3, rewiring__degree=6, training__epochs=7),
    "Muon, 2e-3, no edge removal": muon(2e-3, model__edge_removal=0.0),
    "Muon, 2e-3, decay 0.1": muon(2e-3, training__weight_decay=0.1),
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
            if not (folder / "results.json").exists():
                config = GRASSConfig.preset("zinc", **SMALL | list(ROWS.values())[number])
                data = prepare_benchmark(config, arguments.data)
                data = replace(data, splits={**data.splits, "test": data.val})
                train(config, data, folder, RunOptions(seed=seed, resume=folder.exists()))
    found = {name: scores(arguments.runs, number) for number, name in enumerate(ROWS)}
    write_json(HERE / "recipe.json", {name: runs for name, runs in found.items() if runs})


def scores(folder: Path, number: int) -> list[dict[str, float]]:
    """Validation MAE (mean over rewirings), last training loss and seconds of a row's runs."""
    found = []
    for path in sorted(folder.glob(f"{number}-*/results.json")):
        results = read_json(path)
        last = (path.parent / "metrics.csv").read_text().splitlines()[-1].split(",")
        found.append(
            {
                "seed": results["seed"],
                "val": results["val"]["mean"],
                "train_loss": float(last[3]),
                "seconds": results["training"]["seconds"],
            }
        )
    return found


if __name__ == "__main__":
    main()
