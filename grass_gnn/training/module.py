"""The Lightning module: one training step, and the counters that make a run resumable.

A run is a function of its seed and of the number of batches done: which graphs a batch holds, how
they are rewired, which edges are removed and the learning rate all follow from these. So a
checkpoint needs weights, optimiser state and that one number, and a resumed run repeats the
interrupted one bit by bit.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from grass_gnn.config import GRASSConfig
from grass_gnn.data import GraphLoader, PackedDataset
from grass_gnn.data.batch import GraphBatch
from grass_gnn.errors import GrassError
from grass_gnn.training.losses import task_loss
from grass_gnn.training.optimizer import make_optimizer
from grass_gnn.training.schedule import learning_rate


class TrainingModule(LightningModule):
    """Trains any model that predicts from a :class:`GraphBatch`.

    Args:
        model: GRASS, or a baseline.
        config: The run's configuration.
        dataset: The training graphs.
        data_hash: What tells them apart from others; a run is resumed with the same.
        seed: Of everything random.
        workers: Threads that prepare batches.
    """

    def __init__(
        self,
        model: nn.Module,
        config: GRASSConfig,
        dataset: PackedDataset,
        data_hash: str,
        seed: int = 0,
        workers: int = 1,
    ) -> None:
        super().__init__()
        self.model = model
        self.run_config = config
        self.dataset = dataset
        self.data_hash = data_hash
        self.seed = seed
        self.workers = workers
        self.batch_size = min(config.training.batch_size, len(dataset))
        self.batches_per_epoch = len(dataset) // self.batch_size
        self.batches_done = 0
        self.loss_sum = 0.0  # over the batches of the current epoch
        self._optimizer_state: dict[str, Any] | None = None
        if config.training.compile:
            self.model.compile(dynamic=True)

    @property
    def epoch(self) -> int:
        """Number of epochs completed."""
        return self.batches_done // self.batches_per_epoch

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
        loader = GraphLoader(
            self.dataset,
            self.run_config,
            batch_size=self.batch_size,
            shuffle=True,
            drop_last=True,
            seed=self.seed,
            workers=self.workers,
        )
        loader.set_epoch(self.epoch)
        loader.resume_from(self.batches_done % self.batches_per_epoch)
        return loader

    def transfer_batch_to_device(
        self, batch: GraphBatch, device: torch.device, dataloader_idx: int
    ) -> GraphBatch:
        """Move a batch to the device that trains."""
        return batch if device.type == "cpu" else batch.to(device)

    def training_step(self, batch: GraphBatch, batch_idx: int) -> Tensor:
        """The loss of one batch."""
        torch.manual_seed(step_seed(self.seed, self.batches_done))
        prediction = self.model(batch)
        target = batch.y
        assert target is not None
        if batch.mask is not None:
            prediction, target = prediction[batch.mask], target[batch.mask]
        training = self.run_config.training
        loss = task_loss(self.run_config.task, prediction, target, training.label_smoothing)
        value = float(loss.detach())
        if value != value or abs(value) == float("inf"):
            raise GrassError(
                f"The loss became {value} in epoch {self.epoch + 1}, batch "
                f"{self.batches_done % self.batches_per_epoch + 1}: try a smaller learning rate."
            )
        self.loss_sum += value
        return loss

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
            "seed": self.seed,
            "config": self.run_config.model_dump_json(),
            "data": self.data_hash,
        }

    def resume(self, checkpoint: dict[str, Any]) -> None:
        """Go on from a checkpoint: weights, optimiser and counters."""
        state = checkpoint["grass_gnn"]
        for what, here in (
            ("seed", self.seed),
            ("config", self.run_config.model_dump_json()),
            ("data", self.data_hash),
        ):
            if state[what] != here:
                raise GrassError(
                    f"The checkpoint was made with another {what}: resume with the same, "
                    "or choose another --out."
                )
        self.load_state_dict(checkpoint["state_dict"])
        self._optimizer_state = checkpoint["optimizer_states"][0]
        self.batches_done = state["batches_done"]
        self.loss_sum = state["loss_sum"]


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
