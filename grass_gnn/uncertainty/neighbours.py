"""The training graphs that are nearest to a graph in the model's own representation.

Errors are larger where a graph is far from all training graphs, where its prediction disagrees with
their targets, and where the model does not fit them well. All three are measured among the nearest
training graphs in the space of the input of the head. At most 2,000 random training graphs are
kept. The calibration (:mod:`grass_gnn.uncertainty.calibration`) learns how much each of them says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import read_checked, write_checked

_KEPT = 2000  # training graphs
_LARGEST_FILE = 64 << 20  # bytes
_NEAREST = 10  # neighbours whose targets and residuals are averaged
_CLOSEST = 5  # neighbours whose mean distance is that of a graph
_CONSTANT = 1e-3  # columns that vary less than this, relative to the median column, are left out


class Usual(NamedTuple):
    """Means over the reference, [outputs] each."""

    target: np.ndarray
    variance: np.ndarray  # of the targets
    residual: np.ndarray  # absolute


class Nearness(NamedTuple):
    """How M graphs and their predictions compare with their nearest training graphs."""

    distance: np.ndarray  # [M] in units of the typical distance among training graphs
    disagreement: np.ndarray  # [M, outputs] between the prediction and the neighbours' targets
    residual: np.ndarray  # [M, outputs] absolute residuals of the neighbours
    dissimilarity: np.ndarray | None = None  # [M] 1 − maximum Tanimoto similarity, of molecules
    leaf_error: np.ndarray | None = None  # [M, outputs] of the forest, in the leaves they reach

    def rows(self, chosen: np.ndarray) -> Nearness:
        """Of some of the graphs."""
        last = (
            None if one is None else one[chosen] for one in (self.dissimilarity, self.leaf_error)
        )
        return Nearness(
            self.distance[chosen], self.disagreement[chosen], self.residual[chosen], *last
        )

    @classmethod
    def join(cls, parts: Sequence[Nearness]) -> Nearness:
        """Of several sets of graphs; what is not known of all of them is left out."""
        return cls(
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.disagreement for part in parts]),
            np.concatenate([part.residual for part in parts]),
            _joined([part.dissimilarity for part in parts]),
            _joined([part.leaf_error for part in parts]),
        )


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


@dataclass(frozen=True)
class Neighbours:
    """Training graphs with their representations, targets and residuals."""

    latents: np.ndarray  # [R, columns] standardised
    targets: np.ndarray  # [R, outputs] NaN where one is missing
    residuals: np.ndarray  # [R, outputs] |fitted value − target|, NaN where it is missing
    center: np.ndarray  # [columns]
    scale: np.ndarray  # [columns] zero for columns that are left out
    typical: float  # median distance of a training graph to its closest others

    @classmethod
    def of(cls, embeddings: np.ndarray, targets: np.ndarray, fitted: np.ndarray) -> Neighbours:
        """A reference from the training set.

        Args:
            embeddings: Inputs of the head [R, columns]; of more than 2,000, some at random.
            targets: Targets [R, outputs], NaN where one is missing.
            fitted: What the model predicts for its training set [R, outputs].
        """
        chosen = np.sort(np.random.default_rng(0).permutation(len(embeddings))[:_KEPT])
        embeddings = embeddings[chosen].astype(np.float32)
        center, spread = embeddings.mean(axis=0), embeddings.std(axis=0)
        varied = spread[spread > 0]
        useful = spread > (_CONSTANT * np.median(varied) if len(varied) else np.inf)
        scale = np.where(useful, 1 / np.where(useful, spread, 1), 0).astype(np.float32)
        latents = (embeddings - center) * scale
        targets = targets[chosen].astype(np.float32)
        residuals = np.abs(fitted[chosen].astype(np.float32) - targets)
        found = cls(latents, targets, residuals, center, scale, typical=1.0)
        if len(latents) < 2:
            return found
        between = found._distances(latents)
        np.fill_diagonal(between, np.inf)
        count = min(_CLOSEST, len(latents) - 1)
        closest = np.sort(between, axis=1)[:, :count].mean(axis=1)
        return replace(found, typical=float(np.median(closest)) or 1.0)

    def _distances(self, latents: np.ndarray) -> np.ndarray:
        """Euclidean distances [M, R] of standardised representations [M, columns]."""
        squares = np.square(latents).sum(axis=1)[:, None] + np.square(self.latents).sum(axis=1)
        return np.sqrt(np.maximum(squares - 2 * latents @ self.latents.T, 0.0))

    def compare(
        self,
        embeddings: np.ndarray,
        mean: np.ndarray,
        similarity: np.ndarray | None = None,
        leaf_error: np.ndarray | None = None,
    ) -> Nearness:
        """Compare graphs with the training set.

        Args:
            embeddings: Inputs of the head [M, columns].
            mean: Predictions [M, outputs].
            similarity: Maximum Tanimoto similarity to the training set [M], of molecules.
            leaf_error: Errors in the leaves of the forest that molecules reach [M, outputs].
        """
        if embeddings.shape[1:] != self.center.shape or mean.shape[1:] != self.targets.shape[1:]:
            raise GrassError("The file of neighbours belongs to another model: calibrate again.")
        distances = self._distances((embeddings.astype(np.float32) - self.center) * self.scale)
        dissimilarity = None if similarity is None else 1 - similarity
        near = self._nearness(distances, mean)
        return near._replace(dissimilarity=dissimilarity, leaf_error=leaf_error)

    def leave_one_out(self) -> tuple[Nearness, np.ndarray]:
        """Predict each training graph as the mean of its neighbours.

        Returns:
            How these predictions compare with the neighbours, and their errors [R, outputs].
        """
        distances = self._distances(self.latents)
        np.fill_diagonal(distances, np.inf)
        nearest, weights = self._weights(distances)
        mean = _weighted(self.targets[nearest], weights, self._usual.target)
        return self._nearness(distances, mean), mean - self.targets

    def _weights(self, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nearest graphs of each row [M, k], and their weights."""
        count = min(_NEAREST, int(np.isfinite(distances).sum(axis=1).max(initial=0)))
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :count]
        own = np.take_along_axis(distances, nearest, axis=1) / self.typical
        return nearest, 1 / (own + 0.1)

    def _nearness(self, distances: np.ndarray, mean: np.ndarray) -> Nearness:
        nearest, weights = self._weights(distances)
        closest = np.take_along_axis(distances, nearest[:, :_CLOSEST], axis=1).mean(axis=1)
        squares = np.square(self.targets[nearest] - mean[:, None])  # [M, k, outputs]
        usual = self._usual
        return Nearness(
            closest / self.typical,
            np.sqrt(_weighted(squares, weights, usual.variance + (mean - usual.target) ** 2)),
            _weighted(self.residuals[nearest], weights, usual.residual),
        )

    @cached_property
    def _usual(self) -> Usual:
        """What is usual in the reference, for graphs none of whose neighbours has a target."""
        known = ~np.isnan(self.targets)
        count = np.maximum(known.sum(axis=0), 1)

        def average(values: np.ndarray) -> np.ndarray:
            return np.where(known, values, 0).sum(axis=0, dtype=np.float64) / count

        target = average(self.targets)
        variance = average(np.square(self.targets - target))
        return Usual(target, variance, average(self.residuals))

    def save(self, path: Path) -> str:
        """Write the reference to a file; returns its checksum."""
        data = save_arrays(
            {
                "latents": self.latents.astype(np.float16),
                "targets": self.targets,
                "residuals": self.residuals,
                "center": self.center,
                "scale": self.scale,
                "typical": np.array([self.typical]),
            }
        )
        return write_checked(path, data)

    @classmethod
    def load(cls, path: Path, checksum: str) -> Neighbours:
        """Read a reference.

        Raises:
            GrassError: The file is missing or damaged.
        """
        try:
            arrays = load_arrays(read_checked(path, _LARGEST_FILE, checksum))
            found = cls(
                arrays["latents"].astype(np.float32),
                arrays["targets"],
                arrays["residuals"],
                arrays["center"],
                arrays["scale"],
                float(arrays["typical"][0]),
            )
        except GrassError:
            raise
        except (OSError, SafetensorError, LookupError, ValueError, TypeError) as error:
            raise GrassError(f"The file {path} is damaged: {first_line(error)}.") from None
        rows, columns = found.latents.shape if found.latents.ndim == 2 else (0, 0)
        if not (
            rows
            and found.targets.shape == found.residuals.shape
            and found.targets.ndim == 2
            and len(found.targets) == rows
            and found.center.shape == found.scale.shape == (columns,)
            and found.typical > 0
        ):
            raise GrassError(f"The file {path} is damaged: its parts do not fit together.")
        return found


def _weighted(values: np.ndarray, weights: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """Means [M, outputs] of values [M, k, outputs] with weights [M, k]; NaN is left out.

    Where all values of a row are missing, its mean is the usual one [outputs] or [M, outputs], so
    that no row depends on the others.
    """
    known = ~np.isnan(values)
    total = (weights[..., None] * known).sum(axis=1)
    mean = (weights[..., None] * np.where(known, values, 0)).sum(axis=1) / np.maximum(total, 1e-9)
    return np.where(total > 0, mean, usual)
