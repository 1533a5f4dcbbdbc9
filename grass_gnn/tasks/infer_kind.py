"""Which kind of task fits the targets of a table or of graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from grass_gnn.errors import DataError
from grass_gnn.tasks.base import Task
from grass_gnn.tasks.classification import Binary, Classification, Multilabel
from grass_gnn.tasks.regression import Regression


class TargetColumn(NamedTuple):
    """What is known about a target column of a table."""

    distinct: set[str]  # distinct values; equal numbers are written the same way
    is_number: bool  # whether most cells are numbers
    is_label: bool  # whether all cells say yes or no, such as 0 and 1


_MOST_CLASSES = 10  # more distinct whole numbers are taken as quantities
_MOST_DISTINCT = 0.5  # classes as a share of the targets

FEW_TARGETS = 10
"""With fewer targets, their values do not tell classes from quantities or identifiers."""


def kind_of_columns(columns: Mapping[str, TargetColumn]) -> tuple[type[Task], str]:
    """The kind of task that fits the target columns of a table, and why.

    Args:
        columns: The target columns (at least one) by name.

    Raises:
        DataError: One of several columns contains text.
    """
    if len(columns) > 1:
        if all(column.is_label for column in columns.values()):
            return Multilabel, "they contain only 0 and 1"
        # Columns of yes and no are text too, but would be fine if the others were.
        for name, column in sorted(columns.items(), key=lambda item: item[1].is_label):
            if not column.is_number:
                raise DataError(
                    f"The target column {name!r} contains text: several targets must be "
                    "numbers, or 0 and 1."
                )
        return Regression, "they contain numbers"
    ((name, (distinct, is_number, _)),) = columns.items()
    if not is_number:
        return kind_of_classes(len(distinct)), f"{name} contains {len(distinct)} different texts"
    if distinct == {"0", "1"}:
        return Binary, f"{name} contains only 0 and 1"
    counting = {str(number) for number in range(len(distinct))}
    if 2 < len(distinct) <= _MOST_CLASSES and distinct == counting:
        hint = f"--task {Regression.name} if these are quantities"
        return Classification, f"{name} contains the numbers 0 to {len(distinct) - 1}; {hint}"
    if len(distinct) == 2:
        both = " and ".join(sorted(distinct))
        hint = f"--task {Binary.name} if these are classes"
        return Regression, f"{name} contains only the numbers {both}; {hint}"
    return Regression, f"{name} contains numbers"


def kind_of_tensor(rows: Tensor, known: Tensor) -> type[Task]:
    """The kind of task that fits target tensors.

    Args:
        rows: Targets [M, columns].
        known: Those that are not missing [K].
    """
    labels = bool(((known == 0) | (known == 1)).all())
    if rows.size(1) > 1:
        return Multilabel if labels else Regression
    if labels:
        return Binary
    return Regression if rows.is_floating_point() else Classification


def kind_of_classes(count: int) -> type[Task]:
    """The kind of task for this many classes: binary for two."""
    return Binary if count == 2 else Classification


def too_many_classes(distinct: int, count: int) -> bool:
    """Whether ``count`` targets have too many distinct values for them to be classes.

    Such targets are quantities or identifiers.
    """
    return count >= FEW_TARGETS and distinct > _MOST_DISTINCT * count
