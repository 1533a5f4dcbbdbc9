"""From a configuration and data to a trained model."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "loop": ("TrainingLoop",),
        "optim": ("learning_rate", "task_loss"),
        "options": ("RunOptions",),
        "grass_gnn.nn.model": ("build_model", "make_model"),
        "signals": ("Interrupted",),
        "run": ("Run", "check_folder", "take_part", "train"),
    },
)
