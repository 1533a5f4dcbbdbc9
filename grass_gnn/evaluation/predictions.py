"""Predictions of a split as a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from torch import Tensor

from grass_gnn.files import write_text


def write_predictions(path: Path, target: Tensor, mean: Tensor, std: Tensor) -> None:
    """Write a row a graph: its number, targets, means over rewirings and their deviations.

    Args:
        path: The CSV file.
        target: Classes [B], or values or labels [B, outputs].
        mean: Values, or probabilities of classes or labels [B, outputs].
        std: Standard deviations over rewirings [B, outputs].
    """
    columns = [("target", target.view(len(mean), -1)), ("mean", mean), ("std", std)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["graph", *(f"{n}_{i}" for n, v in columns for i in range(v.size(1)))])
    rows = zip(*(values.tolist() for _, values in columns), strict=True)
    for number, parts in enumerate(rows):
        writer.writerow([number, *(f"{value:.6g}" for part in parts for value in part)])
    write_text(path, text.getvalue())
