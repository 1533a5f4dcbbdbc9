"""Compile the Triton kernels of a GRASS layer for a GPU, on a machine without one.

    pip install torch==2.13.0 triton                # besides the package's other requirements
    python tools/triton_check.py                    # to machine code of an A100
    python tools/triton_check.py --arch 90          # of an H100
    python tools/triton_check.py --interpret        # run them on the CPU instead, and compare

``torch.compile`` traces a layer with fake tensors on a CUDA device that does not exist
(``triton_check.cpp``), with dynamic shapes and no graph breaks, forward and backward, and Inductor
writes the same kind of Triton kernels as on a GPU. They are then compiled by Triton, down to a
cubin, or run by Triton's interpreter in float32, with values compared to those of the uncompiled
layer. The interpreter takes plain formulas in place of CUDA's exp, log1p, tanh and rsqrt. Nothing
runs on a GPU, and matrix products, which cuBLAS computes there, are not checked. Three of
Inductor's graph passes need a device and are switched off: padding of matrix products, fused
attention, and the folding of constants.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

DIM, NODES, EDGES, GRAPHS = 64, 50, 400, 3


class Case(NamedTuple):
    """Settings of a layer."""

    norm: str = "batch"
    precision: str = "float32"
    removal: float = 0.0
    training: bool = True


CASES = {
    "training": Case(removal=0.1),
    "training, float16": Case(precision="float16", removal=0.1),
    "training, bfloat16": Case(precision="bfloat16", removal=0.1),
    "instance norm": Case(norm="instance"),
    "layer norm": Case(norm="layer"),
    "layer norm by graph": Case(norm="layer-graph"),
    "no norm": Case(norm="none"),
    "prediction": Case(training=False),
    "prediction, float16": Case(precision="float16", training=False),
}
INTERPRETED = {  # random numbers differ between devices, and float16 is rounded elsewhere
    "training": Case(),
    "instance norm": Case(norm="instance"),
    "layer norm": Case(norm="layer"),
    "layer norm by graph": Case(norm="layer-graph"),
    "prediction": Case(training=False),
}


def add_device(arch: int) -> None:
    """Make PyTorch believe that it has a CUDA device; must come before torch is imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    folder, target = Path(spec.origin).parent, Path(tempfile.mkdtemp()) / "device.so"
    source = Path(__file__).with_suffix(".cpp")
    flags = ["-std=c++20", "-fPIC", "-shared", f"-I{folder}/include", f"-L{folder}/lib"]
    links = ["-lc10", "-ltorch_cpu", f"-Wl,-rpath,{folder}/lib"]
    subprocess.run(["g++", *flags, str(source), *links, "-o", str(target)], check=True)
    ctypes.CDLL(str(target))

    import torch

    properties = SimpleNamespace(
        name=f"sm_{arch}",
        major=arch // 10,
        minor=arch % 10,
        multi_processor_count=108,
        warp_size=32,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        total_memory=40 << 30,
        L2_cache_size=40 << 20,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=163 << 10,
        shared_memory_per_multiprocessor=164 << 10,
        gcnArchName="",
    )
    replaced: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: divmod(arch, 10),
        "is_bf16_supported": lambda including_emulation=True: True,
        "synchronize": lambda device=None: None,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8, device="cpu"),
        "set_rng_state": lambda state, device=None: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "_lazy_init": lambda: None,
        "_DeviceGuard": lambda device: nullcontext(),
    }
    for name, function in replaced.items():
        setattr(torch.cuda, name, function)
    torch._C._cuda_getCurrentRawStream = lambda device: 0  # type: ignore[attr-defined]
    torch.version.cuda = "12.8"


def prepare_inductor(arch: int, kernels: list[tuple[str, str]], programs: list[str]) -> None:
    """Have Inductor collect kernels (name, source) and the programs that launch them."""
    from torch._inductor import async_compile, config
    from torch._inductor.fx_passes import fuse_attention, pad_mm
    from torch._inductor.graph import GraphLowering
    from torch._inductor.runtime import triton_helpers
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    driver.set_active(SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", arch, 32)))
    triton_helpers.set_driver_to_gpu = lambda: None
    fuse_attention._sfdp_init = pad_mm._pad_mm_init = lambda *args, **options: None
    config.joint_graph_constant_folding = False
    config.use_static_triton_launcher = False
    config.force_disable_caches = True

    def collect(_: Any, name: str, source: str, device_str: str = "cuda") -> SimpleNamespace:
        kernels.append((name, source))
        return SimpleNamespace(run=None)

    async_compile.AsyncCompile.triton = collect
    GraphLowering.save_output_code = staticmethod(programs.append)


class Trace(NamedTuple):
    """What was generated for a layer."""

    kernels: list[tuple[str, str]]  # name and source
    programs: list[str]  # forward, and in training backward
    graphs: list[Any]  # the same as FX graphs
    inputs: list[tuple[str, Any]]  # of the layer's graph: names, and integers


def trace(case: Case, kernels: list[tuple[str, str]], programs: list[str]) -> Trace:
    """Compile a layer for fake tensors on the device."""
    import torch
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from grass_gnn.nn.attention import GRASSConv, constant_floats

    kernels.clear()
    programs.clear()
    torch._dynamo.reset()
    graphs: list[Any] = []
    inputs: list[tuple[str, Any]] = []

    def inner(graph: Any, examples: list[Any], **options: Any) -> Callable[..., Any]:
        graphs.append(copy.deepcopy(graph))
        compile_fx_inner(copy.deepcopy(graph), examples, **options)

        def run(args: list[Any]) -> Any:  # on fake tensors, so that the backward pass is traced
            given = list(args)
            args.clear()
            return graph(*given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def backend(graph: Any, examples: list[Any]) -> Any:
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        sizes = [e.node.hint if isinstance(e, torch.SymInt) else None for e in examples]
        inputs.extend(zip(names, sizes, strict=True))
        return compile_fx(graph, examples, inner_compile=inner)

    with FakeTensorMode(shape_env=ShapeEnv()), torch.device("cuda"):
        layer = GRASSConv(DIM, edge_removal=case.removal, norm=case.norm).train(case.training)
        layer.compile(backend=backend, dynamic=True, fullgraph=True)
        x = torch.randn(NODES, DIM, requires_grad=case.training)
        e = torch.randn(EDGES, DIM, requires_grad=case.training)
        edge_index = torch.zeros(2, EDGES, dtype=torch.int64)
        batch = torch.zeros(NODES, dtype=torch.int64)
        dtype = getattr(torch, case.precision)
        cast = torch.autocast("cuda", dtype) if dtype != torch.float32 else nullcontext()
        with constant_floats(), torch.set_grad_enabled(case.training):
            with cast:
                x, e = layer(x, edge_index, e, batch, GRAPHS)
            if case.training:
                (x.float().sum() + e.float().sum()).backward()
    return Trace(list(kernels), list(programs), graphs, inputs)


def compile_kernels(found: Trace) -> int:
    """Compile all kernels in all configurations that autotuning would try; bytes of code."""
    from torch._inductor.codecache import PyCodeCache

    size = 0
    for name, source in found.kernels:
        kernel = getattr(PyCodeCache.load(source), name)
        for config in kernel.configs:
            size += len(kernel._precompile_config(config).kernel.asm["cubin"])
    return size


def interpret(case: Case, found: Trace) -> float:
    """Run the generated programs on the CPU; largest relative error of outputs and gradients."""
    import torch

    from grass_gnn.nn.attention import GRASSConv

    torch.manual_seed(0)
    layer = GRASSConv(DIM, edge_removal=0.0, norm=case.norm).train(case.training)
    x = torch.randn(NODES, DIM, requires_grad=case.training)
    e = torch.randn(EDGES, DIM, requires_grad=case.training)
    edge_index = torch.randint(NODES, (2, EDGES))
    batch = torch.arange(NODES) * GRAPHS // NODES
    with torch.set_grad_enabled(case.training):
        expected = list(layer(x, edge_index, e, batch, GRAPHS))

    given = {"x": x, "edge_attr": e, "edge_index": edge_index, "batch": batch}
    given |= dict(layer.named_parameters()) | dict(layer.named_buffers())
    values = {f"l_{name.replace('.', '_')}_": tensor for name, tensor in given.items()}
    args = []
    for name, size in found.inputs:
        for word in ("self_", "modules_", "parameters_", "buffers_"):
            name = name.replace(word, "")
        args.append(values[name].detach() if size is None else size)

    outputs = run_program(found.programs[0], list(args))
    results = list(zip(outputs, expected, strict=False))
    if case.training:
        tangents = [torch.randn_like(tensor) for tensor in expected]
        differentiated = [x, e, *layer.parameters()]
        gradients = torch.autograd.grad(expected, differentiated, tangents)
        forward, backward = (list(graph.graph.nodes) for graph in found.graphs)
        saved = dict(zip((str(node) for node in forward[-1].args[0]), outputs, strict=True))
        saved |= {f"tangents_{number}": t for number, t in enumerate(tangents, 1)}
        needed = [node.name for node in backward if node.op == "placeholder"]
        found_gradients = run_program(found.programs[1], [saved[name] for name in needed])
        by_tensor = {id(t): g for t, g in zip(differentiated, gradients, strict=True)}
        originals = {tensor.data_ptr(): tensor for tensor in differentiated}
        for value, gradient in zip(args, found_gradients, strict=True):
            if gradient is not None and isinstance(value, torch.Tensor):
                results.append((gradient, by_tensor[id(originals[value.data_ptr()])]))
        assert len(results) == len(expected) + len(differentiated)
    with torch.no_grad():
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in results)


def run_program(program: str, args: list[Any]) -> list[Any]:
    """Run a program that Inductor wrote for a GPU on CPU tensors, its kernels interpreted."""
    import triton.language as tl
    from torch._inductor import async_compile
    from torch._inductor.codecache import PyCodeCache

    # The interpreter cannot call CUDA's library of functions, and replaces those of ``tl``.
    functions = SimpleNamespace(
        exp=lambda x: tl.exp(x),
        rsqrt=lambda x: tl.rsqrt(x),
        log1p=lambda x: tl.log(1.0 + x),
        tanh=lambda x: 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0),
    )

    def load(_: Any, name: str, source: str, device_str: str = "cuda") -> SimpleNamespace:
        module = PyCodeCache.load(source)
        module.libdevice = functions  # type: ignore[attr-defined]
        kernel = getattr(module, name)
        config = kernel.configs[0].kwargs

        def run(*given: Any, stream: int) -> None:
            values = dict(zip(kernel.fn.arg_names, given, strict=False))
            counts = [
                (values.get(f"{d}numel", 1), config.get(f"{d.upper()}BLOCK", 1)) for d in "xyz"
            ]
            kernel.fn[tuple(-(-count // block) for count, block in counts)](*given, **config)

        return SimpleNamespace(run=run)

    async_compile.AsyncCompile.triton = load
    program = program.replace("guards._empty_strided_cuda", "guards._empty_strided_cpu")
    return list(PyCodeCache.load(program).call(args))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--arch", type=int, default=80, help="compute capability (default: 80)")
    parser.add_argument("--interpret", action="store_true", help="run the kernels on the CPU")
    parser.add_argument("--case", choices=CASES, help="only this one")
    options = parser.parse_args()
    os.environ |= {"GRASS_OPS": "reference", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    add_device(options.arch)
    kernels: list[tuple[str, str]] = []
    programs: list[str] = []
    what = "largest relative error" if options.interpret else f"bytes for sm_{options.arch}"
    print(f"| layer | kernels | {what} |\n|---|---|---|", flush=True)
    for name, case in (INTERPRETED if options.interpret else CASES).items():
        if options.case not in (None, name):
            continue
        prepare_inductor(options.arch, kernels, programs)
        found = trace(case, kernels, programs)
        result = f"{interpret(case, found):.1e}" if options.interpret else compile_kernels(found)
        print(f"| {name} | {len(found.kernels)} | {result} |", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
