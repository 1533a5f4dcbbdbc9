"""The appendix's claims about random regular graphs, measured on sampled graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from grass_gnn.progress import report_progress
from grass_gnn.rewiring import random_regular_edges

SIZES = (32, 100, 316, 1000)
DEGREES = (4, 6, 8)  # the main text's r: r / 2 permutations
CONNECTIVITY_SIZES = (20, 40, 80)
PERMUTATIONS = (1, 2)  # three permutations are simple once in e^10.5 draws


@dataclass(frozen=True)
class Point:
    """A quantity measured on sampled graphs, and the value of the formula."""

    nodes: int
    degree: int
    measured: float  # mean over samples
    extreme: float  # worst sample: the largest for an upper bound, else the smallest
    formula: float
    samples: int


@dataclass(frozen=True)
class SimpleDraw:
    """How often permutations give a simple graph at the first attempt."""

    permutations: int
    nodes: int
    draws: int
    found: int

    @property
    def share(self) -> float:
        """Measured probability."""
        return self.found / self.draws

    @property
    def error(self) -> float:
        """Standard error of the share."""
        return math.sqrt(max(self.share * (1 - self.share), 1 / self.draws) / self.draws)

    @property
    def trials(self) -> float:
        """Expected number of draws until one is simple."""
        return self.draws / self.found if self.found else math.inf

    @property
    def limit(self) -> float:
        """exp(−(p² + p/2)), which follows from Poisson counts of loops and repeats."""
        p = self.permutations
        return math.exp(-(p**2 + p / 2))

    @property
    def paper(self) -> float:
        """exp(−(r²/2 + r)) with r = 2p, equation (6)."""
        return paper_simple_limit(2 * self.permutations)

    @property
    def paper_by_permutations(self) -> float:
        """Equation (6) with its r read as the number of permutations."""
        return paper_simple_limit(self.permutations)


def paper_simple_limit(r: int) -> float:
    """Equation (6): exp(−(r²/2 + r))."""
    return math.exp(-(r**2 / 2 + r))


@dataclass(frozen=True)
class Theory:
    """All measurements."""

    diameter: list[Point]
    resistance: list[Point]  # the formula is the measured diameter
    spectral_gap: list[Point]
    connectivity: list[Point]  # share with connectivity r, among graphs drawn without repeats
    connectivity_removed: list[Point]  # the same after loops and repeats were removed
    simple: list[SimpleDraw]


def diameter_bound(nodes: int, r: int) -> int:
    """The smallest d with (r − 1)^(d − 1) ≥ 2 r |V| log |V| (the appendix, for ε → 0)."""
    return 1 + math.ceil(math.log(2 * r * nodes * math.log(nodes)) / math.log(r - 1))


def gap_bound(r: int) -> float:
    """λ₁ > r − 2√(r − 1) − 1."""
    return r - 2 * math.sqrt(r - 1) - 1


def sample_graphs(nodes: int, r: int, count: int, seed: int, simple: bool = False) -> list:
    """Adjacency matrices [n, n] of r / 2 permutations, loops and repeats removed or redrawn."""
    ptr = torch.arange(count + 1) * nodes
    seeds = torch.arange(count) + 1_000_003 * seed + nodes
    if simple:
        edges = random_regular_edges(ptr, r // 2, seeds, "simple", max_trials=50_000)
    else:
        edges = random_regular_edges(ptr, r, seeds, "half")
    head, tail = edges.numpy()
    graph, ones = head // nodes, np.ones(head.size)
    return [
        csr_array(
            (ones[graph == b], (head[graph == b] % nodes, tail[graph == b] % nodes)),
            shape=(nodes, nodes),
        )
        for b in range(count)
    ]


def measure_theory(samples: int = 10, seed: int = 0) -> Theory:
    """Sample graphs of several sizes and degrees and measure each claim (about a minute)."""
    diameters, resistances, gaps = [], [], []
    total = len(SIZES) * len(DEGREES) + len(CONNECTIVITY_SIZES) + len(PERMUTATIONS)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        report_progress("sampling graphs", done, total)

    for nodes in SIZES:
        for r in DEGREES:
            graphs = sample_graphs(nodes, r, samples, seed)
            distances = [_diameter(graph) for graph in graphs]
            diameters.append(_point(nodes, r, distances, max(distances), diameter_bound(nodes, r)))
            spectra = [np.linalg.eigh(_laplacian(graph)) for graph in graphs]
            found = [float(values[1]) for values, _ in spectra]
            gaps.append(_point(nodes, r, found, min(found), gap_bound(r)))
            if nodes <= 316:
                found = [_resistance(*spectrum) for spectrum in spectra]
                resistances.append(_point(nodes, r, found, max(found), float(np.mean(distances))))
            advance()
    simple: list[Point] = []
    removed: list[Point] = []
    for nodes in CONNECTIVITY_SIZES:
        for kind, points in ((True, simple), (False, removed)):
            graphs = sample_graphs(nodes, 4, 2 * samples, seed, simple=kind)
            reached = [float(nx.node_connectivity(nx.Graph(graph)) == 4) for graph in graphs]
            points.append(_point(nodes, 4, reached, min(reached), 1.0))
        advance()
    draws = []
    for permutations in PERMUTATIONS:
        draws.append(_simple_draws(permutations, 400, 2_000 * samples, seed))
        advance()
    return Theory(diameters, resistances, gaps, simple, removed, draws)


def _point(
    nodes: int, degree: int, values: Sequence[float], extreme: float, formula: float
) -> Point:
    return Point(nodes, degree, float(np.mean(values)), extreme, formula, len(values))


def _diameter(graph: csr_array) -> float:
    """Longest shortest path; infinite if the graph is disconnected."""
    return float(shortest_path(graph, unweighted=True, directed=False).max())


def _laplacian(graph: csr_array) -> np.ndarray:
    dense = graph.toarray()
    return np.diag(dense.sum(axis=1)) - dense


def _resistance(values: np.ndarray, vectors: np.ndarray) -> float:
    """The largest effective resistance between two nodes, from the pseudo-inverse Laplacian."""
    scaled = vectors[:, 1:] / np.sqrt(values[1:])
    inverse = scaled @ scaled.T
    diagonal = np.diag(inverse)
    return float((diagonal[:, None] + diagonal[None, :] - 2 * inverse).max())


def _simple_draws(permutations: int, nodes: int, draws: int, seed: int) -> SimpleDraw:
    """Count draws in which no loop and no repeat had to be removed."""
    found, batch = 0, 500
    for first in range(0, draws, batch):
        ptr = torch.arange(batch + 1) * nodes
        seeds = torch.arange(first, first + batch) + 7_000_003 * (seed + 1)
        head, _ = random_regular_edges(ptr, permutations, seeds, "undirected")
        pairs = torch.bincount(head // nodes, minlength=batch)  # each pair is in both directions
        found += int((pairs == 2 * permutations * nodes).sum())
    return SimpleDraw(permutations, nodes, draws, found)
