"""Features of atoms and bonds.

There are three vocabularies: ``"ogb"`` numbers atoms and bonds as OGB does, ``"ogb-cip"`` (the
default for new models) differs only in the chirality column, and ``"zinc"`` is that of the ZINC
benchmark. OGB's chirality is RDKit's tag, which depends on the order in which the neighbours of an
atom are written; ``"ogb-cip"`` uses the CIP label (R or S), which does not. An atom that a
vocabulary does not contain is mapped to the nearest one that it does.

To add a vocabulary, add an entry to :data:`VOCABULARIES`. This module imports neither torch nor
pydantic (see :mod:`~grass_gnn.data.tables.molecules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from grass_gnn.config import InputConfig

with suppress(ImportError):  # without RDKit, MoleculeReader raises a GrassError
    from rdkit import Chem

# Categories of each atom [n], the atoms at both ends of each bond and its categories, and a note.
NumberedMolecule = tuple[list[tuple[int, ...]], list[tuple[int, int]], list[tuple[int, ...]], str]

# ``config.OGB_ATOM_SIZES``, repeated because importing the configuration takes longer than RDKit.
_OGB_ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
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
        for atom in each_atom(mol)
    ]
    ends: list[tuple[int, int]] = []
    kinds: list[tuple[int, ...]] = []
    for bond in each_bond(mol):
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


def each_atom(mol: Any) -> Iterator[Any]:
    """``mol.GetAtoms()``, but several times faster."""
    return map(mol.GetAtomWithIdx, range(mol.GetNumAtoms()))


def each_bond(mol: Any) -> Iterator[Any]:
    """``mol.GetBonds()``, but several times faster."""
    return map(mol.GetBondWithIdx, range(mol.GetNumBonds()))


@lru_cache(maxsize=100_000)
def _ogb_atom(number: int, chirality: str, *rest: Any) -> tuple[int, ...]:
    """Categories of an atom; the last category of a column is for unknown values."""
    degree, charge, hydrogens, radicals, hybridization, aromatic, in_ring = rest
    labels = _OGB_CHIRALITY if chirality.startswith("CHI_") else _CIP_CHIRALITY
    columns = (
        number - 1,
        _index(chirality, labels),
        degree,
        charge + 5,
        hydrogens,
        radicals,
        _index(str(hybridization), _OGB_HYBRIDIZATION),
        int(aromatic),
        int(in_ring),
    )
    return tuple(
        value if 0 <= value < size else size - 1
        for value, size in zip(columns, _OGB_ATOM_SIZES, strict=True)
    )


@lru_cache(maxsize=1000)
def _ogb_bond(kind: Any, stereo: Any, conjugated: bool) -> tuple[int, int, int]:
    stereo_number = min(_index(str(stereo), _OGB_STEREO), len(_OGB_STEREO) - 1)
    return _index(str(kind), _OGB_BONDS), stereo_number, int(conjugated)


def _index(name: str, names: tuple[str, ...]) -> int:
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
    for atom in each_atom(mol):
        symbol, charge = atom.GetSymbol(), atom.GetFormalCharge()
        in_brackets = charge != 0 or symbol == "P" or atom.GetIdx() in centres
        number, known = _zinc_atom(symbol, atom.GetTotalNumHs() if in_brackets else 0, charge)
        x.append((number,))
        if not known:
            unknown.append(symbol)
    ends: list[tuple[int, int]] = []
    kinds: list[tuple[int, ...]] = []
    for bond in each_bond(mol):
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


def _ogb_input() -> InputConfig:
    from grass_gnn.config import FeatureConfig, InputConfig

    return InputConfig(nodes=FeatureConfig(kind="ogb-atom"), edges=FeatureConfig(kind="ogb-bond"))


def _zinc_input() -> InputConfig:
    from grass_gnn.config import FeatureConfig, InputConfig

    return InputConfig(
        nodes=FeatureConfig(kind="index", sizes=[len(_ZINC_ATOMS)]),
        edges=FeatureConfig(kind="index", sizes=[4]),
    )


class Vocabulary(NamedTuple):
    """A way to number atoms and bonds."""

    number: Callable[[Any], NumberedMolecule]  # of an RDKit molecule
    bond_columns: int
    input_config: Callable[[], InputConfig]


VOCABULARIES = {
    "ogb-cip": Vocabulary(partial(ogb_graph, cip=True), 3, _ogb_input),
    "ogb": Vocabulary(ogb_graph, 3, _ogb_input),
    "zinc": Vocabulary(zinc_graph, 1, _zinc_input),
}
DEFAULT_FEATURES = "ogb-cip"


def input_config(features: str) -> InputConfig:
    """The input settings of a model that is trained with these features."""
    return VOCABULARIES[features].input_config()
