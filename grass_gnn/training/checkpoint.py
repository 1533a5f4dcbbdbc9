"""Checkpoint files: written atomically, verified when read; the last two are kept.

They are read with ``weights_only=True``, which does not unpickle arbitrary objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from pathlib import Path
from typing import Any

import torch

from grass_gnn.errors import GrassError
from grass_gnn.files import read_bytes, write_whole

FOLDER = "checkpoints"  # in a run folder
KEPT = 2  # the newest and the previous one
_LARGEST = 64 << 30  # bytes of a checkpoint
FORMAT = 2  # format 1 was that of Lightning's Trainer

logger = logging.getLogger(__name__)


def write_checkpoint(folder: Path, batches: int, checkpoint: dict[str, Any]) -> None:
    """Write ``BATCHES-CHECKSUM.ckpt``, then remove all but the newest two."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **checkpoint}, buffer)
    data = buffer.getvalue()
    with write_whole(folder / f"{batches:09d}-{_checksum(data)}.ckpt") as temporary:
        temporary.write_bytes(data)
    for old in checkpoints(folder)[KEPT:]:
        with contextlib.suppress(OSError):  # an extra file does no harm
            old.unlink()


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("[0-9]*-*.ckpt"), reverse=True)


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest undamaged checkpoint in a folder; None if there is no checkpoint at all.

    Raises:
        GrassError: There are checkpoints, but all of them are damaged.
    """
    found = checkpoints(folder)
    for path in found:
        try:
            data = read_bytes(path, _LARGEST)
            if path.stem.endswith(f"-{_checksum(data)}"):
                checkpoint = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
                if isinstance(checkpoint, dict) and "grass_gnn" in checkpoint:
                    return checkpoint if "format" in checkpoint else _from_lightning(checkpoint)
        except Exception:  # torch raises many kinds of errors for a damaged file
            pass
        logger.warning("Skipping the damaged checkpoint %s.", path)
    if found:
        raise GrassError(f"All checkpoints in {folder} are damaged: start again in another folder.")
    return None


def _from_lightning(old: dict[str, Any]) -> dict[str, Any]:
    """Convert a checkpoint of format 1 to the current format."""
    callbacks = old["callbacks"]
    return {
        "format": FORMAT,
        "grass_gnn": old["grass_gnn"],
        "model": {name.removeprefix("model."): v for name, v in old["state_dict"].items()},
        "optimizer": old["optimizer_states"][0],
        "finite": callbacks.get("FiniteSteps", {"skipped": 0, "in_a_row": 0}),
        "best": callbacks.get("BestWeights"),
        "average": None,
        "precision": old.get("MixedPrecision", {}),
    }
