"""How the atoms and bonds of an RDKit molecule are numbered: as OGB does, or as ZINC's benchmark.

An atom that a vocabulary does not know is read as the nearest one it does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch_geometric.data import Data

from grass_gnn.config import OGB_ATOM_SIZES, FeatureConfig, InputConfig
from grass_gnn.data.checking import CheckedGraph
from grass_gnn.errors import GrassError

try:
    from rdkit import Chem
except ImportError:  # nobody has a molecule then
    Chem = None  # type: ignore[assignment]

# Categories of each atom [n], atoms at both ends of each bond and its categories, and a note.
NumberedMolecule = tuple[list[tuple[int, ...]], list[tuple[int, int]], list[tuple[int, ...]], str]

FEATURES = {
    "ogb": InputConfig(nodes=FeatureConfig(kind="ogb-atom"), edges=FeatureConfig(kind="ogb-bond")),
    "zinc": InputConfig(
        nodes=FeatureConfig(kind="index", sizes=[28]), edges=FeatureConfig(kind="index", sizes=[4])
    ),
}
# Symbol, explicit hydrogens and charge of ZINC's 28 atom types, in the order of their numbers.
# fmt: off
_ZINC_ATOMS = [
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -",
    "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +",
    "C H1 -", "P H1 +",
]
# fmt: on
_OGB_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
_OGB_BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
_OGB_CHIRALITY = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
_OGB_HYBRIDIZATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")


def ogb_graph(mol: Any) -> NumberedMolecule:
    """Atoms and bonds as ``ogb.utils.smiles2graph`` numbers them."""
    x = [
        _ogb_atom(
            atom.GetAtomicNum(),
            atom.GetChiralTag(),
            atom.GetTotalDegree(),
            atom.GetFormalCharge(),
            atom.GetTotalNumHs(),
            atom.GetNumRadicalElectrons(),
            atom.GetHybridization(),
            atom.GetIsAromatic(),
            atom.IsInRing(),
        )
        for atom in _atoms(mol)
    ]
    ends: list[tuple[int, int]] = []
    kinds: list[tuple[int, ...]] = []
    for bond in _bonds(mol):
        ends.append((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        kinds.append(_ogb_bond(bond.GetBondType(), bond.GetStereo(), bond.GetIsConjugated()))
    return x, ends, kinds, ""


def _atoms(mol: Any) -> Iterator[Any]:
    """``mol.GetAtoms()``, which takes several times as long."""
    return map(mol.GetAtomWithIdx, range(mol.GetNumAtoms()))


def _bonds(mol: Any) -> Iterator[Any]:
    """``mol.GetBonds()``, which takes several times as long."""
    return map(mol.GetBondWithIdx, range(mol.GetNumBonds()))


@lru_cache(maxsize=100_000)
def _ogb_atom(number: int, chirality: Any, *rest: Any) -> tuple[int, ...]:
    """Category numbers of an atom; the last category of a column is for everything unknown."""
    degree, charge, hydrogens, radicals, hybridization, aromatic, in_ring = rest
    columns = (
        number - 1,
        _place(str(chirality), _OGB_CHIRALITY),
        degree,
        charge + 5,
        hydrogens,
        radicals,
        _place(str(hybridization), _OGB_HYBRIDIZATION),
        int(aromatic),
        int(in_ring),
    )
    return tuple(
        value if 0 <= value < size else size - 1
        for value, size in zip(columns, OGB_ATOM_SIZES, strict=True)
    )


@lru_cache(maxsize=1000)
def _ogb_bond(kind: Any, stereo: Any, conjugated: bool) -> tuple[int, int, int]:
    stereo_number = min(_place(str(stereo), _OGB_STEREO), len(_OGB_STEREO) - 1)
    return _place(str(kind), _OGB_BONDS), stereo_number, int(conjugated)


def _place(name: str, names: tuple[str, ...]) -> int:
    """Place of a name in a list, or one behind its end."""
    return names.index(name) if name in names else len(names)


def zinc_graph(mol: Any) -> NumberedMolecule:
    """Atoms and bonds of the kekulised molecule as in the ZINC benchmark."""
    mol = Chem.Mol(mol)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    x: list[tuple[int, ...]] = []
    unknown = []
    for atom in _atoms(mol):
        symbol = atom.GetSymbol()
        number, known = _zinc_atom(symbol, atom.GetNumExplicitHs(), atom.GetFormalCharge())
        x.append((number,))
        if not known:
            unknown.append(symbol)
    ends: list[tuple[int, int]] = []
    kinds: list[tuple[int, ...]] = []
    for bond in _bonds(mol):
        ends.append((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        kinds.append((_zinc_bond(bond.GetBondType()),))
    note = f"{', '.join(sorted(set(unknown)))} read as C" if unknown else ""
    return x, ends, kinds, note


@lru_cache(maxsize=10_000)
def _zinc_atom(symbol: str, hydrogens: int, charge: int) -> tuple[int, bool]:
    """Number of an atom type: its own, that of the plain element, or carbon's (and not known)."""
    sign = "+" * (charge > 0) or "-" * (charge < 0)
    exact = " ".join(filter(None, [symbol, f"H{hydrogens}" * (hydrogens > 0), sign]))
    for name in (exact, f"{symbol} {sign}".strip(), symbol):
        if name in _ZINC_ATOMS:
            return _ZINC_ATOMS.index(name), True
    return 0, False


@lru_cache(maxsize=100)
def _zinc_bond(kind: Any) -> int:
    """Single, double and triple bonds are 1, 2 and 3; 0 is left for any other."""
    return {"SINGLE": 1, "DOUBLE": 2, "TRIPLE": 3}.get(str(kind), 0)


try:
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdFingerprintGenerator
except ImportError:  # a sentence when molecules are asked for, see require_rdkit
    Chem = None  # type: ignore[assignment]

MAX_ATOMS = 1000
_LONGEST_SMILES = 20_000  # characters: no molecule of MAX_ATOMS needs more
_FEW = 64  # molecules that are not worth handing to other processes
FINGERPRINT_BITS, _FINGERPRINT_RADIUS = 1024, 2


class UnreadableMolecule(ValueError):
    """Why a text is not read as a molecule; the message ends a sentence about it."""


class Molecule(NamedTuple):
    """A molecule as a graph, and what else its reader was asked for.

    Plain arrays, as processes hand them to each other quickly.
    """

    x: np.ndarray  # [n, columns] uint8
    edge_index: np.ndarray  # [2, 2 × bonds] both directions of each bond
    edge_attr: np.ndarray  # [2 × bonds, columns] uint8
    note: str  # what was not read as it stands; mostly empty
    canonical: str  # canonical SMILES, if asked for
    fingerprint: np.ndarray  # Morgan bits [FINGERPRINT_BITS] uint8; [0] if not asked for

    @property
    def data(self) -> Data:
        """The graph for PyG."""
        return Data(
            x=torch.from_numpy(self.x).long(),
            edge_index=torch.from_numpy(self.edge_index).long(),
            edge_attr=torch.from_numpy(self.edge_attr).long(),
        )

    def checked(self, numbers: Sequence[float] = ()) -> CheckedGraph:
        """The graph as it is packed: what was read here is known to fit its vocabulary."""
        return CheckedGraph(
            num_nodes=len(self.x),
            edge_index=torch.from_numpy(self.edge_index),
            x=torch.from_numpy(self.x),
            edge_attr=torch.from_numpy(self.edge_attr),
            y=None,
            weight=None,
            descriptors=torch.tensor([list(numbers)]) if len(numbers) else None,  # [1, columns]
            masks={},
        )

    def with_descriptors(self, numbers: Sequence[float]) -> Data:
        """The graph for PyG, with numbers known of the molecule as a whole, if there are any."""
        data = self.data
        if len(numbers):
            data.descriptors = torch.tensor([list(numbers)])  # [1, columns]
        return data


@dataclass(frozen=True)
class MoleculeReader:
    """Reads SMILES.

    Args:
        features: ``"ogb"`` or ``"zinc"``, the vocabulary of atoms and bonds.
        canonical_order: Number the atoms in RDKit's canonical order, so that every SMILES of a
            molecule gives the same graph.
        identity: Whether to find canonical SMILES.
        fingerprints: Whether to find Morgan fingerprints.
        max_atoms: Larger molecules are refused.
    """

    features: str = "ogb"
    canonical_order: bool = False
    identity: bool = False
    fingerprints: bool = False
    max_atoms: int = MAX_ATOMS

    def __post_init__(self) -> None:
        require_rdkit()
        if self.features not in FEATURES:
            raise GrassError(f"Features are one of {', '.join(FEATURES)}, not {self.features!r}.")

    def __call__(self, smiles: str) -> Molecule:
        """Read one molecule.

        Raises:
            UnreadableMolecule: It is none, or too large.
        """
        with rdBase.BlockLogs():  # reasons are for the caller to tell
            mol = parse(smiles, self.max_atoms)
            if self.canonical_order:
                mol = in_canonical_order(mol)
            canonical = Chem.MolToSmiles(mol) if self.identity else ""
            fingerprint = _morgan()(mol) if self.fingerprints else np.empty(0, np.uint8)
            x, ends, kinds, note = ogb_graph(mol) if self.features == "ogb" else zinc_graph(mol)
        if self.canonical_order:  # bonds in one order, too: sums then round alike
            bonds = sorted((min(e), max(e), kind) for e, kind in zip(ends, kinds, strict=True))
            ends, kinds = [bond[:2] for bond in bonds], [bond[2] for bond in bonds]
        columns = len(FEATURES[self.features].edges.categories)
        pairs = np.array(ends, dtype=np.int32).reshape(-1, 2)  # [bonds, 2]
        both = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)  # [2 × bonds, 2]
        attributes = np.array(kinds, dtype=np.uint8).reshape(-1, columns)
        return Molecule(
            np.array(x, dtype=np.uint8),
            np.ascontiguousarray(both.T),
            attributes.repeat(2, axis=0),
            note,
            canonical,
            fingerprint,
        )

    def try_read(self, smiles: str) -> Molecule | str:
        """Read one molecule, or say why it is none."""
        try:
            return self(smiles)
        except UnreadableMolecule as reason:
            return str(reason)
        except Exception as error:  # whatever RDKit may meet in a text of a stranger's
            return f"RDKit cannot read the SMILES ({type(error).__name__})"


class ReadingPool:
    """Processes that read molecules: RDKit's Python holds the interpreter's lock all the time.

    Args:
        reader: How molecules are read.
        workers: Number of processes; as many as there are cores if not given, 0 for none.
    """

    def __init__(self, reader: MoleculeReader, workers: int | None = None) -> None:
        self.reader = reader
        workers = (os.cpu_count() or 1) if workers is None else workers
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            # A forked process starts at once; it only runs RDKit and NumPy, never torch's threads.
            method = "fork" if sys.platform == "linux" else "spawn"
            self._pool = ProcessPoolExecutor(workers, mp_context=get_context(method))

    def read(self, smiles: Sequence[str]) -> Iterator[Molecule | str]:
        """The molecules, or reasons, in order; reading goes on while the caller computes."""
        if self._pool is None or len(smiles) < _FEW:
            return map(self.reader.try_read, smiles)
        # A text that is too long to be read need not travel either.
        texts = [text if len(text) <= _LONGEST_SMILES else "" for text in smiles]
        found = self._pool.map(self.reader.try_read, texts, chunksize=_FEW // 2)
        return (
            molecule if len(text) <= _LONGEST_SMILES else self.reader.try_read(text)
            for molecule, text in zip(found, smiles, strict=True)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def require_rdkit() -> None:
    """Raise unless RDKit is installed."""
    if Chem is None:
        raise GrassError("Reading molecules needs RDKit: pip install 'grass-gnn[chem]'.")


def parse(smiles: str, max_atoms: int = MAX_ATOMS) -> Any:
    """An RDKit molecule.

    Raises:
        UnreadableMolecule: The text is no molecule, or one that is too large.
    """
    smiles = smiles.strip()
    if not smiles:
        raise UnreadableMolecule("the SMILES is empty")
    if len(smiles) > _LONGEST_SMILES:
        raise UnreadableMolecule(f"the SMILES has {len(smiles):,} characters, too many to be read")
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raise UnreadableMolecule(_reason(smiles))
    if mol.GetNumAtoms() == 0:
        raise UnreadableMolecule("the SMILES holds no atoms")
    if mol.GetNumAtoms() > max_atoms:
        raise UnreadableMolecule(f"{mol.GetNumAtoms():,} atoms are more than {max_atoms:,}")
    return mol


def in_canonical_order(mol: Any) -> Any:
    """An RDKit molecule with its atoms in one order, however its SMILES was written."""
    return Chem.RenumberAtoms(mol, np.argsort(Chem.CanonicalRankAtoms(mol)).tolist())


def scaffold(smiles: str) -> str:
    """The Bemis–Murcko scaffold of a molecule, as SMILES; empty for one without rings."""
    from rdkit.Chem.Scaffolds import MurckoScaffold

    with rdBase.BlockLogs():
        return MurckoScaffold.MurckoScaffoldSmiles(mol=parse(smiles), includeChirality=False)


@lru_cache(maxsize=1)
def _morgan() -> Callable[[Any], np.ndarray]:
    return rdFingerprintGenerator.GetMorganGenerator(
        radius=_FINGERPRINT_RADIUS, fpSize=FINGERPRINT_BITS
    ).GetFingerprintAsNumPy


def _reason(smiles: str) -> str:
    """Why RDKit refuses a SMILES: its syntax, or what a chemist would object to."""
    mol = Chem.MolFromSmiles(smiles, sanitize=False)
    if mol is None:
        return "the SMILES is not valid"
    try:
        Chem.SanitizeMol(mol)
    except ValueError as error:  # such as too many bonds of an atom
        text = str(error).strip().splitlines()[0]
        return f"the molecule is not possible ({text[:120]})"
    return "the SMILES is not valid"
