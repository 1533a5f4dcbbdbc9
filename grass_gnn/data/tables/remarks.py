"""Remarks about a table that its owner should know of before training: one sentence each."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from grass_gnn.data.tables.files import MISSING, shorten
from grass_gnn.tasks import make_task

if TYPE_CHECKING:
    from grass_gnn.data.tables.files import Table
    from grass_gnn.data.tables.rows import ReadRows, TableRow

_WIDE = 1000.0  # largest over smallest value, from which on a logarithm is suggested
_FAR = 15.0  # standard deviations of an outlier
_UNEQUAL = 10.0  # largest over smallest standard deviation of several targets
_FEW_VALUES = 10  # among which no outlier is looked for
_FEW_ROWS = 50  # training rows
_WITH_POINT = re.compile(r"[1-9]\d{0,2}\.\d{3}")  # 9.722 may be nine thousand
_FEW_WITH_POINT = 3  # of which it is not suspected
_UNITS = re.compile(r"units?(?![a-z])")  # in the name of a column
_RELATIONS = {"=", "~", "≈", "<", ">", "<=", ">=", "≤", "≥", "<<", ">>"}
_BOUNDS = _RELATIONS - {"=", "~", "≈"}
_MOST_UNITS = 100  # that are counted, to bound the memory
RARE = 0.1  # share of a class
_SPLITS = {"train": "training", "val": "validation", "test": "test"}


def remarks(read: ReadRows, rows: Sequence[TableRow]) -> list[str]:
    """What is unusual about a table.

    Args:
        read: Its rows.
        rows: The same rows with their splits.
    """
    usable = [number for number, row in enumerate(rows) if not row.problem and row.split]
    targets = np.array([read.values[n].targets for n in usable], dtype=float)  # [M, targets]
    found = [*_conflicts(read, usable), *_fragments(read, usable)]
    numbers = make_task(read.task).cells == "numbers"
    found += read.told
    if make_task(read.task).cells == "classes":
        found += _spellings(read, usable)
    rare: dict[str, str] = {}  # labels with a rare value
    for place, name in enumerate(read.schema.targets):
        known = ~np.isnan(targets[:, place])
        values = targets[known, place]
        places = [usable[number] for number in np.flatnonzero(known)]
        if not len(values):
            continue
        if not any(rows[number].split == "train" for number in places):
            found.append(
                f"No training row has a value of {name!r}, so the network cannot learn it: try "
                "another split."
            )
        if numbers:
            own = [rows[number] for number in places]
            found += _points(name, [row.targets[place].strip() for row in own])
            found += _numbers(name, values, own)
        else:
            splits = {
                split: values[[rows[number].split == split for number in places]]
                for split in _SPLITS
            }
            found += _classes(name, values, splits)
            labels, counts = np.unique(values, return_counts=True)
            if len(labels) == 2 and counts.min() < RARE * len(values):
                rare[name] = f"{counts.min():,} of {len(values):,} rows"
    if numbers:
        found += _sizes(read.schema.targets, targets)
    if rare:
        shown = ", ".join(f"{name!r} ({text})" for name, text in list(rare.items())[:3])
        more = f" and {len(rare) - 3} others" if len(rare) > 3 else ""
        found.append(
            f"One value is rare for {shown}{more}: accuracy says little, and "
            "--set task.loss=weighted-bce gives both values the same weight."
        )
    train = sum(rows[number].split == "train" for number in usable)
    if train < _FEW_ROWS:
        found.append(
            f"{train} training rows are few: scores depend on chance, and --folds uses every row "
            "for testing."
        )
    return found


def _conflicts(read: ReadRows, usable: Sequence[int]) -> list[str]:
    """Molecules that occur more than once, with different values."""
    places: dict[str, list[int]] = {}
    for number in usable:
        molecule = read.molecules[number]
        if molecule is not None:
            places.setdefault(molecule.canonical, []).append(number)
    repeated = [same for same in places.values() if len(same) > 1]
    conflicting = [same for same in repeated if _differ([read.values[n].targets for n in same])]
    if not conflicting:
        return []
    first = [read.rows[number] for number in conflicting[0][:2]]
    cells = " and ".join(f"{', '.join(row.targets)} in line {row.line}" for row in first)
    count = len(conflicting)
    return [
        f"{count:,} molecule{' has' if count == 1 else 's have'} different values in different "
        f"rows, for example {shorten(first[0].smiles)}: {cells}. All of these rows are used."
    ]


def _differ(values: Sequence[Sequence[float]]) -> bool:
    columns = zip(*values, strict=True)
    known = [[value for value in column if not math.isnan(value)] for column in columns]
    return any(
        len(column) > 1 and max(column) - min(column) > 1e-6 * max(map(abs, column))
        for column in known
    )


def _spellings(read: ReadRows, usable: Sequence[int]) -> list[str]:
    """Names of classes that differ only in capitals."""
    cells = dict.fromkeys(read.rows[number].targets[0].strip() for number in usable)
    unknown = [cell for cell in cells if cell not in read.schema.classes]
    names = dict.fromkeys(map(read.schema.normalized, unknown))
    others = [name for name in names if name not in read.schema.classes]
    if not others:
        return []
    same = next(one for one in read.schema.classes if one.casefold() == others[0].casefold())
    return [f"{shorten(others[0])} is read as {shorten(same)}: they differ only in capitals."]


def _fragments(read: ReadRows, usable: Sequence[int]) -> list[str]:
    """Salts and mixtures, whose components are not connected."""
    molecules = [read.molecules[number] for number in usable]
    count = sum(molecule is not None and "." in molecule.canonical for molecule in molecules)
    if not count:
        return []
    verb = "molecule consists" if count == 1 else "molecules consist"
    return [
        f"{count:,} {verb} of several components (salts, mixtures); they are used as written, "
        "with all components."
    ]


def _points(name: str, cells: Sequence[str]) -> list[str]:
    """Points that may separate thousands, as German spreadsheets write them."""
    whole = [cell for cell in cells if cell.isdigit()]
    others = [cell for cell in cells if not cell.isdigit()]
    if not whole or len(others) < _FEW_WITH_POINT or not all(map(_WITH_POINT.fullmatch, others)):
        return []
    return [
        f"The target {name!r} has whole numbers, such as {whole[0]}, and all others have three "
        f"digits after the point, such as {others[0]}, which is read as a number below 1000: does "
        "the point separate thousands?"
    ]


def about_other_columns(table: Table, read: ReadRows) -> list[str]:
    """What columns that are not used say about numbers: that they are bounds, or their units.

    Args:
        table: The main table.
        read: Its rows, before those of further tables.
    """
    if make_task(read.task).cells != "numbers":
        return []
    columns, schema = table.columns, read.schema
    used = {schema.smiles, *schema.targets, *schema.descriptors}
    relations = {place for place, name in enumerate(columns) if name not in used}
    units = {place for place in relations if _UNITS.search(columns[place].lower())}
    counts = {place: Counter[str]() for place in relations}
    main = read.rows[0].file
    lines = {read.rows[n].line for n in read.usable if read.rows[n].file == main}
    for row in table:
        for place in relations | units if row.line in lines else ():
            cell = row.cells[place].strip().strip("'\"").strip()
            if cell.lower() in MISSING:
                continue
            if cell not in _RELATIONS:
                relations.discard(place)
            if place in relations or len(counts[place]) < _MOST_UNITS:
                counts[place][cell] += 1
    found = []
    for place in sorted(relations):
        bounds = {sign: counts[place][sign] for sign in sorted(_BOUNDS & counts[place].keys())}
        if bounds:
            count, signs = sum(bounds.values()), " or ".join(map(repr, bounds))
            verb = "row has" if count == 1 else "rows have"
            found.append(
                f"{count:,} {verb} {signs} in {columns[place]!r}: their values are bounds."
            )
    several = [place for place in sorted(units) if len(counts[place]) > 1]
    if len(several) == len(units):  # else one of several columns has the standard unit
        for place in several:
            shown = " and ".join(shorten(unit) for unit, _ in counts[place].most_common(2))
            found.append(
                f"The column {columns[place]!r} contains {shown}: do all values have the same unit?"
            )
    return found


def _numbers(name: str, values: np.ndarray, rows: Sequence[TableRow]) -> list[str]:
    found = []
    if len(values) > 20 and bool((np.diff(values) == 1).all()):
        found.append(f"The target {name!r} counts the rows: is it an identifier?")
    low, high = float(values.min()), float(values.max())
    if low > 0 and high / low >= _WIDE:
        found.append(
            f"The target {name!r} ranges from {low:.3g} to {high:.3g}: its logarithm may be "
            "easier to predict."
        )
        return found
    if len(values) < _FEW_VALUES:
        return found
    # Compared with the others: it would itself make their standard deviation large.
    worst = int(np.abs(values - np.median(values)).argmax())
    others = values[values != values[worst]]
    spread = float(others.std()) if len(others) else 0.0
    far = abs(float(values[worst]) - float(others.mean())) / spread if spread > 0 else 0.0
    if far > _FAR and (count := len(values) - len(others)) > 1:
        found.append(
            f"The target {name!r} is {values[worst]:.6g} in {count:,} rows, far from all others: "
            "does it mean 'missing'?"
        )
    elif far > _FAR:
        found.append(
            f"The target {name!r} is {values[worst]:.3g} in line {rows[worst].line}, {far:,.0f} "
            "standard deviations from the mean of the other rows: is that right?"
        )
    return found


def _sizes(names: Sequence[str], targets: np.ndarray) -> list[str]:
    """Targets [M, targets] whose errors hardly count in scores over all of them."""
    columns = [column[~np.isnan(column)] for column in targets.T]
    spreads = [float(values.std()) if len(values) else 0.0 for values in columns]
    varied = [place for place, spread in enumerate(spreads) if spread > 0]
    if not varied:
        return []
    least, most = (end(varied, key=spreads.__getitem__) for end in (min, max))
    if spreads[most] < _UNEQUAL * spreads[least]:
        return []
    return [
        f"The targets differ in size (standard deviation {spreads[most]:.3g} of {names[most]!r}, "
        f"{spreads[least]:.3g} of {names[least]!r}): MAE and RMSE, and the choice of the epoch by "
        f"them, depend mostly on {names[most]!r}. Use units in which they are similar, or train a "
        "run for each."
    ]


def _classes(name: str, values: np.ndarray, splits: Mapping[str, np.ndarray]) -> list[str]:
    found = []
    several = len(np.unique(values)) > 1
    for split, own in splits.items():
        if several and len(own) == 1:
            found.append(
                f"There is only one {_SPLITS[split]} row with {name!r}: ROC-AUC and average "
                "precision are undefined there. Give more rows."
            )
        elif several and len(own) and len(np.unique(own)) == 1:
            found.append(
                f"All {len(own):,} {_SPLITS[split]} rows have the same {name!r}: ROC-AUC and "
                "average precision are undefined there. Try another split."
            )
    return found
