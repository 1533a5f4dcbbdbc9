"""What measured grids say about the paper's claims: values, intervals over seeds, verdicts.

A score varies from seed to seed. Its relative standard deviation is pooled over all cells of a
grid, because two or three seeds of one cell say little about it, and the interval of a claim is
that of its value when all scores that it depends on are drawn again (a parametric bootstrap with
Student's t). Molecules or graphs are not resampled: a verdict is about these test sets.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from grass_gnn.experiments.claims import Claim, Lookup, published_value
from grass_gnn.experiments.measured import GridRecord, Measured
from grass_gnn.experiments.published import GRASS_ROW, PublishedTable, published_table

DRAWS = 1000
COVERAGE = 0.95
SMALL = 5.0  # per cent: the largest difference that a claim of equality allows
CONFIRMED, CONTRADICTED, NOT_RESOLVED = "confirmed", "contradicted", "not resolved"
NOT_TESTED = "not tested"  # the budget is not that of the numbers it is compared with

Interval = tuple[float, float]


class Evidence:
    """Measured numbers in place of those of the paper.

    Args:
        grids: Grids of runs; where several have a number, the first of them counts.
    """

    def __init__(self, grids: Sequence[GridRecord]) -> None:
        self.grids = grids
        self._drawn: dict[tuple[str, str, str], np.ndarray | None] = {}

    def value(self, table: str, row: str, column: str) -> float | None:
        """The mean over seeds, or the published number of a model that is not run here."""
        if found := self._find(table, row, column):
            return found[1].mean
        ours = row == GRASS_ROW or _is_ours(published_table(table))
        return None if ours else published_value(table, row, column)

    def interval(self, claim: Claim) -> Interval | None:
        """The interval of a claim's value over seeds; None if a score has fewer than two."""
        values = [claim.compute(self._draw(number)) for number in range(DRAWS)]
        known = [value for value in values if value is not None]
        if not known:
            return None
        low, high = np.quantile(known, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
        return float(low), float(high)

    def verdict(self, claim: Claim, interval: Interval | None) -> str:
        """Whether the measurements confirm a claim, contradict it, or do not resolve it."""
        if claim.compares == "published" and not self._has_paper_budget():
            return NOT_TESTED
        if interval is None:
            return NOT_RESOLVED
        (low, high), stated = interval, float(claim.stated.rstrip(" %×"))
        if claim.unit != "%":  # a rank or a ratio, which is as stated or not
            margin = 1 + SMALL / 100 if claim.unit == "×" else 1.0
            if not low / margin <= stated <= high * margin:
                return CONTRADICTED
            return CONFIRMED if high <= low * margin else NOT_RESOLVED
        if claim.compares == "alike":
            low, high = SMALL - high, SMALL - low  # how far the difference is below the limit
        if low <= 0 <= high:
            return NOT_RESOLVED
        if high < 0:
            return CONTRADICTED
        if claim.compares == "alike" or low <= stated <= high:
            return CONFIRMED
        return f"{CONFIRMED}, {'smaller' if high < stated else 'larger'} here"

    def _find(self, table: str, row: str, column: str) -> tuple[GridRecord, Measured] | None:
        for grid in self.grids:
            if found := grid.lookup(table, row, column):
                return grid, found
        return None

    def _draw(self, number: int) -> Lookup:
        """A lookup of scores that differ from the measured ones as those of other seeds would."""

        def value(table: str, row: str, column: str) -> float | None:
            place = (table, row, column)
            if place not in self._drawn:
                self._drawn[place] = self._draws(*place)
            drawn = self._drawn[place]
            return None if drawn is None else float(drawn[number])

        return value

    def _draws(self, table: str, row: str, column: str) -> np.ndarray | None:
        found = self._find(table, row, column)
        if found is None:
            value = self.value(table, row, column)
            return None if value is None else np.full(DRAWS, value)
        grid, measured = found
        if measured.runs < 2 or grid.seed_noise is None:
            return None
        if measured.spread == 0:  # the size of a file
            return np.full(DRAWS, measured.mean)
        relative, freedom = grid.seed_noise
        random = np.random.default_rng(zlib.crc32("\0".join((table, row, column)).encode()))
        errors = relative / measured.runs**0.5 * random.standard_t(freedom, DRAWS)
        return measured.mean * np.exp(errors)

    def _has_paper_budget(self) -> bool:
        return all(grid.budget.is_paper for grid in self.grids)


def _is_ours(table: PublishedTable) -> bool:
    """Whether all rows of a table are variants of GRASS, as in ablations."""
    return not table.name.startswith("results")
