"""A random forest on fingerprints and descriptors, scored on the test rows of a table.

Every run on a table is compared with it: a network that does not beat a forest is of little use,
and a forest takes only seconds.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grass_gnn.data.tables.dataset import TableData
from grass_gnn.data.tables.descriptors import MORGAN_COUNTS, descriptor_names
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.progress import report_progress
from grass_gnn.tasks import METRICS, Task, make_task

logger = logging.getLogger(__name__)

MOST_TEST = 10_000  # test rows, above which there is no baseline
# Training rows times targets, above which rows are drawn at random: about a minute of CPU time.
_MOST_NUMBERS, _MOST_LABELS = 8_000, 42_000
_FEW = 1_000  # training rows, below which each split of a tree looks at all columns
_TREES = 100


@dataclass(frozen=True)
class Baseline:
    """The scores of a random forest.

    Args:
        inputs: What the forest was given.
        rows: Number of training rows: the network's training and validation rows, because a forest
            needs no validation.
        drawn_from: Number of rows that these were drawn from; equal to ``rows`` for most tables.
        test: Each metric of the task on the test rows.
        cpu_seconds: CPU time, without that of the processes that compute descriptors.
    """

    inputs: str
    rows: int
    drawn_from: int
    test: dict[str, float]
    cpu_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``results.json``."""
        return {"model": "random forest", **asdict(self)}


def describe_baseline(found: dict[str, Any], metric: str) -> str:
    """One sentence about a baseline in ``results.json``."""
    value = found["test"].get(metric, math.nan)
    drawn = f" of {found['drawn_from']:,}" if found["drawn_from"] > found["rows"] else ""
    return (
        f"Baseline: a {found['model']} on {found['inputs']} gets {METRICS[metric].title} "
        f"{value:.4f} on the same test rows (trained on {found['rows']:,}{drawn} training and "
        "validation rows)."
    )


def forest_baseline(data: TableData, seed: int = 0, workers: int | None = None) -> Baseline | None:
    """Train a random forest on the training and validation rows, and score it on the test rows.

    Its inputs are 2,048 Morgan counts of radius 2, RDKit's 2D descriptors, and the descriptors in
    the table's columns. There is one forest for each target, trained on the rows where it is known.

    Args:
        data: The table.
        seed: Random seed.
        workers: Processes that compute descriptors.

    Returns:
        The scores; None if scikit-learn is not installed or the table is too large.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        logger.info("No baseline: it needs scikit-learn (pip install 'grass-gnn[chem]').")
        return None
    if len(data.splits["test"]) > MOST_TEST:
        logger.info("No baseline: the table has more than %s test rows.", f"{MOST_TEST:,}")
        return None
    started = time.process_time()
    task, rows = make_task(data.task), _Rows(data)
    places = rows.of("train") + rows.of("val")
    most = _MOST_LABELS if task.predicts_probabilities else _MOST_NUMBERS
    most = max(most // task.target_columns, _FEW)
    chosen = sorted(np.random.default_rng(seed).permutation(len(places))[:most])
    train, test = [places[place] for place in chosen], rows.of("test")
    inputs = rows.inputs(train + test, workers)  # [train + test, columns]
    fitted, asked = _useful(inputs[: len(train)], inputs[len(train) :])
    targets = torch.stack([rows.targets[place].reshape(-1) for place in train]).double().numpy()
    prediction = _predict(task, fitted, targets, asked, seed)  # [test, outputs]
    truth = torch.stack([rows.targets[place].reshape(-1) for place in test])
    scores = {name: task.score(prediction, task.as_targets(truth), name) for name in task.metrics}
    return Baseline(
        rows.describe,
        len(train),
        len(places),
        {name: value for name, value in scores.items() if not math.isnan(value)},
        round(time.process_time() - started, 2),
    )


class _Rows:
    """The usable rows of a table, in the order of its splits."""

    def __init__(self, data: TableData) -> None:
        self.splits, self.smiles, self.targets, self.columns = [], [], [], []
        graphs = {name: iter(split) for name, split in data.splits.items()}
        columns = len(data.schema.descriptors)
        for row in data.rows:
            if row.problem or row.split is None:
                continue
            graph = next(graphs[row.split])
            self.splits.append(row.split)
            self.smiles.append(row.smiles)
            self.targets.append(graph.y)
            self.columns.append(graph.descriptors.view(-1)[:columns].tolist() if columns else [])
        self.names = tuple(descriptor_names())

    def of(self, split: str) -> list[int]:
        """Numbers of the rows of a split."""
        return [place for place, own in enumerate(self.splits) if own == split]

    @property
    def describe(self) -> str:
        """The inputs in a few words."""
        parts = [f"{MORGAN_COUNTS:,} Morgan counts", f"{len(self.names)} RDKit descriptors"]
        if count := len(self.columns[0]):
            parts.append(f"{count} column{'s' * (count > 1)} of the table")
        return f"{', '.join(parts[:-1])} and {parts[-1]}"

    def inputs(self, places: Sequence[int], workers: int | None) -> np.ndarray:
        """Inputs of some rows [rows, columns]; NaN where a descriptor is undefined."""
        reader = MoleculeReader(descriptors=dict.fromkeys(self.names, math.nan), counts=True)
        width = MORGAN_COUNTS + len(self.names) + len(self.columns[0])
        found = np.full((len(places), width), math.nan, dtype=np.float32)
        with ReadingPool(reader, workers) as pool, np.errstate(over="ignore"):
            molecules = pool.read([self.smiles[place] for place in places])
            for number, molecule in enumerate(molecules):
                if isinstance(molecule, Molecule):  # else it stays empty
                    own = self.columns[places[number]]
                    found[number] = np.concatenate([molecule.counts, molecule.descriptors, own])
                report_progress("Computing descriptors", number + 1, len(places))
        return found


def _useful(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns that differ in at least two training rows, gaps filled with the median."""
    limit = np.finfo(np.float32).max
    train, test = (np.where(np.isinf(x), np.copysign(limit, x), x) for x in (train, test))
    known = np.isfinite(train).any(axis=0)
    train, test = train[:, known], test[:, known]
    median = np.nanmedian(train, axis=0)
    train, test = (np.where(np.isnan(x), median, x) for x in (train, test))
    varied = (train != median).sum(axis=0) > 1
    return train[:, varied], test[:, varied]


def _predict(
    task: Task, train: np.ndarray, targets: np.ndarray, test: np.ndarray, seed: int
) -> Tensor:
    """Values or probabilities of the test rows [M, outputs]."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    if train.shape[1] == 0:  # all molecules are alike
        train, test = np.zeros((len(train), 1)), np.zeros((len(test), 1))
    prediction = torch.zeros(len(test), task.outputs, dtype=torch.float64)
    for column in range(targets.shape[1]):
        known = ~np.isnan(targets[:, column])
        x, y = train[known], targets[known, column]
        report_progress("Training the baseline", column + 1, targets.shape[1])
        if len(y) == 0:  # validation scores nothing here either
            prediction[:, column] = math.nan
        elif not task.predicts_probabilities:
            columns = 1.0 if len(y) < _FEW else 0.1
            forest = RandomForestRegressor(_TREES, max_features=columns, random_state=seed)
            prediction[:, column] = torch.from_numpy(forest.fit(x, y).predict(test))
        else:
            trees = 2 * _TREES if targets.shape[1] < 3 else _TREES
            forest = RandomForestClassifier(trees, random_state=seed).fit(x, y)
            found = torch.from_numpy(forest.predict_proba(test))  # [M, classes in training]
            for place, label in enumerate(forest.classes_.astype(int).tolist()):
                if task.classes:
                    prediction[:, label] = found[:, place]
                elif label == 1:
                    prediction[:, column] = found[:, place]
    return prediction
