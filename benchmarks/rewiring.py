"""Time of rewiring a batch and encoding its pairs, all graphs at once and graph by graph.

    python benchmarks/rewiring.py [--graphs 200] [--nodes 23] [--r 6] [--k 32] [--json]

The graphs have the size of ZINC's molecules: a path with a few more bonds. Both ways call the same
functions with the same seeds; the script checks that they give the same result. One thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from grass_gnn.encoding import rrwp_pairs, transition_probabilities
from grass_gnn.ops import build
from grass_gnn.rewiring import random_regular_edges, step_seeds


def molecule(num_nodes: int, generator: torch.Generator) -> Tensor:
    """Edges of a path with three more bonds, in both directions."""
    path = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
    bonds = torch.randint(num_nodes, (2, 3), generator=generator)
    edges = torch.cat([path, bonds[:, bonds[0] != bonds[1]]], dim=1)
    return torch.cat([edges, edges.flip(0)], dim=1)


def rewire(
    edges: Tensor, transition: Tensor, ptr: Tensor, seeds: Tensor, r: int, k: int
) -> tuple[Tensor, Tensor, float]:
    """Input edges, self-loops and added edges with their encodings, and the time to draw them."""
    start = time.perf_counter()
    added = random_regular_edges(ptr, r, seeds)
    drawn = time.perf_counter() - start
    num_nodes = int(ptr[-1])
    loops = torch.arange(num_nodes).expand(2, -1)
    pairs = torch.cat([edges, loops, added], dim=1)
    return pairs, rrwp_pairs(pairs, edges, transition, num_nodes, k, ptr), drawn


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Median time of several calls, after one warm-up call."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=23)
    parser.add_argument("--r", type=int, default=6, help="number of permutations")
    parser.add_argument("--k", type=int, default=32, help="number of random walk steps")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)

    generator = torch.Generator().manual_seed(0)
    n, r, k = options.nodes, options.r, options.k
    molecules = [molecule(n, generator) for _ in range(options.graphs)]
    transitions = [transition_probabilities(edges, n) for edges in molecules]
    seeds = step_seeds(0, 0, torch.arange(options.graphs))
    one, ptr = torch.tensor([0, n]), torch.arange(options.graphs + 1) * n
    edges = torch.cat([e + first for e, first in zip(molecules, ptr, strict=False)], dim=1)
    transition = torch.cat(transitions)

    def batched() -> tuple[Tensor, Tensor, float]:
        return rewire(edges, transition, ptr, seeds, r, k)

    def looped() -> list[tuple[Tensor, Tensor, float]]:
        parts = zip(molecules, transitions, seeds.split(1), strict=True)
        return [rewire(e, t, one, seed, r, k) for e, t, seed in parts]

    whole, parts = batched(), looped()
    found = torch.cat([encoding for _, encoding, _ in parts]).sum(0)
    assert sum(pairs.size(1) for pairs, _, _ in parts) == whole[0].size(1)
    assert torch.allclose(found, whole[1].sum(0), rtol=1e-4)

    together, apart = (
        seconds(batched, options.repeats),
        seconds(looped, max(3, options.repeats // 3)),
    )
    drawing = statistics.median(batched()[2] for _ in range(options.repeats))
    result = {
        "graphs": options.graphs,
        "pairs": whole[0].size(1),
        "native": build.available(),
        "batched_ms": round(1e3 * together, 2),
        "of_which_rewiring_ms": round(1e3 * drawing, 2),
        "loop_ms": round(1e3 * apart, 2),
        "ratio": round(apart / together, 1),
    }
    if options.json:
        print(json.dumps(result))
        return
    walks = "C++" if result["native"] else "PyTorch"
    print(f"{options.graphs} graphs of {n} nodes, {result['pairs']} pairs, r = {r}, k = {k}")
    print(f"walks in        {walks:>8}")
    print(f"all at once     {result['batched_ms']:8.2f} ms")
    print(f"  rewiring      {result['of_which_rewiring_ms']:8.2f} ms")
    print(f"graph by graph  {result['loop_ms']:8.2f} ms")
    print(f"ratio           {result['ratio']:8.1f}")


if __name__ == "__main__":
    main()
