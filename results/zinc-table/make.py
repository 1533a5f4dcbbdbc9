"""ZINC as a table: the default model for tables, and a GINE and a GPS trained for as long.

    python results/zinc-table/make.py --data FOLDER

FOLDER has train.csv, val.csv and test.csv (columns smiles, y). The baselines are trained on the
same encoded molecules and have the usual sizes for ZINC (about 500,000 and 420,000 parameters).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from grass_gnn import GRASSConfig, load_model
from grass_gnn.api.fitting import fit_table
from grass_gnn.evaluation.trained import find_data
from grass_gnn.experiments.budget import count_parameters, same_size, train_for
from grass_gnn.files import read_json, write_json

HERE = Path(__file__).parent
CUSTOMARY = {
    "rewiring.kind": "none",
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-3,
    "training.betas": [0.9, 0.999],
    "training.weight_decay": 1e-5,
    "training.patience": 0,
    "evaluation.rewirings": 1,
    "evaluation.statistics_passes": 0,
}


def main() -> None:
    """Train the models that are not trained yet, and write their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the tables")
    parser.add_argument("--runs", type=Path, default=Path("runs/zinc-table"))
    parser.add_argument("--models", default="grass,gin,gps", help="which models")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.models.split(","):
        folder = arguments.runs / name
        if not (folder / "results.json").exists():
            train_model(name, folder, arguments)
    runs = [name for name in ("grass", "gin", "gps") if (arguments.runs / name).exists()]
    write_json(HERE / "results.json", {name: summary(arguments.runs / name) for name in runs})


def train_model(name: str, folder: Path, arguments: argparse.Namespace) -> None:
    """GRASS with default settings, or a baseline for the core-minutes that GRASS took."""
    if name == "grass":
        tables = arguments.data
        fit_table(
            tables / "train.csv", ["y"], folder, val=tables / "val.csv", test=tables / "test.csv"
        )
        return
    grass = load_model(arguments.runs / "grass")
    took = read_json(arguments.runs / "grass" / "results.json")
    seconds = took["training"]["seconds"] * took["hardware"]["threads"] / arguments.threads
    data = find_data(grass)
    if name == "gps":
        changes = {"model.architecture": "gps", "model.layers": 10, "model.dim": 64}
        config = grass.config.override({**CUSTOMARY, **changes})
    else:
        size = grass.config.override({"model.layers": 49})
        config = same_size(size, name, **CUSTOMARY, **{"model.layers": 10})
    train_for(config, data, folder, seconds)


def summary(folder: Path) -> dict[str, object]:
    """The table row of a run."""
    results = read_json(folder / "results.json")
    config = GRASSConfig.from_toml(folder / "config.toml")
    return {
        "parameters": count_parameters(config),
        "epochs": results["training"]["epochs"],
        "seconds": results["training"]["seconds"],
        "threads": results["hardware"]["threads"],
        "val": results["val"]["mean"],
        "test": results["test"]["mean"],
        "averaged": results["test"]["averaged"],
    }


if __name__ == "__main__":
    main()
