"""The applicability domain of a model: how molecules and graphs compare with its training set.

:class:`Domain` lists the elements, charges, rings, sizes and targets that the model has seen. A
molecule outside of it is named in the column ``warning`` of predictions, and its standard deviation
widens, because errors there can be much larger than those that the calibration has seen:

- Elements, charges, isotopes and ring sizes that no training molecule contains add the fractions in
  :data:`ADDED` of the standard deviation of the training targets, each of the four once.
- Sizes beyond the training range add a fraction, too, and the excess relative to the largest
  training molecule.
- Predictions beyond the range of the training targets add the distance to that range.

The fractions were chosen on FreeSolv, with such molecules left out of the training set. Without
them, 90 % intervals contained 46 % of molecules with a new element, 3 % of those with the first
charged atoms, and 50 % of larger ones.

:class:`SimilarityReference` has the maximum Tanimoto similarity to the training set. Fingerprints
are Morgan fingerprints of radius 2 with 1,024 bits. At most 2,000 random training molecules are
kept, so the value is a lower bound of the similarity to the whole training set. A molecule is
outside the domain if it is less similar than 95 % of the training molecules are to the others. On
public tables, the errors of such molecules are 1.4 times those of others (at 99 %, where many
molecules are merely small, 1.1 times).

:class:`Neighbours` has the training set in the model's own representation. Errors are larger where
a graph is far from all training graphs, where its prediction disagrees with their targets, and
where the model does not fit them well. All three are measured among the nearest training graphs in
the space of the input of the head. At most 2,000 random training graphs are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from grass_gnn.config import Section
from grass_gnn.data.tables.composition import Composition, signed_charge
from grass_gnn.data.tables.molecules import FINGERPRINT_BITS
from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import read_checked, read_json, write_checked, write_json

DOMAIN, SIMILARITY = "domain.json", "similarity.safetensors"  # files of a run folder
ADDED = {"element": 0.5, "charge": 1.5, "isotope": 0.5, "ring": 0.5, "size": 0.3}
_MOST = 10_000  # entries of a list in the file
_NAMED = 3  # kinds of atoms or rings that one warning names
_KEPT = 2000  # training graphs
_LARGEST_FILE = 64 << 20  # bytes
_UNLIKE = 0.05  # quantile of the similarities among training molecules
_NEAREST = 10  # neighbours whose targets and residuals are averaged
_CLOSEST = 5  # neighbours whose mean distance is that of a graph
_CONSTANT = 1e-3  # columns that vary less than this, relative to the median column, are left out


class TargetRange(Section):
    """The values of one target in the training set."""

    low: float
    high: float
    std: float = Field(ge=0)

    @classmethod
    def of(cls, values: np.ndarray) -> TargetRange:
        """The range of training targets [M], NaN where one is missing."""
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(low=-sys.float_info.max, high=sys.float_info.max, std=0.0)
        return cls(low=float(known.min()), high=float(known.max()), std=float(known.std()))


class Novelty(NamedTuple):
    """How a molecule and its prediction differ from the training set."""

    warnings: list[str]
    added: np.ndarray  # [outputs] standard deviation to be added to that of the prediction


class Domain(Section):
    """What the molecules of a training set are made of, and the range of their targets."""

    elements: list[str] = Field(max_length=_MOST)
    charged: list[str] = Field(max_length=_MOST)  # charged atoms, such as N+
    charges: list[int] = Field(max_length=_MOST)  # of whole molecules
    isotopes: list[str] = Field(max_length=_MOST)
    rings: list[int] = Field(max_length=_MOST)  # sizes
    atoms: tuple[int, int]  # smallest and largest number of atoms
    targets: list[TargetRange] = Field(default_factory=list)  # only of regressions

    @classmethod
    def of(cls, molecules: Sequence[Composition], targets: np.ndarray | None = None) -> Domain:
        """The domain of training molecules.

        Args:
            molecules: Their compositions, at least one.
            targets: Their targets [M, outputs] if these are numbers, NaN where one is missing.
        """
        sizes = [one.atoms for one in molecules]
        columns = [] if targets is None else list(targets.T)
        return cls(
            elements=sorted({name for one in molecules for name in one.elements}),
            charged=sorted({name for one in molecules for name in one.charged}),
            charges=sorted({one.charge for one in molecules}),
            isotopes=sorted({name for one in molecules for name in one.isotopes}),
            rings=sorted({size for one in molecules for size in one.rings}),
            atoms=(min(sizes), max(sizes)),
            targets=[TargetRange.of(column) for column in columns],
        )

    def union(self, other: Domain) -> Domain:
        """The domain of two models that are averaged: what either of them has seen."""
        ranges = [
            TargetRange(low=min(a.low, b.low), high=max(a.high, b.high), std=max(a.std, b.std))
            for a, b in zip(self.targets, other.targets, strict=True)
        ]
        return Domain(
            elements=sorted({*self.elements, *other.elements}),
            charged=sorted({*self.charged, *other.charged}),
            charges=sorted({*self.charges, *other.charges}),
            isotopes=sorted({*self.isotopes, *other.isotopes}),
            rings=sorted({*self.rings, *other.rings}),
            atoms=(min(self.atoms[0], other.atoms[0]), max(self.atoms[1], other.atoms[1])),
            targets=ranges,
        )

    def compare(self, molecule: Composition, mean: Tensor) -> Novelty:
        """How a molecule and its prediction [outputs] differ from the training set."""
        unknown = self._unknown(molecule)
        warnings, excess = list(unknown.values()), 0.0
        fewest, most = self.atoms
        if not fewest <= molecule.atoms <= most:
            warnings.append(
                f"{_count(molecule.atoms)} (training molecules have {fewest:,} to {most:,})"
            )
            excess = max(molecule.atoms - most, fewest - molecule.atoms) / most + ADDED["size"]
        if not self.targets:
            return Novelty(warnings, np.zeros(len(mean)))
        std = np.array([target.std for target in self.targets])
        values = mean.double().numpy()
        low = np.array([target.low for target in self.targets])
        high = np.array([target.high for target in self.targets])
        beyond = np.maximum(np.maximum(low - values, values - high), 0.0)
        if beyond.any():
            place = int(beyond.argmax())
            which = "the prediction is" if len(values) == 1 else "predictions are"
            shown = f" {low[place]:.4g} to {high[place]:.4g}" if len(values) == 1 else ""
            warnings.append(f"{which} beyond the training range{shown}")
        fractions = [ADDED[kind] for kind in unknown] + [excess]
        added = np.sqrt(sum((fraction * std) ** 2 for fraction in fractions) + beyond**2)
        return Novelty(warnings, added)

    def _unknown(self, molecule: Composition) -> dict[str, str]:
        """Warnings of elements, charges, isotopes and rings that no training molecule contains."""
        warnings = {}
        elements = [name for name in molecule.elements if name not in self.elements]
        if elements:
            warnings["element"] = _unseen("element", elements)
        # A charged atom of an unseen element is no second reason.
        charged = [
            name
            for name in molecule.charged
            if name not in self.charged and name.rstrip("+-0123456789") not in elements
        ]
        if charged:
            warnings["charge"] = _unseen("charged atom", charged)
        elif molecule.charge not in self.charges and not elements:
            shown = signed_charge(molecule.charge)
            warnings["charge"] = f"net charge {shown} not in the training set"
        isotopes = [name for name in molecule.isotopes if name not in self.isotopes]
        if isotopes:
            warnings["isotope"] = _unseen("isotope", isotopes)
        rings = [str(size) for size in molecule.rings if size not in self.rings]
        if rings:
            warnings["ring"] = _unseen("ring size", rings)
        return warnings

    def save(self, folder: Path) -> None:
        """Write the domain into a run folder."""
        write_json(folder / DOMAIN, self.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path) -> Domain | None:
        """Read the domain of a run folder; None for runs of earlier versions, which have none.

        Raises:
            GrassError: The file is damaged.
        """
        path = folder / DOMAIN
        if not path.is_file():
            return None
        try:
            return cls.model_validate(read_json(path))
        except ValidationError:
            raise GrassError(f"The file {path} is damaged: it describes no domain.") from None


def _unseen(kind: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{kind}{'s' if len(names) > 1 else ''} {shown} not in the training set"


def _count(atoms: int) -> str:
    return f"{atoms:,} atom{'s' if atoms > 1 else ''}"


def widen(std: Tensor, added: np.ndarray) -> Tensor:
    """Standard deviations [M, outputs] to which independent ones of the same shape are added."""
    return torch.hypot(std, torch.from_numpy(added).to(std.dtype))


@dataclass(frozen=True)
class SimilarityReference:
    """Fingerprints of training molecules."""

    bits: np.ndarray  # [molecules, bits] uint8
    threshold: float
    splits: dict[str, np.ndarray] = field(default_factory=dict)  # similarities of other splits [M]

    @classmethod
    def of(
        cls,
        fingerprints: np.ndarray,
        seed: int = 0,
        others: Mapping[str, np.ndarray] | None = None,
    ) -> SimilarityReference:
        """A reference from the fingerprints of the training set [molecules, bits].

        Args:
            fingerprints: Fingerprints of the training set.
            seed: Random seed of the choice among more than 2,000 molecules.
            others: Fingerprints of other splits by name, whose similarities are kept for the
                calibration.
        """
        found = cls._of_training(fingerprints, seed)
        splits = {name: found.nearest(bits) for name, bits in (others or {}).items()}
        return cls(found.bits, found.threshold, splits)

    @classmethod
    def _of_training(cls, fingerprints: np.ndarray, seed: int) -> SimilarityReference:
        chosen = np.random.default_rng(seed).permutation(len(fingerprints))[:_KEPT]
        bits = fingerprints[np.sort(chosen)]
        if len(bits) < 2:
            return cls(bits, 0.0)
        own = _tanimoto(bits, bits)  # [molecules, molecules]
        np.fill_diagonal(own, 0.0)
        return cls(bits, float(np.quantile(own.max(axis=1), _UNLIKE)))

    def nearest(self, fingerprints: np.ndarray) -> np.ndarray:
        """The largest similarity of each molecule [M, bits] to the reference → [M]."""
        return _tanimoto(fingerprints, self.bits).max(axis=1)

    def save(self, folder: Path) -> str:
        """Write the reference into a run folder; the checksum goes into the model's card."""
        data = save_tensors(
            {
                "bits": torch.from_numpy(np.packbits(self.bits, axis=1)),
                "threshold": torch.tensor([self.threshold]),
                **{name: torch.from_numpy(values) for name, values in self.splits.items()},
            }
        )
        return write_checked(folder / SIMILARITY, data)

    @classmethod
    def load(cls, folder: Path, checksum: str) -> SimilarityReference:
        """Read the reference of a run folder.

        Raises:
            GrassError: The file is missing or damaged.
        """
        path = folder / SIMILARITY
        try:
            tensors = load_tensors(read_checked(path, _LARGEST_FILE, checksum))
            bits, threshold = tensors["bits"], float(tensors["threshold"].double())
        except GrassError:
            raise
        except (OSError, SafetensorError, KeyError, RuntimeError, ValueError, TypeError) as error:
            raise GrassError(f"The file {path} is damaged: {first_line(error)}.") from None
        if (
            bits.dtype != torch.uint8
            or bits.dim() != 2
            or 8 * bits.size(1) != FINGERPRINT_BITS
            or not len(bits)
        ):
            raise GrassError(f"The file {path} is damaged: it contains no fingerprints.")
        rest = [name for name in tensors if name not in ("bits", "threshold")]
        if any(tensors[name].dim() != 1 or not tensors[name].is_floating_point() for name in rest):
            raise GrassError(f"The file {path} is damaged: it contains no similarities.")
        splits = {name: tensors[name].numpy() for name in rest}
        return cls(np.unpackbits(bits.numpy(), axis=1), threshold, splits)


def _tanimoto(queries: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Tanimoto similarity: common bits over all bits [M, R]."""
    first, second = queries.astype(np.float32), references.astype(np.float32)
    common = first @ second.T
    either = first.sum(axis=1)[:, None] + second.sum(axis=1)[None, :] - common
    return common / np.maximum(either, 1.0)


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
    def of(
        cls, embeddings: np.ndarray, targets: np.ndarray, fitted: np.ndarray, seed: int = 0
    ) -> Neighbours:
        """A reference from the training set.

        Args:
            embeddings: Inputs of the head [R, columns].
            targets: Targets [R, outputs], NaN where one is missing.
            fitted: What the model predicts for its training set [R, outputs].
            seed: Random seed of the choice among more than 2,000 graphs.
        """
        chosen = np.sort(np.random.default_rng(seed).permutation(len(embeddings))[:_KEPT])
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
        typical = float(np.median(closest)) or 1.0
        return cls(latents, targets, residuals, center, scale, typical)

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
        mean = _average(self.targets, *self._weights(distances))
        return self._nearness(distances, mean), mean - self.targets

    def _weights(self, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nearest graphs of each row [M, k], and their weights."""
        count = min(_NEAREST, int(np.isfinite(distances).sum(axis=1).min()))
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :count]
        own = np.take_along_axis(distances, nearest, axis=1) / self.typical
        return nearest, 1 / (own + 0.1)

    def _nearness(self, distances: np.ndarray, mean: np.ndarray) -> Nearness:
        nearest, weights = self._weights(distances)
        closest = np.take_along_axis(distances, nearest[:, :_CLOSEST], axis=1).mean(axis=1)
        squares = np.square(self.targets[nearest] - mean[:, None])  # [M, k, outputs]
        return Nearness(
            closest / self.typical,
            np.sqrt(_weighted(squares, weights)),
            _average(self.residuals, nearest, weights),
        )

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


def _weighted(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Means [M, outputs] of values [M, k, outputs] with weights [M, k]; NaN is left out.

    Where all values are missing, the mean is that over everything else.
    """
    known = ~np.isnan(values)
    total = (weights[..., None] * known).sum(axis=1)
    mean = (weights[..., None] * np.where(known, values, 0)).sum(axis=1) / np.maximum(total, 1e-9)
    rest = np.nanmean(values, axis=(0, 1)) if known.any(axis=(0, 1)).all() else np.ones(1)
    return np.where(total > 0, mean, rest)


def _average(values: np.ndarray, nearest: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted means of the rows of values [R, outputs] that are nearest [M, k]."""
    return _weighted(values[nearest], weights)
