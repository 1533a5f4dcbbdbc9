"""Muon for the layers and Lion for the rest: fewer epochs to the same error than Lion alone.

Lion changes every weight of a matrix by the same amount, so a few directions of a gradient decide
most signs. Muon (Jordan et al., 2024) replaces the momentum M = U S Vᵀ of a matrix by its nearest
orthogonal matrix U Vᵀ: all directions are learned at the same rate.

``torch.optim.Muon`` works matrix by matrix. A GRASS of 49 layers has 441 matrices of 32 × 32
(W₁ … W₇ of equations (7) to (11), and both output maps), for which it takes 194 ms per step on a
CPU core; all of them at once take 24 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lion_pytorch.foreach import Lion as ForeachLion
from torch import Tensor

MOMENTUM = 0.95
# Five steps of X ← aX + (b XXᵀ + c (XXᵀ)²) X take singular values between 0.01 and 1 to between 0.7
# and 1.2; which of these values they take does not matter for training.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


class Lion(ForeachLion):
    """Lion, also for steps in which a group of parameters has no gradients."""

    param_groups: list[dict[str, Any]]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Take a step with the parameters that have a gradient."""
        groups = self.param_groups
        # The functions that the original calls do not take empty lists.
        self.param_groups = [g for g in groups if not g.get("orthogonal") and _with_gradient(g)]
        try:
            super().step()
        finally:
            self.param_groups = groups


class Muon(Lion):
    """Muon for groups of parameters with ``orthogonal: True``, Lion for the others.

    Both change a weight by the learning rate (root mean square over a matrix) and decay it alike.

    Args:
        groups: Groups of parameters. Those of an orthogonal group are matrices; if their number of
            rows is a multiple of that of their columns, as in ``node_in``, they are several square
            ones on top of each other.
        learning_rate: Learning rate of both.
        betas: β₁ and β₂ of Lion.
    """

    def __init__(
        self, groups: list[dict[str, Any]], learning_rate: float, betas: tuple[float, float]
    ) -> None:
        super().__init__(groups, lr=learning_rate, betas=betas)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Take a step with the parameters that have a gradient."""
        super().step()
        for group in self.param_groups:
            if group.get("orthogonal") and (matrices := _with_gradient(group)):
                self._orthogonal_step(matrices, group["lr"], group["weight_decay"])

    def _orthogonal_step(self, matrices: list[Tensor], rate: float, decay: float) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        momenta = []
        for matrix in matrices:
            state = self.state[matrix]
            if not state:
                state["momentum"] = torch.zeros_like(matrix)
            momenta.append(state["momentum"])
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)  # Nesterov's momentum
        torch._foreach_mul_(matrices, 1 - rate * decay)
        torch._foreach_add_(matrices, orthogonal(ahead), alpha=-rate)


def orthogonal(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Matrices [r, c] → the nearest orthogonal ones, scaled to a root mean square of about one.

    Matrices with m · c rows are m square ones. All matrices of a shape are computed together.
    """
    blocks = [
        matrix.view(-1, columns, columns) if rows % columns == 0 else matrix.unsqueeze(0)
        for matrix in matrices
        for rows, columns in (matrix.shape,)
    ]  # [m, c, c] or [1, r, c]
    result: list[Tensor] = [torch.empty(0)] * len(matrices)
    for shape in dict.fromkeys(block.shape[1:] for block in blocks):
        members = [i for i, block in enumerate(blocks) if block.shape[1:] == shape]
        together = _newton_schulz(torch.cat([blocks[i] for i in members]))  # [Σm, r, c]
        # An orthogonal [r, c] has min(r, c) singular values of one: Σ x² = min(r, c).
        together *= max(shape) ** 0.5
        parts = together.split([blocks[i].size(0) for i in members])
        for i, part in zip(members, parts, strict=True):
            result[i] = part.view_as(matrices[i])
    return result


def _newton_schulz(x: Tensor) -> Tensor:
    """U Vᵀ, approximately, for each U S Vᵀ in [m, r, c]; zero for a matrix of zeros."""
    a, b, c = COEFFICIENTS
    tall = x.size(1) > x.size(2)
    x = x.mT if tall else x
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    for _ in range(STEPS):
        square = x @ x.mT  # [m, r, r]
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _with_gradient(group: dict[str, Any]) -> list[Tensor]:
    return [parameter for parameter in group["params"] if parameter.grad is not None]
