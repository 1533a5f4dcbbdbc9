"""Read a table of molecules into graphs in three splits, with a record of every row.

Rows, and lists of graphs, are split at random, by scaffold, or as given by the user.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from grass_gnn.config import TaskConfig
from grass_gnn.data.tables.composition import Composition
from grass_gnn.data.tables.files import guard, shorten
from grass_gnn.data.tables.molecules import Molecule
from grass_gnn.data.tables.reading import read_scaffolds
from grass_gnn.data.tables.remarks import RARE, remarks
from grass_gnn.data.tables.rows import ReadRows, TableRow, read_rows
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.data.tables.spec import DEFAULT_SHARES, SPLITS, TableSpec
from grass_gnn.errors import GrassError
from grass_gnn.files import write_text
from grass_gnn.tasks import make_task

_NAMES = {  # of splits in a column
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class TableData:
    """The molecules and targets of a table, in splits."""

    splits: dict[str, list[Data]]
    schema: TableSchema
    task: TaskConfig
    rows: list[TableRow]  # all rows, each with its split or problem
    fingerprints: dict[str, np.ndarray]  # of each split [molecules, bits]
    compositions: dict[str, list[Composition]]  # of each split
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
    return in_splits(read, _split(read, spec, seed))


def in_splits(read: ReadRows, rows: list[TableRow]) -> TableData:
    """Divide the molecules of a table by the split assigned to each of its ``rows``."""
    check_splits([row.split or "" for row in rows if not row.problem])
    splits: dict[str, list[Data]] = {name: [] for name in SPLITS}
    fingerprints: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    compositions: dict[str, list[Composition]] = {name: [] for name in SPLITS}
    seen = dict[str, list[TableRow]]()
    for row, molecule, (target, numbers) in zip(rows, read.molecules, read.values, strict=True):
        if row.problem or molecule is None or row.split is None:
            continue
        splits[row.split].append(_graph(molecule, target, numbers, read.task))
        seen.setdefault(molecule.canonical, []).append(row)
        fingerprints[row.split].append(molecule.fingerprint)
        assert molecule.composition is not None  # read_rows asks for it
        compositions[row.split].append(molecule.composition)
    shared = [(name, same) for name, same in seen.items() if len({r.split for r in same}) > 1]
    data = TableData(
        splits,
        read.schema,
        read.task,
        rows,
        {name: np.stack(bits) for name, bits in fingerprints.items() if bits},
        compositions,
        shared,
        summary=[],
    )
    return replace(data, summary=_summary(data, read.sentence) + remarks(read, rows))


def _split(read: ReadRows, spec: TableSpec, seed: int) -> list[TableRow]:
    """Assign a split to every usable row."""
    rows = read.rows
    if spec.split_column is not None:
        parts = [_NAMES.get((row.split or "").strip().lower()) for row in rows]
        if not any(parts):
            example = shorten(next((row.split for row in rows if row.split), ""))
            raise GrassError(
                f"The column {spec.split_column!r} (--split) contains none of train, val and test, "
                f"but {example}, for example."
            )
        unknown = "the split column contains none of train, val and test"
        return [
            replace(row, split=part, problem=row.problem or ("" if part else unknown))
            for row, part in zip(rows, parts, strict=True)
        ]
    unassigned = [n for n, row in enumerate(rows) if not row.problem and row.split is None]
    # A split with its own file takes no rows from this one.
    train, val, test = spec.shares
    shares = [train, 0.0 if spec.val else val, 0.0 if spec.test else test]
    if spec.split == "scaffold":
        drawn = scaffold_split(read_scaffolds([rows[n].smiles for n in unassigned]), shares)
    else:
        seed = seed if spec.split_seed is None else spec.split_seed
        labels = stratified_by(read, unassigned, spec.split == "stratified")
        drawn = random_split(len(unassigned), shares, seed, labels)
    assigned = list(rows)
    for number, part in zip(unassigned, drawn, strict=True):
        assigned[number] = replace(rows[number], split=part)
    return assigned


def stratified_by(read: ReadRows, rows: Sequence[int], asked: bool) -> list[float] | None:
    """The class of each of these rows, if the split is to be stratified; else None.

    It is if a class is rare: validation and test set would otherwise miss it by chance.
    """
    if make_task(read.task).cells != "classes" or not rows:
        return None
    labels = [read.values[number].targets[0] for number in rows]
    rarest = min(labels.count(label) for label in set(labels))
    return labels if asked or rarest < RARE * len(labels) else None


def _graph(
    molecule: Molecule, target: list[float], descriptors: list[float], task: TaskConfig
) -> Data:
    data = molecule.with_descriptors(descriptors)
    data.y = make_task(task).as_targets(torch.tensor([target]))  # [1] or [1, outputs]
    return data


def _summary(data: TableData, task: str) -> list[str]:
    sizes = ", ".join(f"{len(graphs):,} {name}" for name, graphs in data.splits.items())
    sentences = [task, f"Rows: {sizes}."]
    if data.schema.rdkit:
        sentences.append(f"Descriptors: {len(data.schema.rdkit)} of RDKit.")
    if data.skipped:
        count = len(data.skipped)
        sentences.append(
            f"Skipped {count:,} unusable row{'s' * (count > 1)} (all listed in skipped_rows.csv):"
        )
        for row in data.skipped[:5]:
            sentences.append(f"  {row.file}, line {row.line}: {row.problem}")
    if data.shared:
        _, rows = data.shared[0]
        first = {row.split: row for row in reversed(rows)}  # of each split
        shown = [row for row in rows if row is first[row.split]]
        places = " and ".join(f"line {row.line} of {row.file} ({row.split})" for row in shown)
        count = len(data.shared)
        molecules = "molecules are" if count > 1 else "molecule is"
        sentences.append(f"{count:,} {molecules} in more than one split, for example {places}.")
    return sentences


def csv_text(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The text of a CSV file; cells that a spreadsheet would evaluate as formulas are escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (header, *rows):
        writer.writerow([guard(cell) if isinstance(cell, str) else cell for cell in row])
    return text.getvalue()


def random_split(
    count: int,
    shares: Sequence[float] = DEFAULT_SHARES,
    seed: int = 0,
    labels: Sequence[float] | None = None,
) -> list[str]:
    """Assign a random split to each of ``count`` rows.

    Args:
        count: Number of rows.
        shares: Shares of training, validation and test.
        seed: Random seed.
        labels: The class of each row: each class is then split on its own.
    """
    if labels is not None:
        return _stratified_split(labels, shares, seed)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    assigned = [""] * count
    parts = [[split] * size for split, size in zip(SPLITS, _sizes(count, shares), strict=True)]
    for member, split in zip(order, chain.from_iterable(parts), strict=False):
        assigned[member] = split
    return assigned


def _stratified_split(labels: Sequence[float], shares: Sequence[float], seed: int) -> list[str]:
    """Split each class on its own; training and test come first if a class has few rows."""
    few = ["train", *(SPLITS[place] for place in (2, 1) if shares[place]), "train", "train"]
    assigned = [""] * len(labels)
    for label in sorted(set(labels)):
        places = [place for place, own in enumerate(labels) if own == label]
        drawn = random_split(len(places), shares, seed)
        if len(places) < len(few):
            drawn = few[: len(places)]
        for place, split in zip(places, drawn, strict=True):
            assigned[place] = split
    return assigned


def scaffold_split(scaffolds: Sequence[str], shares: Sequence[float] = DEFAULT_SHARES) -> list[str]:
    """Split molecules by scaffold, so that test molecules have different ring systems.

    Molecules with the same scaffold stay together. Large groups go to the training set, and the
    rarest scaffolds to the test set (as in MoleculeNet and OGB).

    Args:
        scaffolds: Scaffold of each molecule; a molecule without one is a group by itself.
        shares: Fractions of the training, validation and test set.
    """
    sizes = dict(zip(SPLITS, _sizes(len(scaffolds), shares), strict=True))
    assigned = [""] * len(scaffolds)
    for members in _groups(scaffolds):
        # The first split with room for the whole group, or else the one with the most room left.
        roomiest = max(SPLITS, key=sizes.__getitem__)
        split = next((s for s in SPLITS if sizes[s] >= len(members)), roomiest)
        sizes[split] -= len(members)
        for member in members:
            assigned[member] = split
    return assigned


def check_splits(assigned: Sequence[str]) -> None:
    """Raise if a split is empty."""
    for split in SPLITS:
        if split not in assigned:
            raise GrassError(
                f"The {split} split is empty ({len(assigned)} rows in all): "
                "give more rows, other --shares, or another split."
            )


def check_shares(shares: Sequence[float]) -> None:
    """Raise unless there are fractions of three splits, of which at least one is not zero."""
    if len(shares) != len(SPLITS) or not min(shares) >= 0 or not 0 < sum(shares) < math.inf:
        raise GrassError(
            "The shares must be three numbers that are not negative, such as 0.8, 0.1 and 0.1, "
            f"not {shares!r}."
        )


def _sizes(count: int, shares: Sequence[float]) -> list[int]:
    """Sizes of splits with these fractions; at least one validation and test row if possible."""
    check_shares(shares)
    total = sum(shares)
    val, test = (max(1, round(count * share / total)) if share else 0 for share in shares[1:])
    return [max(count - val - test, 0), val, test]


def _groups(names: Sequence[str]) -> list[list[int]]:
    """The rows of each group, largest group first; a row without a name is a group by itself."""
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        members.setdefault(name or f"#{number}", []).append(number)
    return sorted(members.values(), key=lambda rows: (-len(rows), rows[0]))


def random_folds(
    count: int, folds: int, seed: int = 0, labels: Sequence[float] | None = None
) -> list[int]:
    """Assign a random fold to each of ``count`` rows; sizes differ by at most one.

    Args:
        count: Number of rows.
        folds: Number of folds.
        seed: Random seed.
        labels: Class of each row, for stratified folds.
    """
    _check(folds, count, "rows")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    if labels is not None:
        order.sort(key=lambda number: labels[number])  # stable: random within a class
    assigned = [0] * count
    for place, number in enumerate(order):
        assigned[number] = place % folds
    return assigned


def group_folds(groups: Sequence[str], folds: int) -> list[int]:
    """Assign a fold to each row, keeping groups together.

    Starting with the largest, each group goes to the fold with the fewest rows so far.

    Args:
        groups: Group of each row; a row without one is a group by itself.
        folds: Number of folds.
    """
    members = _groups(groups)
    _check(folds, len(members), "scaffold groups")
    sizes, assigned = [0] * folds, [0] * len(groups)
    for numbers in members:
        fold = sizes.index(min(sizes))
        sizes[fold] += len(numbers)
        for number in numbers:
            assigned[number] = fold
    return assigned


def _check(folds: int, count: int, what: str) -> None:
    if folds < 2:
        raise GrassError(f"A cross-validation needs at least two folds, not {folds} (--folds).")
    if count < folds:
        raise GrassError(f"{count} {what} are too few for {folds} folds (--folds).")
