"""A forest on fingerprints and descriptors: averaged with the network, and a baseline.

Every run on a table fits one to its training and validation rows, which takes seconds. It is
averaged with the network (:mod:`grass_gnn.evaluation.forest`), and its own scores on the test rows
are shown beside, because a network that does not beat a forest is of little use.

Its trees are extremely randomised ones (Geurts et al. 2006), each fitted to a bootstrap sample, so
that every row can be predicted by trees that have not seen it. On training and validation rows of
FreeSolv they are better than the trees of a random forest (RMSE 1.26 and 1.39 in four-fold
cross-validation), and faster.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grass_gnn.config import GRASSConfig
from grass_gnn.data.tables.dataset import TableData
from grass_gnn.data.tables.descriptors import (
    MORGAN_COUNTS,
    descriptor_names,
    fill_columns,
    useful_columns,
)
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.evaluation.forest import Forest, ForestPrediction, bounded
from grass_gnn.evaluation.gaussian_process import MOST_OUTPUTS, GaussianProcess, fit_process
from grass_gnn.evaluation.gaussian_process import MOST_ROWS as MOST_PROCESS_ROWS
from grass_gnn.evaluation.predictions import RowNames, SavedPredictions, write_predictions
from grass_gnn.evaluation.stack import (
    ARRAYS,
    FILE,
    ForestCard,
    Stack,
    fit_reach,
    fit_shares,
    with_process,
)
from grass_gnn.evaluation.trained import Prediction, read_card
from grass_gnn.files import write_json
from grass_gnn.progress import report_progress
from grass_gnn.tasks import CONSTANT, METRICS, TINY, Task, format_score, make_task
from grass_gnn.training.run import Run

logger = logging.getLogger(__name__)

MOST_ROWS = 10_000  # test or validation rows, above which there is no forest
# Training rows times targets, above which rows are drawn at random: about a minute of CPU time.
_MOST_NUMBERS, _MOST_LABELS = 8_000, 42_000
_FEW = 1_000  # training rows, below which each split of a tree looks at all columns
_TREES = 100
MODEL = "forest of extra trees"
_MOST_NODES = 600_000  # of all trees together: 10 MB


@dataclass(frozen=True)
class Baseline:
    """The scores of a forest.

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
        return {"model": MODEL, **asdict(self)}


@dataclass(frozen=True)
class FittedForest:
    """A forest that was fitted to a table, with its predictions of the other splits."""

    forest: Forest
    descriptors: list[str]  # of RDKit
    columns: int  # of the table
    splits: dict[str, ForestPrediction]  # val by trees that were not fitted to its rows, and test
    baseline: Baseline
    process: GaussianProcess | None = None
    process_splits: dict[str, Prediction] = field(default_factory=dict)
    process_shares: list[float] | None = None  # in the average of process and forest


def describe_baseline(found: dict[str, Any], metric: str) -> str:
    """One sentence about a baseline in ``results.json``; empty if its score is undefined."""
    value = found["test"].get(metric, math.nan)
    if math.isnan(value):
        return ""
    drawn = f" of {found['drawn_from']:,}" if found["drawn_from"] > found["rows"] else ""
    return (
        f"Baseline: a {found['model']} on {found['inputs']} gets {METRICS[metric].title} "
        f"{format_score(value)} on the same test rows (trained on {found['rows']:,}{drawn} "
        "training and validation rows)."
    )


def fit_forest(
    data: TableData, seed: int = 0, workers: int | None = None, process: bool = True
) -> FittedForest | None:
    """Train a forest on the training and validation rows, and score it on the test rows.

    Its inputs are 2,048 Morgan counts of radius 2, RDKit's 2D descriptors, and the descriptors in
    the table's columns. There is one forest for each target, trained on the rows where it is known.

    Args:
        data: The table.
        seed: Random seed.
        workers: Processes that compute descriptors.
        process: Fit a Gaussian process, too, unless there are too many validation rows or outputs.

    Returns:
        The forest; None if scikit-learn is not installed or the table is too large.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        logger.info("No forest: it needs scikit-learn (pip install 'grass-gnn[chem]').")
        return None
    if max(len(data.splits[name]) for name in ("val", "test")) > MOST_ROWS:
        logger.info("No forest: a split of the table has more than %s rows.", f"{MOST_ROWS:,}")
        return None
    started = time.process_time()
    task, rows = make_task(data.task), _Rows(data)
    val, test = rows.of("val"), rows.of("test")
    places = rows.of("train") + val
    train = _draw(places, task, seed)
    inputs = rows.inputs([*train, *val, *test], workers)  # [rows, columns]
    own, held, asked = np.split(inputs, [len(train), len(train) + len(val)])
    forest, drawn = _fit(task, own, rows.truth(train), seed)
    used = _used_rows(drawn, len(train))
    place = {row: number for number, row in enumerate(train)}
    known = [place.get(row, -1) for row in val]
    splits = {
        "val": bounded(forest.predict(held, task.outputs, used[:, known]), task),
        "test": bounded(forest.predict(asked, task.outputs), task),
    }
    baseline = Baseline(
        rows.describe,
        len(train),
        len(places),
        _known_scores(task, splits["test"], rows.truth(test)),
        round(time.process_time() - started, 2),
    )
    fitted = FittedForest(forest, list(rows.names), len(rows.columns[0]), splits, baseline)
    if not process or task.outputs > MOST_OUTPUTS or len(val) > MOST_PROCESS_ROWS // 2:
        return fitted
    # The rows of the process: training rows in random order, then the validation rows.
    shuffled = np.random.default_rng(seed).permutation(len(train))
    first = [number for number in shuffled if rows.splits[train[number]] == "train"]
    first = first[: MOST_PROCESS_ROWS - len(val)]
    columns = np.concatenate([own[first], held])
    targets = rows.truth([*(train[number] for number in first), *val])
    return _with_process(fitted, task, columns, targets, used[:, [*first, *known]], asked)


def _draw(places: Sequence[int], task: Task, seed: int) -> list[int]:
    """The rows that the forest is fitted to: all of them, or as many as take about a minute."""
    most = _MOST_LABELS if task.predicts_probabilities else _MOST_NUMBERS
    most = max(most // task.target_columns, _FEW)
    chosen = sorted(np.random.default_rng(seed).permutation(len(places))[:most])
    return [places[place] for place in chosen]


def _used_rows(drawn: Sequence[set[int]], rows: int) -> np.ndarray:
    """Which rows each tree was fitted to [trees, rows + 1], and hence does not predict.

    The last place is that of validation rows that were not drawn for the forest.
    """
    used = np.zeros((len(drawn), rows + 1), dtype=bool)
    for tree, numbers in enumerate(drawn):
        used[tree, list(numbers)] = True
    return used


def _known_scores(task: Task, found: ForestPrediction, targets: np.ndarray) -> dict[str, float]:
    """Each metric of the task, unless it is undefined on these rows."""
    truth = task.as_targets(torch.from_numpy(targets))
    scores = {name: task.score(found.mean, truth, name) for name in task.metrics}
    return {name: value for name, value in scores.items() if not math.isnan(value)}


def _with_process(
    fitted: FittedForest,
    task: Task,
    columns: np.ndarray,
    targets: np.ndarray,
    used: np.ndarray,
    asked: np.ndarray,
) -> FittedForest:
    """The forest with a Gaussian process, if one can be fitted, and its share in their average.

    Args:
        fitted: The forest.
        task: The task.
        columns: Columns of the rows of the process [rows, columns]; validation rows come last.
        targets: Their targets [rows, targets].
        used: Which of these rows each tree was fitted to [trees, rows].
        asked: Columns of the test rows.
    """
    held = len(fitted.splits["val"].mean)
    process, ahead = fit_process(columns, targets, held, task)
    if not process.fitted:
        return fitted
    trees = bounded(fitted.forest.predict(columns, task.outputs, used), task)
    shares = fit_shares(ahead.mean, trees.mean, task.as_targets(torch.from_numpy(targets)), task)
    on_val = Prediction(*(part[len(columns) - held :] for part in ahead))
    predictions = {"val": on_val, "test": process.predict(asked, task)}
    return replace(fitted, process=process, process_splits=predictions, process_shares=shares)


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

    def truth(self, places: Sequence[int]) -> np.ndarray:
        """Targets of some rows [rows, targets], NaN where one is missing."""
        return torch.stack([self.targets[place].reshape(-1) for place in places]).double().numpy()

    def inputs(self, places: Sequence[int], workers: int | None) -> np.ndarray:
        """Columns of some rows [rows, columns]; NaN where a descriptor is undefined."""
        different = list(dict.fromkeys(places))
        width = MORGAN_COUNTS + len(self.names) + len(self.columns[0])
        found = np.full((len(different), width), math.nan, dtype=np.float32)
        with ReadingPool(MoleculeReader(forest=self.names), workers) as pool:
            molecules = pool.read([self.smiles[place] for place in different])
            for number, molecule in enumerate(molecules):
                if isinstance(molecule, Molecule):  # else it stays empty
                    own = self.columns[different[number]]
                    found[number] = np.concatenate([molecule.columns, own])
                report_progress("Computing descriptors", number + 1, len(different))
        order = {place: number for number, place in enumerate(different)}
        return found[[order[place] for place in places]]


def _fit(
    task: Task, columns: np.ndarray, targets: np.ndarray, seed: int
) -> tuple[Forest, list[set[int]]]:
    """A forest from columns [rows, columns] and targets [rows, targets].

    Returns:
        The forest, and the rows that each tree was fitted to.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    chosen, median = useful_columns(columns)
    inputs = fill_columns(columns, chosen, median)
    if not inputs.shape[1]:  # all molecules are alike
        inputs = np.zeros((len(inputs), 1), dtype=np.float32)
    trees: list[tuple[int, Any, np.ndarray]] = []
    errors: list[np.ndarray] = []  # of the leaves of each tree
    drawn: list[set[int]] = []
    most = _MOST_NODES // targets.shape[1]
    for target in range(targets.shape[1]):
        known = np.flatnonzero(~np.isnan(targets[:, target]))
        x, y = inputs[known], targets[known, target]
        report_progress("Training the forest", target + 1, targets.shape[1])
        if not len(y):
            continue
        if not task.predicts_probabilities:
            share = 1.0 if len(y) < _FEW else 0.3
            options = {"max_features": share, "bootstrap": True, "random_state": seed}
            forest = ExtraTreesRegressor(_TREES, **options)
        else:
            count = 2 * _TREES if targets.shape[1] < 3 else _TREES
            forest = ExtraTreesClassifier(count, bootstrap=True, random_state=seed)
        unit = 1.0 if task.predicts_probabilities else _unit(y)
        forest.fit(x, y / unit)
        nodes = np.cumsum([tree.tree_.node_count for tree in forest.estimators_])
        kept = max(1, int((nodes <= most).sum()))
        classes = getattr(forest, "classes_", None)
        samples = forest.estimators_samples_
        for tree, own in zip(forest.estimators_[:kept], samples[:kept], strict=True):
            trees.append((target, tree.tree_, unit * _values(tree.tree_, classes, task)))
            drawn.append(set(known[own].tolist()))
        if not task.predicts_probabilities:
            found = _leaf_errors(forest.estimators_[:kept], samples[:kept], x, y / unit)
            errors += [unit * own for own in found]
    flat = _flatten(trees, task.classes or 1)
    error = np.concatenate(errors).astype(np.float32) if errors else None
    return Forest(**flat, columns=chosen, median=median, error=error), drawn


def _unit(targets: np.ndarray) -> float:
    """What numbers are divided by: scikit-learn does not split nodes whose variance is tiny."""
    spread = float(targets.std())
    constant = spread <= CONSTANT * float(np.abs(targets).max())
    return 1.0 if constant or spread > TINY else spread


def _leaf_errors(
    trees: Sequence[Any], samples: Sequence[np.ndarray], x: np.ndarray, y: np.ndarray
) -> list[np.ndarray]:
    """The mean absolute error, out of bag, of the rows that the leaves of each tree were fitted to.

    Args:
        trees: Trees of one target.
        samples: The rows that each was fitted to, some of them several times.
        x: Inputs of all rows [rows, inputs].
        y: Their targets [rows].
    """
    reached = [tree.apply(x) for tree in trees]  # nodes [rows] of each tree
    total, count = np.zeros((2, len(y)))
    for tree, nodes, own in zip(trees, reached, samples, strict=True):
        out_of_bag = np.bincount(own, minlength=len(y)) == 0
        total += out_of_bag * tree.tree_.value[nodes, 0, 0]
        count += out_of_bag
    error = np.abs(total / np.maximum(count, 1) - y)
    known = count > 0
    error[~known] = error[known].mean() if known.any() else 0.0
    found = []
    for tree, nodes, own in zip(trees, reached, samples, strict=True):
        leaf = tree.tree_.children_left < 0
        rows = np.bincount(nodes[own], minlength=len(leaf))[leaf]  # no leaf is empty
        found.append(np.bincount(nodes[own], error[own], minlength=len(leaf))[leaf] / rows)
    return found


def _values(tree: Any, classes: np.ndarray | None, task: Task) -> np.ndarray:
    """The value of each node [nodes, 1 or classes]: a number, or probabilities."""
    value: np.ndarray = tree.value[:, 0, :]  # [nodes, 1 or classes in training]
    if classes is None:
        return value
    value = value / value.sum(axis=1, keepdims=True)
    found = np.zeros((len(value), task.classes or 2))
    found[:, classes.astype(int)] = value
    return found if task.classes else found[:, 1:]


def _flatten(trees: Sequence[tuple[int, Any, np.ndarray]], width: int) -> dict[str, np.ndarray]:
    """The arrays of scikit-learn's trees, each given with its target and the values of its nodes.

    Args:
        trees: The trees.
        width: Number of values in a leaf.
    """
    parts: dict[str, list[np.ndarray]] = {"feature": [], "threshold": [], "child": [], "value": []}
    roots, targets, nodes, leaves = [], [], 0, 0
    for target, tree, value in trees:
        leaf = tree.children_left < 0
        place = np.arange(tree.node_count)
        assert (tree.children_left[~leaf] == place[~leaf] + 1).all()  # depth first
        exact = tree.threshold
        rounded = exact.astype(np.float32)
        down = np.nextafter(rounded, np.float32(-np.inf))
        roots.append(nodes)
        targets.append(target)
        parts["feature"].append(np.where(leaf, -1, tree.feature))
        parts["threshold"].append(np.where(leaf, 0, np.where(rounded > exact, down, rounded)))
        inner = nodes + tree.children_right
        parts["child"].append(np.where(leaf, leaves + np.cumsum(leaf) - 1, inner))
        parts["value"].append(value[leaf])
        nodes += tree.node_count
        leaves += int(leaf.sum())
    kinds = {"feature": np.int32, "threshold": np.float32, "child": np.int32, "value": np.float32}
    found = {
        name: np.concatenate([np.empty((0, width)[: 1 + (name == "value")]), *own]).astype(kind)
        for (name, own), kind in zip(parts.items(), kinds.values(), strict=True)
    }
    found["roots"] = np.array(roots, dtype=np.int32)
    found["targets"] = np.array(targets, dtype=np.int32)
    return found


def add_forest(run: Run, fitted: FittedForest, names: Mapping[str, RowNames]) -> Run:
    """Average the network of a finished run with a forest and its Gaussian process.

    The network's share is fitted to the validation rows. Predictions and scores of the run become
    those of the average; ``results.json`` keeps the scores of each member.

    Args:
        run: The finished run of the network.
        fitted: The forest.
        names: Names of the rows and columns of the files of predictions.
    """
    card = read_card(run.folder)
    task = make_task(GRASSConfig.from_dict(card["config"], str(run.folder)).task)
    files = {split: run.folder / f"{split}_predictions.csv" for split in fitted.splits}
    saved = {split: SavedPredictions.read(path, task) for split, path in files.items()}
    network = {
        split: Prediction(torch.from_numpy(own.mean), torch.from_numpy(own.std))
        for split, own in saved.items()
    }
    target = {split: task.as_targets(torch.from_numpy(own.target)) for split, own in saved.items()}
    others = fitted.splits
    if fitted.process_shares is not None:
        others = {
            split: with_process(own, fitted.process_splits[split], fitted.process_shares, task)
            for split, own in fitted.splits.items()
        }
    held = (network["val"].mean, others["val"].mean)
    stack = Stack(
        fitted.forest,
        ForestCard(
            model=card["weights_sha256"],
            descriptors=fitted.descriptors,
            columns=fitted.columns,
            shares=fit_shares(*held, target["val"], task),
            rows=len(saved["val"]),
            even_spread=True,
            reach=fit_reach(*held, task),
            process_shares=fitted.process_shares,
        ),
        task,
        fitted.splits,
        fitted.process,
        fitted.process_splits,
    )
    results = {**run.results, "baseline": fitted.baseline.to_dict()}
    for split, own in network.items():
        both = stack.combine(own, others[split])
        write_predictions(files[split], target[split], both.mean, both.std, names.get(split))
        results[split] = stack.rescore(results[split], own, target[split], split)
    stack.save(run.folder)
    write_json(run.folder / "results.json", results)
    return replace(run, results=results)


def remove_forest(folder: Path) -> None:
    """Let the network of a run predict alone."""
    for name in (FILE, ARRAYS):
        (folder / name).unlink(missing_ok=True)
