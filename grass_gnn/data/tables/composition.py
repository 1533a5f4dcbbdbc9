"""What a molecule is made of: elements, charges, isotopes, rings, and its size.

Models extrapolate poorly to kinds of atoms and rings that the training set does not contain, so
:mod:`grass_gnn.uncertainty.domain` compares the composition of new molecules with that of the
training set. Imports no torch, like :mod:`grass_gnn.data.tables.molecules`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Composition(NamedTuple):
    """What a molecule is made of, as sorted tuples that are quickly passed between processes."""

    atoms: int
    elements: tuple[str, ...] = ()  # such as C, N
    charged: tuple[str, ...] = ()  # charged atoms, such as N+ and O- in a nitro group
    charge: int = 0  # of the whole molecule
    isotopes: tuple[str, ...] = ()  # such as 2H, 13C
    rings: tuple[int, ...] = ()  # sizes of the smallest rings

    @classmethod
    def of(cls, mol: Any) -> Composition:
        """The composition of an RDKit molecule."""
        elements, charged, isotopes, total = set(), set(), set(), 0
        for place in range(mol.GetNumAtoms()):
            atom = mol.GetAtomWithIdx(place)
            symbol, charge, isotope = atom.GetSymbol(), atom.GetFormalCharge(), atom.GetIsotope()
            if symbol != "H" or not isotope:  # 2H is an isotope, and hydrogen is no new element
                elements.add(symbol)
            total += charge
            if charge:
                charged.add(symbol + signed_charge(charge))
            if isotope:
                isotopes.add(f"{isotope}{symbol}")
        return cls(
            mol.GetNumAtoms(),
            tuple(sorted(elements)),
            tuple(sorted(charged)),
            total,
            tuple(sorted(isotopes)),
            tuple(sorted({len(ring) for ring in mol.GetRingInfo().AtomRings()})),
        )


def signed_charge(charge: int) -> str:
    """A charge as chemists write it: ``+``, ``-``, ``2+``."""
    size = "" if abs(charge) == 1 else str(abs(charge))
    return f"{size}{'+' if charge > 0 else '-'}" if charge else "0"
