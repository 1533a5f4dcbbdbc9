"""Time and memory of a training step on one graph of 10⁴ to 10⁶ nodes.

    python benchmarks/growth.py --nodes 10000 100000 1000000

4 layers of width 32, mean degree 10, r = 3, k = m = 16. The eigenvectors are random numbers,
since their values do not affect the time of a step; benchmarks/million.py computes them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from typing import Any

import torch

from grass_gnn import GRASS, GRASSConfig
from grass_gnn.data.batch import InputGraphs, rewire
from grass_gnn.tasks import make_task
from grass_gnn.training.optimizers import make_optimizer

SETTINGS = {
    "input.nodes.kind": "continuous",
    "input.nodes.sizes": [16],
    "task.level": "node",
    "task.kind": "classification",
    "task.outputs": 8,
    "task.loss": "cross-entropy",
    "task.metric": "accuracy",
    "encoding.kind": "decomposed-rrwp",
    "encoding.steps": 16,
    "encoding.degrees": "none",
    "rewiring.degree": 3,
    "model.layers": 4,
    "model.head_hidden": 0,
}


def measure(num_nodes: int, repeats: int) -> dict[str, Any]:
    config = GRASSConfig().override(SETTINGS)
    torch.manual_seed(0)
    half = torch.randint(num_nodes, (2, 5 * num_nodes))
    graph = InputGraphs(
        graph_ptr=torch.tensor([0, num_nodes]),
        edge_index=torch.cat([half, half.flip(0)], dim=1),
        x=torch.randn(num_nodes, 16),
        y=torch.randint(8, (num_nodes,)),
        stored={
            "vectors": torch.randn(num_nodes, 17) / num_nodes**0.5,
            "values": torch.linspace(1, -1, 17).unsqueeze(0),
        },
    )
    model = GRASS(config)
    optimizer = make_optimizer(model, config.training)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: dict[str, list[float]] = {"rewiring": [], "step": []}
    for _ in range(repeats + 1):
        start = time.perf_counter()
        batch = rewire(graph, config.encoding, config.rewiring)
        ready = time.perf_counter()
        assert batch.y is not None
        make_task(config.task).loss(model(batch), batch.y, 0.1).backward()
        optimizer.step()
        optimizer.zero_grad()
        times["rewiring"].append(ready - start)
        times["step"].append(time.perf_counter() - ready)
        edges = batch.edge_kind.numel()
        del batch
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "nodes": num_nodes,
        "edges": edges,
        "rewiring_seconds": min(times["rewiring"][1:]),
        "step_seconds": min(times["step"][1:]),
        "peak_mb": (peak - before) * 1024 / 1e6,
    }


def exponent(rows: list[dict[str, Any]], what: str) -> float:
    """Slope of the logarithm of a quantity against that of |V| + |E|, by least squares."""
    x = [math.log(row["nodes"] + row["edges"]) for row in rows]
    y = [math.log(row[what]) for row in rows]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum(
        (a - mx) ** 2 for a in x
    )


def run(sizes: list[int], repeats: int) -> dict[str, Any]:
    rows = []
    for size in sizes:  # in separate processes, for their peak memory
        command = [sys.executable, __file__, "--only", str(size), "--repeats", str(repeats)]
        environment = {**os.environ, "THP_MEM_ALLOC_ENABLE": "1"}  # as the command grass-gnn does
        output = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, env=environment, text=True
        ).stdout
        rows.append(json.loads(output.splitlines()[-1]))
    for row in rows:
        row["total_seconds"] = row["rewiring_seconds"] + row["step_seconds"]
    return {
        "rows": rows,
        "time_exponent": exponent(rows, "total_seconds"),
        "memory_exponent": exponent(rows, "peak_mb"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", type=int, help="measure this size in this process and print JSON")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.repeats)))
        return
    result = run(arguments.nodes, arguments.repeats)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for row in result["rows"]:
        print({name: round(value, 3) for name, value in row.items()})
    print(
        f"exponents in |V| + |E|: time {result['time_exponent']:.2f}, "
        f"memory {result['memory_exponent']:.2f}"
    )


if __name__ == "__main__":
    main()
