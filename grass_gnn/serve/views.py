"""Choose the view for a model: molecules if it was trained on SMILES, else its own graphs."""

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
    """The view of a model, or of an ensemble of molecule models.

    Args:
        models: The models.
        rewirings: Number of rewirings to average over.
        limits: Largest requests.
        data: Folder with the raw files of a benchmark, for models of other graphs.
        progress: Reports progress while data are prepared.
    """
    limits = limits or Limits()
    if TableSchema.from_card(models[0].card) is None:
        return GraphView(models[0], rewirings, limits, data, progress)
    return MoleculeView(models, rewirings, limits)
