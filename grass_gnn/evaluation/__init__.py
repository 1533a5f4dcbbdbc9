"""Metrics, the paper's evaluation protocol, and trained models that predict."""

from grass_gnn.evaluation.explanation import Explanation
from grass_gnn.evaluation.metrics import LOWER_IS_BETTER, score
from grass_gnn.evaluation.predictions import write_predictions
from grass_gnn.evaluation.protocol import Evaluation, collect, evaluate, predict_split, validate
from grass_gnn.evaluation.run import evaluate_run
from grass_gnn.evaluation.trained import Prediction, TrainedModel, load_model, save_model

__all__ = [
    "LOWER_IS_BETTER",
    "Evaluation",
    "Explanation",
    "Prediction",
    "TrainedModel",
    "collect",
    "evaluate",
    "evaluate_run",
    "load_model",
    "predict_split",
    "save_model",
    "score",
    "validate",
    "write_predictions",
]
