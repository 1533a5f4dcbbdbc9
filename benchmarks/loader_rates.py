"""Graphs per second that the loader delivers, and how many the paper's epoch times need.

    python benchmarks/loader_rates.py
    python benchmarks/loader_rates.py --zinc folder/zinc      # with the official graphs

The loader selects, rewires, encodes and sorts batches in threads while the GPU computes. To keep a
GPU as busy as in the paper, it must deliver the training set of a dataset in the published time per
epoch. A batch counts when it is ready to be copied to the GPU; on machines that pin memory, pinning
is included.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import torch
from shapes import molecule, superpixels
from torch_geometric.data import Data

from grass_gnn import GRASSConfig
from grass_gnn.data.benchmarks.registry import BENCHMARKS, load_benchmark
from grass_gnn.data.benchmarks.sbm import generate_cluster
from grass_gnn.data.packed.dataset import pack
from grass_gnn.data.packed.loader import TrainingLoader
from grass_gnn.experiments.published import published_table

WORKERS = (0, 1, 2, 4)
SHAPES = {
    "zinc": ("compute", "ZINC"),
    "pascalvoc-sp": ("compute-lrgb", "PascalVOC-SP"),
    "cluster": ("compute", "CLUSTER"),
}
# The presets' batches of large graphs take up to a gigabyte each: smaller ones are measured.
BATCHES = {"zinc": (20, 200), "pascalvoc-sp": (8, 50), "cluster": (8, 50)}  # number and size


class Rates(NamedTuple):
    """Graphs per second of one dataset."""

    name: str
    needed: float
    delivered: dict[int, float]  # by number of workers
    milliseconds: float  # of one core, per batch
    batch_size: int


def sample(name: str, config: GRASSConfig, count: int, zinc: str | None = None) -> list[Data]:
    """Graphs of a dataset, or of its shape."""
    if name == "zinc" and zinc:
        return list(load_benchmark("zinc", zinc).splits["train"])[:count]
    if name == "cluster":
        return list(generate_cluster((count, 1, 1))["train"])
    make = molecule if name == "zinc" else superpixels
    return [make(config, seed) for seed in range(count)]


def measure(name: str, zinc: str | None = None, dry_run: bool = False) -> Rates:
    """Time an epoch of the loader alone, with each number of workers."""
    config = GRASSConfig.preset(name)
    table, column = SHAPES[name]
    epoch = published_table(table).cell("Training time per epoch (s)", column).value
    assert epoch is not None
    count, size = (1, 2) if dry_run else BATCHES[name]
    packed = pack(sample(name, config, count * size, zinc), config)
    delivered, cores = {}, 0.0
    for workers in WORKERS[:2] if dry_run else WORKERS:
        loader = TrainingLoader(packed, config, size, shuffle=True, workers=workers)
        for number in range(2):  # the first epoch warms up
            loader.set_epoch(number)
            started, used = time.perf_counter(), time.process_time()
            graphs = 0
            for batch in loader:
                if torch.cuda.is_available():
                    batch.edge_encoding.pin_memory()  # by far the largest tensor
                graphs += batch.num_graphs
            seconds, used = time.perf_counter() - started, time.process_time() - used
        delivered[workers] = graphs / seconds
        if not workers:
            cores = 1000 * used * size / graphs
    return Rates(name, BENCHMARKS[name].official.graphs[0] / epoch, delivered, cores, size)


def measure_all(zinc: str | None = None, dry_run: bool = False) -> list[Rates]:
    """The rates of all shapes, with the operations of each thread on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [measure(name, zinc, dry_run) for name in SHAPES]
    finally:
        torch.set_num_threads(threads)


def report(found: list[Rates]) -> str:
    """The rates as a table in Markdown."""
    workers = list(found[0].delivered)
    names = " | ".join("no threads" if not n else f"{n} thread{'s'[: n > 1]}" for n in workers)
    lines = [
        f"| loader, graphs/s | needed | {names} | one core, ms per batch |",
        "|---" * (3 + len(workers)) + "|",
    ]
    for one in found:
        rates = " | ".join(f"{one.delivered[n]:,.0f}" for n in workers)
        lines.append(
            f"| {one.name}, batches of {one.batch_size} | {one.needed:,.0f} | {rates} | "
            f"{one.milliseconds:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--zinc", help="folder of ZINC's raw files (default: generated graphs)")
    print(report(measure_all(parser.parse_args().zinc)))


if __name__ == "__main__":
    main()
