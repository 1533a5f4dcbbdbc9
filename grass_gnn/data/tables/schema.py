"""Meaning of the columns of a table: SMILES, targets, descriptors, and the task."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pydantic import Field, ValidationError

from grass_gnn.config import Section, TaskConfig
from grass_gnn.data.benchmarks.targets import MOLECULE_TARGETS
from grass_gnn.data.tables.files import MISSING, Table, parse_number, shorten
from grass_gnn.errors import DataError, GrassError
from grass_gnn.tasks import (
    FEW_TARGETS,
    TASKS,
    TargetColumn,
    Task,
    kind_of_columns,
    make_task,
    too_many_classes,
)

# Names of columns with molecules, without capitals, spaces and punctuation.
_SMILES_NAMES = (
    *("smiles", "canonicalsmiles", "isomericsmiles", "standardsmiles", "rdkitsmiles"),
    *("smilesstring", "smi"),
)
_INCHI_NAMES = ("inchi", "standardinchi", "inchistring")
_OTHER_NAMES = ("mol", "molecule", "structure")  # or a column with names of molecules
_FEW_CLASSES = 3  # up to which classes may be ranges of numbers, such as <1 and >1
_QUANTITY = re.compile(  # a bound, a number and a unit
    r"([<>=≤≥~≈]{0,2})\s*[-+\u2212]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?\s*([^\d\s.,].{0,20})?"
)
_LARGEST = 1e15  # target: sums of squares of larger ones would exceed single precision
_YES = {"1", "true", "yes"}
_NO = {"0", "false", "no"}
_WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)(\.0*)?")  # but not 2E1 or 007, which are names
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")

logger = logging.getLogger(__name__)


class TableSchema(Section):
    """How rows become graphs and targets; stored with the model and used for new rows."""

    smiles: str
    targets: list[str]
    features: str = "ogb"
    descriptors: list[str] = Field(default_factory=list)  # columns of the table
    rdkit: dict[str, float] = Field(
        default_factory=dict
    )  # RDKit descriptors, each with its median, used where RDKit finds no value
    classes: list[str] = Field(
        default_factory=list
    )  # names of the classes, in the order of their numbers

    @property
    def num_descriptors(self) -> int:
        """Number of descriptors of a molecule: columns of the table, then those of RDKit."""
        return len(self.descriptors) + len(self.rdkit)

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> TableSchema | None:
        """The schema of a trained model, if it was trained on molecules."""
        if "table" in card:
            try:
                return cls.model_validate(card["table"])
            except ValidationError:
                raise GrassError(
                    "The file config.json is damaged: its table schema is not valid."
                ) from None
        config = card.get("config", {})
        if found := MOLECULE_TARGETS.get(config.get("dataset")):
            return cls(smiles="smiles", targets=found.targets, features=found.features)
        if config.get("input", {}).get("nodes", {}).get("kind") == "ogb-atom":
            outputs = config["task"]["outputs"]
            return cls(smiles="smiles", targets=[f"y{n}" for n in range(outputs)])
        return None

    def encode(self, task: Task, cells: Sequence[str]) -> list[float]:
        """Targets of a row as numbers; NaN where they are missing.

        Raises:
            ValueError: A cell contains something else; the message is a clause without a full stop.
        """
        values = [
            self._encode_cell(task, name, cell)
            for name, cell in zip(self.targets, cells, strict=True)
        ]
        if all(math.isnan(value) for value in values):
            raise ValueError("there is no target")
        return values

    def _encode_cell(self, task: Task, name: str, cell: str) -> float:
        if _is_missing(cell):
            return math.nan
        try:
            if task.cells == "numbers":
                return _target_number(cell)
            if task.cells == "labels":
                return _label(cell)
            return float(self.classes.index(self.class_of(cell)))
        except ValueError as error:
            known = " or ".join(self.classes[:10])
            reason = f"{shorten(cell)} is not one of {known}" if self.classes else str(error)
            raise ValueError(f"in {name}, {reason}") from None

    def class_of(self, cell: str) -> str:
        """The class in a cell, which may have other capitals or another form of the number.

        Raises:
            ValueError: It is none of the classes.
        """
        if (text := cell.strip()) in self.classes:
            return text
        name = self.normalized(cell).casefold()
        for one in self.classes:
            if one.casefold() == name:
                return one
        raise ValueError(f"{shorten(cell)} is not a class")

    def normalized(self, cell: str) -> str:
        """The name of the class in a cell, apart from its capitals."""
        return class_name(cell, all(map(_is_number, self.classes)))


def find_smiles(table: Table, name: str | None) -> str:
    """Name of the SMILES column: the given one, or one with a usual name."""
    if name is not None:
        table.place(name, "--smiles")
        return name
    if (place := find_molecules(table.columns)) is not None:
        found = table.columns[place]
        others = [one for one in table.columns if "smiles" in one.lower() and one != found]
        if others:
            logger.warning(
                "%s: molecules are read from the column %r, not from %s (--smiles).",
                table.path,
                found,
                ", ".join(map(shorten, others[:5])),
            )
        return found
    raise GrassError(
        f"Which column of {table.path} contains SMILES? Use --smiles; according to its first row, "
        f"the columns are {', '.join(shorten(name) for name in table.columns[:20])}."
    )


def place_molecules(table: Table, schema: TableSchema, given: str | None) -> int:
    """Index of the column of molecules in a table for a trained model.

    Args:
        table: The table.
        schema: The schema of the model.
        given: Name of the column, if the user gave one. By default, that of the training table, or
            else one with a usual name.
    """
    if given is None and schema.smiles not in table.columns:
        given = find_smiles(table, None)
    return table.place(given or schema.smiles, "--smiles")


def find_molecules(columns: Sequence[str]) -> int | None:
    """Index of the column whose name says that it holds SMILES, or else InChI; None without one.

    Capitals, spaces and punctuation do not matter ("Canonical SMILES"). If no name is known, the
    only one that contains "smiles" will do, or else a column named "molecule" or "structure".
    """
    plain = [re.sub(r"[\W_]", "", name.lower()) for name in columns]
    similar = [name for name in plain if "smiles" in name]
    for known in (_SMILES_NAMES, _INCHI_NAMES, similar if len(similar) == 1 else (), _OTHER_NAMES):
        for place, name in enumerate(plain):
            if name in known:
                return place
    return None


def naming_column(columns: Sequence[str], schema: TableSchema, used: Collection[int]) -> int | None:
    """The first column that is neither used nor a target: it usually names the molecules."""
    used = {*used, *(columns.index(name) for name in schema.targets if name in columns)}
    return next((place for place in range(len(columns)) if place not in used), None)


def infer_task(
    columns: Mapping[str, Sequence[str]], kind: str | None = None
) -> tuple[TaskConfig, list[str], str]:
    """Infer the task from the target columns.

    Args:
        columns: The cells of each target column.
        kind: Name of the task, if the user gave one.

    Returns:
        The task, the names of its classes, and a sentence that explains the choice.
    """
    if kind is not None and kind not in TASKS:
        raise GrassError(f"The task must be one of {', '.join(TASKS)}, not {kind!r} (--task).")
    known = {
        name: [cell.strip() for cell in cells if not _is_missing(cell)]
        for name, cells in columns.items()
    }
    for name, cells in known.items():
        if not cells:
            raise GrassError(f"The target column {name!r} is empty.")
    facts = {name: _target_column(cells, kind is None) for name, cells in known.items()}
    found, said = kind_of_columns(facts) if kind is None else (TASKS[kind], "as requested")
    classes: list[str] = []
    if found.cells == "classes":
        if len(facts) > 1:
            raise GrassError(f"A {found.name} task has one target column, not {len(facts)}.")
        (column,) = facts.values()
        classes = sorted(
            column.distinct, key=partial(_order, all(map(_is_number, column.distinct)))
        )
        ((name, cells),) = known.items()
        _check_quantities(name, cells, classes, kind is None)
        found.check_classes(classes)
    outputs = found.count_outputs(len(columns), len(classes))
    missing = len(columns) > 1 and any(_is_missing(c) for cells in columns.values() for c in cells)
    task = TaskConfig.model_validate(found.default_settings(outputs, missing))
    sentence = f"Task: {make_task(task).summary} ({said})."
    if outputs < len(classes) and classes != ["0", "1"]:  # one output for two classes
        sentence += f" Probability, average precision and F1 are those of {shorten(classes[1])}."
    return task, classes, sentence


def _check_quantities(
    name: str, cells: Sequence[str], classes: Sequence[str], inferred: bool
) -> None:
    """Raise if the classes are numbers with bounds or units, or if nearly every row has its own."""
    if len(cells) < FEW_TARGETS:
        return
    unique = too_many_classes(len(classes), len(cells))
    found = [one for one in map(_QUANTITY.fullmatch, classes) if one is not None]
    units = Counter(one[2] for one in found)
    # Different texts after numbers are names, such as 2C9 and 3A4, unless every row has its own.
    alike = len(found) if unique else max(units.values(), default=0)
    texts = [one[0] for one in found if one[1] or one[2]]
    many = unique or (inferred and len(classes) > _FEW_CLASSES)
    if many and texts and 2 * alike > len(classes):
        hint = "" if unique else " If these are classes, use --task classification."
        raise DataError(
            f"The target {name!r} contains numbers with text, such as {shorten(texts[0])}: keep "
            f"only the numbers, and leave out rows that have a bound instead of a value.{hint}"
        )
    if unique and len(found) == len(classes):
        raise DataError(
            f"The target {name!r} has {len(classes):,} different numbers in {len(cells):,} rows, "
            f"such as {shorten(cells[0])}: these are not classes (--task)."
        )
    if unique:
        raise DataError(
            f"The target {name!r} has {len(classes):,} different texts in {len(cells):,} rows, "
            f"such as {shorten(cells[0])}: identifiers cannot be predicted. Choose another "
            "--target."
        )


def _target_column(cells: Sequence[str], inferred: bool) -> TargetColumn:
    """What the cells of a column say about its task.

    If the task is inferred and most cells are numbers, others count as invalid: a few remarks
    between zeros and ones do not make them quantities.
    """
    numbers = [cell for cell in cells if _is_number(cell)]
    is_number = _mostly_numbers(cells, numbers)
    used = numbers if inferred and is_number else cells
    spellings: dict[str, str] = {}  # the most frequent one of those that differ in capitals
    numeric = len(used) == len(numbers)
    for name, _ in Counter(class_name(cell, numeric) for cell in used).most_common():
        spellings.setdefault(name.casefold(), name)
    return TargetColumn(
        distinct=set(spellings.values()),
        is_number=is_number,
        is_label=all(_is_label(cell) for cell in used),
    )


def _mostly_numbers(cells: Sequence[str], numbers: Sequence[str]) -> bool:
    """Whether a column contains numbers, apart from a few invalid cells or a frequent remark."""
    if 2 * len(numbers) > len(cells):
        return True
    distinct = {class_name(cell, numeric=True) for cell in numbers}
    whole = all(name.lstrip("-").isdigit() for name in distinct)
    remarks = {class_name(cell, numeric=True) for cell in cells} - distinct
    return not whole and len(distinct) > _FEW_CLASSES and len(distinct) > 2 * len(remarks)


def _is_number(cell: str) -> bool:
    """Whether a cell is meant as a number; 1,000 is, and later rejected as an invalid one."""
    try:
        parse_number(cell)
    except ValueError:
        return cell.replace(",", "").replace(".", "").lstrip("+-").isdigit()
    return True


def _target_number(cell: str) -> float:
    number = parse_number(cell)
    if abs(number) > _LARGEST:
        raise ValueError(f"{shorten(cell)} is too large: use another unit or a logarithm")
    return number


def _label(cell: str) -> float:
    if not _is_label(cell):
        raise ValueError(f"{shorten(cell)} is neither 0 nor 1")
    return float(class_name(cell, numeric=True).lower() in _YES)


def _is_label(cell: str) -> bool:
    return class_name(cell, numeric=True).lower() in _YES | _NO


def class_name(cell: str, numeric: bool) -> str:
    """The name of a class, the same however its number is written.

    Args:
        cell: The cell.
        numeric: Whether all cells of the column are numbers. Else texts that merely look like
            numbers, such as 2E1 besides 2C9 and 3A4, or 007, stay as they are.
    """
    text = cell.strip()
    if "_" in text or not (numeric or _WHOLE.fullmatch(text)):
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    # Larger numbers are not exact: different ones could become the same class.
    return str(int(number)) if number.is_integer() and abs(number) < _LARGEST else text


def _order(numeric: bool, name: str) -> tuple[bool, float, str]:
    """Sort key of a class: numbers by value, then texts alphabetically."""
    if numeric or _DECIMAL.fullmatch(name):
        with suppress(ValueError):
            return False, float(name), name
    return True, 0.0, name


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING
