"""Read the rows of a table: a molecule, targets and descriptors each, or why it cannot be used."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grass_gnn.config import TaskConfig, suggest
from grass_gnn.data.tables.descriptors import choose_descriptors, descriptor_names
from grass_gnn.data.tables.files import Table, open_table, parse_number
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.data.tables.remarks import about_other_columns
from grass_gnn.data.tables.schema import (
    TableSchema,
    find_smiles,
    infer_task,
    place_molecules,
)
from grass_gnn.data.tables.spec import COMPUTED, SPLIT_KINDS, TableSpec
from grass_gnn.errors import DataError, GrassError
from grass_gnn.progress import report_progress
from grass_gnn.tasks import make_task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableRow:
    """One row, with the reason if it cannot be used."""

    file: str
    line: int
    smiles: str
    targets: list[str]
    descriptors: list[str]
    split: str | None
    problem: str = ""


class RowValues(NamedTuple):
    """The numbers of one row; empty if it has a problem."""

    targets: list[float]  # NaN where one is missing
    descriptors: list[float]


@dataclass(frozen=True)
class ReadRows:
    """All rows of one or more tables, before they are split."""

    rows: list[TableRow]
    molecules: list[Molecule | None]  # of each row; None if it has a problem
    values: list[RowValues]  # of each row
    schema: TableSchema
    task: TaskConfig
    sentence: str  # the task, and why it was chosen
    told: list[str] = field(default_factory=list)  # remarks about columns that are not used

    @property
    def usable(self) -> list[int]:
        """Indices of the rows that can be used."""
        return [number for number, row in enumerate(self.rows) if not row.problem]


def read_rows(path: str | Path, spec: TableSpec, workers: int | None = None) -> ReadRows:
    """Read molecules and their targets, and infer the task from the targets.

    Args:
        path: The table.
        spec: Its columns; further tables of validation and test rows are read with it.
        workers: Processes that parse SMILES.
    """
    table = open_table(path)
    if not spec.targets:
        known = ", ".join(table.columns[:20])
        raise GrassError(f"Which column should be predicted? Use --target; columns: {known}.")
    targets = _find_targets(table, spec.targets)
    if twice := [name for name, count in Counter(targets).items() if count > 1]:
        raise DataError(f"The target {twice[0]!r} is given twice (--target).")
    columns = [name for name in spec.descriptors if name != COMPUTED]
    computed = dict.fromkeys(descriptor_names(), math.nan) if COMPUTED in spec.descriptors else {}
    leaking = [name for name in columns if name in targets]
    if leaking:
        raise DataError(f"The target {leaking[0]!r} cannot also be a descriptor (--descriptors).")
    schema = TableSchema(
        smiles=find_smiles(table, spec.smiles),
        targets=targets,
        features=spec.features,
        descriptors=columns,
    ).model_copy(update={"rdkit": computed})  # medians are known when the molecules are read
    tables: list[tuple[Table, str | None, str | None]] = [(table, spec.split_column, None)]
    further = ((spec.val, "val"), (spec.test, "test"))
    tables += [(open_table(file), None, split) for file, split in further if file is not None]
    names = [one.path.name for one, _, _ in tables]
    rows: list[TableRow] = []
    for one, column, split in tables:  # files of the same name are told apart by their folders
        name = one.path.name if names.count(one.path.name) == 1 else str(one.path)
        rows += _cells(one, schema, column, split, name)
    if all(row.problem for row in rows):
        _check_problems(rows, spec.bad_rows, Path(path))
    cells = {
        name: [row.targets[number] for row in rows if not row.problem]
        for number, name in enumerate(schema.targets)
    }
    task, classes, sentence = infer_task(cells, spec.task)
    schema = schema.model_copy(update={"classes": classes})
    read = _read(rows, schema, task, sentence, workers)
    read = replace(read, told=about_other_columns(table, read))
    _check_problems(read.rows, spec.bad_rows, Path(path))
    if computed:
        read = _with_chosen_descriptors(read)
    _warn_of_constants(read)
    return read


def _find_targets(table: Table, names: Sequence[str]) -> list[str]:
    """The target columns; a name with commas, such as "IC50, nM", was split by the command line."""
    whole = {tuple(part.strip() for part in name.split(",")): name for name in table.columns}
    whole |= {(name,): name for name in table.columns}
    longest = max(map(len, whole))
    # How the names from each place on can be read, short names first; None if they cannot.
    found: list[list[str] | None] = [None] * len(names) + [[]]
    for start in reversed(range(len(names))):
        for stop in range(start + 1, min(start + longest, len(names)) + 1):
            column, rest = whole.get(tuple(names[start:stop])), found[stop]
            if column is not None and rest is not None:
                found[start] = [column, *rest]
                break
    return found[0] or list(names)


def _warn_of_constants(read: ReadRows) -> None:
    """Warn about targets with the same value in all rows, from which nothing can be learned."""
    for number, name in enumerate(read.schema.targets):
        values = {read.values[row].targets[number] for row in read.usable}
        known = {value for value in values if not math.isnan(value)}
        if len(known) == 1:
            logger.warning("The target %r has the value %g in all rows.", name, known.pop())


def _with_chosen_descriptors(read: ReadRows) -> ReadRows:
    """Drop RDKit descriptors that say nothing about these molecules, and fill gaps."""
    found = [molecule.descriptors for molecule in read.molecules if molecule is not None]
    kept, median = choose_descriptors(np.stack(found))
    molecules: list[Molecule | None] = []
    for molecule in read.molecules:
        if molecule is not None:
            own = molecule.descriptors[kept]
            molecule = molecule._replace(descriptors=np.where(np.isnan(own), median, own))
        molecules.append(molecule)
    names = [list(read.schema.rdkit)[place] for place in kept]
    rdkit = dict(zip(names, median.tolist(), strict=True))
    schema = read.schema.model_copy(update={"rdkit": rdkit})
    return replace(read, molecules=molecules, schema=schema)


def read_known_rows(
    path: str | Path,
    schema: TableSchema,
    task: TaskConfig,
    forest: tuple[str, ...] | None = None,
) -> ReadRows:
    """Read rows with targets using the schema and task of a trained model.

    Args:
        path: The table.
        schema: The schema of the model.
        task: Its task.
        forest: Descriptors that its forest needs, if it has one.
    """
    table = open_table(path)
    rows = _cells(table, schema, None, None, table.path.name)
    read = _read(rows, schema, task, "", None, forest)
    _check_problems(read.rows, "skip", Path(path))
    return read


def parse_descriptors(names: Sequence[str], cells: Sequence[str]) -> list[float]:
    """Parse the descriptors of a row; none may be missing."""
    numbers = [parse_number(cell) for cell in cells]
    for name, number in zip(names, numbers, strict=True):
        if math.isnan(number):
            raise ValueError(f"the descriptor {name} is missing")
    return numbers


def _cells(
    table: Table, schema: TableSchema, column: str | None, split: str | None, file: str
) -> list[TableRow]:
    smiles = place_molecules(table, schema, None)
    targets = [table.place(name, "--target") for name in schema.targets]
    numbers = [table.place(name, "--descriptors") for name in schema.descriptors]
    if column is not None and column not in table.columns:
        known = suggest(column, [*SPLIT_KINDS, *table.columns])
        raise GrassError(f"{table.path} has no column {column!r} (--split){known}")
    where = None if column is None else table.place(column, "--split")
    found = []
    for row in table:
        part = split if where is None else row.cells[where]
        cells = row.cells
        found.append(
            TableRow(
                file,
                row.line,
                cells[smiles],
                [cells[place] for place in targets],
                [cells[place] for place in numbers],
                part,
                row.problem,
            )
        )
    return found


def _read(
    rows: list[TableRow],
    schema: TableSchema,
    task: TaskConfig,
    sentence: str,
    workers: int | None,
    forest: tuple[str, ...] | None = None,
) -> ReadRows:
    """Parse the targets, descriptors and molecules of all rows."""
    values, rows = _encode(rows, schema, task)
    molecules: list[Molecule | None] = []
    checked = []
    reader = MoleculeReader(
        schema.features,
        identity=True,
        fingerprints=True,
        descriptors=schema.rdkit,
        forest=forest,
    )
    with ReadingPool(reader, workers) as pool:
        found = pool.read(["" if row.problem else row.smiles for row in rows])
        for row, molecule in zip(rows, found, strict=True):
            if isinstance(molecule, str):
                row = row if row.problem else replace(row, problem=molecule)
                molecules.append(None)
            else:
                molecules.append(molecule)
            checked.append(row)
            report_progress("Reading molecules", len(checked), len(rows))
    return ReadRows(checked, molecules, values, schema, task, sentence)


def _encode(
    rows: list[TableRow], schema: TableSchema, task: TaskConfig
) -> tuple[list[RowValues], list[TableRow]]:
    """Targets and descriptors of each row as numbers."""
    kind = make_task(task)
    values, checked = [], []
    for row in rows:
        encoded = RowValues([], [])
        if not row.problem:
            try:
                targets = schema.encode(kind, row.targets)
                numbers = parse_descriptors(schema.descriptors, row.descriptors)
                encoded = RowValues(targets, numbers)
            except ValueError as error:
                row = replace(row, problem=str(error))
        values.append(encoded)
        checked.append(row)
    return values, checked


def _check_problems(rows: list[TableRow], bad_rows: str, path: Path) -> None:
    bad = [row for row in rows if row.problem]
    if bad and (bad_rows == "fail" or len(bad) == len(rows)):
        first = bad[0]
        raise GrassError(
            f"{len(bad)} of {len(rows)} rows cannot be used; "
            f"the first is line {first.line} of {first.file}: {first.problem}."
        )
    if not rows:
        raise GrassError(f"{path} has no rows.")
