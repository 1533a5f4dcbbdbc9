"""From tables of molecules to the graphs of three splits, with an account of every row."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from grass_gnn.config import TaskConfig
from grass_gnn.data.molecules import Molecule, MoleculeReader, ReadingPool, scaffold
from grass_gnn.data.sbm import SPLITS
from grass_gnn.data.splits import (
    DEFAULT_SHARES,
    check_splits,
    named_split,
    random_split,
    scaffold_split,
)
from grass_gnn.data.tables import Table, open_table, parse_number
from grass_gnn.errors import GrassError
from grass_gnn.files import write_text
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
class TableData:
    """Molecules and targets of a table, in splits."""

    splits: dict[str, list[Data]]
    schema: TableSchema
    task: TaskConfig
    rows: list[TableRow]  # all of them, with their split or their problem
    fingerprints: np.ndarray  # [training molecules, bits]
    shared: list[tuple[str, list[TableRow]]]  # molecules in more than one split
    said: list[str]  # what was found, in sentences

    @property
    def skipped(self) -> list[TableRow]:
        """Rows that are not used."""
        return [row for row in self.rows if row.problem]

    def write_account(self, folder: Path) -> None:
        """Write which row went where, and which were left out, into a run folder."""
        used = [[row.file, row.line, row.split] for row in self.rows if not row.problem]
        write_text(folder / "splits.csv", _csv(["file", "line", "split"], used))
        left_out = [[row.file, row.line, row.problem] for row in self.skipped]
        write_text(folder / "skipped_rows.csv", _csv(["file", "line", "reason"], left_out))


def read_tables(
    path: str | Path,
    targets: Sequence[str],
    *,
    smiles: str | None = None,
    val: str | Path | None = None,
    test: str | Path | None = None,
    split: str = "random",
    shares: Sequence[float] = DEFAULT_SHARES,
    features: str = "ogb",
    descriptors: Sequence[str] = (),
    task: str | None = None,
    bad_rows: str = "skip",
    seed: int = 0,
    workers: int | None = None,
    progress: Progress = silent,
) -> TableData:
    """Read molecules with targets, and divide them.

    Args:
        path: The table (CSV, TSV or Parquet).
        targets: Columns to learn.
        smiles: Column of SMILES; found by its name if not given.
        val: A table of validation rows, with the same columns.
        test: A table of test rows.
        split: ``"random"``, ``"scaffold"``, or the name of a column that says train, val or test.
        shares: Shares of a random or scaffold split.
        features: ``"ogb"`` or ``"zinc"``.
        descriptors: Columns of numbers that the head is given beside the graph.
        task: What the targets are, if that is not to be inferred.
        bad_rows: ``"skip"`` or ``"fail"``.
        seed: Of a random split.
        workers: Processes that read molecules.
        progress: Told how many rows are read.
    """
    if bad_rows not in ("skip", "fail"):
        raise GrassError(f"--bad-rows is skip or fail, not {bad_rows!r}.")
    if not targets:
        columns = ", ".join(open_table(path).columns[:20])
        raise GrassError(f"Which column is to be predicted? Give --target; there are {columns}.")
    table = open_table(path)
    schema = TableSchema(
        smiles=find_smiles(table, smiles),
        targets=list(targets),
        features=features,
        descriptors=list(descriptors),
    )
    column = split if split not in ("random", "scaffold") else None
    rows = _rows(table, schema, column, None)
    for file, part in ((val, "val"), (test, "test")):
        if file is not None:
            rows += _rows(open_table(file), schema, None, part)
    cells = {
        name: [row.targets[number] for row in rows if not row.problem]
        for number, name in enumerate(schema.targets)
    }
    found_task, classes, sentence = infer_task(cells, task)
    schema = schema.model_copy(update={"classes": classes})
    values, rows = _encode(rows, schema, found_task)
    reader = MoleculeReader(features, identity=True, fingerprints=True)
    molecules, rows = _read(rows, reader, workers, progress)
    _check_problems(rows, bad_rows, Path(path))
    rows = _divide(rows, column, split, shares, seed, val is not None, test is not None)
    check_splits([row.split or "" for row in rows if not row.problem])

    splits: dict[str, list[Data]] = {name: [] for name in SPLITS}
    fingerprints, seen = [], dict[str, list[TableRow]]()
    for row, molecule, (target, numbers) in zip(rows, molecules, values, strict=True):
        if row.problem or molecule is None or row.split is None:
            continue
        splits[row.split].append(_graph(molecule, target, numbers, found_task))
        seen.setdefault(molecule.canonical, []).append(row)
        if row.split == "train":
            fingerprints.append(molecule.fingerprint)
    shared = [(name, same) for name, same in seen.items() if len({r.split for r in same}) > 1]
    data = TableData(splits, schema, found_task, rows, np.stack(fingerprints), shared, [])
    return replace(data, said=_account(data, sentence))


def _rows(
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


def parse_descriptors(names: Sequence[str], cells: Sequence[str]) -> list[float]:
    """Descriptors of a row, all of which must be there."""
    numbers = [parse_number(cell) for cell in cells]
    for name, number in zip(names, numbers, strict=True):
        if math.isnan(number):
            raise ValueError(f"the descriptor {name} is missing")
    return numbers


def _read(
    rows: list[TableRow], reader: MoleculeReader, workers: int | None, progress: Progress
) -> tuple[list[Molecule | None], list[TableRow]]:
    molecules: list[Molecule | None] = []
    checked = []
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
    return molecules, checked


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


def _divide(
    rows: list[TableRow],
    column: str | None,
    method: str,
    shares: Sequence[float],
    seed: int,
    has_val: bool,
    has_test: bool,
) -> list[TableRow]:
    """Give every usable row its split."""
    if column is not None:
        parts = named_split([row.split or "" for row in rows])
        unknown = "the split column says neither train, val nor test"
        return [
            replace(row, split=part, problem=row.problem or ("" if part else unknown))
            for row, part in zip(rows, parts, strict=True)
        ]
    open_rows = [n for n, row in enumerate(rows) if not row.problem and row.split is None]
    # What another file holds is not taken from this one.
    left = [shares[0], 0.0 if has_val else shares[1], 0.0 if has_test else shares[2]]
    if method == "scaffold":
        drawn = scaffold_split([scaffold(rows[n].smiles) for n in open_rows], left)
    else:
        drawn = random_split(len(open_rows), left, seed)
    divided = list(rows)
    for number, part in zip(open_rows, drawn, strict=True):
        divided[number] = replace(rows[number], split=part)
    return divided


def _graph(
    molecule: Molecule, target: list[float], descriptors: list[float], task: TaskConfig
) -> Data:
    data = molecule.with_descriptors(descriptors)
    if task.kind == "classification":
        data.y = torch.tensor([int(target[0])])  # [1]
    else:
        data.y = torch.tensor([target])  # [1, outputs]
    return data


def _account(data: TableData, task: str) -> list[str]:
    sizes = ", ".join(f"{len(graphs):,} {name}" for name, graphs in data.splits.items())
    said = [task, f"Rows: {sizes}."]
    if data.skipped:
        said.append(f"{len(data.skipped)} rows are left out (skipped_rows.csv lists them all):")
        for row in data.skipped[:5]:
            said.append(f"  {row.file}, line {row.line}: {row.problem}")
    if data.shared:
        _, rows = data.shared[0]
        places = " and ".join(f"line {row.line} of {row.file} ({row.split})" for row in rows[:3])
        said.append(f"{len(data.shared)} molecules are in more than one split, such as {places}.")
    return said


def _csv(header: list[str], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
