"""The paper's compute tables, measured on this machine, as text for an issue.

    python benchmarks/gpu.py                              # all datasets, on the GPU
    python benchmarks/gpu.py zinc pascalvoc-sp            # some of them
    python benchmarks/gpu.py zinc --data folder/zinc      # with the official graphs
    python benchmarks/gpu.py --dry-run --device cpu       # checks that everything runs

Each dataset is trained as ``grass-gnn train`` would: the preset's model, batch size and optimiser,
float16 autocast and compiled layers as in the paper. By default the graphs are random ones with the
dataset's mean numbers of nodes and edges. A part of an epoch is timed, after an epoch in which the
layers are compiled, and scaled to the size of the training set; so is the preprocessing time.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import loader_rates
import torch
from torch_geometric.data import Data

from grass_gnn import GRASSConfig
from grass_gnn.data.benchmarks.registry import BENCHMARKS, load_benchmark
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.experiments.published import published_table
from grass_gnn.files import locked
from grass_gnn.hardware import describe, find_device, peak_memory_mb
from grass_gnn.nn.model import build_model
from grass_gnn.progress import silent
from grass_gnn.tasks import make_task
from grass_gnn.testing import random_features
from grass_gnn.training.distributed import Team
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.options import RunOptions

EPOCH, PREPARATION = "Training time per epoch (s)", "Preprocessing time"
MEMORY = "Peak memory (MiB), regular"
COLUMNS = {  # of the tables "compute" and "compute-lrgb"
    "zinc": "ZINC",
    "mnist": "MNIST",
    "cifar10": "CIFAR10",
    "pattern": "PATTERN",
    "cluster": "CLUSTER",
    "peptides-func": "Peptides-func",
    "peptides-struct": "Peptides-struct",
    "pascalvoc-sp": "PascalVOC-SP",
    "coco-sp": "COCO-SP",
}
ADDED_EDGES = {"zinc": "added-edges-zinc", "pascalvoc-sp": "added-edges-pascalvoc"}
CHECKPOINTED = ("coco-sp",)  # the paper's only dataset with activation checkpointing
DRY_RUN = {"model.layers": 2, "model.dim": 8, "training.batch_size": 2, "encoding.eigenpairs": 4}


class Row(NamedTuple):
    """What one dataset took."""

    name: str
    seconds: float  # per epoch
    deviation: float
    preparation: float  # seconds
    memory: float  # MiB
    graphs: int  # trained on per measured epoch


def random_graph(config: GRASSConfig, nodes: float, edges: float, seed: int) -> Data:
    """A connected graph of about this many nodes and directed edges, with features and targets."""
    generator = torch.Generator().manual_seed(seed)
    n = max(3, round(nodes * (1 + 0.15 * torch.randn((), generator=generator).item())))
    path = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    chords = max(0, round(edges / nodes * n / 2) - (n - 1))
    more = torch.randint(n, (2, chords), generator=generator)
    pairs = torch.cat([path, more[:, more[0] != more[1]]], dim=1)
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1)
    task = make_task(config.task)
    return Data(
        x=random_features(config.input.nodes, n, generator),
        edge_index=edge_index,
        edge_attr=random_features(config.input.edges, edge_index.size(1), generator),
        y=task.random_targets(task.num_rows(1, n, edge_index.size(1)), generator),
        num_nodes=n,
    )


def sample(name: str, config: GRASSConfig, count: int, options: argparse.Namespace) -> list[Data]:
    """Graphs to train on: those of the dataset, or random ones of its size."""
    if options.data:
        return list(load_benchmark(name, options.data).splits["train"])[:count]
    official = BENCHMARKS[name].official
    size = 0.1 if options.dry_run else 1.0
    nodes, edges = size * official.mean_nodes, size * official.mean_edges
    return [random_graph(config, nodes, edges, seed) for seed in range(count)]


def measure(name: str, options: argparse.Namespace) -> Row:
    """Train on a part of a dataset for a few epochs."""
    device = find_device(options.device)
    settings: dict[str, Any] = {
        "training.epochs": options.epochs + 1,
        "training.compile": not options.no_compile,
        "training.precision": options.precision,
        "training.patience": 0,
        "evaluation.every": options.epochs + 2,
        **({"model.checkpoint": 4} if name in CHECKPOINTED else {}),
        **(DRY_RUN if options.dry_run else {}),
    }
    config = GRASSConfig.preset(name, **settings)
    count = min(options.batches * config.training.batch_size, BENCHMARKS[name].official.graphs[0])
    graphs = sample(name, config, count, options)
    with tempfile.TemporaryDirectory() as folder, locked(Path(folder) / "run") as lock:
        started = time.perf_counter()
        splits = {"train": graphs, "val": graphs[:2], "test": graphs[:2]}
        data = prepare(splits, config, Path(folder) / "data", progress=silent)
        prepared = time.perf_counter() - started
        if device.type != "cpu":
            torch.get_device_module(device).reset_peak_memory_stats(device)
        loop = TrainingLoop(
            build_model(config, data, 0),
            config,
            data,
            lock,
            RunOptions(workers=options.workers, device=options.device, progress=silent),
            Team(device=options.device),
        )
        loop.run()
    official = BENCHMARKS[name].official.graphs
    used = loop.batch_size * loop.batches_per_epoch
    scale = official[0] / used
    seconds = [scale * row["seconds"] for row in loop.record.rows[1:]]
    return Row(
        name,
        statistics.mean(seconds),
        statistics.stdev(seconds) if len(seconds) > 1 else 0.0,
        prepared * sum(official) / len(graphs),
        peak_memory_mb(device) * 1e6 / 2**20,
        used,
    )


def published(name: str) -> tuple[str, str, str]:
    """Time per epoch, preprocessing time and peak memory as printed in the paper."""
    column = COLUMNS[name]
    table = published_table("compute-lrgb" if "-" in name else "compute")
    memory = "–"
    if name in ADDED_EDGES:
        degree = str(GRASSConfig.preset(name).rewiring.degree)
        memory = published_table(ADDED_EDGES[name]).cell(MEMORY, degree).text
    return table.cell(EPOCH, column).text, table.cell(PREPARATION, column).text, memory


def report(rows: list[Row], options: argparse.Namespace) -> str:
    """The tables in Markdown, with everything that a reader must know about them."""
    machine, device = describe(), find_device(options.device)
    gpus = ", ".join(machine["gpus"]) or "none"
    lines = [
        "**Dry run: these numbers mean nothing.**\n" if options.dry_run else "",
        f"- device: {device}; GPUs: {gpus}; CPU: {machine['cpu']} ({machine['cores']} cores)",
        f"- grass-gnn {machine['grass-gnn']}, PyTorch {machine['torch']}, "
        f"PyG {machine['torch_geometric']}, Python {machine['python']}",
        f"- precision {options.precision}; layers {'not ' * options.no_compile}compiled; "
        f"{options.workers} loader threads; "
        f"{'official graphs' if options.data else 'random graphs of the same size'}",
        "- paper: NVIDIA RTX A6000 Ada, AMD Ryzen 9 9950X, compiled, float16",
        "",
        "| dataset | s per epoch | paper | preprocessing (s) | paper | peak memory (MiB) | paper |"
        " graphs timed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        epoch, preparation, memory = published(row.name)
        lines.append(
            f"| {COLUMNS[row.name]} | {row.seconds:.2f} ± {row.deviation:.2f} | {epoch} | "
            f"{row.preparation:.0f} | {preparation} | {row.memory:,.0f} | {memory} | "
            f"{row.graphs:,} |"
        )
    if device.type == "cpu":
        lines.append("\nPeak memory is that of the process.")
    return "\n".join(lines).lstrip("\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("datasets", nargs="*", help=f"{', '.join(COLUMNS)} (default: all)")
    parser.add_argument("--device", help="device to run on (default: the GPU if there is one)")
    parser.add_argument("--data", help="folder of the raw files of one dataset")
    parser.add_argument("--epochs", type=int, default=5, help="timed epochs")
    parser.add_argument("--batches", type=int, default=50, help="batches per timed epoch, at most")
    parser.add_argument("--workers", type=int, default=2, help="threads that prepare batches")
    parser.add_argument(
        "--precision", choices=["16-mixed", "bf16-mixed", "32-true"], default="16-mixed"
    )
    parser.add_argument("--no-compile", action="store_true", help="run the layers uncompiled")
    parser.add_argument("--no-loader", action="store_true", help="leave out the loader's rates")
    parser.add_argument(
        "--dry-run", action="store_true", help="tiny models and graphs, to check that it runs"
    )
    options = parser.parse_args()
    unknown = set(options.datasets) - COLUMNS.keys()
    if unknown:
        parser.error(f"there is no dataset {', '.join(sorted(unknown))}")
    if options.data and len(options.datasets) != 1:
        parser.error("--data needs the name of one dataset")
    if options.dry_run:
        options.epochs, options.batches = min(options.epochs, 2), min(options.batches, 2)
    logging.disable(logging.INFO)
    rows = [measure(name, options) for name in options.datasets or COLUMNS]
    print(report(rows, options))
    if not options.no_loader:
        print()
        print(loader_rates.report(loader_rates.measure_all(dry_run=options.dry_run)))


if __name__ == "__main__":
    main()
