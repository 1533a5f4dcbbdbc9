"""RDKit 2D descriptors and Morgan counts of molecules.

This module imports RDKit and NumPy only, like :mod:`~grass_gnn.data.tables.molecules`: descriptors
are computed in the processes that read molecules.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
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


def descriptor_names() -> list[str]:
    """Names of the RDKit descriptors that ``--descriptors rdkit`` computes, about 215."""
    return list(_functions())


def check_descriptor_names(names: Sequence[str]) -> None:
    """Raise unless the installed RDKit can compute all these descriptors."""
    if missing := [name for name in names if name not in _functions()]:
        import rdkit

        raise GrassError(
            f"RDKit {rdkit.__version__} does not compute the descriptor {missing[0]}, which the "
            "model uses: install the RDKit version it was trained with."
        )


def compute_descriptors(mol: Any, names: Sequence[str]) -> np.ndarray:
    """Descriptors of an RDKit molecule [names]; NaN where RDKit finds no finite value.

    Partial charges, for example, are not defined for metals. Descriptors whose time grows with the
    third power of the number of atoms are NaN for molecules of more than 300 atoms.
    """
    functions, large = _functions(), mol.GetNumAtoms() > _SLOW_ATOMS
    values = np.full(len(names), math.nan)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for place, name in enumerate(names):
            if large and any(slow in name for slow in _SLOW):
                continue
            try:
                value = float(functions[name](mol))
            except Exception:  # RDKit's errors have many classes
                continue
            if math.isfinite(value):
                values[place] = value
    return values


def morgan_counts(mol: Any) -> np.ndarray:
    """How often each hashed environment of radius 2 occurs [MORGAN_COUNTS], at most 255."""
    return np.minimum(_morgan_counts()(mol), 255).astype(np.uint8)


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
