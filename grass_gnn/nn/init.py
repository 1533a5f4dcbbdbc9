"""Initial values of the parameters."""

from __future__ import annotations

from torch import Tensor, nn


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
