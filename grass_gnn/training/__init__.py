"""From a configuration and data to a trained model."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "build": ("build_model", "make_model"),
        "losses": ("task_loss",),
        "loop": ("Interrupted", "TrainingLoop"),
        "optim": ("learning_rate",),
        "options": ("RunOptions",),
        "run": ("Run", "check_folder", "take_part", "train"),
    },
)
