"""Steps whose loss or gradients are not finite change nothing, are counted, and end a run at last.

A loss that is not finite makes its gradients so (see ``TrainingModule.training_step``), on all
processes of a distributed run alike. So one number is looked at in each step: the largest gradient.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from grass_gnn.data.batch import GraphBatch
from grass_gnn.errors import GrassError
from grass_gnn.files import write_whole
from grass_gnn.nn.norm import InputNorm

BATCH = "nonfinite_batch.safetensors"
# AdamW squares gradients: beyond, its state would be infinite, and weights would stand still.
LARGEST_GRADIENT = {"lion": torch.finfo(torch.float32).max, "adamw": 1e19}


class NotFinite(GrassError):
    """Training ended because of numbers that are not finite."""


class FiniteSteps(Callback):
    """Leaves out optimiser steps with gradients that are not finite, and ends training after some.

    Weights, optimiser state and the averages of input norms stay as they were before the step. The
    counts go into checkpoints, so a resumed run ends where an undisturbed one does.

    Args:
        folder: The run folder, where the last batch is kept when training ends.
        optimizer: Name of the optimiser.
        limit: Steps in a row that end training.
    """

    def __init__(self, folder: Path, optimizer: str, limit: int) -> None:
        self.path, self.limit = folder / BATCH, limit
        self.largest = LARGEST_GRADIENT[optimizer]
        self.skipped, self.in_a_row = 0, 0
        self._batch: GraphBatch | None = None
        self._before: list[tuple[Tensor, Tensor]] | None = None  # buffers, and as the step began

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Keep what a forward pass changes; of several batches a step, before the first."""
        module: Any = pl_module
        self._batch = batch
        if self._before is None:
            self._before = [(b, b.clone()) for b in _changing_buffers(module.model)]

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Look at the gradients; an optimiser does nothing for weights that have none."""
        module: Any = pl_module
        before, self._before = self._before, None
        if largest_gradient(module.model) <= self.largest:
            self.in_a_row = 0
            return
        for parameter in module.model.parameters():
            parameter.grad = None
        for buffer, value in before or ():
            buffer.copy_(value)
        for norm in module.model.modules():
            if isinstance(norm, InputNorm):
                norm.refresh()
        self.skipped += 1
        self.in_a_row += 1
        if self.in_a_row >= self.limit:
            self._end(module)

    def _end(self, module: Any) -> None:
        epoch, batch = divmod(module.batches_done, module.batches_per_epoch)
        assert self._batch is not None
        details = {"epoch": epoch + 1, "batch": batch + 1, "seed": module.seed}
        if module.team.leads:  # of several processes, the batch is the leader's part
            save_batch(self._batch, self.path, details | {"loss": module.last_loss})
        raise NotFinite(
            f"Training ended in epoch {epoch + 1}, batch {batch + 1}, after {self.in_a_row} steps "
            f"in a row whose loss or gradients are not finite or too large (the last loss is "
            f"{module.last_loss:g}): the batch is in {self.path}; try a smaller "
            "training.learning_rate, or targets and features of a smaller scale."
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to know."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.skipped, self.in_a_row = state_dict["skipped"], state_dict["in_a_row"]


def largest_gradient(model: nn.Module) -> float:
    """The largest absolute value of all gradients; NaN if any of them is."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if not gradients:
        return 0.0
    return float(torch.nn.utils.get_total_norm(gradients, norm_type=math.inf))


def check_weights(model: nn.Module, folder: Path) -> None:
    """Raise unless all weights and buffers are finite: others are never written anywhere."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NotFinite(
                f"The weights {name} are not finite any more, and are not kept: the last "
                f"checkpoint in {folder} is from before; try a smaller training.learning_rate."
            )


def save_batch(batch: GraphBatch, path: Path, details: dict[str, Any]) -> None:
    """Write the tensors of a batch, with some details, for inspection."""
    parts = {**batch._asdict(), **{f"order.{k}": v for k, v in batch.order._asdict().items()}}
    tensors = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in parts.items()
        if isinstance(value, Tensor)
    }
    data = save_tensors(tensors, {name: str(value) for name, value in details.items()})
    with write_whole(path) as temporary:
        temporary.write_bytes(data)


def _changing_buffers(model: nn.Module) -> list[Tensor]:
    """Buffers that a forward pass changes in training."""
    norms = [module for module in model.modules() if isinstance(module, (InputNorm, _BatchNorm))]
    return [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
