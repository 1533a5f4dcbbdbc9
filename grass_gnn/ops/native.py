"""The fused layers as custom operations of PyTorch, on top of the C functions in ``csrc/``.

``grass_gnn::stack`` and ``grass_gnn::stack_backward`` pass raw pointers to ``forward.cpp`` and
``backward.cpp``. Call :func:`grass_gnn.ops.grass_stack`, which checks shapes first.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.nn import Parameter

from grass_gnn.ops import build
from grass_gnn.ops.build import library
from grass_gnn.ops.order import EdgeOrder
from grass_gnn.ops.processes import Callback, SumsOfProcesses, joined
from grass_gnn.ops.reference import LayerWeights

NORMS = ("none", "batch", "instance")  # of the fused layers, in the order of the C++ code

Stack = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def use_native(x: Tensor, norm: str | None, *others: Tensor) -> bool:
    """Whether :func:`grass_stack` can and should run the layers on ``x`` and ``others``.

    It takes float32 on the CPU with the norms "batch", "instance" and "none", outside
    ``torch.compile``, ``torch.func`` and forward-mode AD, if the library can be compiled and
    ``GRASS_OPS`` is not ``reference``.
    """
    return (
        norm in NORMS
        and all(t.device.type == "cpu" and t.dtype == torch.float32 for t in (x, *others))
        and not torch.compiler.is_compiling()
        and not in_transform()
        and build.available()
    )


def autocasts_to_bfloat16() -> bool:
    """Whether the fused layers should take bfloat16 operands, as ``training.precision`` may ask.

    Only where the processor has instructions for them: elsewhere, float32 is faster.
    """
    return (
        torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
        and build.has_bfloat16()
    )


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` (grad, jvp, vmap, …) or forward-mode AD is active.

    A custom C++ operation has no rules for them: most would fail, and ``torch.func.jvp`` would
    return tangents of zero.
    """
    return peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_differentiated(tensor: Tensor) -> bool:
    """Whether a derivative of any kind may be taken with respect to a tensor."""
    return (torch.is_grad_enabled() and tensor.requires_grad) or in_transform()


class StackSettings(NamedTuple):
    """Settings of a stack of layers."""

    residual_scale: float
    """α of equations (13) and (14)."""
    flip: bool
    """Swap head and tail in layers with odd numbers."""
    norm: str
    """``"batch"`` over all rows, ``"instance"`` (root mean square) over the rows of each graph, or
    ``"none"``."""
    removal: float = 0.0
    """Probability of random edge removal."""
    seed: int = 0
    """Random seed of edge removal; see :func:`grass_gnn.ops.removal_mask`."""
    first_layer: int = 0
    """Number of the first layer, if the stack is part of a larger one."""
    synchronise: bool = False
    """Take the moments of a batch norm over all processes of :mod:`grass_gnn.ops.processes`, all of
    which must then run the same stack. No effect with a single process."""
    mixed: bool = False
    """Take the operands of products in bfloat16 (with float32 sums), and save the inputs of layers
    in bfloat16, which halves the memory of a training step. Of the fused layers only."""


class _Arguments(ctypes.Structure):
    """Mirrors ``GrassStack`` of ``stack.h``, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("nodes", "edges", "graphs", "layers", "width")),
        *((name, ctypes.c_int64) for name in ("threads", "first_layer", "seed")),
        *((name, ctypes.c_int64) for name in ("norm", "flip", "output_bias")),
        *((name, ctypes.c_double) for name in ("residual_scale", "removal")),
        *((name, ctypes.c_void_p) for name in ("edge_index", "tail_ptr", "tail_order")),
        *((name, ctypes.c_void_p) for name in ("head_ptr", "head_order", "graph_ptr")),
        *((name, ctypes.c_void_p) for name in ("weights", "given", "x", "e", "x_out", "e_out")),
        *((name, ctypes.c_void_p) for name in ("x_saved", "e_saved", "affine", "statistics")),
        *((name, ctypes.c_void_p) for name in ("grad_x_out", "grad_e_out", "grad_x", "grad_e")),
        ("grad_weights", ctypes.c_void_p),
        ("add_up", Callback),
    )


class _Inputs(NamedTuple):
    """The tensors that a stack takes."""

    x: Tensor  # [N, d]
    e: Tensor  # [E, d]
    weights: Tensor  # [L, P]
    edge_index: Tensor  # [2, E]
    order: list[Tensor]  # the tensors of an EdgeOrder
    given: Tensor | None  # [L, 2, 2, d] statistics to normalise by


# Custom operations of PyTorch take plain values: those of _Inputs and StackSettings one by one.
_SCHEMA = (
    "Tensor x, Tensor e, Tensor weights, Tensor edge_index, Tensor[] order, Tensor? given, "
    "float residual_scale, bool flip, str norm, float removal, int seed, int first_layer, "
    "bool synchronise, bool mixed"
)


def _read(values: Sequence[Any]) -> tuple[_Inputs, StackSettings]:
    count = len(_Inputs._fields)
    return _Inputs(*values[:count]), StackSettings(*values[count:])


def _call(
    function: str, inputs: _Inputs, settings: StackSettings, tensors: dict[str, Tensor | None]
) -> None:
    """Call a function of the library with contiguous tensors."""
    x, e, weights, edge_index, order, given = inputs
    tensors |= {"x": x, "e": e, "weights": weights, "edge_index": edge_index.long(), "given": given}
    tensors |= {name: part.int() for name, part in zip(EdgeOrder._fields, order, strict=True)}
    alive = {name: None if t is None else t.contiguous() for name, t in tensors.items()}
    (nodes, width), (layers, size) = x.shape, weights.shape
    sums = SumsOfProcesses() if settings.synchronise else None
    arguments = _Arguments(
        nodes=nodes,
        edges=e.size(0),
        graphs=order[4].size(0) - 1,
        layers=layers,
        width=width,
        threads=torch.get_num_threads(),
        output_bias=size > 9 * width * width + 2 * width,
        residual_scale=settings.residual_scale,
        flip=settings.flip,
        norm=NORMS.index(settings.norm),
        removal=settings.removal,
        seed=settings.seed,
        first_layer=settings.first_layer,
        **{name: None if t is None else t.data_ptr() for name, t in alive.items()},
    )
    if sums is not None:
        arguments.add_up = sums.callback
    status = getattr(library(settings.mixed), function)(ctypes.byref(arguments))
    if status == 1:
        raise ValueError("order does not match edge_index, or an edge connects two graphs")
    if status == 2:
        raise MemoryError(f"{function} ran out of memory")
    if sums is not None and sums.error is not None:
        raise sums.error
    if status != 0:
        raise RuntimeError(f"{function} failed")


def _run_stack(*values: Any) -> Stack:
    """Run the layers of ``weights``; the values are those of the schema, then ``save``.

    Returns:
        x and e, normalised; the statistics; and what the backward pass needs: the inputs of all
        layers but the first (nodes, edges; empty unless ``save``) and each norm as an affine map.
    """
    (inputs, settings), save = _read(values[:-1]), values[-1]
    x, e, weights = inputs[:3]
    outputs = _empty_outputs(inputs, settings, save)
    if save and len(weights) > 1:
        outputs = (
            *outputs[:4],
            reused_memory(*outputs[4].shape, dtype=outputs[4].dtype),
            outputs[5],
        )
    x_out, e_out, statistics, x_saved, e_saved, affine = outputs
    if weights.size(0) == 0:
        x_out.copy_(x)
        e_out.copy_(e)
        return outputs
    tensors = {
        "x_out": x_out,
        "e_out": e_out,
        "x_saved": x_saved if save else None,
        "e_saved": e_saved if save else None,
        "affine": affine,
        "statistics": statistics,
    }
    _call("grass_stack_forward", inputs, settings, tensors)
    return outputs


stack = torch.library.custom_op(
    "grass_gnn::stack",
    _run_stack,
    mutates_args=(),
    device_types="cpu",
    schema=f"({_SCHEMA}, bool save) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def _empty_outputs(inputs: _Inputs, settings: StackSettings, save: bool) -> Stack:
    x, e, weights = inputs[:3]
    layers, d = weights.size(0), x.size(1)
    kept = max(layers - 1, 0) if save else 0
    groups = max(inputs.order[4].size(0) - 1, 1) if settings.norm == "instance" else 1
    saved = torch.bfloat16 if settings.mixed else torch.float32
    return (
        x.new_empty(x.shape),
        e.new_empty(e.shape),
        x.new_zeros(layers, 2, 2, d),
        x.new_empty(kept, *x.shape, dtype=saved),
        e.new_empty(kept, *e.shape, dtype=saved),
        x.new_zeros(layers, 2, groups, 2, d),
    )


@stack.register_fake
def _stack_fake(*values: Any) -> Stack:
    inputs, settings = _read(values[:-1])
    return _empty_outputs(inputs, settings, values[-1])


def _run_backward(grads: list[Tensor], outputs: list[Tensor], *values: Any) -> list[Tensor]:
    """Gradients of x, e and the weights from those of the outputs x and e.

    ``outputs`` are x, e and what :func:`_run_stack` kept; the values are those of the schema.
    """
    inputs, settings = _read(values)
    if inputs.weights.size(0) == 0:
        return [*(grad.clone() for grad in grads), torch.empty_like(inputs.weights)]
    found = [tensor.new_empty(tensor.shape) for tensor in inputs[:3]]
    names = ("x_out", "e_out", "x_saved", "e_saved", "affine")
    tensors: dict[str, Tensor | None] = dict(zip(names, outputs, strict=True))
    tensors |= dict(zip(("grad_x_out", "grad_e_out"), grads, strict=True))
    tensors |= dict(zip(("grad_x", "grad_e", "grad_weights"), found, strict=True))
    _call("grass_stack_backward", inputs, settings, tensors)
    return found


stack_backward = torch.library.custom_op(
    "grass_gnn::stack_backward",
    _run_backward,
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor[] grads, Tensor[] outputs, {_SCHEMA}) -> Tensor[]",
)


@stack_backward.register_fake
def _backward_fake(grads: list[Tensor], outputs: list[Tensor], *values: Any) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in values[:3]]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Stack) -> None:
    x, e, weights, edge_index, order, given, *settings, ctx.saves = inputs
    x_out, e_out, _statistics, *kept = output
    # The other outputs have no gradients; materialised as zeros they would double the memory.
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.settings = settings
    ctx.save_for_backward(x, e, weights, edge_index, given, x_out, e_out, *kept, *order)


def _backward(
    ctx: Any, grad_x: Tensor | None, grad_e: Tensor | None, *_: Tensor | None
) -> tuple[Any, ...]:
    if not ctx.saves:
        raise RuntimeError("grass_gnn::stack was called with save=False, so it has no gradient")
    # Read once: under activation checkpointing, reading runs the layers again.
    saved = ctx.saved_tensors
    x, e, weights, edge_index, given = saved[:5]
    outputs, order = list(saved[5:10]), list(saved[10:])
    grad_x = torch.zeros_like(x) if grad_x is None else grad_x
    grad_e = torch.zeros_like(e) if grad_e is None else grad_e
    if torch.is_grad_enabled():  # create_graph: these gradients will be differentiated
        with torch.autocast("cpu", enabled=False):
            from grass_gnn.ops.reference_stack import reference_stack  # made of parts of this file

            again = reference_stack(
                x, e, weights, edge_index, order[4], given, StackSettings(*ctx.settings)
            )
        wanted = [tensor for tensor in (x, e, weights) if tensor.requires_grad]
        found = iter(
            torch.autograd.grad(
                again, wanted, (grad_x, grad_e), create_graph=True, materialize_grads=True
            )
        )
        grads = [next(found) if t.requires_grad else None for t in (x, e, weights)]
    else:
        grads = torch.ops.grass_gnn.stack_backward(
            [grad_x, grad_e], outputs, x, e, weights, edge_index, order, given, *ctx.settings
        )
    return (*grads, None, [None] * len(order), *[None] * 10)


stack.register_autograd(_backward, setup_context=_setup_context)


class StackOutput(NamedTuple):
    """Normalised output of the last layer, and the statistics of all layers."""

    x: Tensor  # [N, d]
    e: Tensor  # [E, d]
    statistics: Tensor  # [L, 2, 2, d]: nodes, edges × mean, variance; zeros unless norm is "batch"


def pack_weights(layers: Sequence[LayerWeights]) -> Tensor:
    """The parameters of several layers as one tensor [L, P] with P = 9d² + 2d, or 9d² + 4d."""
    return torch.stack(
        [torch.cat([part.flatten() for part in layer if part is not None]) for layer in layers]
    )


def grass_stack(
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    order: EdgeOrder,
    weights: Tensor,
    *,
    statistics: Tensor | None = None,
    **settings: Any,
) -> StackOutput:
    """Run a stack of GRASS layers, each followed by its norm.

    If gradients are recorded, the inputs of the layers are kept and everything else is recomputed
    in the backward pass; otherwise nothing is kept.

    Args:
        x: Node representations [N, d], float32.
        e: Edge representations [E, d].
        edge_index: Head and tail of each edge [2, E].
        order: The same edges, by tail and by head.
        weights: Parameters of the layers [L, P], from :func:`pack_weights`.
        statistics: Means and variances [L, 2, 2, d] to normalise by instead of the batch's own.
        **settings: Fields of :class:`StackSettings`: ``residual_scale``, ``flip`` and ``norm``, and
            for training ``removal``, ``seed``, ``first_layer``, ``synchronise`` and ``mixed``.
    """
    chosen = StackSettings(**settings)
    if chosen.norm not in NORMS:
        raise ValueError(f"norm is {chosen.norm!r}, but must be one of {', '.join(NORMS)}")
    if statistics is not None and chosen.norm != "batch":
        raise ValueError(f"statistics are for norm='batch', not for norm={chosen.norm!r}")
    if not 0 <= chosen.removal < 1:
        raise ValueError(f"removal is {chosen.removal}, but must be at least 0 and less than 1")
    _check_shapes(x, e, edge_index, order, weights, statistics)
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (x, e, weights))
    seed = int(chosen.seed) % 2**64
    common = chosen.synchronise and joined() and chosen.norm == "batch" and statistics is None
    chosen = chosen._replace(seed=seed - 2**64 if seed >= 2**63 else seed, synchronise=common)
    given = None if statistics is None else statistics.detach()
    # The first call of an operation of torch.library imports PyTorch's compiler: seconds.
    run = stack if save or _needs_dispatch(x, e, weights) else _run_stack
    outputs = run(x, e, weights, edge_index, list(order), given, *chosen, save)
    return StackOutput(outputs[0], outputs[1], outputs[2].detach())


def _needs_dispatch(*tensors: Tensor) -> bool:
    """Whether PyTorch must see the operation: to compile, trace, differentiate or transform it."""
    return (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack() > 0
        or any(type(tensor) not in (Tensor, Parameter) for tensor in tensors)
        or any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)
    )


def _check_shapes(
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    order: EdgeOrder,
    weights: Tensor,
    statistics: Tensor | None,
) -> None:
    """Check shapes and types, which the C++ code does not."""
    (nodes, d), edges = x.shape, edge_index.size(1)
    expected = {
        "e": (e, (edges, d)),
        "edge_index": (edge_index, (2, edges)),
        "order.tail_ptr": (order.tail_ptr, (nodes + 1,)),
        "order.tail_order": (order.tail_order, (edges,)),
        "order.head_ptr": (order.head_ptr, (nodes + 1,)),
        "order.head_order": (order.head_order, (edges,)),
    }
    if statistics is not None:
        expected["statistics"] = (statistics, (weights.size(0), 2, 2, d))
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")
    if weights.dim() != 2 or weights.size(1) not in (9 * d * d + 2 * d, 9 * d * d + 4 * d):
        raise ValueError(
            f"weights have shape {list(weights.shape)}, which does not match width {d}"
        )
    for name, tensor in (("x", x), ("e", e), ("weights", weights)):
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, not float32 on the CPU")


# A training step keeps hundreds of megabytes for its backward pass. If it returned them to the
# operating system, the next step would get zeroed pages, which takes about a twentieth of its time.
# So the memory of the last large tensor that was freed is kept for the next one of similar size.

SMALLEST_REUSED = 1 << 24  # bytes; below this, the system's allocator is as fast

_free: list[mmap.mmap] = []


def reused_memory(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """An uninitialised tensor on the CPU, in memory of an earlier one if there is any."""
    size = dtype.itemsize * math.prod(shape)
    if size < SMALLEST_REUSED or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.empty(shape, dtype=dtype)
    block = _take(size)
    view = (ctypes.c_char * size).from_buffer(block)
    weakref.finalize(view, _give, block).atexit = False  # runs when the tensor is freed
    return torch.frombuffer(view, dtype=dtype).view(shape)


def clear_memory() -> None:
    """Return unused memory to the system."""
    _free.clear()


def _take(size: int) -> mmap.mmap:
    block = _free.pop() if _free else None
    if block is not None and size <= len(block) <= 2 * size:
        return block
    # A little more than needed: the next batch may be slightly larger, and pages that are never
    # touched cost nothing.
    return mmap.mmap(-1, size + size // 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _give(block: mmap.mmap) -> None:
    _free[:] = [block]
