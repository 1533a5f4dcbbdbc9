"""The appendix's claims, measured: against independent computations and closed forms."""

import math

import networkx as nx
import numpy as np
import pytest

from grass_gnn.experiments import theory as module
from grass_gnn.experiments.theory import (
    SimpleDraw,
    diameter_bound,
    gap_bound,
    measure_theory,
    sample_graphs,
)


def test_measures_agree_with_networkx():
    (graph,) = sample_graphs(40, 6, 1, seed=3)
    whole = nx.Graph(graph)
    laplacian = nx.laplacian_matrix(whole).toarray().astype(float)
    values, vectors = np.linalg.eigh(module._laplacian(graph))
    assert module._diameter(graph) == nx.diameter(whole)
    assert values[1] == pytest.approx(np.linalg.eigvalsh(laplacian)[1])
    resistance = max(max(row.values()) for row in nx.resistance_distance(whole).values())
    assert module._resistance(values, vectors) == pytest.approx(resistance)


def test_simple_samples_are_regular():
    for graph in sample_graphs(30, 4, 3, seed=1, simple=True):
        assert (graph.sum(axis=0) == 4).all() and graph.max() == 1


def test_formulas():
    d = diameter_bound(1000, 6)
    goal = 2 * 6 * 1000 * math.log(1000)
    assert 5 ** (d - 1) >= goal > 5 ** (d - 2)
    assert gap_bound(6) == pytest.approx(6 - 2 * 5**0.5 - 1)
    draw = SimpleDraw(2, 400, 20_000, 135)
    assert draw.limit == pytest.approx(math.exp(-5)) and draw.trials == pytest.approx(
        148.1, abs=0.1
    )
    assert draw.paper == pytest.approx(math.exp(-12))
    assert SimpleDraw(1, 400, 10, 0).trials == math.inf


def test_small_measurement(monkeypatch):
    """A few small graphs, for which the claims already hold."""
    monkeypatch.setattr(module, "SIZES", (32,))
    monkeypatch.setattr(module, "CONNECTIVITY_SIZES", (20,))
    found = measure_theory(samples=2)
    assert len(found.diameter) == len(found.spectral_gap) == len(found.resistance) == 3
    assert all(p.extreme <= p.formula for p in [*found.diameter, *found.resistance])
    one, two = found.simple
    assert abs(one.share - one.limit) < 5 * one.error and abs(two.share - two.limit) < 5 * two.error
    assert one.share > 10 * one.paper  # equation (6) is far off
