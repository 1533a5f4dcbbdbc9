"""Settings for a short schedule, tried one at a time on a shallow model.

    python results/zinc/variations.py --data FOLDER

Every row is the zinc preset with eight layers, trained for 20 epochs. README.md says what follows
for the preset zinc-cpu. Finished rows are kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from grass_gnn import GRASSConfig
from grass_gnn.data.packed.prepare import prepare_benchmark
from grass_gnn.files import read_json, write_json
from grass_gnn.training.run import train

HERE = Path(__file__).parent
SMALL = {
    "model.layers": 8,
    "training.epochs": 20,
    "evaluation.statistics_passes": 5,
    "evaluation.rewirings": 8,
}
TRIED = {
    "as the paper: learning rate 5e-4, decay 0.5, warm-up 10 %, r = 6": {},
    "learning rate 1e-3": {"training.learning_rate": 1e-3},
    "learning rate 2e-3": {"training.learning_rate": 2e-3},
    "learning rate 1e-3, decay 0.1": {
        "training.learning_rate": 1e-3,
        "training.weight_decay": 0.1,
    },
}


def main() -> None:
    """Train the requested rows, and write their scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with ZINC's raw files")
    parser.add_argument("--runs", type=Path, default=Path("runs/zinc-variations"))
    parser.add_argument("--rows", default=",".join(map(str, range(len(TRIED)))), help="which rows")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for number in map(int, arguments.rows.split(",")):
        folder = arguments.runs / str(number)
        if not (folder / "results.json").exists():
            config = GRASSConfig.preset("zinc", **SMALL, **list(TRIED.values())[number])
            train(config, prepare_benchmark(config, arguments.data), folder)
    rows = {name: arguments.runs / str(number) for number, name in enumerate(TRIED)}
    done = {name: folder for name, folder in rows.items() if (folder / "results.json").exists()}
    write_json(HERE / "variations.json", {name: summary(folder) for name, folder in done.items()})


def summary(folder: Path) -> dict[str, float]:
    """Scores of a run, averaged over single rewirings."""
    results = read_json(folder / "results.json")
    return {
        "val": results["val"]["mean"],
        "test": results["test"]["mean"],
    }


if __name__ == "__main__":
    main()
