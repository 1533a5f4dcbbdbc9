"""From a table of molecules to graphs in three splits, with a record of every row."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from grass_gnn.config import TaskConfig
from grass_gnn.data.tables.files import guard
from grass_gnn.data.tables.molecules import Molecule, scaffold
from grass_gnn.data.tables.schema import ReadRows, TableRow, TableSchema, read_rows
from grass_gnn.data.tables.spec import SPLITS, TableSpec
from grass_gnn.data.tables.splits import check_splits, named_split, random_split, scaffold_split
from grass_gnn.files import write_text
from grass_gnn.tasks import make_task


@dataclass(frozen=True)
class TableData:
    """The molecules and targets of a table, in splits."""

    splits: dict[str, list[Data]]
    schema: TableSchema
    task: TaskConfig
    rows: list[TableRow]  # all rows, each with its split or its problem
    fingerprints: np.ndarray  # [training molecules, bits]
    shared: list[tuple[str, list[TableRow]]]  # molecules in more than one split
    summary: list[str]  # sentences about the task, the splits and skipped rows

    @property
    def skipped(self) -> list[TableRow]:
        """The rows that are not used."""
        return [row for row in self.rows if row.problem]

    def write_row_lists(self, folder: Path) -> None:
        """Write ``splits.csv`` and ``skipped_rows.csv`` into a run folder."""
        used = [[row.file, row.line, row.split] for row in self.rows if not row.problem]
        write_text(folder / "splits.csv", csv_text(["file", "line", "split"], used))
        skipped = [[row.file, row.line, row.problem] for row in self.skipped]
        write_text(folder / "skipped_rows.csv", csv_text(["file", "line", "reason"], skipped))


def read_tables(
    path: str | Path, spec: TableSpec, seed: int = 0, workers: int | None = None
) -> TableData:
    """Read molecules and their targets, and split them.

    Args:
        path: The table.
        spec: Its columns and split.
        seed: Random seed of the split, unless the spec has one.
        workers: Processes that parse SMILES.
    """
    read = read_rows(path, spec, workers)
    return in_splits(read, _split(read.rows, spec, seed))


def in_splits(read: ReadRows, rows: list[TableRow]) -> TableData:
    """Sort the molecules of a table into splits; ``rows`` are its rows with assigned splits."""
    check_splits([row.split or "" for row in rows if not row.problem])
    splits: dict[str, list[Data]] = {name: [] for name in SPLITS}
    fingerprints, seen = [], dict[str, list[TableRow]]()
    for row, molecule, (target, numbers) in zip(rows, read.molecules, read.values, strict=True):
        if row.problem or molecule is None or row.split is None:
            continue
        splits[row.split].append(_graph(molecule, target, numbers, read.task))
        seen.setdefault(molecule.canonical, []).append(row)
        if row.split == "train":
            fingerprints.append(molecule.fingerprint)
    shared = [(name, same) for name, same in seen.items() if len({r.split for r in same}) > 1]
    data = TableData(splits, read.schema, read.task, rows, np.stack(fingerprints), shared, [])
    return replace(data, summary=_summary(data, read.sentence))


def _split(rows: list[TableRow], spec: TableSpec, seed: int) -> list[TableRow]:
    """Assign a split to every usable row."""
    if spec.split_column is not None:
        parts = named_split([row.split or "" for row in rows])
        unknown = "the split column contains none of train, val and test"
        return [
            replace(row, split=part, problem=row.problem or ("" if part else unknown))
            for row, part in zip(rows, parts, strict=True)
        ]
    unassigned = [n for n, row in enumerate(rows) if not row.problem and row.split is None]
    # A split that has a file of its own takes no rows from this one.
    train, val, test = spec.shares
    shares = [train, 0.0 if spec.val else val, 0.0 if spec.test else test]
    if spec.split == "scaffold":
        drawn = scaffold_split([scaffold(rows[n].smiles) for n in unassigned], shares)
    else:
        drawn = random_split(
            len(unassigned), shares, seed if spec.split_seed is None else spec.split_seed
        )
    assigned = list(rows)
    for number, part in zip(unassigned, drawn, strict=True):
        assigned[number] = replace(rows[number], split=part)
    return assigned


def _graph(
    molecule: Molecule, target: list[float], descriptors: list[float], task: TaskConfig
) -> Data:
    data = molecule.with_descriptors(descriptors)
    data.y = make_task(task).as_targets(torch.tensor([target]))  # [1] or [1, outputs]
    return data


def _summary(data: TableData, task: str) -> list[str]:
    sizes = ", ".join(f"{len(graphs):,} {name}" for name, graphs in data.splits.items())
    sentences = [task, f"Rows: {sizes}."]
    if data.skipped:
        count = len(data.skipped)
        sentences.append(
            f"Skipped {count:,} unusable row{'s' * (count > 1)} (all listed in skipped_rows.csv):"
        )
        for row in data.skipped[:5]:
            sentences.append(f"  {row.file}, line {row.line}: {row.problem}")
    if data.shared:
        _, rows = data.shared[0]
        places = " and ".join(f"line {row.line} of {row.file} ({row.split})" for row in rows[:3])
        count = len(data.shared)
        molecules = "molecules are" if count > 1 else "molecule is"
        sentences.append(f"{count:,} {molecules} in more than one split, for example {places}.")
    return sentences


def csv_text(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The text of a CSV file, with cells escaped that a spreadsheet would read as formulas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (header, *rows):
        writer.writerow([guard(cell) if isinstance(cell, str) else cell for cell in row])
    return text.getvalue()
