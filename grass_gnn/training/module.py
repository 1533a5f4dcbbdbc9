"""The Lightning module: one training step, and the counters that make a run resumable.

A run is a function of its seed and of the number of batches done: which graphs a batch holds, how
they are rewired, which edges are removed and the learning rate all follow from these. So a
checkpoint needs weights, optimiser state and that one number, and a resumed run repeats the
interrupted one bit by bit.
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.data.packed.loader import GraphLoader, num_parts, training_loader
from grass_gnn.errors import GrassError
from grass_gnn.nn.norm import synchronise_norms
from grass_gnn.training.distributed import ALONE, Team
from grass_gnn.training.losses import task_loss
from grass_gnn.training.optim import learning_rate, make_optimizer


class TrainingModule(LightningModule):
    """Trains any model that predicts from a :class:`GraphBatch`.

    Args:
        model: GRASS, or a baseline.
        config: The run's configuration.
        dataset: The training graphs.
        data_hash: What tells them apart from others; a run is resumed with the same.
        seed: Of everything random.
        workers: Threads that prepare batches.
        team: The processes that share each batch.
    """

    def __init__(
        self,
        model: nn.Module,
        config: GRASSConfig,
        dataset: PackedDataset,
        data_hash: str,
        seed: int = 0,
        workers: int = 1,
        team: Team = ALONE,
    ) -> None:
        super().__init__()
        self.model = model
        self.run_config = config
        self.dataset = dataset
        self.data_hash = data_hash
        self.seed = seed
        self.workers = workers
        self.team = team
        self.batch_size = min(config.training.batch_size, len(dataset))
        self.batches_per_epoch = len(dataset) // self.batch_size
        if config.training.sampling != "none":
            self.batches_per_epoch = num_parts(dataset, config)
        self.batches_done = 0
        self.loss_sum, self.losses = 0.0, 0  # finite ones of the current epoch, and how many
        self.last_loss = float("nan")
        self._optimizer_state: dict[str, Any] | None = None
        if team.size > 1 and config.training.synchronise:
            synchronise_norms(self.model)
        if config.training.compile:
            self.model.compile(dynamic=True)

    @property
    def epoch(self) -> int:
        """Number of epochs completed."""
        return self.batches_done // self.batches_per_epoch

    @property
    def mean_loss(self) -> float:
        """Of the current epoch so far; NaN if there is none that is finite."""
        return self.loss_sum / self.losses if self.losses else math.nan

    def forget_losses(self) -> None:
        """Begin another epoch."""
        self.loss_sum, self.losses = 0.0, 0

    @property
    def total_steps(self) -> int:
        """Optimiser steps of the whole run."""
        steps = -(-self.batches_per_epoch // self.run_config.training.accumulate)
        return self.run_config.training.epochs * steps

    @property
    def steps_done(self) -> int:
        """Optimiser steps so far."""
        accumulate = self.run_config.training.accumulate
        epoch, batch = divmod(self.batches_done, self.batches_per_epoch)
        return epoch * -(-self.batches_per_epoch // accumulate) + batch // accumulate

    def train_dataloader(self) -> GraphLoader:
        """The rest of the current epoch (Lightning asks anew for every epoch)."""
        share = self.batch_size // self.team.size
        loader = training_loader(self.dataset, self.run_config, share, self.seed, self.workers)
        loader.shard(self.team.rank, self.team.size).set_epoch(self.epoch)
        loader.resume_from(self.batches_done % self.batches_per_epoch)
        return loader

    def transfer_batch_to_device(
        self, batch: GraphBatch, device: torch.device, dataloader_idx: int
    ) -> GraphBatch:
        """Move a batch to the device that trains."""
        return batch if device.type == "cpu" else batch.to(device)

    def training_step(self, batch: GraphBatch, batch_idx: int) -> Tensor:
        """The loss of one batch, or of this process's part of it."""
        team = self.team
        torch.manual_seed(step_seed(self.seed, self.batches_done * team.size + team.rank))
        prediction = self.model(batch)
        target = batch.y
        assert target is not None
        if batch.mask is not None:
            prediction, target = prediction[batch.mask], target[batch.mask]
        task, smoothing = self.run_config.task, self.run_config.training.label_smoothing
        loss = task_loss(task, prediction, target, smoothing, team.add_up)
        self.last_loss = float(team.add_up(loss.detach()))
        if not math.isfinite(self.last_loss):
            return loss * math.nan  # so that no gradient is finite either: see FiniteSteps
        self.loss_sum += self.last_loss
        self.losses += 1
        return loss * team.size  # Lightning averages the gradients of processes, and this is a sum

    def configure_optimizers(self) -> Any:
        """The optimiser, where it was, and the schedule of its learning rate."""
        training, total, start = self.run_config.training, self.total_steps, self.steps_done
        optimizer = make_optimizer(self.model, training)
        if self._optimizer_state is not None:
            optimizer.load_state_dict(self._optimizer_state)
            for group in optimizer.param_groups:  # the scheduler below starts from the peak
                group["lr"] = group["initial_lr"] = training.learning_rate
        schedule = LambdaLR(
            optimizer,
            lambda step: learning_rate(start + step, total, training) / training.learning_rate,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the counters, and what the checkpoint belongs to."""
        checkpoint["grass_gnn"] = {
            "batches_done": self.batches_done,
            "loss_sum": self.loss_sum,
            "losses": self.losses,
            "seed": self.seed,
            "config": self.run_config.model_dump_json(),
            "data": self.data_hash,
        }

    def resume(self, checkpoint: dict[str, Any]) -> None:
        """Go on from a checkpoint: weights, optimiser and counters."""
        state = checkpoint["grass_gnn"]
        # Compared as a configuration: settings that are newer than the checkpoint have a default.
        config = GRASSConfig.from_dict(json.loads(state["config"]), "the checkpoint")
        for what, there, here in (
            ("seed", state["seed"], self.seed),
            ("config", config, self.run_config),
            ("data", state["data"], self.data_hash),
        ):
            if there != here:
                raise GrassError(
                    f"The checkpoint was made with another {what}: resume with the same, "
                    "or choose another --out."
                )
        self.load_state_dict(checkpoint["state_dict"])
        self._optimizer_state = checkpoint["optimizer_states"][0]
        self.batches_done = state["batches_done"]
        self.loss_sum = state["loss_sum"]
        self.losses = state.get("losses", self.batches_done % self.batches_per_epoch)


class CountBatches(Callback):
    """Counts batches as done; first of all callbacks, so that the others see the new number."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """One more."""
        assert isinstance(pl_module, TrainingModule)
        pl_module.batches_done += 1


def step_seed(seed: int, step: int) -> int:
    """The seed of torch's generator for one step."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 1) % 2**63
