"""Initial values of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


def uniform_(weight: Tensor, fan_in: int) -> None:
    """Fill weights [out, fan-in] uniformly from ±√(3 / fan-in), which has variance 1 / fan-in."""
    bound = (3.0 / fan_in) ** 0.5
    nn.init.uniform_(weight, -bound, bound)


def init_linear(linear: nn.Linear) -> nn.Linear:
    """Initialise a linear map in place: uniform weights, zero bias."""
    uniform_(linear.weight, linear.in_features)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


@contextmanager
def only_shapes() -> Iterator[None]:
    """Build models without values: parameters are on the meta device, and are not initialised."""
    with torch.device("meta"), _WithoutInitialisation():
        yield


class _WithoutInitialisation(TorchFunctionMode):
    """Skips random numbers, for which PyTorch would import its compiler on the meta device."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return the tensor without initialising it."""
        kwargs = kwargs or {}
        module = getattr(func, "__module__", None)
        if func in (Tensor.normal_, Tensor.uniform_) or module == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
