"""Checkpoints that survive: written whole, verified when read, the one before kept as well."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import time
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer

from grass_gnn.errors import GrassError
from grass_gnn.files import write_whole
from grass_gnn.locks import FolderLock
from grass_gnn.training.finite import check_weights

FOLDER = "checkpoints"  # in a run folder
KEPT = 2  # the newest, and the one before it

logger = logging.getLogger(__name__)


class WholeCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files, written in one piece, with a checksum in their name."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write ``NUMBER.ckpt`` as ``NUMBER-CHECKSUM.ckpt``, then remove all but the newest two."""
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        data = buffer.getvalue()
        path = Path(path)
        path = path.with_name(f"{path.stem}-{_checksum(data)}.ckpt")
        with write_whole(path) as temporary:
            temporary.write_bytes(data)
        for old in checkpoints(path.parent)[KEPT:]:
            with contextlib.suppress(OSError):  # one too many does no harm
                old.unlink()


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("[0-9]*-*.ckpt"), reverse=True)


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint in a folder that is whole, or none if there was never one.

    Raises:
        GrassError: There are checkpoints, but all of them are damaged.
    """
    found = checkpoints(folder)
    for path in found:
        try:
            data = path.read_bytes()
            if path.stem.endswith(f"-{_checksum(data)}"):
                checkpoint = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
                if isinstance(checkpoint, dict) and "grass_gnn" in checkpoint:
                    return checkpoint
        except Exception:  # whatever torch may meet in a damaged file
            pass
        logger.warning("The checkpoint %s is damaged and left out.", path)
    if found:
        raise GrassError(f"All checkpoints in {folder} are damaged: start again in another folder.")
    return None


class Checkpointer(Callback):
    """Save every few minutes, at the end, and when the run is asked to stop.

    Args:
        lock: Of the run folder.
        minutes: Time between two of them.
    """

    def __init__(self, lock: FolderLock, minutes: float) -> None:
        self.lock = lock
        self.folder = lock.folder / FOLDER
        self.seconds = 60 * minutes
        self.saved_at = time.monotonic()
        self.saved_batches = -1

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Save when it is time, but never between steps whose gradients are being added up.

        After the last batch of an epoch the validation is still to come, and belongs to it.
        """
        module: Any = pl_module
        batch = module.batches_done % module.batches_per_epoch
        if batch and batch % trainer.accumulate_grad_batches == 0:
            self._save_in_time(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save when it is time, after the other callbacks have finished the epoch."""
        module: Any = pl_module
        if module.batches_done % module.batches_per_epoch == 0:
            self._save_in_time(trainer)

    def _save_in_time(self, trainer: Trainer) -> None:
        module: Any = trainer.lightning_module
        if module.team.any(time.monotonic() - self.saved_at >= self.seconds):
            self.save(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end of training, or where it was stopped."""
        self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint now, unless the last one is of the same batch.

        All processes of a run come here; Lightning lets the leader write.
        """
        module: Any = trainer.lightning_module
        if module.batches_done == self.saved_batches:
            return
        self.lock.check()
        check_weights(module.model, self.folder)
        trainer.save_checkpoint(self.folder / f"{module.batches_done:09d}.ckpt")
        self.saved_at, self.saved_batches = time.monotonic(), module.batches_done
