"""The fused layers against the plain PyTorch ones, alone: no data, embedding, head or optimiser.

    python benchmarks/ops_micro.py zinc roman-empire --reference

Every contestant runs in a process of its own, so that its peak memory is its own; its figure is the
increment over the imported baseline. Rates count 3 × the forward FLOPs of a training step, whatever
is computed again, and are set against this machine's sgemm rate measured before and after.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from grass_gnn.ops import (
    EdgeOrder,
    LayerWeights,
    edge_order,
    grass_layer,
    grass_stack,
    pack_weights,
)

RESIDUAL_SCALE = 0.2


class Shape(NamedTuple):
    layers: int
    width: int
    graphs: int
    nodes: int
    edges: int
    norm: str


SHAPES = {
    "zinc": Shape(49, 32, 200, 4_550, 61_000, "batch"),
    "pattern": Shape(53, 24, 16, 1_904, 110_000, "batch"),
    "pascalvoc-sp": Shape(15, 96, 8, 3_832, 46_000, "batch"),
    "roman-empire": Shape(6, 96, 1, 22_662, 240_000, "instance"),
}


class Batch(NamedTuple):
    x: Tensor
    e: Tensor
    edge_index: Tensor
    order: EdgeOrder
    layers: list[LayerWeights]


def make_batch(shape: Shape) -> Batch:
    """Random graphs of equal size, a self-loop at every node, edges sorted by tail."""
    torch.manual_seed(0)
    d, nodes = shape.width, shape.nodes
    graph_ptr = torch.linspace(0, nodes, shape.graphs + 1).round().long()
    graph = torch.randint(shape.graphs, (shape.edges - nodes,))
    start, size = graph_ptr[graph], graph_ptr.diff()[graph]
    drawn = start + (torch.rand(2, shape.edges - nodes) * size).long()
    edge_index = torch.cat([torch.arange(nodes).expand(2, -1), drawn], dim=1)
    edge_index = edge_index[:, torch.argsort(edge_index[1], stable=True)].contiguous()

    def uniform(*shape: int) -> Tensor:
        return ((torch.rand(*shape) * 2 - 1) * (3 / shape[-1]) ** 0.5).requires_grad_()

    layers = [
        LayerWeights(
            uniform(4 * d, d),
            uniform(3 * d, d),
            torch.zeros(d, requires_grad=True),
            torch.zeros(d, requires_grad=True),
            uniform(d, d),
            uniform(d, d),
        )
        for _ in range(shape.layers)
    ]
    x = torch.randn(nodes, d, requires_grad=True)
    e = torch.randn(shape.edges, d, requires_grad=True)
    return Batch(x, e, edge_index, edge_order(edge_index, nodes, graph_ptr), layers)


def native(batch: Batch, norm: str) -> tuple[Tensor, Tensor]:
    out = grass_stack(
        batch.x,
        batch.e,
        batch.edge_index,
        batch.order,
        pack_weights(batch.layers),
        residual_scale=RESIDUAL_SCALE,
        flip=True,
        norm=norm,  # type: ignore[arg-type]
    )
    return out.x, out.e


def reference(batch: Batch, norm: str) -> tuple[Tensor, Tensor]:
    x, e, edge_index = batch.x, batch.e, batch.edge_index
    for layer in batch.layers:
        out = grass_layer(x, e, edge_index, layer, RESIDUAL_SCALE)
        x, e = _norm(out.x, norm), _norm(out.e, norm)
        edge_index = edge_index.flip(0)
    return x, e


def _norm(v: Tensor, norm: str) -> Tensor:
    if norm == "batch":
        return (v - v.mean(0)) / (v.var(0) + 1e-7).sqrt()
    return v / (v.square().mean(0) + 1e-7).sqrt()  # of a single graph


def seconds(run: Callable[[], object], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def sgemm_rate(repeats: int = 6) -> float:
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return 2 * 2048**3 / seconds(lambda: a @ b, repeats)


def forward_flops(shape: Shape) -> float:
    return 2 * shape.width**2 * shape.layers * (4 * shape.edges + 5 * shape.nodes)


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(name: str, contestant: str, repeats: int) -> dict[str, float]:
    shape = SHAPES[name]
    run = native if contestant == "native" else reference
    rate = sgemm_rate()
    batch = make_batch(shape)
    baseline = peak_memory()

    def step() -> None:
        x, e = run(batch, shape.norm)
        (x.mean() + e.square().mean()).backward()

    with torch.no_grad():
        inference = seconds(lambda: run(batch, shape.norm), repeats)
    training = seconds(step, repeats)
    memory = peak_memory() - baseline
    rate = max(rate, sgemm_rate())
    flops = forward_flops(shape)
    return {
        "inference seconds": inference,
        "training seconds": training,
        "peak memory MB": memory / 1e6,
        "sgemm GFLOP/s": rate / 1e9,
        "inference share of sgemm": flops / inference / rate,
        "training share of sgemm": 3 * flops / training / rate,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", default=["zinc"], choices=[*SHAPES, []])
    parser.add_argument("--reference", action="store_true", help="also run the plain layers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["native", "reference"], help="one contestant, as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.shapes[0], arguments.only, arguments.repeats)))
        return
    for name in arguments.shapes:
        results = {}
        for contestant in ["native", "reference"] if arguments.reference else ["native"]:
            command = [sys.executable, __file__, name, "--only", contestant]
            command += ["--repeats", str(arguments.repeats)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results[contestant] = json.loads(output)
            print(name, contestant)
            for key, value in results[contestant].items():
                print(f"  {key:28} {value:10.4g}")
        if arguments.reference:
            print(f"{name} ratios, reference / native")
            for key in ("inference seconds", "training seconds", "peak memory MB"):
                ratio = results["reference"][key] / results["native"][key]
                print(f"  {key:28} {ratio:10.4g}")


if __name__ == "__main__":
    main()
