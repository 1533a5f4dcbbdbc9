"""The applicability domain of a model: what the molecules of its training set are made of.

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
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from grass_gnn.config import Section
from grass_gnn.data.tables.composition import Composition, signed_charge
from grass_gnn.errors import GrassError
from grass_gnn.files import read_json, write_json

DOMAIN = "domain.json"  # file of a run folder
ADDED = {"element": 0.5, "charge": 1.5, "isotope": 0.5, "ring": 0.5, "size": 0.3}
_MOST = 10_000  # entries of a list in the file
_NAMED = 3  # kinds of atoms or rings that one warning names


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
