"""Which molecules a network is pretrained on: drawn from lists, some of them cut into fragments.

Like ``data/tables/molecules.py``, this module imports neither torch nor pydantic, because the
processes that read molecules import it.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grass_gnn.data.pretraining.targets import describe
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.parsing import UnreadableMolecule, parse
from grass_gnn.errors import GrassError

FRAGMENT_SHARE = 0.3
"""Share of molecules that are replaced by a fragment, so that small molecules are learned too."""
_FEWEST_ATOMS, _MOST_CUTS = 2, 3


@dataclass(frozen=True)
class PretrainingReader(MoleculeReader):
    """Reads a molecule of a list as it is, or a random fragment of it, with its descriptors.

    Which fragment it is depends on the text of the SMILES and the seed alone.

    Args:
        excluded: Molecules to refuse, as :func:`constitution` writes them.
        seed: Random seed of the fragments.
        fragment_share: Share of molecules that are replaced by a fragment.
    """

    excluded: frozenset[str] = frozenset()
    seed: int = 0
    fragment_share: float = FRAGMENT_SHARE

    def __call__(self, smiles: str) -> Molecule:
        """Read one molecule in this process.

        Raises:
            UnreadableMolecule: The text is not a molecule, too large, or to be left out.
        """
        from rdkit import rdBase

        with rdBase.BlockLogs():
            mol = parse(smiles, self.max_atoms)
            generator = random.Random(f"{self.seed} {smiles}")  # texts are hashed, reproducibly
            if generator.random() < self.fragment_share:
                mol = random_fragment(mol, generator)
            if constitution(mol) in self.excluded:
                raise UnreadableMolecule("the molecule is to be left out")
            return self.read(mol)._replace(descriptors=describe(mol))


def constitution(mol: Any) -> str:
    """Canonical SMILES of an RDKit molecule without stereochemistry and isotopes."""
    from rdkit import Chem

    return str(Chem.MolToSmiles(mol, isomericSmiles=False))


def random_fragment(mol: Any, generator: random.Random) -> Any:
    """What remains of a molecule after cutting one to three acyclic single bonds.

    One side of each cut is kept, and open valences are filled with hydrogens.
    """
    from rdkit import Chem

    for _ in range(generator.randint(1, _MOST_CUTS)):
        bonds = [
            bond.GetIdx()
            for bond in mol.GetBonds()
            if bond.GetBondType() == Chem.BondType.SINGLE and not bond.IsInRing()
        ]
        if not bonds:
            break
        cut = Chem.FragmentOnBonds(mol, [generator.choice(bonds)], addDummies=False)
        sides = Chem.GetMolFrags(cut, asMols=True, sanitizeFrags=False)
        parts = [side for side in sides if side.GetNumAtoms() >= _FEWEST_ATOMS]
        if not parts:
            break
        # Through SMILES: hydrogens, rings and chirality are those of the fragment alone.
        found = Chem.MolFromSmiles(Chem.MolToSmiles(generator.choice(parts)))
        if found is None:
            break
        mol = found
    return mol


def excluded_molecules(tables: Sequence[str | Path], smiles: str | None = None) -> frozenset[str]:
    """The molecules of tables, as :func:`constitution` writes them; unreadable rows are ignored.

    Args:
        tables: Tables or lists of SMILES.
        smiles: Column of SMILES; found by its name by default.
    """
    from rdkit import rdBase

    found = set()
    with rdBase.BlockLogs():
        for table in tables:
            for text in read_list(table, smiles):
                try:
                    found.add(constitution(parse(text)))
                except UnreadableMolecule:
                    continue
    return frozenset(found)


def read_list(path: str | Path, smiles: str | None = None) -> Iterator[str]:
    """The SMILES of a table, or of a text file with one at the start of each line.

    Args:
        path: A CSV, TSV or Parquet table, or any other file of text; gzip is unpacked.
        smiles: Column of a table; found by its name by default.
    """
    from grass_gnn.data.tables.files import open_table
    from grass_gnn.data.tables.schema import find_smiles

    path = Path(path)
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv", ".parquet")):
        table = open_table(path)
        place = table.place(find_smiles(table, smiles), "--smiles")
        for row in table:
            yield row.cells[place].strip()
        return
    try:
        open_file = gzip.open if path.name.endswith(".gz") else open
        with open_file(path, "rt", encoding="utf-8") as file:
            for line in file:
                if words := line.split():
                    yield words[0]
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise GrassError(f"The list {path} cannot be read: {error}.") from None


def draw(
    lists: Sequence[str | Path], count: int, seed: int, smiles: str | None = None
) -> list[str]:
    """Molecules drawn from lists without replacement, in random order.

    Each list contributes the same number; a short one contributes all it has, and the others fill
    its place.

    Args:
        lists: The lists.
        count: Number of molecules; fewer if the lists are shorter.
        seed: Random seed.
        smiles: Column of SMILES of tables.
    """
    sizes = [sum(1 for _ in read_list(path, smiles)) for path in lists]
    if not sum(sizes):
        raise GrassError("The lists contain no molecules.")
    drawn: list[str] = []
    for number, (path, share) in enumerate(zip(lists, _shares(sizes, count), strict=True)):
        generator = np.random.default_rng([seed, number])
        chosen = np.zeros(sizes[number], dtype=bool)
        chosen[generator.choice(sizes[number], share, replace=False)] = True
        drawn += [text for text, take in zip(read_list(path, smiles), chosen, strict=True) if take]
    order = np.random.default_rng([seed, len(lists)]).permutation(len(drawn))
    return [drawn[place] for place in order]


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """How many to take of each list: as equal as their sizes allow."""
    shares, left = [0] * len(sizes), count
    waiting = sorted(range(len(sizes)), key=lambda number: sizes[number])
    while waiting:
        number = waiting.pop(0)
        shares[number] = min(sizes[number], left // (len(waiting) + 1))
        left -= shares[number]
    return shares
