"""Molecules, tables and settings that are small enough for tests."""

import csv
import random

TINY = {
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
    "training.epochs": 2,
    "training.batch_size": 16,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 2,
}
PARTS = ["C", "CC", "O", "N", "c1ccccc1", "C(=O)", "C(F)", "S", "C1CCCC1", "C(Cl)", "C#C"]


def some_smiles(count, seed=0):
    """Different valid molecules, chains of a few parts."""
    source, found = random.Random(seed), {}
    while len(found) < count:
        text = "C" + "".join(source.choices(PARTS, k=source.randint(1, 6))) + "C"
        found[text] = None
    return list(found)


def write_csv(path, header, rows, **options):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
