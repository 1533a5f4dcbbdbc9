"""Molecules as graphs, with the other values that tables need of them.

This module imports neither torch nor pydantic, so that the processes of
:class:`~grass_gnn.data.tables.reading.ReadingPool` start quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from grass_gnn.data.tables.composition import Composition
from grass_gnn.data.tables.descriptors import (
    check_descriptor_names,
    compute_descriptors,
    forest_columns,
)
from grass_gnn.data.tables.features import VOCABULARIES, each_atom
from grass_gnn.data.tables.parsing import (
    MAX_ATOMS,
    MAX_SMILES,
    UnreadableMolecule,
    parse,
    require_rdkit,
)
from grass_gnn.errors import GrassError

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

    from grass_gnn.data.checking import CheckedGraph

with suppress(ImportError):  # without RDKit, MoleculeReader raises a GrassError
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdFingerprintGenerator

FINGERPRINT_BITS, _FINGERPRINT_RADIUS = 1024, 2
_NOTHING = np.empty(0)


class Molecule(NamedTuple):
    """A molecule as a graph, with the optional values requested from its reader.

    Plain arrays, which are fast to pass between processes.
    """

    x: np.ndarray  # [n, columns] uint8
    edge_index: np.ndarray  # [2, 2 × bonds] both directions of each bond
    edge_attr: np.ndarray  # [2 × bonds, columns] uint8
    note: str  # atoms that were mapped to others; usually empty
    canonical: str  # canonical SMILES of what the graph contains, if requested
    fingerprint: np.ndarray  # Morgan bits [FINGERPRINT_BITS] uint8; [0] if not requested
    drawing: bytes = b""  # the RDKit molecule with 2D coordinates, if requested
    descriptors: np.ndarray = _NOTHING  # RDKit descriptors, NaN where undefined, if requested
    columns: np.ndarray = _NOTHING  # of a forest [MORGAN_COUNTS + descriptors], if requested
    scaffold: str = ""  # Bemis–Murcko scaffold as SMILES, if requested
    composition: Composition | None = None  # requested with the fingerprint

    @property
    def data(self) -> Data:
        """The graph as a PyG ``Data``."""
        import torch
        from torch_geometric.data import Data

        return Data(
            x=torch.from_numpy(self.x).long(),
            edge_index=torch.from_numpy(self.edge_index).long(),
            edge_attr=torch.from_numpy(self.edge_attr).long(),
        )

    @property
    def drawable(self) -> Any:
        """The RDKit molecule with 2D coordinates; its atoms are those of the graph."""
        binary: Any = self.drawing  # RDKit's stubs say text
        return Chem.Mol(binary)

    def checked(self, numbers: Sequence[float] = ()) -> CheckedGraph:
        """The graph, ready to be packed: its features are valid by construction.

        Args:
            numbers: Descriptors from the columns of a table; those of RDKit follow.
        """
        import torch

        from grass_gnn.data.checking import CheckedGraph

        return CheckedGraph(
            num_nodes=len(self.x),
            edge_index=torch.from_numpy(self.edge_index),
            x=torch.from_numpy(self.x),
            edge_attr=torch.from_numpy(self.edge_attr),
            descriptors=self._descriptors(numbers),
        )

    def with_descriptors(self, numbers: Sequence[float]) -> Data:
        """The graph as a PyG ``Data``, with descriptors as in :meth:`checked`."""
        data, descriptors = self.data, self._descriptors(numbers)
        if descriptors is not None:
            data.descriptors = descriptors
        return data

    def _descriptors(self, numbers: Sequence[float]) -> Tensor | None:
        """The descriptors of a table's columns and those of RDKit [1, columns], if any."""
        import torch

        both = [*numbers, *self.descriptors.tolist()]
        return torch.tensor([both]) if both else None


@dataclass(frozen=True)
class MoleculeReader:
    """Reads SMILES.

    Args:
        features: Vocabulary of atoms and bonds: ``"ogb-cip"``, ``"ogb"`` or ``"zinc"``.
        canonical_order: Number the atoms in RDKit's canonical order, so that all SMILES of a
            molecule give the same graph (except for the chirality of ``"ogb"``).
        identity: Compute canonical SMILES, without atom-map numbers and isotopes.
        fingerprints: Compute Morgan fingerprints and the composition.
        max_atoms: Reject larger molecules.
        drawings: Compute 2D coordinates.
        descriptors: RDKit descriptors to compute, each with the value to use where RDKit finds
            none.
        forest: RDKit descriptors to compute besides Morgan counts, for a forest; NaN where RDKit
            finds none. None: neither is computed.
        scaffolds: Compute Bemis–Murcko scaffolds.
    """

    features: str = "ogb"
    canonical_order: bool = False
    identity: bool = False
    fingerprints: bool = False
    max_atoms: int = MAX_ATOMS
    drawings: bool = False
    descriptors: Mapping[str, float] = field(default_factory=dict)
    forest: tuple[str, ...] | None = None
    scaffolds: bool = False
    longest: ClassVar[int] = MAX_SMILES  # characters of a text

    def __post_init__(self) -> None:
        require_rdkit()
        if self.features not in VOCABULARIES:
            known = ", ".join(VOCABULARIES)
            raise GrassError(f"Features must be one of {known}, not {self.features!r}.")
        check_descriptor_names([*self.descriptors, *(self.forest or ())])

    def __call__(self, smiles: str) -> Molecule:
        """Read one molecule in this process, which a crash of RDKit would end.

        :class:`~grass_gnn.data.tables.reading.ReadingPool` reads untrusted SMILES.

        Raises:
            UnreadableMolecule: The text is not a molecule, or the molecule is too large.
        """
        with rdBase.BlockLogs():  # reasons are returned, not logged
            return self.read(parse(smiles, self.max_atoms))

    def read(self, mol: Any) -> Molecule:
        """The graph of an RDKit molecule, with the requested values."""
        with rdBase.BlockLogs():
            if self.canonical_order:
                mol = in_canonical_order(mol)
            plain = _without_marks(mol) if self.identity or self.scaffolds else mol
            canonical = Chem.MolToSmiles(plain) if self.identity else ""
            fingerprint = _morgan()(mol) if self.fingerprints else np.empty(0, np.uint8)
            composition = Composition.of(mol) if self.fingerprints else None
            x, ends, kinds, note = VOCABULARIES[self.features].number(mol)
            drawing = _with_coordinates(mol) if self.drawings else b""
            numbers = compute_descriptors(mol, self.descriptors)
            columns = _NOTHING if self.forest is None else forest_columns(mol, self.forest)
            scaffold = _scaffold(plain) if self.scaffolds else ""
        if self.canonical_order:  # bonds too: the order of a sum changes its rounding
            bonds = sorted((min(e), max(e), kind) for e, kind in zip(ends, kinds, strict=True))
            ends, kinds = [bond[:2] for bond in bonds], [bond[2] for bond in bonds]
        width = VOCABULARIES[self.features].bond_columns
        pairs = np.array(ends, dtype=np.int32).reshape(-1, 2)  # [bonds, 2]
        both = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)  # [2 × bonds, 2]
        attributes = np.array(kinds, dtype=np.uint8).reshape(-1, width)
        return Molecule(
            np.array(x, dtype=np.uint8),
            np.ascontiguousarray(both.T),
            attributes.repeat(2, axis=0),
            note,
            canonical,
            fingerprint,
            drawing,
            numbers,
            columns,
            scaffold,
            composition,
        )

    def try_read(self, smiles: str) -> Molecule | str:
        """Read one molecule in this process, or return the reason why it cannot be read."""
        try:
            return self(smiles)
        except UnreadableMolecule as reason:
            return str(reason)
        except Exception as error:  # RDKit's errors have many classes
            return f"RDKit cannot read the SMILES ({type(error).__name__})"


def in_canonical_order(mol: Any) -> Any:
    """An RDKit molecule with its atoms in canonical order."""
    ranks = Chem.CanonicalRankAtoms(_without_marks(mol))
    return Chem.RenumberAtoms(mol, np.argsort(ranks).tolist())


def _without_marks(mol: Any) -> Any:
    """The molecule without atom-map numbers and isotopes, which no graph contains.

    Isotopes of hydrogens stay: without them, they would not be atoms of their own.
    """
    marked = [
        atom
        for atom in each_atom(mol)
        if atom.GetAtomMapNum() or (atom.GetIsotope() and atom.GetAtomicNum() != 1)
    ]
    if not marked:
        return mol
    mol = Chem.Mol(mol)
    for place in [atom.GetIdx() for atom in marked]:
        atom = mol.GetAtomWithIdx(place)
        atom.SetAtomMapNum(0)
        if atom.GetAtomicNum() != 1:
            atom.SetIsotope(0)
    Chem.AssignStereochemistry(mol, cleanIt=True, force=True)  # centres that were due to isotopes
    return mol


def _scaffold(mol: Any) -> str:
    """The Bemis–Murcko scaffold of a molecule as SMILES; empty for molecules without rings."""
    from rdkit.Chem.Scaffolds import MurckoScaffold

    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)


@lru_cache(maxsize=1)
def _morgan() -> Callable[[Any], np.ndarray]:
    return rdFingerprintGenerator.GetMorganGenerator(
        radius=_FINGERPRINT_RADIUS, fpSize=FINGERPRINT_BITS
    ).GetFingerprintAsNumPy


def _with_coordinates(mol: Any) -> bytes:
    from rdkit.Chem import rdDepictor

    mol = Chem.Mol(mol)
    rdDepictor.Compute2DCoords(mol)
    return bytes(mol.ToBinary())
