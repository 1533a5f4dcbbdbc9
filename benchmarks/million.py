"""An epoch on parts and an evaluation of one large graph: 10⁴ to 10⁶ nodes, 10 edges per node.

    python benchmarks/million.py                              # all sizes
    python benchmarks/million.py --nodes 10000 100000         # the smaller ones
    python benchmarks/million.py --sampling neighbour

4 layers of width 32, r = 3, k = m = 16. The graph is a stochastic block model of eight communities
with noisy features. Preparation, and training with evaluation, run in separate processes for their
peak memory. Both CPU time and wall-clock time are printed; with one thread (OMP_NUM_THREADS=1), CPU
time depends little on other work on the machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from growth import SETTINGS, exponent
from torch_geometric.data import Data

from grass_gnn import GRASS, GRASSConfig
from grass_gnn.data.packed.loader import training_loader
from grass_gnn.data.packed.prepare import open_prepared, prepare
from grass_gnn.evaluation.protocol import collect, predict_split
from grass_gnn.tasks import make_task
from grass_gnn.training.optimizers import make_optimizer

CLASSES = 8
PHASES = ("preparation", "epoch", "statistics", "evaluation")


def config_of(sampling: str) -> GRASSConfig:
    more = {"training.sampling": sampling, "training.parts": 16, "evaluation.streamed_above": 0}
    return GRASSConfig().override(SETTINGS | more)


def block_model(num_nodes: int) -> Data:
    """Every node draws five neighbours, each from its own community with probability ½."""
    generator = torch.Generator().manual_seed(0)
    head = torch.arange(num_nodes).repeat_interleave(5)
    anywhere = torch.randint(num_nodes, (len(head),), generator=generator)
    within = anywhere - anywhere % CLASSES + head % CLASSES  # a node's class is its number mod 8
    inside = (torch.rand(len(head), generator=generator) < 0.5) & (within < num_nodes)
    pairs = torch.stack([head, torch.where(inside, within, anywhere)])
    y = torch.arange(num_nodes) % CLASSES
    x = 0.5 * torch.nn.functional.one_hot(y, 16) + torch.randn(num_nodes, 16, generator=generator)
    draw = torch.rand(num_nodes, generator=generator)
    return Data(
        x=x,
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        y=y,
        train_mask=draw < 0.5,
        val_mask=(draw >= 0.5) & (draw < 0.75),
        test_mask=draw >= 0.75,
        num_nodes=num_nodes,
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


class Measured:
    """Seconds of each phase, and the peak memory so far at its end."""

    def __init__(self) -> None:
        self.row: dict[str, Any] = {"before_mb": peak_mb()}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.row[f"{name}_seconds"] = time.process_time() - cpu
        self.row[f"{name}_clock"] = time.perf_counter() - wall
        self.row[f"{name}_peak_mb"] = peak_mb()
        self.row[f"{name}_mb"] = peak_mb() - self.row["before_mb"]
        print(name, {k: round(v, 1) for k, v in self.row.items()}, file=sys.stderr, flush=True)


def measure_preparation(num_nodes: int, config: GRASSConfig, folder: Path) -> dict[str, Any]:
    graph = [block_model(num_nodes)]
    measured = Measured()
    with measured.phase("preparation"):
        prepared = prepare(dict.fromkeys(("train", "val", "test"), graph), config, folder)
    residual = prepared.eigenpairs[0]["residual"] if prepared.eigenpairs else 0.0
    return measured.row | {"residual": residual, "megabytes": prepared.bytes / 1e6}


def measure_training(config: GRASSConfig, folder: Path) -> dict[str, Any]:
    (entry,) = (path for path in folder.iterdir() if not path.name.startswith("."))
    torch.manual_seed(0)
    model = GRASS(config)
    optimizer = make_optimizer(model, config.training)
    measured = Measured()
    data = open_prepared(entry, config)
    losses = []
    with measured.phase("epoch"):
        for batch in training_loader(data.train, config, 1):
            assert batch.y is not None and batch.mask is not None
            loss = make_task(config.task).loss(model(batch)[batch.mask], batch.y[batch.mask], 0.1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    with measured.phase("statistics"):
        collect(model, data.train, config, passes=1)
    with measured.phase("evaluation"):
        prediction, target, _ = predict_split(model, data.test, config)
        assert target is not None
        accuracy = make_task(config.task).score(prediction, target)
    size = {"nodes": data.train.num_nodes, "edges": data.train.num_edges}
    return size | measured.row | {"loss": losses, "accuracy": accuracy, "steps": len(losses)}


def run(sizes: list[int], sampling: str) -> dict[str, Any]:
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            row: dict[str, Any] = {}
            for part in ("preparation", "training"):
                command = [sys.executable, __file__, "--only", part, folder]
                command += ["--nodes", str(size), "--sampling", sampling]
                output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                row |= json.loads(output.stdout.splitlines()[-1])
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    exponents = {}
    if len(rows) > 1:
        for phase in PHASES:
            exponents[phase] = {
                "time": exponent(rows, f"{phase}_seconds"),
                "memory": exponent(rows, f"{phase}_mb"),
            }
    return {"rows": rows, "exponents": exponents}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--sampling", choices=("partition", "neighbour"), default="partition")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs=2, metavar=("PART", "FOLDER"), help="one process's share")
    arguments = parser.parse_args()
    config = config_of(arguments.sampling)
    if arguments.only:
        part, folder = arguments.only[0], Path(arguments.only[1])
        found = (
            measure_preparation(arguments.nodes[0], config, folder)
            if part == "preparation"
            else measure_training(config, folder)
        )
        print(json.dumps(found))
        return
    result = run(arguments.nodes, arguments.sampling)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for row in result["rows"]:
        print(f"{row['nodes']:,} nodes, {row['edges']:,} edges, accuracy {row['accuracy']:.3f}")
        for phase in PHASES:
            print(
                f"  {phase:12} {row[f'{phase}_seconds']:9.1f} s CPU "
                f"{row[f'{phase}_clock']:9.1f} s {row[f'{phase}_peak_mb']:9,.0f} MB"
            )
    for phase, found in result["exponents"].items():
        print(f"{phase}: time {found['time']:.2f}, memory {found['memory']:.2f} in |V| + |E|")


if __name__ == "__main__":
    main()
