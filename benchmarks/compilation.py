"""Compilations and compile time of the 49-layer ZINC model over 20 batches of different sizes.

    python benchmarks/compilation.py                  # on the CPU, minutes of one core
    python benchmarks/compilation.py --precision bf16 --checkpoint 7
    python benchmarks/compilation.py --device cuda --precision fp16

The layers are compiled by ``torch.compile`` (Inductor) without graph breaks, as
``training.compile = true`` does. Compile time is the CPU time of the first step beyond that of the
median step; on a GPU, Triton's compilations in other processes are not part of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # so that its time is counted
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # of earlier runs
os.environ["GRASS_OPS"] = "reference"

import torch
from shapes import molecule
from torch._dynamo.testing import CompileCounterWithBackend

from grass_gnn import GRASSConfig
from grass_gnn.hardware import find_device
from grass_gnn.nn.model import GRASS

DTYPES = {"32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Compiled(NamedTuple):
    """How often the layers were compiled in one mode, and how long that took."""

    mode: str
    compilations: int
    compiling: float  # seconds of CPU
    step: float  # seconds of CPU, the median


def measure(options: argparse.Namespace) -> list[Compiled]:
    """Train on batches of different sizes, then predict them."""
    device, dtype = find_device(options.device), DTYPES[options.precision]
    changes: dict[str, Any] = {"model.checkpoint": options.checkpoint}
    if options.layers is not None:
        changes["model.layers"] = options.layers
    config = GRASSConfig.preset("zinc", **changes)
    torch.manual_seed(0)
    model = GRASS(config).to(device)
    sizes = [4 + number % 7 for number in range(options.batches)]
    batches = [
        model.prepare([molecule(config, 100 * number + seed) for seed in range(size)])
        for number, size in enumerate(sizes)
    ]
    counter = CompileCounterWithBackend(options.backend)
    model.layers.compile_layers(backend=counter, fullgraph=True)

    def step(number: int, training: bool) -> float:
        started = time.process_time()
        cast = nullcontext() if dtype is None else torch.autocast(device.type, dtype)
        with cast, torch.set_grad_enabled(training):
            output = model(batches[number])
        if training:
            output.float().square().mean().backward()
            model.zero_grad()
        float(output.detach().sum())  # waits for the device
        return time.process_time() - started

    found = []
    for mode, training in (("training", True), ("prediction", False)):
        model.train(training)
        before = counter.frame_count
        seconds = [step(number, training) for number in range(len(batches))]
        usual = statistics.median(seconds)
        compiling = sum(s - usual for s in seconds if s > 3 * usual)
        found.append(Compiled(mode, counter.frame_count - before, compiling, usual))
    return found


def report(found: list[Compiled], options: argparse.Namespace) -> str:
    """The figures as a table in Markdown."""
    layers = options.layers or GRASSConfig.preset("zinc").model.layers
    what = f"{layers} layers, {options.batches} batches, {options.device}, {options.precision}"
    lines = [
        f"| {what} | compilations | compiling, s of CPU | median step, s of CPU |",
        "|---|---|---|---|",
    ]
    for one in found:
        lines.append(f"| {one.mode} | {one.compilations} | {one.compiling:.1f} | {one.step:.3f} |")
    return "\n".join([*lines, f"PyTorch {torch.__version__}, backend {options.backend}."])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, help="instead of 49")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--precision", choices=DTYPES, default="32")
    parser.add_argument("--checkpoint", type=int, default=0, help="layers per recomputed segment")
    parser.add_argument("--backend", default="inductor", help="backend of torch.compile")
    options = parser.parse_args()
    print(report(measure(options), options))


if __name__ == "__main__":
    main()
