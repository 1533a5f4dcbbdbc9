"""Draws walks.svg: random walk probabilities of caffeine.

Run: python docs/figures/walks.py
"""

from __future__ import annotations

import torch
from drawing import EDGE, GREY, Point, box, card, cell, dot, line, shade, text, write
from rdkit import Chem
from rdkit.Chem import AllChem

from grass_gnn.encoding import dense_rrwp

SMILES = "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"
STEPS = (1, 2, 3, 5, 16)  # walk lengths that are shown
COLOURS = {"C": "#4a555d", "N": "#2368b0", "O": "#c0392b"}
SIZE = 224  # of a heat map


def molecule() -> Chem.Mol:
    """The molecule, with atoms in the order of its SMILES."""
    found = Chem.MolFromSmiles(SMILES)
    AllChem.Compute2DCoords(found)
    return found


def probabilities(mol: Chem.Mol) -> torch.Tensor:
    """P [k, n, n] of the graph of bonds."""
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    edge_index = torch.tensor(bonds + [(j, i) for i, j in bonds]).t()
    return dense_rrwp(edge_index, mol.GetNumAtoms(), max(STEPS))


def atoms(mol: Chem.Mol, left: float, top: float) -> list[str]:
    """The molecule as a graph, its atoms numbered, in a square of SIZE."""
    place = mol.GetConformer().GetAtomPosition
    raw = [(place(i).x, -place(i).y) for i in range(mol.GetNumAtoms())]
    low = [min(point[axis] for point in raw) for axis in (0, 1)]
    high = [max(point[axis] for point in raw) for axis in (0, 1)]
    scale = (SIZE - 30) / max(high[0] - low[0], high[1] - low[1])
    middle = [(low[axis] + high[axis]) / 2 for axis in (0, 1)]

    def shown(point: Point) -> Point:
        x, y = ((point[axis] - middle[axis]) * scale for axis in (0, 1))
        return round(left + SIZE / 2 + x, 1), round(top + SIZE / 2 + y, 1)

    at = [shown(point) for point in raw]
    bonds = [line(at[b.GetBeginAtomIdx()], at[b.GetEndAtomIdx()], EDGE) for b in mol.GetBonds()]
    colours = [COLOURS[atom.GetSymbol()] for atom in mol.GetAtoms()]
    return bonds + [
        dot(point, 14, colour, str(number))
        for number, (point, colour) in enumerate(zip(at, colours, strict=True))
    ]


def heat_map(values: torch.Tensor, left: float, top: float, title: str) -> list[str]:
    """One power of T: row i is where a walker from atom i may be."""
    step = SIZE / len(values)
    cells = [
        cell(
            round(left + column * step, 1),
            round(top + row * step, 1),
            round(step, 1),
            round(step, 1),
            shade(round(value**0.5, 2)),
        )
        for row, probabilities_of in enumerate(values.tolist())
        for column, value in enumerate(probabilities_of)
        if value > 0
    ]
    frame = box(left, top, SIZE, SIZE, stroke=GREY, radius=0)
    return [*cells, frame, text(left + SIZE / 2, top - 12, title, 21, font_weight="bold")]


def draw() -> str:
    """The figure."""
    mol = molecule()
    powers = probabilities(mol)
    gap = 32
    shapes = [
        text(gap + SIZE / 2, 44, "caffeine", 21, font_weight="bold"),
        *atoms(mol, gap, 56),
    ]
    for number, steps in enumerate(STEPS, 1):
        left = gap + number % 3 * (SIZE + gap)
        top = 56 + number // 3 * (SIZE + 52)
        shapes += heat_map(powers[steps - 1], left, top, f"{steps} step" + "s" * (steps > 1))
    width, height = 3 * (SIZE + gap) + gap, 56 + 2 * SIZE + 52 + 46
    caption = "Row i, column j: the probability of a walk from atom i to atom j."
    shapes.append(text(width / 2, height - 16, caption, 20, GREY))
    title = "Caffeine, and heat maps of its random walk probabilities after 1, 2, 3, 5 and 16 steps"
    return card(width, height, title, shapes)


if __name__ == "__main__":
    write(draw(), __file__)
