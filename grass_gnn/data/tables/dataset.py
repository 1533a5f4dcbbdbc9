"""From tables of molecules to the graphs of three splits, with an account of every row."""

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
from grass_gnn.data.benchmarks.sbm import SPLITS
from grass_gnn.data.tables.files import guard
from grass_gnn.data.tables.molecules import Molecule, scaffold
from grass_gnn.data.tables.schema import ReadRows, TableRow, TableSchema, read_rows
from grass_gnn.data.tables.splits import (
    DEFAULT_SHARES,
    check_splits,
    named_split,
    random_split,
    scaffold_split,
)
from grass_gnn.files import write_text
from grass_gnn.progress import Progress, silent
from grass_gnn.tasks import make_task


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
        write_text(folder / "splits.csv", csv_text(["file", "line", "split"], used))
        left_out = [[row.file, row.line, row.problem] for row in self.skipped]
        write_text(folder / "skipped_rows.csv", csv_text(["file", "line", "reason"], left_out))


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
    column = split if split not in ("random", "scaffold") else None
    files = ((val, "val"), (test, "test"))
    read = read_rows(
        path,
        targets,
        smiles=smiles,
        others=[(file, part) for file, part in files if file is not None],
        column=column,
        features=features,
        descriptors=descriptors,
        task=task,
        bad_rows=bad_rows,
        workers=workers,
        progress=progress,
    )
    rows = _divide(read.rows, column, split, shares, seed, val is not None, test is not None)
    return in_splits(read, rows)


def in_splits(read: ReadRows, rows: list[TableRow]) -> TableData:
    """The graphs of each split, where ``rows`` are those that were read, with their splits."""
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
    return replace(data, said=_account(data, read.sentence))


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
    data.y = make_task(task).as_targets(torch.tensor([target]))  # [1] or [1, outputs]
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


def csv_text(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as the text of a CSV file, in which no cell is a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (header, *rows):
        writer.writerow([guard(cell) if isinstance(cell, str) else cell for cell in row])
    return text.getvalue()
