"""A reduced GRASS on ZINC, and a GINE and a GCN of the same size and training time.

    python results/zinc-short/make.py --data folder/zinc

Writes a run folder for each network next to this file, without checkpoints and weights.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from grass_gnn import GRASSConfig
from grass_gnn.data.packed.prepare import prepare_benchmark
from grass_gnn.experiments.budget import same_size, train_for
from grass_gnn.nn.model import count_parameters
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import train

HERE = Path(__file__).parent
GRASS = {
    "model.layers": 12,
    "rewiring.degree": 3,
    "training.epochs": 20,
    "training.learning_rate": 1e-3,
    "evaluation.statistics_passes": 10,
    "evaluation.rewirings": 10,
}
BASELINE = {
    "rewiring.kind": "none",
    "model.layers": 8,
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-3,
    "training.weight_decay": 1e-5,
    "evaluation.rewirings": 1,
    "evaluation.statistics_passes": 0,
}


def main() -> None:
    """Train all three networks, and remove the files that are not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder with ZINC's raw files")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    config = GRASSConfig.preset("zinc", **GRASS)
    data = prepare_benchmark(config, arguments.data)
    finished = {}
    for name in ("grass", "gin", "gcn"):
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        if name == "grass":
            finished[name] = train(config, data, folder, RunOptions(seed=arguments.seed))
            report(name, finished[name], config)
        else:
            seconds = finished["grass"].results["training"]["seconds"]
            baseline = same_size(config, name, **BASELINE)
            finished[name] = train_for(baseline, data, folder, seconds, arguments.seed)
            report(name, finished[name], baseline)
        shutil.rmtree(folder / "checkpoints")
        for unneeded in ("val_predictions.csv", "weights.safetensors", "config.json"):
            (folder / unneeded).unlink(missing_ok=True)


def report(name, run, config) -> None:
    """Print one line for a finished run."""
    training, count = run.results["training"], max(run.test.averaged)
    print(
        f"{name}: {count_parameters(config):,} parameters, {training['epochs']} epochs, "
        f"{training['seconds']:.0f} s, test MAE {run.test.mean:.4f} "
        f"(averaged over {count} rewirings: {run.test.averaged[count]:.4f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
