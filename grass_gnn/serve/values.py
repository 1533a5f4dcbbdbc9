"""Predictions formatted for the page: names, values with error bars, probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from grass_gnn.evaluation.explain import Explanation, attention_range, shares_text
from grass_gnn.report.table import number, with_spread
from grass_gnn.tasks import Task

SPLITS = {"test": "test", "val": "validation", "train": "training"}  # as shown on the page
MOST_SHOWN = 12  # outputs of one prediction on the page


def show(
    task: Task,
    names: Sequence[str],
    mean: Tensor,
    std: Tensor | None = None,
    ends: tuple[Tensor, Tensor] | None = None,
) -> list[dict[str, Any]]:
    """Values of one prediction [outputs] for the page, with intervals if their ends are known."""
    shown = []
    spreads = [0.0] * len(mean) if std is None else std.tolist()
    values = list(zip(names, mean.tolist(), spreads, strict=True))[:MOST_SHOWN]
    for place, (name, value, spread) in enumerate(values):
        text, error = with_spread(value, spread)
        share = value if task.predicts_probabilities else None
        interval = ""
        if ends is not None and error:
            low, high = (with_spread(float(end[place]), spread)[0] for end in ends)
            interval = f"{low} to {high}"
        one = {"name": name, "value": text, "spread": error, "share": share, "interval": interval}
        shown.append(one)
    return shown


def attention_caption(explanation: Explanation, edge: str) -> str:
    """What a picture of attention shows; a graph without edges has no range."""
    least, most = (number(value, 2) for value in attention_range(explanation))
    range_ = f"Attention per {edge}: {least} to {most}. " if explanation.pairs() else ""
    return f"{range_}Share of all attention: {shares_text(explanation)}."
