"""A short search on ZINC for the settings that the paper adjusted without giving their values.

    python results/zinc-search/make.py --data FOLDER

The search covers the learning rate of the replacement attentions, and learning rate, batch size,
betas and decay of AdamW: one setting after the other, each chosen by the validation error of a
shallow model after a few epochs. The best learning rates of such short runs are higher than the
paper's. ablations.toml therefore multiplies the preset's rate by the ratio of the best rate for a
change to the best rate for GRASS.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import prepare_benchmark
from grass_gnn.experiments.budget import Budget
from grass_gnn.experiments.catalogue import experiment
from grass_gnn.files import read_json, write_json, write_text
from grass_gnn.training.run import train

HERE = Path(__file__).parent
BUDGET = Budget("search", epochs=4, layers=6, graphs=4000, passes=3, rewirings=4, batch_size=50)
RATE, BATCH = "training.learning_rate", "training.batch_size"
BETAS, DECAY = "training.betas", "training.weight_decay"
TRIED: dict[str, dict[str, tuple[Any, ...]]] = {
    "grass": {RATE: (5e-4, 1e-3, 2e-3, 4e-3)},  # for comparison
    "gatedgcn": {RATE: (5e-4, 1e-3, 2e-3, 4e-3)},
    "transformer": {RATE: (5e-4, 1e-3, 2e-3, 4e-3)},
    "adamw": {
        RATE: (2e-3, 5e-3, 1e-2, 2e-2),
        BATCH: (50, 100, 200),
        BETAS: ([0.9, 0.999], [0.9, 0.95]),
        DECAY: (0.01, 0.1),
    },
}
START = {"adamw": {BATCH: 100, BETAS: [0.9, 0.999], DECAY: 0.01}}


def main() -> None:
    """Search the requested changes, and write the table of all trials."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with the raw files")
    parser.add_argument("--runs", type=Path, default=Path("runs/zinc-search"))
    parser.add_argument("--cells", default=",".join(TRIED), help="which changes to GRASS")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    for cell in arguments.cells.split(","):
        found = search(cell, arguments.data, arguments.runs)
        write_json(arguments.runs / f"{cell}.json", found)
    kept = [arguments.runs / f"{cell}.json" for cell in TRIED]
    found = [entry for path in kept if path.is_file() for entry in read_json(path)]
    write_json(HERE / "search.json", found)
    write_text(HERE / "README.md", page(found))


def search(cell: str, folder: str, runs: Path) -> list[dict[str, Any]]:
    """All trials of a cell: settings are searched one after the other, keeping the best."""
    preset = GRASSConfig.preset("zinc", **experiment("zinc-ablation").cell(cell).settings)
    best: dict[str, Any] = START.get(cell, {})
    found: list[dict[str, Any]] = []
    for setting, values in TRIED[cell].items():
        for value in values:
            settings = {**best, setting: value}
            if any(entry["settings"] == settings for entry in found):
                continue
            config = BUDGET.apply(preset).override(settings)
            data = BUDGET.limit(prepare_benchmark(config, folder))
            run = train(config, data, runs / f"{cell}-{len(found)}")
            found.append({"cell": cell, "settings": settings, "val": run.results["val"]["mean"]})
            print(found[-1], flush=True)
        best = min(found, key=lambda entry: entry["val"])["settings"]
    return found


def page(found: list[dict[str, Any]]) -> str:
    """The search as a table."""
    lines = [
        "# Settings that the paper adjusted",
        "",
        "    python results/zinc-search/make.py --data FOLDER",
        "",
        "Validation MAE on the official ZINC-12k files with a reduced budget: at most 6 layers,",
        "4 epochs, batches of at most 50 (AdamW: as listed), at most 4,000 graphs per split, norm",
        "statistics over at most 3 passes, evaluated under at most 4 rewirings. One seed. Settings",
        "are searched one after the other, from left to right. In such a short run, the best",
        "learning rate of GRASS itself is higher than the preset's 5e-4.",
        "`experiments/ablations.toml` therefore multiplies 5e-4 by the ratio of the best rate for",
        "the change to the best rate for GRASS, and takes the other settings from this table. For",
        "AdamW, the two highest rates do not differ with batches of 100, so the lower one counts.",
        "",
        "| change | learning rate | batch size | betas | decay | validation MAE |",
        "|---|---|---|---|---|---|",
    ]
    for entry in found:
        best = min(e["val"] for e in found if e["cell"] == entry["cell"])
        shown = [str(entry["settings"].get(name, "")) for name in (RATE, BATCH, BETAS, DECAY)]
        value = f"{entry['val']:.4f}"
        marked = f"**{value}**" if entry["val"] == best else value
        lines.append(f"| {' | '.join([entry['cell'], *shown, marked])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
