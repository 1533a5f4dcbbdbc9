"""How the atoms and bonds of an RDKit molecule are numbered: as OGB does, or as ZINC's benchmark.

An atom that a vocabulary does not know is read as the nearest one it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from grass_gnn.config import OGB_ATOM_SIZES, FeatureConfig, InputConfig

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
