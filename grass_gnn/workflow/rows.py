"""Rows of tables as molecules and numbers, each with the reason if it cannot be used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grass_gnn.config import TaskConfig
from grass_gnn.data.molecules import Molecule, MoleculeReader, ReadingPool
from grass_gnn.data.tables import Table, open_table, parse_number
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, silent
from grass_gnn.workflow.schema import TableSchema, find_smiles, infer_task


@dataclass(frozen=True)
class TableRow:
    """One row that may be used, or the reason why it may not."""

    file: str
    line: int
    smiles: str
    targets: list[str]
    descriptors: list[str]
    split: str | None
    problem: str = ""


@dataclass(frozen=True)
class ReadRows:
    """All rows of one table or several, read but not yet divided."""

    rows: list[TableRow]
    molecules: list[Molecule | None]  # of each row; None where it has a problem
    values: list[tuple[list[float], list[float]]]  # targets and descriptors of each row
    schema: TableSchema
    task: TaskConfig
    sentence: str  # what the task is, and why

    @property
    def usable(self) -> list[int]:
        """Numbers of the rows that can be used."""
        return [number for number, row in enumerate(self.rows) if not row.problem]


def read_rows(
    path: str | Path,
    targets: Sequence[str],
    *,
    smiles: str | None = None,
    others: Sequence[tuple[str | Path, str]] = (),
    column: str | None = None,
    features: str = "ogb",
    descriptors: Sequence[str] = (),
    task: str | None = None,
    bad_rows: str = "skip",
    workers: int | None = None,
    progress: Progress = silent,
) -> ReadRows:
    """Read molecules with targets; what the targets pose as a task is inferred.

    Args:
        path: The table (CSV, TSV or Parquet).
        targets: Columns to learn.
        smiles: Column of SMILES; found by its name if not given.
        others: Further tables with the same columns, and the split that each is.
        column: A column that says which split a row is in.
        features: ``"ogb"`` or ``"zinc"``.
        descriptors: Columns of numbers that the head is given beside the graph.
        task: What the targets are, if that is not to be inferred.
        bad_rows: ``"skip"`` or ``"fail"``.
        workers: Processes that read molecules.
        progress: Told how many rows are read.
    """
    if bad_rows not in ("skip", "fail"):
        raise GrassError(f"--bad-rows is skip or fail, not {bad_rows!r}.")
    table = open_table(path)
    if not targets:
        columns = ", ".join(table.columns[:20])
        raise GrassError(f"Which column is to be predicted? Give --target; there are {columns}.")
    schema = TableSchema(
        smiles=find_smiles(table, smiles),
        targets=list(targets),
        features=features,
        descriptors=list(descriptors),
    )
    rows = _cells(table, schema, column, None)
    for file, split in others:
        rows += _cells(open_table(file), schema, None, split)
    cells = {
        name: [row.targets[number] for row in rows if not row.problem]
        for number, name in enumerate(schema.targets)
    }
    found_task, classes, sentence = infer_task(cells, task)
    schema = schema.model_copy(update={"classes": classes})
    read = _read(rows, schema, found_task, sentence, workers, progress)
    _check_problems(read.rows, bad_rows, Path(path))
    return read


def read_known_rows(
    path: str | Path, schema: TableSchema, task: TaskConfig, progress: Progress = silent
) -> ReadRows:
    """Read rows with targets for a model that is trained already: it says what they mean."""
    rows = _cells(open_table(path), schema, None, None)
    read = _read(rows, schema, task, "", None, progress)
    _check_problems(read.rows, "skip", Path(path))
    return read


def parse_descriptors(names: Sequence[str], cells: Sequence[str]) -> list[float]:
    """Descriptors of a row, all of which must be there."""
    numbers = [parse_number(cell) for cell in cells]
    for name, number in zip(names, numbers, strict=True):
        if math.isnan(number):
            raise ValueError(f"the descriptor {name} is missing")
    return numbers


def _cells(
    table: Table, schema: TableSchema, column: str | None, split: str | None
) -> list[TableRow]:
    smiles = table.place(schema.smiles, "--smiles")
    targets = [table.place(name, "--target") for name in schema.targets]
    numbers = [table.place(name, "--descriptors") for name in schema.descriptors]
    where = None if column is None else table.place(column, "--split")
    found = []
    for row in table:
        part = split if where is None else row.cells[where]
        cells = row.cells
        found.append(
            TableRow(
                table.path.name,
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
    progress: Progress,
) -> ReadRows:
    """Targets, descriptors and molecules of all rows."""
    values, rows = _encode(rows, schema, task)
    molecules: list[Molecule | None] = []
    checked = []
    reader = MoleculeReader(schema.features, identity=True, fingerprints=True)
    with ReadingPool(reader, workers) as pool:
        found = pool.read(["" if row.problem else row.smiles for row in rows])
        for row, molecule in zip(rows, found, strict=True):
            if isinstance(molecule, str):
                row = row if row.problem else replace(row, problem=molecule)
                molecules.append(None)
            else:
                molecules.append(molecule)
            checked.append(row)
            progress("Reading molecules", len(checked), len(rows))
    return ReadRows(checked, molecules, values, schema, task, sentence)


def _encode(
    rows: list[TableRow], schema: TableSchema, task: TaskConfig
) -> tuple[list[tuple[list[float], list[float]]], list[TableRow]]:
    """Targets and descriptors of each row as numbers."""
    values, checked = [], []
    for row in rows:
        encoded: tuple[list[float], list[float]] = ([], [])
        if not row.problem:
            try:
                targets = schema.encode(task.kind, row.targets)
                encoded = targets, parse_descriptors(schema.descriptors, row.descriptors)
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
