"""Verdicts on the paper's claims: intervals over seeds, and what follows from them."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from grass_gnn.experiments.budget import BUDGETS, Budget
from grass_gnn.experiments.claims import paper_claims
from grass_gnn.experiments.evidence import (
    CONFIRMED,
    CONTRADICTED,
    NOT_RESOLVED,
    NOT_TESTED,
    Evidence,
)
from grass_gnn.experiments.measured import Measured, SeedNoise

GRASS = ("ablation-zinc", "GRASS", "MAE")
ONCE = ("ablation-zinc", "Rewire at every epoch → Rewire once before training", "MAE")
DECOMPOSED = ("ablation-zinc", "RRWP (32 steps) → D-RRWP (32 eigenpairs, 32 steps)", "MAE")
EDGES = [("added-edges-zinc", "MAE, regular", number) for number in ("6", "0")]


@dataclass
class Grid:
    """Scores by place in the paper's tables, instead of a folder of runs."""

    scores: dict
    seed_noise: SeedNoise | None = None
    budget: Budget = BUDGETS["smoke"]

    def lookup(self, *place):
        return self.scores.get(place)


def claim(words):
    return next(claim for claim in paper_claims() if words in claim.text)


def judged(words, grid):
    evidence = Evidence([grid])
    interval = evidence.interval(claim(words))
    return interval, evidence.verdict(claim(words), interval)


def two_rows(first, second, places=(GRASS, ONCE), noise=0.01, runs=2):
    scores = [Measured(mean, mean * noise, runs) for mean in (first, second)]
    return Grid(dict(zip(places, scores, strict=True)), SeedNoise(noise, 8))


def test_a_difference_is_confirmed_contradicted_or_not_resolved():
    verdicts = {
        1.37: CONFIRMED,
        1.10: f"{CONFIRMED}, smaller here",
        1.80: f"{CONFIRMED}, larger here",
        1.01: NOT_RESOLVED,
        0.90: CONTRADICTED,
    }
    for ratio, verdict in verdicts.items():
        assert judged("rewired once", two_rows(0.1, 0.1 * ratio))[1] == verdict, ratio
    assert judged("without added edges", two_rows(0.1, 0.118, EDGES))[1] == CONFIRMED


def test_variants_that_are_alike():
    places = (GRASS, DECOMPOSED)
    words = "RRWP to D-RRWP on ZINC"
    assert judged(words, two_rows(0.1, 0.101, places))[1] == CONFIRMED
    assert judged(words, two_rows(0.1, 0.120, places))[1] == CONTRADICTED
    assert judged(words, two_rows(0.1, 0.080, places))[1] == CONTRADICTED
    assert judged(words, two_rows(0.1, 0.105, places))[1] == NOT_RESOLVED


def test_other_models_are_compared_only_with_the_budget_of_the_paper():
    grid = two_rows(0.047, 0.047, (("results", "GRASS", "ZINC"), ONCE))
    assert judged("lower than that of GRIT", grid)[1] == NOT_TESTED
    assert judged("Rank of GRASS on ZINC", grid)[1] == NOT_TESTED
    full = replace(grid, budget=BUDGETS["paper"])
    assert judged("lower than that of GRIT", full)[1] == CONFIRMED
    assert judged("Rank of GRASS on ZINC", full)[1] == CONFIRMED
    worse = replace(two_rows(0.2, 0.2, (("results", "GRASS", "ZINC"), ONCE)), budget=full.budget)
    assert judged("Rank of GRASS on ZINC", worse)[1] == CONTRADICTED


def test_one_seed_resolves_nothing():
    assert judged("rewired once", two_rows(0.1, 0.2, runs=1)) == (None, NOT_RESOLVED)
    assert judged("rewired once", replace(two_rows(0.1, 0.2), seed_noise=None))[0] is None


def test_more_seeds_narrow_the_interval():
    widths = [
        np.subtract(*reversed(judged("rewired once", two_rows(0.1, 0.12, runs=runs))[0]))
        for runs in (2, 8)
    ]
    assert widths[0] / widths[1] == pytest.approx(2.0, rel=0.1)


def test_intervals_contain_the_true_value_as_often_as_they_say():
    random, hits, trials = np.random.default_rng(0), 0, 150
    for _ in range(trials):
        logs = np.log([0.1, 0.12])[:, None] + 0.03 * random.standard_normal((2, 3))
        noise = float(np.sqrt(logs.var(axis=1, ddof=1).mean()))
        scores = [Measured(float(np.exp(row.mean())), 0.01, 3) for row in logs]
        low, high = judged(
            "rewired once",
            Grid(dict(zip((GRASS, ONCE), scores, strict=True)), SeedNoise(noise, 4)),
        )[0]
        hits += low <= 20.0 <= high
    assert 0.90 <= hits / trials <= 0.995
