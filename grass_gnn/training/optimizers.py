"""Optimisers: Lion, which the paper uses, AdamW, and Muon for shorter schedules.

To add one, add an entry to :data:`OPTIMIZERS` and its name to ``TrainingConfig.optimizer``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from grass_gnn.config import TrainingConfig

Groups = list[dict[str, Any]]

MOMENTUM = 0.95
# Five steps of X ← aX + (b XXᵀ + c (XXᵀ)²) X take singular values between 0.01 and 1 to between 0.7
# and 1.2; which of these values they take does not matter for training.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
LIONS_SHARE = 0.5  # of the learning rate, for the weights that Muon leaves to Lion


class Lion(Optimizer):
    """Lion (Chen et al., 2023), for all parameters of a group at once.

    Gives the same bytes as ``lion_pytorch.Lion``, which works tensor by tensor and takes three
    times as long for the hundreds of small tensors of a GRASS.

    Args:
        groups: Groups of parameters, each with its ``weight_decay``.
        lr: Learning rate.
        betas: β₁, of the update, and β₂, of the momentum.
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step with the parameters that have a gradient."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                rate = group["lr"] * group.get("rate", 1.0)
                torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
                torch._foreach_add_(weights, self._updates(group, weights), alpha=-rate)

    def _updates(self, group: dict[str, Any], weights: list[Tensor]) -> list[Tensor]:
        """sign(β₁ m + (1 − β₁) g), and then m ← β₂ m + (1 − β₂) g."""
        (beta1, beta2), momenta = group["betas"], self._momenta(weights)
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        updates = torch._foreach_mul(momenta, beta1)
        torch._foreach_add_(updates, gradients, alpha=1 - beta1)
        torch._foreach_sign_(updates)
        torch._foreach_mul_(momenta, beta2)
        torch._foreach_add_(momenta, gradients, alpha=1 - beta2)
        return list(updates)

    def _momenta(self, weights: list[Tensor]) -> list[Tensor]:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["exp_avg"] = torch.zeros_like(weight)
        return [self.state[weight]["exp_avg"] for weight in weights]


class Muon(Lion):
    """Muon (Jordan et al., 2024) for groups with ``orthogonal: True``, Lion for the others.

    Lion changes every weight of a matrix by the same amount, so a few directions of a gradient
    decide most signs. Muon replaces the momentum M = U S Vᵀ of a matrix by its nearest orthogonal
    matrix U Vᵀ: all directions are learned at the same rate.

    ``torch.optim.Muon`` works matrix by matrix. A GRASS of 49 layers has 441 matrices of 32 × 32
    (nine per layer), for which it takes 194 ms per step on a CPU core; all at once take 24 ms.

    Muon changes a weight by the learning rate (root mean square over a matrix), Lion by half of it.
    Parameters of an orthogonal group are matrices; if their number of rows is a multiple of that of
    their columns, as in ``node_in``, they are several square ones on top of each other.
    """

    def _updates(self, group: dict[str, Any], weights: list[Tensor]) -> list[Tensor]:
        if not group.get("orthogonal"):
            return super()._updates(group, weights)
        momenta = self._momenta(weights)
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        return orthogonal(torch._foreach_lerp(gradients, momenta, MOMENTUM))  # Nesterov's


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


class Kind(NamedTuple):
    """How to build an optimiser, and the largest gradient that it can handle."""

    build: Callable[[Groups, TrainingConfig], Optimizer]
    largest_gradient: float
    orthogonal: bool = False  # whether the matrices of layers are a group of their own


OPTIMIZERS = {
    "lion": Kind(
        lambda groups, training: Lion(groups, training.learning_rate, training.betas),
        largest_gradient=torch.finfo(torch.float32).max,
    ),
    "adamw": Kind(
        lambda groups, training: AdamW(
            groups, lr=training.learning_rate, betas=training.betas, eps=1e-7
        ),
        # AdamW squares gradients: beyond this value its state overflows and weights stop moving.
        largest_gradient=1e19,
    ),
    "muon": Kind(
        lambda groups, training: Muon(groups, training.learning_rate, training.betas),
        largest_gradient=1e16,  # norms of matrices square and add up gradients
        orthogonal=True,
    ),
}


def make_optimizer(model: nn.Module, training: TrainingConfig) -> Optimizer:
    """The configured optimiser over the model's trainable parameters.

    Parameters whose name contains "bias" are not decayed.
    """
    kind = OPTIMIZERS[training.optimizer]
    matrices: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if kind.orthogonal and name.startswith("layers.") and parameter.ndim == 2:
            matrices.append(parameter)
        else:
            (undecayed if "bias" in name else decayed).append(parameter)
    groups: Groups = [
        {"params": decayed, "weight_decay": training.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    if matrices:
        groups = [{**group, "rate": LIONS_SHARE} for group in groups]
        groups.append(
            {"params": matrices, "weight_decay": training.weight_decay, "orthogonal": True}
        )
    return kind.build(groups, training)
