"""Uncertainty of predictions: ensembles, calibration, similarity to the training set."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "calibration": (
            "Calibration",
            "find_calibration",
        ),
        "ensembles": (
            "Ensemble",
            "load_models",
        ),
        "similarity": ("SimilarityReference",),
    },
)
