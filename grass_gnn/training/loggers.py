"""Other places to log to than ``metrics.csv``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

from grass_gnn.errors import GrassError

LOGGERS = ("tensorboard", "mlflow", "wandb")


def make_logger(name: str | None, folder: Path) -> Any:
    """The Lightning logger of a name, writing below the run folder; False for none."""
    if name is None:
        return False
    if name not in LOGGERS:
        raise GrassError(f"There is no logger {name!r}; the names are {', '.join(LOGGERS)}.")
    try:
        if name == "tensorboard":
            return TensorBoardLogger(folder, name="tensorboard", version="")
        if name == "mlflow":
            return MLFlowLogger("grass-gnn", tracking_uri=f"file:{folder / 'mlflow'}")
        return WandbLogger(project="grass-gnn", save_dir=folder)
    except (ImportError, ModuleNotFoundError):
        raise GrassError(
            f"Logging to {name} needs its package: pip install 'grass-gnn[{name}]'."
        ) from None
