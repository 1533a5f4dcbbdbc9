"""Training step and inference of whole models: fused, plain, compiled, and GPS for comparison.

    python benchmarks/steps.py zinc --contestants native reference gps
    python benchmarks/steps.py zinc --layers 12 --contestants native compiled
    python benchmarks/steps.py zinc --contestants native mixed   # bfloat16; needs AVX512_BF16

Every contestant runs in a separate process. Memory is the increase over the process with batches
and model in place. Contestants take turns for several rounds, and the fastest round of each counts,
since other work on the machine slows down some rounds, but not all. Steps include embedding, head,
loss and optimiser, but not the loader (benchmarks/loader.py).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from shapes import CASES, config_of, make_batches

from grass_gnn.data.batch import GraphBatch
from grass_gnn.nn.model import make_model
from grass_gnn.ops.build import has_bfloat16
from grass_gnn.tasks import make_task
from grass_gnn.training.optimizers import make_optimizer

ROUNDS = 3
CONTESTANTS = ("native", "reference", "mixed", "compiled", "gps")
GPS = {"model.architecture": "gps", "model.dim": 64, "model.layers": 10, "model.head_hidden": 0}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def sgemm_gflops(repeats: int = 8) -> float:
    """The best of several products of 2048 × 2048 matrices."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = min(timed(lambda: a @ b) for _ in range(repeats))
    return 2 * 2048**3 / best / 1e9


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def layer_gflop(batch: GraphBatch, dim: int, layers: int) -> float:
    """Multiplications and additions of the layers' linear maps, forward."""
    edges, nodes = batch.edge_kind.numel(), batch.node_graph.numel()
    return 2 * dim**2 * layers * (4 * edges + 5 * nodes) / 1e9


def measure(name: str, contestant: str, repeats: int, layers: int | None) -> dict[str, Any]:
    case = CASES[name]
    config = config_of(case)
    if layers is not None:
        config = config.override({"model.layers": layers})
    if contestant == "mixed" and not has_bfloat16():
        raise SystemExit("This processor has no AVX512_BF16, so there is nothing to measure.")
    if contestant == "gps":
        config = config.override(GPS)
    batches = make_batches(name, 3)
    torch.manual_seed(0)
    model = make_model(config)
    if contestant == "compiled":
        for layer in (
            model.layers.layers
        ):  # as fast as compiling all layers at once, but compiles minutes sooner
            layer.compile(fullgraph=True, dynamic=True)
    optimizer = make_optimizer(model, config.training)
    numbers = iter(range(10**9))

    def precision() -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=contestant == "mixed")

    def step() -> None:
        batch = batches[next(numbers) % len(batches)]
        with precision():
            prediction = model(batch)
        assert batch.y is not None
        loss = make_task(config.task).loss(prediction, batch.y, config.training.label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def infer() -> None:
        with precision():
            model(batches[next(numbers) % len(batches)])

    before = peak_mb()
    rate = sgemm_gflops()
    model.train()
    for _ in range(2):
        step()
    training = [timed(step) for _ in range(repeats)]
    memory = peak_mb() - before
    model.eval()
    infer()
    inference = [timed(infer) for _ in range(repeats)]
    rate = max(rate, sgemm_gflops())
    gflop = layer_gflop(batches[0], config.model.dim, config.model.layers)
    result = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "nodes": batches[0].node_graph.numel(),
        "edges": batches[0].edge_kind.numel(),
        "step_seconds": statistics.median(training),
        "step_peak_mb": memory,
        "training_graphs_per_second": case.graphs / statistics.median(training),
        "inference_graphs_per_second": case.graphs / statistics.median(inference),
        "sgemm_gflops": rate,
    }
    if contestant != "gps":
        result["share_of_sgemm"] = 3 * gflop / statistics.median(training) / rate
    return result


def compete(
    name: str,
    contestants: Sequence[str],
    repeats: int,
    rounds: int = ROUNDS,
    layers: int | None = None,
) -> dict[str, Any]:
    """The fastest of several rounds of every contestant, and their ratios."""
    results: dict[str, dict[str, Any]] = {}
    for number in range(rounds):
        for contestant in contestants:
            found = run_contestant(name, contestant, repeats, layers)
            shown = {what: round(value, 3) for what, value in found.items()}
            print(f"{name}, round {number + 1}: {contestant} {shown}", file=sys.stderr, flush=True)
            results[contestant] = faster(results.get(contestant, found), found)
    return {"contestants": results, "ratios": ratios(results)}


def faster(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The faster training and the faster inference of two rounds."""
    best = min(one, other, key=lambda result: result["step_seconds"])
    inference = "inference_graphs_per_second"
    return {**best, inference: max(one[inference], other[inference])}


def run_contestant(name: str, contestant: str, repeats: int, layers: int | None) -> dict[str, Any]:
    """Measure in a separate process."""
    command = [sys.executable, __file__, name, "--only", contestant, "--repeats", str(repeats)]
    command += [] if layers is None else ["--layers", str(layers)]
    ops = "native" if contestant in ("native", "mixed") else "reference"
    environment = {**os.environ, "GRASS_OPS": ops}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def ratios(results: dict[str, dict[str, Any]]) -> dict[str, float]:
    """How the fused step compares with the others, within this run."""
    native = results["native"]
    found = {"share of sgemm": native["share_of_sgemm"]}
    for other in ("reference", "mixed", "compiled"):
        if other in results:
            found[f"step, {other} / native"] = (
                results[other]["step_seconds"] / native["step_seconds"]
            )
            found[f"memory, {other} / native"] = (
                results[other]["step_peak_mb"] / native["step_peak_mb"]
            )
            found[f"inference, native / {other}"] = (
                native["inference_graphs_per_second"]
                / results[other]["inference_graphs_per_second"]
            )
    if "gps" in results:
        found["step, native / gps"] = native["step_seconds"] / results["gps"]["step_seconds"]
    return found


def print_ratios(name: str, found: dict[str, float]) -> None:
    print(name)
    for what, value in found.items():
        print(f"  {what:32} {value:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=CONTESTANTS[:2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--layers", type=int, help="number of layers, instead of the preset's")
    parser.add_argument(
        "--only", choices=CONTESTANTS, help="measure one contestant in this process and print JSON"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.only:
        found = measure(arguments.cases[0], arguments.only, arguments.repeats, arguments.layers)
        print(json.dumps(found))
        return
    everything = {}
    for name in arguments.cases:
        everything[name] = compete(
            name, arguments.contestants, arguments.repeats, arguments.rounds, arguments.layers
        )
        if not arguments.json:
            print_ratios(name, everything[name]["ratios"])
    if arguments.json:
        print(json.dumps(everything, indent=2))


if __name__ == "__main__":
    main()
