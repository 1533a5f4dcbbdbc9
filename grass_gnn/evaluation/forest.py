"""The forest of a run on molecules.

``train`` fits it with scikit-learn (:mod:`grass_gnn.api.forest`); here it is plain arrays, which
need neither scikit-learn nor pickle.

A forest of numbers also knows where it errs. Every row was left out by a third of the trees, so
its error can be measured on them (out of bag), and each leaf keeps the mean absolute error of its
rows. For a new molecule, the average over the leaves it reaches says how large the errors of
similar training molecules are: an indicator of its own error that rests on the whole training set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grass_gnn.data.tables.descriptors import fill_columns
from grass_gnn.files import select_arrays
from grass_gnn.tasks import Task

_CHUNK = 512  # rows that are predicted together
_LEAST = 1e-3  # probability that a forest gives a class; trees often agree on 0

# Type and number of dimensions of each array in the file.
_ARRAYS = {
    "feature": (np.int32, 1),
    "threshold": (np.float32, 1),
    "child": (np.int32, 1),
    "value": (np.float32, 2),
    "roots": (np.int32, 1),
    "targets": (np.int32, 1),
    "columns": (np.int32, 1),
    "median": (np.float32, 1),
}
_ERROR = "error"  # one more array, float32 and of one dimension, which earlier versions do not have


class ForestPrediction(NamedTuple):
    """What the trees of a forest say about M molecules."""

    mean: Tensor  # [M, outputs] NaN where there are no trees
    std: Tensor  # [M, outputs] over trees
    error: Tensor  # [M, outputs] error of training rows in the same leaves; NaN where not known


@dataclass(frozen=True)
class Forest:
    """Trees as arrays; those of all targets one after the other.

    The left child of a node, for values up to the threshold, is the next node. Thresholds are
    rounded down to float32, which changes no comparison, because the inputs are float32.
    """

    feature: np.ndarray  # [nodes] input that is compared with the threshold; −1 in leaves
    threshold: np.ndarray  # [nodes]
    child: np.ndarray  # [nodes] right child; in leaves, the row of ``value``
    value: np.ndarray  # [leaves, 1 or classes]
    roots: np.ndarray  # [trees]
    targets: np.ndarray  # [trees] target that each tree predicts
    columns: np.ndarray  # [inputs] which of the columns of molecules are inputs
    median: np.ndarray  # [inputs] values of columns that are not defined for a molecule
    # [leaves] mean absolute error, out of bag, of the rows that a leaf was fitted to. None for
    # probabilities, and in files of earlier versions.
    error: np.ndarray | None = None

    def leaves(self, columns: np.ndarray) -> np.ndarray:
        """The leaf that each row reaches in each tree, as a row of ``value`` [trees, M]."""
        parts = [columns[first : first + _CHUNK] for first in range(0, len(columns), _CHUNK)]
        return np.concatenate(
            [self._leaves(fill_columns(part, self.columns, self.median)) for part in parts], axis=1
        )

    def _leaves(self, inputs: np.ndarray) -> np.ndarray:
        rows = np.arange(len(inputs))  # [M]
        node = np.repeat(self.roots[:, None], len(inputs), axis=1)  # [trees, M]
        while (inner := self.feature[node] >= 0).any():
            values = inputs[rows, np.where(inner, self.feature[node], 0)]
            # Children come after their parents (checked when a file is read), so this ends.
            following = np.where(values <= self.threshold[node], node + 1, self.child[node])
            node = np.where(inner, following, node)
        return self.child[node]

    def predict(
        self, columns: np.ndarray, outputs: int, fitted: np.ndarray | None = None
    ) -> ForestPrediction:
        """Mean and standard deviation over trees, and the mean of the errors in the leaves.

        Args:
            columns: All columns of the molecules [M, columns].
            outputs: Number of outputs of the task.
            fitted: Which trees were fitted to which rows, and do not predict them [trees, M].
        """
        leaves = self.leaves(columns)  # [trees, M]
        votes = self.value[leaves].astype(np.float64)  # [trees, M, 1 or classes]
        weight = np.ones(leaves.shape) if fitted is None else (~fitted).astype(np.float64)
        mean, std, error = np.full((3, len(columns), outputs), math.nan)
        for target in np.unique(self.targets):
            trees = self.targets == target
            own, share = votes[trees], weight[trees]
            with np.errstate(invalid="ignore"):
                share = (share / share.sum(axis=0))[..., None]  # NaN for rows without trees
            center = (share * own).sum(axis=0)
            places = slice(None) if own.shape[2] > 1 else slice(target, target + 1)
            mean[:, places] = center
            std[:, places] = np.sqrt((share * np.square(own - center)).sum(axis=0))
            if self.error is not None:
                error[:, places] = (share * self.error[leaves[trees]][..., None]).sum(axis=0)
        return ForestPrediction(*(torch.from_numpy(part) for part in (mean, std, error)))

    def check(self, outputs: int) -> bool:
        """Whether the arrays of a file fit together, and no tree has a cycle."""
        nodes, inner = len(self.feature), self.feature >= 0
        place = np.arange(nodes)
        width = self.value.shape[1]
        return bool(
            len(self.threshold) == len(self.child) == nodes
            and len(self.roots) == len(self.targets)
            and len(self.columns) == len(self.median)
            and (width == 1 or width == outputs)
            and (self.columns >= 0).all()
            and np.isfinite(self.median).all()
            and np.isfinite(self.value).all()
            and (self.error is None or self._fits(self.error))
            and (self.feature < len(self.columns)).all()
            and ((self.child > place + 1) & (self.child < nodes))[inner].all()
            and ((self.child >= 0) & (self.child < len(self.value)))[~inner].all()
            and ((self.roots >= 0) & (self.roots < nodes)).all()
            and ((self.targets >= 0) & (self.targets < outputs)).all()
        )

    def _fits(self, error: np.ndarray) -> bool:
        same = error.dtype == np.float32 and error.shape == (len(self.value),)
        return same and bool((np.isfinite(error) & (error >= 0)).all())

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays, by name."""
        found = {name: getattr(self, name) for name in _ARRAYS}
        return found if self.error is None else found | {_ERROR: self.error}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], outputs: int) -> Forest:
        """From the arrays of a file.

        Raises:
            LookupError: An array is missing.
            ValueError: The arrays do not fit together.
        """
        found = cls(**select_arrays(arrays, _ARRAYS), error=arrays.get(_ERROR))
        if not found.check(outputs):
            raise ValueError("the parts of the forest do not fit together")
        return found


def leaf_errors(forests: Sequence[ForestPrediction | None]) -> np.ndarray | None:
    """The mean over the forests of an ensemble of the errors in their leaves [M, outputs].

    None if a model has no forest, or one of an earlier version. The few validation rows that no
    tree has left out get the mean of the others.
    """
    known = [one.error.double() for one in forests if one is not None]
    if not known or len(known) < len(forests):
        return None
    found = torch.stack(known).mean(dim=0)
    usual = found.nanmean(dim=0)  # [outputs]
    return None if bool(usual.isnan().any()) else torch.where(found.isnan(), usual, found).numpy()


def bounded(forest: ForestPrediction, task: Task) -> ForestPrediction:
    """Predictions of a forest, with probabilities that are never 0 or 1."""
    if not task.predicts_probabilities:
        return forest
    mean = forest.mean.clamp(min=_LEAST, max=1 - _LEAST)
    if task.classes:
        mean = mean / mean.sum(dim=1, keepdim=True)
    return forest._replace(mean=mean)
