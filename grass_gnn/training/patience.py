"""Early stopping: train while validation improves, and keep the weights that did best."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from grass_gnn.tasks import LOWER_IS_BETTER
from grass_gnn.training.callbacks import EpochRecord


class BestWeights(Callback):
    """Keeps the weights of the best validation, and ends training when none was better for long.

    Its state goes into checkpoints, so a resumed run stops where an undisturbed one does.

    Args:
        record: Validates; it comes before this callback.
        metric: Name of the metric.
        patience: Validations without improvement before training ends.
    """

    def __init__(self, record: EpochRecord, metric: str, patience: int) -> None:
        self.record, self.patience = record, patience
        self.sign = 1.0 if metric in LOWER_IS_BETTER else -1.0
        self.best, self.epoch, self.waited = math.inf, 0, 0
        self.weights: dict[str, Tensor] = {}

    @property
    def exhausted(self) -> bool:
        """Whether training is to end."""
        return self.waited >= self.patience

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the newest validation."""
        module: Any = pl_module
        row = self.record.rows[-1] if self.record.rows else None
        if row is None or row["epoch"] != module.epoch or module.batches_done == 0:
            return
        if module.batches_done % module.batches_per_epoch:  # stopped in the middle of an epoch
            return
        metric = row["val_metric"]
        if metric is None or math.isnan(metric):  # not validated, or no score for such a split
            return
        # Of equal scores the later: a few graphs are soon ranked right, by weights hardly trained.
        if self.sign * metric <= self.best:
            self.best, self.epoch, self.waited = self.sign * metric, row["epoch"], 0
            self.weights = {n: v.detach().clone() for n, v in module.model.state_dict().items()}
        else:
            self.waited += 1
        if self.exhausted:
            trainer.should_stop = True

    def restore(self, model: nn.Module) -> None:
        """Give a model the best weights, if there was any validation."""
        if self.weights:
            model.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to know."""
        return {
            "best": self.best,
            "epoch": self.epoch,
            "waited": self.waited,
            "weights": self.weights,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        vars(self).update(state_dict)
