"""Which rows or graphs train, validate and test: drawn at random, by scaffold, or as given."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grass_gnn.data.tables.spec import DEFAULT_SHARES, SPLITS
from grass_gnn.errors import GrassError

_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


def random_split(count: int, shares: Sequence[float] = DEFAULT_SHARES, seed: int = 0) -> list[str]:
    """The split of each of ``count`` things, drawn at random."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    assigned = [""] * count
    for split, members in zip(SPLITS, _cut(order, _sizes(count, shares)), strict=True):
        for member in members:
            assigned[member] = split
    return assigned


def scaffold_split(scaffolds: Sequence[str], shares: Sequence[float] = DEFAULT_SHARES) -> list[str]:
    """The split of molecules by scaffold, so that test molecules have other ring systems.

    Groups of equal scaffold stay together; large groups go to training first, and the rarest
    scaffolds are tested on (as in MoleculeNet and OGB).

    Args:
        scaffolds: The scaffold of each molecule; molecules without one count each for themselves.
        shares: Shares of training, validation and test.
    """
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(scaffolds):
        groups.setdefault(name or f"#{number}", []).append(number)
    sizes = dict(zip(SPLITS, _sizes(len(scaffolds), shares), strict=True))
    assigned = [""] * len(scaffolds)
    for members in sorted(groups.values(), key=lambda members: (-len(members), members[0])):
        # The first split with room for the whole group; else the one with the most room left.
        split = next((s for s in SPLITS if sizes[s] >= len(members)), max(SPLITS, key=sizes.get))  # type: ignore[arg-type]
        sizes[split] -= len(members)
        for member in members:
            assigned[member] = split
    return assigned


def named_split(names: Sequence[str]) -> list[str | None]:
    """The splits that a column names; None where it names none."""
    return [_NAMES.get(name.strip().lower()) for name in names]


def check_splits(assigned: Sequence[str]) -> None:
    """Raise unless every split has a member."""
    for split in SPLITS:
        if split not in assigned:
            raise GrassError(
                f"The {split} split is empty ({len(assigned)} rows in all): "
                "give more rows, other --shares, or another split."
            )


def parse_shares(text: str) -> tuple[float, float, float]:
    """Shares of training, validation and test, from ``0.8,0.1,0.1``."""
    try:
        train, val, test = (float(part) for part in text.split(","))
        if min(train, val, test) <= 0:
            raise ValueError
    except ValueError:
        raise GrassError(
            f"--shares takes three numbers above zero, such as 0.8,0.1,0.1, not {text!r}."
        ) from None
    return train, val, test


def _sizes(count: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers with these shares; validation and test have at least one where possible."""
    total = sum(shares)
    val, test = (max(1, round(count * share / total)) if share else 0 for share in shares[1:])
    return [max(count - val - test, 0), val, test]


def _cut(order: list[int], sizes: list[int]) -> list[list[int]]:
    first, second = sizes[0], sizes[0] + sizes[1]
    return [order[:first], order[first:second], order[second:]]


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
