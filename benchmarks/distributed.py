"""Training throughput of one process and of two, on batches of molecule-like graphs.

    python benchmarks/distributed.py                              # the ZINC preset
    python benchmarks/distributed.py --layers 8 --batch 64 --epochs 2 --graphs 256

Compares the same run, with ``RunOptions(devices=)``, with one process of one thread, one process of
several threads, and as many processes of one thread each. An epoch includes loading, rewiring,
forward, backward, communication and the optimiser, but neither validation nor the start of
processes; the first epoch is not counted. Compare ratios within one run.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from shapes import molecule

from grass_gnn import GRASSConfig
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.hardware import describe
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import train


def settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "dataset": None,
        "model.layers": options.layers,
        "training.batch_size": options.batch,
        "training.epochs": options.epochs + 1,
        "training.synchronise": not options.apart,
        "evaluation.statistics_passes": 0,
        "evaluation.rewirings": 1,
        "evaluation.every": 10**6,
    }


def measure(options: argparse.Namespace, folder: Path) -> float:
    """Graphs per second of one run, in this process and those it starts."""
    torch.set_num_threads(options.threads)
    logging.disable()
    config = GRASSConfig.preset("zinc").override(settings(options))
    graphs = [molecule(config, seed) for seed in range(options.graphs + 16)]
    splits = {"train": graphs[16:], "val": graphs[:8], "test": graphs[8:16]}
    data = prepare(splits, config, folder / "data")
    train(config, data, folder / "run", RunOptions(devices=options.devices))
    with (folder / "run" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[1:]
    return statistics.median(float(row["graphs_per_second"]) for row in rows)


def run(options: argparse.Namespace, devices: int, threads: int) -> float:
    """The same in a separate process."""
    given = [
        f"--{name}={getattr(options, name)}" for name in ("layers", "batch", "epochs", "graphs")
    ]
    here = [f"--devices={devices}", f"--threads={threads}", *(["--apart"] if options.apart else [])]
    command = [sys.executable, __file__, *given, *here]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, text=True)
    return float(output.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=49)
    parser.add_argument(
        "--batch", type=int, default=200, help="graphs per batch, over all processes"
    )
    parser.add_argument("--epochs", type=int, default=2, help="epochs to measure")
    parser.add_argument("--graphs", type=int, default=1000, help="graphs per epoch")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--apart", action="store_true", help="training.synchronise = false")
    parser.add_argument(
        "--devices", type=int, help="measure in this process, with this many processes"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.devices:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(options, Path(folder)))
        return
    count = options.processes
    cases = {"1 × 1": (1, 1), f"1 × {count}": (1, count), f"{count} × 1": (count, 1)}
    found = {name: run(options, *case) for name, case in cases.items()}
    base = found["1 × 1"]
    if options.json:
        print(json.dumps({"graphs_per_second": found, "hardware": describe()}, indent=2))
        return
    print("processes × threads   graphs/s   against 1 × 1")
    for name, speed in found.items():
        print(f"{name:>19} {speed:10.1f} {speed / base:15.2f}")


if __name__ == "__main__":
    main()
