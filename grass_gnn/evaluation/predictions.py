"""Saved predictions of a split: ``val_predictions.csv`` and ``test_predictions.csv`` of a run."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from grass_gnn.errors import GrassError
from grass_gnn.files import read_text, write_text
from grass_gnn.tasks import Task

_LARGEST_FILE = 1 << 30  # bytes

_Columns: TypeAlias = tuple[dict[str, list[int]], list[str]]
"""The places of each kind of column, and the names of the classes."""

_MEAN = re.compile(r"(.+)_(?:pred|prob)(?:_.+)?")
_STD = re.compile(r"(.+)_std(?:_.+)?")
_END = re.compile(r"(.+)_(?:lower|upper)")


@dataclass(frozen=True)
class RowNames:
    """Names of the rows and columns of a file of predictions.

    Args:
        rows: Row of each graph in its table.
        smiles: SMILES of each graph.
        targets: Names of the targets.
        outputs: Names of the columns of each output and of its standard deviation.
        classes: Names of the classes, if the target is a class.
    """

    rows: Sequence[str]
    smiles: Sequence[str]
    targets: Sequence[str]
    outputs: Sequence[tuple[str, str]]
    classes: Sequence[str] = ()


def write_predictions(
    path: Path,
    target: Tensor,
    mean: Tensor,
    std: Tensor,
    names: RowNames | None = None,
    ends: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Write a row per graph: its identifier, targets, and mean and std over rewirings.

    Args:
        path: The CSV file.
        target: Classes [B], or values or labels [B, outputs].
        mean: Values, or probabilities of classes or labels [B, outputs].
        std: Standard deviations over rewirings [B, outputs].
        names: Names of rows and columns; see :meth:`SavedPredictions.read` for both layouts.
        ends: Lower and upper ends of intervals [B, outputs], for predictions with names.
    """
    target = target.view(len(mean), -1)
    truth = [[shortest(value) for value in row] for row in target.tolist()]
    if names is None:
        header = ["graph"]
        for kind, part in (("target", target), ("mean", mean), ("std", std)):
            header += [f"{kind}_{number}" for number in range(part.size(1))]
        given = [[str(number)] for number in range(len(mean))]
        predicted = torch.cat([mean, std], dim=1)
    else:
        columns = [[*pair] for pair in names.outputs]
        numbers = [mean, std]
        if ends is not None:
            columns = [[*pair, *Task.interval_columns(pair[0])] for pair in names.outputs]
            numbers += ends
        outputs = [name for part in columns for name in part]
        header = ["row", "smiles", *names.targets, *outputs]
        given = [list(pair) for pair in zip(names.rows, names.smiles, strict=True)]
        if 1 < len(names.classes) == mean.size(1):
            truth = [[names.classes[int(number)]] for (number,) in target.tolist()]
        predicted = torch.stack(numbers, dim=2).flatten(1)  # [B, 2 or 4 · outputs]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for cells, known, values in zip(given, truth, predicted.tolist(), strict=True):
        writer.writerow([*cells, *known, *map(shortest, values)])
    write_text(path, text.getvalue())


def shortest(value: float) -> str:
    """The shortest text that is read as the same number in single precision.

    Networks compute in it. Fewer digits would round away the errors of targets that are large
    compared with their differences, such as total energies.
    """
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return f"{float(str(single)):.9g}"  # nine digits are always enough


@dataclass(frozen=True)
class SavedPredictions:
    """Targets and predictions of M graphs, read from a run folder."""

    rows: list[str]  # row of the table, or number of the graph
    smiles: list[str]  # empty unless the graphs are molecules
    targets: list[str]  # names of the target columns
    target: np.ndarray  # [M, targets]; classes are numbers, missing values NaN
    mean: np.ndarray  # [M, outputs]
    std: np.ndarray  # [M, outputs]
    ends: np.ndarray  # [M, 2 · outputs] lower and upper ends of intervals; [M, 0] if there are none

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def read(cls, path: Path, task: Task | None = None) -> SavedPredictions:
        """Read a file in either layout.

        Runs on tables write ``row,smiles,logP,logP_pred,logP_std``, and for the test set also
        ``logP_lower,logP_upper``; runs on other graphs, and runs of version 0.1, write
        ``graph,target_0,mean_0,std_0``.

        Args:
            path: The file.
            task: The task of the run, which says how many targets and outputs there are. Without
                it, columns are told apart by their names, and a target must not be named like a
                prediction (``logP_std``).

        Raises:
            GrassError: The columns or cells of the file are not valid.
        """
        text = read_text(path, _LARGEST_FILE)
        header, *rows = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
        places, classes = _by_place(header, task) or _by_name(header)
        if not (places["row"] and places["target"] and places["mean"]):
            raise GrassError(f"The file {path} is damaged: it has no predictions.")
        try:
            return cls(
                [row[places["row"][0]] for row in rows],
                [row[place] for row in rows for place in places["smiles"][:1]],
                [header[place] for place in places["target"]],
                _numbers(rows, places["target"], classes),
                _numbers(rows, places["mean"]),
                _numbers(rows, places["std"]),
                _numbers(rows, places["end"]),
            )
        except (ValueError, IndexError) as error:
            raise GrassError(f"The file {path} is damaged: {error}.") from None


def _by_place(header: Sequence[str], task: Task | None) -> _Columns | None:
    """The columns of a table, if there are as many as the task has."""
    if task is None or list(header[:2]) != ["row", "smiles"]:
        return None
    for output in (["mean", "std"], ["mean", "std", "end", "end"]):
        kinds = ["row", "smiles", *["target"] * task.target_columns, *output * task.outputs]
        if len(kinds) == len(header):
            places = _places(kinds)
            start = f"{header[2]}_prob_"
            names = [header[place].removeprefix(start) for place in places["mean"]]
            return places, names if task.classes else []
    return None


def _by_name(header: Sequence[str]) -> _Columns:
    """The columns of a file of either layout."""
    places = _places([_kind(name, header) for name in header])
    probabilities = [place for place in places["mean"] if "_prob_" in header[place]]
    if len(probabilities) > 1:  # one column per class, and another with the name of the best
        places["mean"] = probabilities
    classes = [header[place].partition("_prob_")[2] for place in probabilities]
    # One such column is of two classes, 0 and 1 in the file.
    return places, classes if len(classes) > 1 else []


def _places(kinds: Sequence[str]) -> dict[str, list[int]]:
    """The places of each kind of column."""
    return {
        kind: [place for place, found in enumerate(kinds) if found == kind]
        for kind in ("row", "smiles", "target", "mean", "std", "end")
    }


def _kind(name: str, header: Sequence[str]) -> str:
    """The content of a column, according to its name."""
    if name in ("row", "graph"):
        return "row"
    if name == "smiles":
        return "smiles"
    if header[0] == "graph":
        return name.rpartition("_")[0]  # target_0, mean_0, std_0
    for kind, pattern in (("std", _STD), ("mean", _MEAN), ("end", _END)):
        if (found := pattern.fullmatch(name)) and found[1] in header:
            return kind
    return "target"


def _numbers(
    rows: Sequence[Sequence[str]], places: Sequence[int], classes: Sequence[str] = ()
) -> np.ndarray:
    cells = [[_number(row[place], classes) for place in places] for row in rows]
    return np.array(cells, dtype=float).reshape(len(rows), len(places))


def _number(cell: str, classes: Sequence[str]) -> float:
    if cell in classes:
        return float(classes.index(cell))
    return float(cell) if cell else math.nan
