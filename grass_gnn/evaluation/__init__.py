"""Metrics, the paper's evaluation protocol, and trained models."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "attribution": ("Attribution",),
        "explain": ("Explanation",),
        "grass_gnn.tasks": ("LOWER_IS_BETTER",),
        "predictions": (
            "RowNames",
            "SavedPredictions",
            "write_predictions",
        ),
        "protocol": (
            "Evaluation",
            "collect",
            "evaluate",
            "predict_split",
            "score",
            "validate",
        ),
        "run": ("evaluate_run",),
        "trained": (
            "Prediction",
            "TrainedModel",
            "load_model",
            "save_model",
        ),
    },
)
