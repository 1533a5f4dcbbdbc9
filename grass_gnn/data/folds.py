"""Folds of a cross-validation: every thing is in one of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grass_gnn.errors import GrassError


def random_folds(
    count: int, folds: int, seed: int = 0, labels: Sequence[float] | None = None
) -> list[int]:
    """The fold of each of ``count`` things, drawn at random; sizes differ by one at most.

    Args:
        count: How many things there are.
        folds: How many folds.
        seed: Of the draw.
        labels: The class of each thing: its share is then the same in all folds, to one thing.
    """
    _check(folds, count, "rows")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    if labels is not None:
        order.sort(key=lambda number: labels[number])  # stable: random within a class
    assigned = [0] * count
    for place, number in enumerate(order):
        assigned[number] = place % folds
    return assigned


def group_folds(groups: Sequence[str], folds: int) -> list[int]:
    """The fold of each thing, where things of one group stay together.

    The largest group first, each goes to the fold that has the fewest things so far.

    Args:
        groups: The group of each thing; things without one count each for themselves.
        folds: How many folds.
    """
    members: dict[str, list[int]] = {}
    for number, name in enumerate(groups):
        members.setdefault(name or f"#{number}", []).append(number)
    _check(folds, len(members), "groups of one scaffold")
    sizes, assigned = [0] * folds, [0] * len(groups)
    for numbers in sorted(members.values(), key=lambda numbers: (-len(numbers), numbers[0])):
        fold = sizes.index(min(sizes))
        sizes[fold] += len(numbers)
        for number in numbers:
            assigned[number] = fold
    return assigned


def _check(folds: int, count: int, what: str) -> None:
    if folds < 2:
        raise GrassError(f"A cross-validation needs at least two folds, not {folds} (--folds).")
    if count < folds:
        raise GrassError(f"{count} {what} are too few for {folds} folds (--folds).")
