"""Predictions for tables of molecules."""

from __future__ import annotations

import csv
import gzip
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor

from grass_gnn.api.options import PredictOptions
from grass_gnn.config import check_names, with_fields
from grass_gnn.data.tables.files import TEXT_ENDINGS, Row, Table, guard, open_table
from grass_gnn.data.tables.molecules import Molecule
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.data.tables.rows import parse_descriptors
from grass_gnn.data.tables.schema import TableSchema, place_molecules
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import write_whole
from grass_gnn.progress import report_progress, reporting
from grass_gnn.uncertainty.calibration import find_calibration
from grass_gnn.uncertainty.ensembles import Ensemble
from grass_gnn.uncertainty.similarity import count_familiar

logger = logging.getLogger(__name__)

_MOST = 100_000  # rows that are scored, to bound the memory


class RunningScore:
    """Scores predictions if the table contains the targets.

    Args:
        ensemble: The models.
        table: The table, with or without target columns.
    """

    def __init__(self, ensemble: Ensemble, table: Table) -> None:
        self.ensemble, self.task = ensemble, ensemble.task
        columns = table.columns
        self.places = [columns.index(name) for name in ensemble.schema.targets if name in columns]
        self.known = len(self.places) == len(ensemble.schema.targets)
        self.means: list[Tensor] = []
        self.stds: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.similarities: list[float] = []

    def add(self, row: Row, answer: Answer) -> None:
        """Add one row, unless it lacks a prediction or a readable target."""
        if not self.known or answer.mean is None or answer.std is None or self.rows >= _MOST:
            return
        try:
            cells = [row.cells[place] for place in self.places]
            target = self.ensemble.schema.encode(self.task, cells)
        except ValueError:
            return
        self.means.append(answer.mean)
        self.stds.append(answer.std)
        self.targets.append(torch.tensor(target))
        self.similarities.append(answer.similarity)

    @property
    def rows(self) -> int:
        """How many rows were added."""
        return len(self.means)

    @property
    def familiar(self) -> int:
        """How many of them have the fingerprint of a training molecule; 0 if hardly any."""
        return count_familiar(np.array(self.similarities))

    def result(self) -> dict[str, float]:
        """All metrics of the task, and the rank correlation of std and error (Spearman's ρ)."""
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
    """How many rows of a table were predicted, and their scores."""

    rows: int
    predicted: int
    failed: int
    warned: int
    scores: dict[str, float]  # if the table contains the targets
    calibration: str = ""  # whether one was applied
    scored: int = 0  # rows that the scores are of: those with a prediction and a readable target
    familiar: int = 0  # of these, with the fingerprint of a training molecule; 0 if hardly any


class RowSummary(NamedTuple):
    """How many rows of a table were read."""

    rows: int
    failed: int  # rows that could not be read


def predict_table(
    models: TrainedModel | Sequence[TrainedModel],
    source: str | Path,
    target: str | Path,
    options: PredictOptions | None = None,
    **fields: Any,
) -> PredictionSummary:
    """Predict a table of molecules and write the predictions next to its columns.

    For each target, columns with the prediction, its standard deviation and the ends of an interval
    (for an ensemble also the two parts of the standard deviation) are appended, then the similarity
    to the training molecules, a warning if a molecule is unlike them, and an error message for rows
    that cannot be predicted. Intervals need a calibration, which training leaves in the run folder.
    Only a few thousand rows are in memory at a time.

    Args:
        models: One trained model, or several to be averaged.
        source: The table of molecules.
        target: The CSV (or TSV) file to write, compressed if its name ends in ``.gz``; it appears
            only when it is complete.
        options: Rewirings, column of SMILES, ….
        **fields: Further fields of :class:`PredictOptions`.
    """
    check_names(fields, PredictOptions)
    options = with_fields(options or PredictOptions(), fields)
    compressed = _check_ending(Path(target))
    models = [models] if isinstance(models, TrainedModel) else models
    if options.device is not None:
        models = [model.to(options.device) for model in models]
    calibration, note = find_calibration(models) if options.calibrated else (None, "")
    ensemble = Ensemble(models, calibration, options.coverage)
    if options.calibrated and not note:
        note = _note(ensemble, options.rewirings)
    table, column, numbers = open_molecules(source, ensemble.schema, options.smiles)
    if taken := [name for name in ensemble.columns if name in table.columns]:
        logger.warning(
            "%s already has columns named %s: those at the end are new.", source, ", ".join(taken)
        )
    reader = ensemble.reader(options.max_atoms, options.deterministic)
    score = RunningScore(ensemble, table)
    rows = failed = warned = 0
    with (
        reporting(options.progress),
        ReadingPool(reader, options.workers) as pool,
        write_whole(target) as temporary,
    ):
        delimiter = "\t" if ".tsv" in Path(target).name.lower() else ","
        with _open_output(temporary, compressed) as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            writer.writerow([guard(name) for name in table.columns + ensemble.columns])
            for number, (chunk, found) in enumerate(read_chunks(table, column, pool)):
                seed = options.seed + (number << 20)
                answers = answer_rows(
                    chunk, found, numbers, ensemble, options.rewirings, seed, options.deterministic
                )
                for row, answer in zip(chunk, answers, strict=True):
                    writer.writerow([guard(cell) for cell in row.cells + answer.cells])
                    failed += answer.mean is None
                    warned += bool(answer.warning)
                    score.add(row, answer)
                rows += len(chunk)
                report_progress("Predicting", rows, 0)
    scores = score.result()
    familiar = score.familiar if scores else 0
    return PredictionSummary(
        rows, rows - failed, failed, warned, scores, note, score.rows, familiar
    )


def _check_ending(target: Path) -> bool:
    """Whether the file is to be compressed, according to its name; raises if it names no text."""
    name = target.name.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    if ending not in ("", *TEXT_ENDINGS):
        known = ", ".join(TEXT_ENDINGS)
        raise GrassError(
            f"Predictions are written as CSV or TSV, to a file whose name ends in {known} (or in "
            f"these and .gz), not in {ending}: {target}."
        )
    return name.endswith(".gz")


@contextmanager
def _open_output(path: Path, compressed: bool) -> Iterator[TextIO]:
    """Open a text file to write; a compressed one contains neither its name nor the time."""
    with path.open("wb") as raw:
        packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compressed else nullcontext(raw)
        with packed as binary, TextIOWrapper(binary, encoding="utf-8", newline="") as file:
            yield file


def _note(ensemble: Ensemble, rewirings: int) -> str:
    """What is done about error bars, in a few words."""
    calibration = ensemble.calibration
    if calibration is None:
        if ensemble.task.predicts_probabilities:
            return ""
        return "no intervals, because the run is not calibrated (see grass-gnn calibrate)"
    note = calibration.factors
    if calibration.targets:
        note += f"; intervals contain about {100 * ensemble.coverage:g} % of true values"
    drawn = ensemble.drawn(rewirings)
    if calibration.rewirings != drawn:
        note += f" (fitted with {calibration.rewirings} rewirings, not {drawn})"
    if drawn > rewirings:
        note += f"; {drawn} rewirings were drawn, because {rewirings} has no spread"
    return note


@dataclass(frozen=True)
class Answer:
    """The result for one row."""

    cells: list[str]
    mean: Tensor | None = None  # [outputs]
    std: Tensor | None = None  # [outputs]
    warning: str = ""
    ends: tuple[Tensor, Tensor] | None = None  # [outputs] each, of the interval
    similarity: float = math.nan  # to the training set; NaN if that is not known


def open_molecules(
    source: str | Path, schema: TableSchema, smiles: str | None
) -> tuple[Table, int, list[int]]:
    """A table, its column of molecules, and the columns of the descriptors that a model needs."""
    table = open_table(source)
    column = place_molecules(table, schema, smiles)
    needed = [table.place(name, "a descriptor of the model") for name in schema.descriptors]
    return table, column, needed


def read_chunks(
    table: Table, column: int, pool: ReadingPool
) -> Iterator[tuple[list[Row], Iterator[Molecule | str]]]:
    """Rows and their molecules; the next chunk is parsed while the current one is predicted."""
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
    """A molecule with its descriptors, or an error message."""
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
    """Predictions or error messages for some rows; ``descriptors`` are column numbers."""
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
    # Batches of similar sizes, so that small molecules do not wait for large ones.
    usable = [(place, one) for place, one in enumerate(read) if not isinstance(one, str)]
    usable.sort(key=lambda item: len(item[1][0].x))
    if not usable:
        return [failed[place] for place in range(len(read))]
    graphs = [molecule.checked(numbers) for _, (molecule, numbers) in usable]
    similarity = None
    if reference is not None:
        similarity = reference.nearest(np.stack([m.fingerprint for _, (m, _) in usable]))
    numbers = [own for _, (_, own) in usable]
    columns = ensemble.forest_columns([molecule for _, (molecule, _) in usable], numbers)
    predicted = ensemble.predict(graphs, rewirings, seed, deterministic, similarity, columns)
    compositions = [molecule.composition for _, (molecule, _) in usable]
    unknown, predicted = ensemble.compare(compositions, predicted)
    answers = dict(failed)
    for number, (place, (molecule, _)) in enumerate(usable):
        one = predicted.row(number)
        warnings = [molecule.note] if molecule.note else []
        warnings += unknown[number]
        similar = math.nan if similarity is None else float(similarity[number])
        if reference is not None and similar < reference.threshold:
            warnings.append("unlike the training molecules")
        if not bool(torch.isfinite(one.mean).all()):
            answers[place] = Answer(ensemble.failure("the prediction is not finite"))
            continue
        warning = "; ".join(warnings)
        ends = ensemble.interval(one)
        cells = ensemble.success(one, ends, similar, warning)
        answers[place] = Answer(cells, one.mean, one.std, warning, ends, similar)
    return [answers[place] for place in range(len(read))]
