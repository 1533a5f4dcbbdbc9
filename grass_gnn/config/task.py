"""Settings of the task: what is predicted, how it is scored, and what is minimised."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grass_gnn.config.section import MOST_OUTPUTS, PositiveFloat, Section

METRICS = {
    "regression": ("mae", "rmse", "r2"),
    "binary": ("auc", "ap", "accuracy", "f1"),
    "classification": ("accuracy", "class-accuracy", "f1"),
    "multilabel": ("ap", "auc", "accuracy", "f1"),
}
"""Metrics of each kind of task."""


class TaskConfig(Section):
    """What is predicted, how it is scored, and what is minimised."""

    level: Literal["graph", "node", "edge"] = Field("graph", description="what has a target")
    kind: Literal["regression", "binary", "classification", "multilabel"] = Field(
        "regression", description="numbers, one yes or no, one of several classes, or labels"
    )
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)] = Field(
        1, description="number of targets, classes or labels (binary: 1)"
    )
    loss: Literal["l1", "mse", "cross-entropy", "weighted-cross-entropy", "bce"] = Field(
        "l1", description="what is minimised; it has to fit the kind of task"
    )
    metric: Literal["mae", "rmse", "r2", "accuracy", "class-accuracy", "f1", "ap", "auc"] = Field(
        "mae", description="what models are compared by; class-accuracy is averaged over classes"
    )
    target_scale: Annotated[list[PositiveFloat], Field(min_length=1)] = Field(
        [1.0], description="prediction = scale × output + shift; one value, or one per output"
    )
    target_shift: Annotated[list[float], Field(min_length=1)] = Field(
        [0.0], description="one value, or one per output"
    )
    missing: bool = Field(
        False, description="whether targets may be missing (NaN): they count in no loss or metric"
    )

    @model_validator(mode="after")
    def _loss_and_metric_fit_kind(self) -> TaskConfig:
        losses = {
            "regression": ("l1", "mse"),
            "binary": ("bce",),
            "classification": ("cross-entropy", "weighted-cross-entropy"),
            "multilabel": ("bce",),
        }
        if self.loss not in losses[self.kind]:
            raise ValueError(f"the loss of {self.kind} is one of {', '.join(losses[self.kind])}")
        if self.metric not in METRICS[self.kind]:
            raise ValueError(f"the metric of {self.kind} is one of {', '.join(METRICS[self.kind])}")
        if self.kind == "binary" and self.outputs != 1:
            raise ValueError("a binary task has one output; use multilabel for several")
        if self.kind == "classification" and self.missing:
            raise ValueError("a graph without its class cannot be used: leave it out")
        if self.kind == "classification" and self.outputs < 2:
            raise ValueError("a classification needs at least two classes (outputs)")
        for name in ("target_scale", "target_shift"):
            if len(getattr(self, name)) not in (1, self.outputs):
                raise ValueError(f"{name} has one value, or one for each output")
        return self
