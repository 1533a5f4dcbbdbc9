"""The RDKit descriptors that a network is pretrained to predict: areas, counts, indices, fragments.

RDKit's list of descriptors computes many of them once per column. Here related columns are computed
together, which takes a fraction of the time, and the slowest (QED, BCUT, information content) are
left out.

Like ``lists.py``, this module imports neither torch nor pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

# Columns of RDKit's list that are slow, grow exponentially, or are computed together below.
_LEFT_OUT = (
    "AvgIpc",
    "BCUT2D",
    "BalabanJ",
    "BertzCT",
    "Chi0",
    "Chi1",
    "FpDensity",
    "Ipc",
    "NumRadicalElectrons",
    "NumValenceElectrons",
    "SPS",
    "qed",
)
_KEPT = ("Chi0n", "Chi0v", "Chi1n", "Chi1v")  # of those whose names begin like that
_TOGETHER = ("SlogP_VSA", "SMR_VSA", "PEOE_VSA", "MolLogP", "MolMR", "Max", "Min")
_AUTOCORRELATIONS = 96  # the first two of RDKit's four kinds, of six properties at eight distances


def target_names() -> list[str]:
    """Names of the descriptors, in the order of :func:`describe`."""
    return [name for names, _ in _groups() for name in names]


def describe(mol: Any) -> np.ndarray:
    """The descriptors [columns] float32 of an RDKit molecule; NaN where one does not exist."""
    values: list[float] = []
    for names, compute in _groups():
        try:
            found = list(compute(mol))
        except (ValueError, RuntimeError, ZeroDivisionError, OverflowError):
            found = [np.nan] * len(names)
        values += found
    with np.errstate(over="ignore"):
        array = np.array(values, dtype=np.float64).astype(np.float32)
    array[~np.isfinite(array)] = np.nan
    return array


@lru_cache(maxsize=1)
def _groups() -> list[tuple[list[str], Callable[[Any], Iterable[float]]]]:
    """Names of columns that are computed together, and the function of a molecule."""
    from rdkit.Chem import Descriptors
    from rdkit.Chem import rdMolDescriptors as rd

    def numbered(name: str, count: int) -> list[str]:
        return [f"{name}{number}" for number in range(1, count + 1)]

    groups: list[tuple[list[str], Callable[[Any], Iterable[float]]]] = [
        (["MolLogP", "MolMR"], rd.CalcCrippenDescriptors),
        (numbered("SlogP_VSA", 12), rd.SlogP_VSA_),
        (numbered("SMR_VSA", 10), rd.SMR_VSA_),
        (numbered("PEOE_VSA", 14), rd.PEOE_VSA_),
        (["MaxEStateIndex", "MinEStateIndex"], _electrotopological),
        (["MaxPartialCharge", "MinPartialCharge"], _partial_charges),
        (numbered("MQN", 42), rd.MQNs_),
        (
            numbered("AUTOCORR2D_", _AUTOCORRELATIONS),
            lambda mol: rd.CalcAUTOCORR2D(mol)[:_AUTOCORRELATIONS],
        ),
    ]
    for name, function in Descriptors._descList:
        left_out = name.startswith(_LEFT_OUT) and name not in _KEPT
        if not left_out and not name.startswith(_TOGETHER):
            groups.append(([name], _single(function)))
    return groups


def _single(function: Callable[[Any], float]) -> Callable[[Any], Iterable[float]]:
    return lambda mol: (float(function(mol)),)


def _electrotopological(mol: Any) -> tuple[float, float]:
    from rdkit.Chem.EState import EStateIndices

    indices = EStateIndices(mol)
    return float(max(indices)), float(min(indices))


def _partial_charges(mol: Any) -> tuple[float, float]:
    from rdkit.Chem import rdPartialCharges

    rdPartialCharges.ComputeGasteigerCharges(mol)
    charges = [atom.GetDoubleProp("_GasteigerCharge") for atom in mol.GetAtoms()]
    return max(charges), min(charges)
