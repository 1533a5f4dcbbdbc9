"""Time of a batch of 200 ZINC graphs (r = 6, k = 32): our loader, and PyG's with transforms.

Both do the same work on one core: rewire each graph and encode all of its edges. For PyG's
``DataLoader`` the graphs are prepared by ``AddRRWP`` (a pre_transform) and rewired one by one by
``AddRandomRegularEdges`` (a transform); converting its batch for the model
(self-loops, sorting) is timed separately.

    python benchmarks/loader.py --data folder/zinc
    python benchmarks/loader.py --json                # molecule-like graphs, generated
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import batch_from_data
from grass_gnn.data.benchmarks.registry import load_benchmark
from grass_gnn.data.packed.dataset import pack
from grass_gnn.data.packed.loader import TrainingLoader
from grass_gnn.encoding import AddDegree, AddRRWP
from grass_gnn.rewiring import AddRandomRegularEdges

BATCH_SIZE = 200
MAX_MILLISECONDS = 25.0
MIN_RATIO = 7.0


class Rewired(torch.utils.data.Dataset):
    """Graphs with a transform, as a PyG dataset applies it."""

    def __init__(self, graphs: list[Data], transform: Callable[[Data], Data]) -> None:
        self.graphs, self.transform = graphs, transform

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, number: int) -> Data:
        return self.transform(self.graphs[number].clone())


def molecule_like(generator: torch.Generator) -> Data:
    """A random tree of about 23 atoms with a few rings, of the size and sparsity of ZINC."""
    n = int(torch.randint(16, 31, (1,), generator=generator))
    parent = [int(torch.randint(max(0, i - 3), i, (1,), generator=generator)) for i in range(1, n)]
    rings = [(i, i + 5) for i in range(0, n - 5, 8)]
    pairs = torch.tensor([*zip(range(1, n), parent, strict=True), *rings]).t()  # [2, bonds]
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    return Data(
        x=torch.randint(0, 28, (n, 1), generator=generator),
        edge_index=edge_index,
        edge_attr=torch.randint(1, 4, (edge_index.size(1),), generator=generator),
        y=torch.randn(1, generator=generator),
    )


def median_milliseconds(batches: Iterator[Any], repeats: int) -> float:
    """Median time per batch, after one warm-up batch."""
    next(batches)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        next(batches)
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", help="folder of ZINC's raw files (default: generated graphs)")
    parser.add_argument("--repeats", type=int, default=20, help="batches that are timed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()

    torch.set_num_threads(1)
    logging.disable()
    config = GRASSConfig.preset("zinc")
    if options.data:
        graphs = list(load_benchmark("zinc", options.data).splits["train"])[: 5 * BATCH_SIZE]
    else:
        generator = torch.Generator().manual_seed(0)
        graphs = [molecule_like(generator) for _ in range(5 * BATCH_SIZE)]

    packed = pack(graphs, config)
    loader = TrainingLoader(packed, config, BATCH_SIZE, shuffle=True, workers=0)
    ours = median_milliseconds(endless(loader), options.repeats)

    prepare = Compose([AddDegree(), AddRRWP(config.encoding.steps)])
    dataset = Rewired(
        [prepare(graph.clone()) for graph in graphs], AddRandomRegularEdges(config.rewiring.degree)
    )
    pyg = DataLoader(dataset, BATCH_SIZE, shuffle=True, drop_last=True)
    theirs = median_milliseconds(endless(pyg), options.repeats // 2)
    finished = (batch_from_data(batch, config) for batch in endless(pyg))
    complete = median_milliseconds(finished, options.repeats // 2)

    result = {
        "data": options.data or "generated",
        "mean_nodes": packed.num_nodes / len(packed),
        "loader_ms": round(ours, 2),
        "pyg_ms": round(theirs, 2),
        "pyg_to_model_ms": round(complete, 2),
        "ratio": round(theirs / ours, 1),
        "passed": ours <= MAX_MILLISECONDS and theirs >= MIN_RATIO * ours,
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"A batch of {BATCH_SIZE} graphs, one core ({result['data']}):")
    print(f"  our loader               {ours:8.2f} ms   (at most {MAX_MILLISECONDS:g})")
    print(f"  PyG DataLoader           {theirs:8.2f} ms   {theirs / ours:.1f} times as long")
    print(f"  … converted for model    {complete:8.2f} ms   {complete / ours:.1f} times as long")


if __name__ == "__main__":
    main()
