"""From a configuration and data to a trained model."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "build": (
            "build_model",
            "make_model",
        ),
        "fit": ("Interrupted",),
        "follow": ("take_part",),
        "losses": ("task_loss",),
        "optim": ("learning_rate",),
        "run": (
            "Run",
            "check_folder",
            "train",
        ),
    },
)
