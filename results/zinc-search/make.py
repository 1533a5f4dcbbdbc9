"""Finds the settings that the paper adjusted without saying to what: a short search on ZINC.

    python results/zinc-search/make.py --data FOLDER

The replacement attentions get the learning rate, AdamW also the batch size, with the lowest
validation error after a few epochs of a shallow model. The choices stand in ablations.toml.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import torch

from grass_gnn.config import GRASSConfig
from grass_gnn.data import prepare_benchmark
from grass_gnn.experiments.budget import Budget
from grass_gnn.experiments.catalogue import experiment
from grass_gnn.files import write_json, write_text
from grass_gnn.training import train

HERE = Path(__file__).parent
BUDGET = Budget("search", epochs=4, layers=6, graphs=4000, passes=3, rewirings=2)
RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3)
TRIED = {
    "gatedgcn": {"training.learning_rate": RATES},
    "transformer": {"training.learning_rate": RATES},
    "adamw": {
        "training.learning_rate": (5e-4, 1e-3, 2e-3, 5e-3, 1e-2),
        "training.batch_size": (100, 200),
    },
}


def main() -> None:
    """Try everything, and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with the raw files")
    parser.add_argument("--runs", default="runs/zinc-search", help="where the runs go")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    found = []
    for cell, choices in TRIED.items():
        for values in product(*choices.values()):
            tried = dict(zip(choices, values, strict=True))
            config = GRASSConfig.preset("zinc", **experiment("zinc-ablation").cell(cell).settings)
            config = BUDGET.apply(config.override(tried))
            data = BUDGET.limit(prepare_benchmark(config, arguments.data))
            name = "-".join([cell, *(f"{value:g}" for value in values)])
            results = train(config, data, Path(arguments.runs) / name).results
            found.append({"cell": cell, **tried, "val": results["val"]["mean"]})
            print(found[-1], flush=True)
    write_json(HERE / "search.json", found)
    write_text(HERE / "README.md", page(found))


def page(found: list[dict[str, float | str]]) -> str:
    """The search as a table."""
    lines = [
        "# Settings that the paper adjusted",
        "",
        "    python results/zinc-search/make.py --data FOLDER",
        "",
        f"Validation MAE with {BUDGET.describe()}. The best of each row group stands in "
        "`experiments/ablations.toml`.",
        "",
        "| change | learning rate | batch size | validation MAE |",
        "|---|---|---|---|",
    ]
    for entry in found:
        best = min(e["val"] for e in found if e["cell"] == entry["cell"])
        value = f"{entry['val']:.4f}"
        lines.append(
            f"| {entry['cell']} | {entry['training.learning_rate']:g} "
            f"| {entry.get('training.batch_size', 200)} "
            f"| {f'**{value}**' if entry['val'] == best else value} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
