"""Ensembles: several runs, or the folds of a cross-validation, whose predictions are averaged."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grass_gnn.data.checking import CheckedGraph
from grass_gnn.data.packed.dataset import PackedDataset, pack_checked
from grass_gnn.data.tables.composition import Composition
from grass_gnn.data.tables.descriptors import MORGAN_COUNTS
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.forest import ForestPrediction, leaf_errors
from grass_gnn.evaluation.predictions import shortest
from grass_gnn.evaluation.protocol import embed_split
from grass_gnn.evaluation.stack import Stack, load_stack, with_forest
from grass_gnn.evaluation.trained import Prediction, TrainedModel, load_model
from grass_gnn.files import read_json
from grass_gnn.tasks import make_task
from grass_gnn.uncertainty.calibration import Calibration
from grass_gnn.uncertainty.domain import Domain, widen
from grass_gnn.uncertainty.neighbours import Neighbours
from grass_gnn.uncertainty.similarity import SimilarityReference

COVERAGE = 0.9  # of intervals, by default
EMBEDDED = 2  # rewirings that embeddings are averaged over
_MOST_FOLDS = 1000
_NO_SPREAD = 1e-5  # of the scale of the targets; less is rounding error
_LEAST_PROBABILITY = 1e-6  # that is written
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


def molecule_schema(model: TrainedModel) -> TableSchema:
    """The columns of the table of molecules that a model was trained on; raises without one."""
    schema = TableSchema.from_card(model.card)
    if schema is None:
        raise GrassError(f"The model in {model.folder} was not trained on molecules.")
    return schema


class Spread(NamedTuple):
    """Predictions of an ensemble and the two parts of their std, [M, outputs] each."""

    mean: Tensor
    std: Tensor  # √(rewirings² + models²)
    rewirings: Tensor  # std of single models (rewirings and forest), root mean square over models
    models: Tensor  # std over the models' means

    def with_std(self, std: Tensor) -> Spread:
        """With other standard deviations, whose parts have the same proportions."""
        factor = std / self.std.clamp(min=torch.finfo(std.dtype).tiny)
        return Spread(self.mean, std, self.rewirings * factor, self.models * factor)

    def row(self, number: int) -> Spread:
        """The prediction of one graph [outputs] each."""
        return Spread(*(part[number] for part in self))


def combine(predictions: Sequence[Prediction]) -> Spread:
    """Combine the predictions of several models."""
    means = torch.stack([one.mean for one in predictions])  # [models, M, outputs]
    own = torch.stack([one.std for one in predictions]).square().mean(dim=0).sqrt()
    between = means.std(dim=0, correction=0)
    return Spread(means.mean(dim=0), (own.square() + between.square()).sqrt(), own, between)


def similarity_reference(model: TrainedModel) -> SimilarityReference | None:
    """Fingerprints of the training molecules of a model, if its run kept them."""
    checksum = model.card.get("similarity_sha256")
    if checksum is None or model.folder is None:
        return None
    return SimilarityReference.load(model.folder, checksum)


def embed_graphs(
    model: TrainedModel, dataset: PackedDataset, seed: int = 0, deterministic: bool = False
) -> np.ndarray:
    """Inputs of the head [M, columns], to compare graphs with the training set."""
    found = embed_split(model.model, dataset, model.config, "graph", EMBEDDED, seed, deterministic)
    return found.double().cpu().numpy()


class Ensemble:
    """Trained models of molecules with the same targets, whose predictions are averaged.

    Args:
        models: The models; their run folders must be known.
        calibration: Calibration to apply to their predictions.
        coverage: Share of true values that intervals should contain; they need a calibration.
    """

    def __init__(
        self,
        models: Sequence[TrainedModel],
        calibration: Calibration | None = None,
        coverage: float = COVERAGE,
    ) -> None:
        if not models:
            raise GrassError("A prediction needs at least one trained model.")
        if not 0 < coverage < 1:
            raise GrassError(f"The coverage is between 0 and 1, not {coverage:g} (--coverage).")
        self.models, self.calibration, self.coverage = list(models), calibration, coverage
        self.schema, self.task = molecule_schema(models[0]), make_task(models[0].config.task)
        for model in models:
            same = TableSchema.from_card(model.card) == self.schema
            if not same or model.config.task.kind != self.task.name:
                raise GrassError(
                    f"The model in {model.folder} has different columns or targets from the one in "
                    f"{models[0].folder}: an ensemble needs the same."
                )

    @cached_property
    def similarity(self) -> SimilarityReference | None:
        """Training molecules of all models, if their runs saved them."""
        known = [similarity_reference(model) for model in self.models]
        found = [one for one in known if one is not None]
        return reduce(SimilarityReference.union, found) if len(found) == len(known) else None

    @cached_property
    def stacks(self) -> list[Stack | None]:
        """The forest that each model is averaged with, if it has one."""
        return [load_stack(model) for model in self.models]

    @cached_property
    def forest_descriptors(self) -> tuple[str, ...] | None:
        """RDKit descriptors that the forests need; None if there is no forest."""
        stacks = [stack for stack in self.stacks if stack is not None]
        names = dict.fromkeys(name for stack in stacks for name in stack.descriptors)
        return tuple(names) if stacks else None

    def reader(self, max_atoms: int, canonical_order: bool = False) -> MoleculeReader:
        """A reader of molecules, with everything that predictions need."""
        return MoleculeReader(
            self.schema.features,
            canonical_order,
            fingerprints=self.similarity is not None or self.domain is not None,
            max_atoms=max_atoms,
            descriptors=self.schema.rdkit,
            forest=self.forest_descriptors,
        )

    def forest_columns(
        self, molecules: Sequence[Molecule], numbers: Sequence[Sequence[float]]
    ) -> np.ndarray | None:
        """What forests know about molecules [M, columns]; None if there is no forest.

        Args:
            molecules: Molecules of :meth:`reader`.
            numbers: Descriptors of each molecule in the columns of the table.
        """
        if self.forest_descriptors is None:
            return None
        pairs = zip(molecules, numbers, strict=True)
        return np.stack([np.concatenate([one.columns, own]) for one, own in pairs])

    def ask_forests(self, columns: np.ndarray | None) -> list[ForestPrediction | None]:
        """The prediction of each model's forest, from :meth:`forest_columns`."""
        found: list[ForestPrediction | None] = []
        place = {name: at for at, name in enumerate(self.forest_descriptors or (), MORGAN_COUNTS)}
        for stack in self.stacks:
            if stack is None:
                found.append(None)
                continue
            if columns is None:
                raise ValueError("A model with a forest needs the columns of the molecules.")
            own = [*range(MORGAN_COUNTS), *(place[name] for name in stack.descriptors)]
            own += range(MORGAN_COUNTS + len(place), columns.shape[1])
            found.append(stack.predict(columns[:, own]))
        return found

    @cached_property
    def domain(self) -> Domain | None:
        """What the training molecules of all models are made of, if their runs saved it."""
        outputs = 0 if self.task.predicts_probabilities else self.task.outputs
        known = []
        for model in self.models:
            found = None if model.folder is None else Domain.load(model.folder)
            if found is not None and len(found.targets) != outputs:
                raise GrassError(f"The domain of {model.folder} is damaged: its targets are wrong.")
            known += [] if found is None else [found]
        if not known or len(known) < len(self.models):
            return None
        return reduce(Domain.union, known)

    @cached_property
    def reference(self) -> tuple[int, Neighbours] | None:
        """The training graphs that predictions are compared with, and the number of their model."""
        file = None if self.calibration is None else self.calibration.neighbours
        if file is None:
            return None
        for number, model in enumerate(self.models):
            if model.folder is not None and model.card.get("weights_sha256") == file.model:
                return number, file.load(model.folder, self.models)
        return None

    def predict(
        self,
        graphs: Sequence[CheckedGraph],
        rewirings: int,
        seed: int = 0,
        deterministic: bool = False,
        similarity: np.ndarray | None = None,
        columns: np.ndarray | None = None,
    ) -> Spread:
        """Predict for graphs, over all models, their forests, and rewirings.

        Args:
            graphs: The graphs.
            rewirings: Number of rewirings.
            seed: Random seed of the rewirings.
            deterministic: Derive the rewirings of each graph from the graph alone.
            similarity: Maximum Tanimoto similarity to the training set [M], for error bars.
            columns: What forests need (:meth:`forest_columns`).
        """
        rewirings = self.drawn(rewirings)
        packed = [pack_checked(graphs, model.config) for model in self.models]
        forests = self.ask_forests(columns)
        found = combine(
            [
                with_forest(
                    stack, model.predict_packed(own, rewirings, seed, deterministic), forest
                )
                for model, own, stack, forest in zip(
                    self.models, packed, self.stacks, forests, strict=True
                )
            ]
        )
        return self.with_error_bars(found, packed, forests, similarity, seed, deterministic)

    def drawn(self, rewirings: int) -> int:
        """How many rewirings are drawn: at least two if error bars are multiples of the spread."""
        alone = self.calibration is not None and self.calibration.spread_alone
        return max(rewirings, 2) if alone else rewirings

    def with_error_bars(
        self,
        found: Spread,
        packed: Sequence[PackedDataset],
        forests: Sequence[ForestPrediction | None],
        similarity: np.ndarray | None = None,
        seed: int = 0,
        deterministic: bool = False,
    ) -> Spread:
        """Calibrate predictions.

        Args:
            found: The predictions.
            packed: Their graphs, encoded for each model.
            forests: The predictions of each model's forest, if it has one.
            similarity: Maximum Tanimoto similarity to the training set [M].
            seed: Random seed of the rewirings.
            deterministic: Derive the rewirings of each graph from the graph alone.
        """
        if self.calibration is None:
            return found
        near = None
        if self.reference is not None:
            place, neighbours = self.reference
            embeddings = embed_graphs(self.models[place], packed[place], seed, deterministic)
            mean = found.mean.double().numpy()
            near = neighbours.compare(embeddings, mean, similarity, leaf_errors(forests))
        std = self.calibration.error_std(found.std, found.rewirings, near)
        if self.calibration.spread_alone:
            # Nothing is known about predictions that do not depend on the rewiring (single atoms).
            unit = std.new_tensor(self.task.config.target_scale)
            std = torch.where(found.std > _NO_SPREAD * unit, std, unit)
        return found.with_std(std)._replace(mean=self.calibration.mean(found.mean))

    def compare(
        self, molecules: Sequence[Composition | None], found: Spread
    ) -> tuple[list[list[str]], Spread]:
        """Compare molecules and their predictions with the training set.

        Returns:
            Warnings about each molecule, and the predictions with wider standard deviations where
            there are any.
        """
        if self.domain is None:
            return [[] for _ in molecules], found
        warnings, added = [], np.zeros(found.std.shape)
        for number, molecule in enumerate(molecules):
            assert molecule is not None  # readers are asked for it
            novelty = self.domain.compare(molecule, found.mean[number])
            warnings.append(novelty.warnings)
            added[number] = novelty.added
        if self.calibration is None:
            return warnings, found
        return warnings, found.with_std(widen(found.std, added))

    def interval(self, one: Spread) -> tuple[Tensor, Tensor] | None:
        """Lower and upper ends, shaped like the predictions; None without a calibration."""
        if self.calibration is None or not self.calibration.targets:
            return None
        half = one.std * one.std.new_tensor(self.calibration.half_widths(self.coverage))
        return one.mean - half, one.mean + half

    def samples(
        self, graph: CheckedGraph, rewirings: int, columns: np.ndarray | None = None
    ) -> Tensor:
        """Predictions for each rewiring of a graph, before calibration [rewirings, outputs].

        The rewirings depend only on the graph; models are averaged, each with its forest, for which
        ``columns`` [1, columns] are needed.
        """
        found = []
        forests = self.ask_forests(columns)
        for model, stack, forest in zip(self.models, self.stacks, forests, strict=True):
            packed = pack_checked([graph], model.config)
            own = model.sample_packed(packed, rewirings, deterministic=True)[:, 0]
            network = Prediction(own, torch.zeros_like(own))
            found.append(with_forest(stack, network, forest).mean)
        return torch.stack(found).mean(dim=0)

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table of predictions."""
        return [*self.prediction_columns, "similarity", "warning", "error"]

    @property
    def prediction_columns(self) -> list[str]:
        """Names of the columns of predictions, their standard deviations and intervals."""
        targets, classes = self.schema.targets, self.schema.classes
        names = self.task.answer_columns(targets)
        for value, spread in self.task.output_columns(targets, classes):
            names += [value, spread]
            if not self.task.predicts_probabilities:
                names += self.task.interval_columns(value)
            if len(self.models) > 1:
                names += [f"{spread}_rewirings", f"{spread}_models"]
        return names

    def success(
        self, one: Spread, ends: tuple[Tensor, Tensor] | None, similarity: float, warning: str
    ) -> list[str]:
        """The cells of a row with a prediction [outputs] and the ends of its interval, if any."""
        shown = "" if math.isnan(similarity) else f"{similarity:.3f}"
        return [*self.prediction_cells(one, ends), shown, warning, ""]

    def prediction_cells(self, one: Spread, ends: tuple[Tensor, Tensor] | None) -> list[str]:
        """The cells of :attr:`prediction_columns`; ``ends`` are those of the interval, if any."""
        cells = self.task.answer_cells(one.mean, self.schema.classes)
        for number, (mean, std, rewirings, models) in enumerate(
            zip(*(part.tolist() for part in one), strict=True)
        ):
            if self.task.predicts_probabilities:  # nothing is certain
                mean = min(max(mean, _LEAST_PROBABILITY), 1 - _LEAST_PROBABILITY)
            cells += [shortest(mean), f"{std:.4g}"]
            if not self.task.predicts_probabilities:
                cells += ["", ""] if ends is None else [shortest(float(e[number])) for e in ends]
            if len(self.models) > 1:
                cells += [f"{rewirings:.4g}", f"{models:.4g}"]
        return cells

    def failure(self, reason: str) -> list[str]:
        """The cells of a row without prediction."""
        return [""] * (len(self.columns) - 1) + [reason]
