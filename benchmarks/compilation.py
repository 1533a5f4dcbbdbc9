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
import json
import os
import statistics
import time
from contextlib import nullcontext
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # so that its time is counted
os.environ["GRASS_OPS"] = "reference"

import torch
from shapes import molecule
from torch._dynamo.testing import CompileCounterWithBackend

from grass_gnn import GRASSConfig
from grass_gnn.hardware import find_device
from grass_gnn.nn.model import GRASS

DTYPES = {"32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def measure(options: argparse.Namespace) -> dict[str, Any]:
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

    found: dict[str, Any] = {
        "device": str(device),
        "layers": config.model.layers,
        "batches": len(batches),
        "precision": options.precision,
        "checkpoint": options.checkpoint,
        "torch": torch.__version__,
    }
    for what, training in (("training", True), ("prediction", False)):
        model.train(training)
        before = counter.frame_count
        seconds = [step(number, training) for number in range(len(batches))]
        usual = statistics.median(seconds)
        found[what] = {
            "compilations": counter.frame_count - before,
            "compile_cpu_seconds": round(sum(s - usual for s in seconds if s > 3 * usual), 1),
            "median_step_cpu_seconds": round(usual, 3),
        }
    return found


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
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
