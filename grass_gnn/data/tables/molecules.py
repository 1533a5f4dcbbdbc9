"""SMILES as graphs: which texts are accepted, and the features of atoms and bonds.

There are three feature vocabularies: ``"ogb"`` numbers atoms and bonds as OGB does, ``"ogb-cip"``
(the default for new models) differs only in the chirality column, and ``"zinc"`` is that of the
ZINC benchmark. OGB's chirality is RDKit's tag, which depends on the order in which the
neighbours of an atom are written; ``"ogb-cip"`` uses the CIP label (R or S), which does not. An
atom that a vocabulary does not contain is mapped to the nearest one that it does.

This module imports neither torch nor pydantic, so that the processes of
:class:`~grass_gnn.data.tables.reading.ReadingPool` start quickly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from grass_gnn.errors import GrassError

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

    from grass_gnn.config import InputConfig
    from grass_gnn.data.checking import CheckedGraph

try:
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdFingerprintGenerator
except ImportError:  # require_rdkit raises a GrassError when a molecule has to be read
    Chem = None  # type: ignore[assignment]

FEATURES = ("ogb-cip", "ogb", "zinc")
DEFAULT_FEATURES = "ogb-cip"
MAX_ATOMS = 1000
MAX_SMILES = 20_000  # characters; no molecule of MAX_ATOMS atoms needs more
# The time that RDKit needs grows with the third power of the number of rings and faster in dense
# graphs. C60 has 31 rings, C540 has 271, an icosahedral carborane 19 with only 12 atoms.
MAX_RINGS = 300
_RINGS_OF_ANY, _RINGS_PER_ATOM = 64, 0.6
FINGERPRINT_BITS, _FINGERPRINT_RADIUS = 1024, 2

# Categories of each atom [n], the atoms at both ends of each bond and its categories, and a note.
NumberedMolecule = tuple[list[tuple[int, ...]], list[tuple[int, int]], list[tuple[int, ...]], str]

# ``config.OGB_ATOM_SIZES``, repeated because importing the configuration takes longer than RDKit.
_OGB_ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
_BOND_COLUMNS = {"ogb-cip": 3, "ogb": 3, "zinc": 1}
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
_CIP_CHIRALITY = ("", "R", "S", "other")  # the same four categories
_OGB_HYBRIDIZATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")


def input_config(features: str) -> InputConfig:
    """The input settings of a model that is trained with these features."""
    from grass_gnn.config import FeatureConfig, InputConfig

    if features == "zinc":
        return InputConfig(
            nodes=FeatureConfig(kind="index", sizes=[28]),
            edges=FeatureConfig(kind="index", sizes=[4]),
        )
    return InputConfig(nodes=FeatureConfig(kind="ogb-atom"), edges=FeatureConfig(kind="ogb-bond"))


def ogb_graph(mol: Any, cip: bool = False) -> NumberedMolecule:
    """Atoms and bonds as ``ogb.utils.smiles2graph`` numbers them.

    Args:
        mol: An RDKit molecule.
        cip: Use CIP labels in the chirality column instead of RDKit's chiral tags.
    """
    x = [
        _ogb_atom(
            atom.GetAtomicNum(),
            _cip_label(atom) if cip else str(atom.GetChiralTag()),
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


def _cip_label(atom: Any) -> str:
    """``"R"`` or ``"S"``; ``"other"`` for a stereocentre without a label; else an empty string.

    Stereocentres without a label are those of symmetric rings, such as in
    cis-1,4-dimethylcyclohexane.
    """
    if atom.HasProp("_CIPCode"):
        return str(atom.GetProp("_CIPCode"))
    return "" if atom.GetChiralTag() == Chem.ChiralType.CHI_UNSPECIFIED else "other"


def _atoms(mol: Any) -> Iterator[Any]:
    """``mol.GetAtoms()``, but several times faster."""
    return map(mol.GetAtomWithIdx, range(mol.GetNumAtoms()))


def _bonds(mol: Any) -> Iterator[Any]:
    """``mol.GetBonds()``, but several times faster."""
    return map(mol.GetBondWithIdx, range(mol.GetNumBonds()))


@lru_cache(maxsize=100_000)
def _ogb_atom(number: int, chirality: str, *rest: Any) -> tuple[int, ...]:
    """Categories of an atom; the last category of a column is for unknown values."""
    degree, charge, hydrogens, radicals, hybridization, aromatic, in_ring = rest
    labels = _OGB_CHIRALITY if chirality.startswith("CHI_") else _CIP_CHIRALITY
    columns = (
        number - 1,
        _place(chirality, labels),
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
        for value, size in zip(columns, _OGB_ATOM_SIZES, strict=True)
    )


@lru_cache(maxsize=1000)
def _ogb_bond(kind: Any, stereo: Any, conjugated: bool) -> tuple[int, int, int]:
    stereo_number = min(_place(str(stereo), _OGB_STEREO), len(_OGB_STEREO) - 1)
    return _place(str(kind), _OGB_BONDS), stereo_number, int(conjugated)


def _place(name: str, names: tuple[str, ...]) -> int:
    """Index of a name in a tuple, or the length of the tuple if it is missing."""
    return names.index(name) if name in names else len(names)


def zinc_graph(mol: Any) -> NumberedMolecule:
    """Atoms and bonds of the kekulized molecule as in the ZINC benchmark.

    The benchmark has types such as ``C H1`` for atoms in brackets. In its SMILES these are charged
    atoms and stereocentres, so both are found here in the molecule, however it was written.
    """
    mol = Chem.Mol(mol)
    centres = _stereocentres(mol)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    x: list[tuple[int, ...]] = []
    unknown = []
    for atom in _atoms(mol):
        symbol, charge = atom.GetSymbol(), atom.GetFormalCharge()
        in_brackets = charge != 0 or symbol == "P" or atom.GetIdx() in centres
        number, known = _zinc_atom(symbol, atom.GetTotalNumHs() if in_brackets else 0, charge)
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


def _stereocentres(mol: Any) -> set[int]:
    """Atoms that are stereocentres, whether or not their configuration is known."""
    flat = Chem.Mol(mol)
    Chem.RemoveStereochemistry(flat)
    # The newer algorithm of RDKit also finds centres that depend on other centres.
    found = Chem.FindMolChiralCenters(
        flat, includeUnassigned=True, includeCIP=False, useLegacyImplementation=True
    )
    return {atom for atom, _ in found}


def zinc_molecule(graph: Data) -> Any:
    """The RDKit molecule of a graph of the ZINC benchmark, without its stereochemistry."""
    mol = Chem.RWMol()
    for number in graph.x.flatten().tolist():
        symbol, *rest = _ZINC_ATOMS[number].split()
        atom = Chem.Atom(symbol)
        for part in rest:
            if part.startswith("H"):
                atom.SetNumExplicitHs(int(part[1:]))
            else:
                atom.SetFormalCharge(int(f"{part}1"))
        mol.AddAtom(atom)
    orders = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
    for (a, b), kind in zip(graph.edge_index.T.tolist(), graph.edge_attr.tolist(), strict=True):
        if a < b:
            mol.AddBond(a, b, orders[kind])
    Chem.SanitizeMol(mol)
    return mol.GetMol()


@lru_cache(maxsize=10_000)
def _zinc_atom(symbol: str, hydrogens: int, charge: int) -> tuple[int, bool]:
    """Index of an atom type, else of the plain element, else of carbon; and whether it is known."""
    sign = "+" * (charge > 0) or "-" * (charge < 0)
    exact = " ".join(filter(None, [symbol, f"H{hydrogens}" * (hydrogens > 0), sign]))
    for name in (exact, f"{symbol} {sign}".strip(), symbol):
        if name in _ZINC_ATOMS:
            return _ZINC_ATOMS.index(name), True
    return 0, False


@lru_cache(maxsize=100)
def _zinc_bond(kind: Any) -> int:
    """1, 2 and 3 for single, double and triple bonds; 0 for all others."""
    return {"SINGLE": 1, "DOUBLE": 2, "TRIPLE": 3}.get(str(kind), 0)


_NOTHING = np.empty(0)


class UnreadableMolecule(ValueError):
    """A text that is not accepted as a molecule; the message is a clause without a full stop."""


class Molecule(NamedTuple):
    """A molecule as a graph, with the optional values requested from its reader.

    Plain arrays, which are fast to pass between processes.
    """

    x: np.ndarray  # [n, columns] uint8
    edge_index: np.ndarray  # [2, 2 × bonds] both directions of each bond
    edge_attr: np.ndarray  # [2 × bonds, columns] uint8
    note: str  # atoms that were mapped to others; usually empty
    canonical: str  # canonical SMILES, if requested
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
            y=None,
            weight=None,
            descriptors=self._descriptors(numbers),
            masks={},
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
        identity: Compute canonical SMILES.
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
        if self.features not in FEATURES:
            raise GrassError(
                f"Features must be one of {', '.join(FEATURES)}, not {self.features!r}."
            )
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
            canonical = Chem.MolToSmiles(mol) if self.identity else ""
            fingerprint = _morgan()(mol) if self.fingerprints else np.empty(0, np.uint8)
            composition = Composition.of(mol) if self.fingerprints else None
            if self.features == "zinc":
                x, ends, kinds, note = zinc_graph(mol)
            else:
                x, ends, kinds, note = ogb_graph(mol, cip=self.features == "ogb-cip")
            drawing = _with_coordinates(mol) if self.drawings else b""
            numbers = compute_descriptors(mol, self.descriptors)
            columns = _NOTHING if self.forest is None else forest_columns(mol, self.forest)
            scaffold = _scaffold(mol) if self.scaffolds else ""
        if self.canonical_order:  # bonds too: the order of a sum changes its rounding
            bonds = sorted((min(e), max(e), kind) for e, kind in zip(ends, kinds, strict=True))
            ends, kinds = [bond[:2] for bond in bonds], [bond[2] for bond in bonds]
        width = _BOND_COLUMNS[self.features]
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


def require_rdkit() -> None:
    """Raise unless RDKit is installed."""
    if Chem is None:
        raise GrassError("Reading molecules needs RDKit: pip install 'grass-gnn[chem]'.")


def parse(smiles: str, max_atoms: int = MAX_ATOMS) -> Any:
    """Parse a SMILES or InChI with RDKit, after cheap checks.

    The text is an InChI, or an ASCII SMILES, optionally followed by a space and a CXSMILES
    extension between vertical bars. Any other text after a space is rejected rather than ignored:
    ``"C C"`` is not methane.

    Raises:
        UnreadableMolecule: The text is not a molecule, or the molecule is too large.
    """
    smiles = smiles.strip()
    check_text(smiles)
    if smiles.startswith("InChI="):
        return _parse_inchi(smiles, max_atoms)
    # Sanitisation may take minutes, or crash, on graphs that are not realistic molecules. Ordinary
    # SMILES have too few ring-closure digits for that, so they are parsed only once.
    if len(smiles) > max_atoms:
        _check_atoms(len(_WRITTEN_ATOM.findall(smiles.split(None, 1)[0])), max_atoms)
    if len(smiles) > max_atoms or sum(map(smiles.count, "0123456789")) > 2 * _RINGS_OF_ANY:
        _check_structure(smiles, max_atoms)
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raise UnreadableMolecule(_reason(smiles))
    if mol.GetNumAtoms() == 0:
        raise UnreadableMolecule("the SMILES contains no atoms")
    _check_atoms(mol.GetNumAtoms(), max_atoms)
    return mol


# An atom of a SMILES that is no hydrogen: in brackets, or of the organic subset.
_WRITTEN_ATOM = re.compile(r"\[(?!\d*H[+\-\d:]*\])[^\]]*\]|Br|Cl|[BCNOPSFIbcnops*]")


def _check_atoms(atoms: int, max_atoms: int) -> None:
    if atoms > max_atoms:
        raise UnreadableMolecule(f"{atoms:,} atoms exceed the limit of {max_atoms:,}")


def check_text(smiles: str) -> None:
    """Raise :class:`UnreadableMolecule` for a text that cannot be a SMILES."""
    if not smiles:
        raise UnreadableMolecule("the SMILES is empty")
    if len(smiles) > MAX_SMILES:
        raise UnreadableMolecule(
            f"the SMILES has {len(smiles):,} characters, more than {MAX_SMILES:,}"
        )
    if not smiles.isascii():
        wrong = next(character for character in smiles if not character.isascii())
        raise UnreadableMolecule(f"the SMILES contains {wrong!a}, which is not ASCII")
    structure, *rest = smiles.split(None, 1)
    if rest and not re.fullmatch(r"\|[^|]*\|", rest[0]):
        shown = rest[0] if len(rest[0]) <= 20 else rest[0][:19] + "..."
        raise UnreadableMolecule(
            f"there is text after the SMILES ({shown!r}): put names in a separate column"
        )
    if not structure.isprintable():
        raise UnreadableMolecule("the SMILES contains control characters")


def _check_structure(smiles: str, max_atoms: int) -> None:
    """Reject a molecule with too many atoms or rings, without sanitising it."""
    mol = Chem.MolFromSmiles(smiles, sanitize=False)
    if mol is None:
        raise UnreadableMolecule("the SMILES is not valid")
    _check_size(mol, max_atoms)


def _check_size(mol: Any, max_atoms: int) -> None:
    """Reject a molecule that was not sanitised, if it has too many atoms or rings."""
    hydrogens = sum(atom.GetAtomicNum() == 1 for atom in _atoms(mol))  # most will be removed
    atoms = mol.GetNumAtoms() - hydrogens
    _check_atoms(atoms, max_atoms)
    rings = mol.GetNumBonds() - mol.GetNumAtoms() + len(Chem.GetMolFrags(mol))
    most = min(MAX_RINGS, int(_RINGS_OF_ANY + _RINGS_PER_ATOM * atoms))
    if rings > most:
        raise UnreadableMolecule(f"{rings:,} rings in {atoms:,} atoms exceed the limit of {most:,}")


def _parse_inchi(inchi: str, max_atoms: int) -> Any:
    """Parse an InChI that passed :func:`check_text`."""
    raw = Chem.MolFromInchi(inchi, sanitize=False, removeHs=False)
    if raw is None:
        raise UnreadableMolecule("the InChI is not valid")
    _check_size(raw, max_atoms)
    mol = Chem.MolFromInchi(inchi)
    if mol is None or mol.GetNumAtoms() == 0:
        raise UnreadableMolecule("the InChI is not a molecule that RDKit accepts")
    return mol


@dataclass(frozen=True)
class MolBlockReader:
    """Reads the structures of SDF files (V2000 and V3000) and writes them as SMILES."""

    max_atoms: int = MAX_ATOMS
    longest: int = 400_000  # characters; a structure of 999 atoms takes a third of that

    def __post_init__(self) -> None:
        require_rdkit()

    def try_read(self, block: str) -> tuple[str] | str:
        """The SMILES of a structure, in a tuple; or an error message."""
        with rdBase.BlockLogs():
            try:
                raw = Chem.MolFromMolBlock(block, sanitize=False, removeHs=False)
                if raw is None:
                    return "the structure is not valid"
                _check_size(raw, self.max_atoms)
                mol = Chem.MolFromMolBlock(block)
                if mol is None:
                    return "RDKit does not accept the structure"
                if mol.GetNumAtoms() == 0:
                    return "the structure has no atoms"
                return (Chem.MolToSmiles(mol),)
            except UnreadableMolecule as reason:
                return str(reason)
            except Exception as error:  # RDKit's errors have many classes
                return f"RDKit cannot read the structure ({type(error).__name__})"


def in_canonical_order(mol: Any) -> Any:
    """An RDKit molecule with its atoms in canonical order."""
    return Chem.RenumberAtoms(mol, np.argsort(Chem.CanonicalRankAtoms(mol)).tolist())


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


def _reason(smiles: str) -> str:
    """Why RDKit rejects a SMILES: its syntax or its chemistry."""
    mol = Chem.MolFromSmiles(smiles, sanitize=False)
    if mol is None:
        return "the SMILES is not valid"
    try:
        Chem.SanitizeMol(mol)
    except ValueError as error:  # such as an atom with too many bonds
        text = str(error).strip().splitlines()[0]
        return f"the molecule is not valid ({text[:120]})"
    return "the SMILES is not valid"
