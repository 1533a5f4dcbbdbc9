"""Ensembles: several runs, or the folds of a cross-validation, whose predictions are averaged."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from grass_gnn.data.checking import CheckedGraph
from grass_gnn.data.packed.dataset import pack_checked
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import Prediction, TrainedModel, load_model
from grass_gnn.files import read_json
from grass_gnn.tasks import make_task
from grass_gnn.uncertainty.calibration import Calibration
from grass_gnn.uncertainty.similarity import SimilarityReference

_MOST_FOLDS = 1000
FOLDS = "folds.csv"  # the fold of each row, in the folder of a cross-validation
CROSS_VALIDATION = "cross_validation.json"  # its summary, written when all folds are finished


def run_folders(folder: str | Path) -> list[Path]:
    """The folder of a run, or the folders of all folds of a cross-validation."""
    folder = Path(folder)
    if (folder / CROSS_VALIDATION).is_file():
        summary = read_json(folder / CROSS_VALIDATION)
        runs = summary.get("runs") if isinstance(summary, dict) else None
        # Bare names only, so that an untrusted file cannot point elsewhere.
        if not isinstance(runs, list) or not all(re.fullmatch(r"fold-\d+", str(r)) for r in runs):
            raise GrassError(f"The file {folder / CROSS_VALIDATION} is damaged: it lists no folds.")
        if len(set(runs)) < len(runs) or len(runs) > _MOST_FOLDS:
            raise GrassError(
                f"The file {folder / CROSS_VALIDATION} is damaged: it lists {len(runs):,} folds."
            )
        return [folder / run for run in runs]
    if (folder / FOLDS).is_file():
        raise GrassError(f"The cross-validation in {folder} is not finished: use --resume.")
    return [folder]


def load_models(
    folders: Sequence[str | Path], device: str | torch.device | None = None
) -> list[TrainedModel]:
    """Load the models of run folders, including all folds of a cross-validation."""
    return [load_model(run, device) for folder in folders for run in run_folders(folder)]


class Spread(NamedTuple):
    """Predictions of an ensemble and the two parts of their std, [M, outputs] each."""

    mean: Tensor
    std: Tensor  # √(rewirings² + models²)
    rewirings: Tensor  # std over rewirings, root mean square over models
    models: Tensor  # std over the models' means

    def row(self, number: int) -> Spread:
        """The prediction of one graph [outputs] each."""
        return Spread(*(part[number] for part in self))


def combine(predictions: Sequence[Prediction]) -> Spread:
    """Combine the predictions of several models."""
    means = torch.stack([one.mean for one in predictions])  # [models, M, outputs]
    own = torch.stack([one.std for one in predictions]).square().mean(dim=0).sqrt()
    between = means.std(dim=0, correction=0)
    return Spread(means.mean(dim=0), (own.square() + between.square()).sqrt(), own, between)


class Ensemble:
    """Trained models of molecules with the same targets, whose predictions are averaged.

    Args:
        models: The models; their run folders must be known.
        calibration: Calibration to apply to their predictions.
    """

    def __init__(
        self, models: Sequence[TrainedModel], calibration: Calibration | None = None
    ) -> None:
        if not models:
            raise GrassError("A prediction needs at least one trained model.")
        self.models, self.calibration = list(models), calibration
        schemas = [TableSchema.from_card(model.card) for model in models]
        if schemas[0] is None:
            raise GrassError(f"The model in {models[0].folder} was not trained on molecules.")
        self.schema = schemas[0]
        self.task = make_task(models[0].config.task)
        for model, schema in zip(models, schemas, strict=True):
            if schema != self.schema or model.config.task.kind != self.task.name:
                raise GrassError(
                    f"The model in {model.folder} has different columns or targets from the one in "
                    f"{models[0].folder}: an ensemble needs the same."
                )

    @cached_property
    def similarity(self) -> SimilarityReference | None:
        """Training molecules of the first model, if its run saved them."""
        first = self.models[0]
        checksum = first.card.get("similarity_sha256")
        if checksum is None or first.folder is None:
            return None
        return SimilarityReference.load(first.folder, checksum)

    def predict(
        self,
        graphs: Sequence[CheckedGraph],
        rewirings: int,
        seed: int = 0,
        deterministic: bool = False,
    ) -> Spread:
        """Predict for graphs, over all models and rewirings."""
        found = combine(
            [
                model.predict_packed(
                    pack_checked(graphs, model.config), rewirings, seed, deterministic
                )
                for model in self.models
            ]
        )
        if self.calibration is None:
            return found
        stds = (self.calibration.std(part) for part in found[1:])
        return Spread(self.calibration.mean(found.mean), *stds)

    def samples(self, graph: CheckedGraph, rewirings: int) -> Tensor:
        """Predictions for each rewiring of a graph, before calibration [rewirings, outputs].

        The rewirings depend only on the graph; models are averaged.
        """
        found = [
            model.sample_packed(pack_checked([graph], model.config), rewirings, deterministic=True)
            for model in self.models
        ]
        return torch.stack(found).mean(dim=0)[:, 0]

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table of predictions."""
        targets, classes = self.schema.targets, self.schema.classes
        names = self.task.answer_columns(targets)
        for value, spread in self.task.output_columns(targets, classes):
            names += [value, spread]
            if len(self.models) > 1:
                names += [f"{spread}_rewirings", f"{spread}_models"]
        return [*names, "similarity", "warning", "error"]

    def success(self, one: Spread, similarity: float, warning: str) -> list[str]:
        """The cells of a prediction."""
        cells = self.task.answer_cells(one.mean, self.schema.classes)
        for mean, std, rewirings, models in zip(*(part.tolist() for part in one), strict=True):
            cells += [f"{mean:.7g}", f"{std:.4g}"]
            if len(self.models) > 1:
                cells += [f"{rewirings:.4g}", f"{models:.4g}"]
        shown = "" if math.isnan(similarity) else f"{similarity:.3f}"
        return [*cells, shown, warning, ""]

    def failure(self, reason: str) -> list[str]:
        """The cells of a row without prediction."""
        return [""] * (len(self.columns) - 1) + [reason]
