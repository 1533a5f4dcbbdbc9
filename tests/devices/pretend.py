"""A pretend GPU: the device ``pretend:0``, whose tensors hold real numbers in the CPU's memory.

It is a backend of PyTorch, written in Python. It raises wherever CUDA would: for an operation on
tensors of different devices (CPU scalars and CPU indices are allowed), ``.numpy()``, and a CPU
generator. As on CUDA, random numbers on the device have a generator of their own, and autocast
casts the same operations. Copies from unpinned memory, and points where the CPU waits for the
device, are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

aten = torch.ops.aten
CPU = torch.device("cpu")
DEVICE = "pretend:0"
PEAK = 3_000_000  # bytes that it claims to have allocated at most


class PretendTensor(Tensor):
    """A tensor on the pretend device; ``numbers`` is the CPU tensor with its values."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> PretendTensor:
        made = Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=torch.device(DEVICE),
        )
        made.numbers = numbers
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})

    def __repr__(self) -> str:
        return f"{self.numbers!r} on {DEVICE}"

    def tolist(self) -> Any:
        """The values; the CPU waits for them."""
        backend.counts["waits"] += 1
        return self.numbers.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu().")

    __array__ = numpy

    def __reduce_ex__(self, protocol: int) -> Any:
        """Pickled as what ``map_location="cpu"`` would give."""
        return self.numbers.detach().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = PretendTensor(self.numbers.clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        return memo.setdefault(id(self), copied)


# ------------------------------------------------------------------- operations


def leaves(values: Any) -> Iterator[Any]:
    """All values in nested lists, tuples and dictionaries."""
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from leaves(value)
    elif isinstance(values, dict):
        yield from leaves(list(values.values()))
    else:
        yield values


def convert(values: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The same with all values of a class changed; a tenth of the time of PyTorch's function."""
    if isinstance(values, kind):
        return change(values)
    if isinstance(values, (list, tuple)):
        return type(values)([convert(value, kind, change) for value in values])
    if isinstance(values, dict):
        return {name: convert(value, kind, change) for name, value in values.items()}
    return values


def numbers_of(values: Any) -> Any:
    """Arguments with the numbers in place of tensors on the device."""
    return convert(values, PretendTensor, lambda t: t.numbers)


# Indices may be on the CPU, and so may the scalar that is put there.
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
INDEXING |= {aten._index_put_impl_.default, aten._unsafe_index.Tensor}
# Operations that take a CPU scalar without being marked as pointwise.
TAKE_SCALARS = {aten.fill_.Tensor, aten.masked_fill.Tensor, aten.masked_fill_.Tensor}
TAKE_SCALARS |= {aten.where.self, aten.lerp_.Scalar, aten._foreach_mul_.Tensor}
COPIES = {aten.copy_.default, aten._to_copy.default, aten._copy_from.default}
# The sizes of their results, or their values, are needed on the CPU.
WAITING = {aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default}
WAITING |= {aten._unique2.default, aten.bincount.default, aten.repeat_interleave.Tensor}
WAITING |= {aten.equal.default}


def run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation on the numbers; the result is where CUDA would have it."""
    if operation in COPIES:
        return _copy(operation, args, kwargs)
    check_devices(operation, args, kwargs)
    if operation in WAITING or _has_mask(operation, args):
        backend.counts["waits"] += 1
    on_cpu = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
    own = {id(t.numbers): t for t in leaves((args, kwargs)) if isinstance(t, PretendTensor)}
    args, kwargs = numbers_of((args, kwargs))
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": CPU, "pin_memory": False}
    drawing = torch.Tag.nondeterministic_seeded in operation.tags
    with backend.generating() if drawing else nullcontext():
        found = operation(*args, **kwargs)
    if on_cpu:
        return found
    # An operation in place returns its argument.
    return convert(found, Tensor, lambda t: own[id(t)] if id(t) in own else PretendTensor(t))


def check_devices(operation: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise where CUDA would because tensors are on different devices."""
    for value in list(leaves((args, kwargs))):
        if isinstance(value, torch.Generator):
            raise RuntimeError(f"Expected a '{DEVICE}' generator but found 'cpu' in {operation}")
    if operation in INDEXING:
        base, indices, *values = args
        given = [base, *(i for i in indices if not isinstance(base, PretendTensor)), *values]
    else:
        given = list(leaves((args, kwargs)))
    scalars = operation in INDEXING | TAKE_SCALARS or torch.Tag.pointwise in operation.tags
    for place, value in enumerate(given):
        if not isinstance(value, Tensor) or isinstance(value, PretendTensor):
            continue
        changed = place == 0 and operation._schema.is_mutable
        if value.dim() or changed or not scalars:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{DEVICE} and {value.device}, in {operation}"
            )


def _has_mask(operation: Any, args: Any) -> bool:
    masks = args[1] if operation in INDEXING else ()
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in masks)


def _copy(operation: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Copies are the only way from one device to the other."""
    plain = numbers_of((args, kwargs))
    if operation is aten._to_copy.default:
        device = kwargs.get("device")
        stays = device is None or torch.device(device).type != "cpu"
        found = operation(*plain[0], **{**plain[1], "device": CPU, "pin_memory": False})
        if not stays:
            backend.counts["waits"] += not kwargs.get("non_blocking", False)
        return PretendTensor(found) if stays else found
    given = args if operation is aten.copy_.default else (args[1], args[0], *args[2:])
    target, source = given[0], given[1]
    blocks = not (kwargs.get("non_blocking") or (len(given) > 2 and given[2]))
    if not isinstance(source, PretendTensor):
        unpinned = source.data_ptr() not in backend.pinned
        backend.counts["copies"] += 1
        backend.counts["unpinned"] += unpinned
        blocks = blocks or unpinned
    if isinstance(source, PretendTensor) != isinstance(target, PretendTensor):
        backend.counts["waits"] += blocks
    numbers = target.numbers if isinstance(target, PretendTensor) else target
    numbers.copy_(source.numbers if isinstance(source, PretendTensor) else source)
    return target


# ------------------------------------------------------------------- the backend


class Backend:
    """What PyTorch asks of a device: ``torch.pretend``."""

    _initialized = True  # activation checkpointing then restores the generator

    def __init__(self) -> None:
        self.present = False
        self.generator = torch.Generator().manual_seed(0)
        self.counts: Counter[str] = Counter()
        self.pinned: set[int] = set()

    def is_available(self) -> bool:
        return self.present

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return int(self.present)

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        assert torch.device(device).index in (None, 0)

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        yield

    def get_device_name(self, device: Any = None) -> str:
        return "a pretend GPU"

    def synchronize(self, device: Any = None) -> None:
        self.counts["waits"] += 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def get_rng_state(self, device: Any = None) -> Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        self.generator.set_state(state)

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Draw from the device's generator instead of the CPU's."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.generator.get_state())
        try:
            yield
        finally:
            self.generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def max_memory_allocated(self, device: Any = None) -> int:
        return PEAK

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self.counts["resets"] += 1


backend = Backend()


class Hook(torch._C._acc.PrivateUse1Hooks):
    """Tells PyTorch's C++ code that the device is there."""

    def is_available(self) -> bool:
        return backend.present

    def has_primary_context(self, device: int) -> bool:
        return backend.present

    def is_built(self) -> bool:
        return True


FACTORIES = (
    *("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step"),
    *("zeros", "ones", "full", "rand", "randn", "randint", "randint.low", "randperm", "eye"),
    *("linspace", "scalar_tensor"),
)
# The cast rules of CUDA for the operations that the package and PyG's layers use.
LOWER_PRECISION = ("linear", "mm", "addmm", "bmm", "baddbmm", "matmul", "mv", "addmv")
FLOAT32 = (
    *("exp", "log", "log1p", "expm1", "rsqrt", "reciprocal", "softplus", "erfinv"),
    *("pow.Tensor_Scalar", "pow.Tensor_Tensor", "layer_norm", "native_layer_norm", "group_norm"),
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"),
    *("nll_loss", "cdist", "norm.Scalar", "softmax.int", "log_softmax.int", "sum", "prod"),
    *("sum.dim_IntList", "cumsum"),
)
WIDEST = ("cat", "stack", "scatter_add", "index_put", "addcmul", "addcdiv", "dot")


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def _factory(operation: Any) -> Callable[..., Tensor]:
    def make(*args: Any, **kwargs: Any) -> Tensor:
        return run(operation, args, {**kwargs, "device": torch.device(DEVICE)})

    return make


def _cast(operation: Any, choose: Callable[[list[Tensor]], torch.dtype]) -> Callable[..., Any]:
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(*args: Any, **kwargs: Any) -> Any:
        floats = [
            t
            for t in list(leaves((args, kwargs)))
            if isinstance(t, PretendTensor) and t.is_floating_point() and t.dtype != torch.float64
        ]
        with torch._C._ExcludeDispatchKeyGuard(key):
            if floats:
                ours, dtype = {id(t) for t in floats}, choose(floats)
                args, kwargs = convert(
                    (args, kwargs), Tensor, lambda t: t.to(dtype) if id(t) in ours else t
                )
            return operation(*args, **kwargs)

    return cast


def _widest(given: list[Tensor]) -> torch.dtype:
    wide = any(t.dtype == torch.float32 for t in given)
    return torch.float32 if wide else given[0].dtype


def _register() -> list[torch.library.Library]:
    """Make the device known to PyTorch, once in a process."""
    backend_registration._setup_privateuseone_for_python_backend(
        "pretend", backend_module=backend, hook=Hook()
    )
    operations = torch.library.Library("aten", "IMPL")
    for name in FACTORIES:
        operations.impl(name, _factory(_overload(name)), "PrivateUse1")
    copy_from = aten._copy_from.default
    operations.impl("_copy_from", lambda *args: _copy(copy_from, args, {}), "PrivateUse1")
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, choose in (
        (LOWER_PRECISION, lambda given: torch.get_autocast_dtype("pretend")),
        (FLOAT32, lambda given: torch.float32),
        (WIDEST, _widest),
    ):
        for name in names:
            operations.impl(name, _cast(_overload(name), choose), "AutocastPrivateUse1")
    return [operations, everything]


_libraries = _register()


@contextmanager
def pretend_device() -> Iterator[Backend]:
    """A machine with the pretend device, which is then the default."""
    pin_memory = Tensor.pin_memory

    def pinned(self: Tensor, *_: Any) -> Tensor:
        copy = self.clone()
        backend.pinned.add(copy.data_ptr())
        return copy

    before, backend.present = backend.present, True
    backend.counts.clear()
    Tensor.pin_memory = pinned
    try:
        yield backend
    finally:
        Tensor.pin_memory = pin_memory
        backend.present = before
        backend.pinned.clear()
