"""From a configuration and data to a trained model."""

from grass_gnn.training.losses import task_loss
from grass_gnn.training.run import Interrupted, Run, build_model, check_folder, make_model, train
from grass_gnn.training.schedule import learning_rate

__all__ = [
    "Interrupted",
    "Run",
    "build_model",
    "check_folder",
    "learning_rate",
    "make_model",
    "task_loss",
    "train",
]
