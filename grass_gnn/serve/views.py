"""Which view fits a model: molecules where it knows how to read them, else graphs of its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.progress import Progress, silent
from grass_gnn.serve.graphs import GraphView
from grass_gnn.serve.limits import Limits
from grass_gnn.serve.molecules import MoleculeView

View = MoleculeView | GraphView


def open_view(
    models: Sequence[TrainedModel],
    rewirings: int = 16,
    limits: Limits | None = None,
    data: Path | None = None,
    progress: Progress = silent,
) -> View:
    """The view of a model, or of an ensemble on molecules.

    Args:
        models: The models.
        rewirings: How many to average over.
        limits: How much is accepted.
        data: Folder with the raw files of a benchmark, for graphs that are no molecules.
        progress: Told what is done, where data must be prepared first.
    """
    limits = limits or Limits()
    if TableSchema.from_card(models[0].card) is None:
        return GraphView(models[0], rewirings, limits, data, progress)
    return MoleculeView(models, rewirings, limits)
