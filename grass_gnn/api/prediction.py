"""Scores of predictions as they are written, where the table holds the truth as well."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from grass_gnn.data.tables.files import Row, Table, guard, open_table
from grass_gnn.data.tables.molecules import MAX_ATOMS, Molecule, MoleculeReader, ReadingPool
from grass_gnn.data.tables.schema import parse_descriptors
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import write_whole
from grass_gnn.progress import Progress, silent
from grass_gnn.uncertainty.calibration import find_calibration
from grass_gnn.uncertainty.ensembles import Ensemble

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
            target = self.ensemble.schema.encode(self.task, cells)
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
        found = {name: self.task.score(mean, target, name) for name in self.task.metrics}
        correlation = self.task.spread_correlation(mean, torch.stack(self.stds), target)
        if correlation is not None:
            found["spread-error correlation"] = correlation
        return {name: value for name, value in found.items() if not math.isnan(value)}


CHUNK = 2048  # rows in memory at a time


@dataclass(frozen=True)
class PredictionSummary:
    """What became of the rows of a table."""

    rows: int
    predicted: int
    failed: int
    warned: int
    scores: dict[str, float]  # where the table holds the targets, too
    calibration: str = ""  # whether one was applied, in a few words


def predict_table(
    models: Sequence[TrainedModel],
    source: str | Path,
    target: str | Path,
    *,
    smiles: str | None = None,
    rewirings: int = 16,
    seed: int = 0,
    deterministic: bool = False,
    max_atoms: int = MAX_ATOMS,
    calibrated: bool = True,
    workers: int | None = None,
    progress: Progress = silent,
) -> PredictionSummary:
    """Write a table with predictions behind the columns of another.

    Behind the input's columns stand, for each target, the mean over rewirings and the standard
    deviation (of an ensemble also its two parts), then the similarity to the training molecules, a
    warning where the prediction is to be taken with care, and an error where there is none. Only
    a few thousand rows are in memory at a time.

    Args:
        models: One trained model, or several whose predictions are averaged.
        source: The table of molecules (CSV, TSV or Parquet).
        target: The CSV (or TSV) to write; it appears when it is finished.
        smiles: Column of SMILES; that of training if not given.
        rewirings: Random rewirings of each molecule to average over.
        seed: Of the rewirings.
        deterministic: Atoms in canonical order, and rewirings that follow from the molecule alone.
        max_atoms: Larger molecules get a reason instead of a value.
        calibrated: Apply the calibration that :func:`calibrate` left in the run folder, if any.
        workers: Processes that read molecules.
        progress: Told how many rows are done, of 0 (as the number is not known before).
    """
    calibration, said = find_calibration(models) if calibrated else (None, "")
    if calibration is not None:
        said = calibration.factors
        if calibration.rewirings != rewirings:
            said += f" (fitted with {calibration.rewirings} rewirings, not {rewirings})"
    ensemble = Ensemble(models, calibration)
    table = open_table(source)
    schema = ensemble.schema
    column = table.place(smiles or schema.smiles, "--smiles")
    numbers = [table.place(name, "a descriptor of the model") for name in schema.descriptors]
    reader = MoleculeReader(
        schema.features,
        canonical_order=deterministic,
        fingerprints=ensemble.similarity is not None,
        max_atoms=max_atoms,
    )
    score = RunningScore(ensemble, table)
    rows = failed = warned = 0
    with ReadingPool(reader, workers) as pool, write_whole(target) as temporary:
        delimiter = "\t" if ".tsv" in Path(target).name.lower() else ","
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            writer.writerow([guard(name) for name in table.columns + ensemble.columns])
            for number, (chunk, found) in enumerate(read_chunks(table, column, pool)):
                answers = answer_rows(
                    chunk, found, numbers, ensemble, rewirings, seed + (number << 20), deterministic
                )
                for row, answer in zip(chunk, answers, strict=True):
                    writer.writerow([guard(cell) for cell in row.cells + answer.cells])
                    failed += answer.mean is None
                    warned += bool(answer.warning)
                    score.add(row, answer.mean, answer.std)
                rows += len(chunk)
                progress("Predicting", rows, 0)
    return PredictionSummary(rows, rows - failed, failed, warned, score.result(), said)


@dataclass(frozen=True)
class Answer:
    """What is written behind a row."""

    cells: list[str]
    mean: Tensor | None = None  # [outputs]
    std: Tensor | None = None  # [outputs]
    warning: str = ""


def read_chunks(
    table: Table, column: int, pool: ReadingPool
) -> Iterator[tuple[list[Row], Iterator[Molecule | str]]]:
    """Rows and their molecules; the next chunk is being read while this one is computed."""
    rows = iter(table)
    waiting = None
    while chunk := list(islice(rows, CHUNK)):
        ready = chunk, pool.read(["" if row.problem else row.cells[column] for row in chunk])
        if waiting is not None:
            yield waiting
        waiting = ready
    if waiting is not None:
        yield waiting


def with_descriptors(
    row: Row, molecule: Molecule | str, places: list[int], names: Sequence[str]
) -> tuple[Molecule, list[float]] | str:
    """A molecule with its descriptors, or the reason why there is none."""
    if row.problem:
        return row.problem
    if isinstance(molecule, str):
        return molecule
    try:
        return molecule, parse_descriptors(names, [row.cells[place] for place in places])
    except ValueError as error:
        return str(error)


def answer_rows(
    rows: Sequence[Row],
    molecules: Iterable[Molecule | str],
    descriptors: list[int],
    ensemble: Ensemble,
    rewirings: int,
    seed: int = 0,
    deterministic: bool = False,
) -> list[Answer]:
    """Predictions of some rows, or reasons, in order; ``descriptors`` are their columns."""
    names, reference = ensemble.schema.descriptors, ensemble.similarity
    read = [
        with_descriptors(row, molecule, descriptors, names)
        for row, molecule in zip(rows, molecules, strict=True)
    ]
    failed = {
        place: Answer(ensemble.failure(reason))
        for place, reason in enumerate(read)
        if isinstance(reason, str)
    }
    # Molecules of a size together: none of them waits for a much larger one.
    usable = [(place, one) for place, one in enumerate(read) if not isinstance(one, str)]
    usable.sort(key=lambda item: len(item[1][0].x))
    if not usable:
        return [failed[place] for place in range(len(read))]
    graphs = [molecule.checked(numbers) for _, (molecule, numbers) in usable]
    predicted = ensemble.predict(graphs, rewirings, seed, deterministic)
    similarity = np.full(len(usable), math.nan)
    if reference is not None:
        similarity = reference.nearest(np.stack([m.fingerprint for _, (m, _) in usable]))
    answers = dict(failed)
    for number, (place, (molecule, _)) in enumerate(usable):
        one = predicted.row(number)
        warnings = [molecule.note] if molecule.note else []
        if reference is not None and similarity[number] < reference.threshold:
            warnings.append("unlike the training molecules")
        if not bool(torch.isfinite(one.mean).all()):
            answers[place] = Answer(ensemble.failure("the prediction is not finite"))
            continue
        warning = "; ".join(warnings)
        cells = ensemble.success(one, float(similarity[number]), warning)
        answers[place] = Answer(cells, one.mean, one.std, warning)
    return [answers[place] for place in range(len(read))]
