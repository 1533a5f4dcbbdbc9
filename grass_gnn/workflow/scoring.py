"""Scores of predictions as they are written, where the table holds the truth as well."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from grass_gnn.config import METRICS
from grass_gnn.data.tables import Row, Table
from grass_gnn.evaluation import score
from grass_gnn.evaluation.calibration import rank_correlation
from grass_gnn.workflow.ensemble import Ensemble

_MOST = 100_000  # rows that are scored: memory must not grow with the file


class RunningScore:
    """Collects predictions beside their targets.

    Args:
        ensemble: What predicts.
        table: The table, whose target columns may be there or not.
    """

    def __init__(self, ensemble: Ensemble, table: Table) -> None:
        self.ensemble, self.task = ensemble, ensemble.task
        columns = table.columns
        self.places = [columns.index(name) for name in ensemble.schema.targets if name in columns]
        self.known = len(self.places) == len(ensemble.schema.targets)
        self.means: list[Tensor] = []
        self.stds: list[Tensor] = []
        self.targets: list[Tensor] = []

    def add(self, row: Row, mean: Tensor | None, std: Tensor | None) -> None:
        """Take in one row; one without a prediction or a readable target does not count."""
        if not self.known or mean is None or std is None or len(self.means) >= _MOST:
            return
        try:
            cells = [row.cells[place] for place in self.places]
            target = self.ensemble.schema.encode(self.task.kind, cells)
        except ValueError:
            return
        self.means.append(mean)
        self.stds.append(std)
        self.targets.append(torch.tensor(target))

    def result(self) -> dict[str, float]:
        """All metrics of the task, and how well spread foretells error (Spearman's ρ)."""
        if len(self.means) < 2:
            return {}
        mean, target = torch.stack(self.means), torch.stack(self.targets)  # [M, outputs] each
        found = {name: score(self.task, mean, target, name) for name in METRICS[self.task.kind]}
        if self.task.kind == "regression":
            correlation = rank_correlation(torch.stack(self.stds), (mean - target).abs())
            if correlation is not None:
                found["spread-error correlation"] = correlation
        return {name: value for name, value in found.items() if not math.isnan(value)}
