"""SMILES, InChI and mol blocks as RDKit molecules.

Sanitisation may take minutes, or crash, on graphs that are not realistic molecules, so atoms and
rings are counted before. This module imports neither torch nor pydantic (see
:mod:`~grass_gnn.data.tables.molecules`).
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from grass_gnn.data.tables.features import each_atom
from grass_gnn.errors import GrassError

with suppress(ImportError):  # without RDKit, MoleculeReader raises a GrassError
    from rdkit import Chem, rdBase

MAX_ATOMS = 1000
MAX_SMILES = 20_000  # characters; no molecule of MAX_ATOMS atoms needs more
# The time that RDKit needs grows with the third power of the number of rings and faster in dense
# graphs. C60 has 31 rings, C540 has 271, an icosahedral carborane 19 with only 12 atoms.
MAX_RINGS = 300
_RINGS_OF_ANY, _RINGS_PER_ATOM = 64, 0.6


class UnreadableMolecule(ValueError):
    """A text that is not accepted as a molecule; the message is a clause without a full stop."""


def require_rdkit() -> None:
    """Raise unless RDKit is installed."""
    try:
        import rdkit.Chem  # noqa: F401
    except ImportError:
        message = "Reading molecules needs RDKit: pip install 'grass-gnn[chem]'."
        raise GrassError(message) from None


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
    # Ordinary SMILES have too few ring-closure digits to be dangerous: they are parsed only once.
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
    hydrogens = sum(atom.GetAtomicNum() == 1 for atom in each_atom(mol))  # most will be removed
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
