"""From a configuration and data to a trained model."""

from grass_gnn.training.build import build_model, make_model
from grass_gnn.training.fit import Interrupted
from grass_gnn.training.follow import take_part
from grass_gnn.training.losses import task_loss
from grass_gnn.training.run import Run, check_folder, train
from grass_gnn.training.schedule import learning_rate

__all__ = [
    "Interrupted",
    "Run",
    "build_model",
    "check_folder",
    "learning_rate",
    "make_model",
    "take_part",
    "task_loss",
    "train",
]
