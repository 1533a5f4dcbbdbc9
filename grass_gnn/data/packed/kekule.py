"""Kekulé forms: the ways of writing the double bonds of aromatic rings.

The ZINC benchmark has no aromatic bonds: each molecule is written with single and double bonds, in
one of several equivalent forms that depends on the order of the atoms. If training shows a random
form in every epoch, the network learns that they mean the same. Two forms differ by flips: around a
ring (or the outline of several) in which single and double bonds alternate, each becomes the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grass_gnn.errors import GrassError
from grass_gnn.rewiring import random_bits

if TYPE_CHECKING:
    from grass_gnn.data.batch import InputGraphs

SINGLE, DOUBLE = 1, 2  # bond types of the vocabulary "zinc"

_MOST_FORMS = 64  # kept of a molecule; five separate benzene rings have 32
_MOST_BONDS = 8  # of an atom
_LONGEST = 14  # atoms around a flip: the outline of three fused rings
_USE = 1 << 40  # distinguishes the choice of a form from other uses of the same seed

_Bond = frozenset[int]


class KekuleForms:
    """All Kekulé forms of B molecules that are laid end to end, to draw from.

    Args:
        edge_ptr: First edge of each molecule [B + 1].
        edges: Head and tail of each edge [E, 2].
        kinds: Bond types of the vocabulary ``"zinc"`` [E] or [E, 1].
    """

    def __init__(self, edge_ptr: Tensor, edges: Tensor, kinds: Tensor) -> None:
        found, counts = [], []
        for start, stop in pairwise(edge_ptr.tolist()):
            forms = kekule_forms(edges[start:stop].t(), kinds[start:stop].flatten())
            counts.append(len(forms))
            found.append(forms.flatten())
        self.count = torch.tensor(counts)  # [B] forms of each molecule
        self.kinds = torch.cat(found)  # form after form, molecule after molecule
        size = self.count * edge_ptr.diff()
        self.first = size.cumsum(0) - size  # [B] where the forms of a molecule start

    def draw(self, graphs: InputGraphs, ids: Tensor, seeds: Tensor) -> InputGraphs:
        """These graphs, each in a random form.

        Args:
            graphs: Graphs selected from the dataset.
            ids: Their indices in the dataset [B'].
            seeds: A random seed for each [B'].
        """
        if graphs.edge_attr is None:
            return graphs
        graph = graphs.node_graph[graphs.edge_index[0]]  # [E]
        edges = torch.bincount(graph, minlength=len(ids))  # [B']
        number = random_bits(seeds, _USE) % self.count[ids]  # [B'] which form
        start = self.first[ids] + number * edges - (edges.cumsum(0) - edges)
        rows = start[graph] + torch.arange(len(graph))  # [E]
        kinds = self.kinds[rows].to(graphs.edge_attr.dtype).view_as(graphs.edge_attr)
        return replace(graphs, edge_attr=kinds)


def kekule_forms(edge_index: Tensor, kinds: Tensor) -> Tensor:
    """Bond types of each edge in all Kekulé forms of a molecule [forms, E], the given one first.

    Flips are limited to rings of 4n + 2 atoms, which are the aromatic ones. The number of forms is
    limited; the first are those that fewest flips lead to.

    Args:
        edge_index: Both directions of every bond [2, E].
        kinds: Bond types [E].

    Raises:
        GrassError: The graph is not a molecule.
    """
    bonds = [frozenset(ends) for ends in edge_index.t().tolist()]
    typed = [(b, kind) for b, kind in zip(bonds, kinds.tolist(), strict=True) if len(b) == 2]
    given = frozenset(b for b, kind in typed if kind == DOUBLE)
    neighbours: dict[int, set[int]] = {}
    for bond, kind in typed:
        for atom in bond if kind in (SINGLE, DOUBLE) else ():
            neighbours.setdefault(atom, set()).update(bond - {atom})
    most = max(map(len, neighbours.values()), default=0)
    if most > _MOST_BONDS:  # the number of paths grows exponentially
        raise GrassError(
            f"training.kekule_forms is for molecules, but a node has {most} neighbours "
            f"(an atom has at most {_MOST_BONDS})."
        )
    forms, seen = [given], {given}
    for form in forms:  # grows while it is read
        for ring in _alternating(form, neighbours):
            flipped = form ^ ring
            if flipped not in seen and len(forms) < _MOST_FORMS:
                seen.add(flipped)
                forms.append(flipped)
    found = kinds.repeat(len(forms), 1)
    for number, form in enumerate(forms[1:], 1):
        for bond in given ^ form:
            for edge in (edge for edge, other in enumerate(bonds) if other == bond):
                found[number, edge] = DOUBLE if bond in form else SINGLE
    return found


def _alternating(double: frozenset[_Bond], near: dict[int, set[int]]) -> Iterator[frozenset[_Bond]]:
    """The bonds of each ring of 4n + 2 atoms in which single and double bonds alternate."""
    partners: dict[int, list[int]] = {}
    for bond in double:
        a, b = sorted(bond)
        partners.setdefault(a, []).append(b)
        partners.setdefault(b, []).append(a)

    def extend(path: list[int]) -> Iterator[frozenset[_Bond]]:
        # A path starts and ends with a double bond. Its first atom is the lowest, so that each
        # ring is found once.
        for atom in sorted(near[path[-1]]):
            if frozenset((path[-1], atom)) in double:
                continue
            if atom == path[0]:
                if len(path) % 4 == 2 and len(path) > 2:
                    yield frozenset(map(frozenset, zip(path, path[1:] + path[:1], strict=True)))
            elif atom > path[0] and atom not in path and len(path) < _LONGEST:
                for other in partners.get(atom, []):
                    if other > path[0] and other not in path:
                        yield from extend([*path, atom, other])

    for first in sorted(partners):
        for second in partners[first]:
            if second > first:
                yield from extend([first, second])
