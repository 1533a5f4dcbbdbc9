"""RDKit 2D descriptors and Morgan counts of molecules.

This module imports RDKit and NumPy only, like :mod:`~grass_gnn.data.tables.molecules`: descriptors
are computed in the processes that read molecules.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from grass_gnn.errors import GrassError

MORGAN_COUNTS, MORGAN_RADIUS = 2048, 2

# The time for these grows with the fourth power of the number of atoms, to a minute for 950 atoms,
# and their values reach 1e300.
_LEFT_OUT = ("Ipc", "AvgIpc")
# The time for these grows with the third power: seconds for 950 atoms.
_SLOW = ("BCUT2D_", "EStateIndex", "EState_VSA", "VSA_EState", "BertzCT", "BalabanJ")
_SLOW_ATOMS = 300
_LARGEST = 1e30  # within float32


def descriptor_names() -> list[str]:
    """Names of the RDKit descriptors that ``--descriptors rdkit`` computes, about 215."""
    return list(_functions())


def check_descriptor_names(names: Iterable[str]) -> None:
    """Raise unless the installed RDKit can compute all these descriptors."""
    if missing := [name for name in names if name not in _functions()]:
        import rdkit

        raise GrassError(
            f"RDKit {rdkit.__version__} does not compute the descriptor {missing[0]}, which the "
            "model uses: install the RDKit version it was trained with."
        )


def compute_descriptors(mol: Any, names: Mapping[str, float]) -> np.ndarray:
    """Descriptors of an RDKit molecule [names], or the given values where RDKit finds none.

    Partial charges, for example, are not defined for metals. Descriptors whose time grows with the
    third power of the number of atoms are not computed for molecules of more than 300 atoms.
    """
    if not names:
        return np.empty(0)
    functions, large = _functions(), mol.GetNumAtoms() > _SLOW_ATOMS
    values = np.array(list(names.values()))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for place, name in enumerate(names):
            if large and any(slow in name for slow in _SLOW):
                continue
            try:
                value = float(functions[name](mol))
            except Exception:  # RDKit's errors have many classes
                continue
            if abs(value) < _LARGEST:  # False for NaN
                values[place] = value
    return values


def choose_descriptors(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which descriptors to keep of a table's molecules, and their medians.

    Those that are the same for all molecules, or undefined for more than half, are left out.

    Args:
        values: Descriptors of the molecules [rows, descriptors]; NaN where undefined.
    """
    known = np.isfinite(values)
    low = np.where(known, values, np.inf).min(axis=0)
    high = np.where(known, values, -np.inf).max(axis=0)
    kept = np.flatnonzero((2 * known.sum(axis=0) > len(values)) & (low < high))
    return kept, np.nanmedian(values[:, kept], axis=0)


def forest_columns(mol: Any, names: Sequence[str]) -> np.ndarray:
    """What a forest knows about a molecule [MORGAN_COUNTS + names] float32, NaN where undefined.

    First how often each hashed environment of radius 2 occurs, at most 255 times, then descriptors.
    """
    counts = np.minimum(_morgan_counts()(mol), 255)
    numbers = compute_descriptors(mol, dict.fromkeys(names, math.nan))
    return np.concatenate([counts, numbers], dtype=np.float32)


def useful_columns(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns [columns] int32 that differ in at least two rows, and their medians float32."""
    known = np.flatnonzero(np.isfinite(values).any(axis=0))
    found = np.where(np.isfinite(values[:, known]), values[:, known], math.nan)
    median = np.nanmedian(found, axis=0)
    varied = (np.where(np.isnan(found), median, found) != median).sum(axis=0) > 1
    return known[varied].astype(np.int32), median[varied].astype(np.float32)


def fill_columns(columns: np.ndarray, chosen: np.ndarray, median: np.ndarray) -> np.ndarray:
    """Some of all columns [M, columns], with medians where they are not defined [M, chosen]."""
    if chosen.max(initial=-1) >= columns.shape[1]:
        raise GrassError("The forest belongs to another run: its columns differ.")
    largest = float(np.finfo(np.float32).max)
    found = np.clip(columns[:, chosen], -largest, largest)
    return np.where(np.isnan(found), median, found).astype(np.float32)


@lru_cache(maxsize=1)
def _morgan_counts() -> Callable[[Any], np.ndarray]:
    from rdkit.Chem import rdFingerprintGenerator

    return rdFingerprintGenerator.GetMorganGenerator(
        radius=MORGAN_RADIUS, fpSize=MORGAN_COUNTS
    ).GetCountFingerprintAsNumPy


@lru_cache(maxsize=1)
def _functions() -> dict[str, Callable[[Any], float]]:
    from rdkit.Chem import Descriptors

    return {name: f for name, f in Descriptors.descList if name not in _LEFT_OUT}
