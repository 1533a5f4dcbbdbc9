"""Graphs written as SMILES: cages, lattices and other structures that are hard for RDKit."""

from __future__ import annotations

import heapq
import itertools
import random

Edges = list[tuple[int, int]]


def hypercube(dimension: int) -> Edges:
    """2^d atoms of degree d."""
    size = 2**dimension
    return [
        (i, i ^ (1 << bit)) for i in range(size) for bit in range(dimension) if i < i ^ 1 << bit
    ]


def complete(size: int) -> Edges:
    """All pairs of ``size`` atoms."""
    return list(itertools.combinations(range(size), 2))


def bipartite(size: int) -> Edges:
    """All pairs between two groups of ``size`` atoms."""
    return [(i, size + j) for i in range(size) for j in range(size)]


def lattice(*sizes: int) -> Edges:
    """A rectangular lattice of any dimension."""
    places = {place: number for number, place in enumerate(itertools.product(*map(range, sizes)))}
    edges = []
    for place, number in places.items():
        for axis in range(len(sizes)):
            after = (*place[:axis], place[axis] + 1, *place[axis + 1 :])
            if after in places:
                edges.append((number, places[after]))
    return edges


def theta(paths: int, length: int) -> Edges:
    """Two atoms joined by many paths, so that all rings share them."""
    edges, atom = [], 2
    for _ in range(paths):
        places = [0, *range(atom, atom + length), 1]
        edges += list(itertools.pairwise(places))
        atom += length
    return edges


def tube(length: int, around: int) -> Edges:
    """A nanotube of hexagons; an even number of atoms around it."""
    edges = set()
    for row, column in itertools.product(range(length), range(around)):
        atom = row * around + column
        edges.add((atom, row * around + (column + 1) % around))
        if row + 1 < length and (row + column) % 2 == 0:
            edges.add((atom, atom + around))
    return sorted(edges)


def cubic(size: int, seed: int) -> Edges:
    """A ring with random chords: three bonds at every atom of an even number."""
    ends = random.Random(seed).sample(range(size), size)
    chords = zip(ends[::2], ends[1::2], strict=True)
    ring = ((atom, (atom + 1) % size) for atom in range(size))
    return sorted({(min(pair), max(pair)) for pair in (*ring, *chords)})


def smiles_of(edges: Edges, atom: str = "[U]") -> str:
    """A connected graph as SMILES, without recursion; ring numbers are reused."""
    neighbours: dict[int, list[int]] = {}
    for i, j in edges:
        neighbours.setdefault(i, []).append(j)
        neighbours.setdefault(j, []).append(i)
    children: dict[int, list[int]] = {node: [] for node in neighbours}
    tree: set[frozenset[int]] = set()
    seen, stack, order = {0}, [(0, iter(neighbours.get(0, [])))], [0]
    while stack:
        node, rest = stack[-1]
        following = next((other for other in rest if other not in seen), None)
        if following is None:
            stack.pop()
            continue
        seen.add(following)
        order.append(following)
        children[node].append(following)
        tree.add(frozenset((node, following)))
        stack.append((following, iter(neighbours[following])))
    free, numbers = list(range(1, len(edges) + 2)), dict[frozenset[int], int]()
    texts = {}
    for node in order:  # the order in which atoms are written
        text = atom
        for other in neighbours.get(node, []):
            bond = frozenset((node, other))
            if bond in tree:
                continue
            if bond in numbers:
                number = numbers.pop(bond)
                heapq.heappush(free, number)
            else:
                number = numbers[bond] = heapq.heappop(free)
            text += str(number) if number < 10 else f"%{number}" if number < 100 else f"%({number})"
        texts[node] = text
    written: list[str] = []
    work: list[int | str] = [0]
    while work:
        item = work.pop()
        if isinstance(item, str):
            written.append(item)
            continue
        written.append(texts.get(item, atom))
        *branches, last = children.get(item) or [None]
        if last is not None:
            work.append(last)
        for branch in reversed(branches):
            assert branch is not None
            work += [")", branch, "("]
    return "".join(written)


# Each of these crashed RDKit, or took many seconds or more than a gigabyte of memory.
HARD = {
    "hypercube": hypercube(9),
    "complete": complete(60),
    "lattice": lattice(10, 10, 10),
    "ladder": lattice(2, 500),
    "bipartite": bipartite(20),
    "theta": theta(299, 3),  # within all limits
}
